//! The member of the consumer group: a thread polls it, so that it stays a member whatever the worker does, and hands
//! on what the group decides. The worker answers: the library waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::statistics::Fetched;
use crate::files::Trouble;

/// A partition of a topic.
pub type Place = (Arc<str>, i32);

/// What the group says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// These partitions are ours once they are assigned.
    Assign(Vec<Place>),
    /// These are to be given back.
    Revoke {
        /// The partitions.
        places: Vec<Place>,
        /// They are somebody else's already.
        lost: bool,
    },
    /// The member cannot go on.
    Fatal(RDKafkaErrorCode),
    /// The cluster does not let this user.
    Refused(RDKafkaErrorCode),
    /// No broker answers.
    Away,
    /// Worth knowing.
    Trouble(String),
}

/// The member's view of things.
pub struct Context {
    said: Sender<Said>,
    worker: Thread,
    /// The run is over: the callback answers by itself.
    closing: AtomicBool,
    /// Partitions are to be given back, and the group waits for it.
    waited_for: AtomicBool,
    /// How far the library has fetched.
    pub fetched: Fetched,
}

impl Context {
    /// Whether the group waits until partitions are given back.
    pub fn is_waited_for(&self) -> bool {
        self.waited_for.load(Ordering::Acquire)
    }

    /// They are given back.
    pub fn gave_back(&self) {
        self.waited_for.store(false, Ordering::Release);
    }

    fn say(&self, said: Said) {
        // Nobody listens when the run is over.
        let _ = self.said.send(said);
        self.worker.unpark();
    }
}

impl ClientContext for Context {
    fn log(&self, _: RDKafkaLogLevel, fac: &str, text: &str) {
        tracing::debug!("kafka: {fac}: {text}");
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.fetched.hear(statistics);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.say(match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown) => Said::Away,
            _ => Said::Trouble(format!("{error}: {reason}")),
        });
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Context>, kind: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let assigned = kind == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.closing.load(Ordering::Acquire) {
            // Errors here would only be about a member that goes anyway.
            let _ = match assigned {
                true => consumer.incremental_assign(&TopicPartitionList::new()),
                false => consumer.assignment().and_then(|all| consumer.incremental_unassign(&all)),
            };
            return;
        }
        let places: Vec<Place> = list.elements().iter().map(|e| (Arc::from(e.topic()), e.partition())).collect();
        self.waited_for.store(!assigned, Ordering::Release);
        self.say(match assigned {
            true => Said::Assign(places),
            false => Said::Revoke { places, lost: consumer.assignment_lost() },
        });
    }
}

/// The member and the thread that polls it.
pub struct Group {
    /// The member.
    pub consumer: Arc<BaseConsumer<Context>>,
    /// What the group says.
    pub said: Receiver<Said>,
    thread: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

impl Group {
    /// Joins the group of a configuration; `worker` is woken when there is something to hear.
    pub fn join(config: &ClientConfig, topics: &[String], worker: Thread) -> Result<Group, Trouble> {
        let (say, said) = channel();
        let (closing, waited_for) = (AtomicBool::new(false), AtomicBool::new(false));
        let context = Context { said: say, worker, closing, waited_for, fetched: Fetched::default() };
        let consumer: BaseConsumer<Context> = config.create_with_context(context).map_err(|error| {
            Trouble::new(
                format!("the Kafka consumer cannot be made: {}", super::settings::plain(&error)),
                "check `source.kafka.properties`",
            )
        })?;
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| {
            Trouble::new(format!("the topics cannot be subscribed to: {error}"), "check `source.kafka.topics`")
        })?;
        let (consumer, over) = (Arc::new(consumer), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::Builder::new().name("group".to_owned()).spawn({
            let (consumer, over) = (Arc::clone(&consumer), Arc::clone(&over));
            let log = tracing::dispatcher::get_default(Clone::clone);
            move || tracing::dispatcher::with_default(&log, || poll(&consumer, &over))
        });
        let thread =
            thread.map_err(|error| Trouble::new(format!("no thread: {error}"), "raise the limit of processes"))?;
        Ok(Group { consumer, said, thread: Some(thread), over })
    }
}

/// What the cluster answers to a user who may not.
const REFUSALS: [RDKafkaErrorCode; 3] = [
    RDKafkaErrorCode::GroupAuthorizationFailed,
    RDKafkaErrorCode::TopicAuthorizationFailed,
    RDKafkaErrorCode::ClusterAuthorizationFailed,
];

fn poll(consumer: &BaseConsumer<Context>, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                consumer.context().say(Said::Fatal(code));
                // It will not come back to life.
                std::thread::sleep(Duration::from_millis(500));
            }
            Some(Err(error)) => consumer.context().say(match error.rdkafka_error_code() {
                Some(code) if REFUSALS.contains(&code) => Said::Refused(code),
                _ => Said::Trouble(error.to_string()),
            }),
            // Queues of partitions are read by the worker; nothing else gives records.
            Some(Ok(_)) | None => {}
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.consumer.context().closing.store(true, Ordering::Release);
        // What the group said and nobody answered would hold up the goodbye.
        while let Ok(said) = self.said.try_recv() {
            let _ = match said {
                Said::Assign(_) => self.consumer.incremental_assign(&TopicPartitionList::new()),
                Said::Revoke { .. } => self.consumer.incremental_unassign(&TopicPartitionList::new()),
                _ => Ok(()),
            };
        }
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Partitions for a person.
pub fn names(places: &[Place]) -> String {
    match places {
        [] => "nothing".to_owned(),
        places => places.iter().map(|(topic, p)| format!("{topic}/{p}")).collect::<Vec<_>>().join(" "),
    }
}

/// A list of partitions with the offsets to begin at.
pub fn list<'a>(places: impl IntoIterator<Item = (&'a Place, Option<i64>)>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for ((topic, partition), offset) in places {
        match offset {
            // An offset that is a number can always be set.
            Some(offset) => drop(list.add_partition_offset(topic, *partition, Offset::Offset(offset))),
            None => drop(list.add_partition(topic, *partition)),
        }
    }
    list
}
