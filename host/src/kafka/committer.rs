//! Does what `txn.rs` says, against Kafka: produces, writes state and markers, commits, and lets go of producers that
//! cannot be believed.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::RDKafkaErrorCode;

use super::buried::Buried;
use super::changelog::{self, MARKER_KEY, Marker, StageMarker};
use super::checkpoints::Checkpoints;
use super::client::Clients;
use super::group::Place;
use super::inbox::Tokens;
use super::member::Slot;
use super::raw::{Fault, GroupMetadata, Producer, Record};
use super::rounds::Rounds;
use super::token::Token;
use super::txn::{Action, Event, Goal, Txn};
use crate::files::Trouble;
use crate::files::source::Position;
use crate::ops::Seat;
use crate::plan::Plan;
use crate::task::{Sealed, Sum, Task};
use crate::worker::{Became, Came, Outcome};

mod ahead;
mod patience;

/// How long a run that ends, or tasks that leave, may take for a last checkpoint.
const LAST: Duration = Duration::from_secs(1);
/// One slice of waiting for the client, ms: its queue is served in between.
const SLICE: i32 = 20;

/// What the cluster answers to a user who may not.
const REFUSALS: [RDKafkaErrorCode; 3] = [
    RDKafkaErrorCode::TransactionalIdAuthorizationFailed,
    RDKafkaErrorCode::TopicAuthorizationFailed,
    RDKafkaErrorCode::ClusterAuthorizationFailed,
];

/// What a committer is made of.
pub struct Setup {
    /// How to reach the cluster.
    pub clients: Clients,
    /// Name in transactions; none: at least once.
    pub transactional: Option<String>,
    /// The topics of the outbox's targets, by number; changelogs behind them.
    pub topics: Vec<String>,
    /// Number of the changelog topic of each source topic.
    pub changelogs: BTreeMap<Arc<str>, usize>,
    /// Partitions of each source topic.
    pub partitions: BTreeMap<Arc<str>, u32>,
    /// The member of the group.
    pub consumer: Slot,
    /// Last tokens of what is owned.
    pub tokens: Tokens,
    /// Set when the run is to stop.
    pub stop: Arc<AtomicBool>,
    /// Where checkpoints are; none: there are none.
    pub checkpoints: Option<Checkpoints>,
    /// How long it may take to stop.
    pub patience: Duration,
}

/// Produces and commits.
pub struct Committer {
    setup: Setup,
    txn: Txn,
    producer: Option<Producer>,
    /// What made the running interval void.
    broken: Option<Fault>,
    began: Instant,
    /// When the group no longer waits.
    deadline: Option<Instant>,
    /// When all of the last commit was delivered.
    delivered: Instant,
    stop_seen: Option<Instant>,
    /// What is being committed.
    closing: Closing,
    /// What is still to be taken out of changelogs.
    buried: Buried,
    /// Of commits that failed, as far as is known.
    unclear: HashMap<Place, Effects>,
    /// The checkpoints; none: there are none.
    rounds: Option<Rounds>,
    /// Where it is told that it still tries.
    seat: Option<Arc<Seat>>,
}

/// Positions and tokens of the commit that is running.
#[derive(Default)]
struct Closing {
    offsets: Vec<(Place, i64, Token)>,
    effects: HashMap<Place, Effects>,
}

/// What follows when the commit of a task is durable.
struct Effects {
    marker: Marker,
    /// How much of what waits to be taken out of its changelog is in it, and what waits from then on.
    buried: usize,
    dropped: Vec<Sealed>,
    /// Sheaves that went with each of what was dropped.
    below: Vec<usize>,
}

/// What a commit writes.
struct Work<'a, 'b> {
    plan: &'a Plan,
    tasks: &'a mut [&'b mut Task],
    source: &'a Position,
}

impl Committer {
    /// Makes its producer when it is first needed.
    pub fn new(setup: Setup) -> Committer {
        let txn = Txn::guarded(setup.transactional.is_some(), setup.clients.guards);
        let (began, closing) = (Instant::now(), Closing::default());
        let (producer, broken, stop_seen) = (None, None, None);
        let rounds = setup.checkpoints.clone().map(|store| Rounds::new(store, setup.consumer.clone()));
        let buried = Buried::default();
        Committer {
            setup,
            txn,
            producer,
            broken,
            began,
            delivered: Instant::now(),
            deadline: None,
            stop_seen,
            closing,
            unclear: HashMap::new(),
            buried,
            rounds,
            seat: None,
        }
    }

