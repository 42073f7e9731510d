//! Keyed state against plain maps, under random calls, undo, seals and restarts.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::*;
use crate::batch::{Row, kind};
use crate::format::StoredEntry;
use crate::guest::call::{Stamps, State};

/// Numbers that look random and are the same in every run.
pub(crate) struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n.max(1)
    }
}

/// A batch of rows at these offsets, and their keys.
pub(crate) fn begin(keys: &[u64], offset: i64, now: i64) -> Begin {
    let row = |i: usize| Row {
        origin: Origin { input: 0, epoch: 0, offset: offset + i as i64, child: 0 },
        timestamp: now,
        key: Default::default(),
        value: Default::default(),
        headers: Row::NO_HEADERS,
        kind: Default::default(),
        window: Row::NO_WINDOW,
        arrival: 0,
        redelivered: false,
        bounds: false,
    };
    let batch = Batch { rows: (0..keys.len()).map(row).collect(), now, ..Batch::default() };
    Begin {
        batch,
        rows: (0..keys.len() as u32).collect(),
        keys: keys.iter().map(|key| hash(*key)).collect(),
        output_keys: None,
        times: Vec::new(),
        seen: Vec::new(),
        end: Stamp { time: now, input: 0 },
        now,
        limit: usize::MAX,
    }
}

pub(super) fn hash(key: u64) -> u128 {
    xxhash_rust::xxh3::xxh3_128(&key.to_le_bytes())
}

/// A column of bytes.
pub(crate) fn bytes(cells: &[Vec<u8>]) -> Column {
    let mut column = Column::default();
    cells.iter().for_each(|cell| column.push(kind::BYTES, cell));
    column
}

type At = (i64, u128);

#[derive(Clone, Debug, Default, PartialEq)]
struct Entry2 {
    value: Vec<u8>,
    expires: i64,
    kept: BTreeMap<u8, (bool, i64)>,
    wake: Option<(Stamp, Vec<u8>, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    marks: HashMap<At, (i64, i64)>,
    entries: HashMap<At, Entry2>,
    set: u64,
}

impl Model {
    fn dues(&self, upto: Stamp) -> Vec<At> {
        let mut dues: Vec<_> = self.entries.iter().filter_map(|(at, e)| Some((e.wake.clone()?, *at))).collect();
        dues.retain(|(wake, _)| wake.0 <= upto);
        dues.sort();
        dues.into_iter().map(|(_, at)| at).collect()
    }

    /// What is not over.
    fn live(&self, now: i64) -> Model {
        let mut live = self.clone();
        live.marks.retain(|_, mark| mark.0 > now);
        live.entries.retain(|_, entry| entry.wake.is_some() || entry.expires > now);
        live
    }

