//! The changelog of a task: one compacted partition with a record for every mark and entry of its keyed state, and
//! behind those of each commit a marker that says which commit it was.
//!
//! | record | key | value |
//! |---|---|---|
//! | marker | `00` `txn` | envelope of format.rs, kind 7 |
//! | mark | `01`, stage, space, hash of the key | `01`, expires i64, offset i64, input u16, born u64 |
//! | entry | `02`, stage, space, hash of the key | `01`, payload of an entry |
//! | dropped space | `03`, stage, space | `01`, sequence u64 |
//!
//! A stage is a byte of length and its id; space (8 bytes) and hash (16) are big-endian; values are little-endian. A
//! null value takes a mark or an entry away. Applied in order, the last record of a key wins; a dropped space takes
//! away what stands before it.

use serde::{Deserialize, Serialize};

use crate::format::{self, Change, EntryBytes, Kind, StoredEntry, StoredMark};
use crate::task::{self, Input, Sealed};

const MARKER: u8 = 0;
const MARK: u8 = 1;
const ENTRY: u8 = 2;
const DROP: u8 = 3;
/// Version of the values of marks, entries and drops.
const VERSION: u8 = 1;
/// Most marks in one change.
const RUN: usize = 4096;

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
}

/// Reads what is in a changelog, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry<'a> {
    /// The records before it are those of this commit.
    Marker(Box<Marker>),
    /// A change of a stage's state.
    Change {
        /// Id of the stage.
        stage: &'a str,
        /// What changed.
        change: Change,
    },
}

/// A record that is no record of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign(pub String);

