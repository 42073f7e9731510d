//! State from what lasts: changes one by one, the last one for a key wins. Nothing of it is logged.

use std::collections::BTreeMap;

use super::seal::{entry_digest, mark_digest, restored};
use super::{Keyed, Settings, Space, mark_item};
use crate::format::{self, Change, FormatError, StoredEntry, StoredMark};

/// Marks in one change.
const RUN: usize = 256;

/// What was in spaces when they were dropped, and is still kept outside by key.
#[derive(Debug, Default)]
pub struct Grave(BTreeMap<i64, Space>);

impl Keyed {
    /// State from a dump.
    pub fn load(settings: Settings, changes: Vec<Change>) -> Keyed {
        let mut keyed = Keyed::new(settings);
        keyed.apply(changes);
        keyed.begin_here();
        keyed
    }

    /// Brings sealed changes into this state.
    pub fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Numbers { born, set } => self.set_numbers(born, set),
                Change::Drop { space } => drop(self.detach(space)),
                Change::Marks { space, marks } => {
                    marks.into_iter().for_each(|(hash, mark)| self.set_mark(space, hash, mark));
                }
                Change::Entry { space, key, entry } => {
                    // Bytes that are no entry were refused when they were read.
                    let _ = self.set_entry(space, key, entry.as_ref().map(|bytes| &bytes.0[..]));
                }
            }
        }
    }

    /// All was brought in: what is written from now on can be taken back to here (pending.rs).
    pub fn begin_here(&mut self) {
        self.rebase();
    }

    /// Numbers that are given only once are at least these: creations and wakes.
    pub fn set_numbers(&mut self, born: u64, set: u64) {
        self.born = self.born.max(born);
        self.set = self.set.max(set);
    }

    /// Sets a mark, or takes it away.
    pub fn set_mark(&mut self, space: i64, hash: u128, mut mark: Option<StoredMark>) {
        if let Some(mark) = &mut mark
            && mark.born == 0
        {
            mark.born = self.next_born();
        }
        let table = match &mark {
            Some(_) => self.spaces.entry(space).or_default(),
            None => match self.spaces.get_mut(&space) {
                Some(table) => table,
                None => return,
            },
        };
        let old = table.marks.set(hash, mark);
        if let Some(old) = &old {
            table.digest = table.digest.wrapping_sub(mark_digest(space, hash, old));
            self.quota.sub(&mark_item(space, hash, old));
        }
        if let Some(mark) = &mark {
            table.digest = table.digest.wrapping_add(mark_digest(space, hash, mark));
            self.quota.add(&mark_item(space, hash, mark));
        }
    }

    /// Sets an entry, given by its payload, or takes it away. The error: the payload is none.
    pub fn set_entry(&mut self, space: i64, key: u128, payload: Option<&[u8]>) -> Result<(), FormatError> {
        let stored = payload.map(format::from_payload::<StoredEntry<'static>>).transpose()?;
        if let Some(at) = self.find(space, key) {
            let old = self.entry(space, at).map_or(0, |entry| entry.digest);
            if let Some((_, table)) = self.retire(space, at, false) {
                self.release(space, at, table);
            }
            self.digest_of(space, |sum| sum.wrapping_sub(old));
        }
        let (Some(stored), Some(payload)) = (stored, payload) else { return Ok(()) };
        let digest = entry_digest(space, key, payload);
        let mut entry = restored(key, stored, digest);
        if entry.born == 0 {
            entry.born = self.next_born();
        }
        self.put_entry(space, entry);
        self.digest_of(space, |sum| sum.wrapping_add(digest));
        Ok(())
    }

    /// Drops a space; what was in it goes into the grave.
    pub fn bury_space(&mut self, space: i64, grave: &mut Grave) {
        let buried = self.detach(space).unwrap_or_default();
        match grave.0.get_mut(&space) {
            None => drop(grave.0.insert(space, buried)),
            // Dropped again: what it had the first time may still be there, too.
            Some(first) => {
                for (hash, mark) in buried.marks.iter() {
                    first.marks.set(hash, Some(mark));
                }
                for entry in buried.entries.iter() {
                    if first.entries.find(entry.key).is_none() {
                        first.entries.insert(entry.clone());
                    }
                }
            }
        }
    }

    /// Whether a key has a mark, and whether it has an entry, in a space.
    pub fn has(&self, space: i64, key: u128) -> (bool, bool) {
        let Some(table) = self.spaces.get(&space) else { return (false, false) };
        (table.marks.find(key).is_some(), table.entries.find(key).is_some())
    }
}

impl Grave {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A mark was taken away outside.
    pub fn forget_mark(&mut self, space: i64, hash: u128) {
        if let Some(buried) = self.0.get_mut(&space) {
            buried.marks.set(hash, None);
        }
    }

    /// An entry was taken away outside.
    pub fn forget_entry(&mut self, space: i64, key: u128) {
        if let Some(buried) = self.0.get_mut(&space)
            && let Some(at) = buried.entries.find(key)
        {
            buried.entries.retire(at);
            buried.entries.release(at);
        }
    }

    /// Everything of a space was taken away outside.
    pub fn close(&mut self, space: i64) {
        self.0.remove(&space);
    }

    /// What is in it, as changes that take each away; behind those of a space its drop.
    pub fn changes(&self) -> Vec<Change> {
        self.0.iter().flat_map(|(space, buried)| taken_away(*space, buried)).collect()
    }
}

/// Changes that take away what is in a space, and behind them its drop: it need not be told any more then.
pub(super) fn taken_away(space: i64, old: &Space) -> Vec<Change> {
    let marks: Vec<(u128, Option<StoredMark>)> = old.marks.iter().map(|(hash, _)| (hash, None)).collect();
    let mut gone: Vec<Change> = marks.chunks(RUN).map(|marks| Change::Marks { space, marks: marks.to_vec() }).collect();
    gone.extend(old.entries.iter().map(|entry| Change::Entry { space, key: entry.key, entry: None }));
    gone.push(Change::Drop { space });
    gone
}
