//! Columns and their cells.

pub use crate::bindings::types::Column;

/// Kinds of cells, as `wit/guest.wit` numbers them. The high half tells how a cell is stored.
pub mod kind {
    /// There is no such field.
    pub const MISSING: u8 = 0x00;
    /// Null.
    pub const NULL: u8 = 0x01;
    /// In answers only: stays as it was.
    pub const UNCHANGED: u8 = 0x02;
    /// 1 byte, 0 or 1.
    pub const BOOL: u8 = 0x10;
    /// 8 bytes, signed, little-endian; so are all integers and times.
    pub const INT64: u8 = 0x20;
    /// An int64 that fits 32 bits.
    pub const INT32: u8 = 0x21;
    /// An int64 that fits 16 bits.
    pub const INT16: u8 = 0x22;
    /// An int64 that fits 8 bits.
    pub const INT8: u8 = 0x23;
    /// Milliseconds since 1970 UTC.
    pub const TIMESTAMP: u8 = 0x28;
    /// Days since 1970.
    pub const DATE: u8 = 0x29;
    /// Milliseconds of a day.
    pub const TIME_OF_DAY: u8 = 0x2a;
    /// 8 bytes, binary64, little-endian.
    pub const FLOAT64: u8 = 0x30;
    /// A float64 that a binary32 holds.
    pub const FLOAT32: u8 = 0x31;
    /// UTF-8.
    pub const TEXT: u8 = 0x40;
    /// An exact number in decimal digits, JSON syntax.
    pub const NUMBER: u8 = 0x41;
    /// Bytes.
    pub const BYTES: u8 = 0x50;
    /// A document whose root is an array.
    pub const ARRAY: u8 = 0x60;
    /// A document whose root is a map.
    pub const MAP: u8 = 0x61;
    /// A document whose root is a struct.
    pub const STRUCT: u8 = 0x62;
}

/// One cell: its kind and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cell<'a> {
    /// See [`kind`].
    pub kind: u8,
    /// As the kind says.
    pub bytes: &'a [u8],
}

impl<'a> Cell<'a> {
    /// No such field.
    pub const MISSING: Cell<'static> = Cell { kind: kind::MISSING, bytes: &[] };
    /// Null.
    pub const NULL: Cell<'static> = Cell { kind: kind::NULL, bytes: &[] };
    /// Stays as it was; only for what [`crate::Out`] writes.
    pub const UNCHANGED: Cell<'static> = Cell { kind: kind::UNCHANGED, bytes: &[] };

    /// A text.
    pub fn text(text: &'a str) -> Cell<'a> {
        Cell { kind: kind::TEXT, bytes: text.as_bytes() }
    }

    /// Bytes.
    pub fn bytes(bytes: &'a [u8]) -> Cell<'a> {
        Cell { kind: kind::BYTES, bytes }
    }

    /// Null or missing.
    pub fn is_none(&self) -> bool {
        self.kind < kind::UNCHANGED
    }

    /// The text of a text cell.
    pub fn as_text(&self) -> Option<&'a str> {
        if self.kind == kind::TEXT { std::str::from_utf8(self.bytes).ok() } else { None }
    }

    /// The digits of an exact number.
    pub fn as_number(&self) -> Option<&'a str> {
        if self.kind == kind::NUMBER { std::str::from_utf8(self.bytes).ok() } else { None }
    }

    /// The value of an integer or a time.
    pub fn as_i64(&self) -> Option<i64> {
        if self.kind & 0xf0 == 0x20 { Some(i64::from_le_bytes(self.bytes.try_into().ok()?)) } else { None }
    }

    /// The value of a float.
    pub fn as_f64(&self) -> Option<f64> {
        if self.kind & 0xf0 == 0x30 { Some(f64::from_le_bytes(self.bytes.try_into().ok()?)) } else { None }
    }

    /// The value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        if self.kind == kind::BOOL { Some(self.bytes == [1]) } else { None }
    }

    /// The bytes of a bytes cell.
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        if self.kind == kind::BYTES { Some(self.bytes) } else { None }
    }

    /// The bytes of a document: array, map or struct.
    pub fn as_document(&self) -> Option<&'a [u8]> {
        if self.kind & 0xf0 == 0x60 { Some(self.bytes) } else { None }
    }
}

impl PartialEq for Column {
    fn eq(&self, other: &Column) -> bool {
        self.kinds == other.kinds && self.offsets == other.offsets && self.data == other.data
    }
}

impl Eq for Column {}

/// No cells: `offsets` still holds its first 0, hence not derived.
impl Default for Column {
    fn default() -> Column {
        Column::with_capacity(0, 0)
    }
}

impl Column {
    /// An empty column with room for so many cells and bytes.
    pub fn with_capacity(rows: usize, bytes: usize) -> Column {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Column { kinds: Vec::with_capacity(rows), offsets, data: Vec::with_capacity(bytes) }
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Has it no cells?
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// One cell; missing beyond the end.
    #[inline]
    pub fn cell(&self, i: usize) -> Cell<'_> {
        match (self.kinds.get(i), self.offsets.get(i), self.offsets.get(i + 1)) {
            (Some(&kind), Some(&from), Some(&to)) => {
                Cell { kind, bytes: self.data.get(from as usize..to as usize).unwrap_or_default() }
            }
            _ => Cell::MISSING,
        }
    }

    /// Appends a cell.
    #[inline]
    pub fn push(&mut self, cell: Cell<'_>) {
        self.push_bytes(cell.kind, cell.bytes);
    }

    /// Appends a cell by its kind and bytes.
    #[inline]
    pub fn push_bytes(&mut self, kind: u8, bytes: &[u8]) {
        self.kinds.push(kind);
        self.data.extend_from_slice(bytes);
        self.offsets.push(self.data.len() as u32);
    }

    /// Appends an integer or a time.
    pub fn push_i64(&mut self, kind: u8, value: i64) {
        self.push_bytes(kind, &value.to_le_bytes());
    }

    /// Appends a float64.
    pub fn push_f64(&mut self, value: f64) {
        self.push_bytes(kind::FLOAT64, &value.to_le_bytes());
    }

    /// Appends a boolean.
    pub fn push_bool(&mut self, value: bool) {
        self.push_bytes(kind::BOOL, &[u8::from(value)]);
    }

    /// Takes all cells away, keeping the memory.
    pub fn clear(&mut self) {
        self.kinds.clear();
        self.offsets.truncate(1);
        self.data.clear();
    }

    /// Takes the last cell away.
    pub fn pop(&mut self) {
        if self.kinds.pop().is_some() {
            self.offsets.pop();
            self.data.truncate(self.offsets.last().copied().unwrap_or(0) as usize);
        }
    }

    /// All cells in order.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        (0..self.len()).map(|i| self.cell(i))
    }
}

#[cfg(test)]
#[path = "cells_tests.rs"]
mod tests;
