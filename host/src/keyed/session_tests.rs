//! The state imports by the text of the contract: slots, images, bounds, breaches.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::keyed_tests::{begin, bytes, hash};
use super::*;
use crate::batch::kind;
use crate::guest::call::{Refusal, Stamps, State};

/// Does something with a session of two rows with one entry (slot 0) and a free slot (1), and expects a breach.
fn check_breach(words: &str, act: impl FnOnce(&mut Session) -> Result<(), Refusal>) {
    let mut session = Keyed::default().session(begin(&[1, 2], 0, 0));
    session.open(&[], &[0]).unwrap();
    session.put(&[0], &bytes(&[vec![1]]), &[100]).unwrap();
    match act(&mut session) {
        Err(Refusal::Breach(text)) => assert!(text.contains(words), "{text}"),
        other => panic!("{words}: {other:?}"),
    }
}

#[test]
fn a_guest_that_breaks_the_contract_is_told_how() {
    let none = Column::default;
    let one = || bytes(&[vec![1]]);
    let at = |time| Stamps { times: vec![time], inputs: vec![] };
    check_breach("slot 2, of 2", |s| s.remove(&[0, 2]));
    check_breach("slot 9", |s| s.put(&[9], &one(), &[1]));
    check_breach("1 slots and 0", |s| s.put(&[0], &none(), &[1]));
    check_breach("1 slots and 2", |s| s.put(&[0], &one(), &[1, 2]));
    check_breach("without a value", |s| {
        let mut column = Column::default();
        column.push(kind::MISSING, &[]);
        s.put(&[0], &column, &[1])
    });
    check_breach("keep of slot 1, where there is no entry", |s| s.keep(&[1], &[0], &[0]));
    check_breach("mark of slot 1, where there is no entry", |s| s.mark(&[1], &[0], &[0]));
    check_breach("wake of slot 1, where there is no entry", |s| s.wake(&[1], at(5).of(), &none()));
    check_breach("keep of row 3 of 2", |s| s.keep(&[0], &[0], &[3]));
    check_breach("1 slots and 2", |s| s.keep(&[0], &[0, 1], &[0]));
    check_breach("rank of 65 bytes", |s| s.wake(&[0], at(5).of(), &bytes(&[vec![0; 65]])));
    check_breach("1 slots and 2", |s| s.wake(&[0], Stamps { times: vec![5], inputs: vec![1, 2] }.of(), &none()));
    check_breach("open may be called once", |s| s.open(&[], &[0]).map(drop));
    check_breach("due may be called once, before open", |s| s.due().map(drop));
    check_breach("3 expiries for 2 rows", |s| s.seen(0, &[1, 2, 3], &[], false).map(drop));
    check_breach("clears row 2 of 2", |s| s.seen(0, &[1], &[2], false).map(drop));
    let mut session = Keyed::default().session(begin(&[1, 2], 0, 0));
    assert!(matches!(session.open(&[0, 2], &[0]), Err(Refusal::Breach(_))));
    let mut session = Keyed::default().session(begin(&[1, 2], 0, 0));
    assert!(matches!(session.open(&[0, 1], &[0, 1, 2]), Err(Refusal::Breach(_))));
    let mut session = Keyed::default().session(begin(&[1], 0, 0));
    session.due().unwrap();
    assert!(matches!(session.due(), Err(Refusal::Breach(_))));
}

#[test]
fn equal_key_and_space_have_an_equal_slot() {
    let mut session = Keyed::default().session(begin(&[1, 2, 1], 0, 0));
    let view = session.open(&[0, 0, 1, 2, 2], &[7, 8, 7, 7, 9]).unwrap();
    assert_eq!(view.slots, [0, 1, 2, 0, 3]);
    assert_eq!(view.entries.expires.len(), 4);
    assert!((0..4).all(|i| view.entries.values.cell(i).kind == kind::MISSING));
}

#[test]
fn letting_go_of_nothing_and_removing_nothing_are_no_faults() {
    let mut session = Keyed::default().session(begin(&[1], 0, 0));
    session.open(&[], &[0]).unwrap();
    session.remove(&[0, 0]).unwrap();
    session.put(&[0], &bytes(&[vec![1]]), &[100]).unwrap();
    session.keep(&[0], &[3], &[1]).unwrap();
    session.wake(&[0], Stamps { times: vec![NONE_YET], inputs: vec![] }.of(), &Column::default()).unwrap();
    assert_eq!(session.finish().keyed.next_wake(), None);
}

