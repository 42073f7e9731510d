//! Topics of tests: made with random names, filled, read to their true end.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

use super::broker::Cluster;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(150);

/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(20);

/// A record as it is written and read. Numbers are those of its place once it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rec {
    /// Its partition.
    pub partition: i32,
    /// Its offset; not looked at when it is written.
    pub offset: i64,
    /// Milliseconds since 1970; at 0 the time of writing is taken.
    pub timestamp: i64,
    /// The bytes of its key, if it has one.
    pub key: Option<Vec<u8>>,
    /// The bytes of its value; none is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Its headers in their order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Rec {
    /// A record of partition 0.
    pub fn new(key: &str, value: &str) -> Rec {
        Rec { key: Some(key.into()), value: Some(value.into()), ..Rec::default() }
    }

    /// The same in another partition.
    pub fn at(mut self, partition: i32) -> Rec {
        self.partition = partition;
        self
    }

    /// The same at another time, milliseconds since 1970.
    pub fn timed(mut self, timestamp: i64) -> Rec {
        self.timestamp = timestamp;
        self
    }

    /// The same with one header more.
    pub fn with(mut self, name: &str, value: &str) -> Rec {
        self.headers.push((name.into(), Some(value.into())));
        self
    }

    /// The key as text.
    pub fn key_text(&self) -> String {
        self.key.as_deref().map_or("null".into(), |k| String::from_utf8_lossy(k).into_owned())
    }

    /// The value as text.
    pub fn text(&self) -> String {
        self.value.as_deref().map_or("null".into(), |v| String::from_utf8_lossy(v).into_owned())
    }

    /// The first header of this name as text.
    pub fn header(&self, name: &str) -> Option<String> {
        let (_, value) = self.headers.iter().find(|(n, _)| n == name)?;
        Some(String::from_utf8_lossy(value.as_deref()?).into_owned())
    }
}

/// A name that nobody else uses: `PREFIX-` and random letters.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{:016x}", std::hash::RandomState::new().build_hasher().finish())
}

