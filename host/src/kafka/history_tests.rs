//! A changelog over many commits, with compaction, checkpoints that are written a slice after each commit, and processes
//! that die: whatever happens, what is restored is the state of the last commit, and nothing dead stays for ever.
//!
//! What is over is freed lazily, each time as a change like any other: it leaves the digest with the tombstone that takes it
//! out of the changelog. So two right states never differ in what one of them has not freed yet (reliability 2.4).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::buried::Buried;
use super::changelog::{self, Entry, MARKER_KEY, Marker, StageMarker, What};
use super::group::Place;
use super::reading::{Reading, Restored};
use crate::format::StoredMark;
use crate::guest::call::State;
use crate::keyed::keyed_tests::{Dice, begin, bytes};
use crate::keyed::{Change, Cursor, Keyed, Layout, Settings};
use crate::task::{self, Outside, Sealed};

/// A stage with marks and entries that end, in three spaces, and one with marks that never do, or seldom.
const STAGES: [&str; 2] = ["d", "endless"];

/// Rules that are left out, one at a time, to see that it is noticed.
#[derive(Clone, Copy, Debug, Default)]
struct Without {
    /// A checkpoint names the offset at which its round began; without it, that at which it ended.
    beginning: bool,
    /// A restore finds what a process had not taken away when it died.
    inheritance: bool,
    /// A mark that is taken away, and that a sheaf may have, is so for ever.
    outlasting: bool,
    /// Sheaves go before the record of the drop does.
    burial: bool,
    /// What was dropped stays so, whoever knows of it.
    floor: bool,
    /// No sheaf is written while dropped keys wait to be taken away.
    waiting: bool,
}

/// A checkpoint, or a round of one.
#[derive(Clone)]
struct Round {
    offset: u64,
    marker: Marker,
    open: Vec<(String, i64)>,
    sheaves: Vec<(String, Vec<u128>)>,
    pieces: Vec<(&'static str, Vec<Change>)>,
    /// The stage it is at.
    stage: usize,
    cursor: Cursor,
}

/// Keys that are taken away at once: of what is dropped some is still there when more is. Or all goes with the next commit.
const SLOWLY: usize = 8;
const AT_ONCE: usize = 1_000;

/// When marks that never end are taken away one by one.
#[derive(Clone, Copy, PartialEq)]
enum Removes {
    Never,
    /// Soon after a drop.
    Early,
    /// Long after it.
    Late,
}

/// A record: offset, key and value.
type Record = (u64, Vec<u8>, Option<Vec<u8>>);

struct World {
    without: Without,
    /// State of each stage.
    states: [Keyed; 2],
    buried: Buried,
    at_once: usize,
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
    /// Sheaves so far; marks that were in them.
    sheaves: u128,
    sheaved: usize,
    /// Marks that never end are taken away one by one, from this commit on; new ones have an end; state is bounded.
    removes: Removes,
    removal: u64,
    ends: bool,
    is_bound: bool,
}

impl World {
    fn new(without: Without) -> World {
        World {
            without,
            states: Default::default(),
            buried: Buried::slowly(SLOWLY),
            at_once: SLOWLY,
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
            sheaves: 0,
            sheaved: 0,
            removes: Removes::Never,
            removal: 100,
            ends: false,
            is_bound: false,
        }
    }

    /// Keys come, are renewed and go again, in three spaces, which are dropped now and then and used again.
    fn call(&mut self, dice: &mut Dice) {
        let now = self.commits as i64;
        let keys: Vec<u64> = (0..8).map(|_| dice.below(60)).collect();
        let mut session = std::mem::take(&mut self.states[0]).session(begin(&keys, now, now));
        let until = now + 3 + dice.below(40) as i64;
        session.seen(100 * dice.below(3) as i64, &[until], &[dice.below(8) as u32], dice.below(2) == 0).unwrap();
        let view = session.open(&[0, 1, 2, 3], &vec![100 * dice.below(3) as i64; 4]).unwrap();
        let mut slots = view.slots;
        slots.sort_unstable();
        slots.dedup();
        let (gone, kept) = slots.split_at(slots.len() / 3);
        session.remove(gone).unwrap();
        session.put(kept, &bytes(&vec![vec![now as u8; 5]; kept.len()]), &vec![until; kept.len()]).unwrap();
        self.states[0] = session.finish().keyed;
        if dice.below(6) == 0 {
            self.states[0].drop_spaces(100 * dice.below(3) as i64);
        }
        self.see(dice);
        if self.commits < self.removal.min(80) && dice.below(16) == 0 {
            self.states[1].drop_all();
            if self.removes == Removes::Early && dice.below(2) == 0 {
                self.removal = self.commits + 1 + dice.below(3);
            }
            self.ends = dice.below(4) == 0;
            self.see(dice);
        }
    }

