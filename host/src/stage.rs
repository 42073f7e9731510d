//! One guest at one place of a chain: a batch in, a batch out. A call that faults is undone and tried once more on a
//! fresh instance, then the batch is cut at this stage alone until one row, or one entry whose wake fired, is to blame
//! (contract rule 5). Calls that would take too many wakes, or pass a bound of the state, are cut the same way.

use std::collections::BTreeMap;

use crate::batch::{Batch, Column};
use crate::chain::{Emit, Failure, Out, Route, Stop};
use crate::columns::{Content, Env, KeyMaker, Keys, Read};
use crate::config::path::{Path, Root};
use crate::config::pipeline::{Limits, NullKey, OnError, Overflow};
use crate::guest::call::{Call, Fault, Outcome, Stamps};
use crate::guest::{Guest, Opening, Shape};
use crate::keyed::{self, Begin, Blamed, Finished, Kept, Keyed, Session};
use crate::outcome;
use crate::plan::{Clock, ColumnRef, ExpiresBy, OutputKind, Plan, Planned, Traits};
use crate::portion::{Portion, join, processing};
use crate::time::{NONE_YET, Stamp};

mod output_key;
mod without_state;

/// Most wakes one call may fire (contract rule 8).
pub const WAKES_PER_CALL: usize = 4096;

/// Counters of a stage, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counters(pub BTreeMap<String, u64>);

impl Counters {
    /// Adds to a counter.
    pub fn add(&mut self, name: &str, by: u64) {
        if by == 0 {
            return;
        }
        match self.0.get_mut(name) {
            Some(count) => *count += by,
            None => {
                self.0.insert(name.to_owned(), by);
            }
        }
    }
}

/// One guest at one place.
pub struct Stage {
    /// Its label.
    pub id: String,
    pub(crate) guest: Guest,
    pub(crate) traits: Traits,
    pub(crate) key: Option<KeyMaker>,
    null_key: NullKey,
    overflow: Overflow,
    pub(crate) on_error: OnError,
    reads: Vec<Read>,
    pub(crate) writes: Vec<ColumnRef>,
    pub(crate) routes: Vec<String>,
    pub(crate) counters: Vec<String>,
    pub(crate) content: Content,
    /// The field that is the whole value, for stages that change parts of it.
    pub(crate) whole_value: Option<usize>,
    shape: Shape,
    /// How much one call gets. Cut after a fault, doubled after each success.
    pub(crate) rows_per_call: usize,
    pub(crate) wakes_per_call: usize,
    columns: Vec<Column>,
    /// The latest wake it has fired, below the end of input.
    pub(crate) fired: Stamp,
}

/// What a stage made of a batch.
pub struct Output {
    /// What goes on.
    pub next: Batch,
    /// Rows of `next` whose fields are still missing.
    pub undecoded: Vec<u32>,
    /// What is to be put into values once they are decoded.
    pub writes: Vec<crate::value::Write>,
    /// Rows of `next` whose key is still to be made, and their windows.
    pub unkeyed: Vec<(u32, (i64, i64))>,
    /// What is still to be done, once `next` has passed.
    pub rest: Option<Batch>,
}

impl Output {
    /// A batch that goes on as it is.
    pub(crate) fn of(next: Batch) -> Output {
        Output { next, undecoded: Vec::new(), writes: Vec::new(), unkeyed: Vec::new(), rest: None }
    }
}