    /// Tells at this seat that it still tries: a broker that is away is no reason to be taken for dead.
    pub fn tell(&mut self, seat: Arc<Seat>) {
        self.seat = Some(seat);
    }

    /// Makes the producer ready, and ends what the last holder of the name left open.
    pub fn open(&mut self) -> Result<(), Trouble> {
        // Positions that were pending are settled by it, which those who restore wait for.
        // If the group waits meanwhile, the next transaction does it.
        while self.drive(Goal::Ready, None)? == Outcome::Undone && self.deadline.is_none() {}
        Ok(())
    }

    /// As `open`, unless the group waits: then the next transaction does it. Whoever asks for positions meanwhile is told
    /// none while they are pending.
    fn reopen(&mut self) -> Result<(), Trouble> {
        if self.deadline.is_some() { Ok(()) } else { self.open() }
    }

    /// Hands a record to the producer. What goes wrong makes the interval void, which `commit` says.
    pub fn produce(&mut self, record: &Record<'_>) -> Result<(), Trouble> {
        if self.broken.is_some() {
            return Ok(());
        }
        self.deadline = None;
        if !self.txn.is_open() && self.drive(Goal::Open, None)? == Outcome::Undone {
            let why = "the transaction could not begin";
            self.broken = self.broken.take().or(Some(Fault::of(RDKafkaErrorCode::InvalidTransactionalState, why)));
            return Ok(());
        }
        while let Some(producer) = &mut self.producer {
            match producer.produce(record) {
                // So much is on its way that more would make the next commit long.
                Err(fault) if fault.code == RDKafkaErrorCode::QueueFull => producer.serve(2),
                done => {
                    self.broken = done.err();
                    break;
                }
            }
            beat(self.seat.as_ref());
            self.watch_stop()?;
            self.watch_group();
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let why = "the brokers take no records, and the group waits";
                self.broken = Some(Fault::of(RDKafkaErrorCode::QueueFull, why));
                break;
            }
        }
        Ok(())
    }

    /// Nothing is there to be done: what was produced need not wait for more. Waits a moment, so that it can begin.
    pub fn rest(&mut self) {
        if let Some(producer) = self.producer.as_mut().filter(|_| self.txn.is_open()) {
            producer.flush(1);
        }
    }

    /// Makes durable what was produced since the last commit, with the state of these tasks and their positions.
    /// `leaving`: partitions are to be given back, and the group waits: there is little time for it.
    pub fn commit(
        &mut self,
        plan: &Plan,
        tasks: &mut [&mut Task],
        source: &Position,
        leaving: bool,
    ) -> Result<Outcome, Trouble> {
        self.deadline = leaving.then(|| Instant::now() + self.setup.clients.revoke_patience());
        let outcome = self.close(plan, tasks, source);
        self.deadline = None;
        let outcome = outcome?;
        // Who takes an undone commit for done keeps its state.
        Ok(if self.setup.clients.guards.undo { outcome } else { Outcome::Done })
    }

    fn close(&mut self, plan: &Plan, tasks: &mut [&mut Task], source: &Position) -> Result<Outcome, Trouble> {
        if let Some(fault) = self.broken.take() {
            tracing::warn!("what was done since the last commit is done again: {fault}");
            self.drive(Goal::Abandon, None)?;
            self.give_up();
            self.reopen()?;
            return Ok(Outcome::Undone);
        }
        if tasks.is_empty() && !self.txn.is_open() {
            return Ok(Outcome::Done);
        }
        let began = Instant::now();
        let outcome = self.drive(Goal::Commit, Some(Work { plan, tasks, source }))?;
        let micros = |since: Instant| u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(whole_us = micros(began), delivered_us = micros(self.delivered), "committed");
        if outcome == Outcome::Undone {
            // What it had in it counts if it turns out to be durable.
            self.unclear.extend(self.closing.effects.drain());
            self.give_up();
            self.reopen()?;
            return Ok(outcome);
        }
        for (place, ..) in std::mem::take(&mut self.closing.offsets) {
            if let Some(known) = self.setup.tokens.borrow_mut().get_mut(&place)
                && let Some(token) = known.tried.take()
            {
                known.last = token;
            }
            if let Some(effects) = self.closing.effects.remove(&place) {
                self.lasts(&place, effects);
            }
        }
        Ok(outcome)
    }

    /// The last commit of a task is durable.
    fn lasts(&mut self, place: &Place, effects: Effects) {
        if let Some(rounds) = &mut self.rounds {
            rounds.committed(place.clone(), effects.marker);
        }
        self.buried.done(place, effects.buried);
        self.buried.bury(place, effects.dropped, effects.below);
    }

    fn changelog(&self, topic: &str) -> Option<&String> {
        self.setup.topics.get(*self.setup.changelogs.get(topic)?)
    }

    /// Goes on with checkpoints; call it right after a commit that is durable. `begins`: it is time for the next ones.
    pub fn checkpoint(&mut self, plan: &Plan, tasks: &[&mut Task], begins: bool) {
        let Some(mut rounds) = self.rounds.take() else { return };
        if begins {
            rounds.ask(|place| self.changelog(&place.0).cloned());
        }
        rounds.go_on(plan, tasks, &self.buried);
        self.rounds = Some(rounds);
    }

    /// Writes the checkpoints of tasks that leave, or of a run that ends, as far as there is time.
    pub fn last_checkpoint<'t>(&mut self, plan: &Plan, tasks: impl Iterator<Item = &'t Task>) {
        let Some(mut rounds) = self.rounds.take() else { return };
        let until = Instant::now() + LAST;
        let place = |task: &Task| task.marker().inputs.first().map(|i| (Arc::clone(&i.topic), i.partition));
        let mut tasks: Vec<(Place, &Task)> = tasks.filter_map(|task| Some((place(task)?, task))).collect();
        // Whose checkpoint is the oldest comes first: the time may not do for all.
        tasks.sort_by_key(|(place, _)| std::cmp::Reverse(rounds.behind(place)));
        for (place, task) in tasks {
            let changelog = self.changelog(&place.0).cloned();
            rounds.finish(plan, task, &place, changelog, &self.buried, until);
        }
        self.rounds = Some(rounds);
    }

    /// A task is somebody else's.
    pub fn forget(&mut self, place: &Place) {
        self.buried.forget(place);
        self.unclear.remove(place);
        self.rounds.iter_mut().for_each(|rounds| rounds.forget(place));
    }

    /// All tasks begin anew.
    fn give_up(&mut self) {
        self.rounds.iter_mut().for_each(Rounds::give_up);
    }

    /// A task came. What is still in its changelog of spaces that were dropped is taken away from now on.
    pub fn came(&mut self, place: &Place, how: Came) {
        let unclear = self.unclear.remove(place);
        match how {
            Came::Kept(Became::Durable) => unclear.into_iter().for_each(|effects| self.lasts(place, effects)),
            Came::Kept(Became::Nothing) => {}
            Came::Restored(outside) => {
                // What its last commit in this process said may be long ago.
                self.forget(place);
                self.buried.found(place, outside);
            }
        }
    }

    /// The plan is another one: slices of checkpoints that are under way do not fit it.
    pub fn reload(&mut self) {
        self.rounds.iter_mut().for_each(Rounds::give_up);
    }

    /// Nothing since the last commit has happened.
    pub fn abandon(&mut self) -> Result<(), Trouble> {
        self.broken = None;
        self.give_up();
        self.deadline = Some(Instant::now() + self.setup.clients.revoke_patience());
        let done = self.drive(Goal::Abandon, None);
        self.deadline = None;
        done.map(drop)
    }

    /// Does what the transaction needs until it is settled.
    fn drive(&mut self, goal: Goal, mut work: Option<Work<'_, '_>>) -> Result<Outcome, Trouble> {
        let mut event = Event::Go(goal);
        loop {
            let now = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
            let tainted = self.producer.as_mut().is_some_and(|producer| {
                producer.serve(0);
                self.seat.iter().for_each(|seat| seat.sent_again(producer.take_cuts()));
                producer.take_taint()
            });
            let action = self.txn.next(event, now, tainted);
            if event == Event::Again {
                beat(self.seat.as_ref());
            }
            if event == Event::Again {
                self.watch_stop()?;
                self.watch_group();
            }
            let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            event = match action {
                Action::Settled(outcome) => return Ok(outcome),
                Action::Rival => {
                    return Err(Trouble::new(
                        format!(
                            "another process took over the transactions of {} again and again",
                            self.setup.transactional.as_deref().unwrap_or_default()
                        ),
                        "two processes have the same `run.instance`: give each its own",
                    ));
                }
                Action::Wait(_) if late => Event::Done,
                Action::Wait(ms) => {
                    std::thread::sleep(Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
                    self.watch_stop()?;
                    Event::Done
                }
                Action::Make => {
                    let config = self.setup.clients.producer(self.setup.transactional.as_deref());
                    let made = Producer::new(&config, &self.setup.topics).map_err(|fault| {
                        Trouble::new(
                            format!("the Kafka producer cannot be made: {fault}"),
                            "check the `properties` of source and sink",
                        )
                    })?;
                    self.producer = Some(made);
                    Event::Done
                }
                Action::Drop => {
                    tracing::info!("the producer is made anew: not every answer to it came, or was clear");
                    self.producer = None;
                    Event::Done
                }
                action => match self.act(action, work.as_mut())? {
                    Event::Again if late => {
                        tracing::warn!(
                            "{action:?} takes too long, and the group waits: what is not committed is given up"
                        );
                        Event::Late
                    }
                    event => event,
                },
            };
        }
    }

    /// One step that needs the producer.
    fn act(&mut self, action: Action, work: Option<&mut Work<'_, '_>>) -> Result<Event, Trouble> {
        let Some(producer) = &mut self.producer else { return Ok(Event::Fatal { fenced: false }) };
        let done = match action {
            Action::Init => producer.init_transactions(500),
            Action::Begin => producer.begin(),
            Action::Flush => {
                let all = producer.flush(SLICE);
                match producer.failed() {
                    Some(fault) => Err(fault.clone()),
                    None if all => {
                        self.delivered = Instant::now();
                        Ok(())
                    }
                    None => return Ok(Event::Again),
                }
            }
            Action::Write => match work {
                Some(work) => return self.write(work),
                None => Ok(()),
            },
            Action::Offsets => return Ok(self.offsets()),
            Action::Commit => producer.commit(SLICE),
            Action::Abort => producer.abort(SLICE),
            _ => Ok(()),
        };
        match done.as_ref().err().filter(|fault| REFUSALS.contains(&fault.code)) {
            Some(fault) => Err(self.refused(fault)),
            None => Ok(event(action, done)),
        }
    }

    /// To try again would not help a user who may not.
    fn refused(&self, fault: &Fault) -> Trouble {
        let ids = self.setup.transactional.as_deref().map_or("", |id| id.split('.').next().unwrap_or(id));
        Trouble::new(
            format!("Kafka does not let this user write: {}", fault.text),
            format!(
                "it needs WRITE on the topics of sink and changelog, and on the transactional ids that begin with `{ids}.`"
            ),
        )
    }

    /// Changes of state and a marker for each task.
    fn write(&mut self, work: &mut Work<'_, '_>) -> Result<Event, Trouble> {
        let began = Instant::now();
        self.closing = Closing::default();
        let Some(producer) = &mut self.producer else { return Ok(Event::Fatal { fenced: false }) };
        for task in work.tasks.iter_mut() {
            let Some(input) = task.marker().inputs.first().cloned() else { continue };
            let place: Place = (Arc::clone(&input.topic), input.partition);
            let next = work.source.next.iter().find(|(i, _)| *i == input).map(|(_, next)| *next);
            // A task whose position is not known is not ours any more.
            let Some(next) = next else { return Ok(Event::Abortable) };
            let dropped = task.dropped(work.plan);
            // Only in a transaction is a commit that failed as if it had never been.
            let sealed = match self.setup.transactional {
                Some(_) => task.seal_pending(work.plan),
                None => task.seal(work.plan),
            };
            let token = Token {
                sequence: next_sequence(&self.setup.tokens, &place),
                nonce: nonce(),
                watermark: task.marker().event.now().time,
                entries: task.entries(),
                digest: task.digest(),
            };
            if let Some(&topic) = self.setup.changelogs.get(&place.0) {
                let marker = Marker {
                    token: token.to_string(),
                    next: vec![(input, next)],
                    partitions: self.setup.partitions.get(&place.0).copied().unwrap_or(0),
                    task: task.marker().clone(),
                    stages: stages(&sealed, &task.sums(work.plan)),
                };
                let written = changelog::write_marker(&marker).map_err(|error| {
                    Trouble::new(format!("the marker cannot be written: {error}"), "this is a defect: report it")
                })?;
                let has = |stage: &str, space: i64, key: u128| task.has(work.plan, stage, space, key);
                let (buried, count) = self.buried.next(&place, &dropped, has);
                let mut pack = producer.pack();
                let mut put = |key: &[u8], value: Option<&[u8]>| pack.push(key, value);
                let below = self.buried.below(&place, &dropped);
                for state in &sealed {
                    let number = || self.buried.number(&place, &state.stage, &dropped, ahead::sheaf_number);
                    changelog::records(state, token.sequence, number, &mut put);
                }
                buried.iter().for_each(|state| changelog::burials(state, &mut put));
                put(MARKER_KEY, Some(&written));
                self.closing.effects.insert(place.clone(), Effects { marker, buried: count, dropped, below });
                if let Err(fault) = producer.produce_pack(topic, place.1, pack, || beat(self.seat.as_ref())) {
                    return Ok(event(Action::Write, Err(fault)));
                }
            }
            self.setup.tokens.borrow_mut().entry(place.clone()).or_default().tried = Some(token.clone());
            self.closing.offsets.push((place, next, token));
        }
        if let (Some(seat), false) = (&self.seat, self.closing.effects.is_empty()) {
            seat.state_committed(began.elapsed());
        }
        Ok(Event::Done)
    }

    /// Positions with their tokens, into the transaction; at least once: to the group.
    fn offsets(&mut self) -> Event {
        let Some(producer) = &mut self.producer else { return Event::Fatal { fenced: false } };
        let mut list = TopicPartitionList::new();
        for ((topic, partition), next, token) in &self.closing.offsets {
            let mut place = list.add_partition(topic, *partition);
            if place.set_offset(rdkafka::Offset::Offset(*next)).is_err() {
                return Event::Abortable;
            }
            place.set_metadata(token.to_string());
        }
        let consumer = self.setup.consumer.borrow();
        let Some(consumer) = consumer.as_deref() else { return Event::Abortable };
        // The broker does not check who owns a partition. Ours are ours until we answer a revoke, and a member that
        // lost them has no generation, or has it only after that answer.
        let guarded = self.setup.clients.guards.generation;
        if list.count() == 0 || (guarded && consumer.assignment_lost()) {
            return Event::Abortable;
        }
        let group = match guarded {
            true => GroupMetadata::of(consumer),
            false => GroupMetadata::outside(&self.setup.clients.group),
        };
        let Some(group) = group else {
            tracing::info!("no member of a generation of the group: what was done since the last commit is done again");
            return Event::Abortable;
        };
        if self.setup.transactional.is_some() {
            return event(Action::Offsets, producer.send_offsets(&list, &group, 1000));
        }
        match consumer.commit(&list, CommitMode::Sync) {
            Ok(()) => Event::Done,
            Err(error) => {
                tracing::warn!("the positions were not committed: {error}");
                Event::Abortable
            }
        }
    }
}

