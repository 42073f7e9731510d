//! The driver of keyed guests: turns one call into per-row and per-wake code (section 4 of the contract).
//!
//! Due wakes and wakes set in the call are merged with the rows: each fires before the first row that sees it, what is
//! left after the last row. The host is asked once for the dues, once for the entries of all rows, and told once, at
//! the end, what became of them.

mod table;
mod write;

use crate::keyed::{ExpiresBy, Keyed, Outcome, Slot, StateCalls};
use crate::out::{Out, Verdict};
use crate::row::{Batch, Stamp};

pub(crate) use table::Table;
use write::Writes;

/// A keyed guest and what its calls reuse. Nothing in it outlives a call but memory.
pub struct Driver<K> {
    guest: K,
    columns: usize,
    counters: usize,
    table: Table,
    writes: Writes,
    /// Rows and spaces of the pairs, and where the pairs of each row begin.
    pairs: Pairs,
}

#[derive(Default)]
struct Pairs {
    rows: Vec<u32>,
    spaces: Vec<i64>,
    begins: Vec<u32>,
    slots: Vec<u32>,
}

impl<K: Keyed> Driver<K> {
    /// Of a guest that writes so many columns and counts so many things.
    pub fn new(guest: K, columns: usize, counters: usize) -> Driver<K> {
        let (table, writes, pairs) = Default::default();
        Driver { guest, columns, counters, table, writes, pairs }
    }

    /// One call.
    pub fn process(&mut self, batch: &Batch<'_>, state: &mut dyn StateCalls) -> Outcome {
        if let Some(outcome) = self.guest.batch(batch, state) {
            return outcome;
        }
        self.table.begin(batch.rows, batch.now, batch.end());
        self.table.take_dues(state.due());
        self.open(batch, state);
        let mut out = Out::new(self.columns, self.counters);
        let mut verdicts = Vec::with_capacity(batch.rows as usize);
        let (mut winners, mut winner_images) = (Vec::new(), Vec::new());
        let mut named = false;
        for row in 0..batch.rows {
            self.fire(batch.seen(row as usize), row, &mut out);
            let verdict = self.judge(batch, row, &mut out);
            verdicts.push(verdict);
            if verdict == Verdict::Duplicate.code() {
                named |= self.table.winner.is_some();
                let (winner, image) = self.table.winner.unwrap_or((row, 0));
                winners.push(winner);
                winner_images.push(image);
            }
        }
        self.fire(Stamp::LAST, batch.rows, &mut out);
        self.writes.write(&self.table, batch.rows, state);
        if !named {
            winners.clear();
        }
        out.finish(verdicts, winners, winner_images)
    }

    /// Opens the entries of all rows, in one call; none if no row has a space.
    fn open(&mut self, batch: &Batch<'_>, state: &mut dyn StateCalls) {
        let Driver { guest, table, pairs, .. } = self;
        let Pairs { rows, spaces, begins, slots } = pairs;
        rows.clear();
        spaces.clear();
        begins.clear();
        slots.clear();
        if batch.rows == 0 {
            return;
        }
        if guest.one_space() {
            spaces.push(0);
            begins.extend(0..=batch.rows);
        } else {
            let mut one_each = true;
            for row in 0..batch.rows {
                begins.push(spaces.len() as u32);
                guest.spaces(&batch.row(row), spaces);
                one_each &= spaces.len() as u32 == row + 1;
                rows.resize(spaces.len(), row);
            }
            begins.push(spaces.len() as u32);
            if spaces.is_empty() {
                return;
            }
            if one_each {
                rows.clear();
                if spaces.iter().all(|space| *space == spaces[0]) {
                    spaces.truncate(1);
                }
            }
        }
        let view = state.open(rows, spaces);
        *slots = view.slots;
        table.take_opened(slots, spaces, view.entries);
    }

    /// Fires what a row must find fired; the last row of all is `rows`.
    fn fire(&mut self, upto: Stamp, before: u32, out: &mut Out) {
        while let Some((at, index)) = self.table.next_wake(upto) {
            out.stand(before, Some(at));
            self.guest.wake(at, &mut Slot { table: &mut self.table, index }, out);
        }
    }

    /// Judges one row in its spaces and folds the verdicts.
    fn judge(&mut self, batch: &Batch<'_>, index: u32, out: &mut Out) -> u8 {
        let row = batch.row(index);
        let emitted = out.emitted();
        out.stand(index, None);
        self.table.winner = None;
        let by: ExpiresBy = self.guest.expires_by();
        let pairs = self.pairs.begins[index as usize]..self.pairs.begins[index as usize + 1];
        let mut folded = None;
        for pair in pairs {
            let index = self.pairs.slots[pair as usize];
            self.table.expire(index, by, row.time(), row.seen());
            let verdict = self.guest.row(&row, &mut Slot { table: &mut self.table, index }, out);
            folded = match folded {
                Some(before) if weight(before) >= weight(verdict) => Some(before),
                _ => Some(verdict),
            };
        }
        if out.undo_if_failed(emitted) {
            return FAILED;
        }
        folded.unwrap_or(Verdict::Keep).code()
    }
}

/// The verdict of rows that the failures name.
pub(crate) const FAILED: u8 = 3;

/// Of the verdicts of several spaces the weightiest counts: a row is late only if late in all (L4).
fn weight(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Late => 0,
        Verdict::Drop => 1,
        Verdict::Duplicate => 2,
        Verdict::Held => 3,
        Verdict::Output => 4,
        Verdict::Keep | Verdict::Update | Verdict::Route(_) => 5,
    }
}

#[cfg(test)]
mod tests;
