//! The state imports during one call. What breaks the contract panics, and the text says how.

use std::collections::BTreeMap;

use super::state::{Entry, Image, Mutant, State, Wake};
use super::stream::Record;
use crate::cells::{Cell, Column, kind};
use crate::keyed::{Dues, Entries, Stamps, StateCalls, View};
use crate::row::{NONE_YET, Stamp};

/// One call.
pub(super) struct Session<'a> {
    pub(super) state: &'a mut State,
    /// The records of the call, and the place of the first in the stream.
    pub(super) records: &'a [Record],
    pub(super) first: usize,
    /// The keys of the dues.
    pub(super) dues: Vec<(Wake, (String, i64))>,
    pub(super) now: i64,
    slots: Vec<(String, i64)>,
    /// Images of each slot when the call began.
    images: Vec<BTreeMap<u8, Image>>,
    asked: (bool, bool),
}

impl<'a> Session<'a> {
    pub(super) fn new(
        state: &'a mut State,
        records: &'a [Record],
        first: usize,
        dues: Vec<(Wake, (String, i64))>,
        now: i64,
    ) -> Session<'a> {
        let (slots, images) = Default::default();
        Session { state, records, first, dues, now, slots, images, asked: (false, false) }
    }

    /// The record behind an origin, and whether only its position is kept.
    pub(super) fn origin(&self, origin: u32, image: u8) -> (usize, bool) {
        let (origin, rows) = (origin as usize, self.records.len());
        if origin < rows {
            return (self.first + origin, false);
        }
        let images = self.images.get(origin - rows).expect("an origin beyond the slots");
        let image = images.get(&image).expect("an origin that the entry did not keep when the call began");
        (image.record, image.is_mark)
    }

    fn hand_out(&mut self, key: (String, i64), entries: &mut Entries) -> u32 {
        match self.state.entries.get(&key) {
            Some(entry) => {
                entries.values.push(Cell::bytes(&entry.value));
                entries.expires.push(entry.expires);
                self.images.push(entry.images.clone());
            }
            None => {
                entries.values.push(Cell::MISSING);
                entries.expires.push(0);
                self.images.push(BTreeMap::new());
            }
        }
        self.slots.push(key);
        self.slots.len() as u32 - 1
    }

    fn entry(&mut self, slot: u32, what: &str) -> &mut Entry {
        let key = self.slots.get(slot as usize).unwrap_or_else(|| panic!("{what}: no slot {slot}"));
        self.state.entries.get_mut(key).unwrap_or_else(|| panic!("{what}: slot {slot} has no entry"))
    }

    fn write_images(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32], is_mark: bool) {
        let what = if is_mark { "mark" } else { "keep" };
        assert!(slots.len() == numbers.len() && slots.len() == rows.len(), "{what}: lists of unequal length");
        let (first, count) = (self.first, self.records.len());
        for ((&slot, &n), &row) in slots.iter().zip(numbers).zip(rows) {
            assert!(row as usize <= count, "{what}: no row {row}");
            let entry = self.entry(slot, what);
            if row as usize == count {
                entry.images.remove(&n);
            } else {
                entry.images.insert(n, Image { record: first + row as usize, is_mark });
            }
        }
    }
}

