//! A changelog over many commits, with compaction, checkpoints that are written a slice after each commit, and processes
//! that die: whatever happens, what is restored is the state of the last commit, and nothing dead stays for ever.
//!
//! What is over is freed lazily, each time as a change like any other: it leaves the digest with the tombstone that takes it
//! out of the changelog. So two right states never differ in what one of them has not freed yet (reliability 2.4).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::buried::Buried;
use super::changelog::{self, MARKER_KEY, Marker, StageMarker};
use super::group::Place;
use super::reading::{Reading, Restored};
use crate::guest::call::State;
use crate::keyed::keyed_tests::{Dice, begin, bytes};
use crate::keyed::{Change, Cursor, Keyed, Settings};
use crate::task::{self, Sealed};

const STAGE: &str = "d";

/// Rules that are left out, one at a time, to see that it is noticed.
#[derive(Clone, Copy, Debug, Default)]
struct Without {
    /// A checkpoint names the offset at which its round began; without it, that at which it ended.
    beginning: bool,
    /// A restore finds what a process had not taken away when it died.
    inheritance: bool,
}

/// A checkpoint, or a round of one.
#[derive(Clone)]
struct Round {
    offset: u64,
    marker: Marker,
    open: Vec<(String, i64)>,
    pieces: Vec<Vec<Change>>,
    cursor: Cursor,
}

/// A record: offset, key and value.
type Record = (u64, Vec<u8>, Option<Vec<u8>>);

struct World {
    without: Without,
    keyed: Keyed,
    buried: Buried,
    place: Place,
    log: Vec<Record>,
    next: u64,
    /// The offset behind the last commit.
    committed: u64,
    commits: u64,
    marker: Option<Marker>,
    round: Option<Round>,
    checkpoint: Option<Round>,
    /// Restores that were not of the last commit; restores that began with a checkpoint.
    wrong: usize,
    warm: usize,
    /// Marks that were over and still there when a process died, and those that had been freed by then as nobody wanted
    /// them any more.
    over: usize,
    freed: usize,
    /// Changes that were written ahead; commits that failed.
    given: usize,
    aborted: usize,
}

impl World {
    fn new(without: Without) -> World {
        World {
            without,
            keyed: Keyed::new(Settings::default()),
            buried: Buried::slowly(3),
            place: ("t".into(), 0),
            log: Vec::new(),
            next: 0,
            committed: 0,
            commits: 0,
            marker: None,
            round: None,
            checkpoint: None,
            wrong: 0,
            warm: 0,
            over: 0,
            freed: 0,
            given: 0,
            aborted: 0,
        }
    }

    /// Keys come, are renewed and go again, in three spaces, which are dropped now and then and used again.
    fn call(&mut self, dice: &mut Dice) {
        let now = self.commits as i64;
        let keys: Vec<u64> = (0..8).map(|_| dice.below(60)).collect();
        let mut session = std::mem::take(&mut self.keyed).session(begin(&keys, now, now));
        let until = now + 3 + dice.below(40) as i64;
        session.seen(100 * dice.below(3) as i64, &[until], &[dice.below(8) as u32], dice.below(2) == 0).unwrap();
        let view = session.open(&[0, 1, 2, 3], &vec![100 * dice.below(3) as i64; 4]).unwrap();
        let mut slots = view.slots;
        slots.sort_unstable();
        slots.dedup();
        let (gone, kept) = slots.split_at(slots.len() / 3);
        session.remove(gone).unwrap();
        session.put(kept, &bytes(&vec![vec![now as u8; 5]; kept.len()]), &vec![until; kept.len()]).unwrap();
        self.keyed = session.finish().keyed;
        if dice.below(6) == 0 {
            self.keyed.drop_spaces(100 * dice.below(3) as i64);
        }
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.log.push((self.next, key.to_vec(), value.map(<[u8]>::to_vec)));
        self.next += 1;
    }

    /// Only marks, of which some are on their way before the commit.
    fn ahead(&mut self, dice: &mut Dice) {
        let now = self.commits as i64;
        let keys: Vec<u64> = (0..8).map(|_| dice.below(60)).collect();
        let mut session = std::mem::take(&mut self.keyed).session(begin(&keys, now, now));
        let until = now + 3 + dice.below(40) as i64;
        session.seen(100 * dice.below(3) as i64, &[until], &[dice.below(8) as u32], dice.below(2) == 0).unwrap();
        self.keyed = session.finish().keyed;
        let changes = self.keyed.ahead();
        self.given += changes.len();
        let sealed = Sealed { stage: STAGE.to_owned(), identity: "{}".to_owned(), changes };
        changelog::records(&sealed, self.commits + 1, |key, value| self.put(key, value));
    }

