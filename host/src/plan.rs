//! What would run: the pipeline with its modules, what each stage reads and writes, what is decoded, which clocks are
//! kept. Pure: modules are found through a trait, nothing is opened.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::config::diagnostic::Diagnostic;
use crate::config::path::{Path, Root};
use crate::config::pipeline::{Key, NullKey, Pipeline, Scope, Source};
use crate::guest::Module;

mod answer;
mod exchange;
mod judge;
mod make;
mod parts;
mod project;

pub use make::{check_parameters, plan};

/// A pipeline that may run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The pipeline, every default filled in.
    pub pipeline: Pipeline,
    /// Its stages, in order.
    pub stages: Vec<Planned>,
    /// Codec of record keys on the way in.
    pub decode_key: Coder,
    /// Codec of record values on the way in.
    pub decode_value: Coder,
    /// Codec of keys that came in: `encode.key`, else as decoded.
    pub encode_key: Coder,
    /// Codec of keys that a stage made: `encode.key`, else `json`.
    pub encode_made_key: Coder,
    /// Codec of values: `encode.value`, else as decoded.
    pub encode_value: Coder,
    /// Whether keys that no stage changed are encoded all the same: `encode.key` names another codec than `decode.key`.
    pub reencode_key: bool,
    /// Whether values that no stage changed are encoded all the same.
    pub reencode_value: bool,
    /// What of the value is decoded, each once, in the order of the columns of `decode`; all with root `value`, the
    /// empty path is the whole document. Empty: values are not decoded.
    pub value_paths: Vec<Path>,
    /// What of the key is decoded; all with root `key`.
    pub key_paths: Vec<Path>,
    /// Whether event time is evaluated (6.1).
    pub event_time: bool,
    /// Whether ingestion time is.
    pub ingestion: bool,
    /// Whether all partitions are inputs of one task (`scope: global` over several); else each is a task of its own.
    pub one_task: bool,
    /// Warnings and notes, in the order of the file.
    pub findings: Vec<Diagnostic>,
}

/// A codec guest and its parameters.
#[derive(Clone, Debug)]
pub struct Coder {
    /// The guest.
    pub module: Module,
    /// Its parameters.
    pub params: Value,
}

/// One stage of a plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its label.
    pub id: String,
    /// Its guest.
    pub module: Module,
    /// Its parameters, as the guest gets them.
    pub params: Value,
    /// What the guest gets as context in `check` and `open`.
    pub context: Value,
    /// What it keeps its state by; `None` for stateless stages.
    pub key: Option<PlannedKey>,
    /// Among which records: as the file says, but `Partition` where the exchange is left out (section 7).
    pub scope: Scope,
    /// What the guest said of itself.
    pub traits: Traits,
    /// Columns of `process`, in order.
    pub reads: Vec<ColumnRef>,
    /// Columns of the output, in order.
    pub writes: Vec<ColumnRef>,
    /// Routes, by number from 1 in outcomes.
    pub routes: Vec<String>,
    /// Counters, in order.
    pub counters: Vec<String>,
    /// Whether time of the event clock is evaluated for this stage: its clock, `order: time`, retention, heartbeat.
    pub wants_event_time: bool,
    /// What its kept state is made with (R8): give it back as `Conditions::stored` when it is restored.
    pub identity: Value,
    /// Its parameters with every default filled in, if the guest told them.
    pub settings: Option<Value>,
    /// What the guest says of itself to the person who plans, if it does.
    pub says: Option<Says>,
}

/// A guest's own words: one sentence each, without a full stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Says {
    /// What it will do, and when a row leaves.
    pub does: String,
    /// What of its output it may change later.
    pub changes: String,
    /// What its state costs.
    pub costs: String,
}

/// The key of a keyed stage, nothing open.
#[derive(Clone, Debug)]
pub struct PlannedKey {
    /// As the file says; forms and options.
    pub key: Key,
    /// What happens to records whose key is null.
    pub null_key: NullKey,
    /// For `uses:`, the guest.
    pub guest: Option<KeyGuest>,
}

/// A guest that makes keys.
#[derive(Clone, Debug)]
pub struct KeyGuest {
    /// The guest.
    pub module: Module,
    /// Its parameters.
    pub params: Value,
    /// The columns it reads, in order.
    pub reads: Vec<ColumnRef>,
}

/// A column that crosses to a guest or comes back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ColumnRef {
    /// `key`: the record's key, raw.
    Key,
    /// `value`: the record's value, raw.
    Value,
    /// `key.PATH`: decoded; index into nothing, look the path up in `Plan::key_paths`. `key.` is the whole, no steps.
    KeyField(Path),
    /// `value.PATH`: decoded, in `Plan::value_paths`. `value.` is the whole, no steps.
    ValueField(Path),
    /// `headers.NAME`
    Header(String),
    /// `timestamp`, ms
    Timestamp,
    /// `topic`
    Topic,
    /// `partition`
    Partition,
    /// `offset`
    Offset,
    /// `epoch`
    Epoch,
    /// `position`: topic, partition, epoch if known, offset
    Position,
    /// `time`: event time, int64 ns
    Time,
    /// `arrival`: the host's count of the task's rows, int64
    Arrival,
    /// `content`: 16 bytes, equal when the values are, without `Traits::content_except`
    Content,
}

