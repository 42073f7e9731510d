//! Where rows of a pipeline on Kafka leave: what a push emits waits until the push has succeeded, then it is produced;
//! a commit makes it visible, together with state and positions.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::client::Clients;
use super::committer::Committer;
use super::group::Place;
use super::partition;
use super::raw::Record;
use crate::batch::{Batch, Headers, Payload, Row, Span};
use crate::chain::{Emit, Failure, Out, Route};
use crate::config::kafka::KafkaSink;
use crate::config::pipeline;
use crate::files::Trouble;
use crate::files::dead_letter::{self, Occasion};
use crate::files::json;
use crate::files::sink::{self, Counts, Refused};
use crate::files::source::{Polling, Position};
use crate::ops::Seat;
use crate::plan::Plan;
use crate::retry::{Attempts, Gate};
use crate::task::{Input, Task};
use crate::telemetry::FailureLog;
use crate::time::NONE_YET;
use crate::worker::{Came, Commit, Outbox, Outcome};

/// A topic that rows go to.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its number in the producer.
    pub topic: usize,
    /// Its partitions.
    pub partitions: i32,
    /// Rows leave with their event time.
    pub event_timestamp: bool,
}

/// Where each route goes; `None`: nowhere.
#[derive(Clone, Copy, Debug)]
pub struct Targets {
    /// The sink.
    pub main: Target,
    /// Late records.
    pub late: Option<Target>,
    /// Records that lost.
    pub duplicates: Option<Target>,
    /// Failed records.
    pub dead: Option<Target>,
}

/// Where bytes of an emission lie: 0 is `pending`, the others are `arenas`, from 1 on.
#[derive(Clone, Copy, Debug)]
struct At {
    arena: usize,
    span: Span,
}

impl At {
    fn of(self, arena: &[u8]) -> &[u8] {
        let start = self.span.start as usize;
        arena.get(start..start + self.span.len as usize).unwrap_or_default()
    }
}

/// A record that waits for its push to succeed.
#[derive(Debug)]
struct Emission {
    target: Option<(usize, i32)>,
    key: Option<At>,
    value: Option<At>,
    timestamp: i64,
    headers: Headers,
    end: usize,
    count: fn(&mut Counts) -> &mut u64,
    failure: Option<Box<(Failure, sink::Position)>>,
}

/// The outbox.
pub struct KafkaOutbox {
    committer: Committer,
    pipeline: String,
    targets: Targets,
    /// Which failures hold a push up.
    gate: Gate,
    log: FailureLog,
    include_values: bool,
    keep_polled: bool,
    largest: usize,
    /// Bytes of emissions that were made for them.
    pending: Vec<u8>,
    /// Those of batches that rows leave as they came from.
    arenas: Vec<Arc<Vec<u8>>>,
    emissions: Vec<Emission>,
    refused: Option<(usize, Refused)>,
    inputs: Arc<[Input]>,
    polled: Option<Batch>,
    now: i64,
    /// Row of a batch that was looked up last: rows leave in their order.
    last_row: usize,
    /// Tasks that something happened in since the last commit.
    touched: HashSet<Place>,
    partial: bool,
    counts: Counts,
    /// Records that came in.
    records: u64,
    /// Counts at the last commit.
    committed: Counts,
    committed_records: u64,
    /// Commits of this run.
    pub commits: u64,
    /// Where it is told what was done.
    seat: Option<Arc<Seat>>,
}

impl KafkaOutbox {
    /// An outbox over what commits.
    pub fn new(committer: Committer, targets: Targets, clients: &Clients, plan: &Plan) -> KafkaOutbox {
        let pipeline = &plan.pipeline;
        KafkaOutbox {
            committer,
            pipeline: pipeline.name.clone(),
            targets,
            gate: Gate::of(plan),
            log: FailureLog::new(pipeline.errors.log),
            include_values: pipeline.errors.include_values,
            keep_polled: keeps_polled(plan),
            largest: clients.largest(),
            pending: Vec::new(),
            arenas: Vec::new(),
            emissions: Vec::new(),
            refused: None,
            inputs: Arc::from([]),
            polled: None,
            now: 0,
            last_row: 0,
            touched: HashSet::new(),
            partial: false,
            counts: Counts::default(),
            records: 0,
            committed: Counts::default(),
            committed_records: 0,
            commits: 0,
            seat: None,
        }
    }

