//! The changelog of a task: one compacted partition with a record for every mark and entry of its keyed state, and
//! behind those of each commit a marker that says which commit it was.
//!
//! | record | key | value |
//! |---|---|---|
//! | marker | `00` `txn` | envelope of format.rs, kind 7 |
//! | mark | `01`, stage, space, hash of the key | `01`, expires i64, offset i64, input u16, born u64; or `02`: gone |
//! | entry | `02`, stage, space, hash of the key | `01`, payload of an entry |
//! | dropped space | `03`, stage, space | `01`, sequence u64 |
//! | sheaf | `04`, stage, number | `01`, then for each mark hash, offset i64, input u16, born u64 |
//! | floor | `05`, stage, space | `01`, sequence u64 |
//!
//! A stage is a byte of length and its id; space (8 bytes), hash and number (16) are big-endian in keys; values are
//! little-endian. A null value takes a mark or an entry away. Applied in order, the last record of a key wins; a dropped
//! space takes away what stands before it, until a null value says that nothing of it is left.
//!
//! A sheaf is many marks of space 0 that never end, under a number that no other has. Compaction keeps the order of what it
//! leaves, so a mark that stands behind a sheaf wins over what the sheaf says of its hash. But it removes null values in the
//! end, and what a sheaf says would be true again. So where a sheaf may have a mark that is taken away, that is told by
//! a value, for ever (`Layout`); and a space is dropped with a floor, which stays when all that it buried is gone: nobody
//! need know every sheaf below it. Sheaves below a floor get null values (buried.rs).

use serde::{Deserialize, Serialize};

use crate::format::{self, Change, Kind, StoredMark};
use crate::keyed::Layout;
use crate::task::{self, Input, Sealed};

const MARKER: u8 = 0;
const MARK: u8 = 1;
const ENTRY: u8 = 2;
const DROP: u8 = 3;
const SHEAF: u8 = 4;
const FLOOR: u8 = 5;
/// Version of all values but one.
const VERSION: u8 = 1;
/// The value of a mark that was taken away, where a sheaf may have it.
const GONE: u8 = 2;
/// Bytes of a mark in a sheaf.
const IN_SHEAF: usize = 34;
/// Fewer marks are written one by one: the number of a sheaf must not cost more than it saves.
const LEAST: usize = 8;
/// Most marks in a sheaf.
const MOST: usize = 1024;
/// Key of markers.
pub const MARKER_KEY: &[u8] = b"\0txn";

/// What one commit of a task says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Its token, as text.
    pub token: String,
    /// Next offset of every input.
    pub next: Vec<(Input, i64)>,
    /// Partitions of the source topic.
    pub partitions: u32,
    /// What the task knows besides keyed state.
    pub task: task::Marker,
    /// Its stages with keyed state.
    pub stages: Vec<StageMarker>,
}

/// What a marker says of one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageMarker {
    /// Id of the stage.
    pub stage: String,
    /// What it was made with (R8), as JSON.
    pub identity: String,
    /// Digest of its state.
    pub digest: u128,
    /// Numbers that are given only once: creations and wakes.
    pub numbers: (u64, u64),
    /// How its marks lie in the changelog.
    pub layout: Layout,
}

/// What a record of a changelog says.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry<'a> {
    /// The records before it are those of this commit.
    Marker(Box<Marker>),
    /// Something about the state of a stage.
    State {
        /// Id of the stage.
        stage: &'a str,
        /// The space it is in.
        space: i64,
        /// What.
        what: What<'a>,
    },
}

/// What a record says of a space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What<'a> {
    /// A mark, set or taken away.
    Mark(u128, Option<StoredMark>),
    /// A mark that was taken away and may be in a sheaf.
    Gone(u128),
    /// The sheaf with this number: marks, set; none: it is below a floor and goes.
    Sheaf(u128, Option<Sheaf<'a>>),
    /// An entry, set to a payload or taken away.
    Entry(u128, Option<&'a [u8]>),
    /// The space was dropped.
    Drop,
    /// Nothing of what was dropped is left.
    Buried,
    /// What stands before it counts no more, whatever is left of it.
    Floor,
}

/// Marks of space 0 that never end, in one record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sheaf<'a>(&'a [u8]);

impl Sheaf<'_> {
    /// The marks by the hashes of their keys.
    pub fn marks(&self) -> impl Iterator<Item = (u128, StoredMark)> {
        self.0.chunks_exact(IN_SHEAF).filter_map(|bytes| {
            let (hash, rest) = bytes.split_first_chunk::<16>()?;
            let (offset, input, born) = origin(rest)?;
            Some((u128::from_le_bytes(*hash), StoredMark { expires: i64::MAX, offset, input, born }))
        })
    }
}

/// A record that is no record of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign(pub String);

