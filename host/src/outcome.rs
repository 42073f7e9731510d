//! What a guest answered, put into effect: verdicts and output rows become the next batch, routed rows leave. Rows
//! without a key, which the guest never saw, are put back in their places.

use std::sync::Arc;

use crate::batch::{Batch, Cell, Field, Headers, Image, Kind, Owned, Payload, Row, Span, Track, kind};
use crate::chain::{Emit, Failure, Out, Route, add_headers, push_missing};
use crate::columns::{Env, Keys};
use crate::config::path::{Path, Root};
use crate::config::pipeline::NullKey;
use crate::guest::call::Outcome;
use crate::keyed::Finished;
use crate::plan::{BoundsFormat, Clock, ColumnRef, OutputKind, WindowBounds};
use crate::stage::Stage;
use crate::time::{NONE_YET, Stamp};
use crate::value::{Write, Written};

/// What became of a batch.
#[derive(Default)]
pub struct Done {
    /// What goes on.
    pub next: Batch,
    /// Rows of `next` whose fields are still missing.
    pub undecoded: Vec<u32>,
    /// What is to be put into values once they are decoded.
    pub writes: Vec<Write>,
    /// Rows whose key is to be made once they are decoded, and their windows.
    pub unkeyed: Vec<(u32, (i64, i64))>,
    /// Values that were changed.
    written: Written,
    /// Rows that came in.
    pub records_in: u64,
    /// Of them, rows whose key is null (but for `group`).
    pub null_keys: u64,
    /// Of them, rows that failed.
    pub failed: u64,
    /// Of them, rows that the guest dropped.
    pub dropped: u64,
    /// The guest's own counters.
    pub counts: Vec<u64>,
}

/// Everything that is needed to put an answer into effect.
pub struct Assembly<'a> {
    pub(crate) stage: &'a mut Stage,
    pub(crate) answer: Outcome,
    /// Row of the call -> row of the batch.
    pub(crate) rows: &'a [u32],
    pub(crate) keys: Keys,
    pub(crate) finished: Option<&'a Finished>,
    pub(crate) env: &'a Env<'a>,
    pub(crate) wants_duplicates: bool,
    pub(crate) null_key: NullKey,
}

/// Stands for the arena of made keys until that has a number.
const MADE: u32 = u32::MAX;

/// One row of the next batch.
enum Next<'a> {
    /// Row of the batch, as it is or changed by output row `change`.
    Row { row: u32, change: Option<u32>, new_image: bool },
    /// Row of the batch that a wake of the same call emits, as output row `output`.
    Woken { row: u32, output: u32, cause: u64 },
    /// Output row from a kept image.
    Image { output: u32, image: &'a Image, cause: u64 },
}

impl<'a> Assembly<'a> {
    /// Makes the next batch, and sends routed rows out.
    pub fn run(mut self, batch: Batch, out: &mut dyn Out) -> Done {
        let mut done = Done {
            records_in: batch.rows.len() as u64,
            counts: std::mem::take(&mut self.answer.counts),
            ..Done::default()
        };
        self.routed(&batch, &mut done, out);
        let wakes = self.answer.output.wakes.times.iter().enumerate();
        let fired = wakes.filter_map(|(i, _)| self.answer.output.wakes.get(i)).filter(|w| w.time < crate::time::END);
        self.stage.fired = fired.fold(self.stage.fired, Stamp::max);
        let plain = self.answer.output.at.is_empty()
            && self.rows.len() == batch.rows.len()
            && self.stage.traits.output == OutputKind::Append;
        if plain {
            let mut batch = batch;
            let kept: Vec<u32> = self.kept_rows();
            batch.keep(&kept);
            done.next = batch;
            return done;
        }
        let plan = self.sequence(&batch);
        self.build(batch, plan, &mut done);
        done
    }

    fn kept_rows(&self) -> Vec<u32> {
        let verdicts = self.answer.verdicts.iter().enumerate();
        verdicts.filter(|(_, verdict)| matches!(verdict, 0 | 7)).map(|(row, _)| row as u32).collect()
    }

