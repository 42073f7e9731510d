//! The settings and records that the reference speaks of. Times are milliseconds.

use super::table::{Cell, Code};

/// What happens to a record that has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullKey {
    Pass,
    Dlq,
    Group,
    Drop,
}

/// What happens to a late record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    Route,
    Drop,
    Pass,
}

/// How long an entry is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub length: i64,
    /// By processing time; else by the stage's time, which is event time under the processing clock.
    pub processing: bool,
    pub access: bool,
}

/// All settings of a stage.
#[derive(Clone, Debug)]
pub struct Settings {
    pub cell: Cell,
    pub code: Code,
    pub lateness: i64,
    pub late: Late,
    pub null_key: NullKey,
    pub retention: Option<Retention>,
    pub max_entries: Option<usize>,
    pub heartbeat: Option<i64>,
    pub delay: i64,
    pub idle: Option<i64>,
    pub partitions: usize,
}

/// One record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub key: Option<char>,
    /// The content; none: a tombstone.
    pub v: Option<i64>,
    /// The field of the order.
    pub s: Option<i64>,
    pub t: Option<i64>,
    pub p: usize,
    pub o: i64,
}

/// Where a row goes, and as what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    Insert,
    Put,
    Tomb,
    Late,
    DlqKey,
    DlqTime,
    Duplicate { of: (usize, i64) },
}

/// A row that comes out.
#[derive(Clone, Debug, PartialEq)]
pub struct Out {
    pub tag: Tag,
    pub record: Record,
    pub window: Option<(i64, i64)>,
}
