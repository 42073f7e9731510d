//! What a guest reads of a batch: named columns made from rows, and the keys of rows.

use std::sync::Arc;

use tamis_guest::document::Builder;

use crate::batch::{Batch, Cell, Column, Payload, Row, kind};
use crate::config::path::{Path, Root, Step};
use crate::config::pipeline::{KeyForm, Limits, ReadAs};
use crate::config::secrets::Secrets;
use crate::guest::call::{Fault, RowFailure};
use crate::guest::{Guest, Opening};
use crate::key::{self, Comparison};
use crate::plan::{ColumnRef, PlannedKey};
use crate::time::NONE_YET;

/// One input of a task: a partition it reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Input {
    /// Its topic; for files what `topic` says.
    #[serde(serialize_with = "topic_out", deserialize_with = "topic_in")]
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: i32,
}

fn topic_out<S: serde::Serializer>(topic: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(topic)
}

fn topic_in<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    <String as serde::Deserialize>::deserialize(from).map(Arc::from)
}

/// What rows are read against: things of the task and of the chain that no batch carries.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// Inputs of the task.
    pub inputs: &'a [Input],
    /// Salt of the task's key hashes.
    pub salt: u64,
    /// Decoded value paths, in the order of the fields of a batch.
    pub value_paths: &'a [Path],
    /// Decoded key paths; their fields follow those of the value.
    pub key_paths: &'a [Path],
}

impl Env<'_> {
    /// Where a decoded path stands among the fields of a batch.
    pub fn field(&self, path: &Path) -> Option<usize> {
        match path.root {
            Root::Value => self.value_paths.iter().position(|p| p == path),
            Root::Key => self.key_paths.iter().position(|p| p == path).map(|i| i + self.value_paths.len()),
            _ => None,
        }
    }

    /// Topic, partition and offset of a row, as headers and messages write it.
    pub fn position(&self, origin: crate::batch::Origin) -> String {
        match self.inputs.get(usize::from(origin.input)) {
            Some(input) => format!("{}/{}/{}", input.topic, input.partition, origin.offset),
            None => format!("?/?/{}", origin.offset),
        }
    }
}

/// A column that a guest reads, ready to be made.
#[derive(Clone, Debug)]
pub enum Read {
    /// A decoded field of the batch.
    Field(usize),
    /// Anything else.
    Other(ColumnRef),
}

impl Read {
    /// Resolves a name against what is decoded.
    pub fn new(column: &ColumnRef, env: &Env<'_>) -> Read {
        match column {
            ColumnRef::KeyField(path) | ColumnRef::ValueField(path) => {
                env.field(path).map_or(Read::Other(column.clone()), Read::Field)
            }
            other => Read::Other(other.clone()),
        }
    }

    /// Fills a column with the cells of some rows.
    pub fn fill(&self, batch: &Batch, rows: &[u32], env: &Env<'_>, content: &Content, into: &mut Column) {
        into.clear();
        let mut room = Vec::new();
        for &row in rows {
            let at = row as usize;
            let cell = match self {
                Read::Field(field) => batch.field(*field, at),
                Read::Other(column) => other_cell(batch, at, column, env, content, &mut room),
            };
            into.push(cell.kind, cell.bytes);
        }
        if rows.is_empty() {
            into.offsets.push(0);
        }
    }
}

/// How the column `content` is made: which field is the whole value, and what it leaves out.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// The field that is the whole value.
    pub field: Option<usize>,
    /// Left out, as steps below `value`.
    pub except: Vec<Vec<Step>>,
}

fn integer<'a>(value: i64, of: u8, room: &'a mut Vec<u8>) -> Cell<'a> {
    room.clear();
    room.extend_from_slice(&value.to_le_bytes());
    Cell { kind: of, bytes: room }
}

/// The raw bytes of a key or value; a decoded cell that stands in their place is given as it is.
fn payload(batch: &Batch, payload: Payload) -> Cell<'_> {
    match payload {
        Payload::Null => Cell::NULL,
        Payload::Bytes(span) => Cell { kind: kind::BYTES, bytes: batch.bytes(span) },
        Payload::Cell(kind, span) => Cell { kind, bytes: batch.bytes(span) },
    }
}