    /// Marks that never end, unless an end was set meanwhile.
    fn see(&mut self, dice: &mut Dice) {
        let now = self.commits as i64;
        // Some of what is taken away does not come again.
        let keys: Vec<u64> = (0..30).map(|_| 30 * self.commits + dice.below(300)).collect();
        let until = if self.ends { now + 3 + dice.below(40) as i64 } else { i64::MAX };
        // In some worlds nothing is ever taken away one by one, in others from some commit on.
        let clears = [0; 8].map(|_| dice.below(30) as u32);
        let removes = self.removes != Removes::Never && self.commits >= self.removal;
        let mut session = std::mem::take(&mut self.states[1]).session(begin(&keys, now, now));
        session.seen(0, &[until], if removes { &clears } else { &[] }, dice.below(2) == 0).unwrap();
        self.states[1] = session.finish().keyed;
    }

    /// What a transaction has that writes these changes of a stage.
    fn write(&mut self, stage: &str, changes: Vec<Change>, layout: Layout, dropped: &[Sealed]) {
        let (stage, identity, sheaves) = (stage.to_owned(), "{}".to_owned(), Vec::new());
        let sealed = Sealed { stage, identity, changes, layout, sheaves };
        let without = self.without;
        let World { buried, place, sheaves, .. } = self;
        let mut written: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        let number = || {
            *sheaves += 1;
            let number = buried.number(place, &sealed.stage, dropped, || *sheaves);
            number.or(without.waiting.then_some(*sheaves))
        };
        changelog::records(&sealed, self.commits + 1, number, |key, value| {
            written.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        });
        for (key, value) in written {
            match changelog::read(Some(&key), value.as_deref()).unwrap() {
                Entry::State { what: What::Gone(_), .. } if without.outlasting => self.put(&key, None),
                Entry::State { what: What::Floor, .. } if without.floor => {}
                Entry::State { what: What::Sheaf(_, Some(sheaf)), .. } => {
                    self.sheaved += sheaf.marks().count();
                    self.put(&key, value.as_deref());
                }
                _ => self.put(&key, value.as_deref()),
            }
        }
    }

