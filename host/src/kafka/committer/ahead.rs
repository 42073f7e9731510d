//! Changes of state that are on their way before the commit they belong to, so that a commit at full speed has little left
//! to write: the broker takes them in while records are still read. They are in the transaction of the interval, and are
//! gone with it if it is aborted.

use std::sync::Arc;

use super::{Committer, beat, next_sequence, nonce};
use crate::kafka::changelog;
use crate::kafka::group::Place;
use crate::plan::Plan;
use crate::task::Task;

impl Committer {
    /// Memory that values of records may lie in which are produced next: they are not copied. Gives its number; none: it
    /// would be too much, or there is no producer yet.
    pub fn lend(&mut self, bytes: &Arc<Vec<u8>>) -> Option<usize> {
        self.producer.as_mut()?.values().hold(bytes)
    }

    /// Memory to fill and to lend.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.producer.as_mut().map(|producer| producer.values().buffer()).unwrap_or_default()
    }

    /// Writes what a task has that need not wait. What goes wrong makes the interval void, which `commit` says.
    pub fn ahead(&mut self, plan: &Plan, task: &mut Task) {
        // Without a transaction state may not be written before the outputs it is of are delivered.
        if self.setup.transactional.is_none() || self.broken.is_some() || !self.txn.is_open() {
            return;
        }
        let Some(input) = task.marker().inputs.first() else { return };
        let place: Place = (Arc::clone(&input.topic), input.partition);
        let (Some(&topic), Some(producer)) = (self.setup.changelogs.get(&place.0), &mut self.producer) else { return };
        let sequence = next_sequence(&self.setup.tokens, &place);
        let mut pack = producer.pack();
        for state in task.ahead(plan) {
            let number = || self.buried.number(&place, &state.stage, &[], sheaf_number);
            changelog::records(&state, sequence, number, |key, value| pack.push(key, value));
        }
        self.broken = producer.produce_pack(topic, place.1, pack, || beat(self.seat.as_ref())).err();
    }
}

/// The number of a sheaf: no other of its changelog has it.
pub(super) fn sheaf_number() -> u128 {
    u128::from(nonce()) << 64 | u128::from(nonce())
}
