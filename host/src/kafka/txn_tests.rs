//! The transaction core against a model of the broker, with every fault that the client can meet: answers that are
//! lost, requests that arrive again later, fences, rebalances without notice, processes that die.
//!
//! The model speaks protocol 1, as the client does: the end of a transaction names no transaction, only the epoch of its
//! producer, so that a late copy ends whichever is open then (KAFKA-17754).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use super::super::token::{Known, Token};
use super::*;
use crate::worker::Became;

/// Seeds of one run; nights take more.
const SEEDS: u64 = 10_000;

/// A small generator: the same seed, the same run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides.max(1)
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}

/// A transaction as the broker sees it.
#[derive(Clone, Debug, Default)]
struct Open {
    outputs: Vec<u32>,
    state: Option<(Token, BTreeSet<u32>)>,
    position: Option<(usize, Token)>,
}

/// What the broker knows of one transactional id.
#[derive(Debug, Default)]
struct Id {
    epoch: u64,
    open: Option<Open>,
}

#[derive(Debug, Default)]
struct Broker {
    /// Keys of the input, by offset.
    input: Vec<u32>,
    visible: Vec<u32>,
    /// Committed position and its token.
    position: (usize, Token),
    /// Token and state at the end of the changelog.
    changelog: (Token, BTreeSet<u32>),
    ids: Vec<Id>,
    generation: u64,
    /// Copies of commits that are still on their way: id and epoch.
    late: Vec<(usize, u64)>,
    /// Ends of transactions that are not written to the changelog yet: nobody reads there what they committed.
    unwritten: Vec<(Token, BTreeSet<u32>)>,
}

impl Broker {
    fn end(&mut self, id: usize, commit: bool) -> bool {
        let Some(open) = self.ids[id].open.take() else { return false };
        if commit {
            self.visible.extend(open.outputs);
            self.unwritten.extend(open.state);
            if let Some(position) = open.position {
                self.position = position;
            }
        }
        true
    }

    /// All that was committed is in the changelog.
    fn write_ends(&mut self) {
        if let Some(last) = self.unwritten.drain(..).next_back() {
            self.changelog = last;
        }
    }

    /// A late copy arrives: it ends what is open under its epoch. Ends are written.
    fn deliver_late(&mut self, dice: &mut Dice) {
        if dice.one_in(2) {
            self.write_ends();
        }
        if !self.late.is_empty() && dice.one_in(3) {
            let (id, epoch) = self.late.swap_remove(dice.roll(self.late.len() as u64) as usize);
            if self.ids[id].epoch == epoch {
                self.end(id, true);
            }
        }
    }

    /// Positions are not told while a transaction that will change them is open; in the end the broker gives it up.
    fn settle(&mut self) {
        for id in 0..self.ids.len() {
            if self.ids[id].open.as_ref().is_some_and(|open| open.position.is_some()) {
                self.ids[id].epoch += 1;
                self.end(id, false);
            }
        }
    }
}

/// Rules about what a process goes on with that it has in memory.
#[derive(Clone, Copy)]
struct Memory {
    /// No two attempts have the same token.
    nonce: bool,
    /// It goes on with it only where the token beside the position is one that it knows.
    compare: bool,
}

const CAREFUL: Memory = Memory { nonce: true, compare: true };

/// A process: the core, and what the worker holds.
struct Process {
    id: usize,
    txn: Txn,
    guards: Guards,
    memory: Memory,
    /// It stopped between its positions and its commit.
    frozen: bool,
    /// Epoch of its producer; none: no producer.
    epoch: Option<u64>,
    /// Generation it believes to be in; none: it has no partition.
    generation: Option<u64>,
    state: BTreeSet<u32>,
    next: usize,
    /// What it knows of its commits; none: it has read nothing yet.
    known: Option<Known>,
    /// Its state after the last commit that is durable.
    base: BTreeSet<u32>,
    /// How often it went on with what it had in memory: after nothing had happened, after all had.
    kept: [usize; 2],
    broken: bool,
    now: i64,
}

