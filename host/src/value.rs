//! Changing a value: one cell at one path of the document.

use std::sync::Arc;

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
    let mut written = Written::default();
    for write in writes {
        let cell = Cell { kind: write.kind, bytes: &write.bytes };
        if written.set(batch, write.row as usize, &write.path, cell, whole) {
            changed.push(write.row);
        }
    }
    written.finish(batch);
    changed.dedup();
    changed
}

/// Values that were changed, all in one arena of their batch. Until `finish` nobody else may read them.
#[derive(Default)]
pub struct Written {
    arena: Option<u32>,
    bytes: Vec<u8>,
    before: Vec<u8>,
}

impl Written {
    /// Puts a cell into the value of a row, at a path. False: there is no object to put it into.
    pub fn set(&mut self, batch: &mut Batch, at: usize, path: &Path, cell: Cell<'_>, whole: Option<usize>) -> bool {
        let Some(row) = batch.rows.get(at) else { return false };
        let value = match row.value {
            Payload::Cell(kind, span) => Some((kind, span)),
            Payload::Bytes(_) => whole.and_then(|field| {
                let field = batch.fields.get(field)?;
                Some((*field.kinds.get(at)?, *field.spans.get(at)?))
            }),
            Payload::Null => None,
        };
        let Some((_, span)) = value.filter(|(kind, _)| *kind >= kind::ARRAY) else { return false };
        let document = if Some(span.arena) == self.arena {
            // Changed before, for another of its fields.
            let range = span.start as usize..(span.start + span.len) as usize;
            self.before.clear();
            self.before.extend_from_slice(self.bytes.get(range).unwrap_or_default());
            &self.before
        } else {
            batch.bytes(span)
        };
        let start = self.bytes.len();
        let done = match Doc::unchecked(document) {
            Ok(doc) if cell.kind == kind::MISSING => document::remove(doc, &path.steps, &mut self.bytes),
            Ok(doc) => document::set(doc, &path.steps, (cell.kind, cell.bytes), &mut self.bytes),
            Err(_) => None,
        };
        let Some(kind) = done else { return false };
        let arena = *self.arena.get_or_insert_with(|| batch.add_arena(Vec::new()));
        let span = Span { arena, start: start as u32, len: (self.bytes.len() - start) as u32 };
        if let Some(row) = batch.rows.get_mut(at) {
            row.value = Payload::Cell(kind, span);
        }
        true
    }

    /// Puts what was written where the rows expect it.
    pub fn finish(self, batch: &mut Batch) {
        if let Some(place) = self.arena.and_then(|arena| batch.arenas.get_mut(arena as usize)) {
            *place = Arc::new(self.bytes);
        }
    }
}