    /// The same from a dump.
    fn of(changes: Vec<Change>, now: i64) -> Model {
        let mut model = Model::default();
        for change in changes {
            match change {
                Change::Numbers { set, .. } => model.set = set,
                Change::Drop { .. } => panic!("a dump drops nothing"),
                Change::Marks { space, marks } => {
                    let marks =
                        marks.into_iter().map(|(hash, m)| ((space, hash), (m.unwrap().expires, m.unwrap().offset)));
                    model.marks.extend(marks);
                }
                Change::Entry { space, key, entry } => {
                    let stored: StoredEntry = crate::format::from_payload(&entry.unwrap().0).unwrap();
                    let kept = |kept: &Kept| (matches!(kept, Kept::Image(_)), kept.origin().offset);
                    let wake = stored.wake.map(|w| (Stamp { time: w.time, input: w.input }, w.rank.to_vec(), w.set));
                    let entry = Entry2 {
                        value: stored.value.to_vec(),
                        expires: stored.expires,
                        kept: stored.kept.iter().map(|(n, k)| (*n, kept(&k.0))).collect(),
                        wake,
                    };
                    model.entries.insert((space, key), entry);
                }
            }
        }
        model.live(now)
    }
}

/// One call with random imports, done to both.
fn call(keyed: Keyed, model: &mut Model, dice: &mut Dice, now: i64, offset: i64) -> Keyed {
    let keys: Vec<u64> = (0..dice.below(7)).map(|_| dice.below(15)).collect();
    let mut begin = begin(&keys, offset, now);
    begin.limit = dice.below(4) as usize;
    let (end, limit) = (begin.end, begin.limit);
    let mut session = keyed.session(begin);
    if dice.below(2) == 0 {
        let clears: Vec<u32> = (0..keys.len() as u32).filter(|_| dice.below(4) == 0).collect();
        let (until, refresh) = (now + dice.below(60) as i64, dice.below(2) == 0);
        let answer = session.seen(0, &[until], &clears, refresh).unwrap();
        for (row, key) in keys.iter().enumerate() {
            let at = (0, hash(*key));
            let live = model.marks.get(&at).filter(|mark| mark.0 > now).copied();
            let expected = match (live, clears.contains(&(row as u32))) {
                (Some(_), true) => {
                    model.marks.remove(&at);
                    3
                }
                (None, true) => 4,
                (Some(mark), false) => {
                    let until = if refresh { until.max(mark.0) } else { mark.0 };
                    model.marks.insert(at, (until, mark.1));
                    2
                }
                (None, false) => {
                    model.marks.insert(at, (until, offset + row as i64));
                    1
                }
            };
            assert_eq!(answer[row], expected, "row {row}");
        }
    }
    let dues = session.due().unwrap();
    let expected: Vec<At> = model.dues(end).into_iter().take(limit).collect();
    assert_eq!(dues.spaces, expected.iter().map(|at| at.0).collect::<Vec<_>>());
    let mut slots: Vec<At> = expected.clone();
    for (i, at) in expected.iter().enumerate() {
        let entry = model.entries.get_mut(at).unwrap();
        let wake = entry.wake.take().unwrap();
        assert_eq!(dues.wakes.get(i), Some(wake.0));
        assert_eq!(dues.ranks.cell(i).bytes, wake.1);
        assert_eq!(dues.entries.values.cell(i).bytes, entry.value);
    }
    let rows: Vec<u32> =
        (0..dice.below(5)).filter(|_| !keys.is_empty()).map(|_| dice.below(keys.len() as u64) as u32).collect();
    let spaces: Vec<i64> = rows.iter().map(|_| 100 * dice.below(3) as i64).collect();
    if !rows.is_empty() {
        let view = session.open(&rows, &spaces).unwrap();
        let mut new = 0;
        for (i, (row, space)) in rows.iter().zip(&spaces).enumerate() {
            let at = (*space, hash(keys[*row as usize]));
            let slot = view.slots[i] as usize;
            if slot == slots.len() {
                slots.push(at);
                let cell = view.entries.values.cell(new);
                match model.entries.get(&at).filter(|e| e.wake.is_some() || e.expires > now) {
                    Some(entry) => {
                        assert_eq!((cell.bytes, view.entries.expires[new]), (&entry.value[..], entry.expires))
                    }
                    // What is over may still be there.
                    None => assert!(cell.kind == kind::MISSING || view.entries.expires[new] <= now),
                }
                new += 1;
            }
            assert_eq!(slots[slot], at);
        }
    }
    // As the SDK does: what is over is taken away before anything else.
    for (slot, at) in slots.iter().enumerate() {
        if model.entries.get(at).is_none_or(|e| e.wake.is_none() && e.expires <= now) {
            model.entries.remove(at);
            session.remove(&[slot as u32]).unwrap();
        }
    }
    for _ in 0..dice.below(8) {
        if slots.is_empty() {
            break;
        }
        let slot = dice.below(slots.len() as u64);
        let (at, slot) = (slots[slot as usize], slot as u32);
        match dice.below(6) {
            0 => {
                session.remove(&[slot]).unwrap();
                model.entries.remove(&at);
            }
            1 | 2 => {
                let value = vec![7; dice.below(40) as usize];
                let expires = now + dice.below(80) as i64;
                session.put(&[slot], &bytes(&[value.clone()]), &[expires]).unwrap();
                let entry = model.entries.entry(at).or_default();
                (entry.value, entry.expires) = (value, expires);
            }
            3 | 4 if model.entries.contains_key(&at) => {
                let (number, row, image) =
                    (dice.below(3) as u8, dice.below(keys.len() as u64 + 1) as u32, dice.below(2) == 0);
                match image {
                    true => session.keep(&[slot], &[number], &[row]).unwrap(),
                    false => session.mark(&[slot], &[number], &[row]).unwrap(),
                }
                let kept = &mut model.entries.get_mut(&at).unwrap().kept;
                match (row as usize) < keys.len() {
                    true => drop(kept.insert(number, (image, offset + i64::from(row)))),
                    false => drop(kept.remove(&number)),
                }
            }
            5 if model.entries.contains_key(&at) => {
                let rank = vec![dice.below(3) as u8; dice.below(3) as usize];
                let wake = Stamp { time: now + dice.below(30) as i64, input: dice.below(2) as u16 };
                let cancel = dice.below(4) == 0;
                let times = vec![if cancel { NONE_YET } else { wake.time }];
                session
                    .wake(&[slot], Stamps { times, inputs: vec![wake.input] }.of(), &bytes(&[rank.clone()]))
                    .unwrap();
                model.set += u64::from(!cancel);
                model.entries.get_mut(&at).unwrap().wake = (!cancel).then_some((wake, rank, model.set));
            }
            _ => {}
        }
    }
    session.finish().keyed
}

fn check_run(settings: Settings, seed: u64) {
    let mut dice = Dice::new(seed);
    let (mut keyed, mut model) = (Keyed::new(settings), Model::default());
    let mut copy = Keyed::new(settings);
    for step in 0..400 {
        let now = step * 3;
        let (mark, before) = (keyed.mark(), model.clone());
        keyed = call(keyed, &mut model, &mut dice, now, step * 10);
        match dice.below(12) {
            0..=2 => {
                keyed.undo(mark);
                model = before;
            }
            3 => {
                keyed.drop_spaces(-1);
                keyed.drop_spaces(100 * dice.below(2) as i64 - 1);
                model.entries.retain(|at, _| at.0 > 99 || keyed.find(at.0, at.1).is_some());
                model.marks.retain(|at, _| keyed.spaces.get(&at.0).is_some_and(|s| s.marks.get(at.1).is_some()));
            }
            4 => {
                if let Some(blamed) = keyed.blame(Stamp::END) {
                    let at = model.dues(Stamp::END)[0];
                    assert_eq!((blamed.space, blamed.wake), (at.0, model.entries[&at].wake.clone().unwrap().0));
                    model.entries.remove(&at);
                }
            }
            5..=7 => {
                copy.apply(keyed.seal());
                assert_eq!(copy.digest(), keyed.digest(), "step {step}");
                assert_eq!(Model::of(copy.dump(), now), model.live(now), "step {step}");
                let loaded = Keyed::load(settings, keyed.dump());
                assert_eq!(loaded.digest(), keyed.digest());
                assert_eq!((loaded.next_wake(), loaded.born, loaded.set), (keyed.next_wake(), keyed.born, keyed.set));
            }
            8 if dice.below(4) == 0 => {
                keyed.seal();
                keyed = Keyed::load(settings, keyed.dump());
                copy = Keyed::load(settings, keyed.dump());
            }
            _ => {}
        }
        assert_eq!(Model::of(keyed.dump(), now), model.live(now), "step {step} of seed {seed}");
        let wakes = keyed.due(Stamp::END, usize::MAX).len();
        assert_eq!((wakes, wakes as u64), (model.dues(Stamp::END).len(), keyed.stats().waiting));
        let bytes: u64 = keyed.spaces.values().flat_map(|s| s.entries.iter().map(super::Entry::bytes)).sum();
        assert_eq!(keyed.stats().bytes, bytes + keyed.stats().marks * MARK_BYTES);
        let live = keyed.quota.live(now);
        let counted = model.live(now);
        if settings.max_entries.is_some() {
            assert_eq!(live.count as usize, counted.marks.len() + counted.entries.len());
        }
    }
}

#[test]
fn keyed_state_does_what_maps_do() {
    for seed in 0..150 {
        check_run(Settings::default(), seed);
    }
}

#[test]
fn the_ledger_counts_what_is_live() {
    for seed in 200..300 {
        let settings = Settings { max_entries: Some(1_000), overflow: Overflow::EvictOldest, ..Settings::default() };
        check_run(settings, seed);
    }
}

#[test]
fn a_space_that_is_dropped_comes_back_by_undo() {
    let mut session = Keyed::default().session(begin(&[1, 2], 0, 0));
    session.open(&[], &[50]).unwrap();
    session.put(&[0, 1], &bytes(&[vec![1], vec![2]]), &[9, 9]).unwrap();
    session.wake(&[0], Stamps { times: vec![50], inputs: vec![] }.of(), &Column::default()).unwrap();
    let mut keyed = session.finish().keyed;
    keyed.seal();
    let (digest, mark) = (keyed.digest(), keyed.mark());
    keyed.drop_spaces(50);
    assert_eq!((keyed.next_wake(), keyed.stats().entries), (None, 0));
    keyed.undo(mark);
    assert_eq!((keyed.next_wake(), keyed.stats().entries), (Some(Stamp { time: 50, input: 0 }), 2));
    keyed.drop_spaces(50);
    assert_eq!(keyed.seal().len(), 2);
    assert_ne!(digest, 0);
    assert_eq!(keyed.digest(), 0);
}

#[test]
fn an_entry_that_came_and_went_leaves_no_change() {
    let mut session = Keyed::default().session(begin(&[1], 0, 0));
    session.open(&[], &[0]).unwrap();
    session.put(&[0], &bytes(&[vec![1]]), &[9]).unwrap();
    session.remove(&[0]).unwrap();
    let mut keyed = session.finish().keyed;
    assert_eq!(keyed.seal(), [Change::Numbers { born: 0, set: 0 }]);
    assert_eq!((keyed.stats().entries, keyed.stats().spaces), (0, 0));
}

#[test]
fn entries_that_are_over_are_freed_as_new_ones_come() {
    let mut keyed = Keyed::default();
    for step in 0..2_000 {
        let keys: Vec<u64> = (0..10).map(|i| step * 10 + i).collect();
        let now = step as i64;
        let mut session = keyed.session(begin(&keys, 0, now));
        session.open(&[], &[0]).unwrap();
        let slots: Vec<u32> = (0..10).collect();
        session.put(&slots, &bytes(&vec![vec![0; 8]; 10]), &[now + 20; 10]).unwrap();
        keyed = session.finish().keyed;
        keyed.seal();
    }
    assert!(keyed.stats().entries < 1_000, "{}", keyed.stats().entries);
}

#[test]
fn images_are_shared_not_copied() {
    let mut session = Keyed::default().session(begin(&[1], 0, 0));
    session.open(&[0, 0], &[10, 20]).unwrap();
    session.put(&[0, 1], &bytes(&[vec![], vec![]]), &[9, 9]).unwrap();
    session.keep(&[0, 1], &[0, 0], &[0, 0]).unwrap();
    let keyed = session.finish().keyed;
    let image = |space: i64| match keyed.spaces[&space].entries.iter().next().unwrap().kept.first() {
        Some((0, Kept::Image(image))) => image.clone(),
        _ => panic!("no image"),
    };
    assert!(Arc::ptr_eq(&image(10), &image(20)));
}

#[test]
fn bytes_that_are_no_entry_are_refused_and_change_nothing() {
    let mut session = Keyed::new(Settings::default()).session(begin(&[1], 0, 0));
    session.open(&[0], &[0]).unwrap();
    session.put(&[0], &bytes(&[vec![7]]), &[i64::MAX]).unwrap();
    let mut keyed = session.finish().keyed;
    keyed.seal();
    let (before, key) = (keyed.digest(), hash(1));
    assert!(keyed.has(0, key).1);
    assert!(keyed.set_entry(0, key, Some(b"no entry")).is_err());
    assert_eq!((keyed.digest(), keyed.has(0, key).1), (before, true));
    keyed.set_entry(0, key, None).unwrap();
    assert_eq!((keyed.digest(), keyed.has(0, key).1), (0, false));
}
