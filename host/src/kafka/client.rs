//! Settings of the clients: ours, then what the file passes through, then what we own.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use super::txn::Guards;
use crate::config::kafka::{KafkaSink, KafkaSource, Setting};
use crate::config::pipeline::{Pipeline, Sink, Source};
use crate::files::Trouble;

/// How long one question to the cluster may take.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long a transaction may be open, ms.
pub const TRANSACTION_MS: i64 = 15_000;
/// How long a commit may take when partitions are to be given back.
const REVOKE: Duration = Duration::from_secs(5);
/// Longest record that is written, in bytes with its key and headers; the client's `message.max.bytes` unless it is set.
const LARGEST: usize = 1_000_000;

/// What may be on its way to the brokers, kB. A commit waits until all of it is there, and what the client does not hold
/// on to for long stays in the caches of the processor.
const IN_FLIGHT: usize = 4096;

/// What the clients of one pipeline are made with. There is no way to print it: passwords are in it.
#[derive(Clone)]
pub struct Clients {
    /// Consumer group.
    pub group: String,
    /// Records of open and aborted transactions are not read.
    committed_only: bool,
    /// What the source passes through.
    source: Vec<(String, String)>,
    /// What the sink passes through besides.
    sink: Vec<(String, String)>,
    /// Guards that are on.
    pub guards: Guards,
}

/// A variable that tests set to words: guards that are off, to see that their absence is noticed.
const WITHOUT: &str = "TAMIS_TEST_WITHOUT";

impl Clients {
    /// Those of a pipeline from Kafka to Kafka; secrets are read. Relative files of secrets start from `base`.
    pub fn of(pipeline: &Pipeline, environment: &BTreeMap<String, String>, base: &Path) -> Result<Clients, Trouble> {
        let (source, sink) = ends(pipeline)?;
        let values = |settings: &[(String, Setting)], brokers: Option<&String>| {
            let mut values = Vec::new();
            for (name, setting) in settings {
                let value = setting.value(environment, base).map_err(|why| {
                    Trouble::new(format!("the client setting `{name}`: {why}"), "set it, and run again")
                })?;
                values.push((name.clone(), value));
            }
            if let Some(brokers) = brokers {
                values.push(("bootstrap.servers".to_owned(), brokers.clone()));
            }
            Ok(values)
        };
        Ok(Clients {
            group: source.group.clone().unwrap_or_else(|| pipeline.name.clone()),
            committed_only: source.committed_only,
            source: values(&source.properties, source.brokers.as_ref())?,
            sink: values(&sink.properties, sink.brokers.as_ref())?,
            guards: Guards::without(environment.get(WITHOUT).map_or("", String::as_str)).map_err(|word| {
                Trouble::new(
                    format!("{WITHOUT}: there is no guard `{word}`"),
                    format!("unset it, it is for tests; the guards are {}", Guards::WORDS.join(", ")),
                )
            })?,
        })
    }

    /// Where the cluster is, for a person.
    pub fn brokers(&self) -> &str {
        let named = |list: &[(String, String)]| list.iter().rposition(|(name, _)| name == "bootstrap.servers");
        named(&self.source).and_then(|at| self.source.get(at)).map_or("", |(_, value)| value)
    }

    /// The member of the group.
    pub fn consumer(&self) -> ClientConfig {
        let mut config = self.begin(&[
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("session.timeout.ms", "45000"),
            ("heartbeat.interval.ms", "3000"),
            ("max.poll.interval.ms", "300000"),
            ("queued.max.messages.kbytes", "65536"),
            ("queued.min.messages", "10000"),
            ("fetch.queue.backoff.ms", "50"),
            ("fetch.min.bytes", "1"),
            // Whatever else this client asks of a broker waits behind a question for records that has no answer yet.
            ("fetch.wait.max.ms", "100"),
            ("check.crcs", "true"),
            ("reconnect.backoff.ms", "10"),
            ("reconnect.backoff.max.ms", "10000"),
            // How far it has fetched is told in no other way.
            ("statistics.interval.ms", "2000"),
        ]);
        if self.source.iter().any(|(name, value)| name == "group.protocol" && value == "consumer") {
            // The broker sets these then, and the client refuses them.
            for name in ["partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"] {
                config.remove(name);
            }
        }
        self.own(&mut config, self.committed_only);
        // Here the client counts the notice of an end as a record: after a rebalance it would pass one over.
        config.set("enable.partition.eof", "false");
        config
    }

