//! What one call of a guest moved and did to state, summed up from the lengths of what crosses: nothing is counted row by
//! row.

use super::call::{Call, Decoded, Dues, Entries, Outcome, RowFailure, Stamps, View};
use crate::batch::Column;

/// The imports of state, as the contract names them, in the order of `Op`.
pub const OPS: [&str; 8] = ["seen", "due", "open", "remove", "put", "keep", "mark", "wake"];

/// An import of state.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// `state.seen`, by rows
    Seen,
    /// `state.due`, by wakes
    Due,
    /// `state.open`, by rows
    Open,
    /// `state.remove`, by slots
    Remove,
    /// `state.put`, by slots
    Put,
    /// `state.keep`, by slots
    Keep,
    /// `state.mark`, by slots
    Mark,
    /// `state.wake`, by slots
    Wake,
}

/// The sums of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes copied into the guest's memory: the batch, and what its imports answered.
    pub into: u64,
    /// Bytes copied out of it: its answer, and the columns it gave to imports.
    pub out: u64,
    /// How many rows, slots or wakes each import was about, in the order of `OPS`.
    pub ops: [u64; OPS.len()],
}

impl Tally {
    /// An import was called about so many.
    pub fn count(&mut self, op: Op, count: usize) {
        if let Some(sum) = self.ops.get_mut(op as usize) {
            *sum += count as u64;
        }
    }

    /// So many bytes crossed, there and back.
    pub fn moved(&mut self, into: u64, out: u64) {
        self.into += into;
        self.out += out;
    }
}

/// Bytes of a list.
fn list<T>(list: &[T]) -> u64 {
    std::mem::size_of_val(list) as u64
}

/// Bytes of a column.
pub fn column(column: &Column) -> u64 {
    list(&column.kinds) + list(&column.offsets) + list(&column.data)
}

/// Bytes of columns.
pub fn columns(columns: &[Column]) -> u64 {
    columns.iter().map(column).sum()
}

fn stamps(stamps: &Stamps) -> u64 {
    list(&stamps.times) + list(&stamps.inputs)
}

/// Bytes of failures.
pub fn failures(failures: &[RowFailure]) -> u64 {
    failures.iter().map(|failure| (5 + failure.code.len() + failure.text.len()) as u64).sum()
}

/// Bytes of the argument of `process`.
pub fn call(call: &Call) -> u64 {
    let rows = list(&call.tombstones) + list(&call.redelivered);
    columns(&call.columns) + rows + stamps(&call.times) + stamps(&call.seen)
}

/// Bytes of the answer of `process`.
pub fn outcome(outcome: &Outcome) -> u64 {
    let output = &outcome.output;
    let rows = list(&output.at) + list(&output.origins) + list(&output.images) + list(&output.routes);
    let rest = list(&output.kinds) + stamps(&output.wakes) + list(&output.windows) + columns(&output.columns);
    let winners = list(&outcome.winners) + list(&outcome.winner_images) + list(&outcome.counts);
    list(&outcome.verdicts) + rows + rest + winners + failures(&outcome.failures)
}

/// Bytes of the answer of `decode`.
pub fn decoded(decoded: &Decoded) -> u64 {
    let columns: u64 = decoded.columns.iter().map(|column| list(&column.kinds) + list(&column.spans)).sum();
    columns + list(&decoded.heap) + failures(&decoded.failures)
}

fn entries(entries: &Entries) -> u64 {
    column(&entries.values) + list(&entries.expires)
}

/// Bytes of the answer of `state.due`.
pub fn dues(dues: &Dues) -> u64 {
    entries(&dues.entries) + list(&dues.spaces) + stamps(&dues.wakes) + column(&dues.ranks)
}

/// Bytes of the answer of `state.open`.
pub fn view(view: &View) -> u64 {
    list(&view.slots) + entries(&view.entries)
}
