//! Everything that is written to disk, versioned, and the only user of bincode.
//!
//! Whatever lasts stands in an envelope of 32 bytes and a payload, numbers little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | `TMIS` |
//! | 4 | 2 | version of the payloads, 1 |
//! | 6 | 2 | kind |
//! | 8 | 8 | length of the payload |
//! | 16 | 16 | xxh3-128 of the first 16 bytes and the payload |
//!
//! The payload is bincode 1.3 with fixed integers, little-endian, with a limit. What a version writes is pinned by the
//! golden bytes in `tests/golden`. A later encoding is a new version; versions are read for ever.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bincode::Options;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

use crate::batch::{Headers, Image, Origin, Owned};
use crate::keyed::Kept;
use crate::task::{Marker, Sealed};

const MAGIC: [u8; 4] = *b"TMIS";
/// Version of the payloads that this program writes.
pub const VERSION: u16 = 1;
/// Bytes before the payload.
pub const HEADER: usize = 32;
/// Most bytes of a payload: what is longer was never written by this program.
pub const LIMIT: u64 = 1 << 32;

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// Changes of keyed state.
    Changes = 1,
    /// What a task knows besides its keyed state.
    Marker = 2,
    /// A part of a checkpoint.
    Bucket = 3,
    /// The end of a checkpoint, which makes it one.
    Head = 4,
    /// A record of the commit journal.
    Journal = 5,
    /// A task, whole.
    Snapshot = 6,
    /// What a commit says of itself in a changelog topic.
    Changelog = 7,
}

/// Why bytes are not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// They end before the payload does: the tail was cut.
    Short,
    /// They do not begin as ours do.
    Foreign,
    /// A version this program does not read.
    Version(u16),
    /// Another kind of payload.
    Kind(u16),
    /// The hash differs.
    Damaged,
    /// The payload cannot be written or read; with bincode's words.
    Payload(String),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Short => f.write_str("cut off before its end"),
            FormatError::Foreign => f.write_str("not written by tamis"),
            FormatError::Version(v) => write!(f, "written in version {v}, this program reads version {VERSION}"),
            FormatError::Kind(k) => write!(f, "of another kind ({k})"),
            FormatError::Damaged => f.write_str("damaged: its hash differs"),
            FormatError::Payload(text) => write!(f, "not in its format: {text}"),
        }
    }
}

impl std::error::Error for FormatError {}

fn options() -> impl Options {
    bincode::DefaultOptions::new().with_fixint_encoding().with_limit(LIMIT)
}

/// The payload alone, for what is put into another payload.
pub fn payload<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, FormatError> {
    options().serialize(value).map_err(|e| FormatError::Payload(e.to_string()))
}

/// The payload, after what is in `out`.
pub fn payload_into<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), FormatError> {
    options().serialize_into(out, value).map_err(|e| FormatError::Payload(e.to_string()))
}

/// Reads what `payload` wrote; trailing bytes are an error.
pub fn from_payload<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FormatError> {
    options().deserialize(bytes).map_err(|e| FormatError::Payload(e.to_string()))
}

