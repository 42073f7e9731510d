//! Stages with state: one entry per key and space, each with at most one wake.

use serde_json::Value;

pub use crate::bindings::stage_exports::{Outcome, Output};
pub use crate::bindings::state::{Dues, Entries, View};
pub use crate::bindings::types::Stamps;

use crate::cells::Column;
use crate::check::Check;
use crate::driver::Table;
use crate::out::{Out, Verdict};
use crate::row::{Batch, Row, Stamp};

/// A stage with state. The driver merges rows and wakes, opens the entries, and writes them back in one pass.
pub trait Keyed: Sized {
    /// While planning: what is wrong with the parameters, and what the stage reads and writes. Same arguments, same
    /// answer; the SDK asks again when the stage is opened.
    fn check(params: &Value, context: &Value) -> Check;

    /// Before the first row. An error is a fault of the module, since `check` has accepted the parameters.
    fn open(params: &Value, context: &Value) -> Result<Self, String>;

    /// The whole batch at once, or `None` before any call of `state`: then the driver goes row by row. For what needs
    /// no entries, only [`StateCalls::seen`].
    fn batch(&mut self, batch: &Batch<'_>, state: &mut dyn StateCalls) -> Option<Outcome> {
        let _ = (batch, state);
        None
    }

    /// When an entry is over for a row: the driver removes it before the row is judged. Must agree with the trait
    /// expires-by.
    fn expires_by(&self) -> ExpiresBy;

    /// The spaces in which a row is judged, in order; default: the one space 0. A row without any is kept.
    fn spaces(&self, row: &Row<'_>, into: &mut Vec<i64>) {
        let _ = row;
        into.push(0);
    }

    /// Are all rows judged in space 0, whatever `spaces` says? Saves asking row by row.
    fn one_space(&self) -> bool {
        false
    }

    /// One row in one of its spaces. The driver folds the verdicts of several: the row is kept if one keeps it, is
    /// output if anything was emitted, held if one holds it, a duplicate if one says so, dropped if one says so, late
    /// only if late in all (L4).
    fn row(&mut self, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict;

    /// The wake of an entry fires; it is spent.
    fn wake(&mut self, at: Stamp, slot: &mut Slot<'_>, out: &mut Out);
}

/// What the expiry of an entry is compared with; it is over at and past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiresBy {
    /// The later of the row's time and what it sees.
    Time,
    /// What the row sees.
    Seen,
    /// Processing time.
    Now,
}

/// The state imports of the contract, in the host or in the test kit.
#[allow(missing_docs, reason = "wit/guest.wit says what each does")]
pub trait StateCalls {
    fn seen(&mut self, space: i64, expires: &[i64], clears: &[u32], refresh: bool) -> Vec<u8>;
    fn due(&mut self) -> Dues;
    fn open(&mut self, rows: &[u32], spaces: &[i64]) -> View;
    fn remove(&mut self, slots: &[u32]);
    fn put(&mut self, slots: &[u32], values: &Column, expires: &[i64]);
    fn keep(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32]);
    fn mark(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32]);
    fn wake(&mut self, slots: &[u32], wakes: &Stamps, ranks: &Column);
}

/// An entry, for one row or one wake. What is written here is seen by later rows of the call at once, and by the host
/// after the call.
pub struct Slot<'a> {
    pub(crate) table: &'a mut Table,
    pub(crate) index: u32,
}

impl Slot<'_> {
    /// Its space.
    pub fn space(&self) -> i64 {
        self.table.space(self.index)
    }

    /// Processing time, ns.
    pub fn now(&self) -> i64 {
        self.table.now()
    }

    /// Its value; none: there is no entry.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        self.table.value(self.index)
    }

    /// Its expiry, ns; `NEVER` if there is no entry.
    pub fn expires(&self) -> i64 {
        self.table.expires(self.index)
    }

    /// Writes value and expiry (ns), making the entry where there is none. Images, marks and wake stay.
    #[inline]
    pub fn put(&mut self, value: &[u8], expires: i64) {
        self.table.put(self.index, value, expires);
    }

    /// Keeps the row's image as number `n`, in place of what was there. The entry must have been put.
    pub fn keep(&mut self, n: u8, row: &Row<'_>) {
        self.table.keep(self.index, n, row.index());
    }

    /// As [`Slot::keep`], but only the row's position: it can be a winner, or the row of a deletion.
    pub fn mark(&mut self, n: u8, row: &Row<'_>) {
        self.table.mark(self.index, n, row.index());
    }

    /// Lets image or mark `n` go.
    pub fn let_go(&mut self, n: u8) {
        self.table.let_go(self.index, n);
    }

    /// Sets the wake in place of what was there. `rank`: up to 64 bytes, compared as bytes, deciding among equal wakes.
    /// Setting what is already set renews its place among equals. The entry must have been put.
    pub fn wake_at(&mut self, at: Stamp, rank: &[u8]) {
        self.table.wake_at(self.index, at, rank);
    }

    /// Takes the wake away.
    pub fn cancel_wake(&mut self) {
        self.table.cancel_wake(self.index);
    }

    /// Takes value, images, marks and wake away. The entry may be put again.
    pub fn remove(&mut self) {
        self.table.remove(self.index);
    }

    /// Says what the row being judged lost to: image or mark `n` of this entry. For verdict duplicate; of
    /// several, in several spaces, the first counts.
    pub fn winner(&mut self, n: u8) {
        let winner = self.origin(n, true);
        self.table.winner.get_or_insert(winner);
    }

    /// Row of the call, or rows + slot and the image's number.
    pub(crate) fn origin(&self, n: u8, mark_will_do: bool) -> (u32, u8) {
        self.table.origin(self.index, n, mark_will_do)
    }
}
