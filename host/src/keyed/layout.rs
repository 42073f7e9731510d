//! How the marks of a stage lie in a changelog: each in a record of its own, or those that never end many in one, a sheaf
//! (kafka/changelog.rs). A sheaf has a key of its own, so what becomes of a mark in it must be told for as long as it
//! stands.

use serde::{Deserialize, Serialize};

use super::{Keyed, Step};
use crate::format::StoredMark;

/// How the marks in space 0 of a stage lie in a changelog. It only rises, until all of the space is dropped for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Layout {
    /// Each has a record of its own.
    #[default]
    Single,
    /// Those that never end may be in sheaves, and none of them was ever taken away: what has an end is in none.
    Sheaves,
    /// One that never ends was taken away: no more sheaves are made, and what is taken away is told for ever, as one that
    /// stands may have it.
    Mixed,
}

impl Layout {
    /// As it is once this write is told; `next` is the write behind it. `is_bound`: what never ends may be evicted.
    pub(super) fn after(self, step: &Step, next: Option<&Step>, is_bound: bool) -> Layout {
        let is_endless = |mark: &StoredMark| mark.expires == i64::MAX;
        match (self, step) {
            (Layout::Single, Step::Marked { space: 0, new, .. }) if is_endless(new) && !is_bound => Layout::Sheaves,
            (Layout::Sheaves, Step::Marked { space: 0, new, .. }) if is_endless(new) && is_bound => Layout::Mixed,
            (Layout::Sheaves, Step::Unmarked { space: 0, hash, old }) if is_endless(old) => {
                // Changed is taken away and set.
                let stays = |next: &Step| matches!(next, Step::Marked { space: 0, hash: of, new } if of == hash && is_endless(new));
                if next.is_some_and(stays) { self } else { Layout::Mixed }
            }
            _ => self,
        }
    }
}

impl Keyed {
    /// How its marks lie in a changelog, with all that was given to be told.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// In its changelog they lie so, or it is already known that it is worse.
    pub fn lay_out(&mut self, layout: Layout) {
        self.layout = self.layout.max(layout);
    }

    /// Nothing of a space counts any more that is in its changelog: it begins anew.
    pub fn raise_floor(&mut self, space: i64) {
        drop(self.detach(space));
        self.layout = Layout::Single;
    }

    /// Where there are sheaves, space 0 is in use even if nothing is in it, unless it was dropped just now: what was taken
    /// away one by one is still in them, and only a drop ends that.
    pub fn use_sheaves(&mut self) {
        let is_dropped = |step: &Step| matches!(step, Step::Space { space: 0, .. });
        if self.layout != Layout::Single && !self.log.iter().any(is_dropped) {
            self.spaces.entry(0).or_default();
        }
    }

