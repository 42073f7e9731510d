//! The rules of dedup as plainly as they can be written: one record at a time, plain maps, nothing clever. Times are
//! milliseconds. Shares no code with the guest or the host.

use std::collections::BTreeMap;

use super::table::{Clock, Code, Emit, Keep, Order, Window};
use super::words::{Late, NullKey, Out, Record, Settings, Tag};

/// The end of bounded input.
pub const END: i64 = i64::MAX;
/// Before every time.
const NEVER_YET: i64 = i64::MIN;

/// A key, and the start of its window or the anchor of its group.
type Scope = (Option<char>, i64);

/// What is known of a scope.
#[derive(Clone, Debug)]
struct Entry {
    kept: Record,
    /// The kept record's time on the stage's clock; 0 where it is not evaluated.
    time: i64,
    /// Something of this scope has left.
    written: bool,
    /// What retention counts from.
    base: i64,
    /// When it was last written, on the stage's clock.
    written_at: i64,
    /// In which order entries were made.
    made: u64,
    /// It stands for a delete.
    deleted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Active,
    Idle,
    Finished,
}

/// The state of everything; cloning it is a snapshot.
#[derive(Clone, Debug)]
pub struct Reference {
    set: Settings,
    pub now: i64,
    own: Vec<i64>,
    activity: Vec<Activity>,
    heard: Vec<i64>,
    /// The last offset of each partition.
    last: Vec<i64>,
    watermark: i64,
    entries: BTreeMap<Scope, Entry>,
    made: u64,
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
            last: vec![-1; partitions],
            watermark: NEVER_YET,
            entries: BTreeMap::new(),
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
        let stamp = self.uses_time();
        if stamp && record.t.is_none() {
            self.count("invalid_time");
            return self.emit(Tag::DlqTime, record, None);
        }
        self.judge(record, again);
        if stamp && !again {
            let reached = record.t.unwrap_or(0) - self.set.delay;
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

    pub fn end(&mut self, p: Option<usize>) {
        for q in 0..self.set.partitions {
            if p.is_none_or(|p| p == q) {
                self.activity[q] = Activity::Finished;
            }
        }
        self.combine();
    }

    /// A stop and a start: idle timers begin anew, nothing else changes.
    pub fn restart(&mut self, now: i64) {
        self.now = now;
        self.heard.fill(now);
        while self.deadline().is_some_and(|due| due <= now) {
            self.fall_silent();
            self.fire();
        }
    }

    // ---- time

    /// Whether records need a time at all (T2).
    fn uses_time(&self) -> bool {
        let cell = &self.set.cell;
        let by_clock = cell.clock != Clock::Processing && (cell.window != Window::None || self.set.heartbeat.is_some());
        let by_retention = self.set.retention.is_some_and(|r| !r.processing);
        by_clock || by_retention || cell.order == Order::Time
    }

    /// A record's time on the stage's clock; 0 where it is not evaluated.
    fn time_of(&self, record: &Record) -> i64 {
        match self.set.cell.clock {
            Clock::Processing => self.now,
            _ if self.uses_time() => record.t.unwrap_or(0),
            _ => 0,
        }
    }

    /// Where the stage's clock stands.
    fn stands(&self) -> i64 {
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
        self.watermark = self.watermark.max(combined);
        self.fire();
    }

    fn fall_silent(&mut self) {
        let Some(idle) = self.set.idle else { return };
        for (heard, activity) in self.heard.iter().zip(&mut self.activity) {
            if *activity == Activity::Active && self.now >= heard + idle {
                *activity = Activity::Idle;
            }
        }
        self.combine();
    }

    /// The next instant of processing time at which something happens by itself.
    fn deadline(&self) -> Option<i64> {
        let timers = self.set.idle.and_then(|idle| {
            let active = self.heard.iter().zip(&self.activity).filter(|(_, a)| **a == Activity::Active);
            active.map(|(heard, _)| heard + idle).min()
        });
        let ends = self.entries.iter().filter_map(|(scope, _)| self.over_at(scope));
        let ends = (self.set.cell.clock == Clock::Processing).then(|| ends.min()).flatten();
        timers.into_iter().chain(ends).min()
    }

    /// The instant at which a scope is over and forgotten; none without a window.
    fn over_at(&self, scope: &Scope) -> Option<i64> {
        match self.set.cell.window {
            Window::None => None,
            Window::Tumbling { size, .. } => Some(scope.1 + size + self.set.lateness),
            Window::Horizon { ttl } => Some(scope.1 + ttl),
        }
    }

    /// The instant at which what waits in a scope leaves; none: only the end of the input is that.
    fn final_at(&self, scope: &Scope, entry: &Entry) -> Option<i64> {
        match self.set.cell.window {
            Window::None => (self.set.cell.keep == Keep::First && self.by_event()).then_some(entry.time),
            Window::Tumbling { size, .. } if self.set.code == Code::Corrected => Some(scope.1 + size),
            _ => self.over_at(scope),
        }
    }

    fn by_event(&self) -> bool {
        self.set.cell.order == Order::Time && self.set.cell.clock == Clock::Event
    }

    /// Whether what waits in a scope is final (W2).
    fn is_final(&self, scope: &Scope, entry: &Entry) -> bool {
        if self.watermark == END {
            return true;
        }
        let Some(at) = self.final_at(scope, entry) else { return false };
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
        if matches!(self.set.code, Code::Final | Code::Corrected) {
            let waits = self.entries.iter().filter(|(scope, entry)| !entry.written && self.is_final(scope, entry));
            // O9: a clock that nothing reads does not order either.
            let aged = self.set.retention.is_some_and(|r| !r.processing) || self.set.heartbeat.is_some();
            let unread = self.set.cell.window == Window::None
                && match self.set.cell.clock {
                    Clock::Event => false,
                    Clock::Processing => true,
                    Clock::Ingestion => !aged,
                };
            let time = |entry: &Entry| if unread { 0 } else { entry.time };
            let mut due: Vec<_> = waits
                .map(|(scope, e)| {
                    (self.final_at(scope, e).unwrap_or(END), time(e), e.kept.p, e.kept.o, scope.1, scope.0)
                })
                .collect();
            due.sort_unstable();
            for (.., start, key) in due {
                self.leave((key, start));
            }
        }
        if self.set.cell.window != Window::None {
            let stands = self.stands();
            let ended = self.watermark == END;
            let over: Vec<Scope> = self.entries.keys().copied().collect();
            for scope in over {
                if ended || self.over_at(&scope).is_some_and(|at| stands >= at) {
                    self.entries.remove(&scope);
                }
            }
        }
    }

    /// What waited leaves.
    fn leave(&mut self, scope: Scope) {
        let Some(entry) = self.entries.get_mut(&scope) else { return };
        entry.written = true;
        // Its life as a mark begins now, with the time of the kept record: what it met while it waited is forgotten (X2).
        let by_now = self.set.retention.is_some_and(|r| r.processing);
        entry.base = if by_now { self.now } else { entry.kept.t.unwrap_or(0) };
        let kept = entry.kept.clone();
        self.write(&kept, Some(scope));
    }

    // ---- one record

    fn judge(&mut self, record: &Record, again: bool) {
        if record.key.is_none() {
            self.count("null_key");
            match self.set.null_key {
                NullKey::Group => {}
                NullKey::Pass => return self.write(record, None),
                NullKey::Dlq => return self.emit(Tag::DlqKey, record, None),
                NullKey::Drop => return,
            }
        }
        match self.set.cell.window {
            Window::None => self.judge_unwindowed(record, again),
            Window::Tumbling { size, offset } => {
                let start = (self.time_of(record) - offset).div_euclid(size) * size + offset;
                let scope = (record.key, start);
                let closed =
                    self.set.cell.clock != Clock::Processing && self.watermark >= start + size + self.set.lateness;
                if closed {
                    self.count("late_window_assignments");
                    return self.late(record);
                }
                self.meet(record, scope, again);
            }
            Window::Horizon { ttl } => self.judge_horizon(record, ttl, again),
        }
    }

    fn judge_unwindowed(&mut self, record: &Record, again: bool) {
        let scope = (record.key, 0);
        if self.entries.get(&scope).is_some_and(|entry| self.is_gone(entry, record)) {
            self.entries.remove(&scope);
        }
        if record.v.is_none() {
            return self.tombstone(record, scope);
        }
        if self.entries.get(&scope).is_some_and(|entry| entry.deleted) {
            self.entries.remove(&scope);
        }
        let waits_for_time = self.set.code == Code::Final && self.by_event() && self.set.cell.keep == Keep::First;
        let done = self.entries.get(&scope).is_some_and(|entry| entry.written);
        if waits_for_time && !done && record.t.is_some_and(|t| t < self.watermark) {
            return self.late(record);
        }
        self.meet(record, scope, again);
    }

    /// Always forwarded, and it clears what is known of the key (O11).
    fn tombstone(&mut self, record: &Record, scope: Scope) {
        let marks = self.set.cell.emit == Emit::Change && self.set.cell.upsert && self.set.cell.window == Window::None;
        if marks && self.entries.get(&scope).is_some_and(|entry| entry.deleted) {
            let base = self.base_of(record);
            if self.set.retention.is_some_and(|r| r.access)
                && let Some(entry) = self.entries.get_mut(&scope)
            {
                entry.base = entry.base.max(base);
            }
            return self.count("unchanged_suppressed");
        }
        self.entries.retain(|(key, _), _| *key != record.key);
        if marks {
            self.make(record, scope, true, true);
        }
        self.emit(Tag::Tomb, record, None);
    }

    fn judge_horizon(&mut self, record: &Record, ttl: i64, again: bool) {
        if record.v.is_none() {
            return self.tombstone(record, (record.key, 0));
        }
        let time = self.time_of(record);
        let near = self
            .entries
            .keys()
            .filter(|(key, anchor)| *key == record.key && (time - anchor).abs() < ttl)
            .min_by_key(|(_, anchor)| ((time - anchor).abs(), *anchor))
            .copied();
        match near {
            Some(scope) => self.meet(record, scope, again),
            None if self.set.cell.clock != Clock::Processing && time < self.watermark => self.late(record),
            None => self.meet(record, (record.key, time), again),
        }
    }

    fn late(&mut self, record: &Record) {
        self.count("late");
        match self.set.late {
            Late::Route => self.emit(Tag::Late, record, None),
            Late::Drop => {}
            Late::Pass => self.write(record, None),
        }
    }

    /// A record meets what is known of its scope.
    fn meet(&mut self, record: &Record, scope: Scope, again: bool) {
        let Some(entry) = self.entries.get(&scope) else {
            let at_once = match self.set.code {
                Code::Final => false,
                Code::Corrected => self.past_end(&scope),
                _ => true,
            };
            self.make(record, scope, at_once, false);
            if at_once {
                self.write(record, Some(scope));
            }
            return;
        };
        // FA, FE: what left is never corrected.
        let left = self.set.code == Code::FA || (self.set.code == Code::Final && entry.written);
        let wins = !left && if again { self.wins_again(record, entry) } else { self.wins(record, entry) };
        let (kept, written, same) = (entry.kept.clone(), entry.written, entry.kept.v == record.v);
        if !wins {
            if again && (kept.p, kept.o) == (record.p, record.o) {
                self.count("redelivered_self");
            }
            self.count("duplicates_dropped");
            let of = (kept.p, kept.o);
            self.emit(Tag::Duplicate { of }, record, None);
            self.touch(record, scope, false);
            return self.heartbeat(record, scope, &kept);
        }
        self.count("replaced");
        self.emit(Tag::Duplicate { of: (record.p, record.o) }, &kept, None);
        self.touch(record, scope, true);
        let suppressed = self.set.code == Code::Changes && same;
        if suppressed {
            self.count("unchanged_suppressed");
            return self.heartbeat(record, scope, record);
        }
        let at_once = match self.set.code {
            Code::Final => false,
            Code::Corrected => written || self.past_end(&scope),
            _ => true,
        };
        if at_once {
            self.write(record, Some(scope));
            self.wrote(record, scope);
        }
    }

    /// The record left the content of its key as it was (X13).
    fn heartbeat(&mut self, record: &Record, scope: Scope, kept: &Record) {
        let Some(beat) = self.set.heartbeat else { return };
        let time = self.time_of(record);
        if self.entries.get(&scope).is_some_and(|entry| time >= entry.written_at + beat) {
            self.write(kept, Some(scope));
            self.wrote(record, scope);
        }
    }

    fn wrote(&mut self, record: &Record, scope: Scope) {
        let time = self.time_of(record);
        if let Some(entry) = self.entries.get_mut(&scope) {
            entry.written_at = time;
        }
    }

    fn past_end(&self, scope: &Scope) -> bool {
        matches!(self.set.cell.window, Window::Tumbling { size, .. } if self.stands() >= scope.1 + size)
    }

    /// O1 to O3.
    fn wins(&self, record: &Record, kept: &Entry) -> bool {
        let place = |r: &Record| (r.p, r.o);
        let (new, old) = (place(record), place(&kept.kept));
        let compare = |a: Option<i64>, b: Option<i64>| match (a, b) {
            // A null loses, whichever is kept.
            (Some(_), None) => Some(true),
            (None, Some(_)) => Some(false),
            (Some(a), Some(b)) if a != b => Some((a < b) == (self.set.cell.keep == Keep::First)),
            _ => None,
        };
        let by_value = match self.set.cell.order {
            Order::Arrival => return self.set.cell.keep == Keep::Last,
            Order::Time => compare(record.t, kept.kept.t),
            Order::Field => compare(record.s, kept.kept.s),
        };
        by_value.unwrap_or(if self.set.cell.keep == Keep::First { new < old } else { new >= old })
    }

    /// A position that came before never replaces itself, nor anything under order arrival (R1).
    fn wins_again(&self, record: &Record, kept: &Entry) -> bool {
        self.set.cell.order != Order::Arrival
            && (record.p, record.o) != (kept.kept.p, kept.kept.o)
            && self.wins(record, kept)
    }

    // ---- entries

    fn make(&mut self, record: &Record, scope: Scope, written: bool, deleted: bool) {
        if let Some(most) = self.set.max_entries {
            // What time has passed goes first, and is not counted.
            let (now, stands) = (self.now, self.watermark);
            if let Some(retention) = self.set.retention {
                let clock = if retention.processing { now } else { stands };
                self.entries.retain(|_, e| clock < e.base.saturating_add(retention.length) || !e.written);
            }
            while self.entries.len() >= most {
                let oldest = self.entries.iter().filter(|(_, e)| e.written).min_by_key(|(_, e)| e.made);
                let Some(scope) = oldest.map(|(scope, _)| *scope) else { break };
                self.entries.remove(&scope);
                self.count("evicted_live");
            }
        }
        self.made += 1;
        let time = self.time_of(record);
        let entry = Entry {
            kept: record.clone(),
            time,
            written,
            base: self.base_of(record),
            written_at: time,
            made: self.made,
            deleted,
        };
        self.entries.insert(scope, entry);
    }

    /// The record joined the entry; if it won, it is the kept one now.
    fn touch(&mut self, record: &Record, scope: Scope, won: bool) {
        let (time, base) = (self.time_of(record), self.base_of(record));
        let access = self.set.retention.is_some_and(|r| r.access);
        let Some(entry) = self.entries.get_mut(&scope) else { return };
        if won {
            entry.kept = record.clone();
            entry.time = time;
        }
        if access {
            entry.base = entry.base.max(base);
        } else if won {
            entry.base = base;
        }
    }

    /// What retention counts from.
    fn base_of(&self, record: &Record) -> i64 {
        if self.set.retention.is_some_and(|r| !r.processing) { record.t.unwrap_or(0) } else { self.now }
    }

    /// X2: gone by the record's time or by the watermark before it; a candidate that waits never (X3).
    fn is_gone(&self, entry: &Entry, record: &Record) -> bool {
        let Some(retention) = self.set.retention else { return false };
        if self.set.code == Code::Final && !entry.written {
            return false;
        }
        let until = entry.base.saturating_add(retention.length);
        if retention.processing {
            return self.now >= until;
        }
        record.t.is_some_and(|t| t >= until) || self.watermark >= until
    }

    // ---- output

    /// To the output: with its window, if the scope has one to show.
    fn write(&mut self, record: &Record, scope: Option<Scope>) {
        let window = scope.and_then(|(_, start)| match self.set.cell.window {
            Window::Tumbling { size, .. } => Some((start, start + size)),
            Window::Horizon { ttl } if self.set.code == Code::Final => Some((start, start + ttl)),
            _ => None,
        });
        let tag = match (self.set.cell.upsert, record.v) {
            (_, None) => Tag::Tomb,
            (true, _) => Tag::Put,
            (false, _) => Tag::Insert,
        };
        self.emit(tag, record, window);
    }

    fn emit(&mut self, tag: Tag, record: &Record, window: Option<(i64, i64)>) {
        self.out.push(Out { tag, record: record.clone(), window });
    }

    fn count(&mut self, name: &'static str) {
        *self.counters.entry(name).or_default() += 1;
    }
}
