//! Plays a script through the real chain: the source, the clock, commits, stops and crashes are the script's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use tamis_guest::document::Builder;

use super::cells;
use super::content::Content;
use super::heard::Heard;
use super::moment::Moment;
use super::record::{Body, Record};
use super::source::{Dice, indexed};
use super::{Replace, Said, Step, Test};
use crate::batch::{Batch, Origin, Payload, Row, Span};
use crate::chain::{Chain, Stop};
use crate::config::diagnostic::Diagnostic;
use crate::plan::Plan;
use crate::task::{Input, InputEvent, Task};
use crate::time::NONE_YET;

/// Makes plans of a test: its own settings, then those of each `restart` so far.
pub trait Planner {
    /// The plan, with what kept state was made with; or why there is none.
    fn plan(&self, restarts: &[Replace], stored: &BTreeMap<String, Value>) -> Result<Arc<Plan>, Vec<Diagnostic>>;
}

/// How batches are cut.
#[derive(Clone, Debug)]
pub enum Cuts {
    /// As the script says: where time moves, and at `batch`.
    Asked,
    /// At random, and with fresh guest instances for every call.
    Random(Dice),
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum End {
    /// The script is over.
    Over,
    /// The pipeline stopped.
    Stopped(Stop),
    /// A restart was refused.
    Refused(Vec<Diagnostic>),
    /// The host could not go on.
    Broken(String),
}

/// What a run gave.
pub struct Played {
    /// What came out.
    pub heard: Heard,
    /// Counters by stage.
    pub counters: BTreeMap<String, BTreeMap<String, u64>>,
    /// How it ended.
    pub end: End,
}

/// Plays a test once.
pub fn play(test: &Test, planner: &dyn Planner, plan: &Arc<Plan>, inputs: &[(String, i32)], cuts: Cuts) -> Played {
    let mut player = Player {
        test,
        planner,
        restarts: Vec::new(),
        chain: Chain::open(plan, false),
        running: Vec::new(),
        places: Vec::new(),
        now: 0,
        heard: Heard::default(),
        ended: false,
        saved: None,
        remembers: test.input.iter().any(|said| matches!(said.step, Step::Crash | Step::Redeliver(_))),
        since: Vec::new(),
        arrivals: Vec::new(),
        builder: Builder::new(),
        cuts,
    };
    player.place(inputs);
    player.start();
    let end = test.input.iter().try_for_each(|said| player.step(said)).and_then(|()| player.flush());
    Played { counters: player.count(), heard: player.heard, end: end.err().unwrap_or(End::Over) }
}

/// One input of the source.
#[derive(Clone, Debug)]
struct Place {
    topic: Arc<str>,
    partition: i32,
    task: usize,
    /// Its number within the task.
    input: u16,
    next: i64,
    last: Option<(i32, i64)>,
    blocked: bool,
}

/// One task and the batch that gathers for it.
struct Running {
    task: Task,
    inputs: Vec<Input>,
    /// Numbers of its inputs among all.
    places: Vec<u16>,
    batch: Batch,
    bytes: Vec<u8>,
}

/// What the last commit made durable.
struct Saved {
    tasks: Vec<Vec<u8>>,
    places: Vec<Place>,
    rows: usize,
    ended: bool,
}

/// What a source says, to be said again after a crash.
#[derive(Clone)]
enum Word {
    Record(Arc<Arrival>),
    End(Option<i32>),
    Idle(i32),
    Watermark(i64),
}

/// A record at its position.
struct Arrival {
    place: usize,
    epoch: i32,
    offset: i64,
    record: Record,
}

struct Player<'a> {
    test: &'a Test,
    planner: &'a dyn Planner,
    restarts: Vec<Replace>,
    chain: Chain,
    running: Vec<Running>,
    places: Vec<Place>,
    now: i64,
    heard: Heard,
    ended: bool,
    saved: Option<Saved>,
    remembers: bool,
    since: Vec<Word>,
    arrivals: Vec<Arc<Arrival>>,
    builder: Builder,
    cuts: Cuts,
}

/// Salt of key hashes: any, the same for ever.
const SALT: u64 = 0;
/// Events at one instant of the clock after which a task that is still due is thought to hang.
const PATIENCE: usize = 100_000;

