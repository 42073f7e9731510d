//! The settings and records that the reference speaks of. Times are nanoseconds.

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

/// A value of the order; those of different types compare by type (O2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Boolean(bool),
    Number(i64),
    Text(String),
}

/// One record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub key: Option<String>,
    /// What "equal content" compares; none: a tombstone.
    pub content: Option<String>,
    /// The fields of the order.
    pub fields: Vec<Option<Field>>,
    /// The record timestamp.
    pub stamp: Option<i64>,
    /// Event time; none: invalid.
    pub event: Option<i64>,
    pub p: usize,
    pub o: i64,
}

impl Record {
    /// Whether it is the same record as another.
    pub fn is(&self, other: &Record) -> bool {
        (self.p, self.o) == (other.p, other.o)
    }
}

/// Where a row goes, and as what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    Insert,
    Old,
    New,
    Delete,
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