impl Process {
    fn new(id: usize, guards: Guards, memory: Memory) -> Process {
        let (epoch, generation, state) = (None, None, BTreeSet::new());
        let txn = Txn::guarded(true, guards);
        let (next, known, base, frozen, broken, now) = (0, None, BTreeSet::new(), false, false, 0);
        Process {
            id,
            txn,
            guards,
            memory,
            frozen,
            epoch,
            generation,
            state,
            next,
            known,
            base,
            kept: [0; 2],
            broken,
            now,
        }
    }

    /// Does what the core says until it is settled.
    fn drive(&mut self, goal: Goal, broker: &mut Broker, dice: &mut Dice) -> Outcome {
        assert!(!self.frozen);
        self.go_on(Event::Go(goal), false, false, broker, dice)
    }

    /// The same from an event on; `freezes`: it stops before it commits.
    fn go_on(
        &mut self,
        mut event: Event,
        mut tainted: bool,
        freezes: bool,
        broker: &mut Broker,
        dice: &mut Dice,
    ) -> Outcome {
        for _ in 0..10_000 {
            self.now += dice.roll(20) as i64;
            broker.deliver_late(dice);
            let action = self.txn.next(event, self.now, std::mem::take(&mut tainted));
            event = match action {
                Action::Settled(outcome) => return outcome,
                Action::Wait(ms) => {
                    self.now += ms;
                    Event::Done
                }
                // A rival, or a broker that gives up again and again: the process would stop and be started anew.
                Action::Rival => return Outcome::Undone,
                Action::Make => Event::Done,
                Action::Drop => {
                    self.epoch = None;
                    Event::Done
                }
                Action::Init => {
                    if dice.one_in(8) {
                        Event::Again
                    } else {
                        broker.ids[self.id].epoch += 1;
                        broker.end(self.id, false);
                        self.epoch = Some(broker.ids[self.id].epoch);
                        Event::Done
                    }
                }
                Action::Begin => Event::Done,
                Action::Write => {
                    let known = self.known.get_or_insert_default();
                    // A number that no other attempt has.
                    let nonce = if self.memory.nonce { dice.roll(u64::MAX) } else { 0 };
                    let token = Token { sequence: known.last.sequence + 1, nonce, ..Token::default() };
                    known.tried = Some(token.clone());
                    let state = (token, self.state.clone());
                    self.produce(broker, |open| open.state = Some(state))
                }
                Action::Flush if dice.one_in(30) => Event::Abortable,
                Action::Flush if dice.one_in(8) => Event::Again,
                Action::Flush if dice.one_in(30) => Event::Late,
                Action::Flush => Event::Done,
                // Who names no generation is believed.
                Action::Offsets if self.guards.generation && self.generation != Some(broker.generation) => {
                    Event::Abortable
                }
                Action::Offsets => {
                    let tried = self.known.as_ref().and_then(|known| known.tried.clone());
                    let position = (self.next, tried.unwrap_or_default());
                    self.produce(broker, |open| open.position = Some(position))
                }
                Action::Commit if freezes => {
                    self.frozen = true;
                    return Outcome::Undone;
                }
                Action::Commit => self.commit(broker, dice, &mut tainted),
                Action::Abort => {
                    if self.epoch == Some(broker.ids[self.id].epoch) {
                        // It takes too long: whether it arrived nobody knows.
                        if dice.one_in(16) {
                            if dice.one_in(2) {
                                broker.end(self.id, false);
                            }
                            Event::Late
                        } else {
                            broker.end(self.id, false);
                            if dice.one_in(8) { Event::Again } else { Event::Done }
                        }
                    } else {
                        Event::Fatal { fenced: true }
                    }
                }
            };
        }
        panic!("the core does not come to an end");
    }

    fn produce(&mut self, broker: &mut Broker, put: impl FnOnce(&mut Open)) -> Event {
        let id = &mut broker.ids[self.id];
        if self.epoch != Some(id.epoch) {
            return Event::Fatal { fenced: true };
        }
        put(id.open.get_or_insert_default());
        Event::Done
    }