impl Player<'_> {
    fn step(&mut self, said: &Said) -> Result<(), End> {
        match &said.step {
            Step::Record(record) => self.arrive((**record).clone()),
            Step::Series(series) => {
                for i in series.from..=series.to {
                    if let Some(record) = indexed(&series.record, i) {
                        self.arrive(record)?;
                    }
                }
                Ok(())
            }
            Step::Clock(Moment::At(to)) => self.clock(*to),
            Step::Clock(Moment::After(length)) => self.clock(self.now.saturating_add(*length)),
            Step::Watermark(time) => self.say(Word::Watermark(*time)),
            Step::End(partition) => self.say(Word::End(*partition)),
            Step::Idle(partition) => self.say(Word::Idle(*partition)),
            Step::Block(partition) => self.block(*partition, true),
            Step::Unblock(partition) => self.block(*partition, false),
            Step::Batch if matches!(self.cuts, Cuts::Asked) => self.flush(),
            Step::Batch => Ok(()),
            Step::Commit => self.commit(),
            Step::Restart(settings) => self.restart(settings),
            Step::Crash => self.crash(),
            Step::Redeliver(n) => {
                let from = self.arrivals.len().saturating_sub(*n);
                let again: Vec<Word> = self.arrivals[from..].iter().cloned().map(Word::Record).collect();
                again.into_iter().try_for_each(|word| self.say(word))
            }
            Step::Later(word) => Err(End::Broken(format!("the step `{word}` comes later"))),
        }
    }

    /// Builds the tasks' inputs: one task for all where copies of different partitions meet, else one each.
    fn place(&mut self, inputs: &[(String, i32)]) {
        let together = self.chain.plan.one_task || inputs.len() == 1;
        for (number, (topic, partition)) in inputs.iter().enumerate() {
            let (task, input) = if together { (0, number as u16) } else { (number, 0) };
            self.places.push(Place {
                topic: topic.as_str().into(),
                partition: *partition,
                task,
                input,
                next: 0,
                last: None,
                blocked: false,
            });
        }
    }

    /// New tasks, with nothing in them.
    fn start(&mut self) {
        self.running.clear();
        for (number, place) in self.places.iter().enumerate() {
            let input = Input { topic: place.topic.clone(), partition: place.partition };
            match self.running.get_mut(place.task) {
                Some(running) => {
                    running.inputs.push(input);
                    running.places.push(number as u16);
                }
                None => self.running.push(Running {
                    task: Task::new(&self.chain, Vec::new(), SALT, self.now),
                    inputs: vec![input],
                    places: vec![number as u16],
                    batch: Batch::default(),
                    bytes: Vec::new(),
                }),
            }
        }
        for running in &mut self.running {
            running.task = Task::new(&self.chain, running.inputs.clone(), SALT, self.now);
        }
    }

    /// A record of the script: finds its position and says it.
    fn arrive(&mut self, record: Record) -> Result<(), End> {
        if let Some(at) = record.at {
            self.clock(at)?;
        }
        let topic = record.topic.as_deref().unwrap_or("test");
        let partition = record.p.unwrap_or(0);
        let Some(at) = self.places.iter().position(|p| &*p.topic == topic && p.partition == partition) else {
            return Err(End::Broken(format!("there is no partition {partition} of `{topic}`")));
        };
        let place = &self.places[at];
        let offset = record.o.unwrap_or(place.next);
        let arrival = Arc::new(Arrival { place: at, epoch: record.epoch.unwrap_or(-1), offset, record });
        if self.remembers {
            self.arrivals.push(arrival.clone());
        }
        self.say(Word::Record(arrival))
    }

    /// The source says something.
    fn say(&mut self, word: Word) -> Result<(), End> {
        match &word {
            Word::Record(arrival) => self.take(arrival)?,
            Word::End(partition) => self.finish(*partition)?,
            Word::Idle(partition) => self.each_input(*partition, InputEvent::Idle)?,
            Word::Watermark(time) => {
                for task in 0..self.running.len() {
                    self.event(task, InputEvent::Watermark(*time))?;
                }
            }
        }
        if self.remembers {
            self.since.push(word);
        }
        Ok(())
    }

    /// Adds a record to the batch of its task.
    fn take(&mut self, arrival: &Arrival) -> Result<(), End> {
        let task = self.places[arrival.place].task;
        let limits = &self.chain.plan.pipeline.limits;
        let full = self.running.get(task).is_some_and(|running| {
            running.batch.rows.len() >= limits.batch_rows || running.bytes.len() >= limits.batch_bytes
        });
        // Rows of different tasks leave in the order they came.
        let other = self.running.iter().enumerate().any(|(n, running)| n != task && !running.batch.rows.is_empty());
        let cut = match &mut self.cuts {
            Cuts::Asked => false,
            Cuts::Random(dice) => dice.below(4) == 0,
        };
        if full || other || cut {
            self.flush()?;
        }
        let place = &mut self.places[arrival.place];
        let newer = place.last.is_some_and(|(epoch, _)| epoch >= 0 && arrival.epoch > epoch);
        if newer || place.last.is_none_or(|(_, offset)| arrival.offset > offset) {
            place.last = Some((arrival.epoch, arrival.offset));
            place.next = arrival.offset + 1;
        }
        let running = &mut self.running[task];
        let record = &arrival.record;
        let mut span = |running: &mut Running, content: &Content| {
            let start = running.bytes.len();
            let kind = cells::write(content, &mut self.builder, &mut running.bytes);
            (kind, Span { arena: 0, start: start as u32, len: (running.bytes.len() - start) as u32 })
        };
        let key = match &record.key {
            None | Some(Content::Null) => Payload::Null,
            Some(key) => {
                let (kind, span) = span(running, key);
                Payload::Cell(kind, span)
            }
        };
        let value = match &record.value {
            Body::Null => Payload::Null,
            Body::Document(document) => {
                let (kind, span) = span(running, document);
                Payload::Cell(kind, span)
            }
            Body::Bytes(bytes) => {
                let start = running.bytes.len() as u32;
                running.bytes.extend_from_slice(bytes);
                Payload::Bytes(Span { arena: 0, start, len: bytes.len() as u32 })
            }
        };
        let mut headers = Row::NO_HEADERS;
        if !record.headers.is_empty() {
            headers = running.batch.headers.len() as u32;
            running.batch.headers.push(record.headers.clone());
        }
        running.batch.rows.push(Row {
            origin: Origin { input: place.input, epoch: arrival.epoch, offset: arrival.offset, child: 0 },
            timestamp: record.t.unwrap_or(NONE_YET),
            key,
            value,
            headers,
            kind: crate::batch::Kind::Insert,
            window: Row::NO_WINDOW,
            arrival: 0,
            // The task knows its positions.
            redelivered: false,
        });
        Ok(())
    }

    /// Sends what has gathered.
    fn flush(&mut self) -> Result<(), End> {
        for task in 0..self.running.len() {
            let running = &mut self.running[task];
            if running.batch.rows.is_empty() {
                continue;
            }
            let mut batch = std::mem::take(&mut running.batch);
            batch.add_arena(std::mem::take(&mut running.bytes));
            batch.now = self.now;
            self.fresh();
            let running = &mut self.running[task];
            self.heard.from_inputs(&running.places);
            running.task.push(&mut self.chain, batch, &mut self.heard).map_err(End::Stopped)?;
        }
        Ok(())
    }

    fn event(&mut self, task: usize, event: InputEvent) -> Result<(), End> {
        self.flush()?;
        self.fresh();
        let Some(running) = self.running.get_mut(task) else { return Ok(()) };
        self.heard.from_inputs(&running.places);
        running.task.event(&mut self.chain, event, self.now, &mut self.heard).map_err(End::Stopped)
    }

    fn fresh(&mut self) {
        if matches!(self.cuts, Cuts::Random(_)) {
            self.chain.discard();
        }
    }

    fn each_input(&mut self, partition: i32, event: fn(u16) -> InputEvent) -> Result<(), End> {
        let inputs: Vec<(usize, u16)> =
            self.places.iter().filter(|p| p.partition == partition).map(|p| (p.task, p.input)).collect();
        inputs.into_iter().try_for_each(|(task, input)| self.event(task, event(input)))
    }

    fn finish(&mut self, partition: Option<i32>) -> Result<(), End> {
        match partition {
            Some(partition) => self.each_input(partition, InputEvent::Finished),
            None => {
                self.ended = true;
                (0..self.running.len()).try_for_each(|task| self.event(task, InputEvent::End))
            }
        }
    }

    fn block(&mut self, partition: i32, blocked: bool) -> Result<(), End> {
        for place in self.places.iter_mut().filter(|p| p.partition == partition) {
            place.blocked = blocked;
        }
        self.each_input(partition, if blocked { InputEvent::Blocked } else { InputEvent::Unblocked })
    }

    /// Processing time goes on, instant by instant; it never goes back.
    fn clock(&mut self, to: i64) -> Result<(), End> {
        if to <= self.now {
            return Ok(());
        }
        self.flush()?;
        let mut patience = PATIENCE;
        while let Some(due) = self.running.iter().filter_map(|r| r.task.deadline()).min().filter(|&due| due <= to) {
            if due > self.now {
                self.now = due;
                patience = PATIENCE;
            }
            patience -= 1;
            if patience == 0 {
                return Err(End::Broken("a task stays due whatever happens".into()));
            }
            self.tick()?;
        }
        self.now = to;
        Ok(())
    }

    /// What is due now fires.
    fn tick(&mut self) -> Result<(), End> {
        for task in 0..self.running.len() {
            if self.running[task].task.deadline().is_some_and(|due| due <= self.now) {
                self.event(task, InputEvent::Clock)?;
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), End> {
        self.flush()?;
        let plan = &self.chain.plan;
        let tasks: anyhow::Result<Vec<Vec<u8>>> =
            self.running.iter_mut().map(|running| running.task.snapshot(plan)).collect();
        let tasks = tasks.map_err(|error| End::Broken(format!("the state cannot be written: {error}")))?;
        self.saved = Some(Saved { tasks, places: self.places.clone(), rows: self.heard.rows.len(), ended: self.ended });
        self.since.clear();
        Ok(())
    }

    fn restart(&mut self, settings: &Replace) -> Result<(), End> {
        self.commit()?;
        let stored = self.chain.plan.stages.iter().map(|s| (s.id.clone(), s.identity.clone())).collect();
        self.restarts.push(settings.clone());
        let plan = self.planner.plan(&self.restarts, &stored).map_err(End::Refused)?;
        self.chain = Chain::open(&plan, false);
        self.restore()
    }

    /// Starts from the last commit, or from nothing.
    fn restore(&mut self) -> Result<(), End> {
        let blocked: Vec<i32> = self.places.iter().filter(|p| p.blocked).map(|p| p.partition).collect();
        match &self.saved {
            None => {
                for place in &mut self.places {
                    (place.next, place.last) = (0, None);
                }
                self.ended = false;
                self.start();
            }
            Some(saved) => {
                for (running, snapshot) in self.running.iter_mut().zip(&saved.tasks) {
                    running.batch = Batch::default();
                    running.bytes.clear();
                    running.task = Task::restore(&self.chain, snapshot, self.now)
                        .map_err(|error| End::Broken(format!("the state does not come back: {error}")))?;
                    // Input that had ended goes on: a second run.
                    if saved.ended {
                        running.task.reopen();
                    }
                }
                self.ended = saved.ended;
                for (place, saved) in self.places.iter_mut().zip(&saved.places) {
                    (place.next, place.last) = (saved.next, saved.last);
                }
            }
        }
        // Not reading a partition is the script's word, and holds until it is taken back.
        blocked.into_iter().collect::<BTreeSet<i32>>().into_iter().try_for_each(|p| self.block(p, true))
    }

    fn crash(&mut self) -> Result<(), End> {
        self.flush()?;
        let again = std::mem::take(&mut self.since);
        if self.test.exactly_once {
            self.heard.rows.truncate(self.saved.as_ref().map_or(0, |saved| saved.rows));
        }
        self.restore()?;
        self.tick()?;
        again.into_iter().try_for_each(|word| self.say(word))
    }

    /// The counters of all tasks, added up.
    fn count(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        let mut counted: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for (stage, counters) in self.running.iter().flat_map(|running| running.task.counters(&self.chain.plan)) {
            let sums = counted.entry(stage).or_default();
            for (name, n) in counters {
                *sums.entry(name).or_default() += n;
            }
        }
        counted
    }
}
