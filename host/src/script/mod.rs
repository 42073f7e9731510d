//! Test scripts (pipeline-file section 14): what a file says (`read`, `record`, `moment`, `content`), how it is played
//! through the real chain (`play`, `running`, `heard`), and whether what came out is what must come out (`judge`).
//!
//! A test runs offline: no wall clock, no network, one isolated state. It is played twice, the second time with random
//! cuts and a fresh guest instance per batch: a difference is an error of a guest.

// An error here ends a test: its size costs nothing.
#![allow(clippy::result_large_err)]

pub mod bless;
pub mod cells;
pub mod content;
pub mod heard;
pub mod judge;
pub mod moment;
pub mod play;
pub mod read;
pub mod record;
pub mod report;
pub mod rows;
mod running;
pub mod source;
pub mod suite;

use crate::config::node::{Node, Span};
pub use crate::config::replace::Replacements as Replace;
use moment::Moment;
use record::{Record, Row};

/// One test of a file (14.1).
#[derive(Clone, Debug)]
pub struct Test {
    /// A sentence, unique in the file.
    pub name: String,
    /// Where the test stands.
    pub span: Span,
    /// What it replaces in the file.
    pub replace: Replace,
    /// Which stage `replace` and `counters` speak of; `None`: the first `dedup`, else the only one.
    pub stage: Option<(String, Span)>,
    /// First stage that runs.
    pub from: Option<(String, Span)>,
    /// Last stage that runs.
    pub to: Option<(String, Span)>,
    /// `match: contains`: other rows may come between.
    pub contains: bool,
    /// Source partitions; `None`: 1 + the greatest in the script.
    pub partitions: Option<u32>,
    /// Whether the input ends; `None`: as the source does.
    pub bounded: Option<bool>,
    /// `delivery: exactly-once`: a crash takes back what was not committed.
    pub exactly_once: bool,
    /// What happens.
    pub input: Vec<Said>,
    /// Whether there is an `input` at all.
    pub has_input: bool,
    /// What must come out.
    pub output: Vec<Expected>,
    /// Content of a table that applied all output rows.
    pub table: Option<Vec<Record>>,
    /// Counters at the end.
    pub counters: Vec<(String, u64)>,
    /// The plan is refused with this code.
    pub refused: Option<String>,
    /// Warnings of the plan.
    pub warns: Vec<String>,
    /// The pipeline stops with this failure.
    pub stops: Option<String>,
    /// What the test needs that is not here.
    pub needs: Vec<String>,
}

/// A step and where it stands.
#[derive(Clone, Debug)]
pub struct Said {
    /// What happens.
    pub step: Step,
    /// Where it stands.
    pub span: Span,
}

/// One step of a script (14.3).
#[derive(Clone, Debug)]
pub enum Step {
    /// A record comes.
    Record(Box<Record>),
    /// One record for each integer.
    Series(Series),
    /// Processing time goes on.
    Clock(Moment),
    /// The watermark of every partition, ns.
    Watermark(i64),
    /// The input, or one partition of it, is finished.
    End(Option<i32>),
    /// The source declares a partition idle.
    Idle(i32),
    /// The host stops reading a partition.
    Block(i32),
    /// The host reads it again.
    Unblock(i32),
    /// Everything becomes durable.
    Commit,
    /// A graceful stop and a start, perhaps with other settings.
    Restart(Box<Replace>),
    /// Kill without commit, and start.
    Crash,
    /// The last records come again.
    Redeliver(usize),
    /// End of a fetch batch.
    Batch,
    /// Other settings for the running pipeline.
    Reload(Box<Replace>),
    /// State is freed: all of it, or that of a record's key.
    Forget(Option<Box<Record>>),
    /// Deliveries work, or fail, from now on.
    Sink(bool),
    /// The state can be reached, or not, from now on.
    State(bool),
}

/// `series`: the text `$i` of the record becomes each integer in turn.
#[derive(Clone, Debug)]
pub struct Series {
    /// First integer.
    pub from: i64,
    /// Last integer.
    pub to: i64,
    /// The record, or the row, as written.
    pub record: Node,
}

/// What a line of `output` stands for.
#[derive(Clone, Debug)]
pub enum Expected {
    /// One row.
    Row(Box<Row>),
    /// One row for each integer.
    Series(Series),
}
