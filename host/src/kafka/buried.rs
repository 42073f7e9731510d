//! Keys of dropped spaces that are still in a changelog: they are dead at once, by the record of their drop, and are
//! taken away a few with every commit, so that compaction can reclaim them. When none is left of a space, the record of
//! its drop goes, too. While that stands, a restore knows that a process died before it had buried everything, finds the
//! keys, and they wait here again (reading.rs).

use std::collections::{HashMap, VecDeque};

use super::group::Place;
use crate::format::StoredMark;
use crate::keyed::Change;
use crate::task::Sealed;

/// Keys with one commit, or a few more: marks go in runs.
const AT_ONCE: usize = 4096;

/// What is still to be taken away, by task.
#[derive(Debug)]
pub struct Buried {
    queues: HashMap<Place, VecDeque<(String, Change)>>,
    at_once: usize,
}

impl Default for Buried {
    fn default() -> Buried {
        Buried::slowly(AT_ONCE)
    }
}

impl Buried {
    /// Nothing is to be taken away, and never will be more than about so many keys at once.
    pub fn slowly(at_once: usize) -> Buried {
        Buried { queues: HashMap::new(), at_once }
    }

    /// Adds what a task has dropped: keys, and behind those of a space its drop.
    pub fn add(&mut self, place: &Place, dropped: Vec<Sealed>) {
        if dropped.is_empty() {
            return;
        }
        let queue = self.queues.entry(place.clone()).or_default();
        for Sealed { stage, changes, .. } in dropped {
            for change in changes {
                if let Change::Drop { .. } = change {
                    // The record of the drop stands for all that was dropped under its name: it goes with the last.
                    queue.retain(|(of, queued)| *of != stage || *queued != change);
                }
                queue.push_back((stage.clone(), change));
            }
        }
    }

    /// The next few of a task, and how many changes these are. A key that is in use again is left to that, and the drop of
    /// a space that is dropped again with this commit (`dropped`) stands. `has`: whether a key of a stage has a mark in a
    /// space, and whether it has an entry.
    pub fn next(
        &self,
        place: &Place,
        dropped: &[Sealed],
        has: impl Fn(&str, i64, u128) -> (bool, bool),
    ) -> (Vec<Sealed>, usize) {
        let again =
            |stage: &str, change: &Change| dropped.iter().any(|d| d.stage == stage && d.changes.contains(change));
        let Some(queue) = self.queues.get(place) else { return (Vec::new(), 0) };
        let mut taken: Vec<Sealed> = Vec::new();
        let (mut keys, mut count) = (0, 0);
        for (stage, change) in queue {
            if keys >= self.at_once {
                break;
            }
            count += 1;
            keys += if let Change::Marks { marks, .. } = change { marks.len() } else { 1 };
            let change = match change {
                Change::Marks { space, marks } => {
                    let dead = |(hash, _): &&(u128, Option<StoredMark>)| !has(stage, *space, *hash).0;
                    Change::Marks { space: *space, marks: marks.iter().filter(dead).copied().collect() }
                }
                Change::Entry { space, key, .. } if has(stage, *space, *key).1 => continue,
                Change::Drop { .. } if again(stage, change) => continue,
                change => change.clone(),
            };
            match taken.last_mut().filter(|last| last.stage == *stage) {
                Some(last) => last.changes.push(change),
                None => taken.push(Sealed { stage: stage.clone(), identity: String::new(), changes: vec![change] }),
            }
        }
        (taken, count)
    }

    /// The first so many changes of a task are durable.
    pub fn done(&mut self, place: &Place, count: usize) {
        if let Some(queue) = self.queues.get_mut(place) {
            queue.drain(..count.min(queue.len()));
            if queue.is_empty() {
                self.queues.remove(place);
            }
        }
    }

    /// Spaces of a task of which something is left, by stage.
    pub fn open(&self, place: &Place) -> Vec<(String, i64)> {
        let drops = self.queues.get(place).into_iter().flatten().filter_map(|(stage, change)| match change {
            Change::Drop { space } => Some((stage.clone(), *space)),
            _ => None,
        });
        drops.collect()
    }

    /// Forgets a task: it begins anew.
    pub fn forget(&mut self, place: &Place) {
        self.queues.remove(place);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.queues.clear();
    }
}
