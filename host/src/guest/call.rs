//! What crosses to a guest and back, as the host sees it: the answers here are already validated.

use crate::batch::Column;
use crate::time::Stamp;

/// Stamps as columns; `inputs` empty: all 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// Nanoseconds.
    pub times: Vec<i64>,
    /// Inputs of the task.
    pub inputs: Vec<u16>,
}

impl Stamps {
    /// One of them; an absent input is 0.
    pub fn get(&self, i: usize) -> Option<Stamp> {
        self.of().get(i)
    }

    /// The same, borrowed.
    pub fn of(&self) -> StampsOf<'_> {
        StampsOf { times: &self.times, inputs: &self.inputs }
    }
}

/// Stamps that lie elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct StampsOf<'a> {
    /// Nanoseconds.
    pub times: &'a [i64],
    /// Inputs of the task; empty: all 0.
    pub inputs: &'a [u16],
}

impl StampsOf<'_> {
    /// One of them; an absent input is 0.
    pub fn get(&self, i: usize) -> Option<Stamp> {
        let time = *self.times.get(i)?;
        Some(Stamp { time, input: self.inputs.get(i).copied().unwrap_or(0) })
    }
}

/// The argument of `process`.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Number of rows.
    pub rows: u32,
    /// Processing time, ns.
    pub now: i64,
    /// As the stage's `reads`.
    pub columns: Vec<Column>,
    /// Rows whose value is null.
    pub tombstones: Vec<u32>,
    /// Rows whose position came before.
    pub redelivered: Vec<u32>,
    /// Times of the rows on the stage's clock; empty without wants-time.
    pub times: Stamps,
    /// What each row sees, and one more; empty without wants-time.
    pub seen: Stamps,
}

/// A row that failed in a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFailure {
    /// Row of the call.
    pub row: u32,
    /// 1 transient, 2 permanent, 3 bug.
    pub category: u8,
    /// Short name, `[a-z0-9_-]+`.
    pub code: String,
    /// For a person.
    pub text: String,
}

/// The rows of an outcome that do not simply pass; every list has one element per output row (stamps may be empty).
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Row before which it stands.
    pub at: Vec<u32>,
    /// A row, or rows + slot.
    pub origins: Vec<u32>,
    /// Number of the kept image, for slots.
    pub images: Vec<u8>,
    /// 0 main, n for `routes[n-1]`.
    pub routes: Vec<u8>,
    /// 0 insert, 1 old image, 2 new image, 3 delete.
    pub kinds: Vec<u8>,
    /// The wake that emitted the row; `NONE_YET` in time, or empty, if a row did.
    pub wakes: Stamps,
    /// Start and end, two a row; `NONE_YET`: none.
    pub windows: Vec<i64>,
    /// As the stage's `writes`, a cell per output row.
    pub columns: Vec<Column>,
}

/// The answer of `process`, validated: lengths, rows, slots, order, numbers.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// One per row.
    pub verdicts: Vec<u8>,
    /// Rows that do not simply pass.
    pub output: Output,
    /// Rows of verdict 3.
    pub failures: Vec<RowFailure>,
    /// What rows of verdict 4 lost to; empty, or one each.
    pub winners: Vec<u32>,
    /// Number of the image or mark, for winners that are slots; empty: all 0.
    pub winner_images: Vec<u8>,
    /// One per counter that `check` named.
    pub counts: Vec<u64>,
}

/// One decoded column: a kind per row, and offset and length per row; offsets from the payloads' data length on point
/// into the heap.
#[derive(Clone, Debug, Default)]
pub struct DecodedColumn {
    /// A kind per row.
    pub kinds: Vec<u8>,
    /// Two numbers per row.
    pub spans: Vec<u32>,
}

/// The answer of `decode`, validated.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// As `open`'s paths.
    pub columns: Vec<DecodedColumn>,
    /// What is not in the payloads.
    pub heap: Vec<u8>,
    /// Rows that could not be decoded.
    pub failures: Vec<RowFailure>,
}

/// Why a call did not come back with an answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The module's fault: trap, deadline, limit, breach of the contract. The instance is gone.
    Module {
        /// trap, deadline, memory, output, contract, log, open
        kind: &'static str,
        /// For a person, with the module's last words.
        text: String,
    },
    /// The call would pass a bound of its state (X8): undo, and try with fewer rows.
    Full,
}

impl Fault {
    /// Its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Module { kind, .. } => kind,
            Fault::Full => "full",
        }
    }
}

/// Entries of state as they cross: `entries` of the contract.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    /// The guest's values; missing: there is no entry.
    pub values: Column,
    /// Their expiry, ns.
    pub expires: Vec<i64>,
}

impl Entries {
    /// Of none yet.
    pub fn with_capacity(entries: usize) -> Entries {
        Entries { values: Column::with_capacity(entries, 64 * entries), expires: Vec::with_capacity(entries) }
    }
}

impl Dues {
    /// Of none yet.
    pub fn with_capacity(dues: usize) -> Dues {
        Dues {
            entries: Entries::with_capacity(dues),
            spaces: Vec::with_capacity(dues),
            wakes: Stamps { times: Vec::with_capacity(dues), inputs: Vec::with_capacity(dues) },
            ranks: Column::with_capacity(dues, 32 * dues),
        }
    }
}

/// The answer of `state.due`.
#[derive(Clone, Debug, Default)]
pub struct Dues {
    /// What stands in them.
    pub entries: Entries,
    /// Their spaces.
    pub spaces: Vec<i64>,
    /// Their wakes.
    pub wakes: Stamps,
    /// Their ranks.
    pub ranks: Column,
}

/// The answer of `state.open`.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// A slot per pair.
    pub slots: Vec<u32>,
    /// What stands in the slots that are new.
    pub entries: Entries,
}

/// Why a state import refuses.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// The guest broke the contract; the text says how.
    Breach(String),
    /// A bound would be passed (X8).
    Full,
}

/// What a keyed guest may do to its state during one call; `keyed::Session` is the one that does it.
pub trait State: Send + 'static {
    /// `state.seen`
    fn seen(&mut self, space: i64, expires: &[i64], clears: &[u32], refresh: bool) -> Result<Vec<u8>, Refusal>;
    /// `state.due`
    fn due(&mut self) -> Result<Dues, Refusal>;
    /// `state.open`
    fn open(&mut self, rows: &[u32], spaces: &[i64]) -> Result<View, Refusal>;
    /// `state.remove`
    fn remove(&mut self, slots: &[u32]) -> Result<(), Refusal>;
    /// `state.put`
    fn put(&mut self, slots: &[u32], values: &Column, expires: &[i64]) -> Result<(), Refusal>;
    /// `state.keep`
    fn keep(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32]) -> Result<(), Refusal>;
    /// `state.mark`
    fn mark(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32]) -> Result<(), Refusal>;
    /// `state.wake`; `times` and `inputs` are the stamps.
    fn wake(&mut self, slots: &[u32], wakes: StampsOf<'_>, ranks: &Column) -> Result<(), Refusal>;
    /// Back to the concrete session.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}
