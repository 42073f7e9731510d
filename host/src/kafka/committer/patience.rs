//! How long the committer waits for a broker that does not answer.

use std::sync::atomic::Ordering;
use std::time::Instant;

use rdkafka::consumer::Consumer;

use super::Committer;
use crate::files::Trouble;

impl Committer {
    /// A group that waits for partitions does not wait for a broker for ever.
    pub(super) fn watch_group(&mut self) {
        let consumer = self.setup.consumer.borrow();
        if self.deadline.is_none() && consumer.as_ref().is_some_and(|consumer| consumer.context().is_waited_for()) {
            self.deadline = Some(Instant::now() + self.setup.clients.revoke_patience());
        }
    }

    /// Whoever asked for a stop does not wait for a broker for ever.
    pub(super) fn watch_stop(&mut self) -> Result<(), Trouble> {
        if !self.setup.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let seen = *self.stop_seen.get_or_insert_with(Instant::now);
        if seen.elapsed() < self.setup.patience {
            return Ok(());
        }
        Err(Trouble::new(
            format!("Kafka did not answer within {} s after the stop was asked for", self.setup.patience.as_secs()),
            "nothing is lost: the next run goes on after the last commit",
        ))
    }
}