fn other_cell<'a>(
    batch: &'a Batch,
    at: usize,
    column: &'a ColumnRef,
    env: &'a Env<'_>,
    content: &Content,
    room: &'a mut Vec<u8>,
) -> Cell<'a> {
    let Some(row) = batch.rows.get(at) else { return Cell::MISSING };
    match column {
        ColumnRef::Key => payload(batch, row.key),
        ColumnRef::Value => payload(batch, row.value),
        ColumnRef::Header(name) => header(batch, row, name),
        ColumnRef::Timestamp if row.timestamp == NONE_YET => Cell::NULL,
        ColumnRef::Timestamp => integer(row.timestamp, kind::TIMESTAMP, room),
        ColumnRef::Topic => match env.inputs.get(usize::from(row.origin.input)) {
            Some(input) => Cell { kind: kind::TEXT, bytes: input.topic.as_bytes() },
            None => Cell::MISSING,
        },
        ColumnRef::Partition => match env.inputs.get(usize::from(row.origin.input)) {
            Some(input) => integer(i64::from(input.partition), kind::INT32, room),
            None => Cell::MISSING,
        },
        ColumnRef::Offset => integer(row.origin.offset, kind::INT64, room),
        ColumnRef::Epoch if row.origin.epoch < 0 => Cell::MISSING,
        ColumnRef::Epoch => integer(i64::from(row.origin.epoch), kind::INT32, room),
        ColumnRef::Position => {
            room.clear();
            if let Some(input) = env.inputs.get(usize::from(row.origin.input)) {
                key::canonical(Cell { kind: kind::TEXT, bytes: input.topic.as_bytes() }, &Comparison::default(), room);
                room.extend_from_slice(&input.partition.to_le_bytes());
            }
            room.extend_from_slice(&row.origin.epoch.to_le_bytes());
            room.extend_from_slice(&row.origin.offset.to_le_bytes());
            Cell { kind: kind::BYTES, bytes: room }
        }
        ColumnRef::Time => match batch.event.times.get(at) {
            Some(&time) => integer(time, kind::INT64, room),
            None => Cell::MISSING,
        },
        ColumnRef::Arrival => integer(row.arrival as i64, kind::INT64, room),
        ColumnRef::Content => {
            let mut canonical = Vec::new();
            let value = content.field.map_or(Cell::MISSING, |field| batch.field(field, at));
            key::canonical_without(value, &content.except, &Comparison::default(), &mut canonical);
            room.clear();
            room.extend_from_slice(&key::hash(&canonical, 0).to_le_bytes());
            Cell { kind: kind::BYTES, bytes: room }
        }
        ColumnRef::KeyField(_) | ColumnRef::ValueField(_) => Cell::MISSING,
    }
}

fn header<'a>(batch: &'a Batch, row: &Row, name: &str) -> Cell<'a> {
    match batch.headers_of(row).iter().rev().find(|(n, _)| n == name) {
        Some((_, Some(bytes))) => Cell { kind: kind::BYTES, bytes },
        Some((_, None)) => Cell::NULL,
        None => Cell::MISSING,
    }
}

/// The keys of some rows.
#[derive(Debug, Default)]
pub struct Keys {
    /// Hash of each; rows without a key have that of the null key.
    pub hashes: Vec<u128>,
    /// Whether every part is null or missing (K3).
    pub null: Vec<bool>,
    /// The key as upsert output writes it, where that was asked for: the bare part, or a document of the parts.
    pub written: Option<Column>,
    /// Rows whose key could not be made.
    pub failures: Vec<RowFailure>,
}

/// Makes the keys of a keyed stage.
pub struct KeyMaker {
    how: Comparison,
    form: Form,
    /// Names of the parts in upsert keys; empty for whole documents and key guests.
    pub names: Vec<String>,
}

enum Form {
    /// In configured order; `order` is that of the expression texts, in which the state has them (K1).
    Parts {
        parts: Vec<(Read, ReadAs, bool)>,
        order: Vec<usize>,
    },
    Whole {
        field: Option<usize>,
        except: Vec<Vec<Step>>,
    },
    Guest {
        guest: Box<Guest>,
        reads: Vec<Read>,
    },
}