    /// The client's commit, with what can happen to it.
    fn commit(&mut self, broker: &mut Broker, dice: &mut Dice, tainted: &mut bool) -> Event {
        let current = broker.ids[self.id].epoch;
        if self.epoch != Some(current) {
            return Event::Fatal { fenced: true };
        }
        let copy = (self.id, current);
        match dice.roll(16) {
            // It did not arrive, and is sent again, if there is time.
            0 if dice.one_in(4) => Event::Late,
            0 => Event::Again,
            // The answer was lost, or the request was held up: the client sends it again without a word, and a copy
            // arrives later.
            1 | 2 => {
                broker.end(self.id, true);
                broker.late.push(copy);
                *tainted = true;
                Event::Done
            }
            // It took effect, and the client was told that it timed out.
            3 => {
                broker.end(self.id, true);
                Event::Abortable
            }
            // It will take effect when it arrives, and the client was told that it timed out.
            4 => {
                broker.late.push(copy);
                if dice.one_in(4) { Event::Late } else { Event::Abortable }
            }
            // The broker gave the transaction up.
            5 => {
                broker.ids[self.id].epoch += 1;
                broker.end(self.id, false);
                Event::Fatal { fenced: true }
            }
            _ => match broker.end(self.id, true) {
                true => Event::Done,
                // A late copy has ended it: no such transaction.
                false => Event::Fatal { fenced: false },
            },
        }
    }

    /// Reads where to go on, and the state that belongs to it.
    fn restore(&mut self, broker: &mut Broker, dice: &mut Dice) -> Result<(), String> {
        // Where the group waits, what was left open is ended by the next transaction, or by the broker.
        if !dice.one_in(3) {
            while self.drive(Goal::Ready, broker, dice) == Outcome::Undone {}
        }
        if self.guards.stable {
            broker.settle();
        }
        if self.guards.token {
            broker.write_ends();
        }
        let (next, token) = broker.position.clone();
        self.broken = false;
        // What it has in memory does, before the commit or behind it, unless somebody else has committed since.
        let found = Some(&token).filter(|token| **token != Token::default());
        let became = match (&self.known, self.memory.compare) {
            (Some(known), true) => known.became(found),
            (Some(_), false) => Some(Became::Nothing),
            (None, _) => None,
        };
        match became {
            Some(Became::Nothing) => self.state = self.base.clone(),
            Some(Became::Durable) => {}
            None if self.guards.token && token != broker.changelog.0 => {
                return Err(format!("position of {token}, state of {}", broker.changelog.0));
            }
            None => self.state = broker.changelog.1.clone(),
        }
        if let Some(became) = became {
            self.kept[usize::from(became == Became::Durable)] += 1;
        }
        (self.next, self.base) = (next, self.state.clone());
        self.known = Some(Known { last: token, begin: 0, tried: None });
        Ok(())
    }

    /// A few records, and perhaps a commit.
    fn work(&mut self, broker: &mut Broker, dice: &mut Dice) -> Result<(), String> {
        for _ in 0..dice.roll(4) {
            let Some(&key) = broker.input.get(self.next) else { break };
            self.next += 1;
            if !self.state.insert(key) || self.broken {
                continue;
            }
            if !self.txn.is_open() && self.drive(Goal::Open, broker, dice) == Outcome::Undone {
                self.broken = true;
                continue;
            }
            self.broken |= self.produce(broker, |open| open.outputs.push(key)) != Event::Done;
            broker.deliver_late(dice);
        }
        if dice.one_in(2) { self.close(broker, dice) } else { Ok(()) }
    }

    fn close(&mut self, broker: &mut Broker, dice: &mut Dice) -> Result<(), String> {
        let goal = if std::mem::take(&mut self.broken) { Goal::Abandon } else { Goal::Commit };
        let outcome = self.drive(goal, broker, dice);
        self.closed(outcome, broker, dice)
    }

    fn closed(&mut self, outcome: Outcome, broker: &mut Broker, dice: &mut Dice) -> Result<(), String> {
        match outcome {
            Outcome::Done => {
                let known = self.known.get_or_insert_default();
                known.last = known.tried.take().unwrap_or_default();
                self.base = self.state.clone();
            }
            Outcome::Undone if self.guards.undo => self.restore(broker, dice)?,
            Outcome::Undone => {}
        }
        Ok(())
    }

    /// Stops in the middle of a commit, if it has something to commit.
    fn freeze(&mut self, broker: &mut Broker, dice: &mut Dice) -> Result<(), String> {
        if self.broken || !self.txn.is_open() || self.frozen {
            return Ok(());
        }
        let outcome = self.go_on(Event::Go(Goal::Commit), false, true, broker, dice);
        if self.frozen { Ok(()) } else { self.closed(outcome, broker, dice) }
    }

