//! Checkpoints of the tasks of a worker, one task after the other, a slice of its state after each commit: the worker
//! copies for two milliseconds at most, and a thread writes what it copied. What the slices of a round are good for
//! is said in keyed/slices.rs: with the changes since the round began they are the state. So the head of a checkpoint
//! names an offset of the changelog from before the round began, and is written last.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;

use super::buried::Buried;
use super::changelog::Marker;
use super::checkpoints::Checkpoints;
use super::group::Place;
use super::member::Slot;
use super::token::Token;
use crate::format::{self, Kind};
use crate::plan::Plan;
use crate::task::{Slices, Task};

/// How long a commit may be held up by a slice.
const SLICE: Duration = Duration::from_millis(2);
/// Marks and entries in one piece.
const PIECE: usize = 1024;
/// Pieces that wait for the thread that writes.
const AHEAD: usize = 8;
/// How long the cluster may take to say where a changelog ends.
const PATIENCE: Duration = Duration::from_secs(2);

/// The checkpoints of one worker.
pub struct Rounds {
    checkpoints: Checkpoints,
    member: Slot,
    /// What the last commit of each task said.
    last: HashMap<Place, Marker>,
    /// Tasks whose turn comes, with their changelogs.
    due: VecDeque<(Place, String)>,
    running: Option<Round>,
    /// Token that the last checkpoint of each task began with.
    written: HashMap<Place, String>,
}

/// The checkpoint of one task while it is written. Dropped before its end it leaves the one before it.
struct Round {
    place: Place,
    /// None: there is nothing more to write.
    orders: Option<SyncSender<Order>>,
    /// Where the changelog ended a little before the round began; then whether it was written to its end.
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
    /// Token of the commit after which it began.
    token: Option<String>,
    slices: Slices,
    /// What there was no room for.
    waiting: Option<Order>,
}

enum Order {
    Begin(Vec<u8>),
    Part(Vec<u8>),
    End,
}

enum Answer {
    End(i64),
    Done(bool),
}

/// How far a round has come.
#[derive(PartialEq, Eq)]
enum Progress {
    /// It goes on after the next commit.
    Going,
    /// There is a checkpoint.
    Written,
    /// There is none.
    Over,
}

impl Rounds {
    /// No checkpoint is being written. `member` is asked where changelogs end.
    pub fn new(checkpoints: Checkpoints, member: Slot) -> Rounds {
        let (last, written) = (HashMap::new(), HashMap::new());
        Rounds { checkpoints, member, last, due: VecDeque::new(), running: None, written }
    }

    /// A task was committed.
    pub fn committed(&mut self, place: Place, marker: Marker) {
        self.last.insert(place, marker);
    }

    /// It is time for checkpoints of all tasks that have changed since their last one.
    pub fn ask(&mut self, changelog: impl Fn(&Place) -> Option<String>) {
        for (place, marker) in &self.last {
            let is_running = self.running.as_ref().is_some_and(|round| round.place == *place);
            let is_due = is_running || self.due.iter().any(|(due, _)| due == place);
            if !is_due
                && self.written.get(place) != Some(&marker.token)
                && let Some(changelog) = changelog(place)
            {
                self.due.push_back((place.clone(), changelog));
            }
        }
    }

    /// Goes on for as long as one commit may be held up. Call it right after a commit.
    pub fn go_on(&mut self, plan: &Plan, tasks: &[&mut Task], buried: &Buried) {
        let until = Instant::now() + SLICE;
        if self.running.is_none()
            && let Some((place, changelog)) = self.due.pop_front()
        {
            self.running = Round::start(&self.checkpoints, &self.member, place, changelog);
        }
        let Some(mut round) = self.running.take() else { return };
        let task = tasks.iter().find(|task| task.input(&round.place.0, round.place.1).is_some());
        let (Some(task), Some(marker)) = (task, self.last.get(&round.place)) else {
            self.last.remove(&round.place);
            return;
        };
        match round.go_on(plan, task, marker, buried, until, false) {
            Progress::Going => self.running = Some(round),
            Progress::Written => self.is_written(round),
            Progress::Over => {}
        }
    }

    /// Writes the checkpoint of a task that leaves, or of a run that ends, as far as that is done until then.
    pub fn finish(
        &mut self,
        plan: &Plan,
        task: &Task,
        place: &Place,
        changelog: Option<String>,
        buried: &Buried,
        until: Instant,
    ) {
        self.due.retain(|(due, _)| due != place);
        let running = self.running.take_if(|round| round.place == *place);
        let (Some(marker), Some(changelog)) = (self.last.get(place), changelog) else { return };
        if self.written.get(place) == Some(&marker.token) {
            return;
        }
        let start = || Round::start(&self.checkpoints, &self.member, place.clone(), changelog);
        let Some(mut round) = running.or_else(start) else { return };
        if round.go_on(plan, task, marker, buried, until, true) == Progress::Written {
            self.is_written(round);
        }
    }

    fn is_written(&mut self, mut round: Round) {
        let token = round.token.take().unwrap_or_default();
        tracing::debug!(topic = &*round.place.0, partition = round.place.1, token, "checkpoint written");
        self.written.insert(round.place.clone(), token);
    }

    /// How many commits the last checkpoint of a task is behind, of those that this process wrote; all without one.
    pub fn behind(&self, place: &Place) -> u64 {
        let number = |token: &str| Token::parse(token.as_bytes()).map_or(0, |token| token.sequence);
        let written = self.written.get(place).map_or(0, |token| number(token));
        self.last.get(place).map_or(0, |marker| number(&marker.token)).saturating_sub(written)
    }

