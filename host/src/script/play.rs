//! Plays a script through the real chain: the source, the clock, commits, stops and crashes are the script's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use tamis_guest::document::Builder;

use super::heard::Heard;
use super::moment::Moment;
use super::record::Record;
use super::rows::Gathering;
use super::running::{Act, Arrival, Running, Waiting};
use super::source::{Dice, indexed};
use super::{Replace, Said, Step, Test};
use crate::chain::{Chain, Stop};
use crate::config::diagnostic::Diagnostic;
use crate::plan::Plan;
use crate::task::{Input, InputEvent, Task};

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
    /// The script is over, and something still waits: for room, for a sink, for the state.
    Waits(Stop),
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
    let again = |said: &Said| matches!(said.step, Step::Crash | Step::Restart(_) | Step::Redeliver(_));
    let mut player = Player {
        test,
        planner,
        settings: Vec::new(),
        chain: Chain::open(plan, false),
        running: Vec::new(),
        places: Vec::new(),
        now: 0,
        heard: Heard::default(),
        ended: false,
        saved: None,
        remembers: test.input.iter().any(again),
        words: 0,
        since: Vec::new(),
        arrivals: Vec::new(),
        waiting: Vec::new(),
        sink_fails: false,
        state_fails: false,
        builder: Builder::new(),
        cuts,
    };
    player.place(inputs);
    player.start();
    let end = test.input.iter().try_for_each(|said| player.step(said)).and_then(|()| player.flush());
    let waits = || player.running.iter().find_map(|running| running.held.clone()).map(|held| End::Waits(held.why));
    let end = end.err().or_else(waits).unwrap_or(End::Over);
    Played { counters: player.count(), heard: player.heard, end }
}

/// One input of the source.
#[derive(Clone, Debug)]
pub(super) struct Place {
    topic: Arc<str>,
    partition: i32,
    task: usize,
    /// Its number within the task.
    pub(super) input: u16,
    next: i64,
    last: Option<(i32, i64)>,
    blocked: bool,
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

pub(super) struct Player<'a> {
    test: &'a Test,
    planner: &'a dyn Planner,
    /// Other settings, in the order in which they were made.
    settings: Vec<Replace>,
    pub(super) chain: Chain,
    pub(super) running: Vec<Running>,
    pub(super) places: Vec<Place>,
    pub(super) now: i64,
    pub(super) heard: Heard,
    ended: bool,
    saved: Option<Saved>,
    remembers: bool,
    /// Words of the source so far.
    words: u64,
    /// Its words since the last commit, by number.
    since: Vec<(u64, Word)>,
    arrivals: Vec<Arc<Arrival>>,
    /// What waits for tasks, in the order it was said.
    pub(super) waiting: Vec<Waiting>,
    pub(super) sink_fails: bool,
    pub(super) state_fails: bool,
    pub(super) builder: Builder,
    pub(super) cuts: Cuts,
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
            Step::Reload(settings) => self.reload(settings),
            Step::Forget(record) => self.forget(record.as_deref()),
            Step::Sink(works) => {
                self.flush()?;
                self.sink_fails = !works;
                self.retry(true)
            }
            Step::State(works) => {
                self.flush()?;
                self.state_fails = !works;
                self.reach_states();
                self.retry(true)
            }
            Step::Crash => self.crash(),
            Step::Redeliver(n) => {
                let from = self.arrivals.len().saturating_sub(*n);
                let again: Vec<Word> = self.arrivals[from..].iter().cloned().map(Word::Record).collect();
                again.into_iter().try_for_each(|word| self.say(word))
            }
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
                    gathering: Gathering::default(),
                    gathered: Vec::new(),
                    held: None,
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
        let Some(at) = self.place_of(&record) else {
            let (topic, partition) = (record.topic.as_deref().unwrap_or("test"), record.p.unwrap_or(0));
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
        self.words += 1;
        let number = self.words;
        if self.remembers {
            self.since.push((number, word.clone()));
        }
        match word {
            Word::Record(arrival) => {
                let place = &mut self.places[arrival.place];
                let newer = place.last.is_some_and(|(epoch, _)| epoch >= 0 && arrival.epoch > epoch);
                if newer || place.last.is_none_or(|(_, offset)| arrival.offset > offset) {
                    place.last = Some((arrival.epoch, arrival.offset));
                    place.next = arrival.offset + 1;
                }
                let task = place.task;
                self.act(task, Act::Record(arrival), number)
            }
            Word::End(Some(partition)) => self.each_input(partition, InputEvent::Finished, number),
            Word::End(None) => {
                self.ended = true;
                self.each_task(InputEvent::End, number)
            }
            Word::Idle(partition) => self.each_input(partition, InputEvent::Idle, number),
            Word::Watermark(time) => self.each_task(InputEvent::Watermark(time), number),
        }
    }

    fn each_input(&mut self, partition: i32, event: fn(u16) -> InputEvent, word: u64) -> Result<(), End> {
        let inputs: Vec<(usize, u16)> =
            self.places.iter().filter(|p| p.partition == partition).map(|p| (p.task, p.input)).collect();
        inputs.into_iter().try_for_each(|(task, input)| self.act(task, Act::Event(event(input)), word))
    }

    fn each_task(&mut self, event: InputEvent, word: u64) -> Result<(), End> {
        (0..self.running.len()).try_for_each(|task| self.act(task, Act::Event(event), word))
    }

