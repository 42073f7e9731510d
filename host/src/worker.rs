//! The loop: records and time go into tasks, what they emit goes out, and every so often all of it is committed.
//!
//! Pure as the core is: where records come from, where rows go, what lasts and what the clock says is behind two
//! traits.

use std::sync::Arc;

use crate::chain::{Chain, Emit, Failure, Out, Route};
use crate::config::pipeline::Tolerance;
use crate::files::Trouble;
use crate::files::sink::Refused;
use crate::files::source::{Broken, Polled, Polling, Position};
use crate::held::Held;
use crate::ops::Seat;
use crate::plan::Plan;
use crate::retry::{Attempts, Retry};
use crate::stage::Counters;
use crate::task::{Input, InputEvent, Marker, Task};
use crate::time::Activity;
use alone::Alone;
pub use moving::{Became, Came, Joined, parted};

mod alone;
mod moving;
pub mod orders;

/// Where records, the clock and the wish to stop come from.
pub trait Inbox {
    /// Processing time, ns since 1970; never goes back.
    fn now(&mut self) -> i64;
    /// What comes next, at the latest at `until` (processing time). `may_read`: whether an input may be read now.
    fn next(&mut self, until: i64, may_read: &dyn Fn(u16) -> bool) -> Result<Event, Trouble>;
    /// The inputs so far.
    fn inputs(&self) -> &[Input];
    /// The first `count` records of a poll have been dealt with.
    fn taken(&mut self, polling: &Polling, count: usize);
    /// Where reading stands.
    fn position(&self) -> Position;
    /// A task has its state; `right`: it is the one that was committed. True: it may run.
    fn joined(&mut self, _input: u16, right: bool) -> Result<bool, Trouble> {
        Ok(right)
    }
    /// The tasks that were to leave have left.
    fn left(&mut self) -> Result<(), Trouble> {
        Ok(())
    }
    /// Whether every input comes with a `Join`, which brings its task.
    fn joins(&self) -> bool {
        false
    }
    /// Whether tasks are kept when what was read since the last commit is void: their inputs may come again with a `Join`
    /// that says what became of the commit.
    fn keeps_tasks(&self) -> bool {
        false
    }
    /// The state of an input's task is needed after all: it comes with another `Join`.
    fn again(&mut self, _input: u16) -> Result<(), Trouble> {
        Ok(())
    }
    /// What was read since the last commit is void: every input comes again with a `Join`.
    fn rewind(&mut self) -> Result<(), Trouble> {
        Ok(())
    }
    /// The pipeline goes on under this plan.
    fn reload(&mut self, _plan: &Arc<Plan>, _chain: &Chain) {}
}

/// What an inbox gives.
#[derive(Debug)]
pub enum Event {
    /// Records, or what a source says of itself.
    Source(Polled),
    /// Somebody wants the run to stop.
    Stop,
    /// An input is this worker's from now on, with the state of its task.
    Join(Joined),
    /// Inputs are to be given up: committed first, unless they are lost already.
    Leave {
        /// Which.
        inputs: Vec<u16>,
        /// They are somebody else's; nothing may be committed for them.
        lost: bool,
    },
}

/// Where rows go and what makes them last.
pub trait Outbox: Out {
    /// Which task runs now, with which inputs and rows.
    fn enter(&mut self, task: usize, inputs: Arc<[Input]>, polled: Option<&Polling>, now: i64);
    /// The first failure since the last `settle` that the tolerance does not let pass, or that may pass by itself.
    fn refused(&self) -> Option<Refused>;
    /// This record is tried for the last time: its failure counts. None: that is over.
    fn give_up(&mut self, on: Option<Attempts>);
    /// What was emitted since the last `settle` may leave.
    fn settle(&mut self) -> Result<(), Trouble>;
    /// From now on results are of scopes that are still open (R10).
    fn partial(&mut self);
    /// Makes output, state and positions durable; or it does not, and nothing since the last commit has happened.
    fn commit(
        &mut self,
        plan: &Plan,
        tasks: &mut [&mut Task],
        source: Position,
        kind: Commit,
    ) -> Result<Outcome, Trouble>;
    /// A task has written much since the last commit: what can be taken back may be on its way before the next one.
    fn ahead(&mut self, _plan: &Plan, _task: &mut Task) {}
    /// Nothing since the last commit has happened.
    fn abandon(&mut self) -> Result<(), Trouble> {
        Ok(())
    }
    /// A task came, with what it had counted before.
    fn came(&mut self, _plan: &Plan, _task: &Task, _how: Came) {}
    /// Tasks leave, right after a commit.
    fn leave(&mut self, _plan: &Plan, _tasks: &[&Task]) {}
    /// Tasks that were to leave have left: nobody waits any more.
    fn left(&mut self) -> Result<(), Trouble> {
        Ok(())
    }
    /// Why nothing more may be read: what lasts takes more room than it may.
    fn full(&self) -> Option<String> {
        None
    }
    /// The pipeline goes on under this plan.
    fn reload(&mut self, _plan: &Plan) {}
    /// Nothing is there to be read: what may leave need not wait for more.
    fn rest(&mut self) {}
    /// Something the operator should know.
    fn note(&mut self, text: &str);
}