/// A value in its envelope.
pub fn encode<T: Serialize + ?Sized>(kind: Kind, value: &T) -> Result<Vec<u8>, FormatError> {
    let mut out = vec![0; HEADER];
    options().serialize_into(&mut out, value).map_err(|e| FormatError::Payload(e.to_string()))?;
    let (head, payload) = out.split_at_mut(HEADER);
    head[0..4].copy_from_slice(&MAGIC);
    head[4..6].copy_from_slice(&VERSION.to_le_bytes());
    head[6..8].copy_from_slice(&(kind as u16).to_le_bytes());
    head[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    let hash = hash(&head[..16], payload);
    head[16..32].copy_from_slice(&hash.to_le_bytes());
    Ok(out)
}

/// The value in an envelope of this kind; trailing bytes are an error.
pub fn decode<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T, FormatError> {
    match split(kind, bytes)? {
        (payload, []) => from_payload(payload),
        _ => Err(FormatError::Payload("bytes after its end".into())),
    }
}

/// The payload of the first envelope, verified, and what follows it: for logs of envelopes. Empty input is `Short`.
pub fn split(kind: Kind, bytes: &[u8]) -> Result<(&[u8], &[u8]), FormatError> {
    let known = bytes.len().min(4);
    if bytes[..known] != MAGIC[..known] {
        return Err(FormatError::Foreign);
    }
    let Some((head, rest)) = bytes.split_at_checked(HEADER) else { return Err(FormatError::Short) };
    let number = |at: usize, len: usize| head[at..at + len].iter().rev().fold(0u128, |n, &b| n << 8 | u128::from(b));
    let (version, found) = (number(4, 2) as u16, number(6, 2) as u16);
    if version != VERSION {
        return Err(FormatError::Version(version));
    }
    let len = number(8, 8) as u64;
    if len > LIMIT {
        return Err(FormatError::Damaged);
    }
    let Some((payload, rest)) = rest.split_at_checked(len as usize) else { return Err(FormatError::Short) };
    if hash(&head[..16], payload) != number(16, 16) {
        return Err(FormatError::Damaged);
    }
    if found != kind as u16 {
        return Err(FormatError::Kind(found));
    }
    Ok((payload, rest))
}

fn hash(head: &[u8], payload: &[u8]) -> u128 {
    let mut hasher = Xxh3Default::new();
    hasher.update(head);
    hasher.update(payload);
    hasher.digest128()
}

/// A change of keyed state: absolute, so that applying it twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A space is gone, with all that was in it before.
    Drop {
        /// Its number.
        space: i64,
    },
    /// Marks of one space, set or taken away, in order.
    Marks {
        /// Its number.
        space: i64,
        /// Hash of the key, and what stands there now.
        marks: Vec<(u128, Option<StoredMark>)>,
    },
    /// An entry, set or taken away.
    Entry {
        /// Its space.
        space: i64,
        /// Hash of its key.
        key: u128,
        /// The payload of a `StoredEntry`.
        entry: Option<EntryBytes>,
    },
    /// Numbers that are given only once, so far.
    Numbers {
        /// The next creation.
        born: u64,
        /// The next wake.
        set: u64,
    },
}

/// A mark: where the first record of a key came from, and until when it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMark {
    /// Until when, ns.
    pub expires: i64,
    /// Offset of the record.
    pub offset: i64,
    /// Input of the task.
    pub input: u16,
    /// Number of its creation; 0 where nothing is evicted.
    pub born: u64,
}

/// An entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredEntry<'a> {
    /// Number of its creation.
    pub born: u64,
    /// Until when it counts, ns.
    pub expires: i64,
    /// Kind of the value's cell.
    pub kind: u8,
    /// The guest's own bytes.
    #[serde(with = "bytes")]
    pub value: Cow<'a, [u8]>,
    /// Its wake.
    pub wake: Option<StoredWake<'a>>,
    /// What it keeps, by number.
    pub kept: Vec<(u8, StoredKept)>,
}

/// A wake.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredWake<'a> {
    /// When, ns.
    pub time: i64,
    /// And of which input.
    pub input: u16,
    /// The guest's order among equal wakes.
    #[serde(with = "bytes")]
    pub rank: Cow<'a, [u8]>,
    /// The order of setting.
    pub set: u64,
}

/// A kept row or position.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredKept(#[serde(with = "KeptLayout")] pub Kept);

/// A task: what it knows besides its keyed state, and changes of that state, by stage. All of it makes a snapshot, what
/// is new since the last commit goes into the journal.
#[derive(Serialize, Deserialize)]
struct StoredTask<'a> {
    marker: Cow<'a, Marker>,
    states: Vec<StoredState<'a>>,
}

#[derive(Serialize, Deserialize)]
struct StoredState<'a> {
    stage: Cow<'a, str>,
    identity: Cow<'a, str>,
    changes: Cow<'a, [Change]>,
}