    /// Late rows, duplicates, failures, rows of named routes, rows without key: what does not go on.
    fn routed(&mut self, batch: &Batch, done: &mut Done, out: &mut dyn Out) {
        let mut duplicate = 0;
        let mut output = 0;
        for (row, verdict) in self.answer.verdicts.iter().enumerate() {
            output = self.send_outputs(output, row as u32, batch, out);
            let at = self.rows.get(row).copied().unwrap_or_default() as usize;
            let Some(record) = batch.rows.get(at) else { continue };
            let cause = batch.cause(at);
            match verdict {
                1 => done.dropped += 1,
                4 => {
                    if self.wants_duplicates {
                        let added = self.duplicate_of(row, duplicate, batch);
                        out.emit(Emit {
                            route: Route::Duplicates,
                            batch,
                            row: record,
                            added: &added,
                            failure: None,
                            cause,
                        });
                    }
                    duplicate += 1;
                    self.count_redelivered(row, record, done);
                }
                5 => {
                    let mark = self.seen(batch, at).time.div_euclid(1_000_000);
                    let added = [("tamis.watermark".to_owned(), Some(mark.to_string().into_bytes()))];
                    let why = self.stage.failure("late", "below the watermark".to_owned(), 2);
                    out.emit(Emit {
                        route: Route::Late,
                        batch,
                        row: record,
                        added: &added,
                        failure: Some(&why),
                        cause,
                    });
                }
                128.. => {
                    let name = self.stage.routes.get(usize::from(verdict - 128).wrapping_sub(1));
                    if let Some((route, failure)) = name.and_then(|name| self.route(name)) {
                        out.emit(Emit { route, batch, row: record, added: &[], failure: failure.as_ref(), cause });
                    }
                }
                _ => {}
            }
        }
        self.send_outputs(output, u32::MAX, batch, out);
        let failures = self.answer.failures.iter().filter_map(|failure| {
            self.rows.get(failure.row as usize).map(|&at| (at, &failure.code, &failure.text, failure.category))
        });
        let keys = self.keys.failures.iter().map(|f| (f.row, &f.code, &f.text, f.category));
        for (at, code, text, category) in failures.chain(keys) {
            if let Some(row) = batch.rows.get(at as usize) {
                let why = self.stage.failure(code, text.clone(), category);
                let cause = batch.cause(at as usize);
                out.emit(Emit { route: Route::DeadLetter, batch, row, added: &[], failure: Some(&why), cause });
                done.failed += 1;
            }
        }
        for (at, _) in self.keys.null.iter().enumerate().filter(|(_, null)| **null) {
            if self.keys.failures.iter().any(|failure| failure.row as usize == at) {
                continue;
            }
            done.null_keys += 1;
            if let (NullKey::Dlq, Some(row)) = (self.null_key, batch.rows.get(at)) {
                let text = "every part of the key is null or missing".to_owned();
                let why = self.stage.failure("null_key", text, 2);
                let cause = batch.cause(at);
                out.emit(Emit { route: Route::DeadLetter, batch, row, added: &[], failure: Some(&why), cause });
            }
        }
    }

    pub(crate) fn route(&self, name: &str) -> Option<(Route, Option<Failure>)> {
        match name {
            "late" => Some((Route::Late, None)),
            "duplicates" => Some((Route::Duplicates, None)),
            other => {
                let why = self.stage.failure(other, format!("sent to the route {other}"), 2);
                Some((Route::DeadLetter, Some(why)))
            }
        }
    }

    fn duplicate_of(&self, row: usize, duplicate: usize, batch: &Batch) -> Vec<(String, Option<Vec<u8>>)> {
        let calls = self.rows.len() as u32;
        let winner = match self.answer.winners.get(duplicate) {
            // A row that names itself names nobody.
            Some(&winner) if winner as usize == row => None,
            Some(&winner) if winner < calls => {
                self.rows.get(winner as usize).and_then(|&at| batch.rows.get(at as usize)).map(|r| r.origin)
            }
            Some(&winner) => {
                let number = self.answer.winner_images.get(duplicate).copied().unwrap_or(0);
                self.finished.and_then(|finished| finished.origin(winner - calls, number))
            }
            None => self.finished.and_then(|finished| finished.found(row as u32)),
        };
        match winner {
            Some(origin) => {
                vec![("tamis.duplicate_of".to_owned(), Some(self.env.position(origin).into_bytes()))]
            }
            None => Vec::new(),
        }
    }

    fn seen(&self, batch: &Batch, row: usize) -> Stamp {
        match self.stage.traits.clock {
            Clock::Event => batch.event.seen.get(row).copied().or(batch.event.end),
            Clock::Ingestion => batch.ingestion.seen.get(row).copied().or(batch.ingestion.end),
            Clock::Processing => Some(crate::portion::processing(batch)),
        }
        .unwrap_or(Stamp::START)
    }

