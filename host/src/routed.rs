//! Output rows that a guest sends to a named route: kept rows that lost after all, or whatever else does not go on.

use crate::batch::{Batch, Headers, Row, kind};
use crate::chain::{Emit, Out, Route};
use crate::outcome::{Assembly, Done, raise_into};
use crate::plan::ColumnRef;
use crate::time::NONE_YET;

impl Assembly<'_> {
    /// Sends out the routed output rows from number `next` on that stand before row `upto` or at it; the number of the
    /// first that was not looked at. They leave as they stood at this stage, with the headers that the guest wrote.
    pub(crate) fn send_outputs(&self, mut next: usize, upto: u32, batch: &Batch, out: &mut dyn Out) -> usize {
        let outputs = &self.answer.output;
        while outputs.at.get(next).is_some_and(|at| *at <= upto) {
            let route = outputs.routes.get(next).copied().unwrap_or(0);
            if let Some(name) = usize::from(route).checked_sub(1).and_then(|route| self.stage.routes.get(route)) {
                self.send_output(next, name, batch, out);
            }
            next += 1;
        }
        next
    }

    fn send_output(&self, output: usize, name: &str, batch: &Batch, out: &mut dyn Out) {
        let Some((route, failure)) = self.route(name) else { return };
        if route == Route::Duplicates && !self.wants_duplicates {
            return;
        }
        let added = self.written_headers(output);
        let outputs = &self.answer.output;
        let (Some(&origin), calls) = (outputs.origins.get(output), self.rows.len() as u32) else { return };
        // A wake fires because of the record before the place it stands at; anything else because of the one there.
        let at = outputs.at.get(output).and_then(|&at| self.rows.get(at as usize)).map(|&row| row as usize);
        let wakes = outputs.wakes.get(output).is_some_and(|wake| wake.time != NONE_YET);
        let at = at.unwrap_or(batch.rows.len());
        let cause = match wakes {
            true => at.checked_sub(1).map_or(0, |before| batch.cause(before)),
            false => batch.cause(at.min(batch.rows.len().saturating_sub(1))),
        };
        if origin < calls {
            let row = self.rows.get(origin as usize).and_then(|&row| batch.rows.get(row as usize));
            if let Some(row) = row {
                out.emit(Emit { route, batch, row, added: &added, failure: failure.as_ref(), cause });
            }
            return;
        }
        let number = outputs.images.get(output).copied().unwrap_or(0);
        let image = self.finished.and_then(|finished| finished.image(origin - calls, number));
        if let Some(image) = image {
            let (mut alone, mut bytes) = (Batch { now: batch.now, ..Batch::default() }, Vec::new());
            let row = raise_into(image, 0, &mut bytes, &mut alone.headers);
            alone.add_arena(bytes);
            let failure = failure.as_ref();
            out.emit(Emit { route, batch: &alone, row: &row, added: &added, failure, cause });
        }
    }

    /// A guest that judges by marks alone does not see their positions: whether a redelivered record found its own is for
    /// the host to count (R1), under the name `redelivered_self`.
    pub(crate) fn count_redelivered(&self, row: usize, record: &Row, done: &mut Done) {
        let found = self.finished.and_then(|finished| finished.found(row as u32));
        if !record.redelivered || !self.answer.winners.is_empty() || found != Some(record.origin) {
            return;
        }
        let counter = self.stage.counters.iter().position(|name| name == "redelivered_self");
        if let Some(count) = counter.and_then(|counter| done.counts.get_mut(counter)) {
            *count += 1;
        }
    }

    fn written_headers(&self, output: usize) -> Headers {
        let mut headers = Headers::default();
        for (column, cells) in self.stage.writes.iter().zip(&self.answer.output.columns) {
            let (ColumnRef::Header(name), cell) = (column, cells.cell(output)) else { continue };
            match cell.kind {
                kind::UNCHANGED | kind::MISSING => {}
                kind::NULL => headers.push((name.clone(), None)),
                _ => headers.push((name.clone(), Some(cell.bytes.to_vec()))),
            }
        }
        headers
    }
}
