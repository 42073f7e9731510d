//! The inbox of a pipeline on Kafka: the queues of the partitions that this member owns, what the group decides about
//! them, and the state that is restored for new ones.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use rdkafka::consumer::Consumer;

use super::attempts::{Attempt, Attempts};
use super::group::Place;
use super::member::Member;
pub use super::owned::Settings;
use super::owned::{Owned, Stage, fill};
use super::raw::high_watermark;
use super::reading::Restored;
use super::restore::{Answer, Begin, Job};
use super::run::lost;
use super::token::{Known, Token};
use super::watchdog::Watchdog;
use crate::chain::Chain;
use crate::files::Trouble;
use crate::files::source::{Polled, Polling, Position};
use crate::ops::{Phase, Seat};
use crate::plan::Plan;
use crate::task::{Input, Task};
use crate::time::Forward;
use crate::worker::{Became, Event, Inbox, Joined};

mod hearing;

/// A signal is noticed within this time.
const ATTENTION: Duration = Duration::from_millis(50);
/// Between two times that it is told how far behind partitions are.
const REPORT: Duration = Duration::from_secs(1);

/// What is known of the commits of every partition that is owned, or was lost; inbox and outbox share it.
pub type Tokens = Rc<RefCell<HashMap<Place, Known>>>;

/// Says whether a plan may use kept state: stage and what it was made with, of all stages.
pub type Judge<'a> = Box<dyn Fn(&Plan, &BTreeMap<String, serde_json::Value>) -> Result<(), Trouble> + 'a>;

/// The inbox.
pub struct KafkaInbox<'a> {
    owned: Vec<Owned>,
    /// Whose turn it is.
    turn: usize,
    /// Bytes of the last batch: when it is done with, the next one goes there.
    arena: Arc<Vec<u8>>,
    /// Records were given since it waited last.
    busy: bool,
    inputs: Vec<Input>,
    numbers: HashMap<Place, u16>,
    settings: Settings,
    /// What is remembered of runs that ended of themselves.
    attempts: Attempts,
    /// The same of partitions that begin anew.
    tried: HashMap<Place, Attempt>,
    /// What every request to restore has in common.
    job: Job,
    answers: Receiver<Answer>,
    tokens: Tokens,
    judge: Judge<'a>,
    plan: Arc<Plan>,
    stop: Arc<AtomicBool>,
    clock: Forward,
    /// The group has spoken at least once.
    assigned: bool,
    /// Places whose positions are asked for.
    asked: Vec<Place>,
    /// Places that came with more partitions, and are not read.
    grown: Vec<Place>,
    /// Places that the worker is letting go of.
    leaving: Option<Vec<Place>>,
    /// They are somebody else's already, or were; the worker keeps their tasks for a while.
    were_lost: bool,
    ended: bool,
    /// With `until: end`, where each partition ended at first.
    ends: HashMap<Place, i64>,
    /// What the tasks which are here had dropped before they came: duplicates, and filtered records.
    lost: HashMap<Place, (u64, u64)>,
    /// Where it is told that the loop turns, what it does, how far behind it is; when that was told last.
    seat: Option<(Arc<Seat>, Phase, Instant)>,
    watchdog: Watchdog,
    /// No broker answered, as far as is known.
    away: bool,
    /// Last, so that the queues go first.
    member: Member,
}