/// Gives the records of the changes of a stage: key and value of each, the value `None` for what goes. `number` gives the
/// number of a sheaf, for ever unlike any other; none: no sheaf may be written now.
pub fn records(
    sealed: &Sealed,
    sequence: u64,
    mut number: impl FnMut() -> Option<u128>,
    mut each: impl FnMut(&[u8], Option<&[u8]>),
) {
    let (mut key, mut value) = (Vec::with_capacity(64), Vec::with_capacity(64));
    for change in &sealed.changes {
        match change {
            // In the marker.
            Change::Numbers { .. } => {}
            Change::Drop { space } => {
                begin(&mut key, DROP, &sealed.stage, *space);
                value.clear();
                value.push(VERSION);
                value.extend_from_slice(&sequence.to_le_bytes());
                each(&key, Some(&value));
                if *space == 0 && sealed.layout != Layout::Single {
                    floor(&sealed.stage, sequence, &mut each);
                }
            }
            Change::Marks { space, marks } => {
                let gathers = *space == 0 && sealed.layout == Layout::Sheaves;
                let gone = (*space == 0 && sealed.layout == Layout::Mixed).then_some(&[GONE][..]);
                let mut rest = &marks[..];
                while !rest.is_empty() {
                    let is_endless = |mark: &&Marked| mark.1.is_some_and(|mark| mark.expires == i64::MAX);
                    let count =
                        if gathers { rest.iter().take(MOST).take_while(is_endless).count() } else { rest.len() };
                    let (some, others) = rest.split_at(count.max(1));
                    rest = others;
                    if gathers
                        && count >= LEAST
                        && let Some(number) = number()
                    {
                        begin_sheaf(&mut key, &sealed.stage, number);
                        put_sheaf(&mut value, some);
                        each(&key, Some(&value));
                        continue;
                    }
                    begin(&mut key, MARK, &sealed.stage, *space);
                    let length = key.len();
                    for (hash, mark) in some {
                        key.truncate(length);
                        key.extend_from_slice(&hash.to_be_bytes());
                        match mark {
                            None => each(&key, gone),
                            Some(mark) => {
                                put_mark(&mut value, mark);
                                each(&key, Some(&value));
                            }
                        }
                    }
                }
            }
            Change::Entry { space, key: hash, entry } => {
                begin(&mut key, ENTRY, &sealed.stage, *space);
                key.extend_from_slice(&hash.to_be_bytes());
                match entry {
                    None => each(&key, None),
                    Some(entry) => {
                        value.clear();
                        value.push(VERSION);
                        value.extend_from_slice(&entry.0);
                        each(&key, Some(&value));
                    }
                }
            }
        }
    }
}

/// Gives the record of a floor in space 0 of a stage.
pub fn floor(stage: &str, sequence: u64, mut each: impl FnMut(&[u8], Option<&[u8]>)) {
    let mut key = Vec::with_capacity(64);
    begin(&mut key, FLOOR, stage, 0);
    let [a, b, c, d, e, f, g, h] = sequence.to_le_bytes();
    each(&key, Some(&[VERSION, a, b, c, d, e, f, g, h]));
}

/// Gives the records that take away what was dropped (buried.rs): those of its sheaves and keys, and where a space is done
/// that of its drop.
pub fn burials(sealed: &Sealed, mut each: impl FnMut(&[u8], Option<&[u8]>)) {
    let mut key = Vec::with_capacity(64);
    for &number in &sealed.sheaves {
        begin_sheaf(&mut key, &sealed.stage, number);
        each(&key, None);
    }
    for change in &sealed.changes {
        match change {
            Change::Numbers { .. } => {}
            Change::Marks { space, marks } => {
                begin(&mut key, MARK, &sealed.stage, *space);
                let length = key.len();
                for (hash, _) in marks {
                    key.truncate(length);
                    key.extend_from_slice(&hash.to_be_bytes());
                    each(&key, None);
                }
            }
            Change::Entry { space, key: hash, .. } => {
                begin(&mut key, ENTRY, &sealed.stage, *space);
                key.extend_from_slice(&hash.to_be_bytes());
                each(&key, None);
            }
            Change::Drop { space } => {
                begin(&mut key, DROP, &sealed.stage, *space);
                each(&key, None);
            }
        }
    }
}

/// The value of a marker's record.
pub fn write_marker(marker: &Marker) -> Result<Vec<u8>, format::FormatError> {
    format::encode(Kind::Changelog, marker)
}