/// Kinds of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// One of many.
    Usual,
    /// With a checkpoint.
    Checkpoint,
    /// Before tasks leave: others wait for it.
    Leaving,
    /// The last of a run.
    Last,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is durable.
    Done,
    /// It is not, and tasks must begin anew at the last one that is.
    Undone,
}

/// An order is noticed within this time, ns.
const ATTENTION: i64 = 50_000_000;

/// Place of an input that no task has.
const NOWHERE: (usize, u16) = (usize::MAX, 0);

/// How a run ended.
#[derive(Debug)]
pub enum Ended {
    /// All input was read.
    Input,
    /// It was asked to stop.
    Asked,
    /// A record, or a guest, stopped it.
    Failed {
        /// Why.
        failure: Failure,
        /// The record: topic, partition, offset.
        position: Option<(Input, i64)>,
    },
}

/// How often things are done. Durations in ns.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between commits.
    pub commit: i64,
    /// Between checkpoints.
    pub checkpoint: i64,
    /// Whether open scopes are flushed as partial results when the run is asked to stop (R10).
    pub flush: bool,
}

/// One worker: a chain, and the tasks that share it.
pub struct Worker<'a> {
    plan: Arc<Plan>,
    pub(crate) chain: &'a mut Chain,
    pub(crate) inbox: &'a mut dyn Inbox,
    pub(crate) outbox: &'a mut dyn Outbox,
    pace: Pace,
    salt: u64,
    pub(crate) tasks: Vec<Running>,
    /// Tasks of which it is not known what became of their last commit.
    limbo: Vec<Running>,
    /// Who is served while commits fail.
    alone: Alone,
    /// Task and number in it of each input of the source.
    places: Vec<(usize, u16)>,
    /// Inputs that may not be read.
    blocked: Vec<bool>,
    pub(crate) retry: Retry,
    committed: i64,
    checkpointed: i64,
    /// Whether anything happened since the last commit.
    pub(crate) dirty: bool,
    /// Whether it was said that a task waits for room.
    pub(crate) paused: bool,
    /// Whether a row may stop the run, or be tried again, so that batches must be kept until they are through.
    pub(crate) keeps: bool,
    /// Where orders are given; none: nowhere.
    seat: Option<Arc<Seat>>,
    /// What stages had counted that a reload took away.
    gone: Vec<Counters>,
}

/// A task, and what it could not do yet.
pub(crate) struct Running {
    pub(crate) task: Task,
    pub(crate) inputs: Arc<[Input]>,
    pub(crate) held: Option<Held>,
    /// What the task knew at its last commit that is durable, where tasks are kept.
    committed: Option<Box<Marker>>,
    /// When its partition was lost to somebody else; it may come back.
    lost: Option<i64>,
}

