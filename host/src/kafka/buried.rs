//! Keys of dropped spaces that are still in a changelog: they are dead at once, by the record of their drop, and are
//! taken away a few with every commit, so that compaction can reclaim them. When none is left of a space, the record of
//! its drop goes, too. While that stands, a restore knows that a process died before it had buried everything, finds the
//! keys, and they wait here again (reading.rs).
//!
//! Sheaves have numbers of their own, which are remembered here from the moment they are handed to the producer, whatever
//! becomes of that: a null value for one that is not there harms nobody. No sheaf is written while keys of its stage wait:
//! a key that is taken out later would take the record of a mark that went since out with it, and the sheaf has that mark.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::group::Place;
use crate::format::StoredMark;
use crate::keyed::Change;
use crate::task::{Outside, Sealed};

/// Keys with one commit, or a few more: marks go in runs.
const AT_ONCE: usize = 4096;

/// What is still to be taken away, by task.
#[derive(Debug)]
pub struct Buried {
    queues: HashMap<Place, VecDeque<(String, Dead)>>,
    /// Numbers of the sheaves that stand, in the order in which they were written, by task and stage.
    sheaves: HashMap<Place, BTreeMap<String, Vec<u128>>>,
    at_once: usize,
}

/// What is taken away in one go.
#[derive(Debug)]
enum Dead {
    Change(Change),
    Sheaf(u128),
}

impl Default for Buried {
    fn default() -> Buried {
        Buried::slowly(AT_ONCE)
    }
}

impl Buried {
    /// Nothing is to be taken away, and never will be more than about so many keys at once.
    pub fn slowly(at_once: usize) -> Buried {
        Buried { queues: HashMap::new(), sheaves: HashMap::new(), at_once }
    }

    /// The number of a sheaf of a stage of a task, which is handed to the producer now; none: keys of that stage wait, or
    /// are dropped with this commit (`dropped`). `made` must be unlike any other.
    pub fn number(
        &mut self,
        place: &Place,
        stage: &str,
        dropped: &[Sealed],
        made: impl FnOnce() -> u128,
    ) -> Option<u128> {
        let waits = |(of, _): &(String, Dead)| of == stage;
        let is_buried = dropped.iter().any(|sealed| sealed.stage == stage)
            || self.queues.get(place).is_some_and(|queue| queue.iter().any(waits));
        if is_buried {
            return None;
        }
        let number = made();
        let stages = self.sheaves.entry(place.clone()).or_default();
        match stages.get_mut(stage) {
            Some(numbers) => numbers.push(number),
            None => drop(stages.insert(stage.to_owned(), vec![number])),
        }
        Some(number)
    }

    /// Numbers of the sheaves of a task that stand, by stage.
    pub fn sheaves(&self, place: &Place) -> Vec<(String, Vec<u128>)> {
        let stages = self.sheaves.get(place).into_iter().flatten();
        stages.map(|(stage, numbers)| (stage.clone(), numbers.clone())).collect()
    }

    /// How many sheaves of a task would be below the floor of each of these drops, if it were written now.
    pub fn below(&self, place: &Place, dropped: &[Sealed]) -> Vec<usize> {
        let standing = |stage: &str| self.sheaves.get(place).and_then(|stages| stages.get(stage)).map_or(0, Vec::len);
        let of = |sealed: &Sealed| match sealed.changes.contains(&Change::Drop { space: 0 }) {
            true => standing(&sealed.stage),
            false => 0,
        };
        dropped.iter().map(of).collect()
    }

    /// What a task has dropped is so for good, so many sheaves of each stage with it (`below`, when it was written).
    pub fn bury(&mut self, place: &Place, mut dropped: Vec<Sealed>, below: Vec<usize>) {
        for (sealed, count) in dropped.iter_mut().zip(below) {
            let numbers = self.sheaves.get_mut(place).and_then(|stages| stages.get_mut(&sealed.stage));
            sealed.sheaves =
                numbers.map(|numbers| numbers.drain(..count.min(numbers.len())).collect()).unwrap_or_default();
        }
        self.add(place, dropped);
    }

    /// What was found in the changelog of a task that begins.
    pub fn found(&mut self, place: &Place, outside: Outside) {
        self.sheaves.insert(place.clone(), outside.sheaves.into_iter().collect());
        self.add(place, outside.dead);
    }

