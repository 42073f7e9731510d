//! Golden bytes: what a version writes is read for ever.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use super::*;
use crate::batch::Headers;

fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| line.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n";
    bytes.chunks(32).map(line).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The bytes are those of the file; `TAMIS_BLESS=1` writes it.
pub(crate) fn check_golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name).with_extension("hex");
    if std::env::var_os("TAMIS_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, hex(bytes)).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        hex(bytes),
        golden,
        "{name}: what is written to disk changed. A released version may not: write a new one and keep reading the old. \
         Before that, TAMIS_BLESS=1 writes {}",
        path.display()
    );
    unhex(&golden)
}

fn image() -> Image {
    let headers: Headers = vec![("trace".into(), Some(b"t1".to_vec())), ("none".into(), None)];
    Image {
        origin: Origin { input: 1, epoch: 5, offset: 77, child: 2 },
        timestamp: 1_700_000_000_000,
        event: -1,
        ingestion: i64::MIN,
        key: Owned::Bytes(b"key".as_slice().into()),
        value: Owned::Cell(0x62, b"document".as_slice().into()),
        headers,
        output_key: Owned::Null,
        kind: 2,
        arrival: 9,
    }
}

fn entry() -> StoredEntry<'static> {
    StoredEntry {
        born: 3,
        expires: i64::MAX,
        kind: 0x50,
        value: Cow::Borrowed(b"guest's own"),
        wake: Some(StoredWake { time: 100, input: 1, rank: Cow::Borrowed(b"rank"), set: 12 }),
        kept: vec![
            (0, StoredKept(Kept::Image(Arc::new(image())))),
            (200, StoredKept(Kept::Mark(Origin { input: 0, epoch: -1, offset: 8, child: 0 }))),
        ],
    }
}

fn changes() -> Vec<Change> {
    let mark = StoredMark { expires: 1_000, offset: 42, input: 1, born: 7 };
    vec![
        Change::Numbers { born: 7, set: 12 },
        Change::Drop { space: -3_600 },
        Change::Marks { space: 0, marks: vec![(u128::MAX - 1, Some(mark)), (2, None)] },
        Change::Entry { space: 60, key: 1 << 100, entry: Some(EntryBytes(payload(&entry()).unwrap())) },
        Change::Entry { space: 60, key: 5, entry: None },
    ]
}

#[test]
fn changes_are_written_as_ever() {
    let golden = check_golden("changes", &encode(Kind::Changes, &changes()).unwrap());
    assert_eq!(decode::<Vec<Change>>(Kind::Changes, &golden).unwrap(), changes());
}

#[test]
fn an_entry_is_written_as_ever() {
    let golden = check_golden("entry", &payload(&entry()).unwrap());
    let read: StoredEntry<'static> = from_payload(&golden).unwrap();
    assert_eq!(read.kept[0].1.0, Kept::Image(Arc::new(image())));
    assert_eq!(payload(&read).unwrap(), golden);
}

#[test]
fn a_task_is_written_as_ever() {
    use crate::time::{Activity, Clock};
    let mut event = Clock::new(2, 5);
    event.observe(0, 100, &[Activity::Active, Activity::Idle]);
    let input = |partition| crate::task::Input { topic: "clicks".into(), partition };
    let marker = Marker {
        inputs: vec![input(0), input(1)],
        salt: 0xabcd,
        activity: vec![Activity::Active, Activity::Idle],
        event,
        ingestion: Clock::new(2, 0),
        positions: vec![Some((1, 99)), None],
        arrivals: 11,
        invalid_time: 1,
        stages: std::sync::Arc::from(["dedup".to_owned()]),
        counters: vec![crate::stage::Counters([("late".to_owned(), 4)].into_iter().collect())],
    };
    let sealed = Sealed {
        stage: "dedup".into(),
        identity: "{\"keep\":\"first\"}".into(),
        changes: changes(),
        ..Sealed::default()
    };
    let golden = check_golden("task", &write_snapshot(&marker, std::slice::from_ref(&sealed)).unwrap());
    let (marker_read, states) = read_snapshot(&golden).unwrap();
    assert_eq!(marker_read, marker);
    assert_eq!(
        (&states[0].stage, &states[0].identity, &states[0].changes),
        (&sealed.stage, &sealed.identity, &sealed.changes)
    );
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed() {
    let whole = encode(Kind::Changes, &changes()).unwrap();
    for len in 0..whole.len() {
        assert_eq!(split(Kind::Changes, &whole[..len]).unwrap_err(), FormatError::Short, "cut at {len}");
    }
    for at in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        assert!(decode::<Vec<Change>>(Kind::Changes, &bytes).is_err(), "bit {at}");
    }
}

#[test]
fn envelopes_follow_one_another_in_a_log() {
    let mut log = encode(Kind::Journal, &1u8).unwrap();
    log.extend(encode(Kind::Journal, "two").unwrap());
    let (first, rest) = split(Kind::Journal, &log).unwrap();
    let (second, rest) = (from_payload::<u8>(first).unwrap(), split(Kind::Journal, rest).unwrap());
    assert_eq!((second, from_payload::<String>(rest.0).unwrap(), rest.1.len()), (1, "two".to_owned(), 0));
    assert_eq!(split(Kind::Head, &log).unwrap_err(), FormatError::Kind(5));
    assert!(decode::<u8>(Kind::Journal, &log).is_err(), "bytes after its end");
}

#[test]
fn versions_and_files_of_others_are_named() {
    let mut bytes = encode(Kind::Head, &()).unwrap();
    bytes[4] = 9;
    assert_eq!(split(Kind::Head, &bytes).unwrap_err(), FormatError::Version(9));
    assert_eq!(split(Kind::Head, b"PK").unwrap_err(), FormatError::Foreign);
    assert_eq!(split(Kind::Head, &[0; 64]).unwrap_err(), FormatError::Foreign);
}

#[test]
fn bytes_that_are_no_entry_are_refused_when_they_are_read() {
    let change = Change::Entry { space: 0, key: 1, entry: Some(EntryBytes(vec![1, 2, 3])) };
    assert!(decode::<Change>(Kind::Changes, &encode(Kind::Changes, &change).unwrap()).is_err());
}
