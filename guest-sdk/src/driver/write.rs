//! What the host is told at the end of a call: one pass over the slots, then remove, put, keep, mark, wake, in this order.

use super::table::{Image, NONE, Table, Value};
use crate::cells::{Column, kind};
use crate::keyed::{Stamps, StateCalls};
use crate::row::NONE_YET;

/// The lists of the pass, kept from call to call.
#[derive(Default)]
pub(super) struct Writes {
    removed: Vec<u32>,
    put: Vec<u32>,
    values: Column,
    expires: Vec<i64>,
    kept: Images,
    marked: Images,
    /// Wakes set, by number: the order of setting.
    set: Vec<u32>,
    woken: Vec<u32>,
    wakes: Stamps,
    ranks: Column,
}

#[derive(Default)]
struct Images {
    slots: Vec<u32>,
    numbers: Vec<u8>,
    rows: Vec<u32>,
}

impl Images {
    fn clear(&mut self) {
        self.slots.clear();
        self.numbers.clear();
        self.rows.clear();
    }

    fn push(&mut self, slot: u32, number: u8, row: u32) {
        self.slots.push(slot);
        self.numbers.push(number);
        self.rows.push(row);
    }
}

impl Writes {
    /// Tells the host; lists that are empty are not sent.
    pub(super) fn write(&mut self, table: &Table, rows: u32, state: &mut dyn StateCalls) {
        self.collect(table, rows);
        if !self.removed.is_empty() {
            state.remove(&self.removed);
        }
        if !self.put.is_empty() {
            state.put(&self.put, &self.values, &self.expires);
        }
        if !self.kept.slots.is_empty() {
            state.keep(&self.kept.slots, &self.kept.numbers, &self.kept.rows);
        }
        if !self.marked.slots.is_empty() {
            state.mark(&self.marked.slots, &self.marked.numbers, &self.marked.rows);
        }
        if !self.woken.is_empty() {
            state.wake(&self.woken, &self.wakes, &self.ranks);
        }
    }

    fn collect(&mut self, table: &Table, rows: u32) {
        self.removed.clear();
        self.put.clear();
        self.values.clear();
        self.expires.clear();
        self.kept.clear();
        self.marked.clear();
        self.set.clear();
        self.woken.clear();
        self.wakes.times.clear();
        self.wakes.inputs.clear();
        self.ranks.clear();
        for (slot, entry) in table.entries.iter().enumerate() {
            let slot = slot as u32;
            let still = entry.stood && !entry.removed;
            if entry.stood && entry.removed {
                self.removed.push(slot);
            }
            if matches!(entry.value, Value::None) {
                continue;
            }
            if entry.put {
                self.put.push(slot);
            }
            let mut at = entry.kept;
            while let Some(kept) = table.kept.get(at as usize) {
                match kept.what {
                    Image::Row(row) => self.kept.push(slot, kept.n, row),
                    Image::Mark(row) => self.marked.push(slot, kept.n, row),
                    Image::Gone if still => self.kept.push(slot, kept.n, rows),
                    Image::Gone => {}
                }
                at = kept.before;
            }
            if table.is_set_here(entry.wake) {
                self.set.push(entry.wake);
            } else if still && !entry.due && entry.woken && entry.wake == NONE {
                self.wake(slot, NONE_YET, 0, &[]);
            }
        }
        // Slots are in the order in which rows named them: a row that made nothing may have named one first.
        self.put.sort_unstable_by_key(|&slot| (table.entries[slot as usize].made, slot));
        for &slot in &self.put {
            self.values.push_bytes(kind::BYTES, table.value(slot).unwrap_or_default());
            self.expires.push(table.entries[slot as usize].expires);
        }
        self.set.sort_unstable();
        for i in 0..self.set.len() {
            let number = self.set[i];
            let wake = table.wakes[number as usize];
            self.wake(wake.slot, wake.at.time, wake.at.input, table.rank(number));
        }
        if self.ranks.data.is_empty() {
            self.ranks.clear();
        }
        if self.wakes.inputs.iter().all(|&input| input == 0) {
            self.wakes.inputs.clear();
        }
    }

    fn wake(&mut self, slot: u32, time: i64, input: u16, rank: &[u8]) {
        self.woken.push(slot);
        self.wakes.times.push(time);
        self.wakes.inputs.push(input);
        self.ranks.push_bytes(kind::BYTES, rank);
    }
}
