//! Tasks that come and go while the worker runs: partitions move between the processes of a group.

use super::{Commit, Joined, NOWHERE, Outcome, Running, Worker};
use crate::files::Trouble;
use crate::task::Task;
use crate::time::Activity;

impl Worker<'_> {
    /// Takes a task whose state was restored.
    pub(super) fn join(&mut self, joined: Joined) -> Result<(), Trouble> {
        let Some(input) = self.inbox.inputs().get(usize::from(joined.input)).cloned() else { return Ok(()) };
        let now = self.inbox.now();
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
        self.outbox.came(&self.plan, &task, joined.dead);
        self.tasks.push(Running::new(task));
        let count = self.inbox.inputs().len();
        self.places.resize(count, NOWHERE);
        self.blocked.resize(count, false);
        if let Some(blocked) = self.blocked.get_mut(usize::from(joined.input)) {
            *blocked = false;
        }
        if let Some(place) = self.places.get_mut(usize::from(joined.input)) {
            *place = (self.tasks.len() - 1, 0);
        }
        Ok(())
    }

    /// Gives tasks up, after a commit if they are still ours.
    pub(super) fn leave(&mut self, inputs: &[u16], lost: bool) -> Result<(), Trouble> {
        if lost {
            self.outbox.abandon()?;
            self.forget();
            self.inbox.left()?;
            return self.inbox.rewind();
        }
        if self.commit(Commit::Usual)? == Outcome::Undone {
            // All begin anew, those that leave elsewhere.
            return self.inbox.left();
        }
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
        self.inbox.left()
    }

    /// Lets go of every task.
    pub(super) fn forget(&mut self) {
        self.tasks.clear();
        self.places.fill(NOWHERE);
        self.dirty = false;
    }
}