impl KeyMaker {
    /// From the plan of a stage.
    pub fn new(planned: &PlannedKey, env: &Env<'_>, limits: Limits, secrets: &Secrets) -> KeyMaker {
        let how = Comparison::of(&planned.key);
        let (form, names) = match (&planned.key.form, &planned.guest) {
            (_, Some(guest)) => {
                let reads = guest.reads.iter().map(|r| Read::new(r, env)).collect();
                let opening = Opening::Key { params: secrets.reveal(&guest.params).to_string() };
                (Form::Guest { guest: Box::new(guest.module.guest(opening, limits)), reads }, Vec::new())
            }
            (KeyForm::Fields(fields), _) => {
                let parts = fields
                    .iter()
                    .map(|part| {
                        let header = matches!(part.path.root, Root::Header(_));
                        (Read::new(&column_of(&part.path), env), part.read_as, header)
                    })
                    .collect();
                let mut order: Vec<usize> = (0..fields.len()).collect();
                order.sort_by_key(|&i| fields.get(i).map(|part| part.path.to_string()));
                (Form::Parts { parts, order }, fields.iter().map(|part| part.name.clone()).collect())
            }
            (KeyForm::Whole { root, except }, _) => {
                let except = except.iter().map(|path| path.steps.clone()).collect();
                (Form::Whole { field: env.field(root), except }, Vec::new())
            }
            (KeyForm::Guest(_), None) => (Form::Whole { field: None, except: Vec::new() }, Vec::new()),
        };
        KeyMaker { how, form, names }
    }

    /// Throws the key guest's instance away, if there is one.
    pub fn discard(&mut self) {
        if let Form::Guest { guest, .. } = &mut self.form {
            guest.discard();
        }
    }

    /// The keys of all rows of a batch. `write`: also as upsert output writes them.
    pub fn make(&mut self, batch: &Batch, env: &Env<'_>, write: bool) -> Result<Keys, Fault> {
        let rows: Vec<u32> = (0..batch.rows.len() as u32).collect();
        let mut keys = Keys { written: write.then(Column::default), ..Keys::default() };
        keys.hashes.reserve(rows.len());
        keys.null.reserve(rows.len());
        let mut bytes = Vec::with_capacity(128);
        match &mut self.form {
            Form::Parts { parts, order } => {
                if let (false, [(Read::Field(_), ..), ..]) = (write, parts.as_slice())
                    && parts.iter().all(|(read, ..)| matches!(read, Read::Field(_)))
                {
                    fields_only(batch, parts, order, &self.how, env.salt, &mut keys);
                    return Ok(keys);
                }
                let no_content = Content::default();
                let mut columns: Vec<Column> = Vec::new();
                for (read, ..) in parts.iter() {
                    let mut column = Column::default();
                    read.fill(batch, &rows, env, &no_content, &mut column);
                    columns.push(column);
                }
                for row in 0..rows.len() {
                    bytes.clear();
                    let mut null = !parts.is_empty();
                    for &part in order.iter() {
                        let (Some(column), Some((_, read_as, header))) = (columns.get(part), parts.get(part)) else {
                            continue;
                        };
                        let mut cell = column.cell(row);
                        let mut room = Vec::new();
                        if *header && cell.kind == kind::BYTES {
                            match key::read_header(cell.bytes, *read_as, &mut room) {
                                Ok(read) => cell = read,
                                Err(why) => keys.failures.push(failure(row, why)),
                            }
                        }
                        null &= cell.is_null();
                        key::canonical(cell, &self.how, &mut bytes);
                    }
                    keys.hashes.push(key::hash(&bytes, env.salt));
                    keys.null.push(null);
                    if let Some(written) = &mut keys.written {
                        write_parts(&columns, parts, row, &self.names, &self.how, written);
                    }
                }
                keys.failures.dedup_by_key(|failure| failure.row);
            }
            Form::Whole { field, except } => {
                for row in 0..rows.len() {
                    bytes.clear();
                    let cell = field.map_or(Cell::MISSING, |field| batch.field(field, row));
                    key::canonical_without(cell, except, &self.how, &mut bytes);
                    keys.hashes.push(key::hash(&bytes, env.salt));
                    keys.null.push(cell.is_null());
                    if let Some(written) = &mut keys.written {
                        let mut builder = Builder::new();
                        key::written_without(cell, except, &self.how, &mut builder);
                        push_built(&mut builder, written);
                    }
                }
            }
            Form::Guest { guest, reads } => {
                let no_content = Content::default();
                let mut columns: Vec<Column> = Vec::new();
                for read in reads.iter() {
                    let mut column = Column::default();
                    read.fill(batch, &rows, env, &no_content, &mut column);
                    columns.push(column);
                }
                let (cells, failures) = guest.keys(&columns)?;
                for row in 0..rows.len() {
                    bytes.clear();
                    let cell = cells.cell(row);
                    key::canonical(cell, &self.how, &mut bytes);
                    keys.hashes.push(key::hash(&bytes, env.salt));
                    keys.null.push(cell.is_null());
                }
                keys.failures = failures;
                if write {
                    keys.written = Some(cells);
                }
            }
        }
        Ok(keys)
    }
}

