//! Keys made of records.

use serde_json::Value;

use crate::cells::{Cell, Column, kind};
use crate::failure::Failure;
use crate::row::Row;

/// A key made of a record.
pub trait Key: Sized {
    /// Before any other call, and while planning. Gives the key and the columns wanted: `key`, `value` (raw bytes),
    /// `value.user.id` (decoded), `headers.NAME`, `timestamp`, `topic`, `partition`, `offset`. Same parameters, same
    /// answer.
    fn open(params: &Value) -> Result<(Self, Vec<String>), String>;

    /// The key of one row, written into `key`; nothing written: the record has no key. An error counts for this row only.
    fn key(&mut self, row: &Row<'_>, key: &mut KeyCell<'_>) -> Result<(), Failure>;
}

/// Where a key is written: nothing, or one cell.
pub struct KeyCell<'a> {
    pub(crate) column: &'a mut Column,
    pub(crate) row: usize,
}

impl KeyCell<'_> {
    /// Writes the key, in place of what was written for this row.
    pub fn write(&mut self, cell: Cell<'_>) {
        if self.column.len() > self.row {
            self.column.pop();
        }
        self.column.push(cell);
    }

    /// Writes a text that is put together from parts.
    pub fn write_text(&mut self, parts: &[&str]) {
        self.write(Cell { kind: kind::TEXT, bytes: &[] });
        for part in parts {
            self.column.data.extend_from_slice(part.as_bytes());
        }
        if let Some(end) = self.column.offsets.last_mut() {
            *end = self.column.data.len() as u32;
        }
    }
}
