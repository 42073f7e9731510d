//! From the log to what lasts, and back.
//!
//! The digest is the sum, modulo 2^128, of a hash of every mark and every entry with its key: equal for equal state,
//! however it came about, so that a restored state can be proved to be the one that was committed.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_128;

use super::entry::{Life, Short};
use super::log::Old;
use super::{Entry, Keyed, Space, Step, Wake};
use crate::format::{self, Change, EntryBytes, StoredEntry, StoredKept, StoredMark, StoredWake};
use crate::time::Stamp;

/// Most marks in one change.
const RUN: usize = 4096;

impl Keyed {
    /// The changes since the last seal; the log starts anew. Several changes of one entry become one, and an entry that
    /// came and went leaves none.
    pub fn seal(&mut self) -> Vec<Change> {
        let mut steps = std::mem::take(&mut self.log);
        let changes = self.seal_steps(&steps);
        self.settle();
        self.forget_old(&steps);
        // The log keeps its memory: the next commit is about as large.
        steps.clear();
        self.log = steps;
        self.olds.clear();
        self.rebase();
        changes
    }

    /// Forgets what these steps of a log remember in its place.
    pub(super) fn forget_places(&mut self, steps: &[Step]) {
        for step in steps {
            if let Step::Entry { space, old: Some(Old::Place(number, table)), .. } = step {
                self.release(*space, *number, *table);
            }
        }
    }

    /// The same, and gives up what is empty then. Nothing else may be logged.
    pub(super) fn forget_old(&mut self, steps: &[Step]) {
        self.forget_places(steps);
        self.spaces.retain(|_, space| space.marks.len() + space.entries.len() > 0);
        for space in self.spaces.values_mut() {
            space.entries.shrink();
        }
    }

    /// The changes that the steps of a log make, without those that were given ahead.
    pub(super) fn seal_steps(&mut self, steps: &[Step]) -> Vec<Change> {
        let mut changes = Vec::new();
        if steps.is_empty() {
            return changes;
        }
        changes.push(Change::Numbers { born: self.born, set: self.set });
        let mut dropped = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            if let Step::Space { space, .. } = step {
                dropped.insert(*space, at);
                changes.push(Change::Drop { space: *space });
            }
        }
        // What happened in a space before it was dropped is gone with it.
        let is_gone = |at: usize, space: &i64| dropped.get(space).is_some_and(|&drop| at < drop);
        let mut done = HashTable::new();
        let mut room = Vec::new();
        let ahead = std::mem::take(&mut self.ahead);
        let (mut layout, is_bound) = (self.layout, self.quota.is_bound());
        for (at, step) in steps.iter().enumerate() {
            if at >= ahead {
                layout = layout.after(step, steps.get(at + 1), is_bound);
            }
            match step {
                Step::Marked { space, hash, new } if !is_gone(at, space) => {
                    self.digest_of(*space, |sum| sum.wrapping_add(mark_digest(*space, *hash, new)));
                    if at >= ahead {
                        push_mark(&mut changes, *space, *hash, Some(*new));
                    }
                }
                Step::Unmarked { space, hash, old } if !is_gone(at, space) => {
                    self.digest_of(*space, |sum| sum.wrapping_sub(mark_digest(*space, *hash, old)));
                    if at >= ahead {
                        push_mark(&mut changes, *space, *hash, None);
                    }
                }
                Step::Entry { space, key, old } if !is_gone(at, space) => {
                    if first_time(&mut done, *space, *key) {
                        let before = old.and_then(|old| self.old(*space, old)).map_or(0, |entry| entry.digest);
                        changes.extend(self.seal_entry(*space, *key, before, &mut room));
                    }
                }
                _ => {}
            }
        }
        self.layout = layout;
        changes
    }

    fn seal_entry(&mut self, number: i64, key: u128, before: u128, room: &mut Vec<u8>) -> Option<Change> {
        let space = self.spaces.get_mut(&number)?;
        let at = space.entries.find(key);
        let Some(entry) = at.and_then(|at| space.entries.get_mut(at)) else {
            space.digest = space.digest.wrapping_sub(before);
            return (before != 0).then_some(Change::Entry { space: number, key, entry: None });
        };
        let (bytes, digest) = encoded(number, entry, room);
        entry.digest = digest;
        space.digest = space.digest.wrapping_sub(before).wrapping_add(entry.digest);
        Some(Change::Entry { space: number, key, entry: Some(bytes) })
    }

    /// Everything, as changes to empty state.
    pub fn dump(&self) -> Vec<Change> {
        let mut changes = vec![Change::Numbers { born: self.born, set: self.set }];
        let mut room = Vec::new();
        for (&space, table) in &self.spaces {
            for (hash, mark) in table.marks.iter() {
                push_mark(&mut changes, space, hash, Some(mark));
            }
            for entry in table.entries.iter() {
                let (bytes, _) = encoded(space, entry, &mut room);
                changes.push(Change::Entry { space, key: entry.key, entry: Some(bytes) });
            }
        }
        changes
    }

    /// Sum over all that was sealed or restored.
    pub fn digest(&self) -> u128 {
        self.spaces.values().fold(0, |sum, space| sum.wrapping_add(space.digest))
    }

    pub(super) fn digest_of(&mut self, space: i64, change: impl FnOnce(u128) -> u128) {
        let space: &mut Space = self.spaces.entry(space).or_default();
        space.digest = change(space.digest);
    }
}