    /// Tells at this seat what is done.
    pub fn tell(&mut self, seat: Arc<Seat>) {
        self.log.tell(Arc::clone(&seat));
        self.committer.tell(Arc::clone(&seat));
        self.seat = Some(seat);
    }

    /// What has left and was committed.
    pub fn counts(&self) -> Counts {
        self.committed
    }

    /// Records that came in and were committed.
    pub fn records(&self) -> u64 {
        self.committed_records
    }

    /// Says how often failures were repeated.
    pub fn close_log(&mut self) {
        self.log.close();
    }

    fn input(&self, row: &Row) -> Input {
        let unknown = || Input { topic: "".into(), partition: 0 };
        self.inputs.get(usize::from(row.origin.input)).cloned().unwrap_or_else(unknown)
    }

    fn dead_letter(&mut self, batch: &Batch, row: &Row, added: &Headers, failure: &Failure) {
        let input = self.input(row);
        let offset = row.origin.offset;
        let value = self.include_values.then(|| match payload(batch, row.value) {
            Some(bytes) => String::from_utf8_lossy(bytes.get(..bytes.len().min(1024)).unwrap_or(&bytes)).into_owned(),
            None => "null".to_owned(),
        });
        let at = sink::Position { topic: input.topic.clone(), partition: input.partition, offset, value };
        let note = Some(Box::new((failure.clone(), at)));
        if self.refused.is_none() {
            self.refused = self.gate.refuse(failure, row.origin).map(|refused| (self.emissions.len(), refused));
        }
        let count: fn(&mut Counts) -> &mut u64 = if failure.code == "late" { |c| &mut c.late } else { |c| &mut c.dead };
        let Some(target) = self.targets.dead else {
            return self.emit_nowhere(|c| &mut c.failed_lost, note);
        };
        let occasion = Occasion {
            pipeline: &self.pipeline,
            // The task of a partition has its number, in whatever process it runs.
            task: usize::try_from(input.partition).unwrap_or(0),
            topic: &input.topic,
            partition: input.partition,
            offset,
            now: self.now.div_euclid(1_000_000),
            tried: self.gate.tried(row.origin),
        };
        let mut headers = added.clone();
        headers.extend(dead_letter::headers(failure, &occasion));
        let original = self.polled.take();
        let came = original.as_ref().and_then(|polled| {
            let same = |r: &&Row| (r.origin.input, r.origin.offset) == (row.origin.input, offset);
            polled.rows.iter().find(same).map(|row| (polled, *row))
        });
        let (from, came) = came.unwrap_or((batch, *row));
        self.write(Target { event_timestamp: false, ..target }, from, &came, headers, count, note);
        self.polled = original;
    }

    fn emit_nowhere(&mut self, count: fn(&mut Counts) -> &mut u64, failure: Option<Box<(Failure, sink::Position)>>) {
        let end = self.pending.len();
        let (target, key, value, timestamp, headers) = (None, None, None, 0, Headers::new());
        self.emissions.push(Emission { target, key, value, timestamp, headers, end, count, failure });
    }

    /// Puts a record behind what is pending. A header that is added takes the place of one with its name.
    fn write(
        &mut self,
        target: Target,
        batch: &Batch,
        row: &Row,
        added: Headers,
        count: fn(&mut Counts) -> &mut u64,
        failure: Option<Box<(Failure, sink::Position)>>,
    ) {
        let key = self.place(batch, row.key);
        let partition = match key.map(|key| self.bytes(key)) {
            Some(key) => partition::of_key(key, target.partitions),
            None => self.input(row).partition.checked_rem(target.partitions).unwrap_or(0),
        };
        let own = batch.headers_of(row).iter().filter(|(name, _)| !added.iter().any(|(n, _)| n == name));
        let mut headers: Headers = own.cloned().collect();
        headers.extend(added);
        let value = self.place(batch, row.value);
        let timestamp = match target.event_timestamp.then(|| self.event_time(batch, row)).flatten() {
            Some(time) => time.div_euclid(1_000_000),
            None if row.timestamp != NONE_YET => row.timestamp,
            None => 0,
        };
        let (target, end) = (Some((target.topic, partition)), self.pending.len());
        self.emissions.push(Emission { target, key, value, timestamp, headers, end, count, failure });
    }

