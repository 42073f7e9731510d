//! A pipeline as it is meant: every default filled in, every name resolved, every span kept. `check.rs` makes it from
//! what was written (`node.rs`); everything behind it reads this and nothing else.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::diagnostic::Diagnostic;
use super::kafka::{KafkaSink, KafkaSource};
use super::node::Node;
use super::path::Path;
use super::secrets::Secrets;

/// One pipeline file, checked.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Name of the pipeline: state, metrics, consumer group.
    pub name: String,
    /// Free text.
    pub description: Option<String>,
    /// Free, never interpreted.
    pub labels: Value,
    /// Where records come from.
    pub source: Source,
    /// Codec of keys and values on the way in.
    pub decode: Codecs,
    /// Event time (6.1).
    pub time: Time,
    /// The stages, in order.
    pub stages: Vec<Stage>,
    /// Codec on the way out; `None`: as decoded.
    pub encode: Encoders,
    /// Where the output goes.
    pub sink: Sink,
    /// Route `late`.
    pub late: Option<Sink>,
    /// Route `duplicates`.
    pub duplicates: Option<Sink>,
    /// What happens to records that fail.
    pub errors: Errors,
    /// Bounds of batches and guests.
    pub limits: Limits,
    /// Where keyed state lives.
    pub state: State,
    /// Commit, stop, health.
    pub run: Run,
    /// What parameters of guests name, and only the guests may see.
    pub secrets: Secrets,
    /// The tests, as written.
    pub tests: Vec<Node>,
    /// The file it stands in: `./file.wasm` and `modules/` are beside it.
    pub file: Option<Arc<std::path::Path>>,
    /// Everything as written.
    pub root: Node,
    /// Warnings about the file itself (W-QUOTED).
    pub findings: Vec<Diagnostic>,
}

/// Section 4.
#[derive(Clone, Debug)]
pub enum Source {
    /// Files, each one partition.
    File {
        /// As written: paths and globs, in order.
        paths: Vec<String>,
        /// How bytes become records.
        format: Format,
        /// Wait for more at the end.
        follow: bool,
        /// What `topic` says; `None`: the file's name.
        topic: Option<String>,
    },
    /// Standard input.
    Stdin {
        /// How bytes become records.
        format: Format,
        /// What `topic` says.
        topic: String,
    },
    /// Kafka topics.
    Kafka(Box<KafkaSource>),
}

/// How bytes become records, and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Format {
    Lines,
    Json,
    Csv,
    Envelope,
}

/// A guest as a file names it.
#[derive(Clone, Debug)]
pub struct Uses {
    /// `name`, `name@1.2`, `./file.wasm`.
    pub name: String,
    /// Its parameters, as JSON.
    pub with: Value,
    /// The parameters as written, for spans; `None` if left out.
    pub node: Option<Node>,
    /// Where the name stands.
    pub span: super::node::Span,
}

/// `decode`.
#[derive(Clone, Debug)]
pub struct Codecs {
    /// Of record keys.
    pub key: Uses,
    /// Of record values.
    pub value: Uses,
}

/// `encode`; `None`: as decoded, and for keys that a stage made `json`.
#[derive(Clone, Debug, Default)]
pub struct Encoders {
    /// Of record keys.
    pub key: Option<Uses>,
    /// Of record values.
    pub value: Option<Uses>,
}

/// Section 6.1. Durations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Time {
    /// Where event time is.
    pub field: Path,
    /// Nanoseconds in one unit of a number.
    pub unit: i64,
    /// Below it a time is invalid, ns; `None`: no bound.
    pub min: Option<i64>,
    /// Further ahead of processing time it is invalid.
    pub max_future: Option<i64>,
    /// What happens to invalid ones.
    pub invalid: InvalidTime,
    /// Greatest expected disorder.
    pub delay: i64,
    /// After this long a silent input no longer holds the watermark.
    pub idle: Option<i64>,
    /// An input further ahead of the slowest is not read.
    pub max_drift: Option<i64>,
    /// Watermarks come from test steps alone.
    pub manual: bool,
    /// The mapping as written, to merge a test's `time` into.
    pub node: Option<Node>,
}

/// `time.invalid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum InvalidTime {
    Dlq,
    Fail,
    Timestamp,
}

/// Section 7.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Label; unique.
    pub id: String,
    /// Whether the file gave the id (W-ID).
    pub id_given: bool,
    /// The guest and its parameters.
    pub uses: Uses,
    /// What the stage keeps its state by.
    pub key: Option<Key>,
    /// Among which records.
    pub scope: Scope,
    /// Retention and bounds.
    pub state: Bounds,
    /// The stage as written, for spans and for a test's replacements.
    pub node: Node,
}

/// `scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Scope {
    Global,
    Partition,
    Stream,
}