/// Adds an entry to those that are done; false: it was there. Keys are hashes already.
fn first_time(done: &mut HashTable<(i64, u128)>, space: i64, key: u128) -> bool {
    let hash = |space: i64, key: u128| (key as u64).wrapping_add((space as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    if done.find(hash(space, key), |known| *known == (space, key)).is_some() {
        return false;
    }
    done.insert_unique(hash(space, key), (space, key), |&(space, key)| hash(space, key));
    true
}

/// Adds a mark to the run that is open; one taken away and set again at once is only set.
pub(super) fn push_mark(changes: &mut Vec<Change>, space: i64, hash: u128, mark: Option<StoredMark>) {
    if let Some(Change::Marks { space: open, marks }) = changes.last_mut()
        && *open == space
        && marks.len() < RUN
    {
        match marks.last_mut() {
            Some((last, old)) if *last == hash && old.is_none() => *old = mark,
            _ => marks.push((hash, mark)),
        }
    } else {
        changes.push(Change::Marks { space, marks: vec![(hash, mark)] });
    }
}

pub(super) fn mark_digest(space: i64, hash: u128, mark: &StoredMark) -> u128 {
    // The number of creation is not in it: it is given anew when a bound is set later.
    let mut bytes = [0u8; 42];
    bytes[..8].copy_from_slice(&space.to_le_bytes());
    bytes[8..24].copy_from_slice(&hash.to_le_bytes());
    bytes[24..32].copy_from_slice(&mark.expires.to_le_bytes());
    bytes[32..40].copy_from_slice(&mark.offset.to_le_bytes());
    bytes[40..].copy_from_slice(&mark.input.to_le_bytes());
    xxh3_128(&bytes)
}

/// Space, key and payload of an entry, one after the other: what its digest is of.
const BEFORE_PAYLOAD: usize = 24;

pub(super) fn entry_digest(space: i64, key: u128, payload: &[u8]) -> u128 {
    let mut bytes = Vec::with_capacity(BEFORE_PAYLOAD + payload.len());
    bytes.extend_from_slice(&space.to_le_bytes());
    bytes.extend_from_slice(&key.to_le_bytes());
    bytes.extend_from_slice(payload);
    xxh3_128(&bytes)
}

/// An entry in its encoded form, and its digest. `room` is used again and again.
pub(super) fn encoded(space: i64, entry: &Entry, room: &mut Vec<u8>) -> (EntryBytes, u128) {
    room.clear();
    room.extend_from_slice(&space.to_le_bytes());
    room.extend_from_slice(&entry.key.to_le_bytes());
    if format::payload_into(&stored(entry), room).is_err() {
        // Nothing of an entry can fail to be written; and no bytes are no entry, which is refused when it is read.
        room.truncate(BEFORE_PAYLOAD);
    }
    (EntryBytes(room[BEFORE_PAYLOAD..].to_vec()), xxh3_128(room))
}

fn stored(entry: &Entry) -> StoredEntry<'_> {
    StoredEntry {
        born: entry.born,
        expires: entry.expires,
        kind: entry.kind,
        value: Cow::Borrowed(&entry.value),
        wake: entry.wake.as_ref().map(|wake| StoredWake {
            time: wake.at.time,
            input: wake.at.input,
            rank: Cow::Borrowed(&wake.rank),
            set: wake.set,
        }),
        kept: entry.kept.iter().map(|(number, kept)| (*number, StoredKept(kept.clone()))).collect(),
    }
}

pub(super) fn restored(key: u128, entry: StoredEntry<'_>, digest: u128) -> Entry {
    let at = |wake: &StoredWake<'_>| Stamp { time: wake.time, input: wake.input };
    let wake = |wake: StoredWake<'_>| Wake::new(at(&wake), &wake.rank, wake.set);
    let mut entry = Entry {
        key,
        born: entry.born,
        expires: entry.expires,
        digest,
        kind: entry.kind,
        value: Short::of(&entry.value),
        kept: entry.kept.into_iter().map(|(number, kept)| (number, kept.0)).collect(),
        wake: entry.wake.map(wake),
        kept_bytes: 0,
        life: Life::Live,
    };
    entry.weigh();
    entry
}
