//! What an operator asks of a running task: to forget, to go on under other settings, to wait.

use super::{Activity, Batch, Chain, Keyed, Plan, Stop, Task};
use crate::format;

impl Task {
    /// Frees everything that the keyed stages know, candidates that wait included; nothing is emitted for it (X11).
    /// Positions, watermarks and counters stay. Commit afterwards: until then a crash takes it back. Gives the number of
    /// marks and entries.
    pub fn forget_all(&mut self) -> u64 {
        self.states.iter_mut().flatten().map(Keyed::drop_all).sum()
    }

    /// The same for the stages that a predicate names by their ids.
    pub fn forget_stages(&mut self, plan: &Plan, is_meant: impl Fn(&str) -> bool) -> u64 {
        let stages = plan.stages.iter().zip(&mut self.states).filter(|(stage, _)| is_meant(&stage.id));
        stages.filter_map(|(_, state)| state.as_mut()).map(Keyed::drop_all).sum()
    }

    /// Frees what the keyed stages know of the keys of these records, as `forget_all` does, and gives the number of
    /// marks and entries. Keys are made of the records as they are given: what stages change of a record on its way
    /// must be changed already. `Err`: a record cannot be decoded, or has no key; nothing is freed then.
    pub fn forget(&mut self, chain: &mut Chain, mut batch: Batch) -> Result<u64, Stop> {
        if let Some((_, failure)) = chain.decode(&mut batch)?.into_iter().next() {
            return Err(Stop { failure, origin: None, pause: false });
        }
        let keys = chain.keys(&batch, &self.marker.inputs, self.marker.salt)?;
        let mut freed = 0;
        for (state, keys) in self.states.iter_mut().zip(keys) {
            if let Some(keyed) = state {
                freed += keys.into_iter().map(|key| keyed.forget(key)).sum::<u64>();
            }
        }
        Ok(freed)
    }

    /// Goes on under the plan of another chain: state, wakes, watermarks, positions, counters and idle timers stay with
    /// the stages of the same id. Make that plan with the identities of the old one as `Conditions::stored`, so that it
    /// is refused where state does not fit (R8), and call this right after a commit: the log of changes begins anew.
    pub fn reload(&mut self, old: &Plan, chain: &Chain) {
        let at = |id: &str| old.stages.iter().position(|stage| stage.id == id);
        let mut task = Task::with(chain, self.marker.clone(), self.now);
        task.gone = std::mem::take(&mut self.gone);
        task.heard = std::mem::take(&mut self.heard);
        task.blocked = std::mem::take(&mut self.blocked);
        task.held = self.held;
        for (stage, state) in chain.plan.stages.iter().zip(&mut task.states) {
            let Some(new) = state.as_mut() else { continue };
            let kept = at(&stage.id).and_then(|at| self.states.get_mut(at)?.take());
            if let Some(kept) = kept {
                *new = kept.with_settings(*new.settings());
            }
        }
        task.set_failing(self.failing);
        *self = task;
    }

    /// A task that begins anew where a snapshot stands: positions, inputs that have ended and counters are left of it,
    /// state and time are not (`state: { store: memory }`).
    pub fn renew(chain: &Chain, snapshot: &[u8], now: i64) -> anyhow::Result<Task> {
        let (old, _) = format::read_snapshot(snapshot)?;
        let mut task = Task::new(chain, old.inputs, old.salt, now);
        for (activity, was) in task.marker.activity.iter_mut().zip(old.activity) {
            if was == Activity::Finished {
                *activity = was;
            }
        }
        task.marker.positions = old.positions;
        task.marker.arrivals = old.arrivals;
        task.marker.invalid_time = old.invalid_time;
        (task.marker.stages, task.marker.counters) = (old.stages, old.counters);
        task.marker.count_for(&chain.plan);
        Ok(task)
    }

    /// Nothing is read for this task from now on: that time does not count as silence (W5).
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// It is read again; idle timers begin anew. `now` is processing time, ns.
    pub fn release(&mut self, now: i64) {
        self.held = false;
        self.heard.fill(now);
    }

    /// Says whether the keyed states can be reached; while they cannot, stages do what `on_error` says (X12).
    pub fn set_failing(&mut self, failing: bool) {
        self.failing = failing;
        self.states.iter_mut().flatten().for_each(|keyed: &mut Keyed| keyed.set_failing(failing));
    }
}