    /// Frees everything in one step, what is only in sheaves too. Gives how many entries and marks there were.
    pub fn drop_all(&mut self) -> u64 {
        self.use_sheaves();
        self.drop_spaces(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::Settings;
    use super::super::keyed_tests::begin;
    use super::*;
    use crate::guest::call::State;

    const NEVER: i64 = i64::MAX;

    /// A mark of hash 1 in a space that is set (true) or taken away, with an end.
    fn step((is_set, space, expires): (bool, i64, i64)) -> Step {
        let mark = StoredMark { expires, ..StoredMark::default() };
        match is_set {
            true => Step::Marked { space, hash: 1, new: mark },
            false => Step::Unmarked { space, hash: 1, old: mark },
        }
    }

    /// The layout after these writes, from a layout on.
    #[track_caller]
    fn check(from: Layout, is_bound: bool, writes: &[(bool, i64, i64)], expected: Layout) {
        let steps: Vec<Step> = writes.iter().copied().map(step).collect();
        let after = |layout: Layout, at: usize| layout.after(&steps[at], steps.get(at + 1), is_bound);
        assert_eq!((0..steps.len()).fold(from, after), expected, "{from:?}, {writes:?}");
    }

    #[test]
    fn sheaves_begin_with_a_mark_that_never_ends_and_end_when_one_is_taken_away() {
        use Layout::{Mixed, Sheaves, Single};
        check(Single, false, &[(true, 0, NEVER)], Sheaves);
        check(Single, false, &[(true, 0, 5), (false, 0, 5), (true, 7, NEVER)], Single);
        // It had a record of its own.
        check(Single, false, &[(false, 0, NEVER)], Single);
        check(Sheaves, false, &[(true, 0, NEVER), (true, 0, 5), (false, 0, 5), (false, 7, NEVER)], Sheaves);
        check(Sheaves, false, &[(false, 0, NEVER)], Mixed);
        check(Mixed, false, &[(true, 0, NEVER), (false, 0, NEVER), (true, 0, NEVER)], Mixed);
        // One that is changed is there all the time, unless it has an end now: then it goes as others do some day.
        check(Sheaves, false, &[(false, 0, NEVER), (true, 0, NEVER)], Sheaves);
        check(Sheaves, false, &[(false, 0, NEVER), (true, 0, 5)], Mixed);
        check(Sheaves, false, &[(false, 0, NEVER), (true, 7, NEVER)], Mixed);
    }

    #[test]
    fn where_marks_are_evicted_there_are_no_sheaves() {
        check(Layout::Single, true, &[(true, 0, NEVER), (false, 0, NEVER), (true, 0, NEVER)], Layout::Single);
        check(Layout::Sheaves, true, &[(true, 0, 5)], Layout::Sheaves);
        check(Layout::Sheaves, true, &[(true, 0, NEVER)], Layout::Mixed);
    }

    /// Marks of these keys that never end, and the first of them taken away again if it was there.
    fn seen(keyed: Keyed, keys: &[u64], clears: bool) -> Keyed {
        let mut session = keyed.session(begin(keys, 0, 0));
        session.seen(0, &[NEVER], if clears { &[0] } else { &[] }, false).unwrap();
        session.finish().keyed
    }

    #[test]
    fn it_lasts_through_what_becomes_of_the_state_until_a_floor() {
        let mut keyed = seen(Keyed::new(Settings::default()), &[1, 2], false);
        assert_eq!(keyed.layout(), Layout::Single, "nothing was told yet");
        keyed.ahead();
        assert_eq!(keyed.layout(), Layout::Sheaves);
        keyed.revert();
        assert_eq!(keyed.layout(), Layout::Sheaves, "somebody may have been told all the same");
        keyed = seen(seen(keyed, &[1, 2], false), &[1], true);
        keyed.seal();
        assert_eq!(keyed.layout(), Layout::Mixed);
        let mut keyed = keyed.with_settings(Settings { max_entries: Some(9), ..Settings::default() });
        keyed.lay_out(Layout::Sheaves);
        assert_eq!((keyed.layout(), keyed.stats().marks), (Layout::Mixed, 1));
        keyed.raise_floor(0);
        assert_eq!((keyed.layout(), keyed.stats().marks), (Layout::Single, 0));
    }

    #[test]
    fn what_is_only_in_sheaves_is_dropped_with_everything_else() {
        let dropped = |mut keyed: Keyed| {
            keyed.seal();
            assert_eq!(keyed.drop_all(), 0);
            // Asked again before the seal, it is the same drop.
            keyed.drop_all();
            (
                keyed.dropped().len(),
                keyed.seal().iter().filter(|change| **change == super::super::Change::Drop { space: 0 }).count(),
            )
        };
        let one = |keyed| seen(keyed, &[1], false);
        let mut sheaves = one(Keyed::new(Settings::default()));
        sheaves.seal();
        assert_eq!(dropped(seen(sheaves, &[1], true)), (1, 1), "its mark was taken away one by one");
        let mut single = one(Keyed::new(Settings { max_entries: Some(9), ..Settings::default() }));
        single.seal();
        assert_eq!(dropped(seen(single, &[1], true)), (0, 0));
    }
}
