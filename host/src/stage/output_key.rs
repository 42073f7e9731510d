//! The keys of upsert output.

use tamis_guest::document::{Builder, Doc};

use super::{Stage, fault_text};
use crate::batch::{Batch, Cell, Kind, Payload, Row, Span, kind};
use crate::chain::Stop;
use crate::columns::Env;

impl Stage {
    /// The key of an upsert record (O6, 9.2): a bare part, or an object; with the window in it if the stage says so.
    pub(crate) fn output_key(&self, key_kind: u8, bytes: &[u8], window: (i64, i64), into: &mut Vec<u8>) -> u8 {
        let names = self.key.as_ref().map(|key| key.names.as_slice()).unwrap_or_default();
        let traits = &self.traits;
        let windowed = traits.window_in_key && window != Row::NO_WINDOW;
        let cell = Cell { kind: key_kind, bytes };
        let null_part = names.len() == 1 && cell.is_null();
        if !windowed && !null_part {
            into.extend_from_slice(bytes);
            return key_kind;
        }
        let mut builder = Builder::new();
        builder.open(kind::STRUCT);
        match names {
            [name] => {
                builder.name(name.as_bytes());
                builder.cell(key_kind, bytes);
            }
            [] => {
                builder.name(b"key");
                builder.cell(key_kind, bytes);
            }
            _ => {
                if let Ok(doc) = Doc::unchecked(bytes) {
                    for child in doc.root().children() {
                        builder.name(child.name_bytes());
                        builder.copy(child);
                    }
                }
            }
        }
        if windowed {
            builder.name(b"window_start");
            builder.int(window.0.div_euclid(1_000_000));
            if !traits.window_start_only {
                builder.name(b"window_end");
                builder.int(window.1.div_euclid(1_000_000));
            }
        }
        builder.close();
        builder.finish_into(into)
    }

    /// Makes the keys of rows whose images were kept under an output that had none, and that have been decoded since:
    /// nobody keeps a key for an output that may never be asked for.
    ///
    /// # Errors
    /// The key guest faults, or cannot make a key of what it once made one of.
    pub fn key_late(&mut self, batch: &mut Batch, rows: &[(u32, (i64, i64))], env: &Env<'_>) -> Result<(), Stop> {
        let stop = |failure| Stop { failure, origin: None, pause: false };
        let Some(key) = &mut self.key else { return Ok(()) };
        let keys = match key.make(batch, env, true) {
            Ok(keys) => keys,
            Err(fault) => return Err(stop(self.failure("fault", fault_text(&fault), 3))),
        };
        if let Some(why) = keys.failures.into_iter().find(|why| rows.iter().any(|(row, _)| *row == why.row)) {
            return Err(stop(self.failure(&why.code, why.text, why.category)));
        }
        let Some(written) = keys.written else { return Ok(()) };
        let (mut made, arena) = (Vec::new(), batch.arenas.len() as u32);
        for &(row, window) in rows {
            let (cell, start) = (written.cell(row as usize), made.len() as u32);
            let kind = self.output_key(cell.kind, cell.bytes, window, &mut made);
            if let Some(row) = batch.rows.get_mut(row as usize) {
                row.key = Payload::Cell(kind, Span { arena, start, len: made.len() as u32 - start });
                if row.kind == Kind::Delete {
                    row.value = Payload::Null;
                }
            }
        }
        batch.add_arena(made);
        Ok(())
    }
}
