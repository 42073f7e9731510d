//! What a guest is given: rows, their cells and their times.

use crate::bindings::stage_exports;
use crate::cells::{Cell, Column};

/// No time yet, ns.
pub const NONE_YET: i64 = i64::MIN;
/// Never, ns.
pub const NEVER: i64 = i64::MAX;
/// The end of bounded input, ns.
pub const END: i64 = i64::MAX - 1;

/// A point in time, ordered by time, then by input of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Nanoseconds since 1970 UTC.
    pub time: i64,
    /// Input of the task.
    pub input: u16,
}

impl Default for Stamp {
    fn default() -> Stamp {
        Stamp::NONE_YET
    }
}

impl Stamp {
    /// Before every other.
    pub const NONE_YET: Stamp = Stamp { time: NONE_YET, input: 0 };

    /// After every other.
    pub const LAST: Stamp = Stamp { time: NEVER, input: u16::MAX };

    /// The first stamp of an instant: what has that time in any input stands at or after it.
    pub const fn at(time: i64) -> Stamp {
        Stamp { time, input: 0 }
    }

    /// The last stamp of an instant: due only when every input is beyond it, or at it and in turn.
    pub const fn after(time: i64) -> Stamp {
        Stamp { time, input: u16::MAX }
    }
}

/// The rows of one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch<'a> {
    /// Number of rows.
    pub rows: u32,
    /// Processing time, ns; the same when a batch is tried again.
    pub now: i64,
    /// As `reads` of the check, in that order.
    pub columns: &'a [Column],
    /// Rows whose value is null, in order.
    pub tombstones: &'a [u32],
    /// Rows whose position this task has had before, in order.
    pub redelivered: &'a [u32],
    /// Time of each row on the stage's clock, ns; empty without the trait wants-time.
    pub times: &'a [i64],
    /// Inputs of those times; empty: all 0.
    pub time_inputs: &'a [u16],
    /// What each row sees, and one more; empty without the trait wants-time.
    pub seen: &'a [i64],
    /// Inputs of what is seen; empty: all 0.
    pub seen_inputs: &'a [u16],
}

impl<'a> Batch<'a> {
    /// Of what the host hands over.
    pub fn of(batch: &'a stage_exports::Batch) -> Batch<'a> {
        Batch {
            rows: batch.rows,
            now: batch.now,
            columns: &batch.columns,
            tombstones: &batch.tombstones,
            redelivered: &batch.redelivered,
            times: &batch.times.times,
            time_inputs: &batch.times.inputs,
            seen: &batch.seen.times,
            seen_inputs: &batch.seen.inputs,
        }
    }

    /// One row.
    #[inline]
    pub fn row(&self, index: u32) -> Row<'_> {
        Row { batch: self, index }
    }

    /// Time of a row on the stage's clock; none yet without the trait wants-time.
    #[inline]
    pub fn time(&self, i: usize) -> Stamp {
        stamp(self.times, self.time_inputs, i)
    }

    /// What a row sees; at `rows`: where the clock stands after the last row. None yet without the trait wants-time.
    #[inline]
    pub fn seen(&self, i: usize) -> Stamp {
        stamp(self.seen, self.seen_inputs, i)
    }

    /// Where the clock stands after the last row.
    pub fn end(&self) -> Stamp {
        self.seen(self.rows as usize)
    }
}

#[inline]
fn stamp(times: &[i64], inputs: &[u16], i: usize) -> Stamp {
    match times.get(i) {
        Some(&time) => Stamp { time, input: inputs.get(i).copied().unwrap_or(0) },
        None => Stamp::NONE_YET,
    }
}

/// One row of a call.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) index: u32,
}

impl<'a> Row<'a> {
    /// Its number in the call.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The cell of a column of `reads`, by its place there; missing if there is none.
    #[inline]
    pub fn cell(&self, column: usize) -> Cell<'a> {
        match self.batch.columns.get(column) {
            Some(column) => column.cell(self.index as usize),
            None => Cell::MISSING,
        }
    }

    /// The text of a cell, if it is one.
    pub fn text(&self, column: usize) -> Option<&'a str> {
        self.cell(column).as_text()
    }

    /// Its time on the stage's clock, with its input.
    #[inline]
    pub fn time(&self) -> Stamp {
        self.batch.time(self.index as usize)
    }

    /// Where that clock stands for this row: after every earlier row, before itself.
    #[inline]
    pub fn seen(&self) -> Stamp {
        self.batch.seen(self.index as usize)
    }

    /// Processing time, ns.
    #[inline]
    pub fn now(&self) -> i64 {
        self.batch.now
    }

    /// Input of the task it came from.
    pub fn input(&self) -> u16 {
        self.time().input
    }

    /// Is its value null?
    #[inline]
    pub fn is_tombstone(&self) -> bool {
        self.batch.tombstones.binary_search(&self.index).is_ok()
    }

    /// Has this task had its position before?
    #[inline]
    pub fn is_redelivered(&self) -> bool {
        self.batch.redelivered.binary_search(&self.index).is_ok()
    }
}
