//! Records as they cross: borrowed on the way in, so that lowering is one copy; owned or in place on the way out.
//!
//! Field names and their order are those of `guest.wit`; `TypedFunc` and the linker check them against the module.

use wasmtime::component::{ComponentType, Lift, Lower, WasmList};

use super::call::{Dues, Entries, RowFailure, Stamps, View};
use crate::batch::Column;

/// `types.column`, to the guest.
#[derive(ComponentType, Lower)]
#[component(record)]
pub struct ColumnIn<'a> {
    kinds: &'a [u8],
    offsets: &'a [u32],
    data: &'a [u8],
}

impl<'a> ColumnIn<'a> {
    /// Borrows a column; no offsets stand for `[0]`.
    pub fn new(column: &'a Column) -> ColumnIn<'a> {
        let offsets = if column.offsets.is_empty() { &[0] } else { column.offsets.as_slice() };
        ColumnIn { kinds: &column.kinds, offsets, data: &column.data }
    }

    /// Borrows columns.
    pub fn all(columns: &'a [Column]) -> Vec<ColumnIn<'a>> {
        columns.iter().map(ColumnIn::new).collect()
    }
}

/// `types.stamps`, to the guest.
#[derive(ComponentType, Lower)]
#[component(record)]
pub struct StampsIn<'a> {
    times: &'a [i64],
    inputs: &'a [u16],
}

impl<'a> StampsIn<'a> {
    /// Borrows stamps.
    pub fn new(stamps: &'a Stamps) -> StampsIn<'a> {
        StampsIn { times: &stamps.times, inputs: &stamps.inputs }
    }
}

/// `transform.batch`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub struct BatchIn<'a> {
    pub rows: u32,
    pub now: i64,
    pub columns: &'a [ColumnIn<'a>],
    pub tombstones: &'a [u32],
    pub redelivered: &'a [u32],
    pub times: StampsIn<'a>,
    pub seen: StampsIn<'a>,
}

/// `types.column`, from the guest.
#[derive(ComponentType, Lift)]
#[component(record)]
pub struct ColumnOut {
    kinds: Vec<u8>,
    offsets: Vec<u32>,
    data: Vec<u8>,
}

impl From<ColumnOut> for Column {
    fn from(c: ColumnOut) -> Column {
        Column { kinds: c.kinds, offsets: c.offsets, data: c.data }
    }
}

/// `types.stamps`, from the guest.
#[derive(ComponentType, Lift)]
#[component(record)]
pub struct StampsOut {
    times: Vec<i64>,
    inputs: Vec<u16>,
}

impl From<StampsOut> for Stamps {
    fn from(s: StampsOut) -> Stamps {
        Stamps { times: s.times, inputs: s.inputs }
    }
}

/// `types.failure`.
#[derive(ComponentType, Lift)]
#[component(record)]
pub struct FailureOut {
    row: u32,
    category: u8,
    code: String,
    text: String,
}

/// Failures, as the host has them.
pub fn failures(failures: Vec<FailureOut>) -> Vec<RowFailure> {
    failures.into_iter().map(|f| RowFailure { row: f.row, category: f.category, code: f.code, text: f.text }).collect()
}

/// `transform.output`.
#[derive(ComponentType, Lift)]
#[component(record)]
pub struct OutputOut {
    pub at: Vec<u32>,
    pub origins: Vec<u32>,
    pub images: Vec<u8>,
    pub routes: Vec<u8>,
    pub kinds: Vec<u8>,
    pub wakes: StampsOut,
    pub windows: Vec<i64>,
    pub columns: Vec<ColumnOut>,
}

/// `transform.outcome`.
#[derive(ComponentType, Lift)]
#[component(record)]
pub struct OutcomeOut {
    pub verdicts: Vec<u8>,
    pub output: OutputOut,
    pub failures: Vec<FailureOut>,
    pub winners: Vec<u32>,
    #[component(name = "winner-images")]
    pub winner_images: Vec<u8>,
    pub counts: Vec<u64>,
}

/// `codec.decoded-column`.
#[derive(ComponentType, Lift)]
#[component(record)]
pub struct DecodedColumnOut {
    pub kinds: Vec<u8>,
    pub spans: Vec<u32>,
}

/// `codec.decoded`.
#[derive(ComponentType, Lift)]
#[component(record)]
pub struct DecodedOut {
    pub columns: Vec<DecodedColumnOut>,
    pub heap: Vec<u8>,
    pub failures: Vec<FailureOut>,
}

/// A column that a state import is given: it stays in the guest's memory.
#[derive(ComponentType, Lift)]
#[component(record)]
pub struct ColumnRef {
    pub kinds: WasmList<u8>,
    pub offsets: WasmList<u32>,
    pub data: WasmList<u8>,
}

/// Stamps that a state import is given.
#[derive(ComponentType, Lift)]
#[component(record)]
pub struct StampsRef {
    pub times: WasmList<i64>,
    pub inputs: WasmList<u16>,
}

/// `types.column`, as the answer of an import.
#[derive(ComponentType, Lower)]
#[component(record)]
pub struct ColumnBack {
    kinds: Vec<u8>,
    offsets: Vec<u32>,
    data: Vec<u8>,
}

impl From<Column> for ColumnBack {
    fn from(mut c: Column) -> ColumnBack {
        if c.offsets.is_empty() {
            c.offsets.push(0);
        }
        ColumnBack { kinds: c.kinds, offsets: c.offsets, data: c.data }
    }
}

/// `types.stamps`, as the answer of an import.
#[derive(ComponentType, Lower)]
#[component(record)]
pub struct StampsBack {
    times: Vec<i64>,
    inputs: Vec<u16>,
}

/// `state.entries`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub struct EntriesBack {
    values: ColumnBack,
    expires: Vec<i64>,
}

impl From<Entries> for EntriesBack {
    fn from(e: Entries) -> EntriesBack {
        EntriesBack { values: e.values.into(), expires: e.expires }
    }
}

/// `state.dues`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub struct DuesBack {
    entries: EntriesBack,
    spaces: Vec<i64>,
    wakes: StampsBack,
    ranks: ColumnBack,
}

impl From<Dues> for DuesBack {
    fn from(d: Dues) -> DuesBack {
        let wakes = StampsBack { times: d.wakes.times, inputs: d.wakes.inputs };
        DuesBack { entries: d.entries.into(), spaces: d.spaces, wakes, ranks: d.ranks.into() }
    }
}

/// `state.view`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub struct ViewBack {
    slots: Vec<u32>,
    entries: EntriesBack,
}

impl From<View> for ViewBack {
    fn from(v: View) -> ViewBack {
        ViewBack { slots: v.slots, entries: v.entries.into() }
    }
}