    /// What follows what: output rows stand before the row they name, rows without key where they came.
    fn sequence(&self, batch: &Batch) -> Vec<Next<'a>> {
        let outputs = &self.answer.output;
        let calls = self.rows.len() as u32;
        let mut next = Vec::with_capacity(batch.rows.len() + outputs.at.len());
        let mut output = 0usize;
        let mut call = 0u32;
        let push = |next: &mut Vec<Next<'a>>, output: usize, at: usize| {
            let origin = outputs.origins.get(output).copied().unwrap_or_default();
            if outputs.routes.get(output).copied().unwrap_or(0) != 0 {
                return;
            }
            // A wake fires because of the record before; other images leave because of the record at hand.
            let wakes = outputs.wakes.get(output).is_some_and(|wake| wake.time != NONE_YET);
            let cause = match wakes {
                true => at.checked_sub(1).map_or(0, |before| batch.cause(before)),
                false => batch.cause(at),
            };
            let (number, output) = (outputs.images.get(output).copied().unwrap_or(0), output as u32);
            if origin < calls {
                let row = self.rows.get(origin as usize).copied().unwrap_or_default();
                next.push(match wakes {
                    true => Next::Woken { row, output, cause },
                    false => Next::Row { row, change: Some(output), new_image: false },
                });
            } else if let Some(image) = self.finished.and_then(|f| f.image(origin - calls, number)) {
                next.push(Next::Image { output, image, cause });
            }
        };
        for at in 0..batch.rows.len() as u32 {
            let in_call = self.rows.get(call as usize) == Some(&at);
            while outputs.at.get(output) == Some(&call) {
                let wake = outputs.wakes.get(output).filter(|wake| wake.time != NONE_YET);
                let before = in_call || wake.is_some_and(|wake| wake <= self.seen(batch, at as usize));
                if !before {
                    break;
                }
                push(&mut next, output, at as usize);
                output += 1;
            }
            if in_call {
                match self.answer.verdicts.get(call as usize) {
                    Some(0) => next.push(Next::Row { row: at, change: None, new_image: false }),
                    Some(7) => next.push(Next::Row { row: at, change: None, new_image: true }),
                    _ => {}
                }
                call += 1;
            } else if self.null_key == NullKey::Pass
                && self.keys.null.get(at as usize) == Some(&true)
                && !self.keys.failures.iter().any(|failure| failure.row == at)
            {
                next.push(Next::Row { row: at, change: None, new_image: false });
            }
        }
        while output < outputs.at.len() {
            push(&mut next, output, batch.rows.len());
            output += 1;
        }
        next
    }

    fn build(mut self, batch: Batch, plan: Vec<Next<'a>>, done: &mut Done) {
        let room = |track: &Track| if track.times.is_empty() { 0 } else { plan.len() };
        let empty = |track: &Track| Track {
            start: track.start,
            end: track.end,
            times: Vec::with_capacity(room(track)),
            seen: Vec::with_capacity(room(track)),
        };
        let mut next = Batch {
            rows: Vec::with_capacity(plan.len()),
            arenas: batch.arenas.clone(),
            headers: batch.headers.clone(),
            fields: batch.fields.iter().map(|_| Field::with_capacity(plan.len())).collect(),
            event: empty(&batch.event),
            ingestion: empty(&batch.ingestion),
            now: batch.now,
            ended: batch.ended,
            steps: Arc::clone(&batch.steps),
            causes: Vec::new(),
        };
        let images = plan.iter().any(|item| !matches!(item, Next::Row { .. }));
        let bytes = plan.iter().map(|item| if let Next::Image { image, .. } = item { image.size() } else { 0 });
        let mut raised = Vec::with_capacity(bytes.sum());
        let arena = next.arenas.len() as u32;
        for item in &plan {
            match item {
                Next::Row { row, .. } => {
                    copy_row(&batch, *row as usize, &mut next);
                    if images || !batch.causes.is_empty() {
                        next.causes.push(batch.cause(*row as usize));
                    }
                }
                Next::Woken { row, output, cause } => {
                    copy_row(&batch, *row as usize, &mut next);
                    next.causes.push(*cause);
                    self.woken(&batch, *row, *output as usize, &mut next);
                }
                Next::Image { output, image, cause } => {
                    next.causes.push(*cause);
                    let row = raise_into(image, arena, &mut raised, &mut next.headers);
                    next.rows.push(row);
                    push_missing(&mut next.fields);
                    done.undecoded.push((next.rows.len() - 1) as u32);
                    self.add_times(&batch, *output as usize, (image.event, image.ingestion), &mut next);
                }
            }
        }
        if !raised.is_empty() {
            next.add_arena(raised);
        }
        let mut made = Vec::new();
        for (at, item) in plan.iter().enumerate() {
            let mut unkeyed = false;
            let (output, written) = match item {
                Next::Row { row, change, new_image } => {
                    if *new_image {
                        set_kind(&mut next, at, Kind::New);
                    }
                    (change.map(|output| output as usize), self.written_key(*row))
                }
                Next::Woken { row, output, .. } => (Some(*output as usize), self.written_key(*row)),
                Next::Image { output, image, .. } => {
                    unkeyed = matches!(image.output_key, Owned::Null);
                    (Some(*output as usize), owned_cell(&image.output_key))
                }
            };
            let mut window = Row::NO_WINDOW;
            if let Some(output) = output {
                // A stage without state changes rows; what they are to an updating output stays.
                if self.stage.traits.keyed {
                    set_kind(&mut next, at, self.kind(output));
                }
                let bounds = self.answer.output.windows.get(2 * output..2 * output + 2);
                if let Some(&[start, end]) = bounds {
                    window = (start, end);
                }
                self.write_columns(&mut next, at, output, done);
            }
            if window != Row::NO_WINDOW {
                if let Some(row) = next.rows.get_mut(at) {
                    row.window = window;
                }
                self.write_bounds(&mut next, at, window, done);
            }
            if self.stage.traits.audit && output.is_some() {
                let origin = next.rows.get(at).map(|row| row.origin).unwrap_or_default();
                let winner = self.env.position(origin).into_bytes();
                add_headers(&mut next, at, vec![("tamis.winner".to_owned(), Some(winner))]);
            }
            if self.stage.traits.output == OutputKind::Retract {
                let kind = next.rows.get(at).map(|row| row.kind.word().into());
                add_headers(&mut next, at, vec![("tamis.kind".to_owned(), kind)]);
            }
            if unkeyed && self.stage.traits.output == OutputKind::Upsert {
                done.unkeyed.push((at as u32, window));
            } else if let (OutputKind::Upsert, Some((kind, bytes))) = (self.stage.traits.output, written) {
                let start = made.len() as u32;
                let kind = self.stage.output_key(kind, &bytes, window, &mut made);
                let span = Span { arena: MADE, start, len: made.len() as u32 - start };
                if let Some(row) = next.rows.get_mut(at) {
                    row.key = Payload::Cell(kind, span);
                    if row.kind == Kind::Delete {
                        row.value = Payload::Null;
                    }
                }
                if !self.env.key_paths.is_empty() {
                    done.undecoded.push(at as u32);
                }
            }
        }
        if !made.is_empty() {
            let number = next.add_arena(made);
            for row in &mut next.rows {
                if let Payload::Cell(_, span) = &mut row.key
                    && span.arena == MADE
                {
                    span.arena = number;
                }
            }
        }
        std::mem::take(&mut done.written).finish(&mut next);
        done.undecoded.sort_unstable();
        done.undecoded.dedup();
        done.next = next;
        self.keys.written = None;
    }

    fn written_key(&self, row: u32) -> Option<(u8, Vec<u8>)> {
        self.rows.binary_search(&row).ok()?;
        let cell = self.keys.written.as_ref()?.cell(row as usize);
        Some((cell.kind, cell.bytes.to_vec()))
    }

    fn kind(&self, output: usize) -> Kind {
        match self.answer.output.kinds.get(output).copied().unwrap_or(0) {
            1 => Kind::Old,
            2 => Kind::New,
            3 => Kind::Delete,
            _ => Kind::Insert,
        }
    }

    /// The columns a stage writes: parts of the value, headers.
    fn write_columns(&self, next: &mut Batch, at: usize, output: usize, done: &mut Done) {
        let mut headers: Headers = Vec::new();
        for (column, cells) in self.stage.writes.iter().zip(&self.answer.output.columns) {
            let cell = cells.cell(output);
            if cell.kind == kind::UNCHANGED {
                continue;
            }
            match column {
                ColumnRef::Header(name) => match cell.kind {
                    kind::MISSING => {}
                    kind::NULL => headers.push((name.clone(), None)),
                    _ => headers.push((name.clone(), Some(cell.bytes.to_vec()))),
                },
                ColumnRef::ValueField(path) => self.write_value(next, at, path, cell, done),
                _ => {}
            }
        }
        if !headers.is_empty() {
            add_headers(next, at, headers);
        }
    }

    /// Puts a cell into the value; a row that was raised from its bytes must be decoded first, which is not done here.
    fn write_value(&self, next: &mut Batch, at: usize, path: &Path, cell: Cell<'_>, done: &mut Done) {
        let raw = next.rows.get(at).is_some_and(|row| matches!(row.value, Payload::Bytes(_)));
        let known = self.stage.whole_value.is_some_and(|whole| next.field(whole, at).kind != kind::MISSING);
        if raw && !known {
            let (row, path, kind, bytes) = (at as u32, path.clone(), cell.kind, cell.bytes.to_vec());
            done.writes.push(Write { row, path, kind, bytes });
        } else if done.written.set(next, at, path, cell, self.stage.whole_value) {
            done.undecoded.push(at as u32);
        }
    }

    /// Window bounds (9.4).
    fn write_bounds(&self, next: &mut Batch, at: usize, window: (i64, i64), done: &mut Done) {
        match self.stage.traits.bounds {
            WindowBounds::Headers => {
                if let Some(row) = next.rows.get_mut(at) {
                    row.bounds = true;
                }
            }
            WindowBounds::Value => {
                for (name, ns) in [("window_start", window.0), ("window_end", window.1)] {
                    let path = Path { root: Root::Value, steps: vec![crate::config::path::Step::Member(name.into())] };
                    match self.stage.traits.bounds_format {
                        BoundsFormat::Ms => {
                            let bytes = ns.div_euclid(1_000_000).to_le_bytes();
                            self.write_value(next, at, &path, Cell { kind: kind::INT64, bytes: &bytes }, done);
                        }
                        BoundsFormat::Rfc3339 => {
                            let text = crate::instant::format(ns);
                            let cell = Cell { kind: kind::TEXT, bytes: text.as_bytes() };
                            self.write_value(next, at, &path, cell, done);
                        }
                    }
                }
            }
            WindowBounds::None => {}
        }
    }
}

