//! Codecs: bytes to fields and back.

use serde_json::Value;

pub use crate::bindings::codec_exports::{Decoded, DecodedColumn};

use crate::cells::{Cell, Column};
use crate::failure::RowFailure;

/// A codec.
pub trait Codec: Sized {
    /// `paths`: what later stages name, without the root (`user.id`, `["a.b"]`, `tags[0]`), `""` for the whole document;
    /// the order of the columns of decode.
    fn open(params: &Value, paths: &[String]) -> Result<Self, String>;

    /// Payloads are cells of kind bytes; null ones yield null in every column.
    fn decode(&mut self, payloads: &Column) -> Decoded;

    /// One column, the whole document, to payloads: bytes, or null. Cells of rows that the failures name do not count.
    fn encode(&mut self, columns: &[Column]) -> (Column, Vec<RowFailure>);
}

impl DecodedColumn {
    /// An empty column with room for so many cells.
    pub fn with_capacity(rows: usize) -> DecodedColumn {
        DecodedColumn { kinds: Vec::with_capacity(rows), spans: Vec::with_capacity(2 * rows) }
    }

    /// Appends a cell whose bytes lie at `offset` of the payloads' data, or, from its length on, of the heap.
    #[inline]
    pub fn push(&mut self, kind: u8, offset: u32, length: u32) {
        self.kinds.push(kind);
        self.spans.extend([offset, length]);
    }

    /// Appends a cell without bytes: null or missing.
    #[inline]
    pub fn push_none(&mut self, kind: u8) {
        self.push(kind, 0, 0);
    }
}

impl Decoded {
    /// One cell, as the host will read it; for tests.
    pub fn cell<'a>(&'a self, payloads: &'a Column, column: usize, row: usize) -> Cell<'a> {
        let Some(column) = self.columns.get(column) else { return Cell::MISSING };
        let (Some(&kind), Some(&[from, length])) = (column.kinds.get(row), column.spans.as_chunks::<2>().0.get(row))
        else {
            return Cell::MISSING;
        };
        let (from, length) = (from as usize, length as usize);
        let bytes = match from.checked_sub(payloads.data.len()) {
            Some(from) => self.heap.get(from..from + length),
            None => payloads.data.get(from..from + length),
        };
        Cell { kind, bytes: bytes.unwrap_or_default() }
    }
}
