//! What flows: a batch is the rows of one task, in order, with what the host knows of each.
//!
//! Bytes of rows lie in the arenas of their batch; a row holds spans. A stage maps a batch to a batch: surviving rows
//! keep their spans, rows emitted from kept state bring an arena of their own. Nothing is allocated per row.

use std::sync::Arc;

use crate::time::{NONE_YET, Stamp};

/// Kinds of cells, as `guest.wit` numbers them.
pub mod kind {
    #![allow(missing_docs)]
    pub const MISSING: u8 = 0x00;
    pub const NULL: u8 = 0x01;
    pub const UNCHANGED: u8 = 0x02;
    pub const BOOLEAN: u8 = 0x10;
    pub const INT64: u8 = 0x20;
    pub const INT32: u8 = 0x21;
    pub const INT16: u8 = 0x22;
    pub const INT8: u8 = 0x23;
    pub const TIMESTAMP: u8 = 0x28;
    pub const DATE: u8 = 0x29;
    pub const TIME_OF_DAY: u8 = 0x2a;
    pub const FLOAT64: u8 = 0x30;
    pub const FLOAT32: u8 = 0x31;
    pub const TEXT: u8 = 0x40;
    pub const NUMBER: u8 = 0x41;
    pub const BYTES: u8 = 0x50;
    pub const ARRAY: u8 = 0x60;
    pub const MAP: u8 = 0x61;
    pub const STRUCT: u8 = 0x62;
}

/// A column as it crosses the guest boundary (`types.column`): a kind per row, `rows + 1` offsets, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// A kind per row.
    pub kinds: Vec<u8>,
    /// `rows + 1` offsets into `data`; empty stands for `[0]`.
    pub offsets: Vec<u32>,
    /// The cells, one after the other.
    pub data: Vec<u8>,
}

impl Column {
    /// Rows in this column.
    pub fn rows(&self) -> usize {
        self.kinds.len()
    }

    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.kinds.clear();
        self.offsets.clear();
        self.data.clear();
    }

    /// Of no rows yet, with room for so many rows and bytes.
    pub fn with_capacity(rows: usize, bytes: usize) -> Column {
        let offsets = Vec::with_capacity(rows + 1);
        Column { kinds: Vec::with_capacity(rows), offsets, data: Vec::with_capacity(bytes) }
    }

    /// Adds a cell.
    pub fn push(&mut self, kind: u8, bytes: &[u8]) {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        self.kinds.push(kind);
        self.data.extend_from_slice(bytes);
        self.offsets.push(self.data.len() as u32);
    }

    /// Kind and bytes of a cell; missing where there is no such row.
    pub fn cell(&self, row: usize) -> Cell<'_> {
        match (self.kinds.get(row), self.offsets.get(row), self.offsets.get(row + 1)) {
            (Some(&kind), Some(&from), Some(&to)) => {
                Cell { kind, bytes: self.data.get(from as usize..to as usize).unwrap_or_default() }
            }
            _ => Cell::MISSING,
        }
    }
}

/// A cell: kind and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell<'a> {
    /// Its kind.
    pub kind: u8,
    /// Its bytes, as `guest.wit` lays them out.
    pub bytes: &'a [u8],
}

impl Cell<'_> {
    /// There is nothing here.
    pub const MISSING: Cell<'static> = Cell { kind: kind::MISSING, bytes: &[] };
    /// Null.
    pub const NULL: Cell<'static> = Cell { kind: kind::NULL, bytes: &[] };

    /// Null or missing.
    pub fn is_null(&self) -> bool {
        self.kind <= kind::NULL
    }
}

/// Bytes in an arena of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Number of the arena.
    pub arena: u32,
    /// Offset of the first byte.
    pub start: u32,
    /// Number of bytes.
    pub len: u32,
}

/// Key or value of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// No key; a tombstone.
    #[default]
    Null,
    /// The record's bytes, as they came.
    Bytes(Span),
    /// A decoded cell of this kind (a document if it is a container): a row that a stage changed, or a test's.
    Cell(u8, Span),
}

/// Where a row came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Input of the task; the task knows its topic and partition.
    pub input: u16,
    /// Leader epoch, -1 if unknown.
    pub epoch: i32,
    /// Offset in its partition.
    pub offset: i64,
    /// Number of the row among those that one record was split into.
    pub child: u32,
}

