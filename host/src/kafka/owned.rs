//! A partition that is ours: how far it is read, and batches of its records.

use std::sync::Arc;

use rdkafka::error::RDKafkaErrorCode;

use super::attempts::{Attempt, Attempts};
use super::group::Place;
use super::raw::{Message, PartitionQueue};
use crate::batch::{Batch, Headers, Kind, Origin, Payload, Row, Span};
use crate::config::kafka::Until;
use crate::files::source::{self, Polled, Polling};
use crate::time::NONE_YET;

/// How the inbox reads.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most rows of a batch.
    pub rows: usize,
    /// Most bytes of a batch; a larger record is a batch of its own.
    pub bytes: usize,
    /// Where the input ends.
    pub until: Option<Until>,
}

/// What is known of a partition that is ours.
#[derive(Debug)]
pub struct Owned {
    /// Topic and partition.
    pub place: Place,
    /// Its number as an input of the source.
    pub input: u16,
    /// Its records.
    pub queue: PartitionQueue,
    /// What is done with it.
    pub stage: Stage,
    /// The next offset that is new: the library has handed out old records again.
    pub next: i64,
    /// The next offset that has not been dealt with.
    pub taken: i64,
    /// With `until: end`, the offset behind its last record.
    pub end: Option<i64>,
    /// How it ended before, if it did so again and again.
    pub attempt: Attempt,
}

/// What is done with a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its state is being restored.
    Restoring,
    /// Its records are read.
    Running,
    /// All were read, which has not been said yet.
    Ended,
    /// All were read.
    Finished,
    /// Retention removed what comes next.
    Lost,
}

impl Owned {
    /// Where reading stands: behind the last record that was dealt with; behind all that the library has fetched
    /// (`fetched`) if it has handed out nothing else.
    pub fn reached(&mut self, fetched: Option<i64>, rows: usize) -> i64 {
        match fetched.filter(|_| self.stage == Stage::Running && self.next == self.taken) {
            Some(fetched) if fetched > self.taken && self.queue.peek(rows).is_none() => fetched,
            _ => self.taken,
        }
    }
}

/// Records of one partition, or what else there is to say of it.
pub fn fill(owned: &mut Owned, settings: &Settings, attempts: &Attempts, arena: &mut Arc<Vec<u8>>) -> Option<Polled> {
    owned.queue.peek(settings.rows)?;
    let mut filling = Filling::begin(owned.queue.taken(), settings.bytes, arena);
    // Record by record where the process ended again and again: then it is known which one it was.
    let rows = if owned.attempt.is_careful(owned.next) { 1 } else { settings.rows };
    let mut poison = None;
    while filling.rows.len() < rows {
        let Some(message) = owned.queue.peek(settings.rows) else { break };
        let offset = message.offset();
        match message.error() {
            RDKafkaErrorCode::NoError => {}
            RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => {
                owned.queue.pass();
                owned.stage = Stage::Lost;
                break;
            }
            code => {
                tracing::warn!(topic = &*owned.place.0, partition = owned.place.1, "kafka: {code}");
                owned.queue.pass();
                continue;
            }
        }
        if offset < owned.next {
            owned.queue.pass();
            continue;
        }
        let late = |at: i64| message.timestamp().is_some_and(|ms| ms.saturating_mul(1_000_000) >= at);
        if owned.end.is_some_and(|end| offset >= end) || matches!(settings.until, Some(Until::At(at)) if late(at)) {
            owned.stage = Stage::Ended;
            break;
        }
        let size = message.key().map_or(0, <[u8]>::len) + message.value().map_or(0, <[u8]>::len);
        if !filling.rows.is_empty() && filling.bytes.len() + size > settings.bytes {
            break;
        }
        if owned.attempt.is_careful(offset) {
            if owned.attempt.is_poison(offset) {
                poison = Some(owned.attempt.broken());
            } else {
                attempts.suspect(&owned.place, &mut owned.attempt, offset);
            }
        } else if owned.attempt.is_over(offset) {
            attempts.acquit(&owned.place, &mut owned.attempt);
        }
        filling.push(owned.input, &message);
        owned.next = offset + 1;
        owned.queue.pass();
        if owned.end.is_some_and(|end| owned.next >= end) {
            owned.stage = Stage::Ended;
            break;
        }
    }
    if !filling.rows.is_empty() {
        let polling = filling.done(arena);
        return Some(match poison {
            Some(broken) => Polled::Broken(polling, broken),
            None => Polled::Rows(polling),
        });
    }
    if owned.stage == Stage::Ended {
        owned.stage = Stage::Finished;
        return Some(Polled::Finished(vec![owned.input]));
    }
    None
}

/// A batch while it is filled: keys and values in one arena.
struct Filling {
    rows: Vec<Row>,
    bytes: Vec<u8>,
    headers: Vec<Headers>,
}

impl Filling {
    /// Uses the arena of the batch before, if nobody holds it any more: its memory is warm.
    fn begin(rows: usize, room: usize, arena: &mut Arc<Vec<u8>>) -> Filling {
        let mut bytes = Arc::get_mut(arena).map(std::mem::take).unwrap_or_default();
        bytes.clear();
        bytes.reserve(room);
        Filling { rows: Vec::with_capacity(rows), bytes, headers: Vec::new() }
    }

    fn push(&mut self, input: u16, message: &Message<'_>) {
        let headers = message.headers();
        let number = match headers.is_empty() {
            true => Row::NO_HEADERS,
            false => {
                self.headers.push(headers);
                (self.headers.len() - 1) as u32
            }
        };
        let (key, value) = (self.payload(message.key()), self.payload(message.value()));
        self.rows.push(Row {
            origin: Origin { input, epoch: message.epoch(), offset: message.offset(), child: 0 },
            timestamp: message.timestamp().unwrap_or(NONE_YET),
            key,
            value,
            headers: number,
            kind: Kind::Insert,
            window: Row::NO_WINDOW,
            arrival: 0,
            redelivered: false,
            bounds: false,
        });
    }

    fn payload(&mut self, bytes: Option<&[u8]>) -> Payload {
        let Some(bytes) = bytes else { return Payload::Null };
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        Payload::Bytes(Span { arena: 0, start, len: bytes.len() as u32 })
    }

    fn done(self, arena: &mut Arc<Vec<u8>>) -> Polling {
        let place = |row: &Row| source::Place { input: row.origin.input, offset: row.origin.offset, end: 0 };
        let rows = self.rows.iter().map(place).collect();
        *arena = Arc::new(self.bytes);
        let arenas = vec![Arc::clone(arena)];
        let batch = Batch { rows: self.rows, arenas, headers: self.headers, ..Batch::default() };
        Polling { batch, file: 0, rows }
    }
}
