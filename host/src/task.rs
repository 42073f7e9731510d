//! A task: one state, one watermark, one place in each of its inputs. It stamps rows with their time and with what they
//! see, and sends them through the chain. Pure: processing time is given, and goes on only when the driver says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Origin, Track};
use crate::chain::{Chain, Emit, Failure, Out, Passing, Route, Stop};
use crate::columns::Env;
pub use crate::columns::Input;
use crate::config::pipeline::{InvalidTime, NullKey};
use crate::event_time::TimeOf;
use crate::format;
use crate::in_order::InOrder;
use crate::keyed::{Cursor, Keyed, Layout, Mark};
use crate::plan::{Clock as StageClock, Plan};
use crate::stage::Counters;
use crate::time::{Activity, Clock, NONE_YET};

mod commands;
mod counters;
mod gone;
mod outside;
mod pending;
mod steps;
mod sums;

pub use outside::Outside;
pub use sums::Sum;

/// What the source says of an input, or the clock of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputEvent {
    /// It is silent now.
    Idle(u16),
    /// It has ended.
    Finished(u16),
    /// It cannot be read: that time does not count as silence (W5).
    Blocked(u16),
    /// It is read again.
    Unblocked(u16),
    /// Watermark of every input, ns; for tests with `time: {manual: true}`.
    Watermark(i64),
    /// Processing time went on.
    Clock,
    /// All input has ended (W10).
    End,
}

/// What must last of a task besides keyed state (R3); written with every commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// Salt of its key hashes.
    pub salt: u64,
    /// Whether each input takes part in the watermark.
    pub activity: Vec<Activity>,
    /// The watermark over event time.
    pub event: Clock,
    /// The clock over record timestamps.
    pub ingestion: Clock,
    /// Greatest position of each input: epoch and offset.
    pub positions: Vec<Option<(i32, i64)>>,
    /// Rows so far.
    pub arrivals: u64,
    /// Records whose time was invalid.
    pub invalid_time: u64,
    /// Ids of the stages that have counters.
    #[serde(serialize_with = "counters::ids_out", deserialize_with = "counters::ids_in")]
    pub stages: Arc<[String]>,
    /// Counters of each of them, in their order.
    pub counters: Vec<Counters>,
}

/// The state of one stage as it lasts: which stage, what it was made with, what is in it.
#[derive(Clone, Debug, Default)]
pub struct Sealed {
    /// Id of the stage.
    pub stage: String,
    /// `Planned::identity`, as JSON.
    pub identity: String,
    /// What changed, or everything.
    pub changes: Vec<crate::keyed::Change>,
    /// How its marks lie in a changelog.
    pub layout: Layout,
    /// Numbers of sheaves in a changelog that go with what is taken away.
    pub sheaves: Vec<u128>,
}

/// Where a round of pieces stands in the state of a task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slices {
    stage: usize,
    cursor: Cursor,
}

/// One task.
pub struct Task {
    marker: Marker,
    states: Vec<Option<Keyed>>,
    /// State that was restored of stages that the plan has no more (gone.rs).
    gone: Vec<(String, Keyed)>,
    /// Processing time of the last record, or of the last moment an input could not be read (W5).
    heard: Vec<i64>,
    blocked: Vec<bool>,
    /// Nothing is read for it now.
    held: bool,
    /// Its states cannot be reached.
    failing: bool,
    now: i64,
    time: TimeOf,
    /// Clock of each stage.
    clocks: Vec<StageClock>,
    /// Whether a row may stop the pipeline, so that a push must be undone.
    may_stop: bool,
}

/// A point a push can be undone to.
pub struct Savepoint {
    marker: Marker,
    states: Vec<Option<Mark>>,
    heard: Vec<i64>,
}

impl Task {
    /// A task that has read nothing. `salt` must be random once and is kept; `now` is processing time, ns.
    pub fn new(chain: &Chain, inputs: Vec<Input>, salt: u64, now: i64) -> Task {
        let plan = Arc::clone(&chain.plan);
        let count = inputs.len();
        let marker = Marker {
            salt,
            activity: vec![Activity::Active; count],
            event: Clock::new(count, plan.pipeline.time.delay),
            ingestion: Clock::new(count, 0),
            positions: vec![None; count],
            arrivals: 0,
            invalid_time: 0,
            stages: Arc::default(),
            counters: Vec::new(),
            inputs,
        };
        Task::with(chain, marker, now)
    }

