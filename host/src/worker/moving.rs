//! Tasks that come and go while the worker runs: partitions move between the processes of a group.

use super::{Commit, NOWHERE, Outcome, Running, Worker};
use crate::files::Trouble;
use crate::keyed::Keyed;
use crate::task::{Input, Marker, Outside, Task};
use crate::time::Activity;

/// Writes since the last commit after which the next one comes early: about 100 MB.
const LONG: usize = 1_000_000;
/// Writes of a task since it was asked last after which it is asked what can be written before the commit.
const AHEAD: usize = 256;
/// How long the task of a partition that was lost is kept, ns: it may come back with nothing done to it.
const COMES_BACK: i64 = 60_000_000_000;

/// An input whose task was restored elsewhere.
#[derive(Debug)]
pub struct Joined {
    /// Number of the input.
    pub input: u16,
    /// What its task knows; none: it begins.
    pub marker: Option<Marker>,
    /// State of its stages, by id.
    pub states: Vec<(String, Keyed)>,
    /// What else is kept of it where its state is.
    pub outside: Outside,
    /// Digest of the state of each stage, as it was committed.
    pub digests: Vec<(String, u128)>,
    /// The task that this worker kept is the right one, and there is nothing above: what became of its last commit, and the
    /// digest of its state.
    pub kept: Option<(Became, u128)>,
}

/// What became of a commit of which it was not known whether it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// It never happened: the state before it is the right one.
    Nothing,
    /// It is durable: the state behind it is the right one.
    Durable,
}

/// How a task came.
#[derive(Debug)]
pub enum Came {
    /// It was restored; what else is kept of it where its state is.
    Restored(Outside),
    /// It was kept.
    Kept(Became),
}

