//! What the mappings `source.kafka` and `sink.kafka` mean (4.1, 10).

use std::collections::BTreeMap;
use std::path::Path;

use super::diagnostic::Diagnostic;
use super::ends;
use super::node::Node;
use super::section::Section;

/// `source.kafka`.
#[derive(Clone, Debug)]
pub struct KafkaSource {
    /// Topics to read.
    pub topics: Vec<String>,
    /// `bootstrap.servers`, if it is not among the properties.
    pub brokers: Option<String>,
    /// Consumer group; `None`: the pipeline's name.
    pub group: Option<String>,
    /// Where to begin without a committed position.
    pub start: Start,
    /// Where the input ends; `None`: it does not.
    pub until: Option<Until>,
    /// Records of transactions that were aborted, or are open, are not read.
    pub committed_only: bool,
    /// Records that retention removed before they were read are passed over; else they stop the run.
    pub skip_lost: bool,
    /// Client settings under librdkafka names.
    pub properties: Vec<(String, Setting)>,
    /// As written.
    pub node: Node,
}

/// `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The first record there is.
    Earliest,
    /// What comes from now on.
    Latest,
    /// The first record stamped at or after this instant, ns since 1970.
    At(i64),
}

/// `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The end offsets seen at the start.
    End,
    /// The first record stamped at or after this instant, ns since 1970.
    At(i64),
}

/// `sink.kafka`.
#[derive(Clone, Debug)]
pub struct KafkaSink {
    /// Topic to write.
    pub topic: String,
    /// `bootstrap.servers`; `None`: that of the source.
    pub brokers: Option<String>,
    /// Output, state and positions in one transaction; else at least once.
    pub exactly_once: bool,
    /// How the topic is made if it is missing.
    pub create: Option<Create>,
    /// Records leave with their event time; else with their own timestamp.
    pub event_timestamp: bool,
    /// Client settings under librdkafka names.
    pub properties: Vec<(String, Setting)>,
    /// As written.
    pub node: Node,
}

/// `create`.
#[derive(Clone, Debug, Default)]
pub struct Create {
    /// Number of partitions; `None`: as many as the source has.
    pub partitions: Option<i32>,
    /// Number of copies; `None`: the broker's default.
    pub replication: Option<i32>,
    /// Settings of the topic.
    pub config: BTreeMap<String, String>,
}

/// A client setting: a value, or where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The value.
    Text(String),
    /// An environment variable has it.
    FromEnv(String),
    /// A file has it.
    FromFile(String),
}

/// Names of settings whose values nobody should see.
const SECRET: [&str; 4] = ["password", "secret", ".pem", "sasl.oauthbearer.config"];

/// Whether the value of a client setting is not to be shown, however it was written.
pub fn is_secret(name: &str) -> bool {
    SECRET.iter().any(|part| name.contains(part)) && name != "ssl.certificate.pem" && name != "ssl.ca.pem"
}

impl Setting {
    /// Whether the value is not to be shown: it comes from elsewhere, or `name` says so.
    pub fn is_secret(&self, name: &str) -> bool {
        !matches!(self, Setting::Text(_)) || is_secret(name)
    }

    /// The value. The error is for a person; it does not tell the value.
    pub fn value(&self, environment: &BTreeMap<String, String>, base: &Path) -> Result<String, String> {
        match self {
            Setting::Text(text) => Ok(text.clone()),
            Setting::FromEnv(name) => {
                environment.get(name).cloned().ok_or_else(|| format!("the environment variable {name} is not set"))
            }
            Setting::FromFile(path) => std::fs::read_to_string(base.join(path))
                .map(|text| text.trim_end_matches(['\n', '\r']).to_owned())
                .map_err(|error| format!("{path} cannot be read: {error}")),
        }
    }
}

/// Client settings that the host owns, and what to write in place of them.
const OWNED: [(&str, &str); 12] = [
    ("group.id", "write `group`"),
    ("enable.auto.commit", "positions are committed with the output"),
    ("enable.auto.offset.store", "positions are committed with the output"),
    ("transactional.id", "it is made of the pipeline's name and `run.instance`"),
    (
        "transaction.timeout.ms",
        "a transaction is open for 15 s at most, so that one of a process that died holds nobody up",
    ),
    ("partition.assignment.strategy", "partitions move one by one, by `cooperative-sticky`"),
    ("isolation.level", "write `isolation`"),
    ("auto.offset.reset", "write `start`"),
    ("enable.idempotence", "output is always idempotent"),
    ("enable.partition.eof", "write `until: end`"),
    ("partitioner", "records go where the Java client would send them"),
    ("delivery.report.only.error", "the host reads delivery reports itself"),
];