impl<'a> KafkaInbox<'a> {
    /// An inbox over a member of the group. `job`: what requests to restore have in common; its places and channel are
    /// set here.
    pub fn new(
        member: Member,
        settings: Settings,
        attempts: Attempts,
        job: impl FnOnce(Sender<Answer>) -> Job,
        tokens: Tokens,
        judge: Judge<'a>,
        plan: Arc<Plan>,
        stop: Arc<AtomicBool>,
    ) -> KafkaInbox<'a> {
        let (say, answers) = channel();
        KafkaInbox {
            owned: Vec::new(),
            turn: 0,
            arena: Arc::default(),
            busy: false,
            inputs: Vec::new(),
            numbers: HashMap::new(),
            settings,
            attempts,
            tried: HashMap::new(),
            job: job(say),
            answers,
            tokens,
            judge,
            plan,
            stop,
            clock: Forward::default(),
            assigned: false,
            asked: Vec::new(),
            grown: Vec::new(),
            leaving: None,
            were_lost: false,
            ended: false,
            ends: HashMap::new(),
            lost: HashMap::new(),
            seat: None,
            watchdog: Watchdog::new(),
            away: false,
            member,
        }
    }

    /// Tells at this seat what the loop does.
    pub fn tell(&mut self, seat: Arc<Seat>) {
        self.seat = Some((seat, Phase::Starting, Instant::now()));
    }

    /// Tells that the loop turns, whether state is being restored, and once a second how far behind it is.
    fn report(&mut self, may_read: &dyn Fn(u16) -> bool) {
        let Some((seat, phase, told)) = &mut self.seat else { return };
        seat.beat();
        let restoring = !self.asked.is_empty() || self.owned.iter().any(|o| o.stage == Stage::Restoring);
        let now = match (self.assigned, restoring) {
            (false, _) => Phase::Starting,
            (true, true) => Phase::Restoring,
            (true, false) => Phase::Running,
        };
        if std::mem::replace(phase, now) != now {
            seat.enter(now, "");
        }
        if told.elapsed() < REPORT {
            return;
        }
        *told = Instant::now();
        seat.draw();
        if self.away && self.member.is_answered() {
            self.away = false;
            // Whoever was told that it waits is told that it goes on.
            tracing::warn!("brokers answer again: it goes on");
            seat.away(None);
        }
        let slot = self.member.consumer();
        let consumer = slot.borrow();
        let Some(consumer) = consumer.as_deref() else { return };
        for owned in &mut self.owned {
            let reached = owned.reached(consumer.context().fetched.of(&owned.place), self.settings.rows);
            let (topic, partition) = &owned.place;
            let end = high_watermark(consumer, topic, *partition);
            if let Some(end) = end {
                seat.lag(topic, *partition, (end - reached).max(0));
            }
            // Where nothing was ever fetched the end is not known. What was fetched and lost is not to be missed.
            let behind = end.is_none_or(|end| end > owned.taken);
            let waits = behind && owned.stage == Stage::Running && may_read(owned.input) && !self.away;
            self.watchdog.look(&self.job.clients, &owned.place, owned.next, waits);
        }
    }

    /// What the tasks which are here had dropped before they came: duplicates, and filtered records.
    pub fn lost_before(&self) -> (u64, u64) {
        self.lost.values().fold((0, 0), |sum, lost| (sum.0 + lost.0, sum.1 + lost.1))
    }

    /// The run comes to an end by itself, well or not: no record ended it.
    pub fn end_well(&self) {
        self.owned.iter().for_each(|owned| self.attempts.forget(&owned.place));
    }

    /// Asks for the positions and the state of partitions.
    fn ask(&mut self, places: Vec<Place>) -> Result<(), Trouble> {
        self.job.cancelled.store(true, Ordering::Relaxed);
        self.job.epoch += 1;
        self.job.cancelled = Arc::new(AtomicBool::new(false));
        // What is still being restored is asked for again: an answer counts only with the last number.
        let restoring = self.owned.iter().filter(|o| o.stage == Stage::Restoring).map(|o| o.place.clone());
        let mut all = places;
        for place in std::mem::take(&mut self.asked).into_iter().chain(restoring) {
            if !all.contains(&place) {
                all.push(place);
            }
        }
        self.asked = all.clone();
        let mut job = Job { places: all, ..self.job.clone() };
        if self.job.exactly_once {
            job.known = self.tokens.borrow().clone();
        }
        let log = tracing::dispatcher::get_default(Clone::clone);
        let thread = std::thread::Builder::new().name("restore".to_owned());
        let thread = thread.spawn(move || tracing::dispatcher::with_default(&log, || job.run()));
        thread.map(drop).map_err(|e| Trouble::new(format!("no thread: {e}"), "raise the limit of processes"))
    }

    /// Takes partitions whose positions are known: from now on records come, and wait in their queues.
    fn begin(&mut self, begins: Vec<Begin>) -> Result<(), Trouble> {
        let mut new = Vec::new();
        for begin in begins {
            let Begin { place, offset, end, lost } = begin;
            if let (Some((seat, ..)), 1..) = (&self.seat, lost) {
                seat.lost(&place.0, place.1, lost);
            }
            // It was being restored when others came, or it was taken away meanwhile.
            if self.owned.iter().any(|o| o.place == place) || !self.asked.contains(&place) {
                continue;
            }
            let Some(queue) = self.member.queue(&place) else { continue };
            let input = self.number(&place);
            // The end is that of the first time, however often it is read again.
            let end = end.map(|end| *self.ends.entry(place.clone()).or_insert(end));
            if let Some(consumer) = self.member.consumer().borrow().as_deref() {
                consumer.context().fetched.forget(&place);
            }
            new.push((place.clone(), offset));
            let attempt = self.attempts.begin(&place, offset, self.tried.remove(&place));
            let (stage, next, taken) = (Stage::Restoring, offset, offset);
            self.owned.push(Owned { place, input, queue, stage, next, taken, end, attempt });
        }
        self.asked.clear();
        self.member.assign(&new)
    }

    fn restored(&mut self, place: &Place, restored: Restored) -> Result<Option<Event>, Trouble> {
        let Some(owned) = self.owned.iter().find(|o| o.place == *place && o.stage == Stage::Restoring) else {
            return Ok(None);
        };
        let (input, begin) = (owned.input, owned.taken);
        let Restored { token, marker, states, outside, exact, records, warm } = restored;
        let stages = marker.iter().flat_map(|marker| &marker.stages);
        let identities =
            stages.clone().filter_map(|s| Some((s.stage.clone(), serde_json::from_str(&s.identity).ok()?)));
        let identities: BTreeMap<String, serde_json::Value> = identities.collect();
        if !identities.is_empty() {
            (self.judge)(&self.plan, &identities)?;
        }
        if records > 0 || warm {
            let from = if warm { "a checkpoint" } else { "nothing" };
            tracing::info!(topic = &*place.0, partition = place.1, records, from, "state restored");
        }
        if let Some((seat, ..)) = &self.seat {
            seat.restoring(&place.0, place.1, records, 0);
        }
        let known = Known { last: token.unwrap_or_default(), begin, tried: None };
        self.tokens.borrow_mut().insert(place.clone(), known);
        // A partition that begins anew after a commit that failed has been counted.
        let ids = self.plan.stages.iter().map(|stage| &stage.id);
        let counters = ids.filter_map(|id| marker.as_ref()?.task.counters_of(id));
        self.lost.entry(place.clone()).or_insert(lost(counters));
        let proves = exact && self.job.clients.guards.digest;
        let digests = stages.map(|s| (s.stage.clone(), s.digest)).filter(|_| proves).collect();
        let marker = marker.map(|m| m.task);
        Ok(Some(Event::Join(Joined { input, marker, states, outside, digests, kept: None })))
    }

    /// The task that this process has of a partition is the right one.
    fn kept(&mut self, place: &Place, became: Became, token: Token) -> Option<Event> {
        let owned = self.owned.iter().find(|o| o.place == *place && o.stage == Stage::Restoring)?;
        let (input, digest) = (owned.input, token.digest);
        tracing::info!(topic = &*place.0, partition = place.1, last_commit = ?became, "state kept");
        let known = Known { last: token, begin: owned.taken, tried: None };
        self.tokens.borrow_mut().insert(place.clone(), known);
        let (marker, states, outside, digests) = Default::default();
        Some(Event::Join(Joined { input, marker, states, outside, digests, kept: Some((became, digest)) }))
    }

    fn number(&mut self, place: &Place) -> u16 {
        if let Some(&number) = self.numbers.get(place) {
            return number;
        }
        let number = self.inputs.len() as u16;
        self.numbers.insert(place.clone(), number);
        self.inputs.push(Input { topic: Arc::clone(&place.0), partition: place.1 });
        number
    }

    /// Records of the partition whose turn it is.
    fn read(&mut self, may_read: &dyn Fn(u16) -> bool) -> Option<Polled> {
        let count = self.owned.len();
        for step in 0..count {
            let at = (self.turn + step) % count;
            let Some(owned) = self.owned.get_mut(at) else { continue };
            let polled = match owned.stage {
                Stage::Running if may_read(owned.input) => fill(owned, &self.settings, &self.attempts, &mut self.arena),
                Stage::Ended => {
                    owned.stage = Stage::Finished;
                    Some(Polled::Finished(vec![owned.input]))
                }
                _ => None,
            };
            if polled.is_some() {
                self.turn = at + 1;
                return polled;
            }
        }
        None
    }

    fn all_finished(&self) -> bool {
        self.settings.until.is_some()
            && self.assigned
            && self.asked.is_empty()
            && !self.owned.is_empty()
            && self.owned.iter().all(|o| o.stage == Stage::Finished)
    }
}