    /// A task is somebody else's, or begins anew.
    pub fn forget(&mut self, place: &Place) {
        self.last.remove(place);
        self.due.retain(|(due, _)| due != place);
        self.running.take_if(|round| round.place == *place);
    }

    /// All tasks begin anew: what was written of the running round does not fit them.
    pub fn give_up(&mut self) {
        self.running = None;
    }
}

impl Round {
    fn start(checkpoints: &Checkpoints, member: &Slot, place: Place, changelog: String) -> Option<Round> {
        let (orders, received) = sync_channel(AHEAD);
        // Room for both: whoever gives a round up before it hears the first waits for the thread to end.
        let (say, answers) = sync_channel(2);
        let consumer = Arc::clone(member.borrow().as_ref()?);
        let (checkpoints, at) = (checkpoints.clone(), place.clone());
        let work = move || {
            let end = consumer.fetch_watermarks(&changelog, at.1, PATIENCE);
            drop(consumer);
            // Whoever does not hear the answer has given the round up.
            if let Ok((_, end)) = end {
                let _ = say.send(Answer::End(end));
                let done = write(&checkpoints, &changelog, &at, &received);
                let _ = say.send(Answer::Done(done));
            }
        };
        let log = tracing::dispatcher::get_default(Clone::clone);
        let thread = std::thread::Builder::new().name("checkpoints".to_owned());
        let thread = thread.spawn(move || tracing::dispatcher::with_default(&log, work));
        match thread {
            Ok(thread) => {
                let (orders, thread, slices) = (Some(orders), Some(thread), Slices::default());
                Some(Round { place, orders, answers, thread, token: None, slices, waiting: None })
            }
            Err(error) => {
                tracing::warn!("no checkpoint: {error}");
                None
            }
        }
    }

    /// Copies until then. `waits`: what the thread does is waited for, until then.
    fn go_on(
        &mut self,
        plan: &Plan,
        task: &Task,
        marker: &Marker,
        buried: &Buried,
        until: Instant,
        waits: bool,
    ) -> Progress {
        if self.token.is_none() {
            let offset = match self.answer(until, waits) {
                Ok(Some(Answer::End(offset))) => offset,
                Ok(Some(Answer::Done(_))) | Err(()) => return Progress::Over,
                Ok(None) => return Progress::Going,
            };
            let Some(head) = Checkpoints::head(offset, marker.clone(), buried, &self.place) else {
                return Progress::Over;
            };
            self.token = Some(marker.token.clone());
            self.waiting = Some(Order::Begin(head));
        }
        while self.orders.is_some() {
            match self.hand_over(until, waits) {
                Ok(true) => {}
                Ok(false) => return Progress::Going,
                Err(()) => return Progress::Over,
            }
            if self.orders.is_none() {
                break;
            }
            if Instant::now() >= until {
                return Progress::Going;
            }
            self.waiting = Some(match task.dump_some(plan, &mut self.slices, PIECE) {
                Some(piece) => match format::write_task(Kind::Snapshot, &marker.task, &[piece]) {
                    Ok(part) => Order::Part(part),
                    Err(error) => {
                        tracing::warn!("no checkpoint: {error}");
                        return Progress::Over;
                    }
                },
                None => Order::End,
            });
        }
        match self.answer(until, waits) {
            Ok(None) => Progress::Going,
            Ok(Some(Answer::Done(true))) => Progress::Written,
            Ok(Some(_)) | Err(()) => Progress::Over,
        }
    }

    /// Gives what waits to the thread; false: there was no room for it.
    fn hand_over(&mut self, until: Instant, waits: bool) -> Result<bool, ()> {
        while let (Some(orders), Some(order)) = (&self.orders, self.waiting.take()) {
            let is_last = matches!(order, Order::End);
            match orders.try_send(order) {
                Ok(()) if is_last => self.orders = None,
                Ok(()) => {}
                Err(TrySendError::Full(order)) => {
                    self.waiting = Some(order);
                    if !waits || Instant::now() >= until {
                        return Ok(false);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(TrySendError::Disconnected(_)) => return Err(()),
            }
        }
        Ok(true)
    }

    /// What the thread says, if it says anything. The error: it says no more.
    fn answer(&self, until: Instant, waits: bool) -> Result<Option<Answer>, ()> {
        let left = if waits { until.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
        match self.answers.recv_timeout(left) {
            Ok(answer) => Ok(Some(answer)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        // The thread ends when nobody can give orders any more; the store is free then.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // It does not panic, and if it did there would be no checkpoint.
            let _ = thread.join();
        }
    }
}

/// Writes what it is told to; true: to the end. Whatever goes wrong, there is no checkpoint, which costs a longer restart
/// and nothing else.
fn write(checkpoints: &Checkpoints, changelog: &str, place: &Place, orders: &Receiver<Order>) -> bool {
    let mut checkpoint = checkpoints.open(changelog, place);
    let mut is_whole = false;
    while let Ok(order) = orders.recv() {
        match order {
            Order::Begin(head) => checkpoint.begin(&head),
            Order::Part(part) => checkpoint.put(part),
            Order::End => {
                is_whole = checkpoint.finish();
                break;
            }
        }
    }
    for trouble in checkpoint.troubles() {
        tracing::warn!("the checkpoint of {}/{} was begun anew (nothing is lost): {trouble}", place.0, place.1);
    }
    is_whole
}
