//! Connector options as source and sink.

use serde_json::{Map, Value, json};

use super::Notes;
use super::stage::Takes;
use super::table::{Item, Table};

/// Source or sink in place of those of the statements.
pub struct Replaced<'a> {
    /// A file or `-`.
    pub name: &'a str,
    /// Whether more than the value matters: key, timestamp, headers.
    pub envelope: bool,
}

impl Replaced<'_> {
    /// As `source`.
    pub fn source(&self, topic: &str) -> Value {
        let format = if self.envelope { "envelope" } else { "json" };
        match self.name {
            "-" => json!({ "stdin": { "format": format, "topic": topic } }),
            path => json!({ "file": { "path": path, "format": format, "topic": topic } }),
        }
    }

    /// As `sink`.
    pub fn sink(&self) -> Value {
        let format = if self.envelope { "envelope" } else { "json" };
        match self.name {
            "-" => json!({ "stdout": { "format": format } }),
            path => json!({ "file": { "path": path, "format": format } }),
        }
    }
}

/// The topics of a table, or its name where it is none of Flink's connectors: a table of Confluent Cloud is a topic.
fn topics(table: &Table) -> Vec<String> {
    match table.option("topic") {
        Some(topics) => topics.split(';').map(|topic| topic.trim().to_string()).collect(),
        None => vec![table.name.clone()],
    }
}

/// Whether a connector is Kafka: those that say so, and tables without one.
fn is_kafka(table: &Table) -> bool {
    table.option("connector").is_none_or(|name| ["kafka", "upsert-kafka", "confluent"].contains(&name))
}

/// What a sink takes.
pub fn takes(table: Option<&Table>) -> Takes {
    let Some(table) = table else { return Takes::Anything };
    match (table.option("changelog.mode"), table.option("connector")) {
        (Some("upsert"), _) | (None, Some("upsert-kafka")) => Takes::Upserts,
        (Some("retract"), _) => Takes::Retractions,
        (None, Some("print" | "blackhole")) => Takes::Anything,
        // Tables with a key and no connector are topics of Confluent Cloud, whose mode is then upsert.
        (None, None) if !table.primary_key.is_empty() => Takes::Upserts,
        _ => Takes::Appends,
    }
}

/// The source of a table; `None`: the reason is among the findings.
pub fn source(table: &Table, notes: &mut Notes<'_>) -> Option<Value> {
    if table.option("connector") == Some("filesystem") {
        let path = table.option("path").unwrap_or_default();
        return Some(json!({ "file": { "path": path.strip_prefix("file://").unwrap_or(path) } }));
    }
    if !is_kafka(table) {
        let name = table.option("connector").unwrap_or_default();
        notes.refuse(
            &format!("there is no source for the connector `{name}`"),
            table.span,
            "`--from FILE` reads a file in its place",
        );
        return None;
    }
    let mut kafka = Map::new();
    let topics = topics(table);
    let topics = if topics.len() == 1 { json!(topics[0]) } else { json!(topics) };
    kafka.insert("topics".to_string(), topics);
    connection(table, &mut kafka, notes);
    for Item { name, value, span } in &table.options {
        match name.as_str() {
            "properties.group.id" => drop(kafka.insert("group".to_string(), json!(value))),
            "properties.isolation.level" => drop(kafka.insert("isolation".to_string(), json!(value))),
            "scan.startup.mode" => match value.as_str() {
                "earliest-offset" => drop(kafka.insert("start".to_string(), json!("earliest"))),
                "latest-offset" => drop(kafka.insert("start".to_string(), json!("latest"))),
                // Committed positions come first in any case.
                "group-offsets" => {}
                "timestamp" => {
                    let millis =
                        table.option("scan.startup.timestamp-millis").and_then(|text| text.parse::<i64>().ok());
                    let instant = millis.map(|millis| crate::instant::format(millis.saturating_mul(1_000_000)));
                    kafka.insert("start".to_string(), json!(instant));
                }
                other => notes.warn(
                    "W-SQL",
                    &format!("a start at `{other}` has no equivalent: left out"),
                    *span,
                    "start: earliest, latest or an instant",
                ),
            },
            "scan.bounded.mode" if value == "latest-offset" => drop(kafka.insert("until".to_string(), json!("end"))),
            "properties.auto.offset.reset" if ["earliest", "latest"].contains(&value.as_str()) => {
                kafka.entry("start").or_insert(json!(value));
            }
            _ => {}
        }
    }
    formats(table, notes);
    Some(json!({ "kafka": in_order(kafka) }))
}

