//! The rules of dedup as plainly as they can be written: one record at a time, plain lists, nothing clever. Here: the
//! source, time, and what time brings about. Shares no code with the guest or the host.

use std::collections::BTreeMap;

use super::state::Entry;
use super::table::{Clock, Code, Keep, Order, Window};
use super::words::{Out, Record, Settings, Tag};

/// The end of bounded input.
pub const END: i64 = i64::MAX;
/// Before every time.
pub const NEVER_YET: i64 = i64::MIN;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Active,
    Idle,
    Finished,
}

/// The state of everything; cloning it is a snapshot.
#[derive(Clone, Debug)]
pub struct Reference {
    pub(super) set: Settings,
    pub now: i64,
    own: Vec<i64>,
    activity: Vec<Activity>,
    heard: Vec<i64>,
    blocked: Vec<bool>,
    /// The last offset of each partition.
    last: Vec<i64>,
    pub(super) watermark: i64,
    /// Where the watermark stands after the end: what really passed (9.6).
    passed: Option<i64>,
    pub(super) entries: Vec<Entry>,
    /// Winners of closed steps, by key and start (2.4).
    pub(super) steps: BTreeMap<(Option<String>, i64), Record>,
    pub(super) made: u64,
    pub out: Vec<Out>,
    pub counters: BTreeMap<&'static str, u64>,
}

impl Reference {
    pub fn new(set: Settings, now: i64) -> Reference {
        let partitions = set.partitions;
        Reference {
            set,
            now,
            own: vec![NEVER_YET; partitions],
            activity: vec![Activity::Active; partitions],
            heard: vec![now; partitions],
            blocked: vec![false; partitions],
            last: vec![-1; partitions],
            watermark: NEVER_YET,
            passed: None,
            entries: Vec::new(),
            steps: BTreeMap::new(),
            made: 0,
            out: Vec::new(),
            counters: BTreeMap::new(),
        }
    }

    // ---- the source

    /// A record comes (T2, K3, then the table).
    pub fn record(&mut self, record: &Record) {
        let again = record.o <= self.last[record.p];
        self.last[record.p] = self.last[record.p].max(record.o);
        if !again {
            self.heard[record.p] = self.now;
            self.activity[record.p] = Activity::Active;
        }
        let (event, stamp) = (self.uses_event(), self.uses_stamp());
        if (event && record.event.is_none()) || (stamp && record.stamp.is_none()) {
            self.count("invalid_time");
            return self.emit(Tag::DlqTime, record, None);
        }
        self.judge(record, again);
        let reached = match self.set.cell.clock {
            Clock::Ingestion => record.stamp.filter(|_| stamp),
            _ => record.event.filter(|_| event).map(|time| time - self.set.delay),
        };
        if let Some(reached) = reached.filter(|_| !again) {
            self.own[record.p] = self.own[record.p].max(reached);
            self.combine();
        }
    }

    /// Processing time goes on, instant by instant.
    pub fn clock(&mut self, to: i64) {
        while let Some(due) = self.deadline().filter(|&due| due <= to) {
            self.now = self.now.max(due);
            self.fall_silent();
            self.fire();
        }
        self.now = self.now.max(to);
    }

    pub fn idle(&mut self, p: usize) {
        if self.activity[p] != Activity::Finished {
            self.activity[p] = Activity::Idle;
        }
        self.combine();
    }

    /// A partition cannot be read, or can again (W5).
    pub fn block(&mut self, p: usize, blocked: bool) {
        self.blocked[p] = blocked;
        if !blocked {
            self.heard[p] = self.now;
        }
    }

    pub fn end(&mut self, p: Option<usize>) {
        for q in 0..self.set.partitions {
            if p.is_none_or(|p| p == q) {
                self.activity[q] = Activity::Finished;
            }
        }
        self.combine();
    }

    /// A stop and a start: idle timers begin anew; input that had ended goes on.
    pub fn restart(&mut self, now: i64) {
        self.now = now;
        self.heard.fill(now);
        self.blocked.fill(false);
        if let Some(passed) = self.passed.take() {
            self.watermark = passed;
            self.activity.fill(Activity::Active);
        }
        while self.deadline().is_some_and(|due| due <= now) {
            self.fall_silent();
            self.fire();
        }
    }

    // ---- time

    /// Whether records need an event time (T2).
    pub(super) fn uses_event(&self) -> bool {
        let cell = &self.set.cell;
        let by_clock = cell.clock == Clock::Event && (cell.window != Window::None || self.set.heartbeat.is_some());
        by_clock || (self.aged() && cell.clock != Clock::Ingestion) || cell.order == Order::Time
    }

    /// Whether records need a timestamp.
    fn uses_stamp(&self) -> bool {
        let cell = &self.set.cell;
        let read = cell.window != Window::None || self.set.heartbeat.is_some() || self.aged();
        cell.clock == Clock::Ingestion && read
    }

    /// Retention by the time of records.
    pub(super) fn aged(&self) -> bool {
        self.set.retention.is_some_and(|r| !r.processing)
    }

    /// A record's time on the stage's clock; 0 where it is not evaluated.
    pub(super) fn time_of(&self, record: &Record) -> i64 {
        match self.set.cell.clock {
            Clock::Processing => self.now,
            Clock::Event if self.uses_event() => record.event.unwrap_or(0),
            Clock::Ingestion if self.uses_stamp() => record.stamp.unwrap_or(0),
            _ => 0,
        }
    }