impl Stage {
    /// Opens the guest of a stage; its instance is made when it is first called.
    pub fn open(planned: &Planned, plan: &Plan, env: &Env<'_>, limits: Limits) -> Stage {
        let secrets = &plan.pipeline.secrets;
        let (params, context) = (secrets.reveal(&planned.params).to_string(), planned.context.to_string());
        let opening = Opening::Transform { params, context };
        let whole = env.field(&Path { root: Root::Value, steps: Vec::new() });
        let bounds = plan.pipeline.stages.iter().find(|stage| stage.id == planned.id);
        Stage {
            id: planned.id.clone(),
            guest: planned.module.guest(opening, limits),
            traits: planned.traits.clone(),
            key: planned.key.as_ref().map(|key| KeyMaker::new(key, env, limits, secrets)),
            null_key: planned.key.as_ref().map_or(NullKey::Pass, |key| key.null_key),
            overflow: bounds.map(|stage| stage.state.overflow).unwrap_or_default(),
            on_error: bounds.map(|stage| stage.state.on_error).unwrap_or_default(),
            reads: planned.reads.iter().map(|column| Read::new(column, env)).collect(),
            writes: planned.writes.clone(),
            routes: planned.routes.clone(),
            counters: planned.counters.clone(),
            content: Content {
                field: whole,
                except: planned.traits.content_except.iter().map(|path| path.steps.clone()).collect(),
            },
            whole_value: whole,
            shape: Shape {
                writes: planned.writes.len(),
                routes: planned.routes.len(),
                counters: planned.counters.len(),
            },
            rows_per_call: usize::MAX,
            wakes_per_call: WAKES_PER_CALL,
            columns: Vec::new(),
            fired: Stamp::START,
        }
    }

    /// Tells what its guest does.
    pub fn tell(&mut self, watch: std::sync::Arc<dyn crate::guest::Watch>) {
        self.guest.tell(watch);
    }

    /// Throws the instances away.
    pub fn discard(&mut self) {
        self.guest.discard();
        if let Some(key) = &mut self.key {
            key.discard();
        }
    }

    /// Empty state for this stage, if it keeps any.
    pub fn state(&self, planned: &Planned, bounds: &crate::config::pipeline::Bounds) -> Option<Keyed> {
        planned.key.as_ref().map(|_| Keyed::new(settings(&self.traits, bounds)))
    }

    /// Applies the stage to as much of the batch as one call may do; the rest is handed back.
    pub fn apply(
        &mut self,
        batch: Batch,
        state: &mut Option<Keyed>,
        env: &Env<'_>,
        counters: &mut Counters,
        wants_duplicates: bool,
        out: &mut dyn Out,
    ) -> Result<Output, Stop> {
        let mut batch = batch;
        if state.as_ref().is_some_and(Keyed::is_failing) {
            return self.without_state(batch, state.as_ref(), env, counters, out);
        }
        loop {
            let Portion { batch: first, rest, due, limit } = self.portion(batch, state.as_ref());
            match self.call(first, due, limit, state, env, wants_duplicates, out)? {
                Answer::Done(done) => {
                    self.count(&done, counters);
                    if let (Some(keyed), Some(after)) = (state.as_mut(), self.traits.space_after) {
                        let end = self.end(&done.next);
                        // The end of input is no time: what no wake has closed may go on in a later run (9.6).
                        if end != Stamp::END {
                            keyed.expire_spaces(end.time.saturating_sub(after));
                        }
                    }
                    self.rows_per_call = self.rows_per_call.saturating_mul(2);
                    self.wakes_per_call = (self.wakes_per_call * 2).min(WAKES_PER_CALL);
                    let outcome::Done { next, undecoded, writes, unkeyed, .. } = *done;
                    return Ok(Output { next, undecoded, writes, unkeyed, rest });
                }
                Answer::Again(whole) => batch = join(whole, rest),
                Answer::Blame(whole, why) => {
                    // One row, or one wake, is left of the batch, and it cannot be done.
                    let mut whole = whole;
                    self.blame(&mut whole, state, due, limit, &why, env, out);
                    counters.add("failed", 1);
                    counters.add("records_in", u64::from(!whole.rows.is_empty()));
                    whole.keep(&[]);
                    self.rows_per_call = 1;
                    self.wakes_per_call = 1;
                    return Ok(Output { rest, ..Output::of(whole) });
                }
            }
        }
    }

    fn count(&self, done: &outcome::Done, counters: &mut Counters) {
        counters.add("records_in", done.records_in);
        for (name, count) in self.counters.iter().zip(&done.counts) {
            counters.add(name, *count);
        }
        counters.add("null_key", done.null_keys);
        counters.add("records_out", done.next.rows.len() as u64);
        counters.add("failed", done.failed);
        // A keyed stage drops what it says of each row: duplicates, late ones, and so on.
        if self.key.is_none() {
            counters.add("filtered", done.dropped);
        }
    }

