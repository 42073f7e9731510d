//! The tasks of a script: what a source says goes in, and waits where it cannot be done now.
//!
//! A delivery that fails is undone with everything that brought it about, and its task stands still: what the source says
//! from then on waits, and is done in its order, at the processing time of that moment, once deliveries work again (R1).
//! It is the same with a state that cannot be reached (X12). A task whose state is full waits for room (X8): its time
//! goes on, and after every step of the clock it tries again.

use std::sync::Arc;

use super::play::{Cuts, End, Player};
use super::record::Record;
use super::rows::Gathering;
use crate::chain::{Failure, Route, Stop};
use crate::task::{Input, InputEvent, Task};

/// One task and the batch that gathers for it.
pub(super) struct Running {
    pub(super) task: Task,
    pub(super) inputs: Vec<Input>,
    /// Numbers of its inputs among all.
    pub(super) places: Vec<u16>,
    pub(super) gathering: Gathering,
    /// What the rows of the batch were.
    pub(super) gathered: Vec<(Arc<Arrival>, u64)>,
    /// It waits.
    pub(super) held: Option<Held>,
}

/// Why a task waits.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Its time goes on: a record found no room.
    pub(super) has_time: bool,
    /// What it waits for to end.
    pub(super) why: Stop,
}

/// A record at its position.
pub(super) struct Arrival {
    pub(super) place: usize,
    pub(super) epoch: i32,
    pub(super) offset: i64,
    pub(super) record: Record,
}

/// What one task is told.
#[derive(Clone)]
pub(super) enum Act {
    Record(Arc<Arrival>),
    Event(InputEvent),
}

/// What waits for a task: the act, and the number of the source's word it is a part of.
pub(super) struct Waiting {
    task: usize,
    act: Act,
    pub(super) word: u64,
}

