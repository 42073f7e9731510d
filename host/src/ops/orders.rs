//! What somebody asks of a running pipeline: to forget, or to go on under other settings. The worker does it between two
//! polls, and answers when it is committed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::plan::Plan;
use crate::task::Input;

/// What is asked.
#[derive(Clone, Debug)]
pub enum Order {
    /// Free everything that the keyed stages know (X11).
    ForgetAll,
    /// Free what they know of the keys of a record: an envelope (pipeline-file, 4.2).
    Forget(String),
    /// Go on under this plan. It was made with the identities of the old one as `Conditions::stored` (R8).
    Reload(Arc<Plan>),
}

/// What one task did of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// Entries and marks that are gone.
    pub freed: u64,
}

/// Why an order was not carried out; nothing of it has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// What was asked makes no sense here.
    Wrong(String),
    /// It may work another time.
    NotNow(String),
}

/// The answer to an order: every task of this process. The order is durable then.
pub type Answer = Result<Vec<Done>, Refusal>;

/// An order, and who waits for the answer.
#[derive(Debug)]
pub struct Asked {
    /// What is asked.
    pub order: Order,
    answer: Sender<Answer>,
}

impl Asked {
    /// Answers. Whoever does not wait any more needs none.
    pub fn answer(self, answer: Answer) {
        let _ = self.answer.send(answer);
    }
}

/// The orders for one pipeline, in the order in which they were given.
#[derive(Debug, Default)]
pub struct Orders {
    queue: Mutex<Queue>,
    waiting: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    asked: VecDeque<Asked>,
    closed: bool,
}

impl Orders {
    /// Asks. The answer never comes, and its channel is closed, if the pipeline ends before.
    pub fn ask(&self, order: Order) -> Receiver<Answer> {
        let (answer, heard) = channel();
        let mut queue = self.queue();
        if !queue.closed {
            queue.asked.push_back(Asked { order, answer });
            self.waiting.store(true, Ordering::Release);
        }
        heard
    }

    /// Whether there is one; costs nothing.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// The next one.
    pub fn take(&self) -> Option<Asked> {
        let mut queue = self.queue();
        let next = queue.asked.pop_front();
        self.waiting.store(!queue.asked.is_empty(), Ordering::Release);
        next
    }

    /// The pipeline has ended: nothing is carried out any more.
    pub fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        queue.asked.clear();
        self.waiting.store(false, Ordering::Release);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn orders_are_taken_in_turn_and_answered_once() {
        let orders = Orders::default();
        let (first, second) = (orders.ask(Order::ForgetAll), orders.ask(Order::Forget("{}".into())));
        assert!(matches!(orders.take().map(|asked| asked.order.clone()), Some(Order::ForgetAll)));
        assert!(first.recv().is_err(), "one that was dropped is answered by a closed channel");
        orders.take().unwrap().answer(Ok(Vec::new()));
        assert_eq!(second.recv().unwrap(), Ok(Vec::new()));
        assert!(!orders.is_waiting() && orders.take().is_none());
    }

    #[test]
    fn whoever_asks_a_pipeline_that_has_ended_does_not_wait() {
        let orders = Orders::default();
        let before = orders.ask(Order::ForgetAll);
        orders.close();
        assert!(before.recv().is_err());
        assert!(orders.ask(Order::ForgetAll).recv().is_err());
        assert!(!orders.is_waiting());
    }
}