/// The sink of a table.
pub fn sink(table: &Table, source: Option<&Table>, event_time: bool, notes: &mut Notes<'_>) -> Option<Value> {
    match table.option("connector") {
        Some("print") => return Some(json!({ "stdout": {} })),
        Some("filesystem") => {
            let path = table.option("path").unwrap_or_default();
            return Some(json!({ "file": { "path": path.strip_prefix("file://").unwrap_or(path) } }));
        }
        Some(name) if !is_kafka(table) => {
            notes.refuse(
                &format!("there is no sink for the connector `{name}`"),
                table.span,
                "`--to FILE` writes a file in its place",
            );
            return None;
        }
        _ => {}
    }
    let mut kafka = Map::new();
    kafka.insert("topic".to_string(), json!(topics(table).first()));
    let servers = |table: &Table| table.option("properties.bootstrap.servers").map(str::to_string);
    if servers(table).is_some() && source.and_then(servers) != servers(table) {
        connection(table, &mut kafka, notes);
    }
    if let Some(delivery) = table.option("sink.delivery-guarantee").filter(|word| *word == "at-least-once") {
        kafka.insert("delivery".to_string(), json!(delivery));
    }
    if event_time {
        kafka.insert("timestamp".to_string(), json!("event"));
    }
    if table.option("connector").is_none() {
        // There the statement makes the topic.
        kafka.insert("create".to_string(), json!({}));
    }
    formats(table, notes);
    Some(json!({ "kafka": kafka }))
}

/// How to reach the cluster.
fn connection(table: &Table, kafka: &mut Map<String, Value>, notes: &mut Notes<'_>) {
    match table.option("properties.bootstrap.servers") {
        Some(servers) => drop(kafka.insert("brokers".to_string(), json!(servers))),
        None => {
            kafka.insert("brokers".to_string(), json!("localhost:9092"));
            notes.warn(
                "W-SQL",
                "the table names no broker: localhost:9092 stands in its place",
                table.span,
                "write the address of yours",
            );
        }
    }
    /// Names that the client here shares with the Java one.
    const SHARED: [&str; 8] = [
        "security.protocol",
        "sasl.mechanism",
        "client.id",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "fetch.min.bytes",
        "client.rack",
    ];
    let mut properties = Map::new();
    for Item { name, value, span } in &table.options {
        let Some(name) = name.strip_prefix("properties.") else { continue };
        match name {
            "bootstrap.servers" | "group.id" | "isolation.level" | "auto.offset.reset" => {}
            name if SHARED.contains(&name) => drop(properties.insert(name.to_string(), json!(value))),
            "sasl.jaas.config" => {
                let user = value.split("username=").nth(1).and_then(|rest| rest.split(['"', '\'']).nth(1));
                if let Some(user) = user {
                    properties.insert("sasl.username".to_string(), json!(user));
                }
                properties.insert("sasl.password".to_string(), json!({ "from_env": "KAFKA_PASSWORD" }));
                notes.note("user and password stand in `sasl.username` and `sasl.password`; the password comes from the variable KAFKA_PASSWORD and is not copied", *span);
            }
            name => notes.note(&format!("the client setting `{name}` is the Java client's: left out; librdkafka's name goes into `properties`"), *span),
        }
    }
    if !properties.is_empty() {
        kafka.insert("properties".to_string(), Value::Object(properties));
    }
}

/// Formats that no bundled codec reads.
fn formats(table: &Table, notes: &mut Notes<'_>) {
    for Item { name, value, span } in &table.options {
        let is_format = matches!(name.as_str(), "format" | "value.format" | "key.format");
        if is_format && !["json", "raw", "json-registry"].contains(&value.as_str()) {
            let text = format!("no bundled codec reads or writes `{value}`: the pipeline has JSON in its place");
            notes.warn("W-SQL", &text, *span, "a codec guest: `decode: { value: ./codec.wasm }`");
        }
        if value == "json-registry" && is_format {
            notes.note("the schema's number in front of the JSON is not read: the topic must hold plain JSON", *span);
        }
    }
}

/// Options that are neither source, sink nor said elsewhere.
pub fn others(table: &Table, notes: &mut Notes<'_>) {
    const KNOWN: [&str; 22] = [
        "connector",
        "topic",
        "format",
        "value.format",
        "key.format",
        "key.fields",
        "key.fields-prefix",
        "path",
        "value.fields-include",
        "scan.startup.mode",
        "scan.startup.timestamp-millis",
        "scan.bounded.mode",
        "changelog.mode",
        "sink.delivery-guarantee",
        "sink.transactional-id-prefix",
        "json.ignore-parse-errors",
        "value.json.ignore-parse-errors",
        "json.fail-on-missing-field",
        "json.timestamp-format.standard",
        "value.json.fail-on-missing-field",
        "json.encode.decimal-as-plain-number",
        "sink.parallelism",
    ];
    for Item { name, span, .. } in &table.options {
        let registry = name.contains("avro") || name.contains("schema-registry");
        if !KNOWN.contains(&name.as_str()) && !name.starts_with("properties.") && !registry {
            notes.note(&format!("the option `{name}` has no equivalent: left out"), *span);
        }
    }
}

/// Whether broken records are passed over.
pub fn skips_broken_records(table: &Table) -> bool {
    ["json.ignore-parse-errors", "value.json.ignore-parse-errors"].iter().any(|name| table.option(name) == Some("true"))
}

fn in_order(mut kafka: Map<String, Value>) -> Map<String, Value> {
    let mut all = Map::new();
    for name in ["topics", "brokers", "group", "start", "until", "isolation", "properties"] {
        all.extend(kafka.remove(name).map(|value| (name.to_string(), value)));
    }
    all
}