    /// Where the stage's clock stands.
    pub(super) fn stands(&self) -> i64 {
        if self.set.cell.clock == Clock::Processing { self.now } else { self.watermark }
    }

    /// W3: the least of the active, else the greatest of the idle; it never goes back.
    fn combine(&mut self) {
        let of = |wanted: Activity| {
            self.own.iter().zip(&self.activity).filter(move |(_, a)| **a == wanted).map(|(own, _)| *own)
        };
        let combined = match (of(Activity::Active).min(), of(Activity::Idle).max()) {
            (Some(least), _) => least,
            (None, Some(greatest)) => greatest,
            (None, None) => END,
        };
        if combined == END && self.passed.is_none() {
            self.passed = Some(self.watermark);
        }
        self.watermark = self.watermark.max(combined);
        self.fire();
    }

    fn fall_silent(&mut self) {
        let Some(idle) = self.set.idle else { return };
        for ((heard, activity), blocked) in self.heard.iter().zip(&mut self.activity).zip(&self.blocked) {
            if *activity == Activity::Active && !blocked && self.now >= heard + idle {
                *activity = Activity::Idle;
            }
        }
        self.combine();
    }

    /// The next instant of processing time at which something happens by itself.
    fn deadline(&self) -> Option<i64> {
        let timers = self.set.idle.and_then(|idle| {
            let all = self.heard.iter().zip(&self.activity).zip(&self.blocked);
            let running = all.filter(|((_, a), blocked)| **a == Activity::Active && !**blocked);
            running.map(|((heard, _), _)| heard + idle).min()
        });
        let ends = self.entries.iter().filter_map(|entry| self.over_at(entry));
        let ends = (self.set.cell.clock == Clock::Processing).then(|| ends.min()).flatten();
        timers.into_iter().chain(ends).min()
    }

    /// The instant at which a scope is over and forgotten; none without a window.
    pub(super) fn over_at(&self, entry: &Entry) -> Option<i64> {
        match self.set.cell.window {
            Window::None => None,
            // Beyond the end: the first instant after (T6).
            Window::Session { gap } => Some(entry.end + gap + self.set.lateness + 1),
            Window::Horizon { ttl, access } => Some(if access { entry.end + ttl } else { entry.start + ttl }),
            _ => Some(entry.end + self.set.lateness),
        }
    }

    /// The instant at which what waits in a scope leaves; none: only the end of the input is that.
    pub(super) fn final_at(&self, entry: &Entry) -> Option<i64> {
        match self.set.cell.window {
            Window::None => (self.set.cell.keep == Keep::First && self.by_event()).then_some(entry.time),
            Window::Session { gap } if self.set.code == Code::Corrected => Some(entry.end + gap + 1),
            _ if self.set.code == Code::Corrected => Some(entry.end),
            _ => self.over_at(entry),
        }
    }

    pub(super) fn by_event(&self) -> bool {
        self.set.cell.order == Order::Time && self.set.cell.clock == Clock::Event
    }

    /// Whether what waits in a scope is final (W2).
    fn is_final(&self, entry: &Entry) -> bool {
        if self.watermark == END {
            return true;
        }
        let Some(at) = self.final_at(entry) else { return false };
        if self.set.cell.window != Window::None {
            return self.stands() >= at;
        }
        let active: Vec<usize> = (0..self.set.partitions).filter(|&q| self.activity[q] == Activity::Active).collect();
        if active.is_empty() {
            return at <= self.watermark;
        }
        active.iter().all(|&q| {
            let own = self.own[q].max(self.watermark);
            own > at || (own == at && q >= entry.kept.p)
        })
    }

    /// Everything that is final leaves, in the order of O9; what is over is forgotten.
    fn fire(&mut self) {
        if matches!(self.set.code, Code::Final | Code::FinalSteps | Code::Corrected) {
            // O9: without a window a clock that nothing reads does not order either; what ages by event time reads it.
            let time = |entry: &Entry| match (self.set.cell.window, self.set.cell.clock) {
                (Window::None, Clock::Processing) if self.aged() => entry.kept.event.unwrap_or(0),
                (Window::None, Clock::Processing) => 0,
                _ => entry.time,
            };
            let waits = self.entries.iter().filter(|entry| !entry.written && self.is_final(entry));
            let mut due: Vec<Entry> = waits.cloned().collect();
            due.sort_by_key(|e| (self.final_at(e).unwrap_or(END), time(e), e.kept.p, e.kept.o, e.start, e.end));
            for entry in due {
                // The latest that fired is where time stands in a later run.
                let fired = self.final_at(&entry);
                self.passed = self.passed.map(|passed| passed.max(fired.unwrap_or(passed)));
                self.leave(&entry);
            }
        }
        let (stands, ended) = (self.stands(), self.watermark == END);
        if self.set.cell.window != Window::None {
            let over = |entry: &Entry| ended || self.over_at(entry).is_some_and(|at| stands >= at);
            let over: Vec<bool> = self.entries.iter().map(over).collect();
            let mut over = over.into_iter();
            self.entries.retain(|_| !over.next().unwrap_or(false));
        }
    }

    pub(super) fn emit(&mut self, tag: Tag, record: &Record, window: Option<(i64, i64)>) {
        self.out.push(Out { tag, record: record.clone(), window });
    }

    pub(super) fn count(&mut self, name: &'static str) {
        *self.counters.entry(name).or_default() += 1;
    }
}