    /// Goes on where it stopped.
    fn thaw(&mut self, broker: &mut Broker, dice: &mut Dice) -> Result<(), String> {
        if !std::mem::take(&mut self.frozen) {
            return Ok(());
        }
        let mut tainted = false;
        let event = self.commit(broker, dice, &mut tainted);
        let outcome = self.go_on(event, tainted, false, broker, dice);
        self.closed(outcome, broker, dice)
    }
}

/// One run: two processes, one partition that moves between them.
fn run(seed: u64, guards: Guards, memory: Memory, kept: &mut [usize; 2]) -> Result<(), String> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let input: Vec<u32> = (0..24).map(|_| dice.roll(16) as u32).collect();
    let mut broker = Broker { input, ids: vec![Id::default(), Id::default()], ..Broker::default() };
    let mut processes = [Process::new(0, guards, memory), Process::new(1, guards, memory)];
    let mut owner = 0;
    processes[0].generation = Some(0);
    processes[0].restore(&mut broker, &mut dice)?;
    for _ in 0..60 {
        match dice.roll(12) {
            // The group moves the partition: with notice the owner commits first, without it goes on unknowing.
            0 => {
                if dice.one_in(2) {
                    processes[owner].close(&mut broker, &mut dice)?;
                    processes[owner].generation = None;
                } else {
                    processes[owner].freeze(&mut broker, &mut dice)?;
                }
                broker.generation += 1;
                owner = 1 - owner;
                processes[owner].thaw(&mut broker, &mut dice)?;
                processes[owner].drive(Goal::Abandon, &mut broker, &mut dice);
                processes[owner].generation = Some(broker.generation);
                processes[owner].restore(&mut broker, &mut dice)?;
            }
            // It dies, and is started again under its name.
            1 => {
                let id = owner;
                broker.generation += 1;
                processes[id] = Process::new(id, guards, memory);
                processes[id].generation = Some(broker.generation);
                processes[id].restore(&mut broker, &mut dice)?;
            }
            // One that lost the partition works on until the broker tells it.
            2 if processes[1 - owner].generation.is_some() => {
                let zombie = &mut processes[1 - owner];
                zombie.thaw(&mut broker, &mut dice)?;
                zombie.work(&mut broker, &mut dice)?;
            }
            _ => processes[owner].work(&mut broker, &mut dice)?,
        }
    }
    for _ in 0..100 {
        if broker.position.0 == broker.input.len() {
            break;
        }
        processes[owner].work(&mut broker, &mut dice)?;
        processes[owner].close(&mut broker, &mut dice)?;
    }
    let mut expected = Vec::new();
    broker.input.iter().for_each(|key| {
        if !expected.contains(key) {
            expected.push(*key);
        }
    });
    for process in &processes {
        kept.iter_mut().zip(process.kept).for_each(|(sum, times)| *sum += times);
    }
    match broker.visible == expected {
        true => Ok(()),
        false => Err(format!("expected {expected:?}, visible {:?}", broker.visible)),
    }
}

/// The first seed that ends wrong.
fn violation(guards: Guards) -> Option<(u64, String)> {
    first(guards, CAREFUL, &mut [0; 2])
}

fn first(guards: Guards, memory: Memory, kept: &mut [usize; 2]) -> Option<(u64, String)> {
    (1..=SEEDS).find_map(|seed| run(seed, guards, memory, kept).err().map(|why| (seed, why)))
}

#[test]
fn a_process_goes_on_with_what_it_has_in_memory_before_a_commit_or_behind_it() {
    let mut kept = [0; 2];
    assert_eq!(first(Guards::default(), CAREFUL, &mut kept), None);
    assert!(kept.iter().all(|&times| times > 1_000), "{kept:?} times: too few to prove anything");
}

#[test]
fn a_process_that_trusts_its_memory_too_far_does_harm() {
    let check = |memory| assert!(first(Guards::default(), memory, &mut [0; 2]).is_some());
    check(Memory { nonce: false, ..CAREFUL });
    check(Memory { compare: false, ..CAREFUL });
}

#[test]
fn every_key_leaves_exactly_once_whatever_happens() {
    assert_eq!(violation(Guards::default()), None);
}