impl<'a> Worker<'a> {
    /// A worker over tasks that were restored; tasks for inputs that none of them has are made.
    pub fn new(
        chain: &'a mut Chain,
        inbox: &'a mut dyn Inbox,
        outbox: &'a mut dyn Outbox,
        pace: Pace,
        salt: u64,
        restored: Vec<Task>,
    ) -> Worker<'a> {
        let now = inbox.now();
        let plan = Arc::clone(&chain.plan);
        let (retry, keeps) = (Retry::of(&plan), keeps(&plan));
        let tasks = restored.into_iter().map(Running::new).collect();
        let (places, blocked) = (Vec::new(), Vec::new());
        Worker {
            plan,
            chain,
            inbox,
            outbox,
            pace,
            salt,
            tasks,
            limbo: Vec::new(),
            alone: Alone::default(),
            places,
            blocked,
            retry,
            committed: now,
            checkpointed: now,
            dirty: false,
            paused: false,
            keeps,
            seat: None,
            gone: Vec::new(),
        }
    }

    /// Takes over from the plan what it works by.
    fn settle_in(&mut self) {
        let pipeline = &self.plan.pipeline;
        (self.retry, self.keeps) = (Retry::of(&self.plan), keeps(&self.plan));
        (self.pace.commit, self.pace.checkpoint) = (pipeline.run.commit, pipeline.state.checkpoint);
    }

    /// What stages had counted that a reload took away.
    pub fn gone(&self) -> &[Counters] {
        &self.gone
    }

    /// What it runs: after a reload another plan than that it began with.
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan)
    }

    /// Runs until the input ends, somebody asks to stop, or something stops it. In each of these cases everything up
    /// to there is committed; after trouble it is not, and the last commit holds.
    pub fn run(&mut self) -> Result<Ended, Trouble> {
        // An input that ended in the last run may go on: if all of them had, this is a new run over what has come since.
        for running in &mut self.tasks {
            if running.task.marker().activity.iter().all(|&a| a == Activity::Finished) {
                running.task.reopen();
            }
        }
        self.place_inputs();
        self.commit(Commit::Usual)?;
        loop {
            let Some(mut ended) = self.step()? else { continue };
            let flush = matches!(ended, Ended::Asked) && self.pace.flush;
            if flush {
                self.outbox.partial();
            }
            if flush || matches!(ended, Ended::Input) {
                ended = self.all(InputEvent::End)?.unwrap_or(ended);
            }
            let done = self.commit(Commit::Last)?;
            // What is not committed is done by the next run, but the end of the input is for this one to reach.
            if done == Outcome::Done || !matches!(ended, Ended::Input) {
                return Ok(ended);
            }
        }
    }

    /// The counters of every stage of every task.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter().map(|running| &running.task)
    }

    /// One turn of the loop.
    fn step(&mut self) -> Result<Option<Ended>, Trouble> {
        let now = self.inbox.now();
        self.alone.arrange(&self.tasks);
        if let Some(ended) = self.time(now)? {
            return Ok(Some(ended));
        }
        if self.dirty && (now >= self.committed.saturating_add(self.interval()) || self.is_log_long()) {
            let checkpoint = now >= self.checkpointed.saturating_add(self.pace.checkpoint);
            if self.commit(if checkpoint { Commit::Checkpoint } else { Commit::Usual })? == Outcome::Undone {
                return Ok(None);
            }
        }
        self.write_ahead();
        if self.order()? {
            return Ok(None);
        }
        self.pass_turn(now);
        let until = self.until(now);
        let full = self.outbox.full();
        self.watch_blocked(now, full.is_some())?;
        if let Some(text) = full.as_ref().filter(|_| !self.paused) {
            self.outbox
                .note(&format!("paused until there is room: {text}; ways out: a greater quota, `retention`, a window"));
            self.paused = true;
        }
        let (tasks, places, alone) = (&self.tasks, &self.places, &self.alone);
        let may_read = |input: u16| match places.get(usize::from(input)) {
            _ if full.is_some() => false,
            Some(&(task, own)) => {
                tasks.get(task).is_none_or(|r| r.held.is_none() && r.task.may_read(own) && alone.serves(&r.task))
            }
            None => true,
        };
        let event = self.inbox.next(until, &may_read)?;
        if let Event::Join(joined) = event {
            return self.join(joined).map(|()| None);
        }
        self.place_inputs();
        match event {
            Event::Stop => Ok(Some(Ended::Asked)),
            Event::Join(_) => Ok(None),
            Event::Leave { inputs, lost } => self.leave(&inputs, lost).map(|()| None),
            Event::Source(Polled::Nothing) => {
                self.outbox.rest();
                Ok(None)
            }
            Event::Source(Polled::End) if self.tasks.iter().any(|r| r.held.is_some()) => Ok(None),
            Event::Source(Polled::End) => Ok(Some(Ended::Input)),
            Event::Source(Polled::Rows(polling)) => self.rows(polling),
            Event::Source(Polled::Broken(polling, broken)) => self.broken(polling, broken),
            Event::Source(Polled::Finished(inputs)) => {
                let mut ended = None;
                for input in inputs {
                    let (task, own) = self.place(input);
                    ended = ended.or(self.event(task, InputEvent::Finished(own))?);
                }
                Ok(ended)
            }
        }
    }

    /// When something must happen at the latest.
    fn until(&self, now: i64) -> i64 {
        let served = || self.tasks.iter().filter(|r| self.alone.serves(&r.task));
        let deadlines = served().filter_map(|r| r.task.deadline());
        let held = served().filter_map(|r| r.held.as_ref().map(|held| held.again));
        let takes_turns = self.alone.turn().is_some();
        let commit = (self.dirty || takes_turns).then(|| self.committed.saturating_add(self.interval()));
        let orders = self.seat.as_ref().map(|_| now.saturating_add(ATTENTION));
        deadlines.chain(held).chain(commit).chain(orders).min().unwrap_or(i64::MAX).max(now)
    }

    /// What is due by now: wakes, idle timers, and what waits for room.
    fn time(&mut self, now: i64) -> Result<Option<Ended>, Trouble> {
        for at in 0..self.tasks.len() {
            if self.tasks.get(at).is_some_and(|running| !self.alone.serves(&running.task)) {
                continue;
            }
            let due = |r: &Running| r.task.deadline().is_some_and(|due| due <= now);
            if self.tasks.get(at).is_some_and(due) {
                if let Some(ended) = self.event(at, InputEvent::Clock)? {
                    return Ok(Some(ended));
                }
            }
            let held = self.tasks.get_mut(at).and_then(|r| r.held.take_if(|held| held.again <= now));
            if let Some(Held { polling, attempts, .. }) = held {
                if let Some(ended) = self.push(at, polling, attempts)? {
                    return Ok(Some(ended));
                }
            }
        }
        Ok(None)
    }

    /// Tells tasks which of their inputs cannot be read, being ahead of the others (W9) or held up: that is no silence
    /// (W5).
    fn watch_blocked(&mut self, now: i64, full: bool) -> Result<(), Trouble> {
        let time = &self.plan.pipeline.time;
        if time.max_drift.or(time.idle).is_none() {
            return Ok(());
        }
        for input in 0..self.places.len() {
            let (task, own) = self.place(input as u16);
            let Some(running) = self.tasks.get_mut(task) else { continue };
            let blocked = full || running.held.is_some() || !running.task.may_read(own);
            if self.blocked.get(input) != Some(&blocked) {
                if let Some(was) = self.blocked.get_mut(input) {
                    *was = blocked;
                }
                let event = if blocked { InputEvent::Blocked(own) } else { InputEvent::Unblocked(own) };
                // Neither emits anything.
                let _ = running.task.event(self.chain, event, now, self.outbox);
            }
        }
        self.outbox.settle()
    }

    /// Gives every input of the source a task.
    fn place_inputs(&mut self) {
        let inputs = self.inbox.inputs();
        if inputs.len() == self.places.len() {
            return;
        }
        if self.inbox.joins() {
            self.places.resize(inputs.len(), NOWHERE);
            self.blocked.resize(self.places.len(), false);
            return;
        }
        let new: Vec<Input> = inputs.get(self.places.len()..).unwrap_or_default().to_vec();
        let now = self.inbox.now();
        for input in new {
            let known = self
                .tasks
                .iter()
                .enumerate()
                .find_map(|(at, running)| running.task.input(&input.topic, input.partition).map(|own| (at, own)));
            let place = known.unwrap_or_else(|| match self.tasks.first_mut() {
                Some(running) if self.plan.one_task => {
                    let own = running.task.join(input, now);
                    running.inputs = running.task.marker().inputs.clone().into();
                    (0, own)
                }
                _ => {
                    self.tasks.push(Running::new(Task::new(self.chain, vec![input], self.salt, now)));
                    (self.tasks.len() - 1, 0)
                }
            });
            self.places.push(place);
            self.blocked.push(false);
        }
    }

    pub(crate) fn place(&self, input: u16) -> (usize, u16) {
        self.places.get(usize::from(input)).copied().unwrap_or_default()
    }

    /// Rows of one task: their inputs are numbered as the task numbers them.
    fn rows(&mut self, mut polling: Polling) -> Result<Option<Ended>, Trouble> {
        polling.batch.now = self.inbox.now();
        let first = polling.batch.rows.first().map_or(0, |row| row.origin.input);
        let (task, _) = self.place(first);
        if task >= self.tasks.len() {
            return Ok(None);
        }
        for row in &mut polling.batch.rows {
            row.origin.input = self.places.get(usize::from(row.origin.input)).map_or(0, |place| place.1);
        }
        self.push(task, polling, None)
    }

    /// A record that could not be framed is a failure with its position.
    fn broken(&mut self, mut polling: Polling, broken: Broken) -> Result<Option<Ended>, Trouble> {
        self.dirty = true;
        let now = self.inbox.now();
        let Some(row) = polling.batch.rows.first_mut() else { return Ok(None) };
        let source_input = row.origin.input;
        let (at, own) = self.places.get(usize::from(source_input)).copied().unwrap_or_default();
        row.origin.input = own;
        let row = *row;
        let Some(running) = self.tasks.get(at) else { return Ok(None) };
        self.outbox.enter(at, Arc::clone(&running.inputs), None, now);
        let failure = Failure {
            stage: "source".to_owned(),
            code: broken.code.to_owned(),
            text: broken.text,
            category: 2,
            module: None,
            digest: None,
        };
        let batch = &polling.batch;
        self.outbox.emit(Emit {
            route: Route::DeadLetter,
            batch,
            row: &row,
            added: &[],
            failure: Some(&failure),
            cause: row.arrival,
        });
        if self.outbox.refused().is_some() {
            self.outbox.undo(0);
            let input = running.inputs.get(usize::from(own)).cloned();
            return Ok(Some(Ended::Failed { failure, position: input.map(|input| (input, row.origin.offset)) }));
        }
        self.outbox.settle()?;
        self.inbox.taken(&polling, 1);
        Ok(None)
    }

    /// An event for one task.
    fn event(&mut self, at: usize, event: InputEvent) -> Result<Option<Ended>, Trouble> {
        self.dirty = true;
        let now = self.inbox.now();
        let Some(running) = self.tasks.get_mut(at) else { return Ok(None) };
        self.outbox.enter(at, Arc::clone(&running.inputs), None, now);
        let (savepoint, mark) = (running.task.savepoint(), self.outbox.mark());
        let stop = running.task.event(self.chain, event, now, self.outbox);
        let failure = match stop {
            Err(stop) => Some(stop.failure),
            Ok(()) => self.outbox.refused().map(|refused| refused.failure),
        };
        match failure {
            None => self.outbox.settle().map(|()| None),
            Some(failure) => {
                running.task.undo(savepoint);
                self.outbox.undo(mark);
                Ok(Some(Ended::Failed { failure, position: None }))
            }
        }
    }

    /// An event for all tasks.
    fn all(&mut self, event: InputEvent) -> Result<Option<Ended>, Trouble> {
        let mut ended = None;
        for at in 0..self.tasks.len() {
            ended = ended.or(self.event(at, event)?);
        }
        Ok(ended)
    }

    fn commit(&mut self, kind: Commit) -> Result<Outcome, Trouble> {
        let mut tasks: Vec<&mut Task> = self.tasks.iter_mut().map(|running| &mut running.task).collect();
        let done = self.outbox.commit(&self.plan, &mut tasks, self.inbox.position(), kind)?;
        let now = self.inbox.now();
        if done == Outcome::Undone {
            self.alone.failed(self.tasks.iter().flat_map(|running| running.inputs.iter().cloned()));
            self.forget();
            self.inbox.rewind()?;
        } else {
            self.settle(now);
            self.end_turn();
        }
        self.committed = now;
        self.dirty = false;
        if kind == Commit::Checkpoint {
            self.checkpointed = now;
        }
        Ok(done)
    }
}

/// Whether a row may stop the run, or be tried again.
fn keeps(plan: &Plan) -> bool {
    let bounded = plan.pipeline.stages.iter().any(|s| s.state.max_entries.or(s.state.max_bytes).is_some());
    plan.pipeline.errors.tolerance == Tolerance::None || bounded || Retry::of(plan).total > 0
}

impl Running {
    fn new(task: Task) -> Running {
        let inputs = task.marker().inputs.clone().into();
        Running { task, inputs, held: None, committed: None, lost: None }
    }
}
