//! Sinks and journal in step: output is synced before the record that makes it count is written.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Trouble;
use super::journal::Journal;
use super::sink::{Counts, Refused, SinkPosition, Sinks};
use super::source::{Polling, Position};
use crate::chain::{Emit, Out};
use crate::ops::Seat;
use crate::plan::Plan;
use crate::retry::Attempts;
use crate::task::{Input, Marker, Sealed, Slices, Task};
use crate::worker::{Commit, Outbox, Outcome};

/// How long a commit may be held up by the copy of the state.
const SLICE: Duration = Duration::from_millis(2);
/// Marks and entries in one piece of the copy.
const PIECE: usize = 1024;

/// Where rows go and what makes them last.
#[derive(Debug)]
pub struct Ledger {
    sinks: Sinks,
    /// None: nothing lasts.
    journal: Option<Journal>,
    /// Lengths of the sinks at the last commit.
    last: Vec<SinkPosition>,
    /// Most bytes that journal and checkpoints may take.
    quota: u64,
    /// They take more, and cannot be made to take less.
    full: Option<u64>,
    round: Round,
    /// Whether a stage may change a record, so that dead letters need the bytes that came.
    keep_polled: bool,
    /// Commits of this run.
    pub commits: u64,
    /// When progress was shown last; none: it is not shown.
    shown: Option<Instant>,
    /// Where it is told what was done.
    seat: Option<Arc<Seat>>,
    /// What the operator should know.
    pub notes: Vec<String>,
}

impl Ledger {
    /// Sinks that were cut back to the last commit, and the journal that told so.
    pub fn new(sinks: Sinks, journal: Option<Journal>, plan: &Plan) -> Ledger {
        let keep_polled = keeps_polled(plan);
        let (last, quota) = (sinks.positions(), plan.pipeline.state.quota);
        Ledger {
            last,
            sinks,
            journal,
            quota,
            full: None,
            round: Round::default(),
            keep_polled,
            commits: 0,
            shown: None,
            seat: None,
            notes: Vec::new(),
        }
    }

    /// Tells at this seat what is done.
    pub fn tell(&mut self, seat: Arc<Seat>) {
        self.sinks.tell(Arc::clone(&seat));
        self.seat = Some(seat);
    }

    /// What has left.
    pub fn counts(&self) -> Counts {
        self.sinks.counts
    }

    /// Says how often failures were repeated.
    pub fn close_log(&mut self) {
        self.sinks.close_log();
    }

    /// Shows a line on standard error that is redrawn as the run goes on.
    pub fn show_progress(&mut self, on: bool) {
        self.shown = on.then(Instant::now);
    }

    /// Takes the line away.
    pub fn end_progress(&mut self) {
        if self.shown.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn progress(&mut self, tasks: &[&mut Task]) {
        if !self.shown.is_some_and(|at| at.elapsed() > Duration::from_millis(500)) {
            return;
        }
        let records: u64 = tasks.iter().map(|task| task.marker().arrivals).sum();
        let _ = write!(std::io::stderr(), "\r\x1b[K{records} records in, {} out", self.sinks.counts.main);
        self.shown = Some(Instant::now());
    }

    fn try_commit(
        &mut self,
        plan: &Plan,
        tasks: &mut [&mut Task],
        source: Position,
        kind: Commit,
    ) -> Result<(), Trouble> {
        let Some(journal) = &mut self.journal else {
            // Nothing lasts; the log of undo starts anew all the same.
            for task in tasks {
                task.seal(plan);
            }
            return self.sinks.flush();
        };
        self.sinks.sync()?;
        let began = Instant::now();
        let positions = self.sinks.positions();
        let changes: Vec<Vec<Sealed>> = tasks.iter_mut().map(|task| task.seal(plan)).collect();
        let last = kind == Commit::Last;
        if journal.is_new() {
            let states: Vec<Vec<Sealed>> = tasks.iter_mut().map(|task| task.dump(plan)).collect();
            journal.begin(source.clone(), positions.clone(), &with_markers(tasks, states), last)?;
        } else {
            journal.commit(source.clone(), positions.clone(), &with_markers(tasks, changes), last)?;
        }
        if let Some(seat) = &self.seat {
            seat.state_committed(began.elapsed());
        }
        self.last = positions.clone();
        if kind == Commit::Checkpoint && !journal.is_copying() {
            self.round = Round::default();
            journal.begin_copy();
        }
        if journal.is_copying() && !last {
            self.round.go_on(journal, plan, tasks, &(source.clone(), positions.clone(), last))?;
        }
        let mut disk = journal.disk();
        if disk > self.quota && journal.can_shrink() {
            let states: Vec<Vec<Sealed>> = tasks.iter_mut().map(|task| task.dump(plan)).collect();
            journal.begin(source, positions, &with_markers(tasks, states), last)?;
            journal.shrink();
            disk = journal.disk();
        }
        self.full = (disk > self.quota).then_some(disk);
        Ok(())
    }
}

fn keeps_polled(plan: &Plan) -> bool {
    let changes = plan.stages.iter().any(|stage| !stage.writes.is_empty());
    changes && plan.pipeline.errors.dead_letter.is_some()
}

fn with_markers<'a>(tasks: &'a [&mut Task], states: Vec<Vec<Sealed>>) -> Vec<(&'a Marker, Vec<Sealed>)> {
    tasks.iter().map(|task| task.marker()).zip(states).collect()
}