    /// A task from its marker; keyed state follows by `load`.
    pub fn with(chain: &Chain, mut marker: Marker, now: i64) -> Task {
        let plan = Arc::clone(&chain.plan);
        let count = marker.inputs.len();
        marker.event.set_delay(plan.pipeline.time.delay);
        marker.count_for(&plan);
        let states = plan
            .stages
            .iter()
            .zip(chain.stages())
            .map(|(planned, stage)| {
                let bounds = plan.pipeline.stages.iter().find(|s| s.id == planned.id);
                stage.state(planned, &bounds.map(|s| s.state.clone()).unwrap_or_default())
            })
            .collect();
        let env = chain.env(&[], 0);
        Task {
            time: TimeOf::new(&plan, &env),
            clocks: plan.stages.iter().map(|planned| planned.traits.clock).collect(),
            may_stop: may_stop(&plan),
            states,
            gone: Vec::new(),
            heard: vec![now; count],
            blocked: vec![false; count],
            held: false,
            failing: false,
            now,
            marker,
        }
    }

    /// What lasts besides keyed state.
    pub fn marker(&self) -> &Marker {
        &self.marker
    }

    /// Changes of keyed state since the last call, by stage; the log of undo starts anew.
    pub fn seal(&mut self, plan: &Plan) -> Vec<Sealed> {
        let mut sealed = self.sealed(plan, Keyed::seal);
        sealed.extend(self.part_with(Keyed::seal));
        self.gone.clear();
        sealed
    }

    /// All keyed state, by stage.
    pub fn dump(&mut self, plan: &Plan) -> Vec<Sealed> {
        self.sealed(plan, |keyed| keyed.dump())
    }

    /// The next piece of all keyed state, of about `budget` marks and entries; None: that was all. To be asked between
    /// `seal` and the next rows; what the pieces of a round are good for is said in keyed/slices.rs.
    pub fn dump_some(&self, plan: &Plan, at: &mut Slices, budget: usize) -> Option<Sealed> {
        loop {
            let (planned, state) = (plan.stages.get(at.stage)?, self.states.get(at.stage)?);
            let changes = state.as_ref().and_then(|keyed| keyed.dump_some(&mut at.cursor, budget));
            if let Some(changes) = changes {
                let (stage, identity) = (planned.id.clone(), planned.identity.to_string());
                return Some(Sealed { stage, identity, changes, ..Sealed::default() });
            }
            *at = Slices { stage: at.stage + 1, ..Slices::default() };
        }
    }

    fn sealed(&mut self, plan: &Plan, mut of: impl FnMut(&mut Keyed) -> Vec<crate::keyed::Change>) -> Vec<Sealed> {
        let stages = plan.stages.iter().zip(&mut self.states);
        stages
            .filter_map(|(planned, state)| {
                let state = state.as_mut()?;
                let (stage, identity, changes) = (planned.id.clone(), planned.identity.to_string(), of(state));
                Some(Sealed { stage, identity, changes, layout: state.layout(), ..Sealed::default() })
            })
            .collect()
    }

    /// Brings changes into the state of a stage; that of a stage which is gone is taken away with the next seal.
    pub fn apply(&mut self, plan: &Plan, sealed: Sealed) {
        match self.state(plan, &sealed.stage) {
            Some(keyed) => keyed.apply(sealed.changes),
            None => self.gone(&sealed.stage).apply(sealed.changes),
        }
    }

    /// The keyed state of a stage of the plan.
    fn state(&mut self, plan: &Plan, stage: &str) -> Option<&mut Keyed> {
        let mut stages = plan.stages.iter().zip(&mut self.states);
        stages.find_map(|(planned, state)| (planned.id == stage).then_some(state.as_mut()?))
    }

    /// Everything that lasts, as bytes (format.rs).
    pub fn snapshot(&mut self, plan: &Plan) -> anyhow::Result<Vec<u8>> {
        for state in self.states.iter_mut().flatten() {
            state.seal();
        }
        let sealed = self.dump(plan);
        format::write_snapshot(&self.marker, &sealed)
    }

    /// A task from a snapshot: state with its wakes, watermarks, idle flags and positions; idle timers begin anew.
    pub fn restore(chain: &Chain, snapshot: &[u8], now: i64) -> anyhow::Result<Task> {
        let (marker, sealed) = format::read_snapshot(snapshot)?;
        let mut task = Task::with(chain, marker, now);
        for state in sealed {
            task.apply(&chain.plan, state);
        }
        Ok(task)
    }

    /// Identities of the kept state in a snapshot, by stage, for `Conditions::stored`.
    pub fn identities(snapshot: &[u8]) -> anyhow::Result<BTreeMap<String, serde_json::Value>> {
        let (_, sealed) = format::read_snapshot(snapshot)?;
        sealed.into_iter().map(|state| Ok((state.stage, serde_json::from_str(&state.identity)?))).collect()
    }