    /// A reader that is no member: changelogs, committed positions. It sees what transactions have committed.
    pub fn reader(&self) -> ClientConfig {
        let mut config = self.begin(&[
            ("queued.max.messages.kbytes", "16384"),
            ("fetch.queue.backoff.ms", "20"),
            // A question at the end of a partition holds up all that is asked of the broker behind it: the next partition
            // that is restored, and where that ends.
            ("fetch.wait.max.ms", "10"),
            ("check.crcs", "true"),
            ("reconnect.backoff.ms", "10"),
        ]);
        config.remove("group.instance.id").remove("group.protocol");
        self.own(&mut config, true);
        config.set("enable.partition.eof", "true");
        config
    }

    /// A reader that is no member, and sees what the member sees.
    pub fn witness(&self) -> ClientConfig {
        if self.committed_only { self.reader() } else { self.uncommitted_reader() }
    }

    /// The name of the member, if it is a static one.
    pub fn static_id(&self) -> Option<&str> {
        let set = self.source.iter().rev().find(|(name, _)| name == "group.instance.id");
        set.map(|(_, value)| value.as_str())
    }

    /// A client that sees every record, of open and aborted transactions too.
    pub fn uncommitted_reader(&self) -> ClientConfig {
        let mut config = self.reader();
        config.set("isolation.level", "read_uncommitted");
        config
    }

    /// A producer; `transactional`: its name in transactions.
    pub fn producer(&self, transactional: Option<&str>) -> ClientConfig {
        // A record that is larger than all that may be in flight would wait for ever.
        let in_flight = IN_FLIGHT.max(self.largest().saturating_mul(4) / 1024);
        let mut config = self.begin(&[
            ("linger.ms", "5"),
            ("batch.size", "1000000"),
            ("batch.num.messages", "10000"),
            ("compression.type", "lz4"),
            ("queue.buffering.max.messages", "100000"),
            ("queue.buffering.max.kbytes", &in_flight.to_string()),
            ("retry.backoff.ms", "10"),
            ("reconnect.backoff.ms", "10"),
            ("reconnect.backoff.max.ms", "10000"),
            ("socket.nagle.disable", "true"),
            ("message.timeout.ms", "10000"),
        ]);
        config.remove("group.instance.id").remove("group.protocol");
        for (name, value) in &self.sink {
            config.set(name, value);
        }
        config.set("enable.idempotence", "true").set("delivery.report.only.error", "true");
        match transactional {
            Some(id) => {
                config.set("transactional.id", id).set("transaction.timeout.ms", TRANSACTION_MS.to_string());
            }
            None => {
                config.set("message.timeout.ms", "300000");
            }
        }
        config
    }

    /// For questions and for making topics.
    pub fn admin(&self) -> ClientConfig {
        let mut config = self.begin(&[("reconnect.backoff.ms", "10")]);
        config.remove("group.instance.id").remove("group.protocol");
        config
    }

    /// How long a commit may take when partitions are to be given back: five seconds, and less than the group waits for
    /// a member (`max.poll.interval.ms`).
    pub fn revoke_patience(&self) -> Duration {
        let set = self.source.iter().rev().find(|(name, _)| name == "max.poll.interval.ms");
        let waits = set.and_then(|(_, value)| value.parse().ok()).map_or(Duration::MAX, Duration::from_millis);
        REVOKE.min(waits / 2)
    }

    /// Longest record that can be written, in bytes.
    pub fn largest(&self) -> usize {
        let set = self.source.iter().chain(&self.sink).rev().find(|(name, _)| name == "message.max.bytes");
        // The library counts an overhead of its own.
        set.and_then(|(_, value)| value.parse().ok()).unwrap_or(LARGEST).saturating_sub(512)
    }

    fn begin(&self, ours: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("client.id", "tamis");
        // A client that never reached the broker it takes for a partition's leader asks nobody who leads now, but for
        // this; by default it would wait five minutes.
        config.set("topic.metadata.refresh.interval.ms", "5000");
        for (name, value) in ours {
            config.set(*name, *value);
        }
        for (name, value) in &self.source {
            config.set(name, value);
        }
        // Lines below it are the signal that a request may have a late copy.
        config.set_log_level(RDKafkaLogLevel::Info);
        config
    }

    fn own(&self, config: &mut ClientConfig, committed_only: bool) {
        let isolation = if committed_only { "read_committed" } else { "read_uncommitted" };
        config
            .set("group.id", &self.group)
            .set("isolation.level", isolation)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error");
    }
}

/// Source and sink of a pipeline from Kafka to Kafka.
pub fn ends(pipeline: &Pipeline) -> Result<(&KafkaSource, &KafkaSink), Trouble> {
    match (&pipeline.source, &pipeline.sink) {
        (Source::Kafka(source), Sink::Kafka(sink)) => Ok((source, sink)),
        _ => Err(Trouble::new(
            "from Kafka to somewhere else, and the reverse, is not built yet",
            "name a Kafka topic at both ends, or files at both",
        )),
    }
}