/// A stage's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Clock {
    #[default]
    Event,
    Processing,
    Ingestion,
}

/// What expiry of entries is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiresBy {
    /// The row's time or what it sees, whichever is later.
    Time,
    /// What it sees.
    Seen,
    /// Processing time.
    #[default]
    Now,
}

/// Kind of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum OutputKind {
    #[default]
    Append,
    Upsert,
    Retract,
}

/// Where window bounds are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum WindowBounds {
    #[default]
    Headers,
    Value,
    None,
}

/// How window bounds are written into a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum BoundsFormat {
    #[default]
    Ms,
    Rfc3339,
}

/// The traits of a stage; the table is in `guest-sdk/wit/README.md`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traits {
    /// Wants a key and state.
    pub keyed: bool,
    /// The stage's clock.
    pub clock: Clock,
    /// `times` and `seen` are filled, and time is evaluated.
    pub wants_time: bool,
    /// What expiry is compared with.
    pub expires_by: ExpiresBy,
    /// Kind of output.
    pub output: OutputKind,
    /// Upsert keys carry the window.
    pub window_in_key: bool,
    /// Of the window only its start stands in the key.
    pub window_start_only: bool,
    /// Where window bounds are written.
    pub bounds: WindowBounds,
    /// How they are written into a value.
    pub bounds_format: BoundsFormat,
    /// May stand behind an updating stage.
    pub row_preserving: bool,
    /// Windows bound the state.
    pub bounded_state: bool,
    /// Something waits for the watermark.
    pub waits: bool,
    /// A space drops itself this long after its number, ns.
    pub space_after: Option<i64>,
    /// What the column `content` leaves out; paths below `value`.
    pub content_except: Vec<Path>,
    /// The host adds `tamis.winner`.
    pub audit: bool,
    /// What kept state was made with.
    pub identity: Value,
    /// Columns that the stage writes as functions of others.
    pub computed: Vec<Computed>,
}

/// A column that a stage writes as a function of others.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    /// Which.
    pub column: Path,
    /// What decides it.
    pub from: Vec<Path>,
    /// The function, if it is one of time that comes again (hour, weekday).
    pub cyclic: Option<String>,
}

/// What a plan depends on besides the file.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Source partitions; `None`: not known, more than one.
    pub partitions: Option<u32>,
    /// Whether the input ends.
    pub bounded: bool,
    /// Identities of kept state, by stage id (`Planned::identity`).
    pub stored: BTreeMap<String, Value>,
    /// Whether what concerns source, sink and routes is judged (P-TIMESTAMP, W-LATE, W-NULL, W-WALL-CLOCK), and
    /// whether they must be built already (P-LATER).
    pub ends: bool,
    /// Whether duplicates are wanted although the file has no route for them (tests that list them).
    pub duplicates: bool,
}

impl Conditions {
    /// Those of a file that is run: what its source says. `partitions`: files after globs, if that is known.
    pub fn of(pipeline: &Pipeline, partitions: Option<u32>) -> Conditions {
        let (known, bounded) = match &pipeline.source {
            Source::File { follow, paths, .. } => {
                let is_glob = |path: &String| path.contains(['*', '?', '[']);
                let plain = paths.len() == 1 && !paths.iter().any(is_glob);
                // Where files may appear, those of now say nothing.
                let more = *follow && paths.iter().any(is_glob);
                (if plain { Some(1) } else { partitions.filter(|_| !more) }, !follow)
            }
            Source::Stdin { .. } => (Some(1), true),
            Source::Kafka(kafka) => (partitions, kafka.until.is_some()),
        };
        Conditions { partitions: known, bounded, ends: true, ..Conditions::default() }
    }
}

impl ColumnRef {
    /// Reads the name of a column, as guests write it (the contract's `reads` and `writes`). The error is for a person.
    pub fn parse(text: &str) -> Result<ColumnRef, String> {
        Ok(match text {
            "key" => ColumnRef::Key,
            "value" => ColumnRef::Value,
            "key." => ColumnRef::KeyField(Path::whole(Root::Key)),
            "value." => ColumnRef::ValueField(Path::whole(Root::Value)),
            "time" => ColumnRef::Time,
            "arrival" => ColumnRef::Arrival,
            "content" => ColumnRef::Content,
            _ => {
                let path = Path::parse(text).map_err(|error| error.message)?;
                match &path.root {
                    Root::Value => ColumnRef::ValueField(path),
                    Root::Key => ColumnRef::KeyField(path),
                    Root::Header(name) => ColumnRef::Header(name.clone()),
                    Root::Timestamp => ColumnRef::Timestamp,
                    Root::Topic => ColumnRef::Topic,
                    Root::Partition => ColumnRef::Partition,
                    Root::Offset => ColumnRef::Offset,
                    Root::Epoch => ColumnRef::Epoch,
                    Root::Position => ColumnRef::Position,
                }
            }
        })
    }
}

/// How the plan finds guests by the names in the file.
pub trait Guests {
    /// The module that `uses` names. `beside`: the pipeline file, for paths and its `modules/` folder.
    fn find(&self, uses: &str, beside: Option<&std::path::Path>) -> Result<Module, NotFound>;
}

/// Why there is no such guest.
#[derive(Clone, Debug)]
pub struct NotFound {
    /// `P-GUEST` or `P-LATER`.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// Ways out.
    pub help: Vec<String>,
}
