//! One chain of guests, applied depth first: decode, then stage after stage, then encode. It holds no data between
//! calls; what lasts is in the task.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::batch::{Batch, Column, Field, Headers, Payload, Row, Span, kind};
use crate::columns::{Env, Input};
use crate::config::path::Path;
use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::keyed::Keyed;
use crate::plan::{Plan, Planned};
use crate::stage::{Counters, Stage};

/// Where a row leaves to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Route {
    Main,
    Late,
    Duplicates,
    DeadLetter,
}

/// Why a record failed, or why the pipeline stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `decode`, `time`, `encode`, or the id of a stage.
    pub stage: String,
    /// Short name: `json`, `null_key`, `invalid_time`, `fault`, ...
    pub code: String,
    /// For a person.
    pub text: String,
    /// 1 transient, 2 permanent, 3 bug.
    pub category: u8,
    /// The guest concerned: name@version.
    pub module: Option<String>,
    /// Its digest.
    pub digest: Option<String>,
}

impl Failure {
    /// One that a sink finds: permanent, of no guest.
    pub fn of_sink(code: &str, text: String) -> Failure {
        let (stage, code) = ("sink".to_owned(), code.to_owned());
        Failure { stage, code, text, category: 2, module: None, digest: None }
    }
}

/// The task stops here: everything of the push is undone, up to the row that is to blame.
#[derive(Clone, Debug)]
pub struct Stop {
    /// What it stops with.
    pub failure: Failure,
    /// The row to blame; `None`: not a row's fault.
    pub origin: Option<crate::batch::Origin>,
    /// The state is full and the policy is to wait (X8): try again when time has passed.
    pub pause: bool,
}

/// A row that leaves.
pub struct Emit<'a> {
    /// Where to.
    pub route: Route,
    /// Its batch; payloads and headers lie there.
    pub batch: &'a Batch,
    /// The row.
    pub row: &'a Row,
    /// Headers added on the way out of this route.
    pub added: &'a [(String, Option<Vec<u8>>)],
    /// For dead letters: why.
    pub failure: Option<&'a Failure>,
    /// Count of the record that brought this about; routes other than the main one are in this order.
    pub cause: u64,
}

/// Takes what leaves. Until a push has succeeded it may be undone.
pub trait Out {
    /// Takes a row.
    fn emit(&mut self, emit: Emit<'_>);
    /// A savepoint.
    fn mark(&mut self) -> usize;
    /// Forgets everything since a savepoint.
    fn undo(&mut self, to: usize);
}

/// The guests of a pipeline, opened.
pub struct Chain {
    decoder: Decoder,
    encoder: Option<Encoder>,
    stages: Vec<Stage>,
    value_paths: Vec<Path>,
    key_paths: Vec<Path>,
    /// What the task needs of the plan.
    pub plan: Arc<Plan>,
}

impl Chain {
    /// Opens the guests of a plan; instances are made when they are first called. `encode: false` leaves documents as
    /// they are, for tests.
    pub fn open(plan: &Arc<Plan>, encode: bool) -> Chain {
        let limits = plan.pipeline.limits;
        // The paths of all that is decoded; the whole value also where a stage changes a part of it.
        let mut value_paths = plan.value_paths.clone();
        let whole = Path { root: crate::config::path::Root::Value, steps: Vec::new() };
        if plan.stages.iter().any(writes_value) && !value_paths.contains(&whole) {
            value_paths.push(whole);
        }
        let key_paths = plan.key_paths.clone();
        let env = Env { inputs: &[], salt: 0, value_paths: &value_paths, key_paths: &key_paths };
        let stages = plan.stages.iter().map(|planned| Stage::open(planned, plan, &env, limits)).collect();
        let decoder = Decoder::open(plan, &env, limits);
        let encoder = encode.then(|| Encoder::open(plan, limits));
        Chain { decoder, encoder, stages, value_paths, key_paths, plan: Arc::clone(plan) }
    }

    /// How many fields a batch has here.
    pub fn fields(&self) -> usize {
        self.value_paths.len() + self.key_paths.len()
    }

    /// Whether anybody wants the rows that lost: a route, or a test.
    pub fn wants_duplicates(&self) -> bool {
        self.plan.pipeline.duplicates.is_some() || self.encoder.is_none()
    }

