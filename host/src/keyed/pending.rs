//! A seal that can be taken back: what it made durable is not known to be so yet. A commit that failed leaves the state
//! as it was after the last one, without reading it again.

use std::collections::BTreeSet;

use super::seal::push_mark;
use super::{Change, Entry, Keyed, Mark, Step};

/// What a seal did.
#[derive(Debug)]
pub struct Pending {
    /// The log that it made changes of.
    steps: Vec<Step>,
    olds: Vec<Entry>,
    /// The savepoint of the seal before it.
    base: Mark,
    /// Digests of the spaces before it; not of those that were dropped, which have their own.
    digests: Vec<(i64, u128)>,
}

impl Keyed {
    /// As `seal`, but the log is kept until `settle` or `revert` says what became of it.
    pub fn seal_pending(&mut self) -> Vec<Change> {
        self.settle();
        let steps = std::mem::take(&mut self.log);
        let dropped = steps.iter().filter_map(|step| match step {
            Step::Space { space, .. } => Some(*space),
            _ => None,
        });
        let dropped: BTreeSet<i64> = dropped.collect();
        let spaces = self.spaces.iter().filter(|(space, _)| !dropped.contains(space));
        let digests = spaces.map(|(number, space)| (*number, space.digest)).collect();
        let changes = self.seal_steps(&steps);
        let olds = std::mem::take(&mut self.olds);
        self.pending = Some(Box::new(Pending { steps, olds, base: self.base, digests }));
        self.rebase();
        changes
    }

    /// Marks that were set and taken away since the last seal and were not given before, for whoever can write them before
    /// the seal and take them back if it fails. It ends at the first write of another kind: several writes of an entry
    /// become one, and what a dropped space had is told by the drop. The seal gives what is left. Nothing that was given
    /// may be undone but by `revert`.
    pub fn ahead(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        let given = self.log.get(self.ahead..).unwrap_or_default();
        for (at, step) in given.iter().enumerate() {
            match step {
                Step::Marked { space, hash, new } => push_mark(&mut changes, *space, *hash, Some(*new)),
                Step::Unmarked { space, hash, .. } => push_mark(&mut changes, *space, *hash, None),
                Step::Entry { .. } | Step::Space { .. } => break,
            }
            self.layout = self.layout.after(step, given.get(at + 1), self.quota.is_bound());
            self.ahead += 1;
        }
        changes
    }

    /// At most so many writes would `ahead` give.
    pub fn unwritten(&self) -> usize {
        self.log.len().saturating_sub(self.ahead)
    }

    /// Writes since the last seal.
    pub fn unsealed(&self) -> usize {
        self.log.len()
    }

    /// The last seal lasts.
    pub fn settle(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let Pending { mut steps, mut olds, .. } = *pending;
        if self.log.is_empty() {
            self.forget_old(&steps);
            // Its memory serves the next log: that is about as large.
            steps.clear();
            olds.clear();
            (self.log, self.olds) = (steps, olds);
        } else {
            // What is logged since may remember what is in a space that looks empty.
            self.forget_places(&steps);
        }
    }

    /// Takes back every write since the last seal, and that seal with every write before it, if it is not settled.
    pub fn revert(&mut self) {
        self.ahead = 0;
        self.undo(self.base);
        self.olds.clear();
        if let Some(pending) = self.pending.take() {
            let Pending { steps, olds, base, digests } = *pending;
            (self.log, self.olds) = (steps, olds);
            self.undo(base);
            self.olds.clear();
            for (number, digest) in digests {
                if let Some(space) = self.spaces.get_mut(&number) {
                    space.digest = digest;
                }
            }
            self.base = base;
        }
        self.full = None;
        self.spaces.retain(|_, space| space.marks.len() + space.entries.len() > 0);
    }