    /// Number of the input that reads this partition.
    pub fn input(&self, topic: &str, partition: i32) -> Option<u16> {
        let at = self.marker.inputs.iter().position(|i| &*i.topic == topic && i.partition == partition)?;
        u16::try_from(at).ok()
    }

    /// Takes one more input, active from now on (W4), and gives its number; a known one keeps its own.
    pub fn join(&mut self, input: Input, now: i64) -> u16 {
        if let Some(known) = self.input(&input.topic, input.partition) {
            return known;
        }
        self.marker.inputs.push(input);
        self.marker.activity.push(Activity::Active);
        self.marker.positions.push(None);
        let count = self.marker.inputs.len();
        self.marker.event.grow(count);
        self.marker.ingestion.grow(count);
        self.heard.push(now);
        self.blocked.push(false);
        (count - 1) as u16
    }

    /// Whether an input may be read now: it is not further ahead of the slowest active one than `max_drift` (W9).
    pub fn may_read(&self, input: u16) -> bool {
        let Some(drift) = self.time.max_drift else { return true };
        let own = self.marker.event.own(input);
        let others = self.marker.activity.iter().enumerate().filter(|(_, a)| **a == Activity::Active);
        let slowest = others.map(|(i, _)| self.marker.event.own(i as u16)).min().unwrap_or(own);
        own == NONE_YET || own <= slowest.saturating_add(drift)
    }

