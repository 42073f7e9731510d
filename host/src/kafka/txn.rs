//! What to do next with a transaction, and with the producer that holds it. Pure: events in, one action out; the
//! committer does it against Kafka, a simulator against a model of it.
//!
//! Exactly once: begin, outputs and what state can be ahead of the close (committer/ahead.rs), then to close: write the
//! rest of the state and the marker, flush, put the positions in, commit. At least once there is no transaction: outputs are flushed before state is written, and state before positions are committed.
//!
//! Two rules stand above all. After an answer that is not clear the client is not believed: the producer goes, and what
//! happened is read from Kafka. And a producer some request of which may have a late copy (tainted) goes before the next
//! transaction begins: a late copy of an end would end a later transaction (KAFKA-17754).

use crate::worker::Outcome;

/// Least time between a commit and the next positions, ms: the broker still writes the last end.
const APART: i64 = 10;
/// So many fences in so many ms are a rival, not the broker's timeout.
const RIVAL: (usize, i64) = (3, 60_000);
/// Longest pause between two tries, ms.
const LONGEST: i64 = 10_000;

/// What the worker wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// A producer, and nothing open from before.
    Ready,
    /// To produce.
    Open,
    /// To make durable what was produced.
    Commit,
    /// That nothing of it happened.
    Abandon,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The worker wants something.
    Go(Goal),
    /// The last action is done.
    Done,
    /// It is not, and may be tried again as it was.
    Again,
    /// It is not, and there is no more time: others wait. What was not committed by now must not happen.
    Late,
    /// It failed; the transaction can be aborted.
    Abortable,
    /// The producer cannot go on.
    Fatal {
        /// A rival took over, or the broker gave the transaction up.
        fenced: bool,
    },
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a producer.
    Make,
    /// End what the last holder of the name left open.
    Init,
    /// Begin a transaction.
    Begin,
    /// Produce changes of state and markers.
    Write,
    /// Wait until all is delivered.
    Flush,
    /// Put positions into the transaction; at least once: commit them.
    Offsets,
    /// Commit.
    Commit,
    /// Abort.
    Abort,
    /// Let go of the producer.
    Drop,
    /// Wait so many ms.
    Wait(i64),
    /// It is over: what the worker wanted happened, or nothing did.
    Settled(Outcome),
    /// Another holder of the same name fences this one again and again.
    Rival,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No producer.
    None,
    /// A producer that has not ended what was left open.
    Made,
    /// No transaction.
    Ready,
    /// A transaction, and how many steps of closing it are done.
    Open(usize),
    /// Being aborted.
    Aborting,
}

/// The steps of closing.
const EXACTLY_ONCE: [Action; 4] = [Action::Write, Action::Flush, Action::Offsets, Action::Commit];
const WITHOUT_POSITIONS: [Action; 4] = [Action::Write, Action::Flush, Action::Flush, Action::Commit];
const AT_LEAST_ONCE: [Action; 4] = [Action::Flush, Action::Write, Action::Flush, Action::Offsets];

/// Guards of the invariants I3 to I6 that tests switch off, to see that the absence of each is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards {
    /// A tainted producer goes before the next transaction.
    pub taint: bool,
    /// A producer goes after an answer that is not clear.
    pub doubt: bool,
    /// Every transaction carries positions: they are what the broker fences a former owner by.
    pub positions: bool,
    /// Positions are those of a member of the group's present generation (committer.rs).
    pub generation: bool,
    /// State goes with the transaction that is undone (committer.rs).
    pub undo: bool,
    /// Positions are read when no transaction that changes them is open (restore.rs).
    pub stable: bool,
    /// State is read up to the token of the position, not to wherever the changelog ends (restore.rs).
    pub token: bool,
    /// Restored state has the digest that was committed (inbox.rs).
    pub digest: bool,
}

impl Default for Guards {
    fn default() -> Guards {
        Guards {
            taint: true,
            doubt: true,
            positions: true,
            generation: true,
            undo: true,
            stable: true,
            token: true,
            digest: true,
        }
    }
}

impl Guards {
    /// A word for each.
    pub const WORDS: [&str; 8] = ["taint", "doubt", "positions", "generation", "undo", "stable", "token", "digest"];

    /// All but those that a list of words names, with commas between. An error is a word that names none.
    pub fn without(words: &str) -> Result<Guards, String> {
        let mut guards = Guards::default();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let guard = match word {
                "taint" => &mut guards.taint,
                "doubt" => &mut guards.doubt,
                "positions" => &mut guards.positions,
                "generation" => &mut guards.generation,
                "undo" => &mut guards.undo,
                "stable" => &mut guards.stable,
                "token" => &mut guards.token,
                "digest" => &mut guards.digest,
                other => return Err(other.to_owned()),
            };
            *guard = false;
        }
        Ok(guards)
    }
}

/// The transaction of one worker.
#[derive(Clone, Debug)]
pub struct Txn {
    phase: Phase,
    /// Outputs, state and positions are one transaction.
    transactional: bool,
    steps: &'static [Action; 4],
    goal: Goal,
    /// What was asked for last.
    last: Action,
    /// When the last commit was, ms.
    committed: Option<i64>,
    fences: Vec<i64>,
    /// Failures since the last commit.
    failures: u32,
    /// The producer goes, whatever it says.
    doubted: bool,
    /// What the worker will hear once the rest is put in order.
    outcome: Option<Outcome>,
    /// The pause after a failure was made.
    paused: bool,
    guards: Guards,
}

impl Txn {
    /// No producer yet.
    pub fn new(exactly_once: bool) -> Txn {
        Txn::guarded(exactly_once, Guards::default())
    }