/// Gives the records of the changes of a stage: key and value of each, the value `None` for what goes.
pub fn records(sealed: &Sealed, sequence: u64, mut each: impl FnMut(&[u8], Option<&[u8]>)) {
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
            }
            Change::Marks { space, marks } => {
                begin(&mut key, MARK, &sealed.stage, *space);
                let length = key.len();
                for (hash, mark) in marks {
                    key.truncate(length);
                    key.extend_from_slice(&hash.to_be_bytes());
                    match mark {
                        None => each(&key, None),
                        Some(mark) => {
                            value.clear();
                            value.push(VERSION);
                            value.extend_from_slice(&mark.expires.to_le_bytes());
                            value.extend_from_slice(&mark.offset.to_le_bytes());
                            value.extend_from_slice(&mark.input.to_le_bytes());
                            value.extend_from_slice(&mark.born.to_le_bytes());
                            each(&key, Some(&value));
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

/// The value of a marker's record.
pub fn write_marker(marker: &Marker) -> Result<Vec<u8>, format::FormatError> {
    format::encode(Kind::Changelog, marker)
}

/// Reads a record.
pub fn read<'a>(key: Option<&'a [u8]>, value: Option<&[u8]>) -> Result<Entry<'a>, Foreign> {
    let foreign = |why: &str| Foreign(why.to_owned());
    let key = key.ok_or_else(|| foreign("it has no key"))?;
    if key == MARKER_KEY {
        let value = value.ok_or_else(|| foreign("a marker without value"))?;
        let marker = format::decode(Kind::Changelog, value).map_err(|why| Foreign(format!("a marker is {why}")))?;
        return Ok(Entry::Marker(Box::new(marker)));
    }
    let (&kind, rest) = key.split_first().ok_or_else(|| foreign("its key is empty"))?;
    let (&length, rest) = rest.split_first().ok_or_else(|| foreign("its key is cut off"))?;
    let (stage, rest) = rest.split_at_checked(usize::from(length)).ok_or_else(|| foreign("its key is cut off"))?;
    let stage = std::str::from_utf8(stage).map_err(|_| foreign("its stage is no text"))?;
    let (space, rest) = rest.split_first_chunk::<8>().ok_or_else(|| foreign("its key is cut off"))?;
    let space = i64::from_be_bytes(*space);
    let hash = || match <[u8; 16]>::try_from(rest) {
        Ok(hash) => Ok(u128::from_be_bytes(hash)),
        Err(_) => Err(foreign("its key has no hash")),
    };
    let value = match value.map(<[u8]>::split_first) {
        None => None,
        Some(Some((&VERSION, value))) => Some(value),
        Some(_) => return Err(foreign("its value is of another version")),
    };
    let change = match kind {
        MARK => {
            let mark = value.map(|v| stored_mark(v).ok_or_else(|| foreign("its mark is cut off"))).transpose()?;
            Change::Marks { space, marks: vec![(hash()?, mark)] }
        }
        ENTRY => {
            if let Some(bytes) = value {
                let entry = format::from_payload::<StoredEntry<'static>>(bytes);
                entry.map_err(|why| Foreign(format!("an entry is {why}")))?;
            }
            Change::Entry { space, key: hash()?, entry: value.map(|bytes| EntryBytes(bytes.to_vec())) }
        }
        DROP if value.is_some() => Change::Drop { space },
        _ => return Err(Foreign(format!("its key begins with {kind}"))),
    };
    Ok(Entry::Change { stage, change })
}

/// Adds a change behind others of the same stage; marks of one space become runs.
pub fn collect(changes: &mut Vec<Change>, change: Change) {
    if let (Some(Change::Marks { space, marks }), Change::Marks { space: also, marks: more }) =
        (changes.last_mut(), &change)
        && space == also
        && marks.len() + more.len() <= RUN
    {
        marks.extend_from_slice(more);
        return;
    }
    changes.push(change);
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

fn stored_mark(bytes: &[u8]) -> Option<StoredMark> {
    let (expires, rest) = bytes.split_first_chunk::<8>()?;
    let (offset, rest) = rest.split_first_chunk::<8>()?;
    let (input, born) = rest.split_first_chunk::<2>()?;
    Some(StoredMark {
        expires: i64::from_le_bytes(*expires),
        offset: i64::from_le_bytes(*offset),
        input: u16::from_le_bytes(*input),
        born: u64::from_le_bytes(born.try_into().ok()?),
    })
}

const _: () = assert!(MARKER_KEY[0] == MARKER);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn sealed(changes: Vec<Change>) -> Sealed {
        Sealed { stage: "dedup".into(), identity: "{}".into(), changes }
    }

    /// What is written is read again as the same changes; gives the records.
    #[track_caller]
    fn check(changes: Vec<Change>) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut written = Vec::new();
        records(&sealed(changes.clone()), 9, |key, value| written.push((key.to_vec(), value.map(<[u8]>::to_vec))));
        let mut again = Vec::new();
        for (key, value) in &written {
            match read(Some(key), value.as_deref()).unwrap() {
                Entry::Change { stage, change } => {
                    assert_eq!(stage, "dedup");
                    collect(&mut again, change);
                }
                Entry::Marker(_) => panic!("no marker was written"),
            }
        }
        assert_eq!(again, changes);
        written
    }

    #[test]
    fn changes_read_as_they_are_written() {
        let mark = StoredMark { expires: 5, offset: 6, input: 7, born: 8 };
        let written = check(vec![
            Change::Drop { space: -1 },
            Change::Marks { space: 0, marks: vec![(1, Some(mark)), (2, None), (u128::MAX, Some(mark))] },
            Change::Entry { space: i64::MIN, key: 3, entry: None },
        ]);
        assert_eq!(written.len(), 5);
        assert_eq!(written[1].0, [&b"\x01\x05dedup"[..], &[0; 8], &[0; 15], &[1]].concat());
        assert_eq!(written[1].1.as_deref().map(<[u8]>::len), Some(27));
        assert_eq!(written[2].1, None);
    }

    #[test]
    fn what_is_written_to_a_changelog_is_read_for_ever() {
        let input = Input { topic: "clicks".into(), partition: 3 };
        let task = task::Marker {
            inputs: vec![input.clone()],
            salt: 9,
            activity: vec![crate::time::Activity::Active],
            event: crate::time::Clock::new(1, 5),
            ingestion: crate::time::Clock::new(1, 0),
            positions: vec![Some((4, 77))],
            arrivals: 12,
            invalid_time: 1,
            counters: vec![crate::stage::Counters::default()],
        };
        let stage = StageMarker { stage: "d".into(), identity: "{}".into(), digest: 1 << 100, numbers: (2, 3) };
        let (token, next) = ("1;1;0;0;0;0".to_owned(), vec![(input, 78)]);
        let marker = Marker { token, next, partitions: 4, task, stages: vec![stage] };
        let golden = crate::format::tests::check_golden("changelog-marker", &write_marker(&marker).unwrap());
        assert_eq!(read(Some(MARKER_KEY), Some(&golden)).unwrap(), Entry::Marker(Box::new(marker)));
        let mark = StoredMark { expires: 5, offset: 6, input: 7, born: 8 };
        let mut all = Vec::new();
        let changes =
            vec![Change::Drop { space: 1 }, Change::Marks { space: 2, marks: vec![(3, Some(mark)), (4, None)] }];
        records(&sealed(changes), 9, |key, value| {
            all.extend_from_slice(key);
            all.extend_from_slice(value.unwrap_or(b"null"));
        });
        crate::format::tests::check_golden("changelog-records", &all);
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let check = |key: Option<&[u8]>, value: Option<&[u8]>| assert!(read(key, value).is_err(), "{key:?}");
        check(None, Some(b"x"));
        check(Some(b""), Some(b"x"));
        check(Some(MARKER_KEY), None);
        check(Some(MARKER_KEY), Some(b"not ours"));
        check(Some(b"\x01\x05dedu"), None);
        check(Some(&[&b"\x01\x01d"[..], &[0; 24]].concat()), Some(b"\x02"));
        check(Some(&[&b"\x02\x01d"[..], &[0; 24]].concat()), Some(b"\x01no entry"));
        check(Some(&[&b"\x09\x01d"[..], &[0; 24]].concat()), Some(b"\x01"));
    }
}