    /// Where a key or a value lies that leaves: where it came, if it leaves as that. A document that leaves by a route,
    /// undecided by any codec, leaves as JSON text.
    fn place(&mut self, batch: &Batch, payload: Payload) -> Option<At> {
        match payload {
            Payload::Null => None,
            Payload::Bytes(span) => Some(self.lend(batch, span)),
            Payload::Cell(kind, span) => match json::text(kind, batch.bytes(span)) {
                Some(text) => {
                    let start = self.pending.len() as u32;
                    self.pending.extend_from_slice(&text);
                    Some(At { arena: 0, span: Span { arena: 0, start, len: text.len() as u32 } })
                }
                None => Some(self.lend(batch, span)),
            },
        }
    }

    fn lend(&mut self, batch: &Batch, span: Span) -> At {
        let Some(arena) = batch.arenas.get(span.arena as usize) else { return At { arena: 0, span: Span::default() } };
        // Keys and values of a batch lie in one arena each, or together. Images of rows have their own.
        let last = self.arenas.len();
        let known = (last.saturating_sub(2)..last).rev().find(|&at| Arc::ptr_eq(&self.arenas[at], arena));
        let number = known.unwrap_or_else(|| {
            self.arenas.push(Arc::clone(arena));
            last
        });
        At { arena: number + 1, span }
    }

    fn bytes(&self, at: At) -> &[u8] {
        let arena = at.arena.checked_sub(1).map_or(Some(&self.pending), |number| Some(&**self.arenas.get(number)?));
        arena.map_or(&[], |arena| at.of(arena))
    }

    /// Lends the memory that values lie in to the library, which reads them where they are until all is delivered; not
    /// where a few of them would hold much. Gives the number of each that is lent.
    fn lend_all(&mut self, memory: &[Arc<Vec<u8>>]) -> Vec<Option<usize>> {
        let mut used = vec![0; memory.len()];
        for value in self.emissions.iter().filter_map(|emission| emission.value) {
            used[value.arena] += value.span.len as usize;
        }
        let is_worth_it = |(bytes, used): &(&Arc<Vec<u8>>, usize)| used * 2 >= bytes.capacity();
        let each = memory.iter().zip(used).map(|each| Some(each).filter(is_worth_it));
        each.map(|lent| self.committer.lend(lent?.0)).collect()
    }

    /// Event time of a row, ns. Rows leave in the order of their batch.
    fn event_time(&mut self, batch: &Batch, row: &Row) -> Option<i64> {
        let is = |at: &usize| batch.rows.get(*at).is_some_and(|r| std::ptr::eq(r, row));
        let count = batch.rows.len();
        let at = (self.last_row..count).chain(0..self.last_row.min(count)).find(is)?;
        self.last_row = at;
        batch.event.times.get(at).copied()
    }
}

impl Out for KafkaOutbox {
    fn emit(&mut self, emit: Emit<'_>) {
        let (target, count): (Option<Target>, fn(&mut Counts) -> &mut u64) = match emit.route {
            Route::Main => (Some(self.targets.main), |c| &mut c.main),
            Route::Late => (self.targets.late, |c| &mut c.late),
            Route::Duplicates => (self.targets.duplicates, |c| &mut c.duplicates),
            Route::DeadLetter => (None, |c| &mut c.dead),
        };
        let mut added = emit.added.to_vec();
        match (emit.route, target, emit.failure) {
            (Route::DeadLetter, _, Some(failure)) => return self.dead_letter(emit.batch, emit.row, &added, failure),
            (Route::Late, None, failure) if self.targets.dead.is_some() => {
                let failure = failure.cloned().unwrap_or_else(|| Failure::of_sink("late", "late".to_owned()));
                return self.dead_letter(emit.batch, emit.row, &added, &failure);
            }
            (Route::Late, None, _) => {
                self.emit_nowhere(|c| &mut c.late, None);
                return self.emit_nowhere(|c| &mut c.late_lost, None);
            }
            _ => {}
        }
        let Some(target) = target else { return };
        let size = size(emit.batch, emit.row, &added);
        if size > self.largest {
            let text = format!("it has {size} bytes on its way out, a record may have {}", self.largest);
            return self.dead_letter(emit.batch, emit.row, &added, &Failure::of_sink("too_large", text));
        }
        if self.partial && emit.route == Route::Main {
            added.push(("tamis.partial".to_owned(), Some(b"true".to_vec())));
        }
        self.write(target, emit.batch, emit.row, added, count, None);
    }

