//! What exactly-once rests on, asked of the broker itself: seven probes, each with the answer that the protocol needs.
//! A cluster that answers otherwise cannot keep the promise, whatever we do.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, RDKafkaError};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, TopicPartitionList};
use tamis_tests::kafka::broker::{Cluster, behind_proxy, shared};
use tamis_tests::kafka::proxy::{Fault, api};
use tamis_tests::kafka::topics::{Rec, unique, wait_until};

const LONG: Duration = Duration::from_secs(30);

/// A producer with this transactional id, ready for its first transaction.
fn producer(brokers: &str, id: &str, timeout_ms: u32) -> BaseProducer {
    let mut config = rdkafka::ClientConfig::new();
    config
        .set("bootstrap.servers", brokers)
        .set("client.id", id)
        .set("transactional.id", id)
        .set("transaction.timeout.ms", timeout_ms.to_string())
        .set("message.timeout.ms", timeout_ms.to_string())
        .set("retry.backoff.ms", "10")
        .set("reconnect.backoff.ms", "10");
    let producer: BaseProducer = config.create().expect("a producer");
    producer.init_transactions(LONG).expect("the coordinator answers");
    producer
}

fn send(producer: &BaseProducer, topic: &str, value: &str) {
    producer.send(BaseRecord::<str, str>::to(topic).partition(0).payload(value).key("k")).expect("queued");
}

/// Sends and waits until the record is in the log.
fn place(producer: &BaseProducer, topic: &str, value: &str) {
    send(producer, topic, value);
    producer.flush(LONG).expect("it arrives");
}

fn transaction(producer: &BaseProducer, topic: &str, values: &[&str]) {
    producer.begin_transaction().expect("begun");
    values.iter().for_each(|value| place(producer, topic, value));
}

fn texts(records: &[Rec]) -> Vec<String> {
    records.iter().map(Rec::text).collect()
}

/// A member of a group that has its partitions.
fn member(cluster: &Cluster, group: &str, topic: &str) -> BaseConsumer {
    let consumer: BaseConsumer = cluster
        .client()
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "300")
        .create()
        .expect("a consumer");
    consumer.subscribe(&[topic]).expect("subscribed");
    wait_until("the member has an assignment", || {
        consumer.poll(Duration::from_millis(50));
        consumer.assignment().is_ok_and(|list| list.count() > 0)
    });
    consumer
}

fn metadata(consumer: &BaseConsumer) -> ConsumerGroupMetadata {
    consumer.group_metadata().expect("a member has it")
}

fn offsets(topic: &str, offset: i64, metadata: &str) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Offset(offset)).expect("an offset");
    list.find_partition(topic, 0).expect("just added").set_metadata(metadata);
    list
}

/// The error of a transaction; anything else is none.
#[track_caller]
fn refused(result: Result<(), KafkaError>) -> RDKafkaError {
    match result {
        Err(KafkaError::Transaction(error)) => error,
        other => panic!("a refusal was expected, not {other:?}"),
    }
}

#[test]
fn records_of_an_aborted_transaction_are_invisible() {
    let cluster = shared();
    let topic = cluster.topic("probe-aborted", 1);
    let producer = producer(cluster.brokers(), &unique("probe-1"), 15_000);
    let mut expected = Vec::new();
    for n in 0..20 {
        let (word, commit) = if n % 2 == 0 { ("kept", true) } else { ("gone", false) };
        let values: Vec<String> = (0..5).map(|i| format!("{word}-{n}-{i}")).collect();
        transaction(&producer, &topic, &values.iter().map(String::as_str).collect::<Vec<_>>());
        if commit {
            producer.commit_transaction(LONG).expect("committed");
            expected.extend(values);
        } else {
            producer.abort_transaction(LONG).expect("aborted");
        }
    }
    assert_eq!(texts(&cluster.read(&topic)), expected);
    assert_eq!(cluster.read_as(&topic, "read_uncommitted").len(), 100, "the broker holds all of them");
}

