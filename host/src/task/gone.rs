//! Stages that are no more: a run before had them, and the file that this run was started with has not. As with `reload`
//! their state goes with the next commit. Else a later run that has such a stage again would judge by what it knew before
//! it missed records, and its state might be that of another key (R8).

use super::{Keyed, Sealed, Task};
use crate::keyed::Settings;

impl Task {
    /// Marks and entries that were restored of stages that are gone, by stage, and go with the next commit.
    pub fn parts_with(&self) -> Vec<(&str, u64)> {
        let count = |keyed: &Keyed| keyed.stats().marks + keyed.stats().entries;
        let all = self.gone.iter().map(|(stage, keyed)| (&**stage, count(keyed)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// The state of a stage that is gone.
    pub(super) fn gone(&mut self, stage: &str) -> &mut Keyed {
        let at = self.gone.iter().position(|(id, _)| id == stage).unwrap_or_else(|| {
            self.gone.push((stage.to_owned(), Keyed::new(Settings::default())));
            self.gone.len() - 1
        });
        &mut self.gone[at].1
    }

    /// Drops what is left of stages that are gone, and gives what `of` makes of each.
    pub(super) fn part_with(&mut self, mut of: impl FnMut(&mut Keyed) -> Vec<crate::keyed::Change>) -> Vec<Sealed> {
        let each = self.gone.iter_mut().map(|(stage, keyed)| {
            keyed.drop_all();
            let (stage, changes) = (stage.clone(), of(keyed));
            Sealed { stage, changes, layout: keyed.layout(), ..Sealed::default() }
        });
        each.filter(|sealed| !sealed.changes.is_empty()).collect()
    }

    /// A seal lasts: with it went what there was of stages that are gone, in a task that took part.
    pub(super) fn forget_gone(&mut self) {
        self.gone.retain(|(_, keyed)| keyed.stats().spaces > 0 || keyed.unsealed() > 0);
    }
}