impl Player<'_> {
    /// Tells a task something, now or when it no longer waits.
    pub(super) fn act(&mut self, task: usize, act: Act, word: u64) -> Result<(), End> {
        // What gathers may be what makes it wait.
        if matches!(act, Act::Event(_)) {
            self.flush()?;
        }
        if self.running.get(task).is_none_or(|running| running.held.is_some()) {
            self.waiting.push(Waiting { task, act, word });
            return Ok(());
        }
        match act {
            Act::Record(arrival) => self.gather(task, arrival, word),
            Act::Event(event) => self.event(task, event, word),
        }
    }

    /// Adds a record to the batch of its task.
    fn gather(&mut self, task: usize, arrival: Arc<Arrival>, word: u64) -> Result<(), End> {
        let limits = &self.chain.plan.pipeline.limits;
        let full = self.running.get(task).is_some_and(|running| {
            let gathering = &running.gathering;
            gathering.batch.rows.len() >= limits.batch_rows || gathering.bytes.len() >= limits.batch_bytes
        });
        // Rows of different tasks leave in the order they came.
        let other = self.running.iter().enumerate().any(|(n, running)| n != task && !running.gathered.is_empty());
        let cut = match &mut self.cuts {
            Cuts::Asked => false,
            Cuts::Random(dice) => dice.below(4) == 0,
        };
        if full || other || cut {
            self.flush()?;
            if self.running[task].held.is_some() {
                self.waiting.push(Waiting { task, act: Act::Record(arrival), word });
                return Ok(());
            }
        }
        let input = self.places[arrival.place].input;
        let running = &mut self.running[task];
        running.gathering.add(&arrival.record, input, arrival.epoch, arrival.offset, &mut self.builder);
        running.gathered.push((arrival, word));
        // One record at a time shows which delivery fails.
        if self.sink_fails { self.flush() } else { Ok(()) }
    }

    /// Sends what has gathered.
    pub(super) fn flush(&mut self) -> Result<(), End> {
        for task in 0..self.running.len() {
            if !self.running[task].gathered.is_empty() {
                self.push(task)?;
            }
        }
        Ok(())
    }

    fn push(&mut self, task: usize) -> Result<(), End> {
        self.fresh();
        let running = &mut self.running[task];
        let batch = running.gathering.take(self.now);
        let gathered = std::mem::take(&mut running.gathered);
        self.heard.from_inputs(&running.places);
        let (savepoint, mark) = (running.task.savepoint(), self.heard.rows.len());
        let pushed = running.task.push(&mut self.chain, batch, &mut self.heard);
        let (done, held) = match pushed {
            Ok(()) if !self.delivery_fails(mark) => return Ok(()),
            Ok(()) => (0, Held { has_time: false, why: undelivered() }),
            Err(why) if !why.pause => return Err(End::Stopped(why)),
            Err(why) => match why.origin {
                // What came before it is done.
                Some(origin) => {
                    let own = |arrival: &Arrival| (self.places[arrival.place].input, arrival.epoch, arrival.offset);
                    let guilty = (origin.input, origin.epoch, origin.offset);
                    let done = gathered.iter().position(|(arrival, _)| own(arrival) == guilty).unwrap_or(0);
                    (done, Held { has_time: !self.state_fails, why })
                }
                None => (0, Held { has_time: false, why }),
            },
        };
        if held.why.origin.is_none() {
            self.running[task].task.undo(savepoint);
            self.heard.rows.truncate(mark);
        }
        self.hold(task, held);
        let rest = gathered.into_iter().skip(done);
        self.waiting.extend(rest.map(|(arrival, word)| Waiting { task, act: Act::Record(arrival), word }));
        Ok(())
    }

    fn event(&mut self, task: usize, event: InputEvent, word: u64) -> Result<(), End> {
        self.fresh();
        let Some(running) = self.running.get_mut(task) else { return Ok(()) };
        self.heard.from_inputs(&running.places);
        let (savepoint, mark) = (running.task.savepoint(), self.heard.rows.len());
        let why = match running.task.event(&mut self.chain, event, self.now, &mut self.heard) {
            Ok(()) if !self.delivery_fails(mark) => return Ok(()),
            Ok(()) => undelivered(),
            Err(why) if why.pause => why,
            Err(why) => return Err(End::Stopped(why)),
        };
        self.running[task].task.undo(savepoint);
        self.heard.rows.truncate(mark);
        self.hold(task, Held { has_time: false, why });
        if event != InputEvent::Clock {
            self.waiting.push(Waiting { task, act: Act::Event(event), word });
        }
        Ok(())
    }

    /// Whether something was to be delivered since a mark, and cannot be.
    fn delivery_fails(&self, mark: usize) -> bool {
        self.sink_fails && self.heard.rows.iter().skip(mark).any(|row| row.route == Route::Main)
    }

    fn hold(&mut self, task: usize, held: Held) {
        let running = &mut self.running[task];
        running.task.hold();
        running.held = Some(held);
    }

    /// Tasks try again to do what waits for them. `all`: also those whose time stands.
    pub(super) fn retry(&mut self, all: bool) -> Result<(), End> {
        if self.running.iter().all(|running| running.held.is_none()) {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        for running in &mut self.running {
            if running.held.take_if(|held| all || held.has_time).is_some() {
                running.task.release(self.now);
            }
        }
        self.tick()?;
        for Waiting { task, act, word } in waiting {
            self.act(task, act, word)?;
        }
        self.flush()
    }

    /// What is due now fires.
    pub(super) fn tick(&mut self) -> Result<(), End> {
        for task in 0..self.running.len() {
            if self.deadline(task).is_some_and(|due| due <= self.now) {
                self.event(task, InputEvent::Clock, 0)?;
            }
        }
        Ok(())
    }

    /// When something is due in a task whose time goes on.
    fn deadline(&self, task: usize) -> Option<i64> {
        let running = self.running.get(task)?;
        running.task.deadline().filter(|_| running.held.as_ref().is_none_or(|held| held.has_time))
    }

    /// When something is due anywhere.
    pub(super) fn next_due(&self) -> Option<i64> {
        (0..self.running.len()).filter_map(|task| self.deadline(task)).min()
    }

    fn fresh(&mut self) {
        if matches!(self.cuts, Cuts::Random(_)) {
            self.chain.discard();
        }
    }
}

fn undelivered() -> Stop {
    let failure = Failure {
        stage: "sink".to_owned(),
        code: "sink".to_owned(),
        text: "a delivery fails".to_owned(),
        category: 1,
        module: None,
        digest: None,
    };
    Stop { failure, origin: None, pause: true }
}