#[test]
fn an_open_transaction_holds_back_what_was_committed_behind_it() {
    let cluster = shared();
    let topic = cluster.topic("probe-stable", 1);
    let (first, second) = (
        producer(cluster.brokers(), &unique("probe-2a"), 60_000),
        producer(cluster.brokers(), &unique("probe-2b"), 60_000),
    );
    transaction(&first, &topic, &["open"]);
    transaction(&second, &topic, &["behind"]);
    second.commit_transaction(LONG).expect("committed");
    assert_eq!(cluster.ends(&topic, true), [0], "the last stable offset");
    assert_eq!(cluster.ends(&topic, false), [3], "the high watermark: two records and one marker");
    assert_eq!(texts(&cluster.read_as(&topic, "read_committed")), [""; 0]);
    first.commit_transaction(LONG).expect("committed");
    assert_eq!(texts(&cluster.read(&topic)), ["open", "behind"]);
}

#[test]
fn offsets_of_a_transaction_come_with_its_commit_and_not_with_an_abort() {
    let cluster = shared();
    let (topic, group) = (cluster.topic("probe-offsets", 1), unique("probe-3"));
    let consumer = member(cluster, &group, &topic);
    let producer = producer(cluster.brokers(), &unique("probe-3"), 15_000);
    producer.begin_transaction().expect("begun");
    producer.send_offsets_to_transaction(&offsets(&topic, 5, ""), &metadata(&consumer), LONG).expect("sent");
    // While it is open nobody may know: a reader of stable offsets gets no answer.
    let reader: BaseConsumer =
        cluster.client().set("group.id", &group).set("isolation.level", "read_committed").create().expect("a client");
    let pending = reader.committed_offsets(offsets(&topic, 0, ""), Duration::from_millis(700));
    assert!(pending.is_err(), "an answer while the outcome is open: {pending:?}");
    producer.abort_transaction(LONG).expect("aborted");
    assert_eq!(cluster.committed(&group, &topic), [None]);
    producer.begin_transaction().expect("begun");
    producer.send_offsets_to_transaction(&offsets(&topic, 7, ""), &metadata(&consumer), LONG).expect("sent");
    producer.commit_transaction(LONG).expect("committed");
    assert_eq!(cluster.committed(&group, &topic), [Some((7, String::new()))]);
}

#[test]
fn a_zombie_with_the_same_transactional_id_is_fenced() {
    let cluster = shared();
    let topic = cluster.topic("probe-zombie", 1);
    let id = unique("probe-4");
    let zombie = producer(cluster.brokers(), &id, 15_000);
    transaction(&zombie, &topic, &["zombie"]);
    let heir = producer(cluster.brokers(), &id, 15_000);
    transaction(&heir, &topic, &["heir"]);
    heir.commit_transaction(LONG).expect("committed");
    send(&zombie, &topic, "zombie again");
    let error = refused(zombie.commit_transaction(LONG));
    assert!(error.is_fatal(), "{error:?}");
    assert_eq!(error.code(), Code::Fenced);
    assert_eq!(texts(&cluster.read(&topic)), ["heir"]);
}

#[test]
fn offsets_of_a_stale_member_are_refused_and_an_abort_mends_it() {
    let cluster = shared();
    let (topic, group) = (cluster.topic("probe-stale", 1), unique("probe-5"));
    let consumer = member(cluster, &group, &topic);
    let stale = metadata(&consumer);
    // The group goes on without this member.
    drop(consumer);
    let heir = member(cluster, &group, &topic);
    let producer = producer(cluster.brokers(), &unique("probe-5"), 15_000);
    transaction(&producer, &topic, &["stale"]);
    let error = refused(producer.send_offsets_to_transaction(&offsets(&topic, 3, ""), &stale, LONG));
    assert!(error.txn_requires_abort() && !error.is_fatal(), "{error:?}");
    assert!([Code::IllegalGeneration, Code::UnknownMemberId].contains(&error.code()), "{error:?}");
    assert!(producer.commit_transaction(LONG).is_err(), "a commit without an abort is refused");
    producer.abort_transaction(LONG).expect("aborted");
    transaction(&producer, &topic, &["fresh"]);
    producer.send_offsets_to_transaction(&offsets(&topic, 4, ""), &metadata(&heir), LONG).expect("sent");
    producer.commit_transaction(LONG).expect("committed");
    assert_eq!(cluster.committed(&group, &topic), [Some((4, String::new()))]);
    assert_eq!(texts(&cluster.read(&topic)), ["fresh"]);
}

