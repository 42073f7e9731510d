//! Records of a script as rows of a batch.

use tamis_guest::document::Builder;

use super::cells;
use super::content::Content;
use super::record::{Body, Record};
use crate::batch::{Batch, Origin, Payload, Row, Span};
use crate::time::NONE_YET;

/// A batch that gathers rows; their bytes become its arena when it leaves.
#[derive(Default)]
pub struct Gathering {
    /// The rows so far.
    pub batch: Batch,
    /// Bytes of their keys and values.
    pub bytes: Vec<u8>,
}

impl Gathering {
    /// Adds a record at its place in an input of the task.
    pub fn add(&mut self, record: &Record, input: u16, epoch: i32, offset: i64, builder: &mut Builder) {
        let key = match &record.key {
            None | Some(Content::Null) => Payload::Null,
            Some(key) => self.document(key, builder),
        };
        let value = match &record.value {
            Body::Null => Payload::Null,
            Body::Document(document) => self.document(document, builder),
            Body::Bytes(bytes) => {
                let start = self.bytes.len() as u32;
                self.bytes.extend_from_slice(bytes);
                Payload::Bytes(Span { arena: 0, start, len: bytes.len() as u32 })
            }
        };
        let mut headers = Row::NO_HEADERS;
        if !record.headers.is_empty() {
            headers = self.batch.headers.len() as u32;
            self.batch.headers.push(record.headers.clone());
        }
        self.batch.rows.push(Row {
            origin: Origin { input, epoch, offset, child: 0 },
            timestamp: record.t.unwrap_or(NONE_YET),
            key,
            value,
            headers,
            kind: crate::batch::Kind::Insert,
            window: Row::NO_WINDOW,
            arrival: 0,
            // The task knows its positions.
            redelivered: false,
            bounds: false,
        });
    }

    fn document(&mut self, content: &Content, builder: &mut Builder) -> Payload {
        let start = self.bytes.len();
        let kind = cells::write(content, builder, &mut self.bytes);
        Payload::Cell(kind, Span { arena: 0, start: start as u32, len: (self.bytes.len() - start) as u32 })
    }

    /// The batch, as it leaves at this processing time; gathering begins anew.
    pub fn take(&mut self, now: i64) -> Batch {
        let mut batch = std::mem::take(&mut self.batch);
        batch.add_arena(std::mem::take(&mut self.bytes));
        batch.now = now;
        batch
    }
}
