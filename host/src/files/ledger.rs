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
use crate::task::{Input, Marker, Sealed, Task};
use crate::worker::{Commit, Outbox, Outcome};

/// Where rows go and what makes them last.
#[derive(Debug)]
pub struct Ledger {
    sinks: Sinks,
    /// None: nothing lasts.
    journal: Option<Journal>,
    /// Lengths of the sinks at the last commit.
    last: Vec<SinkPosition>,
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
        let changes = plan.stages.iter().any(|stage| !stage.writes.is_empty());
        let keep_polled = changes && plan.pipeline.errors.dead_letter.is_some();
        Ledger {
            last: sinks.positions(),
            sinks,
            journal,
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
        let positions = self.sinks.positions();
        let changes: Vec<Vec<Sealed>> = tasks.iter_mut().map(|task| task.seal(plan)).collect();
        let begins = journal.is_new() || (kind == Commit::Checkpoint && journal.is_long());
        let whole = |tasks: &mut [&mut Task]| -> Vec<Vec<Sealed>> { tasks.iter_mut().map(|t| t.dump(plan)).collect() };
        let states = if begins || kind == Commit::Checkpoint { whole(tasks) } else { Vec::new() };
        let tasks: &[&mut Task] = tasks;
        let with = |states: Vec<Vec<Sealed>>| -> Vec<(&Marker, Vec<Sealed>)> {
            tasks.iter().map(|task| task.marker()).zip(states).collect()
        };
        if begins {
            journal.begin(source, positions.clone(), &with(states.clone()), false)?;
        } else {
            journal.commit(source, positions.clone(), &with(changes), kind == Commit::Last)?;
        }
        if kind == Commit::Checkpoint {
            journal.checkpoint(&with(states));
        }
        self.last = positions;
        Ok(())
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
        let polled = polled.filter(|_| self.keep_polled).map(|polled| polled.batch.clone());
        self.sinks.enter(task, inputs, polled, now);
    }

    fn refused(&self) -> Option<Refused> {
        self.sinks.refused().cloned()
    }

    fn settle(&mut self) -> Result<(), Trouble> {
        self.sinks.settle()
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

    fn note(&mut self, text: &str) {
        tracing::warn!("{text}");
        self.notes.push(text.to_owned());
    }
}
