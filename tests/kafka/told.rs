//! What a run on Kafka tells of itself: how far behind it is, and what it costs.

use std::time::Duration;

use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use tamis_tests::kafka::broker::{behind_proxy, shared};
use tamis_tests::kafka::proxy::{Fault, api};
use tamis_tests::kafka::topics::{Rec, unique, wait_until};
use tamis_tests::program::Folder;
use tamis_tests::watched::Watched;

const PATIENCE: Duration = Duration::from_secs(120);

/// A run over one partition, `NAME-in` to `NAME-out`, which are there already.
fn start(name: &str, brokers: &str, delivery: &str) -> (Folder, Watched) {
    let folder = Folder::new(name);
    folder.write(
        "p.yaml",
        format!(
            "version: 1\nname: {name}\nsource: {{ kafka: {{ topics: {name}-in, brokers: \"{brokers}\", properties: \
             {{ client.id: {name} }} }} }}\nstages:\n  - {{ uses: dedup, id: d, key: value.id, state: {{ unbounded: true }} }}\n\
             sink: {{ kafka: {{ topic: {name}-out, delivery: {delivery} }} }}\n\
             state: {{ changelog: {{ create: true, replication: 1 }} }}\nrun: {{ commit: 50ms, http: '127.0.0.1:0' }}\n"
        ),
    );
    let watched = Watched::start(&folder);
    (folder, watched)
}

/// Adds records in a transaction, which stays open.
fn add(producer: &BaseProducer, topic: &str, ids: std::ops::Range<u32>) {
    producer.begin_transaction().unwrap();
    for id in ids {
        let value = format!("{{\"id\":{id}}}");
        let record: BaseRecord<'_, str, str> = BaseRecord::to(topic).partition(0).payload(&value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

#[test]
fn a_run_that_has_read_all_of_a_transactional_input_is_not_behind() {
    let (cluster, name) = (shared(), unique("lag"));
    let topic = format!("{name}-in");
    cluster.create(&topic, 1, &[]);
    cluster.create(&format!("{name}-out"), 1, &[]);
    let mut client = cluster.client();
    let producer: BaseProducer = client.set("transactional.id", &name).create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    add(&producer, &topic, 0..5);
    producer.commit_transaction(PATIENCE).unwrap();
    let (_folder, watched) = start(&name, cluster.brokers(), "exactly-once");
    let lag = format!("tamis_source_lag_records{{pipeline=\"{name}\",topic=\"{topic}\",partition=\"0\"}}");
    let read = format!("tamis_source_records_total{{pipeline=\"{name}\"}}");
    let reads = |count: f64| wait_until("all is read", || watched.value(&read) == Some(count));
    reads(5.0);
    wait_until("the end of a transaction is no record", || watched.value(&lag) == Some(0.0));
    watched.wait_for("/status", "\"lag\":0");
    // Three records and no end: they are there, and nobody may read them yet.
    add(&producer, &topic, 5..8);
    wait_until("records of an open transaction count", || watched.value(&lag) == Some(3.0));
    producer.commit_transaction(PATIENCE).unwrap();
    reads(8.0);
    wait_until("again it is at the end", || watched.value(&lag) == Some(0.0));
    // Records that were taken back are none, either.
    add(&producer, &topic, 8..10);
    producer.abort_transaction(PATIENCE).unwrap();
    wait_until("again it is at the end", || cluster.ends(&topic, true) == [13]);
    wait_until("again it is at the end", || watched.value(&lag) == Some(0.0));
    reads(8.0);
}

/// What is counted once a batch or a commit moves, and a connection that is cut shows.
fn check(delivery: &str) {
    let (cluster, name) = (behind_proxy(), unique("told"));
    cluster.create(&format!("{name}-in"), 1, &[]);
    cluster.create(&format!("{name}-out"), 1, &[]);
    let (_folder, watched) = start(&name, &cluster.proxied(), delivery);
    watched.wait_for("/readyz", "ok");
    let of = |metric: &str| format!("tamis_{metric}{{pipeline=\"{name}\"}}");
    let of_stage = |metric: &str, label: &str| format!("tamis_{metric}{{pipeline=\"{name}\",stage=\"d\",{label}}}");
    let cut = watched.value(&of("sink_retries_total")).unwrap();
    let written = |from: u32| {
        let records: Vec<Rec> = (from..from + 5).map(|id| Rec::new("k", &format!("{{\"id\":{id}}}"))).collect();
        cluster.write(&format!("{name}-in"), &records);
        let out = format!("tamis_sink_records_total{{pipeline=\"{name}\",route=\"sink\"}}");
        wait_until("they have left", || watched.value(&out) == Some(f64::from(from + 5)));
    };
    written(0);
    assert_eq!(watched.value(&of("sink_retries_total")), Some(cut), "{delivery}: nothing went wrong");
    assert_eq!(watched.value(&of_stage("state_ops_total", "op=\"seen\"")), Some(5.0), "{delivery}");
    let moved = [
        of("sink_batch_seconds_count"),
        of("sink_batch_seconds_sum"),
        of("state_commit_seconds_count"),
        of("state_commit_seconds_sum"),
        of_stage("stage_bytes_copied_total", "direction=\"in\""),
        of_stage("stage_bytes_copied_total", "direction=\"out\""),
        of_stage("guest_compile_seconds", "module=\"dedup\""),
    ];
    let still = moved.iter().filter(|series| watched.value(series).is_none_or(|value| value <= 0.0));
    assert_eq!(still.collect::<Vec<_>>(), [""; 0], "{delivery}: these have not moved");
    let fault = cluster.proxies()[0].plan(&name, api::PRODUCE, 1, Fault::CutBefore);
    written(5);
    assert_eq!(fault.fired(), 1, "{delivery}: the connection was not cut");
    wait_until("what was sent again is counted", || watched.value(&of("sink_retries_total")) > Some(cut));
}

#[test]
fn a_run_on_kafka_tells_what_its_batches_and_commits_cost_and_what_it_sent_again() {
    check("exactly-once");
    check("at-least-once");
}