    /// The stages.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The latest wake below the end of input that stages on this clock have fired.
    pub fn fired(&self, clock: crate::plan::Clock) -> crate::time::Stamp {
        let stages = self.stages.iter().filter(|stage| stage.traits.clock == clock);
        stages.map(|stage| stage.fired).max().unwrap_or(crate::time::Stamp::START)
    }

    /// Tells what its guests do: `watch` is asked with the place of each, as failures name it.
    pub fn tell(&mut self, watch: &dyn Fn(&str) -> Arc<dyn crate::guest::Watch>) {
        self.decoder.tell(watch);
        for stage in &mut self.stages {
            stage.tell(watch(&stage.id));
        }
        if let Some(encoder) = &mut self.encoder {
            encoder.tell(watch);
        }
    }

    /// Throws every instance away; the next call makes new ones. Changes nothing (invariant 5).
    pub fn discard(&mut self) {
        self.decoder.discard();
        self.stages.iter_mut().for_each(Stage::discard);
        if let Some(encoder) = &mut self.encoder {
            encoder.discard();
        }
    }

    /// What rows are read against, for a task.
    pub fn env<'a>(&'a self, inputs: &'a [Input], salt: u64) -> Env<'a> {
        Env { inputs, salt, value_paths: &self.value_paths, key_paths: &self.key_paths }
    }

    /// The salted hashes of the keys of a decoded batch, by stage. `Err`: one cannot be made.
    pub fn keys(&mut self, batch: &Batch, inputs: &[Input], salt: u64) -> Result<Vec<Vec<u128>>, Stop> {
        let env = Env { inputs, salt, value_paths: &self.value_paths, key_paths: &self.key_paths };
        self.stages.iter_mut().map(|stage| stage.keys(batch, &env)).collect()
    }

    /// Decodes what stages, keys and time name. Rows that cannot be decoded are taken out and given back with the
    /// reason.
    pub fn decode(&mut self, batch: &mut Batch) -> Result<Vec<(u32, Failure)>, Stop> {
        self.decoder.decode(batch)
    }

    /// Sends a stamped batch through the stages from `at` on, depth first, so that memory stays bounded.
    pub fn pass(&mut self, at: usize, batch: Batch, task: &mut Passing<'_>, out: &mut dyn Out) -> Result<(), Stop> {
        let mut batch = batch;
        // A stage may read them.
        if at < self.stages.len() {
            tell_bounds(&mut batch, |row| row.bounds);
        }
        let mut input = Some(batch);
        let is_read = self.stages.len() > at + 1 || self.encoder.as_ref().is_none_or(Encoder::reads_fields);
        while let Some(batch) = input {
            let Some(stage) = self.stages.get_mut(at) else {
                return self.leave(batch, out);
            };
            let env = Env {
                inputs: task.inputs,
                salt: task.salt,
                value_paths: &self.value_paths,
                key_paths: &self.key_paths,
            };
            let (Some(state), Some(counters)) = (task.states.get_mut(at), task.counters.get_mut(at)) else {
                return Ok(());
            };
            let mut output = stage.apply(batch, state, &env, counters, task.wants_duplicates, out)?;
            let is_needed = is_read || !output.writes.is_empty() || !output.unkeyed.is_empty();
            if !output.undecoded.is_empty() && is_needed {
                self.decoder.decode_rows(&mut output.next, &output.undecoded)?;
            }
            if !output.unkeyed.is_empty() {
                stage.key_late(&mut output.next, &output.unkeyed, &env)?;
                if is_read && !self.key_paths.is_empty() {
                    let rows: Vec<u32> = output.unkeyed.iter().map(|(row, _)| *row).collect();
                    self.decoder.decode_rows(&mut output.next, &rows)?;
                }
            }
            if !output.writes.is_empty() {
                let changed = crate::value::write_late(&mut output.next, &output.writes, stage.whole_value);
                if is_read {
                    self.decoder.decode_rows(&mut output.next, &changed)?;
                }
            }
            self.pass(at + 1, output.next, task, out)?;
            input = output.rest;
        }
        Ok(())
    }