/// What a row is to an updating output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// An insert; an append record.
    #[default]
    Insert,
    /// The old image of an update.
    Old,
    /// The new image of an update.
    New,
    /// A delete.
    Delete,
}

impl Kind {
    /// As the header `tamis.kind` of retract output says it (9.3).
    pub fn word(self) -> &'static str {
        match self {
            Kind::Insert => "+I",
            Kind::Old => "-U",
            Kind::New => "+U",
            Kind::Delete => "-D",
        }
    }
}

/// Headers in order; names may repeat, values may be null.
pub type Headers = Vec<(String, Option<Vec<u8>>)>;

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Where it came from.
    pub origin: Origin,
    /// The record's timestamp, milliseconds since 1970; `NONE_YET` if it has none.
    pub timestamp: i64,
    /// The record's key.
    pub key: Payload,
    /// The record's value.
    pub value: Payload,
    /// Its place in the headers of the batch; `u32::MAX` for none.
    pub headers: u32,
    /// What it is to an updating output.
    pub kind: Kind,
    /// Start and end of the window it stands for, nanoseconds; both `NONE_YET` for none.
    pub window: (i64, i64),
    /// The host's count of the task's rows.
    pub arrival: u64,
    /// Its position came before.
    pub redelivered: bool,
    /// The window it stands for is to be told in its headers (9.4), and is not there yet: in `leave`, or before the next
    /// stage.
    pub bounds: bool,
}

impl Row {
    /// Without headers.
    pub const NO_HEADERS: u32 = u32::MAX;
    /// Without a window.
    pub const NO_WINDOW: (i64, i64) = (NONE_YET, NONE_YET);
}

/// A clock's view of the rows of a batch: the time of each, and what each sees (W1).
#[derive(Clone, Debug, Default)]
pub struct Track {
    /// Time of each row, nanoseconds; empty if this clock is not used.
    pub times: Vec<i64>,
    /// Where the clock stands for each row: after every earlier row, before itself.
    pub seen: Vec<Stamp>,
    /// Where it stands before the batch; `None` if this clock is not used.
    pub start: Option<Stamp>,
    /// Where it stands after it.
    pub end: Option<Stamp>,
}

/// Rows of one task, in order.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The rows.
    pub rows: Vec<Row>,
    /// What their spans point into; shared, so that a batch can be tried again.
    pub arenas: Vec<Arc<Vec<u8>>>,
    /// What `Row::headers` points into.
    pub headers: Vec<Headers>,
    /// Decoded fields, in the order of the chain's projection; a kind and a span per row.
    pub fields: Vec<Field>,
    /// Event time.
    pub event: Track,
    /// Ingestion time.
    pub ingestion: Track,
    /// Processing time, nanoseconds; the same when a batch is tried again.
    pub now: i64,
    /// All input has ended: wakes of the processing clock fire too (W10).
    pub ended: bool,
    /// Where event time and ingestion time stood before each record that the task took, or before a step of time without
    /// records; records that are gone by now too. Only where both are evaluated.
    pub steps: Arc<Vec<(Stamp, Stamp)>>,
    /// Count (`Row::arrival`) of the record that brought each row about, where that is not the row itself: rows that
    /// a wake emitted. Empty: each row is its own cause.
    pub causes: Vec<u64>,
}

/// One decoded field of every row.
#[derive(Clone, Debug, Default)]
pub struct Field {
    /// A kind per row.
    pub kinds: Vec<u8>,
    /// A span per row.
    pub spans: Vec<Span>,
}

impl Field {
    /// Of no rows yet.
    pub fn with_capacity(rows: usize) -> Field {
        Field { kinds: Vec::with_capacity(rows), spans: Vec::with_capacity(rows) }
    }
}

impl Batch {
    /// Where event and ingestion time stood before what made one of them, event time or else the other, reach a stamp.
    pub fn before(&self, event: bool, reached: Stamp) -> Option<(Stamp, Stamp)> {
        let own = |step: &(Stamp, Stamp)| if event { step.0 } else { step.1 };
        let before = self.steps.partition_point(|step| own(step) < reached);
        self.steps.get(before.saturating_sub(1)).copied()
    }

    /// The bytes of a span; empty if it points nowhere.
    pub fn bytes(&self, span: Span) -> &[u8] {
        let start = span.start as usize;
        self.arenas.get(span.arena as usize).and_then(|a| a.get(start..start + span.len as usize)).unwrap_or_default()
    }