impl Worker<'_> {
    /// Takes a task whose state was restored.
    pub(super) fn join(&mut self, joined: Joined) -> Result<(), Trouble> {
        let Some(input) = self.inbox.inputs().get(usize::from(joined.input)).cloned() else { return Ok(()) };
        let now = self.inbox.now();
        let at = self.limbo.iter().position(|running| running.task.input(&input.topic, input.partition).is_some());
        let kept = at.map(|at| self.limbo.swap_remove(at));
        if let Some((became, digest)) = joined.kept {
            let Some(running) = kept.and_then(|kept| kept.resolve(became, digest, now)) else {
                return self.inbox.again(joined.input);
            };
            if self.inbox.joined(joined.input, true)? {
                self.outbox.came(&self.plan, &running.task, Came::Kept(became));
                self.place_task(joined.input, running);
            }
            return Ok(());
        }
        // Two states of one task need not be in memory longer than that.
        drop(kept);
        let mut task = match joined.marker {
            Some(marker) => Task::with(self.chain, marker, now),
            None => Task::new(self.chain, vec![input], self.salt, now),
        };
        for (stage, keyed) in joined.states {
            task.adopt(&self.plan, &stage, keyed);
        }
        if task.marker().activity.iter().all(|&a| a == Activity::Finished) {
            task.reopen();
        }
        let found = task.sums(&self.plan);
        let right =
            joined.digests.iter().all(|(stage, digest)| found.get(stage).is_none_or(|found| found.digest == *digest));
        if !self.inbox.joined(joined.input, right)? {
            return Ok(());
        }
        for (stage, count) in task.parts_with() {
            self.outbox.note(&parted(&self.plan.pipeline.name, stage, count));
        }
        self.outbox.came(&self.plan, &task, Came::Restored(joined.outside));
        let mut running = Running::new(task);
        if self.inbox.keeps_tasks() {
            running.keep();
        }
        self.place_task(joined.input, running);
        Ok(())
    }

    fn place_task(&mut self, input: u16, running: Running) {
        self.tasks.push(running);
        let count = self.inbox.inputs().len();
        self.places.resize(count, NOWHERE);
        self.blocked.resize(count, false);
        if let Some(blocked) = self.blocked.get_mut(usize::from(input)) {
            *blocked = false;
        }
        if let Some(place) = self.places.get_mut(usize::from(input)) {
            *place = (self.tasks.len() - 1, 0);
        }
    }

    /// Gives tasks up, after a commit if they are still ours.
    pub(super) fn leave(&mut self, inputs: &[u16], lost: bool) -> Result<(), Trouble> {
        if lost {
            self.outbox.abandon()?;
            self.forget();
            // They may come back.
            let now = self.inbox.now();
            self.in_limbo(inputs, |running| running.lost = Some(now));
            self.forget_suspects(inputs);
            self.inbox.left()?;
            self.inbox.rewind()?;
            return self.outbox.left();
        }
        if self.commit(Commit::Leaving)? == Outcome::Undone {
            // All begin anew, those that leave elsewhere.
            self.let_go(inputs);
            self.inbox.left()?;
            return self.outbox.left();
        }
        self.let_go(inputs);
        let all = self.tasks.len();
        let mut leaving: Vec<usize> = inputs.iter().map(|&input| self.place(input).0).filter(|&at| at < all).collect();
        leaving.sort_unstable();
        leaving.dedup();
        let tasks: Vec<&Task> = leaving.iter().filter_map(|&at| self.tasks.get(at)).map(|r| &r.task).collect();
        self.outbox.leave(&self.plan, &tasks);
        for at in leaving.into_iter().rev() {
            self.tasks.remove(at);
            for place in &mut self.places {
                match place.0 {
                    found if found == at => *place = NOWHERE,
                    found if found > at && *place != NOWHERE => place.0 -= 1,
                    _ => {}
                }
            }
        }
        self.inbox.left()?;
        self.outbox.left()
    }

    /// Nothing is kept for inputs that leave in peace: whoever has them next changes their state.
    fn let_go(&mut self, inputs: &[u16]) {
        self.in_limbo(inputs, |running| running.lost = Some(i64::MIN));
        self.limbo.retain(|running| running.lost != Some(i64::MIN));
        self.forget_suspects(inputs);
    }

    fn forget_suspects(&mut self, inputs: &[u16]) {
        let all = self.inbox.inputs();
        let gone: Vec<Input> = inputs.iter().filter_map(|&input| all.get(usize::from(input)).cloned()).collect();
        self.alone.forget(&gone);
    }

    fn in_limbo(&mut self, inputs: &[u16], mut act: impl FnMut(&mut Running)) {
        let all = self.inbox.inputs();
        let names: Vec<&Input> = inputs.iter().filter_map(|&input| all.get(usize::from(input))).collect();
        for running in &mut self.limbo {
            if names.iter().any(|name| running.task.input(&name.topic, name.partition).is_some()) {
                act(running);
            }
        }
    }

    /// Lets go of every task, or keeps them until it is known what became of their last commit.
    pub(super) fn forget(&mut self) {
        let tasks = std::mem::take(&mut self.tasks);
        if self.inbox.keeps_tasks() {
            self.limbo.extend(tasks);
        }
        self.places.fill(NOWHERE);
        self.dirty = false;
    }

    /// Time between commits now, ns.
    pub(super) fn interval(&self) -> i64 {
        self.alone.turn().map_or(self.pace.commit, |turn| turn.min(self.pace.commit))
    }

    /// What could be undone has grown so long that it is time for a commit.
    pub(super) fn is_log_long(&self) -> bool {
        self.tasks.iter().map(|running| running.task.unsealed()).sum::<usize>() > LONG
    }

    /// Lets go on its way what need not wait for the commit.
    pub(super) fn write_ahead(&mut self) {
        for running in self.tasks.iter_mut().filter(|running| running.task.unwritten() >= AHEAD) {
            self.outbox.ahead(&self.plan, &mut running.task);
        }
    }

    /// Whoever has the turn had nothing to commit.
    pub(super) fn pass_turn(&mut self, now: i64) {
        let is_over = now >= self.committed.saturating_add(self.interval());
        let is_there = self.tasks.iter().any(|running| self.alone.serves(&running.task));
        if self.alone.turn().is_some() && is_over && is_there && !self.dirty {
            self.end_turn();
            self.committed = now;
        }
    }

    pub(super) fn end_turn(&mut self) {
        self.alone.done(self.tasks.len());
    }

    /// A commit is durable.
    pub(super) fn settle(&mut self, now: i64) {
        if !self.inbox.keeps_tasks() {
            return;
        }
        for running in &mut self.tasks {
            running.task.settle();
            running.keep();
        }
        self.limbo.retain(|running| running.lost.is_none_or(|lost| now < lost.saturating_add(COMES_BACK)));
    }
}

impl Running {
    /// The task is as it was committed; it is kept in memory when a later commit fails.
    fn keep(&mut self) {
        self.committed = Some(Box::new(self.task.marker().clone()));
    }

    /// The same, if it is kept at all.
    pub(super) fn remember(&mut self) {
        if self.committed.is_some() {
            self.keep();
        }
    }

    /// The task as it is after its last commit that is durable; none: it is not the one it should be.
    fn resolve(mut self, became: Became, digest: u128, now: i64) -> Option<Running> {
        (self.held, self.lost) = (None, None);
        match became {
            Became::Nothing => self.task.revert(*self.committed.clone()?, now),
            Became::Durable => self.task.go_on(now),
        }
        self.keep();
        (self.task.digest() == digest).then_some(self)
    }
}

/// What is said when state is restored of a stage that the file has no more.
pub fn parted(pipeline: &str, stage: &str, count: u64) -> String {
    format!("{pipeline}: there is no stage `{stage}` any more: its state goes with the next commit: {count} entries")
}
