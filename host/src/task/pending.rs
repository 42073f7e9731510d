//! Commits of which it is not known whether they last.

use super::{Activity, Keyed, Marker, Plan, Sealed, Task};

impl Task {
    /// As `seal`, but the changes can be taken back until `settle`.
    pub fn seal_pending(&mut self, plan: &Plan) -> Vec<Sealed> {
        let mut sealed = self.sealed(plan, Keyed::seal_pending);
        sealed.extend(self.part_with(Keyed::seal_pending));
        sealed
    }

    /// Writes to keyed state since the last seal.
    pub fn unsealed(&self) -> usize {
        self.states.iter().flatten().map(Keyed::unsealed).sum()
    }

    /// Marks that can be written before the seal, by stage (`Keyed::ahead`).
    pub fn ahead(&mut self, plan: &Plan) -> Vec<Sealed> {
        self.sealed(plan, Keyed::ahead)
    }

    /// At most so many writes would `ahead` give.
    pub fn unwritten(&self) -> usize {
        self.states.iter().flatten().map(Keyed::unwritten).sum()
    }

    /// The last seal lasts.
    pub fn settle(&mut self) {
        self.states.iter_mut().flatten().for_each(Keyed::settle);
        self.forget_gone();
    }

    /// Back to the last commit that lasts; `marker` is what the task knew then. Idle timers begin anew, as after a restart.
    /// `now` is processing time, ns.
    pub fn revert(&mut self, marker: Marker, now: i64) {
        self.states.iter_mut().flatten().for_each(Keyed::revert);
        for (_, keyed) in &mut self.gone {
            keyed.revert();
            keyed.use_sheaves();
        }
        self.marker = marker;
        self.go_on(now);
    }

    /// Goes on after a commit of which it was not known whether it lasts: it does.
    pub fn go_on(&mut self, now: i64) {
        self.settle();
        self.heard.fill(now);
        self.blocked.fill(false);
        self.held = false;
        // As a task that was restored: inputs that had finished may go on.
        if self.marker.activity.iter().all(|&activity| activity == Activity::Finished) {
            self.reopen();
        }
    }
}
