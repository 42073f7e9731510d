//! All state in pieces, while it goes on changing: what checkpoints and new segments are written from, a little after each
//! commit.
//!
//! A round begins at a commit. Its pieces are of different moments; the changes of every commit from that one on bring
//! them to one moment, since a change is absolute and the last one wins (reliability, section 2.4). So whatever was
//! there when the round began must be in a piece, unless a change says what became of it. That holds because nothing
//! moves past the cursor: marks are met in the order of their hashes, an entry stays in its chunk, spaces in their order.
//! A table of marks that was split meanwhile is begun again.

use super::Keyed;
use super::seal::{encoded, push_mark};
use crate::format::Change;

/// Groups of marks that are looked at in one go.
const GROUPS: usize = 64;

/// Where a round stands in the state of one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The space it is in, or the least it may be in.
    space: i64,
    /// How many parts the marks of this space had, the next one, and the hash in it that is next.
    parts: usize,
    part: usize,
    hash: u64,
    /// The next chunk of entries.
    chunk: usize,
    done: bool,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor::at(i64::MIN)
    }
}

impl Cursor {
    fn at(space: i64) -> Cursor {
        Cursor { space, parts: 0, part: 0, hash: 0, chunk: 0, done: false }
    }
}

impl Keyed {
    /// The next piece, as changes to empty state: at least one, of about `budget` marks and entries, but whole chunks of
    /// either. None: that was all. Everything must be sealed.
    pub fn dump_some(&self, at: &mut Cursor, budget: usize) -> Option<Vec<Change>> {
        if at.done {
            return None;
        }
        let mut changes = vec![Change::Numbers { born: self.born, set: self.set }];
        let (mut count, mut room) = (0, Vec::new());
        while count < budget {
            let Some((&space, table)) = self.spaces.range(at.space..).next() else {
                at.done = true;
                break;
            };
            if space != at.space {
                *at = Cursor::at(space);
            }
            if at.parts != table.marks.parts() {
                (at.parts, at.part, at.hash) = (table.marks.parts(), 0, 0);
            }
            if at.part < at.parts {
                let next = table.marks.some_of(at.part, at.hash, GROUPS, |hash, mark| {
                    push_mark(&mut changes, space, hash, Some(mark));
                    count += 1;
                });
                (at.part, at.hash) = next.map_or((at.part + 1, 0), |next| (at.part, next));
            } else if let Some(entries) = table.entries.of_chunk(at.chunk) {
                for entry in entries {
                    let (bytes, _) = encoded(space, entry, &mut room);
                    changes.push(Change::Entry { space, key: entry.key, entry: Some(bytes) });
                    count += 1;
                }
                at.chunk += 1;
            } else {
                match space.checked_add(1) {
                    Some(next) => *at = Cursor::at(next),
                    None => at.done = true,
                }
                if at.done {
                    break;
                }
            }
        }
        Some(changes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::keyed_tests::{Dice, begin, bytes};
    use super::super::{Settings, Stamp};
    use super::*;
    use crate::guest::call::State;

    /// Rows of a call: enough for tables of marks that are split, and entries in several chunks.
    const ROWS: u64 = 2_000;
    /// The last one is never dropped, and its table of marks is split.
    const SPACES: [i64; 5] = [0, 100, 200, 200, 200];

    /// Many keys come, are renewed and go again, in three spaces, two of which are dropped now and then.
    fn call(keyed: Keyed, dice: &mut Dice, now: i64) -> Keyed {
        let keys: Vec<u64> = (0..ROWS).map(|_| dice.below(400_000)).collect();
        let mut session = keyed.session(begin(&keys, now, now));
        let until = now + 100 + dice.below(200) as i64;
        session.seen(SPACES[dice.below(5) as usize], &[until], &[dice.below(ROWS) as u32], dice.below(2) == 0).unwrap();
        let rows: Vec<u32> = (0..300).collect();
        let view = session.open(&rows, &vec![100 * dice.below(3) as i64; 300]).unwrap();
        let mut slots = view.slots;
        slots.sort_unstable();
        slots.dedup();
        let (gone, kept) = slots.split_at(slots.len() / 3);
        session.remove(gone).unwrap();
        session.put(kept, &bytes(&vec![vec![now as u8; 5]; kept.len()]), &vec![until; kept.len()]).unwrap();
        let mut keyed = session.finish().keyed;
        if dice.below(12) == 0 {
            keyed.drop_spaces(100 * dice.below(2) as i64);
        }
        keyed
    }

    /// Commits with a slice of a round after each; after every round a restart from its pieces. How many of the restored
    /// states are not the one that was committed. `begins`: the changes are followed from where the round began, as they
    /// must be, or from where it ended.
    fn wrong(begins: bool, seed: u64) -> usize {
        let mut dice = Dice::new(seed);
        let mut keyed = Keyed::new(Settings::default());
        let mut journal: Vec<Vec<Change>> = Vec::new();
        let (mut rounds, mut wrong) = (0, 0);
        let (mut cursor, mut pieces, mut began) = (Cursor::default(), Vec::new(), 0);
        for step in 0..80 {
            // A call that faults is undone while a round is under way: nothing may move past its cursor.
            if dice.below(6) == 0 {
                let mark = keyed.mark();
                keyed = call(keyed, &mut dice, step * 2);
                keyed.undo(mark);
            }
            keyed = call(keyed, &mut dice, step * 2);
            journal.push(keyed.seal());
            for _ in 0..dice.below(4) {
                match keyed.dump_some(&mut cursor, 1 + dice.below(12_000) as usize) {
                    Some(piece) => pieces.push(piece),
                    None => {
                        let from = if begins { began } else { journal.len() - 1 };
                        let changes = pieces.drain(..).chain(journal.iter().skip(from).cloned()).flatten().collect();
                        let restored = Keyed::load(Settings::default(), changes);
                        rounds += 1;
                        wrong += usize::from(restored.digest() != keyed.digest());
                        (cursor, began) = (Cursor::default(), journal.len() - 1);
                    }
                }
            }
        }
        assert!(rounds > 2, "{rounds} rounds");
        assert!(keyed.spaces.values().any(|space| space.marks.parts() > 1), "no table was split");
        wrong
    }

    #[test]
    fn pieces_of_different_moments_and_the_changes_since_the_first_give_the_state() {
        assert_eq!(wrong(true, 1), 0);
    }

    /// The mutant: it must not pass.
    #[test]
    fn with_the_changes_since_the_last_piece_the_state_would_be_wrong() {
        assert!(wrong(false, 1) > 0);
    }

    #[test]
    fn a_piece_is_bounded_and_all_pieces_are_all() {
        let mut dice = Dice::new(9);
        let mut keyed = Keyed::new(Settings::default());
        for step in 0..20 {
            keyed = call(keyed, &mut dice, step);
        }
        keyed.seal();
        let all = keyed.stats();
        assert!(all.marks > 20_000 && all.entries > 2_000, "{all:?}");
        let (mut cursor, mut pieces) = (Cursor::default(), Vec::new());
        while let Some(piece) = keyed.dump_some(&mut cursor, 500) {
            pieces.push(piece);
        }
        assert!(pieces.len() > 5, "{}", pieces.len());
        let restored = Keyed::load(Settings::default(), pieces.concat());
        assert_eq!((restored.digest(), restored.next_wake()), (keyed.digest(), None::<Stamp>));
    }
}