    /// A savepoint, to undo a push.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            marker: self.marker.clone(),
            states: self.states.iter().map(|state| state.as_ref().map(Keyed::mark)).collect(),
            heard: self.heard.clone(),
        }
    }

    /// Back to a savepoint.
    pub fn undo(&mut self, to: Savepoint) {
        self.marker = to.marker;
        self.heard = to.heard;
        for (state, mark) in self.states.iter_mut().zip(to.states) {
            if let (Some(keyed), Some(mark)) = (state.as_mut(), mark) {
                keyed.undo(mark);
            }
        }
    }

    /// Takes rows of one poll, in order; `batch.now` is processing time, and what is due by then happens first. If a
    /// row stops the pipeline, everything before it has left when this returns.
    pub fn push(&mut self, chain: &mut Chain, batch: Batch, out: &mut dyn Out) -> Result<(), Stop> {
        self.clock(chain, batch.now, out)?;
        if !self.may_stop && !self.failing {
            return self.push_once(chain, batch, out);
        }
        let (savepoint, mark) = (self.savepoint(), out.mark());
        let again = batch.clone();
        let stop = match self.push_once(chain, batch, out) {
            Ok(()) => return Ok(()),
            Err(stop) => stop,
        };
        self.undo(savepoint);
        out.undo(mark);
        let guilty = stop.origin.and_then(|origin| again.rows.iter().position(|row| row.origin == origin));
        if let Some(guilty) = guilty.filter(|&guilty| guilty > 0) {
            let before: Vec<u32> = (0..guilty as u32).collect();
            let mut first = again;
            first.keep(&before);
            self.push_once(chain, first, out)?;
        }
        Err(stop)
    }

    fn push_once(&mut self, chain: &mut Chain, mut batch: Batch, out: &mut dyn Out) -> Result<(), Stop> {
        for row in &mut batch.rows {
            row.arrival = self.marker.arrivals;
            self.marker.arrivals += 1;
            row.redelivered = !self.advance(row.origin);
        }
        let undecoded = chain.decode(&mut batch)?;
        let mut ordered = InOrder::new(out);
        let stop = self.stamp(chain, &mut batch, &undecoded, &mut ordered);
        chain.pass(0, batch, &mut self.passing(chain), &mut ordered)?;
        ordered.finish();
        stop.map_or(Ok(()), Err)
    }

    /// Moves the position of an input. False: the task has had this position (R1).
    fn advance(&mut self, origin: Origin) -> bool {
        let Some(position) = self.marker.positions.get_mut(usize::from(origin.input)) else { return true };
        let newer = match *position {
            None => true,
            Some((epoch, offset)) => {
                let known = epoch >= 0 && origin.epoch >= 0;
                (known && origin.epoch > epoch) || (origin.offset > offset && !(known && origin.epoch < epoch))
            }
        };
        if newer {
            *position = Some((origin.epoch, origin.offset));
        }
        newer
    }

    fn passing<'a>(&'a mut self, chain: &Chain) -> Passing<'a> {
        Passing {
            inputs: &self.marker.inputs,
            salt: self.marker.salt,
            states: &mut self.states,
            counters: &mut self.marker.counters,
            wants_duplicates: chain.wants_duplicates(),
        }
    }

    /// Gives every row its times and what it sees; takes out rows without (T2), and those that were not decoded.
    fn stamp(
        &mut self,
        chain: &Chain,
        batch: &mut Batch,
        undecoded: &[(u32, Failure)],
        out: &mut dyn Out,
    ) -> Option<Stop> {
        let env = Env { inputs: &self.marker.inputs.clone(), ..chain.env(&[], self.marker.salt) };
        let time = self.time.clone();
        let mut event = track(time.evaluated, &self.marker.event);
        let mut ingestion = track(time.ingestion, &self.marker.ingestion);
        let mut kept = Vec::with_capacity(batch.rows.len());
        let mut failed = undecoded.iter().peekable();
        let mut stop = None;
        let mut times = crate::batch::Column::default();
        let both = time.evaluated && time.ingestion;
        let mut steps = Vec::new();
        if time.evaluated {
            let rows: Vec<u32> = (0..batch.rows.len() as u32).collect();
            time.read.fill(batch, &rows, &env, &crate::columns::Content::default(), &mut times);
        }
        for at in 0..batch.rows.len() {
            let Some(&row) = batch.rows.get(at) else { break };
            if !row.redelivered {
                self.hear(row.origin.input, batch.now);
            }
            if let Some((_, failure)) = failed.next_if(|(row, _)| *row as usize == at) {
                let (route, cause) = (Route::DeadLetter, row.arrival);
                out.emit(Emit { route, batch, row: &row, added: &[], failure: Some(failure), cause });
                continue;
            }
            match time.of(&row, times.cell(at), batch.now) {
                Ok((event_time, ingestion_time)) => {
                    kept.push(at as u32);
                    if both {
                        steps.push((self.marker.event.now(), self.marker.ingestion.now()));
                    }
                    let moves = !row.redelivered;
                    if time.evaluated {
                        event.times.push(event_time);
                        event.seen.push(self.marker.event.now());
                        if moves && !time.manual {
                            self.marker.event.observe(row.origin.input, event_time, &self.marker.activity);
                        }
                    }
                    if time.ingestion {
                        ingestion.times.push(ingestion_time);
                        ingestion.seen.push(self.marker.ingestion.now());
                        if moves {
                            self.marker.ingestion.observe(row.origin.input, ingestion_time, &self.marker.activity);
                        }
                    }
                }
                Err(why) => {
                    let failure = Failure {
                        stage: "time".to_owned(),
                        code: "invalid_time".to_owned(),
                        text: why.to_owned(),
                        category: 2,
                        module: None,
                        digest: None,
                    };
                    if time.invalid == InvalidTime::Fail {
                        stop = Some(Stop { failure, origin: Some(row.origin), pause: false });
                        break;
                    }
                    self.marker.invalid_time += 1;
                    let (route, cause) = (Route::DeadLetter, row.arrival);
                    out.emit(Emit { route, batch, row: &row, added: &[], failure: Some(&failure), cause });
                }
            }
        }
        if time.evaluated {
            event.end = Some(self.marker.event.now());
        }
        if time.ingestion {
            ingestion.end = Some(self.marker.ingestion.now());
        }
        batch.event = Track::default();
        batch.ingestion = Track::default();
        batch.keep(&kept);
        batch.event = event;
        batch.ingestion = ingestion;
        batch.steps = Arc::new(steps);
        stop
    }

    /// A record came: its input is not silent (W5, W6).
    fn hear(&mut self, input: u16, now: i64) {
        let at = usize::from(input);
        if let Some(heard) = self.heard.get_mut(at) {
            *heard = now;
        }
        if let Some(activity) = self.marker.activity.get_mut(at) {
            *activity = Activity::Active;
        }
    }

    /// A later run reads on: inputs that had finished count again.
    pub fn reopen(&mut self) {
        self.marker.activity.fill(Activity::Active);
    }
}

/// Whether some row may stop the pipeline from within the chain.
fn may_stop(plan: &Plan) -> bool {
    let keys = plan.stages.iter().any(|stage| stage.key.as_ref().is_some_and(|key| key.null_key == NullKey::Fail));
    let bounds = plan.pipeline.stages.iter().any(|stage| stage.state.max_entries.or(stage.state.max_bytes).is_some());
    keys || bounds || plan.pipeline.time.invalid == InvalidTime::Fail
}

fn track(evaluated: bool, clock: &Clock) -> Track {
    Track { start: evaluated.then(|| clock.now()), ..Track::default() }
}