/// State with one entry of key 1 that keeps row 0 (offset 10) as number 0, marks row 0 as number 1 and wakes at 50.
fn kept() -> Keyed {
    let mut session = Keyed::default().session(begin(&[1], 10, 0));
    session.open(&[], &[0]).unwrap();
    session.put(&[0], &bytes(&[vec![1]]), &[100]).unwrap();
    session.keep(&[0], &[0], &[0]).unwrap();
    session.mark(&[0], &[1], &[0]).unwrap();
    session.wake(&[0], Stamps { times: vec![50], inputs: vec![3] }.of(), &bytes(&[vec![9]])).unwrap();
    session.finish().keyed
}

#[test]
fn origins_mean_images_as_they_were_when_the_call_began() {
    let mut session = kept().session(begin(&[1, 2], 20, 50));
    session.begin.end = Stamp { time: 50, input: 3 };
    let dues = session.due().unwrap();
    assert_eq!((dues.spaces, dues.wakes.inputs, dues.ranks.cell(0).bytes), (vec![0], vec![3], &[9][..]));
    assert_eq!(session.open(&[], &[0]).unwrap().slots, [0, 1]);
    session.keep(&[0], &[0], &[1]).unwrap();
    session.put(&[1], &bytes(&[vec![2]]), &[100]).unwrap();
    session.keep(&[1], &[0], &[1]).unwrap();
    session.remove(&[0]).unwrap();
    let finished = session.finish();
    assert_eq!(finished.image(0, 0).unwrap().origin.offset, 10);
    assert_eq!(finished.origin(0, 1).unwrap().offset, 10);
    assert!(finished.image(0, 1).is_none(), "a mark is no image");
    assert!(finished.origin(1, 0).is_none() && finished.origin(2, 0).is_none());
    assert_eq!((finished.keyed.next_wake(), finished.keyed.stats().entries), (None, 1));
}

#[test]
fn a_wake_is_due_up_to_its_stamp_and_within_the_limit() {
    for (end, limit, expected) in [((50, 3), 1, 1), ((50, 2), 1, 0), ((51, 0), 1, 1), ((60, 0), 0, 0)] {
        let mut begin = begin(&[], 0, 50);
        (begin.end, begin.limit) = (Stamp { time: end.0, input: end.1 }, limit);
        let mut session = kept().session(begin);
        assert_eq!(session.due().unwrap().spaces.len(), expected, "{end:?} {limit}");
    }
}

#[test]
fn undo_gives_a_spent_wake_back_with_its_place() {
    let keyed = kept();
    let mark = keyed.mark();
    let mut begin = begin(&[], 0, 90);
    begin.end = Stamp { time: 90, input: 0 };
    let mut session = keyed.session(begin);
    session.due().unwrap();
    let mut keyed = session.finish().keyed;
    assert_eq!(keyed.next_wake(), None);
    keyed.undo(mark);
    assert_eq!(keyed.next_wake(), Some(Stamp { time: 50, input: 3 }));
    assert_eq!(keyed.blame(Stamp::END).unwrap().kept.len(), 2);
}

#[test]
fn seen_names_the_record_that_was_first() {
    let mut session = Keyed::default().session(begin(&[1, 2, 1], 10, 0));
    assert_eq!(session.seen(0, &[100], &[], false).unwrap(), [1, 1, 2]);
    let finished = session.finish();
    assert_eq!(finished.found(2).unwrap().offset, 10);
    assert!(finished.found(0).is_none());
    let mut session = finished.keyed.session(begin(&[2], 20, 0));
    assert_eq!(session.seen(0, &[100], &[], false).unwrap(), [2]);
    assert_eq!(session.finish().found(0).unwrap().offset, 11);
}