impl Inbox for KafkaInbox<'_> {
    fn now(&mut self) -> i64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.clock.at(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
    }

    fn next(&mut self, until: i64, may_read: &dyn Fn(u16) -> bool) -> Result<Event, Trouble> {
        loop {
            self.member.tend()?;
            self.report(may_read);
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Event::Stop);
            }
            if let Some(event) = self.hear()? {
                return Ok(event);
            }
            if let Some(polled) = self.read(may_read) {
                self.busy = true;
                return Ok(Event::Source(polled));
            }
            let left = u64::try_from(until.saturating_sub(self.now())).map_or(Duration::ZERO, Duration::from_nanos);
            if self.owned.iter().any(|o| o.stage == Stage::Lost) {
                // All begin anew at the last commit, where it is seen what was lost.
                return Ok(Event::Leave { inputs: Vec::new(), lost: true });
            }
            if self.all_finished() {
                if std::mem::replace(&mut self.ended, true) {
                    // Said before: somebody waits for something else.
                    std::thread::park_timeout(left.min(ATTENTION));
                }
                return Ok(Event::Source(Polled::End));
            }
            self.ended = false;
            // Before it waits for records for the first time it says so: what was made of the last ones may leave.
            if std::mem::take(&mut self.busy) || left.is_zero() {
                return Ok(Event::Source(Polled::Nothing));
            }
            // Queues, the group and the restoring threads wake this one.
            std::thread::park_timeout(left.min(ATTENTION));
        }
    }

    fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    fn taken(&mut self, polling: &Polling, count: usize) {
        let Some(row) = count.checked_sub(1).and_then(|last| polling.rows.get(last)) else { return };
        if let Some(owned) = self.owned.iter_mut().find(|o| o.input == row.input) {
            owned.taken = row.offset + 1;
        }
    }

    fn position(&self) -> Position {
        let inputs = self.owned.iter().filter_map(|o| Some((self.inputs.get(usize::from(o.input))?.clone(), o.taken)));
        Position { next: inputs.collect(), ..Position::default() }
    }

    fn joined(&mut self, input: u16, right: bool) -> Result<bool, Trouble> {
        let Some(owned) = self.owned.iter_mut().find(|o| o.input == input) else { return Ok(false) };
        if !right {
            let (topic, partition) = &owned.place;
            return Err(Trouble::new(
                format!("state_mismatch: the state restored for {topic}/{partition} is not the one that was committed"),
                "the changelog lost records: put them back, or begin anew with `tamis reset`",
            ));
        }
        let ended = owned.end.is_some_and(|end| owned.taken >= end);
        owned.stage = if ended { Stage::Ended } else { Stage::Running };
        Ok(true)
    }

    fn joins(&self) -> bool {
        true
    }

    fn keeps_tasks(&self) -> bool {
        self.job.exactly_once
    }

    fn again(&mut self, input: u16) -> Result<(), Trouble> {
        let Some(owned) = self.owned.iter().find(|o| o.input == input) else { return Ok(()) };
        let place = owned.place.clone();
        self.tokens.borrow_mut().remove(&place);
        self.ask(vec![place])
    }

    fn left(&mut self) -> Result<(), Trouble> {
        let Some(places) = self.leaving.take() else { return Ok(()) };
        let ours: Vec<Place> = self.owned.iter().map(|o| o.place.clone()).filter(|p| places.contains(p)).collect();
        if let Some((seat, ..)) = &self.seat {
            let grown = self.grown.iter().filter(|p| places.contains(p));
            ours.iter().chain(grown).for_each(|(topic, partition)| seat.revoked(topic, *partition));
        }
        self.grown.retain(|place| !places.contains(place));
        self.watchdog.forget(&places);
        self.owned.retain(|o| !places.contains(&o.place));
        self.lost.retain(|place, _| !places.contains(place));
        if !self.were_lost {
            self.tokens.borrow_mut().retain(|place, _| !places.contains(place));
        }
        // What is not assigned yet cannot be unassigned; the library waits for an answer all the same.
        self.member.unassign(&ours)
    }

    fn reload(&mut self, plan: &Arc<Plan>, chain: &Chain) {
        self.plan = Arc::clone(plan);
        self.job.settings = Arc::new(Task::settings(chain));
    }

    fn rewind(&mut self) -> Result<(), Trouble> {
        let places: Vec<Place> = self.owned.iter().map(|o| o.place.clone()).collect();
        if places.is_empty() {
            return Ok(());
        }
        let leaving = self.leaving.clone().unwrap_or_default();
        self.tried.extend(self.owned.iter().map(|o| (o.place.clone(), o.attempt)));
        // Queues first: what is in them was read ahead of the commit that failed.
        self.owned.clear();
        self.member.unassign(&places)?;
        self.ask(places.into_iter().filter(|place| !leaving.contains(place)).collect())
    }
}