/// Where the copy of all state stands that is written between commits.
#[derive(Debug, Default)]
struct Round {
    task: usize,
    at: Slices,
}

impl Round {
    /// Copies pieces for as long as one commit may be held up, and ends the copy with the last of them.
    fn go_on(
        &mut self,
        journal: &mut Journal,
        plan: &Plan,
        tasks: &[&mut Task],
        last: &(Position, Vec<SinkPosition>, bool),
    ) -> Result<(), Trouble> {
        let began = Instant::now();
        let markers: Vec<&Marker> = tasks.iter().map(|task| task.marker()).collect();
        while let Some(task) = tasks.get(self.task) {
            match task.dump_some(plan, &mut self.at, PIECE) {
                Some(piece) => journal.copy(last.clone(), &markers, self.task, piece),
                None => (self.task, self.at) = (self.task + 1, Slices::default()),
            }
            if began.elapsed() >= SLICE {
                journal.sync_copy();
                return Ok(());
            }
        }
        journal.end_copy()
    }
}

impl Out for Ledger {
    fn emit(&mut self, emit: Emit<'_>) {
        self.sinks.emit(emit);
    }

    fn mark(&mut self) -> usize {
        self.sinks.mark()
    }

    fn undo(&mut self, to: usize) {
        self.sinks.undo(to);
    }
}

impl Outbox for Ledger {
    fn enter(&mut self, task: usize, inputs: Arc<[Input]>, polled: Option<&Polling>, now: i64) {
        self.sinks.gate.may_wait = polled.is_some();
        if let (Some(seat), Some(polled)) = (&self.seat, polled) {
            seat.read(polled.batch.payload_bytes());
        }
        let polled = polled.filter(|_| self.keep_polled).map(|polled| polled.batch.clone());
        self.sinks.enter(task, inputs, polled, now);
    }

    fn refused(&self) -> Option<Refused> {
        self.sinks.refused().cloned()
    }

    fn give_up(&mut self, on: Option<Attempts>) {
        self.sinks.gate.given_up = on;
    }

    fn settle(&mut self) -> Result<(), Trouble> {
        let (began, some) = (Instant::now(), self.sinks.mark() > 0);
        self.sinks.settle()?;
        if let (Some(seat), true) = (&self.seat, some) {
            seat.sent(began.elapsed());
        }
        Ok(())
    }

    fn partial(&mut self) {
        self.sinks.partial = true;
    }

    fn commit(
        &mut self,
        plan: &Plan,
        tasks: &mut [&mut Task],
        source: Position,
        kind: Commit,
    ) -> Result<Outcome, Trouble> {
        let began = Instant::now();
        let done = self.try_commit(plan, tasks, source, kind);
        if let Some(seat) = &self.seat {
            match &done {
                Ok(()) => seat.committed(began.elapsed()),
                Err(_) => seat.commit_failed(),
            }
            seat.publish(plan, tasks, self.sinks.counts);
        }
        if done.is_err() && self.journal.is_some() {
            // The next run would do the same; a reader should not wait for it.
            let _ = self.sinks.cut(&self.last);
        }
        self.commits += 1;
        self.progress(tasks);
        done.map(|()| Outcome::Done)
    }

    fn full(&self) -> Option<String> {
        let print = crate::config::values::print_size;
        let disk = self.full?;
        Some(format!("the state takes {} on disk, `state.quota` is {}", print(disk), print(self.quota)))
    }

    fn reload(&mut self, plan: &Plan) {
        self.sinks.reload(plan);
        self.quota = plan.pipeline.state.quota;
        self.keep_polled = keeps_polled(plan);
        if let Some(journal) = &mut self.journal {
            journal.give_up_copy();
        }
    }

    fn note(&mut self, text: &str) {
        tracing::warn!("{text}");
        self.notes.push(text.to_owned());
    }
}