#[test]
fn expiry_is_half_open_and_judged_by_the_trait() {
    let check = |expires_by, time, seen, now, expected: u8| {
        let keyed = Keyed::new(Settings { expires_by, ..Settings::default() });
        let mut session = keyed.session(begin(&[1], 0, 0));
        session.seen(0, &[10], &[], false).unwrap();
        let mut begin = begin(&[1], 1, now);
        begin.times = vec![time];
        begin.seen = vec![Stamp { time: seen, input: 0 }; 2];
        let mut session = session.finish().keyed.session(begin);
        assert_eq!(session.seen(0, &[20], &[], false).unwrap(), [expected], "{expires_by:?} {time} {seen} {now}");
    };
    check(ExpiresBy::Now, 99, 99, 9, 2);
    check(ExpiresBy::Now, 0, 0, 10, 1);
    check(ExpiresBy::Seen, 99, 9, 99, 2);
    check(ExpiresBy::Seen, 0, 10, 0, 1);
    check(ExpiresBy::Time, 9, 9, 99, 2);
    check(ExpiresBy::Time, 10, 0, 0, 1);
    check(ExpiresBy::Time, 0, 10, 0, 1);
}

fn bound(max_entries: u64, overflow: Overflow) -> Keyed {
    Keyed::new(Settings { max_entries: Some(max_entries), overflow, ..Settings::default() })
}

/// One call of `seen`, all with this expiry.
fn see(keyed: Keyed, keys: &[u64], now: i64, expires: i64) -> (Result<Vec<u8>, Refusal>, Finished) {
    let mut session = keyed.session(begin(keys, 0, now));
    let answer = session.seen(0, &[expires], &[], false);
    (answer, session.finish())
}

#[test]
fn the_oldest_creation_goes_first_and_is_counted() {
    // X-04, as one batch and row by row.
    let (answer, finished) = see(bound(2, Overflow::EvictOldest), &[1, 2, 3, 2, 1], 0, 100);
    assert_eq!((answer.unwrap(), finished.keyed.stats().evicted_live), (vec![1, 1, 1, 2, 1], 2));
    let mut keyed = bound(2, Overflow::EvictOldest);
    for (key, expected) in [(1, 1), (2, 1), (3, 1), (2, 2), (1, 1)] {
        let (answer, finished) = see(keyed, &[key], 0, 100);
        assert_eq!(answer.unwrap(), [expected]);
        keyed = finished.keyed;
        keyed.seal();
        keyed = Keyed::load(*keyed.settings(), keyed.dump());
    }
}

#[test]
fn what_is_over_goes_first_and_is_not_counted() {
    let keyed = see(bound(2, Overflow::EvictOldest), &[1], 0, 100).1.keyed;
    let keyed = see(keyed, &[2], 0, 10).1.keyed;
    let (answer, finished) = see(keyed, &[3, 1], 10, 100);
    assert_eq!((answer.unwrap(), finished.keyed.stats().evicted_live), (vec![1, 2], 0));
}

#[test]
fn a_full_state_refuses_the_row_that_does_not_fit() {
    for overflow in [Overflow::Pause, Overflow::Fail] {
        let keyed = bound(2, overflow);
        let mark = keyed.mark();
        let (answer, mut finished) = see(keyed, &[1, 1, 2, 3], 0, 100);
        assert!(matches!(answer, Err(Refusal::Full)));
        assert_eq!(finished.full_at, Some(3));
        finished.keyed.undo(mark);
        assert_eq!(finished.keyed.stats().marks, 0);
    }
}

/// Opens and puts the entries of these keys; the answer of the first import that refuses.
fn put(keyed: Keyed, keys: &[u64], now: i64, expires: i64, wake: Option<i64>) -> (Result<(), Refusal>, Finished) {
    let mut session = keyed.session(begin(keys, 0, now));
    let mut act = || {
        let mut slots = session.open(&[], &[0])?.slots;
        slots.dedup();
        session.put(&slots, &bytes(&vec![vec![1]; slots.len()]), &vec![expires; slots.len()])?;
        let times = slots.iter().filter_map(|_| wake).collect::<Vec<_>>();
        let waking = if wake.is_some() { slots } else { Vec::new() };
        session.wake(&waking, Stamps { times, inputs: vec![] }.of(), &Column::default())
    };
    let answer = act();
    (answer, session.finish())
}

#[test]
fn entries_of_several_rows_must_fit_beside_what_is_there() {
    let keyed = put(bound(3, Overflow::Pause), &[1, 2], 0, 100, None).1.keyed;
    let mark = keyed.mark();
    let (answer, mut finished) = put(keyed, &[1, 3, 4, 5], 0, 100, None);
    assert!(matches!(answer, Err(Refusal::Full)));
    assert_eq!(finished.full_at, Some(2), "rows 0 and 1 fit");
    finished.keyed.undo(mark);
    let keyed = put(finished.keyed, &[1, 3], 0, 100, None).1.keyed;
    let (answer, finished) = put(keyed, &[4], 0, 100, None);
    assert!(matches!(answer, Err(Refusal::Full)));
    assert_eq!(finished.full_at, Some(0));
    assert!(put(finished.keyed, &[2], 0, 100, None).0.is_ok(), "a key that is there always fits");
}

