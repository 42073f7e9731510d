//! Bytes to fields: the codecs on the way in, and paths into rows that are decoded already.

use tamis_guest::document::Doc;

use std::sync::Arc;

use crate::batch::{Batch, Cell, Column, Field, Payload, Span, kind};
use crate::chain::{Failure, Stop, payloads};
use crate::columns::Env;
use crate::config::path::Step;
use crate::config::pipeline::Limits;
use crate::guest::call::{Decoded, Fault};
use crate::guest::{Guest, Opening, Watch};
use crate::plan::{Coder, Plan};

/// The codecs on the way in.
pub struct Decoder {
    value: Side,
    key: Side,
}

/// One codec and the paths it is asked for.
struct Side {
    guest: Option<Guest>,
    of_key: bool,
    paths: Vec<Vec<Step>>,
    /// Its first field in a batch.
    first: usize,
    payloads: Column,
}

impl Decoder {
    /// Opens what the plan decodes.
    pub fn open(plan: &Plan, env: &Env<'_>, limits: Limits) -> Decoder {
        let side = |coder: &Coder, paths: &[crate::config::path::Path], first: usize, of_key: bool| {
            let texts: Vec<String> = paths.iter().map(|path| path.below()).collect();
            let opening =
                Opening::Codec { params: plan.pipeline.secrets.reveal(&coder.params).to_string(), paths: texts };
            Side {
                guest: (!paths.is_empty()).then(|| coder.module.guest(opening, limits)),
                of_key,
                paths: paths.iter().map(|path| path.steps.clone()).collect(),
                first,
                payloads: Column::default(),
            }
        };
        Decoder {
            value: side(&plan.decode_value, env.value_paths, 0, false),
            key: side(&plan.decode_key, env.key_paths, env.value_paths.len(), true),
        }
    }

    /// Tells what its guests do: `watch` is asked with the place of each.
    pub fn tell(&mut self, watch: &dyn Fn(&str) -> Arc<dyn Watch>) {
        for (side, place) in [(&mut self.value, "decode.value"), (&mut self.key, "decode.key")] {
            if let Some(guest) = &mut side.guest {
                guest.tell(watch(place));
            }
        }
    }

    /// Throws the instances away.
    pub fn discard(&mut self) {
        for side in [&mut self.value, &mut self.key] {
            if let Some(guest) = &mut side.guest {
                guest.discard();
            }
        }
    }

    /// Fills the fields of all rows; those that fail are left missing and given back.
    pub fn decode(&mut self, batch: &mut Batch) -> Result<Vec<(u32, Failure)>, Stop> {
        let rows: Vec<u32> = (0..batch.rows.len() as u32).collect();
        let fields = self.value.paths.len() + self.key.paths.len();
        batch.fields = (0..fields)
            .map(|_| Field { kinds: vec![kind::MISSING; rows.len()], spans: vec![Span::default(); rows.len()] })
            .collect();
        let mut failures = self.value.fill(batch, &rows);
        failures.extend(self.key.fill(batch, &rows));
        failures.sort_by_key(|(row, _)| *row);
        failures.dedup_by_key(|(row, _)| *row);
        Ok(failures)
    }

    /// Fills the fields of rows that a wake emitted or a stage changed. They were decoded once, so they do not fail.
    pub fn decode_rows(&mut self, batch: &mut Batch, rows: &[u32]) -> Result<(), Stop> {
        self.value.fill(batch, rows);
        self.key.fill(batch, rows);
        Ok(())
    }
}

impl Side {
    fn fill(&mut self, batch: &mut Batch, rows: &[u32]) -> Vec<(u32, Failure)> {
        let mut failures = Vec::new();
        if self.paths.is_empty() || rows.is_empty() {
            return failures;
        }
        self.decoded_already(batch, rows);
        self.run(batch, rows, &mut failures);
        failures
    }

    /// Rows whose payload is a cell: their fields are looked up in it.
    fn decoded_already(&self, batch: &mut Batch, rows: &[u32]) {
        let mut arena = Vec::new();
        let number = batch.arenas.len() as u32;
        for &row in rows {
            let Some(at) = batch.rows.get(row as usize) else { continue };
            let payload = if self.of_key { at.key } else { at.value };
            let (kind, span) = match payload {
                Payload::Cell(kind, span) => (kind, span),
                Payload::Null => (kind::NULL, Span::default()),
                Payload::Bytes(_) => continue,
            };
            for (i, steps) in self.paths.iter().enumerate() {
                let (found, place) = {
                    let bytes = batch.bytes(span);
                    let cell = look_up(Cell { kind, bytes }, steps, &mut arena);
                    match cell {
                        Found::Inside(kind, start, len) => {
                            (kind, Span { arena: span.arena, start: span.start + start, len })
                        }
                        Found::Copied(kind, start, len) => (kind, Span { arena: number, start, len }),
                    }
                };
                set(batch, self.first + i, row, found, place);
            }
        }
        if !arena.is_empty() {
            batch.add_arena(arena);
        }
    }

