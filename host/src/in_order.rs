//! Routes in the order of their causes. A batch goes through a stage whole, so a dead letter of the second record may be
//! known before the late row of the first; what leaves on the side is held until the push is over and sorted by the
//! record that brought it about, as if every record had been a batch of its own (invariant 11). The main output needs
//! none of this: the chain is depth first.

use crate::batch::{Batch, Headers, Payload, Row, Span};
use crate::chain::{Emit, Failure, Out, Route};

/// Holds what leaves on the side.
pub struct InOrder<'a> {
    out: &'a mut dyn Out,
    held: Vec<Held>,
    /// The held rows: their bytes are in one arena.
    batch: Batch,
    bytes: Vec<u8>,
}

struct Held {
    cause: u64,
    route: Route,
    row: usize,
    added: Headers,
    failure: Option<Failure>,
}

impl<'a> InOrder<'a> {
    /// In front of the real output.
    pub fn new(out: &'a mut dyn Out) -> InOrder<'a> {
        InOrder { out, held: Vec::new(), batch: Batch::default(), bytes: Vec::new() }
    }

    /// Sends on what is held.
    pub fn finish(mut self) {
        if self.held.is_empty() {
            return;
        }
        self.batch.arenas = vec![std::sync::Arc::new(std::mem::take(&mut self.bytes))];
        self.held.sort_by_key(|held| held.cause);
        for held in &self.held {
            let Some(row) = self.batch.rows.get(held.row) else { continue };
            self.out.emit(Emit {
                route: held.route,
                batch: &self.batch,
                row,
                added: &held.added,
                failure: held.failure.as_ref(),
                cause: held.cause,
            });
        }
    }

    fn copy(&mut self, batch: &Batch, payload: Payload) -> Payload {
        let mut place = |span: Span| {
            let start = self.bytes.len() as u32;
            self.bytes.extend_from_slice(batch.bytes(span));
            Span { arena: 0, start, len: span.len }
        };
        match payload {
            Payload::Null => Payload::Null,
            Payload::Bytes(span) => Payload::Bytes(place(span)),
            Payload::Cell(kind, span) => Payload::Cell(kind, place(span)),
        }
    }
}

impl Out for InOrder<'_> {
    fn emit(&mut self, emit: Emit<'_>) {
        if emit.route == Route::Main {
            return self.out.emit(emit);
        }
        let mut row: Row = *emit.row;
        row.key = self.copy(emit.batch, row.key);
        row.value = self.copy(emit.batch, row.value);
        let headers = emit.batch.headers_of(emit.row);
        row.headers = Row::NO_HEADERS;
        if !headers.is_empty() {
            row.headers = self.batch.headers.len() as u32;
            self.batch.headers.push(headers.to_vec());
        }
        self.batch.rows.push(row);
        self.held.push(Held {
            cause: emit.cause,
            route: emit.route,
            row: self.batch.rows.len() - 1,
            added: emit.added.to_vec(),
            failure: emit.failure.cloned(),
        });
    }

    fn mark(&mut self) -> usize {
        self.out.mark()
    }

    fn undo(&mut self, to: usize) {
        self.out.undo(to);
    }
}