    /// The salted hashes of the keys of a decoded batch; none without a key. `Err`: one cannot be made.
    pub fn keys(&mut self, batch: &Batch, env: &Env<'_>) -> Result<Vec<u128>, Stop> {
        let Some(key) = &mut self.key else { return Ok(Vec::new()) };
        let stop = |failure| Stop { failure, origin: None, pause: false };
        match key.make(batch, env, false) {
            Err(fault) => Err(stop(self.failure("fault", fault_text(&fault), 3))),
            Ok(keys) => match keys.failures.into_iter().next() {
                Some(why) => Err(stop(self.failure(&why.code, why.text, why.category))),
                None => Ok(keys.hashes),
            },
        }
    }

    /// Where the stage's clock stands after a batch.
    pub(crate) fn end(&self, batch: &Batch) -> Stamp {
        match self.traits.clock {
            Clock::Event => batch.event.end,
            Clock::Ingestion => batch.ingestion.end,
            Clock::Processing => Some(processing(batch)),
        }
        .unwrap_or(Stamp::START)
    }

    /// One call of the guest, tried twice.
    #[allow(clippy::too_many_arguments)]
    fn call(
        &mut self,
        mut batch: Batch,
        due: Stamp,
        limit: usize,
        state: &mut Option<Keyed>,
        env: &Env<'_>,
        wants_duplicates: bool,
        out: &mut dyn Out,
    ) -> Result<Answer, Stop> {
        let keys = match &mut self.key {
            Some(key) => {
                let write = self.traits.output == OutputKind::Upsert;
                match key.make(&batch, env, write).or_else(|_| key.make(&batch, env, write)) {
                    Ok(keys) => keys,
                    Err(fault) => return Ok(self.shrink(batch, 0, fault_text(&fault))),
                }
            }
            None => Keys::default(),
        };
        let rows = self.rows_with_key(&batch, &keys)?;
        let mut fault = String::new();
        for _ in 0..2 {
            let mark = state.as_ref().map(Keyed::mark);
            let call = self.arguments(&batch, &rows, env);
            let due_now = if limit == 0 { Stamp::START } else { due };
            let session = state.take().map(|keyed| {
                Box::new(keyed.session(Begin {
                    batch: std::mem::take(&mut batch),
                    rows: rows.clone(),
                    keys: rows.iter().filter_map(|&r| keys.hashes.get(r as usize).copied()).collect(),
                    output_keys: keys.written.as_ref().map(|written| pick(written, &rows)),
                    times: call.times.times.clone(),
                    seen: (0..call.seen.times.len()).filter_map(|i| call.seen.get(i)).collect(),
                    end: due_now,
                    now: call.now,
                    limit,
                })) as Box<dyn crate::guest::call::State>
            });
            let (answer, session) = self.guest.process(&call, &self.shape, session);
            self.columns = call.columns;
            let mut finished = session.and_then(|s| s.into_any().downcast::<Session>().ok()).map(|s| s.finish());
            if let Some(finished) = &mut finished {
                batch = std::mem::take(&mut finished.batch);
            }
            match answer {
                Ok(answer) => {
                    let done = self.assemble(batch, answer, &rows, keys, finished.as_ref(), env, wants_duplicates, out);
                    if let Some(finished) = finished {
                        *state = Some(finished.keyed);
                    }
                    return Ok(Answer::Done(Box::new(done)));
                }
                Err(why) => {
                    if let Some(finished) = &mut finished {
                        *state = Some(std::mem::take(&mut finished.keyed));
                    }
                    if let (Some(keyed), Some(mark)) = (state.as_mut(), mark) {
                        keyed.undo(mark);
                    }
                    match why {
                        Fault::Full => {
                            let fits = finished.and_then(|f| f.full_at).unwrap_or(0);
                            return self.full(batch, state, rows.get(fits as usize).copied());
                        }
                        Fault::Module { kind, text } => fault = format!("{kind}: {text}"),
                    }
                }
            }
        }
        let wakes = state.as_ref().map_or(0, |keyed| keyed.due(due, limit).len());
        Ok(self.shrink(batch, wakes, fault))
    }

