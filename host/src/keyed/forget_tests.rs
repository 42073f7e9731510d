//! What an operator does to state: forgetting, other settings.
#![allow(clippy::unwrap_used)]

use super::keyed_tests::{begin, bytes, hash};
use super::*;
use crate::guest::call::{Stamps, State};

/// Two keys, each with a mark in space 0 and an entry that waits in spaces 10 and 20.
fn state(settings: Settings) -> Keyed {
    let mut session = Keyed::new(settings).session(begin(&[1, 2], 0, 0));
    session.seen(0, &[1_000], &[], false).unwrap();
    session.open(&[0, 1, 0, 1], &[10, 10, 20, 20]).unwrap();
    session.put(&[0, 1, 2, 3], &bytes(&vec![vec![1]; 4]), &[1_000; 4]).unwrap();
    let wakes = Stamps { times: vec![10, 10, 20, 20], inputs: vec![] };
    session.wake(&[0, 1, 2, 3], wakes.of(), &Column::default()).unwrap();
    session.finish().keyed
}

fn sizes(keyed: &Keyed) -> (u64, u64, u64) {
    let stats = keyed.stats();
    (stats.marks, stats.entries, stats.waiting)
}

#[test]
fn a_key_is_forgotten_in_every_space_and_comes_back_by_undo() {
    let mut keyed = state(Settings { max_entries: Some(100), ..Settings::default() });
    keyed.seal();
    let (digest, mark, live) = (keyed.digest(), keyed.mark(), keyed.quota.live(0));
    assert_eq!(keyed.forget(hash(1)), 3);
    assert_eq!(keyed.forget(hash(1)), 0, "it is gone");
    assert_eq!(keyed.forget(hash(9)), 0, "it never was");
    assert_eq!((sizes(&keyed), keyed.quota.live(0).count), ((1, 2, 2), 3));
    keyed.undo(mark);
    assert_eq!((sizes(&keyed), keyed.quota.live(0)), ((2, 4, 4), live));
    keyed.seal();
    assert_eq!(keyed.digest(), digest);
}

#[test]
fn what_was_forgotten_stays_forgotten_after_a_restart() {
    let mut keyed = state(Settings::default());
    let mut stored = Keyed::default();
    stored.apply(keyed.seal());
    keyed.forget(hash(1));
    stored.apply(keyed.seal());
    assert_eq!((sizes(&stored), stored.digest()), ((1, 2, 2), keyed.digest()));
    keyed.drop_spaces(i64::MAX);
    stored.apply(keyed.seal());
    assert_eq!((sizes(&stored), stored.digest(), keyed.digest()), ((0, 0, 0), 0, 0));
    assert_eq!(stored.next_wake(), None);
}

#[test]
fn other_settings_keep_what_is_there_and_count_it() {
    let mut keyed = state(Settings::default());
    keyed.seal();
    let digest = keyed.digest();
    let bound = Settings { max_entries: Some(3), overflow: Overflow::EvictOldest, ..Settings::default() };
    let mut keyed = keyed.with_settings(bound);
    assert_eq!((sizes(&keyed), keyed.digest(), keyed.quota.live(0).count), ((2, 4, 4), digest, 6));
    assert!(keyed.evict_oldest(Stamp::START, 0), "marks were numbered, so that one can go");
    assert_eq!(sizes(&keyed), (1, 4, 4));
}
