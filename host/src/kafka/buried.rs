//! Keys of dropped spaces that are still in a changelog: they are dead at once, and are taken away a few with every
//! commit, so that compaction can reclaim them.

use std::collections::{HashMap, VecDeque};

use super::group::Place;
use crate::keyed::Change;
use crate::plan::Plan;
use crate::task::{Sealed, Task};

/// Changes with one commit: runs of marks, or single entries.
const AT_ONCE: usize = 64;

/// What is still to be taken away, by task.
#[derive(Debug, Default)]
pub struct Buried(HashMap<Place, VecDeque<(String, Change)>>);

impl Buried {
    /// Adds what a task has dropped since its last seal.
    pub fn add(&mut self, place: &Place, dropped: Vec<Sealed>) {
        if dropped.is_empty() {
            return;
        }
        let queue = self.0.entry(place.clone()).or_default();
        for sealed in dropped {
            queue.extend(sealed.changes.into_iter().map(|change| (sealed.stage.clone(), change)));
        }
    }

    /// The next few of a task. A space that is in use again keeps what it has: those keys are left to it.
    pub fn next(&mut self, place: &Place, task: &Task, plan: &Plan) -> Vec<Sealed> {
        let Some(queue) = self.0.get_mut(place) else { return Vec::new() };
        let mut taken: Vec<Sealed> = Vec::new();
        for (stage, change) in queue.drain(..queue.len().min(AT_ONCE)) {
            let space = match &change {
                Change::Marks { space, .. } | Change::Entry { space, .. } | Change::Drop { space } => *space,
                Change::Numbers { .. } => continue,
            };
            if task.has_space(plan, &stage, space) {
                continue;
            }
            match taken.last_mut().filter(|last| last.stage == stage) {
                Some(last) => last.changes.push(change),
                None => taken.push(Sealed { stage, identity: String::new(), changes: vec![change] }),
            }
        }
        if queue.is_empty() {
            self.0.remove(place);
        }
        taken
    }

    /// Forgets everything: the tasks begin anew.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