    fn run(&mut self, batch: &mut Batch, rows: &[u32], failures: &mut Vec<(u32, Failure)>) {
        let Some(guest) = &mut self.guest else { return };
        let any = rows.iter().any(|&row| {
            let payload = batch.rows.get(row as usize).map(|r| if self.of_key { r.key } else { r.value });
            matches!(payload, Some(Payload::Bytes(_)))
        });
        if !any {
            return;
        }
        payloads(batch, rows, self.of_key, &mut self.payloads);
        // A fault is tried once more on a fresh instance, then bisected; the guilty row is blamed.
        let answer = guest.decode(&self.payloads).or_else(|_| guest.decode(&self.payloads));
        match answer {
            Ok(decoded) => self.take(batch, rows, decoded, failures),
            Err(fault) => match rows {
                [row] => failures.push((*row, self.blame(&fault))),
                _ => {
                    let (left, right) = rows.split_at(rows.len() / 2);
                    self.run(batch, left, failures);
                    self.run(batch, right, failures);
                }
            },
        }
    }

    fn blame(&self, fault: &Fault) -> Failure {
        let text = match fault {
            Fault::Module { kind, text } => format!("{kind}: {text}"),
            Fault::Full => "the codec asked for state".to_owned(),
        };
        Failure { category: 3, ..self.failure("fault".to_owned(), text) }
    }

    fn failure(&self, code: String, text: String) -> Failure {
        let module = self.guest.as_ref().map(Guest::module);
        Failure {
            stage: if self.of_key { "decode.key" } else { "decode.value" }.to_owned(),
            code,
            text,
            category: 2,
            module: module.map(|m| format!("{}@{}", m.name(), m.version())),
            digest: module.map(|m| m.digest().to_owned()),
        }
    }

    fn take(&mut self, batch: &mut Batch, rows: &[u32], decoded: Decoded, failures: &mut Vec<(u32, Failure)>) {
        let total = self.payloads.data.len() as u32;
        let mut heap = decoded.heap;
        let number = batch.arenas.len() as u32;
        for (i, column) in decoded.columns.iter().enumerate() {
            for (j, &row) in rows.iter().enumerate() {
                let (Some(&kind), Some(&start), Some(&len)) =
                    (column.kinds.get(j), column.spans.get(2 * j), column.spans.get(2 * j + 1))
                else {
                    continue;
                };
                let Some(at) = batch.rows.get(row as usize) else { continue };
                let Payload::Bytes(own) = (if self.of_key { at.key } else { at.value }) else { continue };
                let from = self.payloads.offsets.get(j).copied().unwrap_or_default();
                let span = if start >= total {
                    Span { arena: number, start: start - total, len }
                } else if start >= from && start + len <= from + own.len {
                    Span { arena: own.arena, start: own.start + (start - from), len }
                } else {
                    // Another row's bytes: legal, if odd; they get a place of their own.
                    let place = heap.len() as u32;
                    let bytes = self.payloads.data.get(start as usize..(start + len) as usize).unwrap_or_default();
                    heap.extend_from_slice(bytes);
                    Span { arena: number, start: place, len }
                };
                set(batch, self.first + i, row, kind, span);
            }
        }
        if !heap.is_empty() {
            batch.add_arena(heap);
        }
        for failed in decoded.failures {
            if let Some(&row) = rows.get(failed.row as usize) {
                let failure = Failure { category: failed.category, ..self.failure(failed.code, failed.text) };
                failures.push((row, failure));
            }
        }
    }
}

fn set(batch: &mut Batch, field: usize, row: u32, kind: u8, span: Span) {
    if let Some(field) = batch.fields.get_mut(field) {
        if let (Some(k), Some(s)) = (field.kinds.get_mut(row as usize), field.spans.get_mut(row as usize)) {
            *k = kind;
            *s = span;
        }
    }
}

enum Found {
    /// At this place of the document's own bytes.
    Inside(u8, u32, u32),
    /// In the arena for what had to be built.
    Copied(u8, u32, u32),
}

fn look_up(cell: Cell<'_>, steps: &[Step], arena: &mut Vec<u8>) -> Found {
    if steps.is_empty() {
        return Found::Inside(cell.kind, 0, cell.bytes.len() as u32);
    }
    let node =
        (cell.kind >= kind::ARRAY).then(|| Doc::unchecked(cell.bytes).ok()).flatten().and_then(|doc| doc.find(steps));
    match node {
        None => Found::Inside(kind::MISSING, 0, 0),
        Some(node) => {
            let start = arena.len();
            let kind = node.cell_into(arena);
            Found::Copied(kind, start as u32, (arena.len() - start) as u32)
        }
    }
}
