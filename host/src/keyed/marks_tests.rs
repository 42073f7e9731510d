//! The table of marks against a plain map.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_128;

fn hash(n: u64) -> u128 {
    xxh3_128(&n.to_le_bytes())
}

fn mark(expires: i64, n: u64) -> StoredMark {
    StoredMark { expires, offset: n as i64, input: (n % 3) as u16, born: n }
}

/// Random sets, removals and freeing inserts against a plain map.
fn check(keys: u64, writes: u64, seed: u64) {
    let (mut marks, mut model) = (Marks::default(), HashMap::new());
    let mut random = seed;
    for n in 0..writes {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let (key, dice) = (hash((random >> 33) % keys), random >> 24 & 0xf);
        let floor = n as i64;
        match marks.find(key) {
            Some(place) if dice == 0 => {
                marks.take(place);
                model.remove(&key);
            }
            Some(place) => {
                marks.replace(place, mark(floor + 500, n));
                model.insert(key, mark(floor + 500, n));
            }
            None => {
                assert!(!model.contains_key(&key));
                let expires = if dice == 1 { i64::MAX } else { floor + (random >> 40 & 0x3ff) as i64 };
                marks.insert(key, mark(expires, n), floor, |freed, old| {
                    assert!(old.expires <= floor);
                    assert_eq!(model.remove(&freed), Some(old));
                });
                model.insert(key, mark(expires, n));
            }
        }
        assert_eq!(marks.len(), model.len());
    }
    let all: HashMap<u128, StoredMark> = marks.iter().collect();
    assert_eq!(all, model);
    assert!(model.iter().all(|(&key, &value)| marks.get(key) == Some(value)));
}

#[test]
fn marks_do_what_a_map_does() {
    for seed in 0..20 {
        check(50, 3_000, seed);
        check(3_000, 30_000, seed);
    }
    check(300_000, 600_000, 1);
}

#[test]
fn removed_slots_do_not_fill_the_table() {
    let mut marks = Marks::default();
    for n in 0..200_000 {
        marks.set(hash(n), Some(mark(i64::MAX, 0)));
        if n >= 100 {
            marks.set(hash(n - 100), None);
        }
    }
    assert_eq!(marks.len(), 100);
    assert!(marks.memory() < 20_000, "{}", marks.memory());
}

#[test]
fn a_mark_takes_at_most_46_bytes_where_there_are_many() {
    let mut marks = Marks::default();
    for n in 0..3_500_000u64 {
        let input = (n % 2) as u16;
        marks.insert(hash(n), StoredMark { expires: 1, offset: 1, input, born: 0 }, FREE_NONE, |_, _| ());
        if n > 500_000 && n % 10_000 == 0 {
            marks.touch(&[hash(n)]);
            let most = if n < 2_500_000 { 52.0 } else { 46.0 };
            assert!(marks.memory() as f64 / n as f64 <= most, "{} at {n}", marks.memory() as f64 / n as f64);
        }
    }
}

#[test]
fn marks_that_are_over_give_their_slots_to_new_ones() {
    let mut marks = Marks::default();
    let mut freed = 0;
    for n in 0..400_000u64 {
        marks.insert(hash(n), mark(n as i64 + 20_000, 0), n as i64, |_, _| freed += 1);
    }
    assert_eq!(marks.len() + freed, 400_000);
    assert!(marks.memory() < 46 * 45_000, "{}", marks.memory());
}

#[test]
fn marks_that_come_in_the_order_of_a_checkpoint_stand_near_their_homes() {
    // Part by part, and in each in the order of what decides about homes.
    let mut hashes: Vec<u128> = (0..600_000).map(hash).collect();
    hashes.sort_by_key(|&hash| (hash >> 122, hash as u64));
    let mut marks = Marks::default();
    let mut passed = 0;
    for &hash in &hashes {
        marks.set(hash, Some(StoredMark { expires: 1, offset: 1, input: 0, born: 0 }));
        let place = marks.find(hash).unwrap();
        passed += place.group - marks.parts[place.part].home(hash);
    }
    assert!(passed < 100 * hashes.len(), "each passed by {} groups", passed / hashes.len());
    assert_eq!(marks.len(), hashes.len());
    assert!(marks.memory() <= 52 * hashes.len(), "{}", marks.memory() as f64 / hashes.len() as f64);
    let found: std::collections::HashSet<u128> = marks.iter().map(|(hash, _)| hash).collect();
    assert!(hashes.iter().all(|hash| found.contains(hash)));
}
