//! A batch while it is being filled from a source.

use super::envelope::Part;
use super::frame::LARGEST;
use super::json;
use super::source::{Codec, Place, Polling};
use crate::batch::{Batch, Headers, Kind, Origin, Payload, Row, Span};
use crate::time::NONE_YET;

/// A record of an input, without timestamp and headers.
pub fn row(input: u16, offset: i64, key: Payload, value: Payload) -> Row {
    Row {
        origin: Origin { input, epoch: -1, offset, child: 0 },
        timestamp: NONE_YET,
        key,
        value,
        headers: Row::NO_HEADERS,
        kind: Kind::Insert,
        window: Row::NO_WINDOW,
        arrival: 0,
        redelivered: false,
        bounds: false,
    }
}

/// A batch that is being filled: values in one arena, one after the other, keys in another.
pub struct Filling {
    file: usize,
    /// Its rows.
    pub rows: Vec<Row>,
    /// Bytes of their values.
    pub values: Vec<u8>,
    keys: Vec<u8>,
    /// Their headers.
    pub headers: Vec<Headers>,
    ends: Vec<u64>,
}

impl Filling {
    /// An empty one, with room for so many bytes of values.
    pub fn new(file: usize, bytes: usize) -> Filling {
        let (rows, keys, headers, ends) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Filling { file, rows, values: Vec::with_capacity(bytes.min(LARGEST)), keys, headers, ends }
    }

    /// Adds a row, and where it ends in the file.
    pub fn push(&mut self, row: Row, end: u64) {
        self.rows.push(row);
        self.ends.push(end);
    }

    /// Adds the bytes of a value.
    pub fn value(&mut self, bytes: &[u8]) -> Payload {
        Payload::Bytes(append(&mut self.values, 0, bytes))
    }

    /// Adds a key or a value of an envelope, as its codec will read it.
    pub fn part(&mut self, part: Part<'_>, codec: Codec, is_value: bool) -> Payload {
        let (arena, number) = if is_value { (&mut self.values, 0) } else { (&mut self.keys, 1) };
        match (part, codec) {
            (Part::Null, _) => Payload::Null,
            (Part::Bytes(bytes), _) => Payload::Bytes(append(arena, number, &bytes)),
            (Part::Document(text), Codec::Json) => Payload::Bytes(append(arena, number, text)),
            (Part::Document(text), codec) => match serde_json::from_slice::<String>(text) {
                Ok(text) if codec == Codec::Text => Payload::Bytes(append(arena, number, text.as_bytes())),
                _ => match json::cell(text) {
                    Some((kind, bytes)) => Payload::Cell(kind, append(arena, number, &bytes)),
                    None => Payload::Bytes(append(arena, number, text)),
                },
            },
        }
    }

    /// The batch.
    pub fn done(self) -> Polling {
        let mut batch = Batch { rows: self.rows, headers: self.headers, ..Batch::default() };
        batch.add_arena(self.values);
        batch.add_arena(self.keys);
        let places = batch.rows.iter().zip(self.ends);
        let rows = places.map(|(row, end)| Place { input: row.origin.input, offset: row.origin.offset, end });
        let rows = rows.collect();
        Polling { batch, file: self.file, rows }
    }
}

fn append(arena: &mut Vec<u8>, number: u32, bytes: &[u8]) -> Span {
    let start = arena.len() as u32;
    arena.extend_from_slice(bytes);
    Span { arena: number, start, len: bytes.len() as u32 }
}
