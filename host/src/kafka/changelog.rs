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
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn sealed(changes: Vec<Change>) -> Sealed {
        Sealed { stage: "dedup".into(), identity: "{}".into(), changes, ..Sealed::default() }
    }

    /// A run of marks of space 0 without an end, from this hash on.
    fn endless(first: u128, count: u128) -> Vec<Marked> {
        let mark = |hash| StoredMark { expires: i64::MAX, offset: hash as i64, input: 7, born: 0 };
        (first..first + count).map(|hash| (hash, Some(mark(hash)))).collect()
    }

    /// What the records of these changes say, sheaves with the first hash of each and how many marks they have.
    fn told(layout: Layout, changes: Vec<Change>, may: bool) -> Vec<String> {
        let (mut told, mut numbers) = (Vec::new(), 0);
        let number = || {
            numbers += 1;
            may.then_some(numbers)
        };
        records(&Sealed { layout, ..sealed(changes) }, 9, number, |key, value| {
            let Entry::State { stage: "dedup", space: 0, what } = read(Some(key), value).unwrap() else { panic!() };
            told.push(match what {
                What::Sheaf(number, Some(sheaf)) => {
                    let marks: Vec<Marked> = sheaf.marks().map(|(hash, mark)| (hash, Some(mark))).collect();
                    assert_eq!(marks, endless(marks[0].0, marks.len() as u128));
                    format!("sheaf {number}: {} from {}", marks.len(), marks[0].0)
                }
                What::Mark(hash, Some(mark)) if mark.expires == i64::MAX => format!("{hash}"),
                What::Mark(hash, Some(_)) => format!("{hash} ends"),
                What::Mark(hash, None) => format!("{hash} null"),
                What::Gone(hash) => format!("{hash} gone"),
                other => format!("{other:?}"),
            });
        });
        told
    }

    /// What is written is read again; gives the records.
    #[track_caller]
    fn check(changes: Vec<Change>, expected: &[(i64, What<'_>)]) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut written = Vec::new();
        let put = |key: &[u8], value: Option<&[u8]>| written.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        records(&sealed(changes), 9, || None, put);
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
    fn marks_that_never_end_stand_many_in_one_record_in_the_order_of_the_changes() {
        let ends = (5, Some(StoredMark { expires: 5, ..StoredMark::default() }));
        let marks = [endless(100, 8), vec![ends], endless(200, 7), vec![(6, None)], endless(1_000, 1_030)].concat();
        let change = || vec![Change::Drop { space: 0 }, Change::Marks { space: 0, marks: marks.clone() }];
        let few = ["200", "201", "202", "203", "204", "205", "206"];
        let rest = ["2024", "2025", "2026", "2027", "2028", "2029"];
        let sheaves = [
            &["Drop", "Floor", "sheaf 1: 8 from 100", "5 ends"][..],
            &few,
            &["6 null", "sheaf 2: 1024 from 1000"],
            &rest,
        ];
        assert_eq!(told(Layout::Sheaves, change(), true), sheaves.concat());
        // One by one, and what is taken away is so for ever.
        let mixed = told(Layout::Mixed, change(), true);
        assert_eq!((mixed.len(), &*mixed[18], &*mixed[19]), (2 + 8 + 1 + 7 + 1 + 1_030, "6 gone", "1000"));
        // One by one, as long as no sheaf may be written.
        let none = told(Layout::Sheaves, change(), false);
        assert_eq!((none.len(), &*none[18], &*none[19]), (mixed.len(), "6 null", "1000"));
        let single = told(Layout::Single, change(), true);
        assert_eq!((single.len(), &*single[0], &*single[1]), (mixed.len() - 1, "Drop", "100"));
    }

    #[test]
    fn only_marks_of_space_0_are_told_otherwise() {
        for layout in [Layout::Single, Layout::Sheaves, Layout::Mixed] {
            let (marks, gone) = (endless(1, 100), vec![(1, None)]);
            let changes = vec![
                Change::Drop { space: 4 },
                Change::Marks { space: 4, marks },
                Change::Marks { space: 4, marks: gone },
            ];
            let mut values = Vec::new();
            records(
                &Sealed { layout, ..sealed(changes) },
                9,
                || Some(1),
                |_, value| values.push(value.map(<[u8]>::len)),
            );
            assert_eq!((values.len(), values[0], values[100], values[101]), (102, Some(9), Some(27), None));
        }
    }

    #[test]
    fn what_was_dropped_is_taken_away_key_by_key_and_the_drop_behind_them() {
        let gone = vec![
            Change::Marks { space: 4, marks: vec![(1, None), (2, None)] },
            Change::Entry { space: 4, key: 3, entry: None },
            Change::Drop { space: 4 },
        ];
        let mut found = Vec::new();
        burials(&Sealed { sheaves: vec![7, 8], ..sealed(gone) }, |key, value| {
            assert_eq!(value, None);
            match read(Some(key), value).unwrap() {
                Entry::State { stage: "dedup", space: 4, what: What::Mark(hash, None) } => found.push((MARK, hash)),
                Entry::State { stage: "dedup", space: 4, what: What::Entry(hash, None) } => found.push((ENTRY, hash)),
                Entry::State { stage: "dedup", space: 4, what: What::Buried } => found.push((DROP, 0)),
                Entry::State { stage: "dedup", what: What::Sheaf(number, None), .. } => found.push((SHEAF, number)),
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(found, [(SHEAF, 7), (SHEAF, 8), (MARK, 1), (MARK, 2), (ENTRY, 3), (DROP, 0)]);
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
        let (stage, identity, layout) = ("d".into(), "{}".into(), Layout::Mixed);
        let stage = StageMarker { stage, identity, digest: 1 << 100, numbers: (2, 3), layout };
        let (token, next) = ("1;1;0;0;0;0".to_owned(), vec![(input, 78)]);
        let marker = Marker { token, next, partitions: 4, task, stages: vec![stage] };
        let golden = crate::format::tests::check_golden("changelog-marker", &write_marker(&marker).unwrap());
        assert_eq!(read(Some(MARKER_KEY), Some(&golden)).unwrap(), Entry::Marker(Box::new(marker)));
        let mark = StoredMark { expires: 5, offset: 6, input: 7, born: 8 };
        let mut all = Vec::new();
        let changes =
            vec![Change::Drop { space: 1 }, Change::Marks { space: 2, marks: vec![(3, Some(mark)), (4, None)] }];
        let mut put = |key: &[u8], value: Option<&[u8]>| {
            all.extend_from_slice(key);
            all.extend_from_slice(value.unwrap_or(b"null"));
        };
        records(&sealed(changes), 9, || None, &mut put);
        let changes = vec![Change::Drop { space: 0 }, Change::Marks { space: 0, marks: endless(1, 8) }];
        records(&Sealed { layout: Layout::Sheaves, ..sealed(changes) }, 9, || Some(10), &mut put);
        let changes = vec![Change::Marks { space: 0, marks: vec![(1, None)] }];
        records(&Sealed { layout: Layout::Mixed, ..sealed(changes) }, 9, || None, &mut put);
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
        check(Some(&[&b"\x01\x01d"[..], &[0; 24]].concat()), Some(b"\x03"));
        check(Some(&[&b"\x01\x01d"[..], &[0; 24]].concat()), Some(b"\x02\x01"));
        check(Some(&[&b"\x09\x01d"[..], &[0; 24]].concat()), Some(b"\x01"));
        let sheaf = [&b"\x04\x01d"[..], &[0; 16]].concat();
        check(Some(&sheaf), Some(b"\x01"));
        check(Some(&sheaf), Some(&[1; 34]));
        check(Some(&sheaf), Some(&[2; 35]));
        check(Some(&sheaf[..18]), Some(&[1; 35]));
        check(Some(&[&b"\x05\x01d"[..], &[0; 8]].concat()), None);
    }
}