impl Cluster {
    /// Settings of a client that goes to the brokers without a proxy.
    pub fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.brokers());
        config
    }

    /// Makes a topic of this name and waits until it can be used. `settings` are the topic's own.
    pub fn create(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("an admin client");
        let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
        for (name, value) in settings {
            new = new.set(name, value);
        }
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let made = block_on(admin.create_topics([&new], &options)).expect("an answer");
        assert!(made.iter().all(Result::is_ok), "{topic}: {made:?}");
        wait_until("the topic has leaders", || {
            let metadata = admin.inner().fetch_metadata(Some(topic), PATIENCE).expect("metadata");
            let found = metadata.topics().iter().find(|t| t.name() == topic);
            found.is_some_and(|t| {
                t.partitions().len() == partitions as usize && t.partitions().iter().all(|p| p.leader() >= 0)
            })
        });
    }

    /// A topic with a name of its own, which is returned.
    pub fn topic(&self, prefix: &str, partitions: i32) -> String {
        let name = unique(prefix);
        self.create(&name, partitions, &[]);
        name
    }

    /// Lets a topic have more partitions.
    pub fn grow(&self, topic: &str, partitions: usize) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("an admin client");
        let more = rdkafka::admin::NewPartitions::new(topic, partitions);
        let grown = block_on(admin.create_partitions([&more], &AdminOptions::new())).expect("an answer");
        assert!(grown.iter().all(Result::is_ok), "{topic}: {grown:?}");
    }

    /// Deletes a topic, and waits until it is gone.
    pub fn delete(&self, topic: &str) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("an admin client");
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let gone = block_on(admin.delete_topics(&[topic], &options)).expect("an answer");
        assert!(gone.iter().all(Result::is_ok), "{topic}: {gone:?}");
        wait_until("the topic is gone", || self.partitions(topic) == 0);
    }

    /// Deletes a group that has no members, and its positions.
    pub fn delete_group(&self, group: &str) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("an admin client");
        patiently("the group is gone", || {
            let gone = block_on(admin.delete_groups(&[group], &AdminOptions::new()))?;
            gone.into_iter().next().map_or(Ok(()), |one| one.map(drop).map_err(|(_, code)| KafkaError::AdminOp(code)))
        });
    }

    /// Commits a position for a group that has no members, as another program would.
    pub fn commit(&self, group: &str, topic: &str, partition: i32, offset: i64) {
        let consumer: BaseConsumer = self.client().set("group.id", group).create().expect("a consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).expect("an offset");
        consumer.commit(&list, rdkafka::consumer::CommitMode::Sync).expect("committed");
    }

    /// Removes all records before an offset, as retention does.
    pub fn truncate(&self, topic: &str, partition: i32, before: i64) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("an admin client");
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(topic, partition, Offset::Offset(before)).expect("an offset");
        let done = block_on(admin.delete_records(&offsets, &AdminOptions::new())).expect("an answer");
        assert!(done.elements().iter().all(|e| e.error().is_ok()), "{topic}");
    }

    /// Sets a setting of a topic; what else was set of its own is the broker's default again.
    pub fn configure(&self, topic: &str, name: &str, value: &str) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().expect("an admin client");
        let change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(name, value);
        let done = block_on(admin.alter_configs([&change], &AdminOptions::new())).expect("an answer");
        assert!(done.iter().all(Result::is_ok), "{topic}: {done:?}");
    }

    /// Number of partitions; 0 if there is no such topic.
    pub fn partitions(&self, topic: &str) -> i32 {
        let consumer: BaseConsumer = self.client().create().expect("a client");
        let metadata = patiently("metadata", || consumer.fetch_metadata(Some(topic), ANSWER));
        metadata.topics().iter().find(|t| t.name() == topic).map_or(0, |t| t.partitions().len() as i32)
    }

    /// Writes records and waits until they are there.
    pub fn write(&self, topic: &str, records: &[Rec]) {
        let producer: BaseProducer =
            self.client().set("enable.idempotence", "true").set("linger.ms", "1").create().expect("a producer");
        for record in records {
            let mut headers = OwnedHeaders::new();
            for (name, value) in &record.headers {
                headers = headers.insert(Header { key: name, value: value.as_ref() });
            }
            loop {
                let mut out: BaseRecord<'_, Vec<u8>, Vec<u8>> = BaseRecord::to(topic).partition(record.partition);
                if let Some(key) = &record.key {
                    out = out.key(key);
                }
                if let Some(value) = &record.value {
                    out = out.payload(value);
                }
                if record.timestamp != 0 {
                    out = out.timestamp(record.timestamp);
                }
                if !record.headers.is_empty() {
                    out = out.headers(headers.clone());
                }
                match producer.send(out) {
                    Ok(()) => break,
                    Err((KafkaError::MessageProduction(rdkafka::types::RDKafkaErrorCode::QueueFull), _)) => {
                        producer.poll(Duration::from_millis(5));
                    }
                    Err((error, _)) => panic!("{topic}: {error}"),
                }
            }
        }
        producer.flush(PATIENCE).expect("the records arrive");
    }

    /// End of each partition for `read_committed` (last stable offset) or for everybody (high watermark).
    pub fn ends(&self, topic: &str, committed: bool) -> Vec<i64> {
        let isolation = if committed { "read_committed" } else { "read_uncommitted" };
        let consumer: BaseConsumer = self.client().set("isolation.level", isolation).create().expect("a client");
        let end = |p| patiently("the end", || consumer.fetch_watermarks(topic, p, ANSWER)).1;
        (0..self.partitions(topic)).map(end).collect()
    }

    /// Every committed record, partition by partition. Waits until no transaction is open, and fails if one stays.
    #[track_caller]
    pub fn read(&self, topic: &str) -> Vec<Rec> {
        wait_until("no transaction is open", || self.ends(topic, true) == self.ends(topic, false));
        self.read_as(topic, "read_committed")
    }

    /// Every record that is there now under an isolation level, partition by partition.
    #[track_caller]
    pub fn read_as(&self, topic: &str, isolation: &str) -> Vec<Rec> {
        let consumer: BaseConsumer = self
            .client()
            .set("isolation.level", isolation)
            .set("enable.partition.eof", "true")
            .set("group.id", "unused")
            .set("enable.auto.commit", "false")
            .create()
            .expect("a consumer");
        let partitions = self.partitions(topic);
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition_offset(topic, partition, Offset::Beginning).expect("an offset");
        }
        consumer.assign(&list).expect("assigned");
        let mut found: BTreeMap<i32, Vec<Rec>> = (0..partitions).map(|p| (p, Vec::new())).collect();
        let mut at_end = std::collections::BTreeSet::new();
        let began = Instant::now();
        while at_end.len() < partitions as usize {
            assert!(began.elapsed() < PATIENCE, "{topic}: only {at_end:?} of {partitions} partitions were read");
            match consumer.poll(Duration::from_millis(100)) {
                None => {}
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    at_end.insert(partition);
                }
                // A broker that is away comes back, or another one takes over.
                Some(Err(error)) if is_transport(&error) => {}
                Some(Err(error)) => panic!("{topic}: {error}"),
                Some(Ok(message)) => found.entry(message.partition()).or_default().push(owned(&message)),
            }
        }
        found.into_values().flatten().collect()
    }

    /// What a group has committed: offset and metadata per partition, `None` where it has not. Waits while a
    /// transaction with offsets is open.
    pub fn committed(&self, group: &str, topic: &str) -> Vec<Option<(i64, String)>> {
        let consumer: BaseConsumer = self
            .client()
            .set("group.id", group)
            .set("isolation.level", "read_committed")
            .set("enable.auto.commit", "false")
            .create()
            .expect("a consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition_range(topic, 0, self.partitions(topic) - 1);
        let list = patiently("committed offsets", || consumer.committed_offsets(list.clone(), ANSWER));
        let elements = list.elements_for_topic(topic);
        elements.iter().map(|e| e.offset().to_raw().filter(|o| *o >= 0).map(|o| (o, e.metadata().into()))).collect()
    }
}

fn owned(message: &impl Message) -> Rec {
    let headers = message
        .headers()
        .map(|headers| headers.iter().map(|h| (h.key.to_string(), h.value.map(<[u8]>::to_vec))).collect::<Vec<_>>());
    Rec {
        partition: message.partition(),
        offset: message.offset(),
        timestamp: message.timestamp().to_millis().unwrap_or(0),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers.unwrap_or_default(),
    }
}

/// Asks until there is an answer: brokers go away in some tests.
#[track_caller]
fn patiently<T>(what: &str, mut ask: impl FnMut() -> Result<T, KafkaError>) -> T {
    let began = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(error) if began.elapsed() > PATIENCE => panic!("{what}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn is_transport(error: &KafkaError) -> bool {
    use rdkafka::types::RDKafkaErrorCode::{AllBrokersDown, BrokerTransportFailure, Resolve};
    error.rdkafka_error_code().is_some_and(|code| [AllBrokersDown, BrokerTransportFailure, Resolve].contains(&code))
}

/// Waits until something is so, and fails if it does not become so in a minute.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for a future: the admin client answers with one, from a thread of its own.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