/// The common case: every part is a decoded field, and nothing is written.
fn fields_only(
    batch: &Batch,
    parts: &[(Read, ReadAs, bool)],
    order: &[usize],
    how: &Comparison,
    salt: u64,
    keys: &mut Keys,
) {
    let fields: Vec<usize> = order
        .iter()
        .filter_map(|&part| match parts.get(part) {
            Some((Read::Field(field), ..)) => Some(*field),
            _ => None,
        })
        .collect();
    let mut bytes = Vec::with_capacity(256);
    for row in 0..batch.rows.len() {
        bytes.clear();
        let mut null = true;
        for &field in &fields {
            let cell = batch.field(field, row);
            null &= cell.is_null();
            key::canonical(cell, how, &mut bytes);
        }
        keys.hashes.push(key::hash(&bytes, salt));
        keys.null.push(null);
    }
}

fn failure(row: usize, why: &str) -> RowFailure {
    RowFailure { row: row as u32, category: 2, code: "key".to_owned(), text: why.to_owned() }
}

fn write_parts(
    columns: &[Column],
    parts: &[(Read, ReadAs, bool)],
    row: usize,
    names: &[String],
    how: &Comparison,
    into: &mut Column,
) {
    let cell_of = |part: usize, room: &mut Vec<u8>| -> (u8, Vec<u8>) {
        let cell = columns.get(part).map_or(Cell::MISSING, |column| column.cell(row));
        match parts.get(part) {
            Some((_, read_as, true)) if cell.kind == kind::BYTES => {
                match key::read_header(cell.bytes, *read_as, room) {
                    Ok(read) => (read.kind, read.bytes.to_vec()),
                    Err(_) => (kind::NULL, Vec::new()),
                }
            }
            _ => (cell.kind, cell.bytes.to_vec()),
        }
    };
    let mut room = Vec::new();
    let mut builder = Builder::new();
    if columns.len() == 1 {
        let (kind, bytes) = cell_of(0, &mut room);
        key::written(Cell { kind, bytes: &bytes }, how, &mut builder);
    } else {
        builder.open(kind::STRUCT);
        for (part, name) in names.iter().enumerate() {
            let (kind, bytes) = cell_of(part, &mut room);
            builder.name(name.as_bytes());
            key::written(Cell { kind, bytes: &bytes }, how, &mut builder);
        }
        builder.close();
    }
    push_built(&mut builder, into);
}

fn push_built(builder: &mut Builder, into: &mut Column) {
    let mut bytes = Vec::new();
    let kind = builder.finish_into(&mut bytes);
    into.push(kind, &bytes);
}

/// The column that a path names.
pub fn column_of(path: &Path) -> ColumnRef {
    match &path.root {
        Root::Value => ColumnRef::ValueField(path.clone()),
        Root::Key => ColumnRef::KeyField(path.clone()),
        Root::Header(name) => ColumnRef::Header(name.clone()),
        Root::Timestamp => ColumnRef::Timestamp,
        Root::Topic => ColumnRef::Topic,
        Root::Partition => ColumnRef::Partition,
        Root::Offset => ColumnRef::Offset,
        Root::Epoch => ColumnRef::Epoch,
        Root::Position => ColumnRef::Position,
    }
}