    /// The transaction is aborted, and with it what was ahead of its commit: nobody reads that. Its offsets are gone.
    fn abort(&mut self) {
        self.keyed.revert();
        self.log.retain(|(offset, ..)| *offset < self.committed);
        self.aborted += 1;
    }

    /// As the committer does it.
    fn commit(&mut self) {
        let sealed = |changes| Sealed { stage: STAGE.to_owned(), identity: "{}".to_owned(), changes };
        let (dropped, changes) = (sealed(self.keyed.dropped()), sealed(self.keyed.seal()));
        self.commits += 1;
        let now = self.commits as i64;
        let gone = changes.changes.iter().map(|change| match change {
            Change::Marks { marks, .. } => marks.iter().filter(|(_, mark)| mark.is_none()).count(),
            _ => 0,
        });
        self.freed += gone.sum::<usize>();
        let over = self.keyed.dump().into_iter().map(|change| match change {
            Change::Marks { marks, .. } => marks.iter().filter(|(_, m)| m.is_some_and(|m| m.expires <= now)).count(),
            _ => 0,
        });
        self.over += over.sum::<usize>();
        let (keyed, mut records) = (&self.keyed, Vec::new());
        let (buried, count) =
            self.buried.next(&self.place, std::slice::from_ref(&dropped), |_, space, key| keyed.has(space, key));
        let mut put = |key: &[u8], value: Option<&[u8]>| records.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        changelog::records(&changes, self.commits, &mut put);
        buried.iter().for_each(|state| changelog::burials(state, &mut put));
        records.iter().for_each(|(key, value)| self.put(key, value.as_deref()));
        let stage = StageMarker {
            stage: STAGE.to_owned(),
            identity: "{}".to_owned(),
            digest: self.keyed.digest(),
            numbers: self.keyed.numbers(),
        };
        let task = task::Marker {
            inputs: Vec::new(),
            salt: 0,
            activity: Vec::new(),
            event: crate::time::Clock::new(1, 0),
            ingestion: crate::time::Clock::new(1, 0),
            positions: Vec::new(),
            arrivals: 0,
            invalid_time: 0,
            stages: std::sync::Arc::default(),
            counters: Vec::new(),
        };
        let token = self.commits.to_string();
        let marker = Marker { token, next: Vec::new(), partitions: 1, task, stages: vec![stage] };
        self.put(MARKER_KEY, Some(&changelog::write_marker(&marker).unwrap()));
        self.marker = Some(marker);
        self.committed = self.next;
        self.buried.done(&self.place, count);
        if !dropped.changes.is_empty() {
            self.buried.add(&self.place, vec![dropped]);
        }
    }

    /// A slice of a round, as after each commit.
    fn slice(&mut self, dice: &mut Dice) {
        let Some(marker) = self.marker.clone() else { return };
        let round = self.round.get_or_insert_with(|| Round {
            // It was asked for a little before.
            offset: self.next.saturating_sub(dice.below(20)),
            marker,
            open: self.buried.open(&self.place),
            pieces: Vec::new(),
            cursor: Cursor::default(),
        });
        match self.keyed.dump_some(&mut round.cursor, 1 + dice.below(20) as usize) {
            Some(piece) => round.pieces.push(piece),
            None => {
                self.checkpoint = self.round.take();
                if let Some(ended) = self.checkpoint.as_mut().filter(|_| self.without.beginning) {
                    (ended.offset, ended.marker) = (self.next, self.marker.clone().unwrap());
                }
            }
        }
    }

    /// The cleaner: of what stands before some offset the last record of each key stays. A null value goes when it is old:
    /// older than any checkpoint that may be used.
    fn compact(&mut self, upto: u64, young: u64) {
        let mut seen = HashSet::new();
        let mut kept: Vec<Record> = Vec::new();
        for (offset, key, value) in self.log.drain(..).rev() {
            let is_last = offset >= upto || seen.insert(key.clone());
            let is_gone = offset < upto && value.is_none() && offset < young;
            if is_last && !is_gone {
                kept.push((offset, key, value));
            }
        }
        kept.reverse();
        self.log = kept;
    }

