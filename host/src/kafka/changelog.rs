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
//! away what stands before it, until a null value says that nothing of it is left.

use serde::{Deserialize, Serialize};

use crate::format::{self, Change, Kind, StoredMark};
use crate::task::{self, Input, Sealed};

const MARKER: u8 = 0;
const MARK: u8 = 1;
const ENTRY: u8 = 2;
const DROP: u8 = 3;
/// Version of the values of marks, entries and drops.
const VERSION: u8 = 1;
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
    /// An entry, set to a payload or taken away.
    Entry(u128, Option<&'a [u8]>),
    /// The space was dropped.
    Drop,
    /// Nothing of what was dropped is left.
    Buried,
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

/// Gives the records that take away what was dropped (buried.rs): those of its keys, and where a space is done that of its
/// drop.
pub fn burials(sealed: &Sealed, mut each: impl FnMut(&[u8], Option<&[u8]>)) {
    let mut key = Vec::with_capacity(64);
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
    let (space, rest) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
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
    let what = match (kind, value) {
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

    /// What is written is read again; gives the records.
    #[track_caller]
    fn check(changes: Vec<Change>, expected: &[(i64, What<'_>)]) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut written = Vec::new();
        records(&sealed(changes), 9, |key, value| written.push((key.to_vec(), value.map(<[u8]>::to_vec))));
        assert_eq!(written.len(), expected.len());
        for ((key, value), &(space, what)) in written.iter().zip(expected) {
            let read = read(Some(key), value.as_deref()).unwrap();
            assert_eq!(read, Entry::State { stage: "dedup", space, what });
        }
        written
    }

    #[test]
    fn changes_read_as_they_are_written() {
        let mark = StoredMark { expires: 5, offset: 6, input: 7, born: 8 };
        let written = check(
            vec![
                Change::Drop { space: -1 },
                Change::Marks { space: 0, marks: vec![(1, Some(mark)), (2, None), (u128::MAX, Some(mark))] },
                Change::Entry { space: i64::MIN, key: 3, entry: None },
            ],
            &[
                (-1, What::Drop),
                (0, What::Mark(1, Some(mark))),
                (0, What::Mark(2, None)),
                (0, What::Mark(u128::MAX, Some(mark))),
                (i64::MIN, What::Entry(3, None)),
            ],
        );
        assert_eq!(written[1].0, [&b"\x01\x05dedup"[..], &[0; 8], &[0; 15], &[1]].concat());
        assert_eq!(written[1].1.as_deref().map(<[u8]>::len), Some(27));
        assert_eq!(written[2].1, None);
    }

    #[test]
    fn what_was_dropped_is_taken_away_key_by_key_and_the_drop_behind_them() {
        let gone = vec![
            Change::Marks { space: 4, marks: vec![(1, None), (2, None)] },
            Change::Entry { space: 4, key: 3, entry: None },
            Change::Drop { space: 4 },
        ];
        let mut found = Vec::new();
        burials(&sealed(gone), |key, value| {
            assert_eq!(value, None);
            match read(Some(key), value).unwrap() {
                Entry::State { stage: "dedup", space: 4, what: What::Mark(hash, None) } => found.push((MARK, hash)),
                Entry::State { stage: "dedup", space: 4, what: What::Entry(hash, None) } => found.push((ENTRY, hash)),
                Entry::State { stage: "dedup", space: 4, what: What::Buried } => found.push((DROP, 0)),
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(found, [(MARK, 1), (MARK, 2), (ENTRY, 3), (DROP, 0)]);
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
            stages: std::sync::Arc::from(["d".to_owned()]),
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
        check(Some(&[&b"\x09\x01d"[..], &[0; 24]].concat()), Some(b"\x01"));
    }
}
