//! Cells, checked as section 2.1 of the layout has them: columns that a guest wrote, and spans that it decoded.

use std::str::from_utf8;

use tamis_guest::document::Doc;
use tamis_guest::number::is_number;

use super::call::{DecodedColumn, RowFailure};
use super::layout::{Breach, breach, length};
use crate::batch::{Column, kind};

type Check = Result<(), Breach>;

/// Which kinds may stand in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// What a stage writes: all of them.
    Written,
    /// What a codec decoded: not unchanged.
    Decoded,
    /// A key: neither unchanged nor a document.
    Key,
    /// What a codec encoded: bytes or null.
    Payload,
}

/// How the bytes of a kind are laid out, as a bit, so that the kinds of a column can be summed up.
mod store {
    pub const NONE: u8 = 1;
    pub const BOOLEAN: u8 = 2;
    pub const EIGHT: u8 = 4;
    pub const TEXT: u8 = 8;
    pub const NUMBER: u8 = 16;
    pub const BYTES: u8 = 32;
    pub const DOCUMENT: u8 = 64;
    /// Reserved.
    pub const UNKNOWN: u8 = 128;
}

const fn store_of(kind: u8) -> u8 {
    match kind {
        kind::MISSING | kind::NULL | kind::UNCHANGED => store::NONE,
        kind::BOOLEAN => store::BOOLEAN,
        kind::INT64..=kind::INT8 | kind::TIMESTAMP..=kind::TIME_OF_DAY | kind::FLOAT64 | kind::FLOAT32 => store::EIGHT,
        kind::TEXT => store::TEXT,
        kind::NUMBER => store::NUMBER,
        kind::BYTES => store::BYTES,
        kind::ARRAY | kind::MAP | kind::STRUCT => store::DOCUMENT,
        _ => store::UNKNOWN,
    }
}

/// What each kind of byte is, for a column of one of the uses: `UNKNOWN` where it may not stand.
const fn table(allowed: Allowed) -> [u8; 256] {
    let mut table = [store::UNKNOWN; 256];
    let mut i = 0;
    while i < 256 {
        let kind = i as u8;
        let fits = match allowed {
            Allowed::Written => true,
            Allowed::Decoded => kind != kind::UNCHANGED,
            Allowed::Key => kind != kind::UNCHANGED && store_of(kind) != store::DOCUMENT,
            Allowed::Payload => kind == kind::NULL || kind == kind::BYTES,
        };
        if fits {
            table[i] = store_of(kind);
        }
        i += 1;
    }
    table
}

static WRITTEN: [u8; 256] = table(Allowed::Written);
static DECODED: [u8; 256] = table(Allowed::Decoded);
static KEY: [u8; 256] = table(Allowed::Key);
static PAYLOAD: [u8; 256] = table(Allowed::Payload);

impl Allowed {
    fn table(self) -> &'static [u8; 256] {
        match self {
            Allowed::Written => &WRITTEN,
            Allowed::Decoded => &DECODED,
            Allowed::Key => &KEY,
            Allowed::Payload => &PAYLOAD,
        }
    }
}

/// Lengths and offsets of a column. Without rows the offsets may be left out.
pub fn form(what: &str, column: &Column, rows: usize) -> Check {
    length(what, column.kinds.len(), rows)?;
    let offsets = &column.offsets;
    if rows == 0 && offsets.is_empty() && column.data.is_empty() {
        return Ok(());
    }
    if offsets.len() != rows + 1 {
        return breach(format!("{what}: {} offsets for {rows} rows", offsets.len()));
    }
    if offsets.first() != Some(&0) {
        return breach(format!("{what}: the first offset is not 0"));
    }
    if !offsets.is_sorted() {
        return breach(format!("{what}: its offsets fall"));
    }
    if offsets.last().map(|&last| last as usize) != Some(column.data.len()) {
        return breach(format!("{what}: the last offset is not the length of data, {}", column.data.len()));
    }
    Ok(())
}

/// Kinds of a column; gives the union of their stores. Those of failed rows do not count.
pub fn kinds(what: &str, kinds: &[u8], allowed: Allowed, failed: &[RowFailure]) -> Result<u8, Breach> {
    let table = allowed.table();
    let all = kinds.iter().fold(0, |all, &kind| all | table[usize::from(kind)]);
    if all & store::UNKNOWN != 0 {
        for (row, &kind) in kinds.iter().enumerate() {
            if table[usize::from(kind)] == store::UNKNOWN && !has_failed(failed, row) {
                let known = if store_of(kind) == store::UNKNOWN { "is reserved" } else { "may not stand there" };
                return Err(Breach(format!("{what}: row {row}: kind {kind:#04x} {known}")));
            }
        }
    }
    Ok(all)
}

