//! Fields to bytes: the codecs on the way out. A record that no stage changed leaves byte for byte as it came.

use std::sync::Arc;

use crate::batch::{Batch, Column, Payload, Span, kind};
use crate::chain::{Failure, Stop};
use crate::config::pipeline::Limits;
use crate::guest::call::Fault;
use crate::guest::{Guest, Opening, Watch};
use crate::plan::{Coder, Plan};

/// The codecs on the way out.
pub struct Encoder {
    value: Guest,
    key: Guest,
    made_key: Guest,
    reencode_value: Option<usize>,
    reencode_key: Option<usize>,
}

impl Encoder {
    /// Opens what the plan encodes with.
    pub fn open(plan: &Plan, limits: Limits) -> Encoder {
        let open = |coder: &Coder| {
            let opening = Opening::Codec {
                params: plan.pipeline.secrets.reveal(&coder.params).to_string(),
                paths: vec![String::new()],
            };
            coder.module.guest(opening, limits)
        };
        let whole = |paths: &[crate::config::path::Path]| paths.iter().position(|path| path.steps.is_empty());
        Encoder {
            value: open(&plan.encode_value),
            key: open(&plan.encode_key),
            made_key: open(&plan.encode_made_key),
            reencode_value: plan.reencode_value.then(|| whole(&plan.value_paths)).flatten(),
            reencode_key: plan
                .reencode_key
                .then(|| whole(&plan.key_paths).map(|i| i + plan.value_paths.len()))
                .flatten(),
        }
    }

    /// Whether it reads decoded fields of rows whose bytes no stage changed.
    pub fn reads_fields(&self) -> bool {
        self.reencode_value.is_some() || self.reencode_key.is_some()
    }

    /// Tells what its guests do: `watch` is asked with the place of each.
    pub fn tell(&mut self, watch: &dyn Fn(&str) -> Arc<dyn Watch>) {
        self.value.tell(watch("encode.value"));
        // Both make keys; which of them runs is for the plan.
        let key = watch("encode.key");
        self.key.tell(Arc::clone(&key));
        self.made_key.tell(key);
    }

    /// Throws the instances away.
    pub fn discard(&mut self) {
        for guest in [&mut self.value, &mut self.key, &mut self.made_key] {
            guest.discard();
        }
    }

    /// Puts bytes in the place of decoded cells. Gives back the rows that could not be encoded.
    pub fn encode(&mut self, batch: &mut Batch) -> Result<Vec<(u32, Failure)>, Stop> {
        let mut failures = Vec::new();
        if let Some(field) = self.reencode_value {
            decode_in_place(batch, field, false);
        }
        if let Some(field) = self.reencode_key {
            // What came in takes `encode.key`; what a stage made is encoded below.
            let rows = rows_of(batch, true, true);
            let cells = cells(batch, &rows, |batch, row| batch.field(field, row as usize));
            run(&mut self.key, batch, &rows, &cells, true, &mut failures);
        }
        let rows = rows_of(batch, false, false);
        let column = cells(batch, &rows, |batch, row| cell_of(batch, row, false));
        run(&mut self.value, batch, &rows, &column, false, &mut failures);
        let rows = rows_of(batch, true, false);
        let column = cells(batch, &rows, |batch, row| cell_of(batch, row, true));
        run(&mut self.made_key, batch, &rows, &column, true, &mut failures);
        failures.sort_by_key(|(row, _)| *row);
        failures.dedup_by_key(|(row, _)| *row);
        Ok(failures)
    }
}

/// Rows whose key or value is a decoded cell; `raw`: those whose it is still bytes.
fn rows_of(batch: &Batch, of_key: bool, raw: bool) -> Vec<u32> {
    let wanted = |payload: Payload| match payload {
        Payload::Cell(..) => !raw,
        Payload::Bytes(_) => raw,
        Payload::Null => false,
    };
    let rows = batch.rows.iter().enumerate();
    rows.filter(|(_, row)| wanted(if of_key { row.key } else { row.value })).map(|(i, _)| i as u32).collect()
}

fn cell_of(batch: &Batch, row: u32, of_key: bool) -> crate::batch::Cell<'_> {
    match batch.rows.get(row as usize).map(|r| if of_key { r.key } else { r.value }) {
        Some(Payload::Cell(kind, span)) => crate::batch::Cell { kind, bytes: batch.bytes(span) },
        _ => crate::batch::Cell::NULL,
    }
}

fn cells<'a>(batch: &'a Batch, rows: &[u32], of: impl Fn(&'a Batch, u32) -> crate::batch::Cell<'a>) -> Column {
    let mut column = Column::default();
    column.offsets.push(0);
    for &row in rows {
        let cell = of(batch, row);
        column.push(cell.kind, cell.bytes);
    }
    column
}

fn decode_in_place(batch: &mut Batch, field: usize, of_key: bool) {
    let Some(cells) = batch.fields.get(field).cloned() else { return };
    for (row, (&kind, &span)) in batch.rows.iter_mut().zip(cells.kinds.iter().zip(&cells.spans)) {
        let place = if of_key { &mut row.key } else { &mut row.value };
        if matches!(place, Payload::Bytes(_)) && kind > kind::NULL {
            *place = Payload::Cell(kind, span);
        }
    }
}

fn run(
    guest: &mut Guest,
    batch: &mut Batch,
    rows: &[u32],
    column: &Column,
    of_key: bool,
    failures: &mut Vec<(u32, Failure)>,
) {
    if rows.is_empty() {
        return;
    }
    let columns = std::slice::from_ref(column);
    let answer = guest.encode(columns).or_else(|_| guest.encode(columns));
    let module = guest.module();
    let failure = |code: String, text: String, category: u8| Failure {
        stage: if of_key { "encode.key" } else { "encode.value" }.to_owned(),
        code,
        text,
        category,
        module: Some(format!("{}@{}", module.name(), module.version())),
        digest: Some(module.digest().to_owned()),
    };
    match answer {
        Ok((encoded, failed)) => {
            for failed in failed {
                if let Some(&row) = rows.get(failed.row as usize) {
                    failures.push((row, failure(failed.code, failed.text, failed.category)));
                }
            }
            let arena = batch.arenas.len() as u32;
            for (i, &row) in rows.iter().enumerate() {
                let cell = encoded.cell(i);
                let start = encoded.offsets.get(i).copied().unwrap_or_default();
                let span = Span { arena, start, len: cell.bytes.len() as u32 };
                let payload = if cell.is_null() { Payload::Null } else { Payload::Bytes(span) };
                if failures.iter().any(|(failed, _)| *failed == row) {
                    continue;
                }
                if let Some(row) = batch.rows.get_mut(row as usize) {
                    *(if of_key { &mut row.key } else { &mut row.value }) = payload;
                }
            }
            batch.add_arena(encoded.data);
        }
        Err(fault) => match rows {
            [row] => {
                let text = match fault {
                    Fault::Module { kind, text } => format!("{kind}: {text}"),
                    Fault::Full => "the codec asked for state".to_owned(),
                };
                failures.push((*row, failure("fault".to_owned(), text, 3)));
            }
            _ => {
                let half = rows.len() / 2;
                let pick = |range: std::ops::Range<usize>| {
                    let mut part = Column::default();
                    part.offsets.push(0);
                    range.for_each(|i| part.push(column.cell(i).kind, column.cell(i).bytes));
                    part
                };
                let (left, right) = (pick(0..half), pick(half..rows.len()));
                let (first, second) = rows.split_at(half);
                run(guest, batch, first, &left, of_key, failures);
                run(guest, batch, second, &right, of_key, failures);
            }
        },
    }
}
