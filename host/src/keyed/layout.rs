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
