//! The member of the group for as long as the run lasts: when the library says that one cannot go on, another takes its
//! place after a pause. What is fatal to a consumer is not fatal to the process; what repeats is.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;

use super::client::Clients;
use super::group::{Context, Group, Place, Said, list};
use super::raw::PartitionQueue;
use crate::files::Trouble;

/// The consumer of the member there is now; none while there is none. The committer looks here, too.
pub type Slot = Rc<RefCell<Option<Arc<BaseConsumer<Context>>>>>;

/// So many ends in so long are no accident.
const OFTEN: (usize, Duration) = (3, Duration::from_secs(60));
/// The first pause before another member joins; each doubles the last.
const PAUSE: Duration = Duration::from_secs(1);

/// The member.
pub struct Member {
    group: Option<Group>,
    consumer: Slot,
    clients: Clients,
    topics: Vec<String>,
    /// When members could not go on.
    ends: Ends,
    /// When the next one joins.
    again: Option<Instant>,
}

impl Member {
    /// Joins the group; this thread is woken when there is something to hear.
    ///
    /// # Errors
    /// The settings do not make a consumer.
    pub fn join(clients: &Clients, topics: &[String]) -> Result<Member, Trouble> {
        let (clients, topics, consumer) = (clients.clone(), topics.to_vec(), Slot::default());
        let mut member = Member { group: None, consumer, clients, topics, ends: Ends::default(), again: None };
        member.enter()?;
        Ok(member)
    }

    fn enter(&mut self) -> Result<(), Trouble> {
        let group = Group::join(&self.clients.consumer(), &self.topics, std::thread::current())?;
        *self.consumer.borrow_mut() = Some(Arc::clone(&group.consumer));
        self.group = Some(group);
        Ok(())
    }

    /// Where the consumer is.
    pub fn consumer(&self) -> Slot {
        Rc::clone(&self.consumer)
    }

    /// What the group says.
    pub fn hear(&self) -> Option<Said> {
        self.group.as_ref()?.said.try_recv().ok()
    }

    /// This member cannot go on. Call it when nothing holds its queues any more, or will soon.
    ///
    /// # Errors
    /// It was so again and again: somebody must do something about it.
    pub fn fail(&mut self, code: RDKafkaErrorCode) -> Result<(), Trouble> {
        let why = self.why(code);
        self.end(&why, self.way_out(code))
    }

    /// This member shall not go on, for a reason of ours. As `fail`.
    ///
    /// # Errors
    /// As `fail`.
    pub fn replace(&mut self, why: &str) -> Result<(), Trouble> {
        self.end(why, self.way_out(RDKafkaErrorCode::Fail))
    }

    fn end(&mut self, why: &str, way_out: &str) -> Result<(), Trouble> {
        let Some(group) = self.group.take() else { return Ok(()) };
        *self.consumer.borrow_mut() = None;
        // To say goodbye may take long, and nothing waits for it.
        let closing = std::thread::Builder::new().name("goodbye".to_owned()).spawn(move || drop(group));
        drop(closing);
        let Some(pause) = self.ends.another(Instant::now()) else {
            return Err(Trouble::new(
                format!(
                    "a member of the group {} could not go on {} times in a minute: {why}",
                    self.clients.group, OFTEN.0
                ),
                way_out,
            ));
        };
        tracing::warn!(
            "the member of the group {} cannot go on: {why}; another joins in {pause:?}",
            self.clients.group
        );
        self.again = Some(Instant::now() + pause);
        Ok(())
    }

    fn why(&self, code: RDKafkaErrorCode) -> String {
        match (code, self.clients.static_id()) {
            (RDKafkaErrorCode::FencedInstanceId, Some(id)) => {
                format!("another process took over its `group.instance.id`, {id}")
            }
            _ => code.to_string(),
        }
    }

    fn way_out(&self, code: RDKafkaErrorCode) -> &'static str {
        match code {
            RDKafkaErrorCode::FencedInstanceId => {
                "two processes have the same `group.instance.id`: give each its own, for example `{ from_env: HOSTNAME }`"
            }
            _ => "look at the broker's log; nothing is lost, the next run goes on after the last commit",
        }
    }

    /// Another member joins if it is time.
    ///
    /// # Errors
    /// As `join`.
    pub fn tend(&mut self) -> Result<(), Trouble> {
        match self.again {
            Some(again) if Instant::now() >= again => {
                self.again = None;
                self.enter()
            }
            _ => Ok(()),
        }
    }

    /// The queue of a partition that will be assigned.
    pub fn queue(&self, place: &Place) -> Option<PartitionQueue> {
        let consumer = self.consumer.borrow();
        PartitionQueue::open(consumer.as_ref()?, &place.0, place.1, Some(std::thread::current()))
    }

    /// Takes partitions, to be read from these offsets.
    ///
    /// # Errors
    /// The library does not.
    pub fn assign(&self, places: &[(Place, i64)]) -> Result<(), Trouble> {
        self.with(&list(places.iter().map(|(place, offset)| (place, Some(*offset)))), |consumer, list| {
            consumer.incremental_assign(list).map_err(|error| {
                Trouble::new(format!("the partitions cannot be assigned: {error}"), "run again: nothing is lost")
            })
        })
    }

    /// Gives partitions back.
    ///
    /// # Errors
    /// The library does not.
    pub fn unassign<'a>(&self, places: impl IntoIterator<Item = &'a Place>) -> Result<(), Trouble> {
        self.with(&list(places.into_iter().map(|place| (place, None))), |consumer, list| {
            consumer.context().gave_back();
            consumer.incremental_unassign(list).map_err(|error| {
                Trouble::new(format!("the partitions cannot be given back: {error}"), "run again: nothing is lost")
            })
        })
    }

    /// A member that is gone has no partitions.
    fn with(
        &self,
        list: &TopicPartitionList,
        call: impl FnOnce(&BaseConsumer<Context>, &TopicPartitionList) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        self.consumer.borrow().as_ref().map_or(Ok(()), |consumer| call(consumer, list))
    }

    /// Whether a broker answers now; waits for it a moment.
    pub fn is_answered(&self) -> bool {
        let topic = self.topics.first().map(String::as_str);
        let consumer = self.consumer.borrow();
        consumer.as_ref().is_some_and(|c| c.fetch_metadata(topic, Duration::from_millis(200)).is_ok())
    }
}

/// When members could not go on.
#[derive(Debug, Default)]
struct Ends(Vec<Instant>);

impl Ends {
    /// One more now: how long to pause; nothing if it is too often.
    fn another(&mut self, now: Instant) -> Option<Duration> {
        self.0.retain(|at| now.duration_since(*at) <= OFTEN.1);
        self.0.push(now);
        (self.0.len() < OFTEN.0).then(|| PAUSE * (1 << (self.0.len() - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_end_in_a_minute_is_one_too_many() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut ends = Ends::default();
        assert_eq!(ends.another(at(0)), Some(PAUSE));
        assert_eq!(ends.another(at(40)), Some(PAUSE * 2));
        assert_eq!(ends.another(at(70)), Some(PAUSE * 2), "the first is long ago");
        assert_eq!(ends.another(at(99)), None);
    }
}