/// Reads a record. Nothing is allocated but for markers.
pub fn read<'a>(key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> Result<Entry<'a>, Foreign> {
    let foreign = |why: &str| Foreign(why.to_owned());
    let cut = || Foreign("its key is cut off".to_owned());
    let key = key.ok_or_else(|| foreign("it has no key"))?;
    if key == MARKER_KEY {
        let value = value.ok_or_else(|| foreign("a marker without value"))?;
        let marker = format::decode(Kind::Changelog, value).map_err(|why| Foreign(format!("a marker is {why}")))?;
        return Ok(Entry::Marker(Box::new(marker)));
    }
    let (&kind, rest) = key.split_first().ok_or_else(|| foreign("its key is empty"))?;
    let (&length, rest) = rest.split_first().ok_or_else(cut)?;
    let (stage, rest) = rest.split_at_checked(usize::from(length)).ok_or_else(cut)?;
    let stage = std::str::from_utf8(stage).map_err(|_| foreign("its stage is no text"))?;
    let (space, rest) = match kind {
        SHEAF => (0, rest),
        _ => {
            let (space, rest) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
            (i64::from_be_bytes(*space), rest)
        }
    };
    let hash = || match <[u8; 16]>::try_from(rest) {
        Ok(hash) => Ok(u128::from_be_bytes(hash)),
        Err(_) => Err(foreign("its key has no hash")),
    };
    let value = match value.map(<[u8]>::split_first) {
        None => None,
        Some(Some((&VERSION, value))) => Some(value),
        Some(Some((&GONE, []))) if kind == MARK => {
            return Ok(Entry::State { stage, space, what: What::Gone(hash()?) });
        }
        Some(_) => return Err(foreign("its value is of another version")),
    };
    let what = match (kind, value) {
        (SHEAF, None) => What::Sheaf(hash()?, None),
        (SHEAF, Some(marks)) if !marks.is_empty() && marks.len().is_multiple_of(IN_SHEAF) => {
            What::Sheaf(hash()?, Some(Sheaf(marks)))
        }
        (SHEAF, Some(_)) => return Err(foreign("its sheaf is cut off")),
        (FLOOR, Some(_)) => What::Floor,
        (MARK, None) => What::Mark(hash()?, None),
        (MARK, Some(value)) => {
            What::Mark(hash()?, Some(stored_mark(value).ok_or_else(|| foreign("its mark is cut off"))?))
        }
        (ENTRY, value) => What::Entry(hash()?, value),
        (DROP, Some(_)) => What::Drop,
        (DROP, None) => What::Buried,
        _ => return Err(Foreign(format!("its key begins with {kind}"))),
    };
    Ok(Entry::State { stage, space, what })
}

fn begin(key: &mut Vec<u8>, kind: u8, stage: &str, space: i64) {
    key.clear();
    key.push(kind);
    // Ids of stages are short: the pipeline file sees to it.
    let stage = stage.as_bytes().get(..255).unwrap_or(stage.as_bytes());
    key.push(stage.len() as u8);
    key.extend_from_slice(stage);
    key.extend_from_slice(&space.to_be_bytes());
}

fn begin_sheaf(key: &mut Vec<u8>, stage: &str, number: u128) {
    begin(key, SHEAF, stage, 0);
    // Its space is always the same.
    key.truncate(key.len() - size_of::<i64>());
    key.extend_from_slice(&number.to_be_bytes());
}

/// A mark of a run, by the hash of its key.
type Marked = (u128, Option<StoredMark>);

fn put_mark(value: &mut Vec<u8>, mark: &StoredMark) {
    value.clear();
    value.push(VERSION);
    value.extend_from_slice(&mark.expires.to_le_bytes());
    put_origin(value, mark);
}

fn put_sheaf(value: &mut Vec<u8>, marks: &[Marked]) {
    value.clear();
    value.push(VERSION);
    for (hash, mark) in marks {
        if let Some(mark) = mark {
            value.extend_from_slice(&hash.to_le_bytes());
            put_origin(value, mark);
        }
    }
}

fn put_origin(value: &mut Vec<u8>, mark: &StoredMark) {
    value.extend_from_slice(&mark.offset.to_le_bytes());
    value.extend_from_slice(&mark.input.to_le_bytes());
    value.extend_from_slice(&mark.born.to_le_bytes());
}

fn stored_mark(bytes: &[u8]) -> Option<StoredMark> {
    let (expires, rest) = bytes.split_first_chunk::<8>()?;
    let (offset, input, born) = origin(rest)?;
    Some(StoredMark { expires: i64::from_le_bytes(*expires), offset, input, born })
}

/// Offset, input and number of creation.
fn origin(bytes: &[u8]) -> Option<(i64, u16, u64)> {
    let (offset, rest) = bytes.split_first_chunk::<8>()?;
    let (input, born) = rest.split_first_chunk::<2>()?;
    Some((i64::from_le_bytes(*offset), u16::from_le_bytes(*input), u64::from_le_bytes(born.try_into().ok()?)))
}

const _: () = assert!(MARKER_KEY[0] == MARKER);

#[cfg(test)]
#[path = "changelog_tests.rs"]
mod tests;
