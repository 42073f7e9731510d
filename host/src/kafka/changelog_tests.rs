//! Tests of what stands in a changelog.
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
    let sheaves =
        [&["Drop", "Floor", "sheaf 1: 8 from 100", "5 ends"][..], &few, &["6 null", "sheaf 2: 1024 from 1000"], &rest];
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
        let changes =
            vec![Change::Drop { space: 4 }, Change::Marks { space: 4, marks }, Change::Marks { space: 4, marks: gone }];
        let mut values = Vec::new();
        records(&Sealed { layout, ..sealed(changes) }, 9, || Some(1), |_, value| values.push(value.map(<[u8]>::len)));
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
    let changes = vec![Change::Drop { space: 1 }, Change::Marks { space: 2, marks: vec![(3, Some(mark)), (4, None)] }];
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