    fn leave(&mut self, mut batch: Batch, out: &mut dyn Out) -> Result<(), Stop> {
        let failures = match &mut self.encoder {
            Some(encoder) => encoder.encode(&mut batch)?,
            None => Vec::new(),
        };
        // Headers of the same name give way.
        tell_bounds(&mut batch, |row| row.bounds && row.headers != Row::NO_HEADERS);
        let mut failed = failures.iter().peekable();
        let mut bounds = Bounds::default();
        for (at, row) in batch.rows.iter().enumerate() {
            let added = bounds.of(row);
            match failed.peek() {
                Some((row_number, failure)) if *row_number as usize == at => {
                    out.emit(Emit {
                        route: Route::DeadLetter,
                        batch: &batch,
                        row,
                        added,
                        failure: Some(failure),
                        cause: batch.cause(at),
                    });
                    failed.next();
                }
                _ => out.emit(Emit {
                    route: Route::Main,
                    batch: &batch,
                    row,
                    added,
                    failure: None,
                    cause: batch.cause(at),
                }),
            }
        }
        Ok(())
    }
}

/// Window bounds as headers (9.4). The lists are kept from row to row.
#[derive(Default)]
struct Bounds {
    headers: Headers,
    text: String,
}

impl Bounds {
    /// Those of a row that has not told them yet.
    fn of(&mut self, row: &Row) -> &[(String, Option<Vec<u8>>)] {
        if !row.bounds {
            return &[];
        }
        if self.headers.is_empty() {
            self.headers =
                ["tamis.window_start", "tamis.window_end"].map(|name| (name.to_owned(), Some(Vec::new()))).into();
        }
        for ((_, value), ns) in self.headers.iter_mut().zip([row.window.0, row.window.1]) {
            self.text.clear();
            // Writing to memory cannot fail.
            let _ = write!(self.text, "{}", ns.div_euclid(1_000_000));
            let value = value.get_or_insert_default();
            value.clear();
            value.extend_from_slice(self.text.as_bytes());
        }
        &self.headers
    }
}

/// Puts the bounds of windows into the headers of some of the rows that have not told them yet.
fn tell_bounds(batch: &mut Batch, which: impl Fn(&Row) -> bool) {
    for at in 0..batch.rows.len() {
        if let Some(row) = batch.rows.get_mut(at).filter(|row| which(row)) {
            let added = Bounds::default().of(row).to_vec();
            row.bounds = false;
            add_headers(batch, at, added);
        }
    }
}

fn writes_value(planned: &Planned) -> bool {
    let value = |column: &crate::plan::ColumnRef| matches!(column, crate::plan::ColumnRef::ValueField(_));
    planned.writes.iter().any(value) || planned.traits.bounds == crate::plan::WindowBounds::Value
}

/// What of a task the chain works on while a batch passes.
pub struct Passing<'a> {
    /// Its inputs.
    pub inputs: &'a [Input],
    /// Salt of its key hashes.
    pub salt: u64,
    /// Keyed state, one per stage that has any.
    pub states: &'a mut [Option<Keyed>],
    /// Counters, one set per stage.
    pub counters: &'a mut [Counters],
    /// Whether anybody wants the rows that lost.
    pub wants_duplicates: bool,
}

/// Rows as columns: the payloads of some rows, for a codec. Null ones stay null. Rows that are already decoded are
/// null here; the caller fills their fields itself.
pub fn payloads(batch: &Batch, rows: &[u32], of_key: bool, into: &mut Column) {
    into.clear();
    into.offsets.push(0);
    for &at in rows {
        let payload = batch.rows.get(at as usize).map_or(Payload::Null, |r| if of_key { r.key } else { r.value });
        match payload {
            Payload::Bytes(span) => into.push(kind::BYTES, batch.bytes(span)),
            Payload::Null | Payload::Cell(..) => into.push(kind::NULL, &[]),
        }
    }
}

/// Adds headers to a row: its own, then these; a header of the same name gives way.
pub fn add_headers(batch: &mut Batch, row: usize, added: Vec<(String, Option<Vec<u8>>)>) {
    let Some(old) = batch.rows.get(row) else { return };
    let mut headers: Headers = batch.headers_of(old).to_vec();
    headers.retain(|(name, _)| !added.iter().any(|(n, _)| n == name));
    headers.extend(added);
    batch.headers.push(headers);
    let number = (batch.headers.len() - 1) as u32;
    if let Some(row) = batch.rows.get_mut(row) {
        row.headers = number;
    }
}

/// A field of nothing, for rows that are still to be decoded.
pub fn push_missing(fields: &mut [Field]) {
    for field in fields {
        field.kinds.push(kind::MISSING);
        field.spans.push(Span::default());
    }
}
