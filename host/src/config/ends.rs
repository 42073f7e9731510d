//! The mappings of sources and sinks (pipeline-file sections 4 and 10).

use super::table::Default::{Depends, Is, None as Nothing, Required};
use super::table::{Kind, Member, Table};
use super::tables::member;

const FORMATS: Kind = Kind::Choice(&["lines", "json", "csv", "envelope"]);

/// `source.file`.
pub static FILE_SOURCE: Table = Table {
    name: "`source.file`",
    doc: "Files; each is one partition.",
    short: Some("path"),
    members: &[
        member("path", Kind::Many(&Kind::Text), Required, "A path, a glob, or a list; a glob in the order of names."),
        member("format", FORMATS, Is("json"), "How bytes become records."),
        member("follow", Kind::Bool, Is("false"), "Wait for more at the end: unbounded input."),
        member("topic", Kind::Text, Depends("the file's name"), "What `topic` says in paths and positions."),
    ],
};

/// `source.stdin`.
pub static STDIN: Table = Table {
    name: "`source.stdin`",
    doc: "Standard input; one partition.",
    short: None,
    members: &[
        member("format", FORMATS, Is("json"), "How bytes become records."),
        member("topic", Kind::Text, Is("stdin"), "What `topic` says in paths and positions."),
    ],
};

/// `source.kafka`.
pub static KAFKA_SOURCE: Table = Table {
    name: "`source.kafka`",
    doc: "Kafka topics.",
    short: Some("topics"),
    members: &[
        member("topics", Kind::Many(&Kind::Topic), Required, "Topics to read."),
        member("brokers", Kind::Text, Depends("`bootstrap.servers` of `properties`"), "Short for that setting."),
        member("group", Kind::Text, Depends("the pipeline's name"), "Consumer group."),
        member(
            "start",
            Kind::Either(&[Kind::Choice(&["earliest", "latest"]), Kind::Instant]),
            Is("earliest"),
            "Where to begin without a committed position.",
        ),
        member(
            "until",
            Kind::Either(&[Kind::Choice(&["end"]), Kind::Instant]),
            Nothing,
            "Bounded input: stop at the end offsets seen at the start, or at an instant.",
        ),
        member(
            "isolation",
            Kind::Choice(&["read_committed", "read_uncommitted"]),
            Is("read_committed"),
            "Which records are read.",
        ),
        member(
            "lost",
            Kind::Choice(&["fail", "skip"]),
            Is("fail"),
            "Records that retention removed before they were read.",
        ),
        member("properties", Kind::FreeMap, Is("{}"), "Client settings under librdkafka names."),
    ],
};

/// What `source` may be.
pub static SOURCES: [Member; 3] = [
    member("kafka", Kind::Map(&KAFKA_SOURCE), Nothing, "Kafka topics."),
    member("file", Kind::Map(&FILE_SOURCE), Nothing, "Files."),
    member("stdin", Kind::Map(&STDIN), Nothing, "Standard input."),
];

static CREATE: Table = Table {
    name: "`create`",
    doc: "Make the topic if it is missing.",
    short: None,
    members: &[
        member("partitions", Kind::Integer(1), Nothing, "Number of partitions."),
        member("replication", Kind::Integer(1), Nothing, "Number of copies."),
        member("config", Kind::FreeMap, Nothing, "Settings of the topic."),
    ],
};

/// `sink.kafka`.
pub static KAFKA_SINK: Table = Table {
    name: "`sink.kafka`",
    doc: "A Kafka topic.",
    short: Some("topic"),
    members: &[
        member("topic", Kind::Topic, Required, "Topic to write."),
        member("brokers", Kind::Text, Depends("those of the source"), "Short for `bootstrap.servers`."),
        member(
            "delivery",
            Kind::Choice(&["exactly-once", "at-least-once"]),
            Is("exactly-once"),
            "Promise of the whole pipeline.",
        ),
        member("create", Kind::Map(&CREATE), Nothing, "Make the topic if it is missing."),
        member("timestamp", Kind::Choice(&["record", "event"]), Is("record"), "Timestamp of what is written."),
        member("properties", Kind::FreeMap, Is("{}"), "Client settings under librdkafka names."),
    ],
};

/// `sink.file`.
pub static FILE_SINK: Table = Table {
    name: "`sink.file`",
    doc: "A file that is appended to.",
    short: Some("path"),
    members: &[
        member("path", Kind::Text, Required, "Where; what an unfinished run left is cut back to the last commit."),
        member(
            "format",
            FORMATS,
            Depends("`json`; `envelope` for routes and dead letters"),
            "How records become bytes.",
        ),
    ],
};

/// `sink.stdout`.
pub static STDOUT: Table = Table {
    name: "`sink.stdout`",
    doc: "Standard output; data only.",
    short: None,
    members: &[member(
        "format",
        FORMATS,
        Depends("`json`; `envelope` for routes and dead letters"),
        "How records become bytes.",
    )],
};

/// What `sink`, a route and the dead letter may be.
pub static SINKS: [Member; 3] = [
    member("kafka", Kind::Map(&KAFKA_SINK), Nothing, "A Kafka topic."),
    member("file", Kind::Map(&FILE_SINK), Nothing, "A file."),
    member("stdout", Kind::Map(&STDOUT), Nothing, "Standard output."),
];

/// A sink: one of those, `stdout` alone.
pub const SINK_FORMS: Kind = Kind::OneOf(&SINKS, &["stdout"]);