    /// From now on `revert` comes back to this moment; nothing may be in the log.
    pub(super) fn rebase(&mut self) {
        self.base = Mark { log: 0, ..self.mark() };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::keyed_tests::{Dice, begin, bytes};
    use super::super::{ExpiresBy, Overflow, Settings};
    use super::*;
    use crate::guest::call::State;
    use crate::time::Stamp;

    const SPACES: [i64; 3] = [0, 100, 200];

    /// Keys come, are renewed, wait, and go again, in three spaces, which are dropped now and then.
    fn call(keyed: Keyed, dice: &mut Dice, now: i64) -> Keyed {
        let keys: Vec<u64> = (0..12).map(|_| dice.below(40)).collect();
        let mut session = keyed.session(begin(&keys, now, now));
        let until = now + 5 + dice.below(60) as i64;
        // A bound may refuse; what was done before stays in the log.
        let _ = session.seen(SPACES[dice.below(3) as usize], &[until], &[dice.below(12) as u32], dice.below(2) == 0);
        session.due().unwrap();
        let Ok(view) = session.open(&[0, 1, 2, 3, 4], &vec![SPACES[dice.below(3) as usize]; 5]) else {
            return session.finish().keyed;
        };
        let mut slots = view.slots;
        slots.sort_unstable();
        slots.dedup();
        let (gone, kept) = slots.split_at(slots.len() / 3);
        session.remove(gone).unwrap();
        let _ = session.put(kept, &bytes(&vec![vec![now as u8; 5]; kept.len()]), &vec![until; kept.len()]);
        let mut keyed = session.finish().keyed;
        if dice.below(8) == 0 {
            keyed.drop_spaces(SPACES[dice.below(3) as usize]);
        }
        keyed
    }

    /// Everything that can be told of it.
    fn told(keyed: &Keyed) -> String {
        let mut dump: Vec<String> = Vec::new();
        for change in keyed.dump() {
            match change {
                Change::Marks { space, marks } => {
                    dump.extend(marks.iter().map(|(hash, mark)| format!("{space} {hash} {mark:?}")));
                }
                other => dump.push(format!("{other:?}")),
            }
        }
        dump.sort();
        let stats = super::super::Stats { mark_memory: 0, spaces: 0, ..keyed.stats() };
        // Empty spaces come and go as they like.
        let used = keyed.spaces.iter().filter(|(_, space)| space.marks.len() + space.entries.len() > 0);
        let spaces: Vec<(i64, u128)> = used.map(|(number, space)| (*number, space.digest)).collect();
        let numbers = (keyed.digest(), keyed.next_wake(), keyed.numbers());
        format!("{numbers:?}\n{spaces:?}\n{stats:?}\n{}", dump.join("\n"))
    }

    #[track_caller]
    fn check_told(found: &str, expected: &str, when: &str) {
        let differing = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
        assert_eq!(differing, None, "{when}");
        assert_eq!(found.lines().count(), expected.lines().count(), "{when}");
    }

    /// Commits of which some fail, before the seal, in it or after it; each failure leaves what the last good one left, and
    /// what is made durable of the good ones is the state.
    fn check(settings: Settings) {
        for seed in 1..=30 {
            let mut dice = Dice::new(seed);
            let mut keyed = Keyed::new(settings);
            let (mut durable, mut given) = (Vec::new(), 0);
            let mut before = told(&keyed);
            let mut failed = 0;
            for now in 0..120 {
                // What is written before the seal counts with it.
                let mut ahead = Vec::new();
                for _ in 0..dice.below(3) {
                    keyed = call(keyed, &mut dice, now);
                    if dice.below(2) == 0 {
                        ahead.extend(keyed.ahead());
                        assert!(keyed.unwritten() <= keyed.unsealed());
                    }
                }
                given += ahead.len();
                match dice.below(4) {
                    0 => {
                        keyed.revert();
                        check_told(&told(&keyed), &before, &format!("seed {seed}, {now}: before the seal"));
                        failed += 1;
                    }
                    1 => {
                        keyed.seal_pending();
                        keyed.revert();
                        check_told(&told(&keyed), &before, &format!("seed {seed}, {now}: after the seal"));
                        failed += 1;
                    }
                    _ => {
                        durable.push(ahead);
                        durable.push(keyed.seal_pending());
                        keyed.settle();
                        before = told(&keyed);
                    }
                }
            }
            let restored = Keyed::load(settings, durable.concat());
            assert_eq!(restored.digest(), keyed.digest(), "seed {seed}");
            assert!(failed > 20 && given > 10, "{failed} {given}");
        }
    }

    #[test]
    fn a_commit_that_failed_leaves_the_state_of_the_last_one() {
        check(Settings::default());
        let bounds = Settings { expires_by: ExpiresBy::Now, max_entries: Some(30), ..Settings::default() };
        check(bounds);
        check(Settings { overflow: Overflow::EvictOldest, ..bounds });
    }

    #[test]
    fn state_that_was_restored_is_come_back_to() {
        let mut dice = Dice::new(7);
        let mut keyed =
            Keyed::new(Settings { overflow: Overflow::EvictOldest, max_entries: Some(9), ..Settings::default() });
        for now in 0..20 {
            keyed = call(keyed, &mut dice, now);
        }
        keyed.seal();
        let mut restored = Keyed::load(*keyed.settings(), keyed.dump());
        let before = (told(&restored), restored.numbers());
        restored = call(restored, &mut dice, 21);
        restored.seal_pending();
        restored.revert();
        assert_eq!((told(&restored), restored.numbers()), before);
        assert_eq!(restored.next_wake(), None::<Stamp>);
    }
}
