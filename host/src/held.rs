//! Rows through a task, and what becomes of those that it cannot do now: they wait, with all behind them, or stop the
//! run. What came before them has left in either case.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::Origin;
use crate::chain::Failure;
use crate::files::Trouble;
use crate::files::sink::Refused;
use crate::files::source::Polling;
use crate::retry::Attempts;
use crate::worker::{Ended, Worker};

/// How long a task waits before it tries again to do what its state had no room for, ns.
const PAUSE: i64 = 100_000_000;

/// Rows that wait, for room in the state or for a failure to pass.
pub(crate) struct Held {
    pub(crate) polling: Polling,
    /// When they are tried again, processing time, ns.
    pub(crate) again: i64,
    /// What the first of them has behind it.
    pub(crate) attempts: Option<Attempts>,
}

impl Worker<'_> {
    /// Pushes rows through a task. What a row stops goes no further than that row. `attempts`: what the first row has
    /// behind it.
    pub(crate) fn push(
        &mut self,
        at: usize,
        mut polling: Polling,
        attempts: Option<Attempts>,
    ) -> Result<Option<Ended>, Trouble> {
        let now = self.inbox.now();
        let Some(running) = self.tasks.get_mut(at) else { return Ok(None) };
        self.dirty = true;
        polling.batch.now = now;
        self.outbox.enter(at, Arc::clone(&running.inputs), Some(&polling), now);
        self.outbox.give_up(self.retry.last(attempts, now));
        let (savepoint, mark) = (running.task.savepoint(), self.outbox.mark());
        let batch = if self.keeps { polling.batch.clone() } else { std::mem::take(&mut polling.batch) };
        let pushed = running.task.push(self.chain, batch, self.outbox);
        let refused = self.outbox.refused();
        let whole = pushed.as_ref().is_err_and(|stop| stop.origin.is_none());
        if whole || refused.is_some() {
            running.task.undo(savepoint);
            self.outbox.undo(mark);
        }
        if let Some(refused) = refused.filter(|_| !whole) {
            // What came before the record leaves; the record itself waits, or stops the run.
            return match refused.passing {
                true => self.try_later(at, polling, refused, attempts, now),
                false => {
                    let before = self.push_before(at, &polling, refused.origin)?;
                    self.inbox.taken(&polling, before);
                    Ok(Some(self.failed(at, refused.failure, Some(refused.origin))))
                }
            };
        }
        self.outbox.settle()?;
        let Err(stop) = pushed else {
            self.inbox.taken(&polling, polling.rows.len());
            return Ok(None);
        };
        let done = stop.origin.and_then(|origin| self.row_of(at, &polling, origin)).unwrap_or(0);
        self.inbox.taken(&polling, done);
        if !stop.pause {
            return Ok(Some(self.failed(at, stop.failure, stop.origin)));
        }
        polling.drop_first(done);
        let text = format!("{}: {}", stop.failure.stage, stop.failure.text);
        if !std::mem::replace(&mut self.paused, true) {
            self.outbox.note(&format!(
                "paused until there is room: {text}; ways out: a greater bound, `overflow: evict-oldest`, a window"
            ));
        }
        self.hold(at, Held { polling, again: now.saturating_add(PAUSE), attempts: None });
        Ok(None)
    }

    fn hold(&mut self, at: usize, held: Held) {
        if let Some(running) = self.tasks.get_mut(at) {
            running.held = Some(held);
        }
    }

    /// A row failed in a way that may pass: those before it leave, it waits with those behind it.
    fn try_later(
        &mut self,
        at: usize,
        mut polling: Polling,
        failed: Refused,
        attempts: Option<Attempts>,
        now: i64,
    ) -> Result<Option<Ended>, Trouble> {
        let (attempts, again) = self.retry.failed(failed.origin, attempts, now);
        if attempts.count == 1 {
            let Failure { stage, code, text, .. } = &failed.failure;
            let total = Duration::from_nanos(self.retry.total.unsigned_abs());
            self.outbox.note(&format!("{stage}: {code}: {text}; trying again for {total:?} (`errors.retry`)"));
        }
        let before = self.push_before(at, &polling, failed.origin)?;
        self.inbox.taken(&polling, before);
        polling.drop_first(before);
        self.hold(at, Held { polling, again, attempts: Some(attempts) });
        Ok(None)
    }

    /// Pushes the rows before one that holds the push up, and lets go what they gave. Says how many they are; 0 if one
    /// of them is held up now, too.
    fn push_before(&mut self, at: usize, polling: &Polling, guilty: Origin) -> Result<usize, Trouble> {
        let before = self.row_of(at, polling, guilty).unwrap_or(0);
        let Some(running) = self.tasks.get_mut(at).filter(|_| before > 0) else { return Ok(0) };
        let mut first = polling.batch.clone();
        first.keep(&(0..before as u32).collect::<Vec<u32>>());
        let (savepoint, mark) = (running.task.savepoint(), self.outbox.mark());
        let pushed = running.task.push(self.chain, first, self.outbox);
        if pushed.is_err() || self.outbox.refused().is_some() {
            running.task.undo(savepoint);
            self.outbox.undo(mark);
            return Ok(0);
        }
        self.outbox.settle()?;
        Ok(before)
    }

    /// Number in a poll of the row of this origin.
    fn row_of(&self, task: usize, polling: &Polling, origin: Origin) -> Option<usize> {
        polling.rows.iter().position(|row| row.offset == origin.offset && self.place(row.input) == (task, origin.input))
    }

    pub(crate) fn failed(&self, at: usize, failure: Failure, origin: Option<Origin>) -> Ended {
        let position = origin.and_then(|origin| {
            let input = self.tasks.get(at)?.inputs.get(usize::from(origin.input))?;
            Some((input.clone(), origin.offset))
        });
        Ended::Failed { failure, position }
    }
}