/// Guards whose absence cannot show here: the model's state is never another than what was written.
const ELSEWHERE: [&str; 1] = ["digest"];

#[test]
fn every_guard_that_is_left_out_does_harm() {
    for word in Guards::WORDS {
        let found = violation(Guards::without(word).unwrap());
        println!("without {word}: {found:?}");
        assert_eq!(found.is_none(), ELSEWHERE.contains(&word), "without {word}: {found:?}");
    }
}

#[test]
fn a_word_that_names_no_guard_is_refused() {
    assert_eq!(Guards::without("").unwrap(), Guards::default());
    assert_eq!(Guards::without("taint,tolken"), Err("tolken".to_owned()));
    for word in Guards::WORDS {
        assert_ne!(Guards::without(word).unwrap(), Guards::default(), "{word}");
    }
}

/// Actions of a run of the core in which everything goes well, until it is settled.
fn check(txn: &mut Txn, goal: Goal, now: i64, expected: &[Action]) {
    let mut event = Event::Go(goal);
    for action in expected {
        assert_eq!(txn.next(event, now, false), *action);
        event = Event::Done;
    }
}

#[test]
fn state_is_written_before_positions_and_both_before_the_commit() {
    let mut txn = Txn::new(true);
    let done = Action::Settled(Outcome::Done);
    check(&mut txn, Goal::Ready, 0, &[Action::Make, Action::Init, done]);
    check(&mut txn, Goal::Open, 0, &[Action::Begin, done]);
    check(&mut txn, Goal::Commit, 0, &[Action::Write, Action::Flush, Action::Offsets, Action::Commit, done]);
    // The broker still writes the end of the last one.
    let next = [Action::Begin, Action::Write, Action::Flush, Action::Wait(6)];
    check(&mut txn, Goal::Commit, 4, &next);
}

#[test]
fn at_least_once_delivers_output_before_it_writes_state() {
    let mut txn = Txn::new(false);
    let done = Action::Settled(Outcome::Done);
    check(&mut txn, Goal::Open, 0, &[Action::Make, done]);
    check(&mut txn, Goal::Commit, 0, &[Action::Flush, Action::Write, Action::Flush, Action::Offsets, done]);
}

#[test]
fn without_more_time_a_commit_that_may_have_happened_costs_the_producer_and_the_rest_is_aborted() {
    let begin = |goal: Goal| {
        let mut txn = Txn::new(true);
        check(&mut txn, Goal::Open, 0, &[Action::Make, Action::Init, Action::Begin, Action::Settled(Outcome::Done)]);
        (txn.next(Event::Go(goal), 0, false), txn)
    };
    let undone = Action::Settled(Outcome::Undone);
    let (action, mut txn) = begin(Goal::Commit);
    assert_eq!(action, Action::Write);
    assert_eq!(txn.next(Event::Done, 20, false), Action::Flush);
    assert_eq!(txn.next(Event::Late, 20, false), Action::Abort);
    assert_eq!(txn.next(Event::Done, 20, false), undone);
    let (_, mut txn) = begin(Goal::Commit);
    for action in [Action::Flush, Action::Offsets, Action::Commit] {
        assert_eq!(txn.next(Event::Done, 20, false), action);
    }
    assert_eq!(txn.next(Event::Late, 20, false), Action::Drop);
    assert_eq!(txn.next(Event::Done, 20, false), undone);
    let (action, mut txn) = begin(Goal::Abandon);
    assert_eq!(action, Action::Abort);
    assert_eq!(txn.next(Event::Late, 20, false), Action::Drop);
    assert_eq!(txn.next(Event::Done, 20, false), undone);
}

#[test]
fn a_rival_is_told_from_the_timeout_of_the_broker_by_how_often_it_fences() {
    let mut txn = Txn::new(true);
    let mut fence = |now: i64| {
        let mut action = txn.next(Event::Go(Goal::Open), now, false);
        while action != Action::Begin {
            action = txn.next(Event::Done, now, false);
        }
        txn.next(Event::Fatal { fenced: true }, now, false)
    };
    assert_ne!(fence(0), Action::Rival);
    assert_ne!(fence(50_000), Action::Rival);
    assert_ne!(fence(100_000), Action::Rival);
    assert_eq!(fence(105_000), Action::Rival);
}
