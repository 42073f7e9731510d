//! What a stage says about its rows, and the rows it sends on.

use crate::cells::{Cell, Column};
use crate::failure::{Failure, RowFailure};
use crate::keyed::{Output, Slot};
use crate::row::{NONE_YET, Row, Stamp};

/// What becomes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Passes as it is.
    Keep,
    /// Is dropped.
    Drop,
    /// What was emitted stands for it.
    Output,
    /// Lost against a row before; goes to the route of duplicates.
    Duplicate,
    /// Came too late; goes to the late route.
    Late,
    /// Waits in state.
    Held,
    /// Passes as the new image of an update.
    Update,
    /// Passes to `routes[n]` of the check, n below 127.
    Route(u8),
}

impl Verdict {
    /// As it crosses.
    pub fn code(self) -> u8 {
        match self {
            Verdict::Keep => 0,
            Verdict::Drop => 1,
            Verdict::Output => 2,
            Verdict::Duplicate => 4,
            Verdict::Late => 5,
            Verdict::Held => 6,
            Verdict::Update => 7,
            Verdict::Route(n) => 129u8.saturating_add(n),
        }
    }
}

/// What an emitted row is to those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A new row.
    #[default]
    Insert = 0,
    /// The image that an update replaces.
    Old = 1,
    /// The image that replaces it.
    New = 2,
    /// A deletion; needs only the key of its row.
    Delete = 3,
}

/// A window, half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First instant, ns.
    pub start: i64,
    /// First instant after it, ns.
    pub end: i64,
}

/// Where a stage emits rows. They stand in the order of the calls: what a row emits before the row itself, what a wake
/// emits before the row it fires before.
#[derive(Debug, Default)]
pub struct Out {
    pub(crate) lists: Lists,
    pub(crate) failures: Vec<RowFailure>,
    pub(crate) counts: Vec<u64>,
    /// The row before which emitted rows stand now.
    pub(crate) at: u32,
    /// The wake that fires, if one does.
    pub(crate) wake: Option<Stamp>,
    /// Has the row being judged failed?
    pub(crate) failed: bool,
}

/// The lists of an output while they grow.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) output: Output,
    pub(crate) columns: Vec<Column>,
}

impl Out {
    /// Emits a row of the call.
    pub fn emit_row(&mut self, row: &Row<'_>, kind: Kind, window: Option<Window>) {
        self.emit(row.index(), 0, kind, window);
    }

    /// Emits the image that an entry keeps as number `n`.
    ///
    /// # Panics
    /// If there is no such image: a bug of the guest, and a fault in the host.
    pub fn emit_kept(&mut self, slot: &Slot<'_>, n: u8, kind: Kind, window: Option<Window>) {
        let (origin, image) = slot.origin(n, kind == Kind::Delete);
        self.emit(origin, image, kind, window);
    }

    /// Sends the row emitted last to `routes[route]` of the check instead of the main output.
    pub fn to_route(&mut self, route: u8) {
        if let Some(last) = self.lists.output.routes.last_mut() {
            *last = route + 1;
        }
    }

    /// Writes a cell of the row emitted last; `column` is a place in `writes` of the check.
    ///
    /// # Panics
    /// If nothing was emitted, or there is no such column.
    pub fn write(&mut self, column: usize, cell: Cell<'_>) {
        let rows = self.emitted();
        let column = &mut self.lists.columns[column];
        while column.len() >= rows {
            column.pop();
        }
        while column.len() + 1 < rows {
            column.push(Cell::UNCHANGED);
        }
        column.push(cell);
    }

    /// Adds to a counter of the check.
    #[inline]
    pub fn count(&mut self, counter: usize, n: u64) {
        if let Some(count) = self.counts.get_mut(counter) {
            *count += n;
        }
    }

    /// Gives a row up; whatever its verdict, the host's error policy decides.
    pub fn fail(&mut self, row: &Row<'_>, failure: Failure) {
        if !self.failed {
            self.failures.push(failure.at(row.index()));
            self.failed = true;
        }
    }

    /// Number of rows emitted so far in this call.
    pub fn emitted(&self) -> usize {
        self.lists.output.at.len()
    }

    #[inline]
    fn emit(&mut self, origin: u32, image: u8, kind: Kind, window: Option<Window>) {
        let wake = self.wake.unwrap_or(Stamp::NONE_YET);
        let window = window.unwrap_or(Window { start: NONE_YET, end: NONE_YET });
        let output = &mut self.lists.output;
        output.at.push(self.at);
        output.origins.push(origin);
        output.images.push(image);
        output.routes.push(0);
        output.kinds.push(kind as u8);
        output.wakes.times.push(wake.time);
        output.wakes.inputs.push(wake.input);
        output.windows.extend([window.start, window.end]);
    }
}