    fn block(&mut self, partition: i32, blocked: bool) -> Result<(), End> {
        for place in self.places.iter_mut().filter(|p| p.partition == partition) {
            place.blocked = blocked;
        }
        self.each_input(partition, if blocked { InputEvent::Blocked } else { InputEvent::Unblocked }, 0)
    }

    /// Processing time goes on, instant by instant; it never goes back.
    fn clock(&mut self, to: i64) -> Result<(), End> {
        if to <= self.now {
            return Ok(());
        }
        self.flush()?;
        let mut patience = PATIENCE;
        while let Some(due) = self.next_due().filter(|&due| due <= to) {
            if due > self.now {
                self.now = due;
                patience = PATIENCE;
            }
            patience -= 1;
            if patience == 0 {
                return Err(End::Broken("a task stays due whatever happens".into()));
            }
            self.tick()?;
            self.retry(false)?;
        }
        self.now = to;
        // What only room can help may find it at this instant.
        self.retry(!self.sink_fails && !self.state_fails)
    }

    fn commit(&mut self) -> Result<(), End> {
        self.flush()?;
        let plan = &self.chain.plan;
        let tasks: anyhow::Result<Vec<Vec<u8>>> =
            self.running.iter_mut().map(|running| running.task.snapshot(plan)).collect();
        let tasks = tasks.map_err(|error| End::Broken(format!("the state cannot be written: {error}")))?;
        self.saved = Some(Saved { tasks, places: self.places.clone(), rows: self.heard.rows.len(), ended: self.ended });
        // What waits is not in the commit.
        let waiting: BTreeSet<u64> = self.waiting.iter().map(|waiting| waiting.word).collect();
        self.since.retain(|(word, _)| waiting.contains(word));
        Ok(())
    }

    /// The plan with other settings, against the state that is there.
    fn replan(&mut self, settings: &Replace) -> Result<Arc<Plan>, End> {
        let stored = self.chain.plan.stages.iter().map(|s| (s.id.clone(), s.identity.clone())).collect();
        self.settings.push(settings.clone());
        self.planner.plan(&self.settings, &stored).map_err(End::Refused)
    }

    fn restart(&mut self, settings: &Replace) -> Result<(), End> {
        self.commit()?;
        if !self.chain.plan.pipeline.state.durable {
            self.leave_open_scopes()?;
        }
        let plan = self.replan(settings)?;
        self.chain = Chain::open(&plan, false);
        let again = std::mem::take(&mut self.since);
        self.restore()?;
        self.say_again(again)
    }

    /// What is open leaves as it stands: state in memory does not outlive the process (R10).
    fn leave_open_scopes(&mut self) -> Result<(), End> {
        self.heard.partial = true;
        for task in 0..self.running.len() {
            if self.running[task].held.is_none() {
                self.act(task, Act::Event(InputEvent::End), 0)?;
            }
        }
        self.heard.partial = false;
        let rows = self.heard.rows.len();
        self.saved.iter_mut().for_each(|saved| saved.rows = rows);
        Ok(())
    }

    /// Starts from the last commit, or from nothing.
    fn restore(&mut self) -> Result<(), End> {
        let blocked: Vec<i32> = self.places.iter().filter(|p| p.blocked).map(|p| p.partition).collect();
        let durable = self.chain.plan.pipeline.state.durable;
        self.waiting.clear();
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
                    running.gathering = Gathering::default();
                    running.gathered.clear();
                    running.held = None;
                    let task = match durable {
                        true => Task::restore(&self.chain, snapshot, self.now),
                        false => Task::renew(&self.chain, snapshot, self.now),
                    };
                    running.task =
                        task.map_err(|error| End::Broken(format!("the state does not come back: {error}")))?;
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
        self.reach_states();
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
        self.say_again(again)
    }

    /// What is due fires; then the source says again what was not committed.
    fn say_again(&mut self, words: Vec<(u64, Word)>) -> Result<(), End> {
        self.tick()?;
        words.into_iter().try_for_each(|(_, word)| self.say(word))
    }

    /// Other settings, without a stop: state, idle timers and what waits go on.
    fn reload(&mut self, settings: &Replace) -> Result<(), End> {
        self.commit()?;
        let plan = self.replan(settings)?;
        let old = std::mem::replace(&mut self.chain, Chain::open(&plan, false)).plan;
        for running in &mut self.running {
            running.task.reload(&old, &self.chain);
        }
        self.retry(true)
    }

    /// Frees state: all of it, or what the key of a record has (X11).
    fn forget(&mut self, record: Option<&Record>) -> Result<(), End> {
        self.flush()?;
        let mut gathering = Gathering::default();
        let place = record.and_then(|record| self.place_of(record));
        let input = place.map_or(0, |at| self.places[at].input);
        if let Some(record) = record {
            let (epoch, offset) = (record.epoch.unwrap_or(-1), record.o.unwrap_or(0));
            gathering.add(record, input, epoch, offset, &mut self.builder);
        }
        let batch = gathering.take(self.now);
        for running in &mut self.running {
            match record {
                None => drop(running.task.forget_all()),
                Some(_) => drop(running.task.forget(&mut self.chain, batch.clone()).map_err(End::Stopped)?),
            }
        }
        self.retry(!self.sink_fails && !self.state_fails)
    }

    fn reach_states(&mut self) {
        for running in &mut self.running {
            running.task.set_failing(self.state_fails);
        }
    }

    fn place_of(&self, record: &Record) -> Option<usize> {
        let topic = record.topic.as_deref().unwrap_or("test");
        let partition = record.p.unwrap_or(0);
        self.places.iter().position(|p| &*p.topic == topic && p.partition == partition)
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