    /// A sheaf of a commit that was taken for failed comes all the same: nobody knows its number. Its records were done
    /// again, so what it says is right.
    fn stray(&mut self) {
        let endless = |(_, mark): &(u128, Option<_>)| mark.is_some_and(|mark: StoredMark| mark.expires == i64::MAX);
        let runs = self.states[1].dump().into_iter().filter_map(|change| match change {
            Change::Marks { space: 0, marks } => Some(marks),
            _ => None,
        });
        let marks: Vec<_> = runs.flatten().filter(endless).take(40).collect();
        let is_quiet = self.buried.open(&self.place).iter().all(|(stage, _)| stage != STAGES[1]);
        if self.states[1].layout() == Layout::Sheaves && self.states[1].unsealed() == 0 && is_quiet {
            self.sheaves += 1;
            let (stage, changes) = (STAGES[1].to_owned(), vec![Change::Marks { space: 0, marks }]);
            let sealed = Sealed { stage, changes, layout: Layout::Sheaves, ..Sealed::default() };
            let number = self.sheaves;
            changelog::records(&sealed, 0, || Some(number), |key, value| self.put(key, value));
            self.committed = self.next;
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
        let mut session = std::mem::take(&mut self.states[0]).session(begin(&keys, now, now));
        let until = now + 3 + dice.below(40) as i64;
        session.seen(100 * dice.below(3) as i64, &[until], &[dice.below(8) as u32], dice.below(2) == 0).unwrap();
        self.states[0] = session.finish().keyed;
        self.see(dice);
        for (at, stage) in STAGES.into_iter().enumerate() {
            let changes = self.states[at].ahead();
            self.given += changes.len();
            self.write(stage, changes, self.states[at].layout(), &[]);
        }
    }

    /// The transaction is aborted, and with it what was ahead of its commit: nobody reads that. Its offsets are gone.
    fn abort(&mut self) {
        self.states.iter_mut().for_each(Keyed::revert);
        self.log.retain(|(offset, ..)| *offset < self.committed);
        self.aborted += 1;
    }

    /// As the committer does it.
    fn commit(&mut self) {
        let dropped = STAGES.iter().zip(&self.states).map(|(stage, keyed)| {
            let (stage, changes) = ((*stage).to_owned(), keyed.dropped());
            Sealed { stage, changes, ..Sealed::default() }
        });
        let dropped: Vec<Sealed> = dropped.filter(|sealed| !sealed.changes.is_empty()).collect();
        let sealed = self.states.each_mut().map(Keyed::seal);
        let now = self.commits as i64 + 1;
        let gone = sealed[0].iter().map(|change| match change {
            Change::Marks { marks, .. } => marks.iter().filter(|(_, mark)| mark.is_none()).count(),
            _ => 0,
        });
        self.freed += gone.sum::<usize>();
        let over = self.states[0].dump().into_iter().map(|change| match change {
            Change::Marks { marks, .. } => marks.iter().filter(|(_, m)| m.is_some_and(|m| m.expires <= now)).count(),
            _ => 0,
        });
        self.over += over.sum::<usize>();
        let has = |stage: &str, space, key| self.states[usize::from(stage != STAGES[0])].has(space, key);
        let (buried, count) = self.buried.next(&self.place, &dropped, has);
        let below = self.buried.below(&self.place, &dropped);
        let below = if self.without.burial { vec![0; below.len()] } else { below };
        for (at, changes) in sealed.into_iter().enumerate() {
            self.write(STAGES[at], changes, self.states[at].layout(), &dropped);
        }
        buried.iter().for_each(|state| changelog::burials(state, |key, value| self.put(key, value)));
        self.commits += 1;
        let stages = STAGES.iter().zip(&self.states).map(|(stage, keyed)| StageMarker {
            stage: (*stage).to_owned(),
            identity: "{}".to_owned(),
            digest: keyed.digest(),
            numbers: keyed.numbers(),
            layout: keyed.layout(),
        });
        let stages = stages.collect();
        let token = self.commits.to_string();
        let marker = Marker { token, next: Vec::new(), partitions: 1, task: task::Marker::blank(), stages };
        self.put(MARKER_KEY, Some(&changelog::write_marker(&marker).unwrap()));
        self.marker = Some(marker);
        self.committed = self.next;
        self.buried.done(&self.place, count);
        self.buried.bury(&self.place, dropped, below);
    }

    /// A slice of a round, as after each commit.
    fn slice(&mut self, dice: &mut Dice) {
        let Some(marker) = self.marker.clone() else { return };
        let round = self.round.get_or_insert_with(|| Round {
            // It was asked for a little before.
            offset: self.next.saturating_sub(dice.below(20)),
            marker,
            open: self.buried.open(&self.place),
            sheaves: self.buried.sheaves(&self.place),
            pieces: Vec::new(),
            stage: 0,
            cursor: Cursor::default(),
        });
        match self.states[round.stage].dump_some(&mut round.cursor, (1 + dice.below(20) as usize) << (4 * round.stage))
        {
            Some(piece) => round.pieces.push((STAGES[round.stage], piece)),
            None if round.stage == 0 => (round.stage, round.cursor) = (1, Cursor::default()),
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

    fn fresh(&self) -> Reading {
        let max_entries = self.is_bound.then_some(1_000_000);
        let settings = [Settings::default(), Settings { max_entries, ..Settings::default() }];
        Reading::new(Arc::new(STAGES.map(str::to_owned).into_iter().zip(settings).collect()))
    }

    fn judge(&mut self, restored: &Restored) {
        for said in self.marker.iter().flat_map(|marker| &marker.stages) {
            let found = restored.states.iter().find(|(stage, _)| *stage == said.stage);
            self.wrong += usize::from(found.map_or(0, |(_, keyed)| keyed.digest()) != said.digest);
        }
    }

    /// Records that are there and say nothing that counts.
    fn dead(&self) -> usize {
        let floor = self.log.iter().rposition(|(_, key, _)| key[0] == 5);
        let is_dead = |(at, (_, key, value)): &(usize, &Record)| {
            let state = |stage: &str| &self.states[usize::from(stage != STAGES[0])];
            match changelog::read(Some(key), value.as_deref()).unwrap() {
                Entry::Marker(_) => false,
                Entry::State { stage, space, what } => match what {
                    What::Mark(hash, Some(_)) => !state(stage).has(space, hash).0,
                    What::Entry(key, Some(_)) => !state(stage).has(space, key).1,
                    // What was taken away once stays told.
                    What::Gone(_) => state(stage).layout() != Layout::Mixed,
                    What::Sheaf(_, Some(_)) => floor.is_some_and(|floor| *at < floor),
                    What::Floor => Some(*at) != floor,
                    _ => true,
                },
            }
        };
        self.log.iter().enumerate().filter(is_dead).count()
    }

    /// The process dies, and another one goes on: with the checkpoint if there is one, and it can be proved.
    fn restart(&mut self) {
        let mut restored = None;
        if let Some(checkpoint) = self.checkpoint.clone() {
            self.warm += 1;
            let mut reading = self.fresh();
            checkpoint.pieces.into_iter().for_each(|(stage, piece)| reading.apply(stage, piece));
            reading.begin(checkpoint.offset as i64, checkpoint.marker, checkpoint.open, checkpoint.sheaves);
            let reading = self.read(reading);
            let is_proved = reading.is_proved();
            let found = reading.done();
            self.judge(&found);
            restored = Some(found).filter(|_| is_proved);
        }
        let restored = restored.unwrap_or_else(|| self.read(self.fresh()).done());
        self.judge(&restored);
        self.buried = Buried::slowly(self.at_once);
        let Outside { dead, sheaves } = restored.outside;
        let mut dead = if self.without.inheritance { Vec::new() } else { dead };
        dead.iter_mut().filter(|_| self.without.burial).for_each(|dead| dead.sheaves.clear());
        self.buried.found(&self.place, Outside { dead, sheaves });
        let mut states: BTreeMap<String, Keyed> = restored.states.into_iter().collect();
        self.states = STAGES.map(|stage| states.remove(stage).unwrap_or_default());
        self.states.iter_mut().for_each(Keyed::begin_here);
        self.round = None;
    }
}

/// One history; gives the world as it is in the end, when everything that is dead had time to go.
fn live(seed: u64, without: Without) -> World {
    let mut dice = Dice::new(seed);
    let mut world = World::new(without);
    world.removes = [Removes::Early, Removes::Never, Removes::Late, Removes::Never][seed as usize % 4];
    if !seed.is_multiple_of(2) {
        (world.at_once, world.buried) = (AT_ONCE, Buried::slowly(AT_ONCE));
    }
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
        if dice.below(6) == 0 {
            world.stray();
        }
        if dice.below(12) == 0 {
            if dice.below(5) == 0 {
                world.checkpoint = None;
            }
            world.is_bound = seed % 8 == 1 && dice.below(4) == 0;
            world.restart();
        }
    }
    // Whatever is dead has time to go, twice: whoever reads all that is left knows all of it, and nothing is there that
    // should not be.
    for _ in 0..2 {
        for _ in 0..100 {
            world.commit();
        }
        let next = world.next;
        world.compact(next, next);
        world.checkpoint = None;
        world.restart();
    }
    world
}

/// Restores of many histories that were wrong, and records that stay for ever beyond what is alive.
fn harm(without: Without) -> (usize, usize) {
    let (mut wrong, mut dead, mut warm, mut lazy, mut given) = (0, 0, 0, usize::MAX, usize::MAX);
    let (mut sheaved, mut layouts) = (0, [0; 3]);
    for seed in 1..=40 {
        let world = live(seed, without);
        sheaved += world.sheaved;
        layouts[world.states[1].layout() as usize] += 1;
        wrong += world.wrong;
        warm += world.warm;
        given = given.min(world.given).min(10 * world.aborted);
        lazy = lazy.min(world.over).min(world.freed);
        dead += world.dead();
    }
    assert!(lazy > 20, "{lazy} marks that outlived their time are too few to prove anything");
    assert!(given > 50, "{given} changes ahead of their commits are too few to prove anything");
    assert!(sheaved > 5_000 && layouts[1] > 5 && layouts[2] > 5, "{sheaved} marks in sheaves, {layouts:?}");
    assert!(warm > 200, "{warm} restores from checkpoints are too few to prove anything");
    println!("{sheaved} {layouts:?} {wrong} {dead}");
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

/// Compaction removes null values in the end, and what a sheaf says would be true again.
#[test]
fn marks_that_are_taken_away_by_null_values_rise_again_from_their_sheaves() {
    assert!(harm(Without { outlasting: true, ..Without::default() }).0 > 0);
}

#[test]
fn sheaves_that_are_not_taken_away_with_their_space_stay_for_ever() {
    assert!(harm(Without { burial: true, ..Without::default() }).1 > 0);
}

#[test]
fn without_a_floor_a_sheaf_that_nobody_knows_of_rises_again_when_its_drop_is_done() {
    assert!(harm(Without { floor: true, ..Without::default() }).0 > 0);
}

#[test]
fn a_sheaf_that_is_written_while_dropped_keys_wait_brings_some_of_them_back() {
    assert!(harm(Without { waiting: true, ..Without::default() }).0 > 0);
}