    fn mark(&mut self) -> usize {
        self.emissions.len()
    }

    fn undo(&mut self, to: usize) {
        self.emissions.truncate(to);
        self.pending.truncate(self.emissions.last().map_or(0, |e| e.end));
        if to == 0 {
            self.arenas.clear();
        }
        if self.refused.as_ref().is_some_and(|(at, _)| *at >= to) {
            self.refused = None;
        }
    }
}

impl Outbox for KafkaOutbox {
    fn enter(&mut self, _task: usize, inputs: Arc<[Input]>, polled: Option<&Polling>, now: i64) {
        for input in inputs.iter() {
            let place = (Arc::clone(&input.topic), input.partition);
            if !self.touched.contains(&place) {
                self.touched.insert(place);
            }
        }
        self.gate.may_wait = polled.is_some();
        self.inputs = inputs;
        self.records += polled.map_or(0, |polled| polled.rows.len() as u64);
        if let (Some(seat), Some(polled)) = (&self.seat, polled) {
            seat.read(polled.batch.payload_bytes());
        }
        self.polled = polled.filter(|_| self.keep_polled).map(|polled| polled.batch.clone());
        self.now = now;
    }

    fn refused(&self) -> Option<Refused> {
        self.refused.as_ref().map(|(_, refused)| refused.clone())
    }

    fn give_up(&mut self, on: Option<Attempts>) {
        self.gate.given_up = on;
    }

    fn settle(&mut self) -> Result<(), Trouble> {
        let (began, some) = (Instant::now(), !self.emissions.is_empty());
        let pending = Arc::new(std::mem::take(&mut self.pending));
        let memory: Vec<Arc<Vec<u8>>> = std::iter::once(pending).chain(self.arenas.drain(..)).collect();
        let lent = self.lend_all(&memory);
        for emission in &self.emissions {
            *(emission.count)(&mut self.counts) += 1;
            if let Some(failure) = &emission.failure {
                self.log.failed(&failure.0, &failure.1);
            }
            let Some((topic, partition)) = emission.target else { continue };
            let bytes = |at: At| memory.get(at.arena).map(|arena| at.of(arena));
            self.committer.produce(&Record {
                topic,
                partition,
                key: emission.key.and_then(bytes),
                value: emission.value.and_then(bytes),
                lent: emission.value.and_then(|at| lent[at.arena]),
                timestamp: emission.timestamp,
                headers: &emission.headers,
            })?;
        }
        let own = memory.into_iter().next().and_then(|pending| Arc::try_unwrap(pending).ok());
        self.pending = own.unwrap_or_else(|| self.committer.buffer());
        self.pending.clear();
        self.emissions.clear();
        self.refused = None;
        if let (Some(seat), true) = (&self.seat, some) {
            seat.sent(began.elapsed());
        }
        Ok(())
    }

    fn partial(&mut self) {
        self.partial = true;
    }