    /// After a fault: fewer rows, then fewer wakes, then somebody is to blame.
    fn shrink(&mut self, batch: Batch, wakes: usize, why: String) -> Answer {
        let rows = batch.rows.len();
        if rows > 1 {
            self.rows_per_call = rows / 2;
            Answer::Again(batch)
        } else if rows == 1 && wakes > 0 && self.rows_per_call > 1 {
            self.rows_per_call = 1;
            Answer::Again(batch)
        } else if rows == 0 && wakes > 1 {
            self.rows_per_call = 1;
            self.wakes_per_call = wakes / 2;
            Answer::Again(batch)
        } else {
            Answer::Blame(batch, why)
        }
    }

    /// A bound of the state would be passed: fewer rows, then the policy (X8).
    fn full(&mut self, batch: Batch, state: &mut Option<Keyed>, fits: Option<u32>) -> Result<Answer, Stop> {
        let rows = batch.rows.len();
        if rows > 1 {
            self.rows_per_call = fits.map_or(rows / 2, |fits| fits as usize).clamp(1, rows - 1);
            return Ok(Answer::Again(batch));
        }
        let seen = self.seen(&batch, 0).unwrap_or_else(|| self.end(&batch));
        let evicts = self.overflow == Overflow::EvictOldest;
        if evicts && state.as_mut().is_some_and(|keyed| keyed.evict_oldest(seen, batch.now)) {
            return Ok(Answer::Again(batch));
        }
        let failure = self.failure("max_entries", "the state of this stage is full".to_owned(), 1);
        let origin = batch.rows.first().map(|row| row.origin);
        Err(Stop { failure, origin, pause: self.overflow != Overflow::Fail })
    }

    /// The rows that go into the call: those with a key, and those whose null key is a key of its own.
    pub(crate) fn rows_with_key(&self, batch: &Batch, keys: &Keys) -> Result<Vec<u32>, Stop> {
        if self.key.is_none() {
            return Ok((0..batch.rows.len() as u32).collect());
        }
        let failed = |row: u32| keys.failures.iter().any(|failure| failure.row == row);
        let mut rows = Vec::with_capacity(batch.rows.len());
        for (at, &null) in keys.null.iter().enumerate() {
            let row = at as u32;
            if !keys.failures.is_empty() && failed(row) {
                continue;
            }
            match (null, self.null_key) {
                (false, _) | (true, NullKey::Group) => rows.push(row),
                (true, NullKey::Fail) => {
                    let failure = self.failure("null_key", "every part of the key is null or missing".to_owned(), 2);
                    let origin = batch.rows.get(at).map(|row| row.origin);
                    return Err(Stop { failure, origin, pause: false });
                }
                (true, _) => {}
            }
        }
        Ok(rows)
    }

    fn arguments(&mut self, batch: &Batch, rows: &[u32], env: &Env<'_>) -> Call {
        let mut columns = std::mem::take(&mut self.columns);
        columns.resize_with(self.reads.len(), Column::default);
        for (read, column) in self.reads.iter().zip(&mut columns) {
            read.fill(batch, rows, env, &self.content, column);
        }
        let (times, seen) = if self.traits.wants_time { self.times(batch, rows) } else { Default::default() };
        let flagged = |is: &dyn Fn(&crate::batch::Row) -> bool| -> Vec<u32> {
            let rows = rows.iter().enumerate();
            rows.filter(|(_, at)| batch.rows.get(**at as usize).is_some_and(is)).map(|(i, _)| i as u32).collect()
        };
        Call {
            rows: rows.len() as u32,
            now: batch.now,
            columns,
            tombstones: flagged(&|row| row.value == crate::batch::Payload::Null),
            redelivered: flagged(&|row| row.redelivered),
            times,
            seen,
        }
    }

