//! The log: what each write since the last seal replaced. Undo walks it back, `seal` makes the changes of it.

use std::collections::BTreeMap;

use super::rebuild::taken_away;
use super::{Change, Entry, Keyed, Mark, Space, item, mark_item};
use crate::format::StoredMark;

/// One write.
#[derive(Debug)]
pub enum Step {
    /// A mark where there was none.
    Marked { space: i64, hash: u128, new: StoredMark },
    /// A mark taken away. A changed one is taken away and set.
    Unmarked { space: i64, hash: u128, old: StoredMark },
    /// An entry, before the first write of a call to it.
    Entry { space: i64, key: u128, old: Option<Old> },
    /// A space dropped.
    Space { space: i64, old: Box<Space> },
}

/// Where an entry is as it was.
#[derive(Clone, Copy, Debug)]
pub enum Old {
    /// Copied: its number in `olds`.
    Copy(u32),
    /// It was taken away, and is remembered in its place: its number, and that of its table.
    Place(u32, u32),
}

impl Keyed {
    /// A savepoint. It is spent by an `undo` to an earlier one, and by `seal`.
    pub fn mark(&self) -> Mark {
        Mark {
            log: self.log.len(),
            born: self.born,
            set: self.set,
            evicted_live: self.evicted_live,
            expired: self.expired,
        }
    }

    /// Takes back every write since the savepoint.
    pub fn undo(&mut self, to: Mark) {
        debug_assert!(to.log >= self.ahead, "what was given ahead lasts until the seal");
        while self.log.len() > to.log {
            match self.log.pop() {
                Some(Step::Marked { space, hash, new }) => {
                    if let Some(table) = self.spaces.get_mut(&space) {
                        table.marks.set(hash, None);
                        self.quota.sub(&mark_item(space, hash, &new));
                    }
                }
                Some(Step::Unmarked { space, hash, old }) => {
                    self.spaces.entry(space).or_default().marks.set(hash, Some(old));
                    self.quota.add(&mark_item(space, hash, &old));
                }
                Some(Step::Entry { space, key, old }) => {
                    if let Some(number) = self.find(space, key) {
                        if let Some((_, table)) = self.retire(space, number, false) {
                            self.release(space, number, table);
                        }
                    }
                    match old {
                        // Copies were pushed in the order of the log, so the last one belongs to this step.
                        Some(Old::Copy(_)) => {
                            if let Some(entry) = self.olds.pop() {
                                self.put_entry(space, entry);
                            }
                        }
                        Some(Old::Place(number, _)) => self.revive(space, number),
                        None => {}
                    }
                }
                Some(Step::Space { space, old }) => self.attach(space, *old),
                None => break,
            }
        }
        (self.born, self.set) = (to.born, to.set);
        (self.evicted_live, self.expired) = (to.evicted_live, to.expired);
    }

    /// Keys of the spaces that were dropped since the last seal, as changes that take each away, the drop of a space
    /// behind its keys: what is kept outside by key would stay for ever otherwise.
    pub fn dropped(&self) -> Vec<Change> {
        let mut drops: BTreeMap<i64, usize> = BTreeMap::new();
        for (at, step) in self.log.iter().enumerate() {
            if let Step::Space { space, .. } = step {
                drops.insert(*space, at);
            }
        }
        let is_dropped = |at: usize, space: &i64| drops.get(space).is_some_and(|&drop| at < drop);
        let mut gone = Vec::new();
        for (at, step) in self.log.iter().enumerate().filter(|_| !drops.is_empty()) {
            match step {
                // What was taken away before its space was dropped is told by the drop alone.
                Step::Unmarked { space, hash, .. } if is_dropped(at, space) => {
                    gone.push(Change::Marks { space: *space, marks: vec![(*hash, None)] });
                }
                Step::Entry { space, key, old: Some(_) } if is_dropped(at, space) => {
                    gone.push(Change::Entry { space: *space, key: *key, entry: None });
                }
                Step::Space { space, old } => gone.extend(taken_away(*space, old)),
                _ => {}
            }
        }
        gone
    }

    /// Logs the entry as it stands, and returns where that is.
    pub(super) fn log_entry(&mut self, space: i64, key: u128, number: Option<u32>) -> Option<Old> {
        let entry = number.and_then(|number| self.spaces.get(&space)?.entries.get(number));
        let old = entry.map(|entry| {
            self.olds.push(entry.clone());
            Old::Copy((self.olds.len() - 1) as u32)
        });
        self.log.push(Step::Entry { space, key, old });
        old
    }

    /// An entry as it was.
    pub(super) fn old(&self, space: i64, old: Old) -> Option<&Entry> {
        match old {
            Old::Copy(number) => self.olds.get(number as usize),
            Old::Place(number, _) => self.spaces.get(&space)?.entries.retired(number),
        }
    }

    /// Takes an entry away, into the log. `spent`: its wake is out of the index.
    pub(super) fn remove_logged(&mut self, space: i64, number: u32, spent: bool) -> Option<Old> {
        let (key, table) = self.retire(space, number, spent)?;
        let old = Some(Old::Place(number, table));
        self.log.push(Step::Entry { space, key, old });
        old
    }

    /// Takes a mark away, logged.
    pub(super) fn unmark_logged(&mut self, space: i64, hash: u128) -> bool {
        let Some(old) = self.spaces.get_mut(&space).and_then(|table| table.marks.set(hash, None)) else { return false };
        self.quota.sub(&mark_item(space, hash, &old));
        self.log.push(Step::Unmarked { space, hash, old });
        true
    }

    /// Frees what is known of a key, in every space, logged: marks and entries, also those that wait (X11). Gives their
    /// number.
    pub fn forget(&mut self, key: u128) -> u64 {
        let spaces: Vec<i64> = self.spaces.keys().copied().collect();
        let mut freed = 0;
        for space in spaces {
            freed += u64::from(self.unmark_logged(space, key));
            let entry = self.find(space, key).and_then(|number| self.remove_logged(space, number, false));
            freed += u64::from(entry.is_some());
        }
        freed
    }

    /// Brings a space back that was taken out.
    fn attach(&mut self, number: i64, space: Space) {
        if space.waiting > 0 {
            for (at, wake) in space.entries.numbered().filter_map(|(at, entry)| Some((at, entry.wake.clone()?))) {
                self.wakes.insert(wake, (number, at));
            }
        }
        if self.quota.is_bound() {
            space.entries.iter().for_each(|entry| self.quota.add(&item(number, entry)));
            space.marks.iter().for_each(|(hash, mark)| self.quota.add(&mark_item(number, hash, &mark)));
        }
        self.spaces.insert(number, space);
    }
}