    fn commit(
        &mut self,
        plan: &Plan,
        tasks: &mut [&mut Task],
        source: Position,
        kind: Commit,
    ) -> Result<Outcome, Trouble> {
        let mut touched: Vec<&mut Task> = Vec::new();
        for task in tasks.iter_mut() {
            let is_touched = |i: &Input| self.touched.contains(&(Arc::clone(&i.topic), i.partition));
            if task.marker().inputs.iter().any(is_touched) {
                touched.push(task);
            }
        }
        let began = Instant::now();
        let outcome = self.committer.commit(plan, &mut touched, &source, kind == Commit::Leaving)?;
        self.touched.clear();
        match outcome {
            Outcome::Done => {
                (self.committed, self.committed_records) = (self.counts, self.records);
                self.commits += 1;
                if let Some(seat) = &self.seat {
                    seat.committed(began.elapsed());
                    seat.publish(plan, tasks, self.committed);
                }
            }
            Outcome::Undone => {
                (self.counts, self.records) = (self.committed, self.committed_records);
                if let Some(seat) = &self.seat {
                    seat.commit_failed();
                }
            }
        }
        if outcome == Outcome::Done {
            match kind {
                Commit::Last => self.committer.last_checkpoint(plan, tasks.iter().map(|task| &**task)),
                _ => {
                    let began = Instant::now();
                    self.committer.checkpoint(plan, tasks, kind == Commit::Checkpoint);
                    let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                    tracing::debug!(took_us = took, "checkpoint work");
                }
            }
        }
        Ok(outcome)
    }

    fn ahead(&mut self, plan: &Plan, task: &mut Task) {
        self.committer.ahead(plan, task);
    }

    fn abandon(&mut self) -> Result<(), Trouble> {
        self.touched.clear();
        (self.counts, self.records) = (self.committed, self.committed_records);
        self.committer.abandon()
    }

    fn came(&mut self, plan: &Plan, task: &Task, how: Came) {
        if let Some(input) = task.marker().inputs.first() {
            self.committer.came(&(Arc::clone(&input.topic), input.partition), how);
        }
        if let Some(seat) = &self.seat {
            seat.adopt(plan, std::iter::once(task));
        }
    }

    fn leave(&mut self, plan: &Plan, tasks: &[&Task]) {
        self.committer.last_checkpoint(plan, tasks.iter().copied());
        for input in tasks.iter().filter_map(|task| task.marker().inputs.first()) {
            self.committer.forget(&(Arc::clone(&input.topic), input.partition));
        }
    }

    fn reload(&mut self, plan: &Plan) {
        let errors = &plan.pipeline.errors;
        self.gate = Gate::of(plan);
        self.log.turn(errors.log);
        self.include_values = errors.include_values;
        self.keep_polled = keeps_polled(plan);
        self.committer.reload();
    }

    fn left(&mut self) -> Result<(), Trouble> {
        // What was left open is ended now: positions that are pending hold up whoever takes the partitions over.
        self.committer.open()
    }

    fn rest(&mut self) {
        self.committer.rest();
    }

    fn note(&mut self, text: &str) {
        tracing::warn!("{text}");
    }
}

fn keeps_polled(plan: &Plan) -> bool {
    let changes = plan.stages.iter().any(|stage| !stage.writes.is_empty());
    changes && plan.pipeline.errors.dead_letter.is_some()
}

/// The bytes of a key or a value; a document that leaves by a route, undecided by any codec, leaves as JSON text.
fn payload(batch: &Batch, payload: Payload) -> Option<std::borrow::Cow<'_, [u8]>> {
    match payload {
        Payload::Null => None,
        Payload::Bytes(span) => Some(batch.bytes(span).into()),
        Payload::Cell(kind, span) => match json::text(kind, batch.bytes(span)) {
            Some(text) => Some(text.into()),
            None => Some(batch.bytes(span).into()),
        },
    }
}

/// About how long a record is.
fn size(batch: &Batch, row: &Row, added: &Headers) -> usize {
    let length = |payload: Payload| match payload {
        Payload::Null => 0,
        Payload::Bytes(span) | Payload::Cell(_, span) => span.len as usize,
    };
    let headers = batch.headers_of(row).iter().chain(added);
    let headers: usize = headers.map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len)).sum();
    length(row.key) + length(row.value) + headers
}

/// The settings of a sink on Kafka.
pub fn kafka_sink(sink: &pipeline::Sink) -> Result<&KafkaSink, Trouble> {
    match sink {
        pipeline::Sink::Kafka(sink) => Ok(sink),
        _ => Err(Trouble::new(
            "routes and dead letters of a pipeline on Kafka go to topics: files are not built yet there",
            "name a topic: `{ kafka: TOPIC }`",
        )),
    }
}