    /// Times of the rows of a call on the stage's clock, and what they see.
    fn times(&self, batch: &Batch, rows: &[u32]) -> (Stamps, Stamps) {
        let (mut times, mut seen) = (Stamps::default(), Stamps::default());
        let track = match self.traits.clock {
            Clock::Event => Some(&batch.event),
            Clock::Ingestion => Some(&batch.ingestion),
            Clock::Processing => None,
        };
        for &row in rows {
            let at = row as usize;
            times.times.push(track.map_or(batch.now, |t| t.times.get(at).copied().unwrap_or(NONE_YET)));
            times.inputs.push(batch.rows.get(at).map_or(0, |row| row.origin.input));
            let stamp = self.seen(batch, at).unwrap_or(Stamp::START);
            seen.times.push(stamp.time);
            seen.inputs.push(stamp.input);
        }
        let end = self.end(batch);
        seen.times.push(end.time);
        seen.inputs.push(end.input);
        (times, seen)
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn assemble(
        &mut self,
        batch: Batch,
        answer: Outcome,
        rows: &[u32],
        keys: Keys,
        finished: Option<&Finished>,
        env: &Env<'_>,
        wants_duplicates: bool,
        out: &mut dyn Out,
    ) -> outcome::Done {
        let null_key = self.null_key;
        outcome::Assembly { stage: self, answer, rows, keys, finished, env, wants_duplicates, null_key }.run(batch, out)
    }

    /// Dead-letters the row, or the entry, that is left.
    #[allow(clippy::too_many_arguments)]
    fn blame(
        &mut self,
        batch: &mut Batch,
        state: &mut Option<Keyed>,
        due: Stamp,
        limit: usize,
        why: &str,
        env: &Env<'_>,
        out: &mut dyn Out,
    ) {
        let failure = self.failure("fault", why.to_owned(), 3);
        if let Some(row) = batch.rows.first() {
            let cause = batch.cause(0);
            out.emit(Emit { route: Route::DeadLetter, batch, row, added: &[], failure: Some(&failure), cause });
        } else if let Some(blamed) = state.as_mut().filter(|_| limit > 0).and_then(|keyed| keyed.blame(due)) {
            self.bury(blamed, batch, &failure, env, out);
        }
    }

    /// Dead-letters what an entry kept.
    fn bury(&self, blamed: Blamed, batch: &Batch, failure: &Failure, _env: &Env<'_>, out: &mut dyn Out) {
        let mut grave = Batch { now: batch.now, ..Batch::default() };
        for (_, kept) in blamed.kept {
            if let Kept::Image(image) = kept {
                outcome::raise(&mut grave, &image);
            }
        }
        for row in &grave.rows {
            let route = Route::DeadLetter;
            out.emit(Emit { route, batch: &grave, row, added: &[], failure: Some(failure), cause: row.arrival });
        }
    }

    pub(crate) fn failure(&self, code: &str, text: String, category: u8) -> Failure {
        let module = self.guest.module();
        Failure {
            stage: self.id.clone(),
            code: code.to_owned(),
            text,
            category,
            module: Some(format!("{}@{}", module.name(), module.version())),
            digest: Some(module.digest().to_owned()),
        }
    }
}

enum Answer {
    Done(Box<outcome::Done>),
    /// Undone; less of it, please.
    Again(Batch),
    /// Undone; this is the least there is.
    Blame(Batch, String),
}

fn fault_text(fault: &Fault) -> String {
    match fault {
        Fault::Module { kind, text } => format!("{kind}: {text}"),
        Fault::Full => "the state is full".to_owned(),
    }
}

fn pick(column: &Column, rows: &[u32]) -> Column {
    let mut picked = Column::default();
    picked.offsets.push(0);
    for &row in rows {
        let cell = column.cell(row as usize);
        picked.push(cell.kind, cell.bytes);
    }
    picked
}

/// What the state of a stage keeps to.
pub fn settings(traits: &Traits, bounds: &crate::config::pipeline::Bounds) -> keyed::Settings {
    keyed::Settings {
        expires_by: match traits.expires_by {
            ExpiresBy::Time => keyed::ExpiresBy::Time,
            ExpiresBy::Seen => keyed::ExpiresBy::Seen,
            ExpiresBy::Now => keyed::ExpiresBy::Now,
        },
        max_entries: bounds.max_entries,
        max_bytes: bounds.max_bytes,
        overflow: match bounds.overflow {
            Overflow::Pause => keyed::Overflow::Pause,
            Overflow::Fail => keyed::Overflow::Fail,
            Overflow::EvictOldest => keyed::Overflow::EvictOldest,
        },
    }
}