    /// Bytes of the keys and values of its rows.
    pub fn payload_bytes(&self) -> u64 {
        let length = |payload: &Payload| match payload {
            Payload::Null => 0,
            Payload::Bytes(span) | Payload::Cell(_, span) => u64::from(span.len),
        };
        self.rows.iter().map(|row| length(&row.key) + length(&row.value)).sum()
    }

    /// Count of the record that brought a row about.
    pub fn cause(&self, row: usize) -> u64 {
        self.causes.get(row).copied().or(self.rows.get(row).map(|row| row.arrival)).unwrap_or(0)
    }

    /// Adds an arena and gives its number.
    pub fn add_arena(&mut self, bytes: Vec<u8>) -> u32 {
        self.arenas.push(Arc::new(bytes));
        (self.arenas.len() - 1) as u32
    }

    /// A decoded field of a row.
    pub fn field(&self, field: usize, row: usize) -> Cell<'_> {
        match self.fields.get(field).map(|f| (f.kinds.get(row), f.spans.get(row))) {
            Some((Some(&kind), Some(&span))) => Cell { kind, bytes: self.bytes(span) },
            _ => Cell::MISSING,
        }
    }

    /// Keeps only these rows, in this order (rising): their fields and times with them. The start and the end of the
    /// tracks stay: rows that go still moved time.
    pub fn keep(&mut self, rows: &[u32]) {
        if rows.len() == self.rows.len() {
            return;
        }
        fn pick<T: Copy>(list: &mut Vec<T>, rows: &[u32]) {
            if list.is_empty() {
                return;
            }
            for (to, &from) in rows.iter().enumerate() {
                if let Some(&item) = list.get(from as usize) {
                    if let Some(place) = list.get_mut(to) {
                        *place = item;
                    }
                }
            }
            list.truncate(rows.len());
        }
        pick(&mut self.rows, rows);
        pick(&mut self.causes, rows);
        for field in &mut self.fields {
            pick(&mut field.kinds, rows);
            pick(&mut field.spans, rows);
        }
        for track in [&mut self.event, &mut self.ingestion] {
            pick(&mut track.times, rows);
            pick(&mut track.seen, rows);
        }
    }

    /// The headers of a row.
    pub fn headers_of(&self, row: &Row) -> &[(String, Option<Vec<u8>>)] {
        self.headers.get(row.headers as usize).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Key or value of a kept row, owning its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Owned {
    /// Null.
    #[default]
    Null,
    /// The record's bytes.
    Bytes(Box<[u8]>),
    /// A decoded cell.
    Cell(u8, Box<[u8]>),
}

impl Owned {
    /// Reads a byte of each cache line: the number says nothing.
    pub fn lines(&self) -> u64 {
        match self {
            Owned::Null => 0,
            Owned::Bytes(bytes) | Owned::Cell(_, bytes) => {
                bytes.iter().step_by(64).fold(0, |seen, &byte| seen ^ u64::from(byte))
            }
        }
    }
}

/// A kept row in its stored form: the original bytes where it is untouched, else documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Where it came from.
    pub origin: Origin,
    /// The record's timestamp, ms; `NONE_YET` if it has none.
    pub timestamp: i64,
    /// Its event time when it was kept, ns; `NONE_YET` if it is not evaluated.
    pub event: i64,
    /// Its ingestion time when it was kept, ns; `NONE_YET` if it is not used.
    pub ingestion: i64,
    /// The record's key.
    pub key: Owned,
    /// The record's value.
    pub value: Owned,
    /// Its headers.
    pub headers: Headers,
    /// The key it has in updating output (O6), where the stage has such.
    pub output_key: Owned,
    /// What it was to an updating output.
    pub kind: u8,
    /// The host's count of the task's rows.
    pub arrival: u64,
}

impl Image {
    /// Bytes this image counts for in quotas.
    pub fn size(&self) -> usize {
        let owned = |o: &Owned| match o {
            Owned::Null => 0,
            Owned::Bytes(b) | Owned::Cell(_, b) => b.len(),
        };
        let headers: usize = self.headers.iter().map(|(n, v)| n.len() + v.as_ref().map_or(0, Vec::len)).sum();
        96 + owned(&self.key) + owned(&self.value) + owned(&self.output_key) + headers
    }
}