/// A whole column. Cells of failed rows do not count, but the column's form does.
pub fn column(what: &str, column: &Column, rows: usize, allowed: Allowed, failed: &[RowFailure]) -> Check {
    form(what, column, rows)?;
    let all = kinds(what, &column.kinds, allowed, failed)?;
    let utf8 = if all & (store::TEXT | store::NUMBER) == 0 || column.data.is_ascii() {
        Utf8::Everywhere
    } else if all & !(store::TEXT | store::NONE) == 0
        && let Ok(text) = from_utf8(&column.data)
    {
        if column.offsets.iter().all(|&o| text.is_char_boundary(o as usize)) { Utf8::Everywhere } else { Utf8::Open }
    } else {
        Utf8::Open
    };
    let cells = column.kinds.iter().zip(column.offsets.windows(2));
    for (row, (&kind, range)) in cells.enumerate() {
        let bytes = &column.data[range[0] as usize..range[1] as usize];
        if let Err(why) = cell(kind, bytes, utf8)
            && !has_failed(failed, row)
        {
            return breach(format!("{what}: row {row}: {why}"));
        }
    }
    Ok(())
}

/// A decoded column: spans into the payloads' data, and from its length on into the heap.
pub fn spans(
    number: usize,
    column: &DecodedColumn,
    rows: usize,
    payload: &[u8],
    heap: &[u8],
    failed: &[RowFailure],
) -> Check {
    let what = format!("column {number}");
    length(&what, column.kinds.len(), rows)?;
    length(&format!("{what}: spans"), column.spans.len(), 2 * rows)?;
    kinds(&what, &column.kinds, Allowed::Decoded, failed)?;
    for (row, (&kind, span)) in column.kinds.iter().zip(column.spans.chunks_exact(2)).enumerate() {
        let (start, len) = (span[0] as usize, span[1] as usize);
        let bytes = match start.checked_sub(payload.len()) {
            None => payload.get(start..start + len),
            Some(start) => heap.get(start..start + len),
        };
        let why = match bytes {
            None => {
                Err(format!("span {start}+{len} is in neither payload ({}) nor heap ({})", payload.len(), heap.len()))
            }
            Some(bytes) => cell(kind, bytes, Utf8::Open),
        };
        // The bounds of a span hold for failed rows, too: whoever follows it must not be led astray.
        if let Err(why) = why
            && (bytes.is_none() || !has_failed(failed, row))
        {
            return breach(format!("{what}: row {row}: {why}"));
        }
    }
    Ok(())
}

/// What is known of the text in a column before its cells are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Utf8 {
    /// Every cell is UTF-8.
    Everywhere,
    /// To be checked cell by cell.
    Open,
}

/// Size and content of a cell; the kind is known to be one that may stand there, or its row failed.
#[inline]
fn cell(kind: u8, bytes: &[u8], utf8: Utf8) -> Result<(), String> {
    match store_of(kind) {
        store::NONE => size(kind, bytes, 0),
        store::BOOLEAN => match bytes {
            [0 | 1] => Ok(()),
            [_] => Err("a boolean is neither 0 nor 1".into()),
            _ => size(kind, bytes, 1),
        },
        store::EIGHT => size(kind, bytes, 8),
        store::TEXT if utf8 == Utf8::Everywhere || from_utf8(bytes).is_ok() => Ok(()),
        store::TEXT => Err("its text is not UTF-8".into()),
        store::NUMBER if is_number(bytes) => Ok(()),
        store::NUMBER => Err("its number is not one in JSON syntax".into()),
        store::DOCUMENT => document(kind, bytes),
        _ => Ok(()),
    }
}

#[inline]
fn size(kind: u8, bytes: &[u8], wants: usize) -> Result<(), String> {
    if bytes.len() == wants {
        return Ok(());
    }
    Err(format!("a cell of kind {kind:#04x} has {} bytes in place of {wants}", bytes.len()))
}

/// A document, and the kind of its root, which is that of the cell.
fn document(kind: u8, bytes: &[u8]) -> Result<(), String> {
    match Doc::new(bytes) {
        Err(e) => Err(format!("its document is malformed: {e}")),
        Ok(doc) if doc.root().kind() != kind => {
            Err(format!("a cell of kind {kind:#04x} holds a document of kind {:#04x}", doc.root().kind()))
        }
        Ok(_) => Ok(()),
    }
}

/// Failures are few; rows that break a rule are looked up among them only then.
fn has_failed(failed: &[RowFailure], row: usize) -> bool {
    failed.iter().any(|f| f.row as usize == row)
}

#[cfg(test)]
#[path = "cells_tests.rs"]
mod tests;