fn set_kind(batch: &mut Batch, at: usize, kind: Kind) {
    if let Some(row) = batch.rows.get_mut(at) {
        row.kind = kind;
    }
}

fn copy_row(from: &Batch, row: usize, to: &mut Batch) {
    let Some(record) = from.rows.get(row) else { return };
    to.rows.push(*record);
    for (field, target) in from.fields.iter().zip(&mut to.fields) {
        target.kinds.push(field.kinds.get(row).copied().unwrap_or(kind::MISSING));
        target.spans.push(field.spans.get(row).copied().unwrap_or_default());
    }
    for (track, target) in [(&from.event, &mut to.event), (&from.ingestion, &mut to.ingestion)] {
        if let (Some(&time), Some(&seen)) = (track.times.get(row), track.seen.get(row)) {
            target.times.push(time);
            target.seen.push(seen);
        }
    }
}

fn owned_cell(owned: &Owned) -> Option<(u8, Vec<u8>)> {
    match owned {
        Owned::Null => Some((kind::NULL, Vec::new())),
        Owned::Bytes(bytes) => Some((kind::BYTES, bytes.to_vec())),
        Owned::Cell(kind, bytes) => Some((*kind, bytes.to_vec())),
    }
}

/// An image as a row again, in a batch of its own: its bytes get an arena.
pub fn raise(batch: &mut Batch, image: &Image) {
    let mut bytes = Vec::new();
    let arena = batch.arenas.len() as u32;
    let row = raise_into(image, arena, &mut bytes, &mut batch.headers);
    batch.rows.push(row);
    batch.add_arena(bytes);
}

pub(crate) fn raise_into(image: &Image, arena: u32, bytes: &mut Vec<u8>, headers: &mut Vec<Headers>) -> Row {
    let mut place = |owned: &Owned| match owned {
        Owned::Null => Payload::Null,
        Owned::Bytes(b) | Owned::Cell(_, b) => {
            let span = Span { arena, start: bytes.len() as u32, len: b.len() as u32 };
            bytes.extend_from_slice(b);
            match owned {
                Owned::Cell(kind, _) => Payload::Cell(*kind, span),
                _ => Payload::Bytes(span),
            }
        }
    };
    let (key, value) = (place(&image.key), place(&image.value));
    let number = if image.headers.is_empty() {
        Row::NO_HEADERS
    } else {
        headers.push(image.headers.clone());
        (headers.len() - 1) as u32
    };
    Row {
        origin: image.origin,
        timestamp: image.timestamp,
        key,
        value,
        headers: number,
        kind: Kind::Insert,
        window: Row::NO_WINDOW,
        arrival: image.arrival,
        redelivered: false,
        bounds: false,
    }
}