    fn young(&self) -> u64 {
        self.checkpoint.iter().chain(&self.round).map(|round| round.offset).min().unwrap_or(u64::MAX)
    }

    fn read(&self, mut reading: Reading) -> Reading {
        let start = reading.start().unwrap_or(0) as u64;
        for (_, key, value) in self.log.iter().filter(|(offset, ..)| *offset >= start) {
            reading.take(Some(key), value.as_deref()).unwrap();
        }
        reading
    }

    fn fresh() -> Reading {
        Reading::new(Arc::new(BTreeMap::from([(STAGE.to_owned(), Settings::default())])))
    }

    fn judge(&mut self, restored: &Restored) {
        let digest = restored.states.first().map_or(0, |(_, keyed)| keyed.digest());
        let said = self.marker.as_ref().map_or(0, |marker| marker.stages[0].digest);
        self.wrong += usize::from(digest != said);
    }

    /// The process dies, and another one goes on: with the checkpoint if there is one, and it can be proved.
    fn restart(&mut self) {
        let mut restored = None;
        if let Some(checkpoint) = self.checkpoint.clone() {
            self.warm += 1;
            let mut reading = World::fresh();
            checkpoint.pieces.into_iter().for_each(|piece| reading.apply(STAGE, piece));
            reading.begin(checkpoint.offset as i64, checkpoint.marker, checkpoint.open);
            let reading = self.read(reading);
            let is_proved = reading.is_proved();
            let found = reading.done();
            self.judge(&found);
            restored = Some(found).filter(|_| is_proved);
        }
        let restored = restored.unwrap_or_else(|| self.read(World::fresh()).done());
        self.judge(&restored);
        self.buried = Buried::slowly(3);
        if !self.without.inheritance {
            self.buried.add(&self.place, restored.dead);
        }
        self.keyed = restored.states.into_iter().next().map_or_else(Keyed::default, |(_, keyed)| keyed);
        self.round = None;
    }
}

/// One history; gives the world as it is in the end, when everything that is dead had time to go.
fn live(seed: u64, without: Without) -> World {
    let mut dice = Dice::new(seed);
    let mut world = World::new(without);
    for _ in 0..150 {
        for _ in 0..dice.below(3) {
            world.ahead(&mut dice);
        }
        world.call(&mut dice);
        for _ in 0..dice.below(2) {
            world.ahead(&mut dice);
        }
        if dice.below(8) == 0 {
            world.abort();
            if dice.below(2) == 0 {
                world.restart();
            }
            continue;
        }
        world.commit();
        for _ in 0..dice.below(4) {
            world.slice(&mut dice);
        }
        if dice.below(5) == 0 {
            world.compact(dice.below(world.next + 1), world.young());
        }
        if dice.below(12) == 0 {
            world.restart();
        }
    }
    world.restart();
    for _ in 0..100 {
        world.commit();
    }
    let next = world.next;
    world.compact(next, next);
    world
}

/// Restores of many histories that were wrong, and records that stay for ever beyond what is alive.
fn harm(without: Without) -> (usize, usize) {
    let (mut wrong, mut dead, mut warm, mut lazy, mut given) = (0, 0, 0, usize::MAX, usize::MAX);
    for seed in 1..=40 {
        let world = live(seed, without);
        let stats = world.keyed.stats();
        wrong += world.wrong;
        warm += world.warm;
        given = given.min(world.given).min(10 * world.aborted);
        lazy = lazy.min(world.over).min(world.freed);
        dead += world.log.len() - (stats.marks + stats.entries) as usize - 1;
    }
    assert!(lazy > 20, "{lazy} marks that outlived their time are too few to prove anything");
    assert!(given > 50, "{given} changes ahead of their commits are too few to prove anything");
    assert!(warm > 200, "{warm} restores from checkpoints are too few to prove anything");
    (wrong, dead)
}

#[test]
fn what_is_restored_is_the_last_commit_and_nothing_dead_stays() {
    assert_eq!(harm(Without::default()), (0, 0));
}

/// The mutant of reliability 2.4: it must not pass.
#[test]
fn a_checkpoint_that_names_the_end_of_its_round_restores_what_never_was() {
    assert!(harm(Without { beginning: true, ..Without::default() }).0 > 0);
}

#[test]
fn without_what_the_last_process_left_dead_keys_stay_for_ever() {
    assert!(harm(Without { inheritance: true, ..Without::default() }).1 > 0);
}
