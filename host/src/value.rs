//! Changing a value: one cell at one path of the document.

use tamis_guest::document::{self, Doc};

use crate::batch::{Batch, Cell, Payload, Span, kind};
use crate::config::path::Path;

/// A cell that is to be put into a value.
#[derive(Clone, Debug)]
pub struct Write {
    /// Row of the batch.
    pub row: u32,
    /// Where in the value.
    pub path: Path,
    /// Kind of the cell.
    pub kind: u8,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Puts cells into values that have been decoded since; gives the rows that changed.
pub fn write_late(batch: &mut Batch, writes: &[Write], whole: Option<usize>) -> Vec<u32> {
    let mut changed = Vec::new();
    for write in writes {
        let cell = Cell { kind: write.kind, bytes: &write.bytes };
        if set_path(batch, write.row as usize, &write.path, cell, whole) {
            changed.push(write.row);
        }
    }
    changed.dedup();
    changed
}

/// Puts a cell into the value of a row, at a path. False: there is no object to put it into.
pub fn set_path(batch: &mut Batch, at: usize, path: &Path, cell: Cell<'_>, whole: Option<usize>) -> bool {
    let Some(row) = batch.rows.get(at) else { return false };
    let value = match row.value {
        Payload::Cell(kind, span) => Some((kind, span)),
        Payload::Bytes(_) => whole.and_then(|field| {
            let field = batch.fields.get(field)?;
            Some((*field.kinds.get(at)?, *field.spans.get(at)?))
        }),
        Payload::Null => None,
    };
    let Some((value_kind, span)) = value.filter(|(kind, _)| *kind >= kind::ARRAY) else { return false };
    let mut changed = Vec::new();
    let done = match Doc::unchecked(batch.bytes(span)) {
        Ok(doc) if cell.kind == kind::MISSING => document::remove(doc, &path.steps, &mut changed),
        Ok(doc) => document::set(doc, &path.steps, (cell.kind, cell.bytes), &mut changed),
        Err(_) => None,
    };
    let _ = value_kind;
    let Some(new_kind) = done else { return false };
    let len = changed.len() as u32;
    let arena = batch.add_arena(changed);
    if let Some(row) = batch.rows.get_mut(at) {
        row.value = Payload::Cell(new_kind, Span { arena, start: 0, len });
    }
    true
}
