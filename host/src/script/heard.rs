//! What came out of a chain, kept for comparison.

use crate::batch::{Batch, Headers, Payload, Row, Span};
use crate::chain::{Emit, Out, Route};

/// Rows in the order they came out; their bytes lie in one arena.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// The rows.
    pub rows: Vec<HeardRow>,
    /// Results are of scopes that are still open (R10).
    pub partial: bool,
    bytes: Vec<u8>,
    headers: Vec<Headers>,
    inputs: Vec<u16>,
}

/// One row that came out.
#[derive(Clone, Debug)]
pub struct HeardRow {
    /// Where it went.
    pub route: Route,
    /// Code of the failure, on the dead letter route.
    pub code: String,
    /// The row; its spans point into `Heard`.
    pub row: Row,
}

impl Heard {
    /// Whose rows come now: the numbers that the inputs of a task have among all.
    pub fn from_inputs(&mut self, numbers: &[u16]) {
        self.inputs.clear();
        self.inputs.extend_from_slice(numbers);
    }

    /// The bytes of a key or a value.
    pub fn bytes(&self, span: Span) -> &[u8] {
        let start = span.start as usize;
        self.bytes.get(start..start + span.len as usize).unwrap_or_default()
    }

    /// The headers of a row, with those that were added on the way out.
    pub fn headers(&self, row: &HeardRow) -> &[(String, Option<Vec<u8>>)] {
        self.headers.get(row.row.headers as usize).map(Vec::as_slice).unwrap_or_default()
    }

    /// The value of the last header of this name, if it is text.
    pub fn header(&self, row: &HeardRow, name: &str) -> Option<&str> {
        let value = self.headers(row).iter().rev().find(|(n, _)| n == name)?.1.as_deref()?;
        std::str::from_utf8(value).ok()
    }

    /// Whether two rows of two runs are the same, byte for byte.
    pub fn same(&self, at: usize, other: &Heard, other_at: usize) -> bool {
        let (Some(a), Some(b)) = (self.rows.get(at), other.rows.get(other_at)) else { return false };
        let payload = |heard: &Heard, payload: Payload| match payload {
            Payload::Null => None,
            Payload::Bytes(span) => Some((0, heard.bytes(span).to_vec())),
            Payload::Cell(kind, span) => Some((kind, heard.bytes(span).to_vec())),
        };
        a.route == b.route
            && a.code == b.code
            && a.row.origin == b.row.origin
            && a.row.timestamp == b.row.timestamp
            && a.row.kind == b.row.kind
            && a.row.window == b.row.window
            && payload(self, a.row.key) == payload(other, b.row.key)
            && payload(self, a.row.value) == payload(other, b.row.value)
            && self.headers(a) == other.headers(b)
    }

    fn copy(&mut self, batch: &Batch, payload: Payload) -> Payload {
        let mut span = |from: Span| {
            let start = self.bytes.len() as u32;
            self.bytes.extend_from_slice(batch.bytes(from));
            Span { arena: 0, start, len: from.len }
        };
        match payload {
            Payload::Null => Payload::Null,
            Payload::Bytes(from) => Payload::Bytes(span(from)),
            Payload::Cell(kind, from) => Payload::Cell(kind, span(from)),
        }
    }
}

impl Out for Heard {
    fn emit(&mut self, emit: Emit<'_>) {
        let mut row = *emit.row;
        row.origin.input = self.inputs.get(usize::from(row.origin.input)).copied().unwrap_or(row.origin.input);
        row.key = self.copy(emit.batch, row.key);
        row.value = self.copy(emit.batch, row.value);
        row.headers = Row::NO_HEADERS;
        let own = emit.batch.headers_of(emit.row);
        let partial =
            (self.partial && emit.route == Route::Main).then(|| ("tamis.partial".to_owned(), Some(b"true".to_vec())));
        if !own.is_empty() || !emit.added.is_empty() || partial.is_some() {
            row.headers = self.headers.len() as u32;
            self.headers.push(own.iter().chain(emit.added).cloned().chain(partial).collect());
        }
        let code = emit.failure.map(|failure| failure.code.to_string()).unwrap_or_default();
        self.rows.push(HeardRow { route: emit.route, code, row });
    }

    fn mark(&mut self) -> usize {
        self.rows.len()
    }

    fn undo(&mut self, to: usize) {
        self.rows.truncate(to);
    }
}
