//! Entries, wakes and marks of one stage of one task, in memory.

use std::collections::BTreeMap;

use crate::row::Stamp;

/// What a stage keeps between calls.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(super) entries: BTreeMap<(String, i64), Entry>,
    /// Marks of `seen`: their expiry.
    pub(super) marks: BTreeMap<(String, i64), i64>,
    /// Number of wakes set so far.
    pub(super) sets: u64,
    pub(super) mutant: Mutant,
}

/// An entry as the host keeps it.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub(super) value: Vec<u8>,
    pub(super) expires: i64,
    pub(super) images: BTreeMap<u8, Image>,
    pub(super) wake: Option<Wake>,
}

/// An image or mark: the record, by its place in the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image {
    pub(super) record: usize,
    pub(super) is_mark: bool,
}

/// A wake with what orders it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wake {
    pub(super) at: Stamp,
    pub(super) rank: Vec<u8>,
    pub(super) set: u64,
}

/// Ways to break the contract on purpose; the tests of the driver must notice each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// None: keeps it.
    #[default]
    None,
    /// Hands dues out without their ranks, in the order of setting.
    #[cfg_attr(not(test), allow(dead_code))]
    NoRanks,
    /// Ignores that a wake is cancelled.
    #[cfg_attr(not(test), allow(dead_code))]
    NoCancel,
    /// Ignores a wake that is set to what it is.
    #[cfg_attr(not(test), allow(dead_code))]
    NoRenewal,
}

impl State {
    /// A state that breaks the contract in this way.
    #[cfg(test)]
    pub(crate) fn with(mutant: Mutant) -> State {
        State { mutant, ..State::default() }
    }

    /// Number of entries.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// The value of an entry.
    pub fn value(&self, key: &str, space: i64) -> Option<&[u8]> {
        self.entries.get(&(key.to_string(), space)).map(|entry| entry.value.as_slice())
    }

    /// The wake of an entry.
    pub fn wake(&self, key: &str, space: i64) -> Option<Stamp> {
        Some(self.entries.get(&(key.to_string(), space))?.wake.as_ref()?.at)
    }

    /// The state as text, to compare.
    pub(super) fn dump(&self) -> Vec<String> {
        let entries = self.entries.iter().map(|((key, space), entry)| {
            let images: Vec<_> = entry.images.iter().map(|(n, image)| (n, image.record, image.is_mark)).collect();
            let wake = entry.wake.as_ref().map(|wake| (wake.at, &wake.rank));
            format!("{key} {space}: {:?} until {} {images:?} {wake:?}", entry.value, entry.expires)
        });
        let marks = self.marks.iter().map(|((key, space), expires)| format!("{key} {space}: marked until {expires}"));
        entries.chain(marks).collect()
    }

    /// Keys of the entries whose wake is at or before a stamp, in the order in which they fire.
    pub(super) fn due(&self, upto: Stamp) -> Vec<(Wake, (String, i64))> {
        let wakes = self.entries.iter().filter_map(|(key, entry)| Some((entry.wake.clone()?, key.clone())));
        let mut due: Vec<_> = wakes.filter(|(wake, _)| wake.at <= upto).collect();
        if self.mutant == Mutant::NoRanks {
            due.sort_by_key(|(wake, _)| (wake.at, wake.set));
        } else {
            due.sort();
        }
        due
    }
}