/// Reads `source.kafka`.
pub fn source(node: &Node, findings: &mut Vec<Diagnostic>) -> KafkaSource {
    owned_settings(node, findings);
    let section = Section::new(Some(node), &ends::KAFKA_SOURCE);
    let topics: Vec<String> = section.many("topics").iter().filter_map(|n| n.as_text().map(str::to_owned)).collect();
    if let (true, Some(written)) = (topics.is_empty(), section.node("topics")) {
        findings.push(Diagnostic::error("P-VALUE", written.span, "no topic is named").help("name at least one"));
    }
    let brokers = section.text("brokers");
    let properties = properties(section);
    if brokers.is_none() && !properties.iter().any(|(name, _)| name == "bootstrap.servers") {
        findings.push(
            Diagnostic::error("P-MISSING", node.span, "a Kafka source needs `brokers`")
                .help("add `brokers: \"localhost:9092\"`"),
        );
    }
    KafkaSource {
        topics,
        brokers,
        group: section.text("group"),
        start: match (section.text("start").as_deref(), section.instant("start")) {
            (Some("latest"), _) => Start::Latest,
            (_, Some(at)) => Start::At(at),
            _ => Start::Earliest,
        },
        until: match (section.text("until").as_deref(), section.instant("until")) {
            (Some("end"), _) => Some(Until::End),
            (_, Some(at)) => Some(Until::At(at)),
            _ => None,
        },
        committed_only: section.text("isolation").as_deref() != Some("read_uncommitted"),
        skip_lost: section.text("lost").as_deref() == Some("skip"),
        properties,
        node: node.clone(),
    }
}

/// Reads `sink.kafka`; `None`: no topic, which has been reported.
pub fn sink(node: &Node, findings: &mut Vec<Diagnostic>) -> Option<KafkaSink> {
    owned_settings(node, findings);
    let section = Section::new(Some(node), &ends::KAFKA_SINK);
    let create = section.node("create").filter(|n| !n.is_null()).map(|_| {
        let create = section.section("create");
        let number = |name: &str| create.integer(name).and_then(|n| i32::try_from(n).ok());
        let config = create.node("config").and_then(Node::as_map).unwrap_or_default();
        Create {
            partitions: number("partitions"),
            replication: number("replication"),
            config: config.iter().filter_map(|(name, _, node)| Some((name.clone(), scalar(node)?))).collect(),
        }
    });
    Some(KafkaSink {
        topic: section.text("topic")?,
        brokers: section.text("brokers"),
        exactly_once: section.text("delivery").as_deref() != Some("at-least-once"),
        create,
        event_timestamp: section.text("timestamp").as_deref() == Some("event"),
        properties: properties(section),
        node: node.clone(),
    })
}

fn properties(section: Section<'_>) -> Vec<(String, Setting)> {
    let written = section.node("properties").and_then(Node::as_map).unwrap_or_default();
    let setting = |node: &Node| {
        let inside = |name: &str| node.get(name).and_then(Node::as_text).map(str::to_owned);
        match (inside("from_env"), inside("from_file")) {
            (Some(name), _) => Some(Setting::FromEnv(name)),
            (_, Some(path)) => Some(Setting::FromFile(path)),
            _ => scalar(node).map(Setting::Text),
        }
    };
    written.iter().filter_map(|(name, _, node)| Some((name.clone(), setting(node)?))).collect()
}

/// A number, a truth or a text as text.
fn scalar(node: &Node) -> Option<String> {
    match (node.as_text(), node.as_bool(), node.as_number()) {
        (Some(text), _, _) => Some(text.to_owned()),
        (_, Some(truth), _) => Some(truth.to_string()),
        (_, _, Some(number)) => Some(number.to_owned()),
        _ => None,
    }
}

/// Settings of a member that the broker owns under `group.protocol: consumer`.
const BROKERS_OWN: [&str; 2] = ["session.timeout.ms", "heartbeat.interval.ms"];

/// Client settings that the host owns are refused (P-OWNED), and those that the group protocol does not go with.
fn owned_settings(node: &Node, findings: &mut Vec<Diagnostic>) {
    let properties = node.get("properties").and_then(Node::as_map).unwrap_or_default();
    let protocol = properties.iter().find(|(name, ..)| name == "group.protocol").and_then(|(.., node)| node.as_text());
    for (name, span, _) in properties.iter().filter(|_| protocol == Some("consumer")) {
        if name == "group.instance.id" {
            findings.push(
                Diagnostic::error(
                    "P-OWNED",
                    *span,
                    "under `group.protocol: consumer` a member that was killed keeps its `group.instance.id` from its successor until its session ends",
                )
                .help("leave `group.protocol` out: under the classic protocol a restart goes on at once")
                .help("or leave `group.instance.id` out"),
            );
        }
        if BROKERS_OWN.contains(&name.as_str()) {
            findings.push(
                Diagnostic::error(
                    "P-OWNED",
                    *span,
                    format!("under `group.protocol: consumer` the broker sets `{name}`"),
                )
                .help(format!("leave it out; `group.consumer.{name}` is the broker's setting")),
            );
        }
    }
    for (name, span, _) in properties {
        if let Some((_, help)) = OWNED.iter().find(|(owned, _)| owned == name) {
            findings.push(Diagnostic::error("P-OWNED", *span, format!("`{name}` is set by tamis itself")).help(*help));
        }
    }
}