#[test]
fn what_waits_is_never_evicted_nor_over() {
    let keyed = put(bound(2, Overflow::EvictOldest), &[1], 0, 5, Some(50)).1.keyed;
    let keyed = put(keyed, &[2], 0, 100, None).1.keyed;
    let mark = keyed.mark();
    let (answer, mut finished) = put(keyed, &[3], 6, 100, None);
    assert!(matches!(answer, Err(Refusal::Full)));
    finished.keyed.undo(mark);
    let mut keyed = finished.keyed;
    assert!(keyed.evict_oldest(Stamp::START, 6));
    assert_eq!((keyed.find(0, hash(1)).is_some(), keyed.find(0, hash(2)).is_some()), (true, false));
    let (answer, finished) = put(keyed, &[3], 6, 100, Some(60));
    assert!(answer.is_ok());
    let mut keyed = finished.keyed;
    assert!(!keyed.evict_oldest(Stamp::START, 6), "all wait");
    assert_eq!(keyed.stats().evicted_live, 1);
}

#[test]
fn a_replacement_does_not_renew_the_creation() {
    let keyed = put(bound(2, Overflow::EvictOldest), &[1, 2], 0, 100, None).1.keyed;
    let mut keyed = put(keyed, &[1], 0, 200, None).1.keyed;
    assert!(keyed.evict_oldest(Stamp::START, 0));
    assert!(keyed.find(0, hash(1)).is_none());
}

#[test]
fn an_entry_counts_until_what_is_seen_has_passed_it() {
    let settings = || Settings {
        expires_by: ExpiresBy::Time,
        max_entries: Some(1),
        overflow: Overflow::EvictOldest,
        ..Settings::default()
    };
    // The time of the row that needs the place is not enough; what has passed is over and not counted as evicted.
    for (seen, evicted) in [(3, 1), (10, 0)] {
        let keyed = put(Keyed::new(settings()), &[1], 0, 10, None).1.keyed;
        let mut begin = begin(&[2], 1, 0);
        (begin.times, begin.seen) = (vec![10], vec![Stamp { time: seen, input: 0 }; 2]);
        let mut keyed = keyed;
        let answer = loop {
            let mut session = keyed.session(begin.clone());
            session.open(&[], &[0]).unwrap();
            let put = session.put(&[0], &bytes(&[vec![1]]), &[30]);
            keyed = session.finish().keyed;
            match put {
                Err(Refusal::Full) => assert!(keyed.evict_oldest(Stamp { time: seen, input: 0 }, 0)),
                answer => break answer,
            }
        };
        assert!(answer.is_ok());
        assert_eq!(keyed.stats().evicted_live, evicted, "{seen}");
    }
}

#[test]
fn bytes_are_a_bound_too() {
    let settings = Settings { max_bytes: Some(46 * 2), overflow: Overflow::EvictOldest, ..Settings::default() };
    let (answer, finished) = see(Keyed::new(settings), &[1, 2, 3], 0, 100);
    assert_eq!((answer.unwrap(), finished.keyed.stats().evicted_live), (vec![1, 1, 1], 1));
    let settings = Settings { max_bytes: Some(300), ..Settings::default() };
    let keyed = put(Keyed::new(settings), &[1], 0, 100, None).1.keyed;
    let keyed = put(keyed, &[2], 0, 100, None).1.keyed;
    assert_eq!(keyed.stats().bytes, 258);
    assert!(matches!(put(keyed, &[3], 0, 100, None).0, Err(Refusal::Full)));
}

#[test]
fn counters_and_numbers_go_back_with_an_undo() {
    let keyed = see(bound(1, Overflow::EvictOldest), &[1], 0, 100).1.keyed;
    let mark = keyed.mark();
    let mut keyed = see(keyed, &[2, 3], 0, 100).1.keyed;
    assert_eq!(keyed.stats().evicted_live, 2);
    keyed.undo(mark);
    assert_eq!((keyed.stats().evicted_live, keyed.born), (0, 1));
    assert_eq!(see(keyed, &[1], 0, 100).0.unwrap(), [2]);
}