/// Section 7.1.
#[derive(Clone, Debug)]
pub struct Key {
    /// What the key is made of.
    pub form: KeyForm,
    /// `None`: the default of the stage's output.
    pub null_key: Option<NullKey>,
    /// A missing part is a value of its own.
    pub missing_distinct: bool,
    /// Compare numbers by type and value.
    pub typed_numbers: bool,
    /// Normalisation of the copy used as key.
    pub normalize: Option<Normalize>,
    /// Fold case in the copy used as key.
    pub casefold: bool,
    /// As written.
    pub node: Node,
}

/// What a key is made of.
#[derive(Clone, Debug)]
pub enum KeyForm {
    /// An ordered tuple; empty: everything is the same.
    Fields(Vec<Part>),
    /// A document without some paths; the paths are below the root.
    Whole {
        /// `value` or `key`.
        root: Path,
        /// Left out.
        except: Vec<Path>,
    },
    /// A guest of world key-guest.
    Guest(Uses),
}

/// One part of a tuple.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it names.
    pub path: Path,
    /// Member name in upsert keys.
    pub name: String,
    /// How header bytes are read.
    pub read_as: ReadAs,
}

/// `as` of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ReadAs {
    Bytes,
    Text,
    Int,
    Decimal,
    Boolean,
}

/// `null_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NullKey {
    Pass,
    Dlq,
    Group,
    Drop,
    Fail,
}

/// `normalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Normalize {
    Nfc,
    Nfkc,
}

/// Section 7.2, `state` of a stage.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// Forget a key after this time.
    pub retention: Option<Retention>,
    /// Entries, per task.
    pub max_entries: Option<u64>,
    /// Bytes, per task.
    pub max_bytes: Option<u64>,
    /// At a bound.
    pub overflow: Overflow,
    /// Accept state that grows for ever.
    pub unbounded: bool,
    /// The state store fails.
    pub on_error: OnError,
    /// As written.
    pub node: Option<Node>,
}

/// `retention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Nanoseconds; 0 means never; negative is refused by the plan (D-RETENTION).
    pub length: i64,
    /// `None`: the stage's clock (ingestion counts as event).
    pub clock: Option<RetentionClock>,
    /// Any record of the key renews it.
    pub on_access: bool,
}

/// `retention.clock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RetentionClock {
    Event,
    Processing,
}

/// `overflow`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Overflow {
    #[default]
    Pause,
    Fail,
    EvictOldest,
}

/// `on_error`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum OnError {
    #[default]
    Pause,
    Pass,
    Dlq,
    Fail,
}

/// Section 10.
#[derive(Clone, Debug)]
pub enum Sink {
    /// Appended to.
    File {
        /// Where.
        path: PathBuf,
        /// How records become bytes.
        format: Format,
    },
    /// Standard output.
    Stdout {
        /// How records become bytes.
        format: Format,
    },
    /// A Kafka topic.
    Kafka(Box<KafkaSink>),
}

/// Section 11.
#[derive(Clone, Debug)]
pub struct Errors {
    /// Where failed records go.
    pub dead_letter: Option<Sink>,
    /// Whether a failed record stops the pipeline.
    pub tolerance: Tolerance,
    /// For failures that may pass: in all, ns.
    pub retry_for: i64,
    /// Greatest pause between two tries, ns.
    pub retry_max_delay: i64,
    /// Log each failure.
    pub log: bool,
    /// Put values into logs.
    pub include_values: bool,
}

/// `tolerance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Tolerance {
    None,
    All,
}

/// `limits`. Durations in ns, sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// One guest call, plus 1 ms per row.
    pub call: i64,
    /// One guest instance.
    pub memory: u64,
    /// What one call may return.
    pub output: u64,
    /// Log text of one call.
    pub log: u64,
    /// Rows of a batch.
    pub batch_rows: usize,
    /// Bytes of a batch.
    pub batch_bytes: usize,
    /// How long a partial batch waits.
    pub batch_wait: i64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            call: 1_000_000_000,
            memory: 64 << 20,
            output: 8 << 20,
            log: 64 << 10,
            batch_rows: 1024,
            batch_bytes: 256 << 10,
            batch_wait: 5_000_000,
        }
    }
}

/// `state` at the top level.
#[derive(Clone, Debug)]
pub struct State {
    /// Survives a crash.
    pub durable: bool,
    /// Checkpoints and journal; `None`: the platform's state directory, below it the pipeline name.
    pub dir: Option<PathBuf>,
    /// Between checkpoints, ns.
    pub checkpoint: i64,
    /// All stages together, on disk.
    pub quota: u64,
    /// Kafka: changelog topics are made if they are missing.
    pub create_changelog: bool,
    /// Kafka: copies of changelog topics that are made.
    pub changelog_replication: i32,
    /// Kafka: a changelog that is gone means empty state.
    pub accept_loss: bool,
}

/// `run`. Durations in ns.
#[derive(Clone, Debug)]
pub struct Run {
    /// Between commits.
    pub commit: i64,
    /// Name of this process.
    pub instance: Option<String>,
    /// To drain after SIGTERM.
    pub stop: i64,
    /// Health and metrics; `None`: none.
    pub http: Option<String>,
}
