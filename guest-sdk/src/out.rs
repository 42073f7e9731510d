//! What a stage says about its rows, and the rows it sends on.

use crate::cells::{Cell, Column};
use crate::failure::{Failure, RowFailure};
use crate::keyed::{Outcome, Output, Slot};
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
    output: Output,
    failures: Vec<RowFailure>,
    counts: Vec<u64>,
    /// The row before which emitted rows stand now.
    at: u32,
    /// The wake that fires, if one does.
    wake: Option<Stamp>,
    /// Has the row being judged failed?
    failed: bool,
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
        if let Some(last) = self.output.routes.last_mut() {
            *last = route + 1;
        }
    }

    /// Writes a cell of the row emitted last; `column` is a place in `writes` of the check.
    ///
    /// # Panics
    /// If nothing was emitted, or there is no such column.
    pub fn write(&mut self, column: usize, cell: Cell<'_>) {
        let rows = self.emitted();
        assert!(rows > 0, "write before anything was emitted");
        let column = &mut self.output.columns[column];
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
        self.output.at.len()
    }

    /// For a stage that writes so many columns and counts so many things.
    pub(crate) fn new(columns: usize, counters: usize) -> Out {
        let output = Output { columns: vec![Column::default(); columns], ..Output::default() };
        Out { output, counts: vec![0; counters], ..Out::default() }
    }

    /// What is emitted from here on stands before this row, and comes of this wake or of the row.
    pub(crate) fn stand(&mut self, at: u32, wake: Option<Stamp>) {
        (self.at, self.wake, self.failed) = (at, wake, false);
    }

    /// Did the row fail that is judged now? Then what it emitted since `emitted` goes.
    pub(crate) fn undo_if_failed(&mut self, emitted: usize) -> bool {
        if self.failed && self.emitted() > emitted {
            let Output { at, origins, images, routes, kinds, wakes, windows, columns } = &mut self.output;
            at.truncate(emitted);
            origins.truncate(emitted);
            images.truncate(emitted);
            routes.truncate(emitted);
            kinds.truncate(emitted);
            wakes.times.truncate(emitted);
            wakes.inputs.truncate(emitted);
            windows.truncate(2 * emitted);
            for column in columns {
                while column.len() > emitted {
                    column.pop();
                }
            }
        }
        self.failed
    }

    /// The outcome of the call, ready to cross: lists that say nothing are left empty.
    pub(crate) fn finish(mut self, verdicts: Vec<u8>, mut winners: Vec<u32>, mut winner_images: Vec<u8>) -> Outcome {
        let rows = self.emitted();
        let output = &mut self.output;
        for column in &mut output.columns {
            while column.len() < rows {
                column.push(Cell::UNCHANGED);
            }
        }
        for list in [&mut output.images, &mut output.routes, &mut output.kinds, &mut winner_images] {
            if list.iter().all(|&n| n == 0) {
                list.clear();
            }
        }
        if output.wakes.times.iter().all(|&time| time == NONE_YET) {
            output.wakes.times.clear();
        }
        if output.wakes.times.is_empty() || output.wakes.inputs.iter().all(|&input| input == 0) {
            output.wakes.inputs.clear();
        }
        if output.windows.iter().all(|&time| time == NONE_YET) {
            output.windows.clear();
        }
        if verdicts.iter().filter(|&&verdict| verdict == 4).count() != winners.len() {
            winners.clear();
            winner_images.clear();
        }
        let Out { output, failures, counts, .. } = self;
        Outcome { verdicts, output, failures, winners, winner_images, counts }
    }

    #[inline]
    fn emit(&mut self, origin: u32, image: u8, kind: Kind, window: Option<Window>) {
        let wake = self.wake.unwrap_or(Stamp::NONE_YET);
        let window = window.unwrap_or(Window { start: NONE_YET, end: NONE_YET });
        let output = &mut self.output;
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