    /// Adds what a task has dropped: sheaves and keys, and behind those of a space its drop.
    fn add(&mut self, place: &Place, dropped: Vec<Sealed>) {
        if dropped.is_empty() {
            return;
        }
        let queue = self.queues.entry(place.clone()).or_default();
        for Sealed { stage, changes, sheaves, .. } in dropped {
            queue.extend(sheaves.into_iter().map(|number| (stage.clone(), Dead::Sheaf(number))));
            for change in changes {
                if let Change::Drop { .. } = change {
                    // The record of the drop stands for all that was dropped under its name: it goes with the last.
                    queue.retain(|(of, queued)| *of != stage || !matches!(queued, Dead::Change(of) if *of == change));
                }
                queue.push_back((stage.clone(), Dead::Change(change)));
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
        for (stage, dead) in queue {
            if keys >= self.at_once {
                break;
            }
            count += 1;
            keys += if let Dead::Change(Change::Marks { marks, .. }) = dead { marks.len() } else { 1 };
            if taken.last().is_none_or(|last| last.stage != *stage) {
                taken.push(Sealed { stage: stage.clone(), ..Sealed::default() });
            }
            let Some(last) = taken.last_mut() else { continue };
            let change = match dead {
                Dead::Sheaf(number) => {
                    last.sheaves.push(*number);
                    continue;
                }
                Dead::Change(change) => change,
            };
            last.changes.push(match change {
                Change::Marks { space, marks } => {
                    let dead = |(hash, _): &&(u128, Option<StoredMark>)| !has(stage, *space, *hash).0;
                    Change::Marks { space: *space, marks: marks.iter().filter(dead).copied().collect() }
                }
                Change::Entry { space, key, .. } if has(stage, *space, *key).1 => continue,
                Change::Drop { .. } if again(stage, change) => continue,
                change => change.clone(),
            });
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
        let drops = self.queues.get(place).into_iter().flatten().filter_map(|(stage, dead)| match dead {
            Dead::Change(Change::Drop { space }) => Some((stage.clone(), *space)),
            _ => None,
        });
        drops.collect()
    }

    /// Forgets a task: it begins anew.
    pub fn forget(&mut self, place: &Place) {
        self.queues.remove(place);
        self.sheaves.remove(place);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.queues.clear();
        self.sheaves.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::sync::Arc;

    use super::*;

    fn dropped(stage: &str, space: i64, keys: u128) -> Sealed {
        let marks = (0..keys).map(|key| (key, None)).collect();
        let changes = vec![Change::Marks { space, marks }, Change::Drop { space }];
        Sealed { stage: stage.to_owned(), changes, ..Sealed::default() }
    }

    /// What is taken away next, as numbers of sheaves, and how many changes.
    fn next(buried: &mut Buried, place: &Place) -> (Vec<u128>, usize) {
        let (taken, count) = buried.next(place, &[], |_, _, _| (false, false));
        buried.done(place, count);
        let changes = taken.iter().map(|sealed| sealed.changes.len()).sum();
        (taken.into_iter().flat_map(|sealed| sealed.sheaves).collect(), changes)
    }

    #[test]
    fn sheaves_below_the_floor_of_a_drop_go_before_the_record_of_it_and_those_above_stay() {
        let (mut buried, place): (_, Place) = (Buried::slowly(2), (Arc::from("t"), 0));
        let number = |buried: &mut Buried, stage, number| buried.number(&place, stage, &[], || number);
        assert_eq!((number(&mut buried, "a", 1), number(&mut buried, "a", 2)), (Some(1), Some(2)));
        assert_eq!((number(&mut buried, "b", 3), number(&mut buried, "a", 4)), (Some(3), Some(4)));
        let all = vec![dropped("a", 0, 5), dropped("b", 7, 1)];
        let below = buried.below(&place, &all);
        assert_eq!(below, [3, 0], "nothing but space 0 has sheaves");
        // Written behind the drop, by a commit of which it is not known yet whether it lasts.
        assert_eq!(number(&mut buried, "a", 5), Some(5));
        buried.bury(&place, all, below);
        assert_eq!(buried.sheaves(&place), [("a".to_owned(), vec![5]), ("b".to_owned(), vec![3])]);
        let (first, second) = (next(&mut buried, &place), next(&mut buried, &place));
        assert_eq!((first, second), ((vec![1, 2], 0), (vec![4], 1)), "then the keys of the stage");
        assert_eq!(buried.open(&place), [("a".to_owned(), 0), ("b".to_owned(), 7)]);
        assert_eq!((next(&mut buried, &place), next(&mut buried, &place)), ((vec![], 2), (vec![], 1)));
        assert_eq!(buried.open(&place), []);
        buried.forget(&place);
        assert_eq!(buried.sheaves(&place), []);
    }

    #[test]
    fn no_sheaf_is_written_while_keys_of_its_stage_wait_or_are_dropped_with_it() {
        let (mut buried, place): (_, Place) = (Buried::slowly(100), (Arc::from("t"), 0));
        let asked =
            |buried: &mut Buried, stage, dropped: &[Sealed]| buried.number(&place, stage, dropped, || 1).is_some();
        assert!(asked(&mut buried, "a", &[]));
        let now = [dropped("a", 0, 5)];
        assert!(!asked(&mut buried, "a", &now) && asked(&mut buried, "b", &now));
        buried.bury(&place, now.to_vec(), vec![0]);
        assert!(!asked(&mut buried, "a", &[]) && asked(&mut buried, "b", &[]));
        next(&mut buried, &place);
        assert!(asked(&mut buried, "a", &[]));
    }
}