#[test]
fn metadata_of_offsets_comes_back_as_it_was_and_has_a_limit() {
    let cluster = shared();
    let (topic, group) = (cluster.topic("probe-metadata", 1), unique("probe-6"));
    let consumer = member(cluster, &group, &topic);
    let producer = producer(cluster.brokers(), &unique("probe-6"), 15_000);
    let longest = "x".repeat(4096);
    for (offset, text) in [(1, "1;42;\u{e4}\u{2713};-5"), (2, longest.as_str())] {
        producer.begin_transaction().expect("begun");
        producer.send_offsets_to_transaction(&offsets(&topic, offset, text), &metadata(&consumer), LONG).expect("sent");
        producer.commit_transaction(LONG).expect("committed");
        assert_eq!(cluster.committed(&group, &topic), [Some((offset, text.to_string()))]);
    }
    producer.begin_transaction().expect("begun");
    let longer = offsets(&topic, 3, &"x".repeat(4097));
    let error = refused(producer.send_offsets_to_transaction(&longer, &metadata(&consumer), LONG));
    assert!(error.txn_requires_abort(), "{error:?}");
    assert_eq!(error.code(), Code::OffsetMetadataTooLarge);
    producer.abort_transaction(LONG).expect("aborted");
}

#[test]
fn a_transaction_that_is_left_alone_ends_by_its_timeout() {
    let cluster = shared();
    let topic = cluster.topic("probe-timeout", 1);
    let producer = producer(cluster.brokers(), &unique("probe-7"), 2_000);
    transaction(&producer, &topic, &["late"]);
    let began = Instant::now();
    wait_until("the broker aborts it", || cluster.ends(&topic, true) == cluster.ends(&topic, false));
    assert!(began.elapsed() > Duration::from_millis(1_000), "not before its time");
    let error = refused(producer.commit_transaction(LONG));
    assert!(error.is_fatal(), "no rival lives, and it is fatal all the same: {error:?}");
    assert_eq!(error.code(), Code::Fenced);
    assert_eq!(texts(&cluster.read(&topic)), [""; 0]);
}

#[test]
fn a_member_that_is_none_is_not_refused_by_the_broker() {
    // No probe of what we need but of what we must do ourselves: refuse generation -1.
    let cluster = shared();
    let (topic, group) = (cluster.topic("probe-nobody", 1), unique("probe-nobody"));
    let nobody: BaseConsumer = cluster.client().set("group.id", &group).create().expect("a client");
    let producer = producer(cluster.brokers(), &unique("probe-nobody"), 15_000);
    producer.begin_transaction().expect("begun");
    producer.send_offsets_to_transaction(&offsets(&topic, 9, ""), &metadata(&nobody), LONG).expect("accepted");
    producer.commit_transaction(LONG).expect("committed");
    assert_eq!(cluster.committed(&group, &topic), [Some((9, String::new()))]);
}

#[test]
fn a_late_copy_of_a_commit_commits_the_next_transaction_unless_the_producer_is_made_anew() {
    // KAFKA-17754, on the wire: the reason for the rule of taint.
    let cluster = behind_proxy();
    for anew in [false, true] {
        let topic = cluster.topic("probe-late", 1);
        let id = unique("probe-late");
        let proxy = &cluster.proxies()[0];
        let mut client = producer(&cluster.proxied(), &id, 15_000);
        let held = proxy.plan(&id, api::END_TXN, 1, Fault::Hold);
        transaction(&client, &topic, &["first"]);
        client.commit_transaction(LONG).expect("the client sends it again, and says nothing");
        assert_eq!(held.fired(), 1);
        if anew {
            drop(client);
            client = producer(&cluster.proxied(), &id, 15_000);
        }
        transaction(&client, &topic, &["second"]);
        assert_eq!(held.release().len(), 1, "the broker answers the late copy");
        // The client gives the second transaction up. Without the rule the late copy has committed it already.
        let aborted = client.abort_transaction(LONG);
        drop(client);
        let read = texts(&cluster.read(&topic));
        match anew {
            true => assert!(aborted.is_ok() && read == ["first"], "{aborted:?}, {read:?}"),
            false => assert!(aborted.is_err() && read == ["first", "second"], "{aborted:?}, {read:?}"),
        }
    }
}