/// A task in its envelope: its marker, and changes of its stages.
pub fn write_task(kind: Kind, marker: &Marker, states: &[Sealed]) -> Result<Vec<u8>, FormatError> {
    let stored = StoredTask { marker: Cow::Borrowed(marker), states: states.iter().map(StoredState::of).collect() };
    encode(kind, &stored)
}

impl<'a> StoredState<'a> {
    fn of(s: &'a Sealed) -> StoredState<'a> {
        StoredState {
            stage: Cow::Borrowed(&s.stage),
            identity: Cow::Borrowed(&s.identity),
            changes: Cow::Borrowed(&s.changes),
        }
    }
}

/// What `write_task` wrote.
pub fn read_task(kind: Kind, bytes: &[u8]) -> Result<(Marker, Vec<Sealed>), FormatError> {
    let task: StoredTask<'static> = decode(kind, bytes)?;
    let state = |s: StoredState<'static>| Sealed {
        stage: s.stage.into_owned(),
        identity: s.identity.into_owned(),
        changes: s.changes.into_owned(),
        ..Sealed::default()
    };
    Ok((task.marker.into_owned(), task.states.into_iter().map(state).collect()))
}

/// A whole task in its envelope.
pub fn write_snapshot(marker: &Marker, states: &[Sealed]) -> anyhow::Result<Vec<u8>> {
    Ok(write_task(Kind::Snapshot, marker, states)?)
}

/// What `write_snapshot` wrote.
pub fn read_snapshot(bytes: &[u8]) -> anyhow::Result<(Marker, Vec<Sealed>)> {
    Ok(read_task(Kind::Snapshot, bytes)?)
}

/// An entry in its encoded form; bytes that are no entry are refused when they are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Bytes")]
pub struct EntryBytes(#[serde(with = "bytes")] pub Vec<u8>);

/// Bytes that are written in one piece.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes(#[serde(with = "bytes")] pub Vec<u8>);

impl TryFrom<Bytes> for EntryBytes {
    type Error = FormatError;

    fn try_from(bytes: Bytes) -> Result<EntryBytes, FormatError> {
        from_payload::<StoredEntry<'static>>(&bytes.0)?;
        Ok(EntryBytes(bytes.0))
    }
}

// The layouts below repeat types of the core, so that the core may move without moving what is on disk.

#[derive(Serialize, Deserialize)]
#[serde(remote = "Kept")]
enum KeptLayout {
    Image(#[serde(with = "image")] Arc<Image>),
    Mark(#[serde(with = "OriginLayout")] Origin),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Image")]
struct ImageLayout {
    #[serde(with = "OriginLayout")]
    origin: Origin,
    timestamp: i64,
    event: i64,
    ingestion: i64,
    #[serde(with = "OwnedLayout")]
    key: Owned,
    #[serde(with = "OwnedLayout")]
    value: Owned,
    headers: Headers,
    #[serde(with = "OwnedLayout")]
    output_key: Owned,
    kind: u8,
    arrival: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Origin")]
struct OriginLayout {
    input: u16,
    epoch: i32,
    offset: i64,
    child: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Owned")]
enum OwnedLayout {
    Null,
    Bytes(#[serde(with = "bytes")] Box<[u8]>),
    Cell(u8, #[serde(with = "bytes")] Box<[u8]>),
}

mod image {
    //! An image behind its pointer.
    use super::*;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(image: &Arc<Image>, to: S) -> Result<S::Ok, S::Error> {
        ImageLayout::serialize(image, to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Image>, D::Error> {
        ImageLayout::deserialize(from).map(Arc::new)
    }
}

mod bytes {
    //! A length and the bytes, copied as a block: the same layout as a list of numbers, not one by one.
    use serde::{Deserializer, Serializer, de::Error, de::Visitor};
    use std::fmt;

    pub fn serialize<S: Serializer>(bytes: &impl AsRef<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes.as_ref())
    }

    pub fn deserialize<'de, D: Deserializer<'de>, T: From<Vec<u8>>>(from: D) -> Result<T, D::Error> {
        struct Block;
        impl Visitor<'_> for Block {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
            fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(bytes)
            }
        }
        from.deserialize_byte_buf(Block).map(T::from)
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
pub(crate) mod tests;