    /// With some guards off.
    pub fn guarded(exactly_once: bool, guards: Guards) -> Txn {
        Txn {
            phase: Phase::None,
            transactional: exactly_once,
            steps: match (exactly_once, guards.positions) {
                (true, true) => &EXACTLY_ONCE,
                (true, false) => &WITHOUT_POSITIONS,
                (false, _) => &AT_LEAST_ONCE,
            },
            goal: Goal::Open,
            last: Action::Settled(Outcome::Done),
            committed: None,
            fences: Vec::new(),
            failures: 0,
            doubted: false,
            outcome: None,
            paused: false,
            guards,
        }
    }

    /// Whether there is a transaction that can be produced into.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open(0)
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The next action. `now`: ms, only differences count. `tainted`: whether a request since the last call may have a
    /// late copy.
    pub fn next(&mut self, event: Event, now: i64, tainted: bool) -> Action {
        let inside = matches!(self.phase, Phase::Open(_) | Phase::Aborting);
        self.doubted |= tainted && inside && self.guards.taint && self.transactional;
        let action = self.decide(event, now);
        self.last = action;
        action
    }

    fn decide(&mut self, event: Event, now: i64) -> Action {
        match event {
            Event::Go(goal) => {
                (self.goal, self.outcome, self.paused) = (goal, None, false);
                if goal == Goal::Abandon {
                    self.undo();
                }
            }
            Event::Again => return self.last,
            Event::Done => self.done(now),
            Event::Late => {
                self.paused = true;
                match self.last {
                    // A commit that may have happened cannot be aborted, and an abort that takes too long is left to
                    // the next holder of the name.
                    Action::Commit | Action::Abort => {
                        (self.doubted, self.outcome) = (true, Some(Outcome::Undone));
                        self.phase = Phase::Ready;
                    }
                    _ => self.undo(),
                }
            }
            Event::Abortable => {
                self.failures += 1;
                // An answer to a commit that is not clear: it may have happened. What cannot be aborted cannot go on.
                self.doubted |= (self.guards.doubt && self.last == Action::Commit) || self.last == Action::Abort;
                let aborting = self.last == Action::Abort;
                self.undo();
                if aborting {
                    self.phase = Phase::Ready;
                }
            }
            Event::Fatal { fenced } => {
                self.failures += 1;
                (self.doubted, self.outcome) = (true, Some(Outcome::Undone));
                if self.phase != Phase::None {
                    self.phase = Phase::Ready;
                }
                if fenced {
                    self.fences.retain(|at| now - at <= RIVAL.1);
                    self.fences.push(now);
                }
                if self.fences.len() >= RIVAL.0 {
                    return Action::Rival;
                }
            }
        }
        self.go_on(now)
    }

    /// The transaction, if there is one, must not happen.
    fn undo(&mut self) {
        self.outcome = Some(Outcome::Undone);
        self.phase = match self.phase {
            Phase::Open(_) | Phase::Aborting if self.transactional => Phase::Aborting,
            // Without transactions what was produced stays; what is still on its way must not come behind what is
            // produced again.
            Phase::Open(_) | Phase::Aborting => {
                self.doubted = true;
                Phase::Ready
            }
            phase => phase,
        };
    }

    fn done(&mut self, now: i64) {
        match self.last {
            Action::Make => {
                self.doubted = false;
                self.phase = if self.transactional { Phase::Made } else { Phase::Ready };
            }
            Action::Init | Action::Abort => self.phase = Phase::Ready,
            Action::Begin => self.phase = Phase::Open(0),
            Action::Drop => (self.phase, self.doubted) = (Phase::None, false),
            Action::Wait(_) => self.paused = self.outcome.is_some(),
            Action::Write | Action::Flush | Action::Offsets | Action::Commit => {
                let Phase::Open(step) = self.phase else { return };
                self.phase = Phase::Open(step + 1);
                if step + 1 == self.steps.len() {
                    (self.phase, self.outcome) = (Phase::Ready, Some(Outcome::Done));
                    (self.committed, self.failures) = (Some(now), 0);
                }
            }
            Action::Settled(_) | Action::Rival => {}
        }
    }

    fn go_on(&mut self, now: i64) -> Action {
        if self.phase == Phase::Aborting {
            return Action::Abort;
        }
        // Before anything begins, and after all has ended, a doubtful producer goes.
        if self.doubted && matches!(self.phase, Phase::Made | Phase::Ready) {
            return Action::Drop;
        }
        if let Some(outcome) = self.outcome {
            let again = outcome == Outcome::Undone && self.failures > 1 && !self.paused;
            return match again {
                true => Action::Wait((100i64 << self.failures.min(10)).min(LONGEST)),
                false => Action::Settled(outcome),
            };
        }
        match self.phase {
            Phase::None => Action::Make,
            Phase::Made => Action::Init,
            Phase::Ready if self.goal == Goal::Ready => Action::Settled(Outcome::Done),
            Phase::Ready if self.transactional => Action::Begin,
            Phase::Ready => {
                self.phase = Phase::Open(0);
                self.go_on(now)
            }
            Phase::Open(_) if self.goal != Goal::Commit => Action::Settled(Outcome::Done),
            Phase::Open(step) => {
                let action = self.steps.get(step).copied().unwrap_or(Action::Abort);
                let apart = self.committed.map_or(APART, |at| now - at);
                if action == Action::Offsets && self.transactional && apart < APART {
                    return Action::Wait(APART - apart);
                }
                action
            }
            Phase::Aborting => Action::Abort,
        }
    }
}

#[cfg(test)]
#[path = "txn_tests.rs"]
mod tests;