/// Number of the commit of a task that comes next.
fn next_sequence(tokens: &Tokens, place: &Place) -> u64 {
    tokens.borrow().get(place).map_or(0, |known| known.last.sequence) + 1
}

/// Tells that it still tries.
fn beat(seat: Option<&Arc<Seat>>) {
    if let Some(seat) = seat {
        seat.beat();
    }
}

/// Hands a record over; a full queue is waited for.
pub fn hand_over(producer: &mut Producer, record: &Record<'_>) -> Result<(), Fault> {
    loop {
        match producer.produce(record) {
            Err(fault) if fault.code == RDKafkaErrorCode::QueueFull => producer.serve(2),
            other => return other,
        }
    }
}

/// What an answer of the client means.
fn event(action: Action, done: Result<(), Fault>) -> Event {
    let Err(fault) = done else { return Event::Done };
    if fault.retriable {
        tracing::debug!("{action:?}: {fault}");
        return Event::Again;
    }
    tracing::warn!("{action:?}: {fault}");
    match fault.abort && !fault.fatal {
        true => Event::Abortable,
        false => Event::Fatal { fenced: fault.is_fenced() },
    }
}

/// What the marker says of each stage; of those that are gone, nothing.
pub fn stages(sealed: &[Sealed], sums: &BTreeMap<String, Sum>) -> Vec<StageMarker> {
    let of = |state: &Sealed| {
        let Sum { digest, numbers, layout } = *sums.get(&state.stage)?;
        Some(StageMarker { stage: state.stage.clone(), identity: state.identity.clone(), digest, numbers, layout })
    };
    sealed.iter().filter_map(of).collect()
}

/// A number that no other attempt has.
pub fn nonce() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