impl StateCalls for Session<'_> {
    fn seen(&mut self, space: i64, expires: &[i64], clears: &[u32], refresh: bool) -> Vec<u8> {
        let rows = self.records.len();
        assert!(expires.len() == 1 || expires.len() == rows, "seen: neither one expiry nor one per row");
        let mut answers = Vec::with_capacity(rows);
        for (row, record) in self.records.iter().enumerate() {
            let key = (record.key.clone(), space);
            let reached = record.time.time.max(record.seen.time).max(if record.seen == Stamp::NONE_YET {
                self.now
            } else {
                NONE_YET
            });
            let was = self.state.marks.get(&key).copied().filter(|&expires| expires > reached);
            let until = if expires.len() == 1 { expires[0] } else { expires[row] };
            if clears.contains(&(row as u32)) {
                self.state.marks.remove(&key);
                answers.push(if was.is_some() { 3 } else { 4 });
                continue;
            }
            let until = match was {
                Some(old) if refresh => old.max(until),
                Some(old) => old,
                None => until,
            };
            self.state.marks.insert(key, until);
            answers.push(if was.is_some() { 2 } else { 1 });
        }
        answers
    }

    fn due(&mut self) -> Dues {
        assert_eq!(self.asked, (false, false), "due: once, and before open");
        self.asked.0 = true;
        let mut answer = Dues::default();
        for (wake, key) in std::mem::take(&mut self.dues) {
            answer.spaces.push(key.1);
            answer.wakes.times.push(wake.at.time);
            answer.wakes.inputs.push(wake.at.input);
            if self.state.mutant != Mutant::NoRanks {
                answer.ranks.push(Cell::bytes(&wake.rank));
            }
            if let Some(entry) = self.state.entries.get_mut(&key) {
                entry.wake = None;
            }
            self.hand_out(key, &mut answer.entries);
        }
        answer
    }

    fn open(&mut self, rows: &[u32], spaces: &[i64]) -> View {
        assert!(!self.asked.1, "open: once");
        self.asked.1 = true;
        let all: Vec<u32> = (0..self.records.len() as u32).collect();
        let rows = if rows.is_empty() { &all } else { rows };
        assert!(spaces.len() == 1 || spaces.len() == rows.len(), "open: neither one space nor one per row");
        let mut view = View::default();
        for (pair, &row) in rows.iter().enumerate() {
            let record = self.records.get(row as usize).unwrap_or_else(|| panic!("open: no row {row}"));
            let key = (record.key.clone(), if spaces.len() == 1 { spaces[0] } else { spaces[pair] });
            let slot = match self.slots.iter().position(|slot| *slot == key) {
                Some(slot) => slot as u32,
                None => self.hand_out(key, &mut view.entries),
            };
            view.slots.push(slot);
        }
        view
    }

    fn remove(&mut self, slots: &[u32]) {
        for &slot in slots {
            let key = self.slots.get(slot as usize).unwrap_or_else(|| panic!("remove: no slot {slot}"));
            self.state.entries.remove(key);
        }
    }

    fn put(&mut self, slots: &[u32], values: &Column, expires: &[i64]) {
        assert!(slots.len() == values.len() && slots.len() == expires.len(), "put: lists of unequal length");
        assert_eq!(values.offsets.len(), values.len() + 1, "put: offsets");
        for (i, &slot) in slots.iter().enumerate() {
            assert_eq!(values.kinds[i], kind::BYTES, "put: a value that is no bytes");
            let key = self.slots.get(slot as usize).unwrap_or_else(|| panic!("put: no slot {slot}")).clone();
            let entry = self.state.entries.entry(key).or_default();
            entry.value = values.cell(i).bytes.to_vec();
            entry.expires = expires[i];
        }
    }

    fn keep(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32]) {
        self.write_images(slots, numbers, rows, false);
    }

    fn mark(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32]) {
        self.write_images(slots, numbers, rows, true);
    }

    fn wake(&mut self, slots: &[u32], wakes: &Stamps, ranks: &Column) {
        assert_eq!(slots.len(), wakes.times.len(), "wake: lists of unequal length");
        assert!(wakes.inputs.is_empty() || wakes.inputs.len() == slots.len(), "wake: inputs");
        assert!(ranks.is_empty() || ranks.len() == slots.len(), "wake: ranks");
        let mutant = self.state.mutant;
        for (i, &slot) in slots.iter().enumerate() {
            let at = Stamp { time: wakes.times[i], input: wakes.inputs.get(i).copied().unwrap_or(0) };
            let rank = ranks.cell(i).bytes.to_vec();
            assert!(rank.len() <= 64, "wake: a rank of {} bytes", rank.len());
            self.state.sets += 1;
            let set = self.state.sets;
            let entry = self.entry(slot, "wake");
            if at.time == NONE_YET {
                if mutant != Mutant::NoCancel {
                    entry.wake = None;
                }
                continue;
            }
            let is_renewal = entry.wake.as_ref().is_some_and(|wake| wake.at == at && wake.rank == rank);
            if !(is_renewal && mutant == Mutant::NoRenewal) {
                entry.wake = Some(Wake { at, rank, set });
            }
        }
    }
}
