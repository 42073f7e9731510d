//! The stages of the model: what a keyed guest does, one row and one wake at a time, and the driver that merges both.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::chain::{ANY, Batch, Image, Mutant, Row, Stamp, just_below};

/// Which one stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The least in order.
    First,
    /// The greatest; a tie goes to the newcomer.
    Last,
}

/// What a stage does.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Keep first by event time, on close, no window.
    Final,
    /// On close of the window.
    Tumbling {
        /// Which one stays.
        keep: Keep,
        /// Length of the window.
        size: i64,
    },
    /// On close of the session.
    Session {
        /// Which one stays.
        keep: Keep,
        /// Greatest distance within a session.
        gap: i64,
    },
    /// The first arrival leaves at once; what is near it does not.
    Horizon {
        /// Distance within which a repeat is a duplicate.
        ttl: i64,
    },
    /// Groups as in `Horizon`; the kept one leaves when its group closes.
    HorizonClose {
        /// Which one stays.
        keep: Keep,
        /// Length of a group.
        ttl: i64,
    },
    /// No window, nothing is final: updates at once.
    Updating {
        /// Which one stays.
        keep: Keep,
    },
    /// Windows that leave on close and are corrected within the lateness.
    Corrected {
        /// Which one stays.
        keep: Keep,
        /// Length of the window.
        size: i64,
        /// How long it takes corrections.
        lateness: i64,
    },
}

/// Key and space.
type Place = (i64, i64);
/// Rank of a wake: the kept row's time and position, and the space.
type Rank = (i64, (i64, i64, i64), i64);

/// What stands at one place.
#[derive(Clone, Debug)]
struct Entry {
    row: Row,
    low: i64,
    high: i64,
    written: bool,
    wake: Option<(Stamp, Rank, u64)>,
}

/// A keyed stage and its state.
#[derive(Clone, Debug)]
pub struct Stage {
    mode: Mode,
    limit: usize,
    mutant: Mutant,
    state: BTreeMap<Place, Entry>,
    sets: u64,
}

/// What goes on during one call.
struct Call {
    heap: BinaryHeap<Reverse<(Stamp, Rank, u64, Place)>>,
    out: Vec<Row>,
    late: Vec<i64>,
    left: usize,
    end: Stamp,
}

impl Stage {
    /// An empty stage.
    pub fn new(mode: Mode, limit: usize, mutant: Mutant) -> Stage {
        Stage { mode, limit, mutant, state: BTreeMap::new(), sets: 0 }
    }

    /// As it comes back from a snapshot: entries with wake, rank and the number of its setting.
    pub fn restored(&self) -> Stage {
        let mut stage = self.clone();
        if self.mutant == Mutant::RestartForgetsWakes {
            stage.state.values_mut().for_each(|entry| entry.wake = None);
        }
        stage
    }

    /// One batch: what goes on, what is left when more wakes were due than one call may fire, and what was late.
    pub fn call(&mut self, batch: Batch) -> (Batch, Option<Batch>, Vec<i64>) {
        let mut call =
            Call { heap: BinaryHeap::new(), out: Vec::new(), late: Vec::new(), left: self.limit, end: batch.end };
        for (place, entry) in &self.state {
            if let Some((at, rank, set)) = entry.wake.filter(|(at, ..)| *at <= batch.end) {
                let rank = if self.mutant == Mutant::DuesWithoutRank { (i64::MIN, (0, 0, 0), 0) } else { rank };
                call.heap.push(Reverse((at, rank, set, *place)));
            }
        }
        let rows = batch.rows;
        for (i, row) in rows.iter().enumerate() {
            let upto = if self.mutant == Mutant::WakesAtTheEnd { batch.start } else { row.sees };
            if self.fire(upto, &mut call) {
                return self.cut_short(call, batch.start, rows[i..].to_vec());
            }
            let mut row = row.clone();
            if self.mutant == Mutant::ExpiryBySweep {
                row.sees = batch.start;
            }
            self.row(row, &mut call);
        }
        if self.fire(batch.end, &mut call) {
            return self.cut_short(call, batch.start, Vec::new());
        }
        (Batch { rows: call.out, start: batch.start, end: batch.end }, None, call.late)
    }

    /// The call ends just below the first wake that it may not fire; the rest follows.
    fn cut_short(&self, mut call: Call, start: Stamp, rows: Vec<Row>) -> (Batch, Option<Batch>, Vec<i64>) {
        let held = self.owed(&mut call).map_or(call.end, just_below);
        let rest = Batch { rows, start: held, end: call.end };
        (Batch { rows: call.out, start, end: held }, Some(rest), call.late)
    }

    /// The next wake that is still what its entry wants.
    fn owed(&self, call: &mut Call) -> Option<Stamp> {
        while let Some(Reverse((at, _, set, place))) = call.heap.peek() {
            let entry = self.state.get(place);
            let current = entry.and_then(|e| e.wake).is_some_and(|(_, _, s)| s == *set);
            if current || (self.mutant == Mutant::ReplacedWakeFires && entry.is_some()) {
                return Some(*at);
            }
            call.heap.pop();
        }
        None
    }

    /// Fires what is due; true if more is than this call may fire.
    fn fire(&mut self, upto: Stamp, call: &mut Call) -> bool {
        while let Some(at) = self.owed(call).filter(|at| *at <= upto) {
            if call.left == 0 {
                return true;
            }
            call.left -= 1;
            let Some(Reverse((.., place))) = call.heap.pop() else { return false };
            self.wake(at, place, call);
        }
        false
    }

    /// A wake: what the entry holds is final.
    fn wake(&mut self, at: Stamp, place: Place, call: &mut Call) {
        let Some(entry) = self.state.get_mut(&place) else { return };
        entry.wake = None;
        let (row, written) = (entry.row.clone(), entry.written);
        entry.written = true;
        match self.mode.clone() {
            Mode::Final => self.emit(row, at, 0, call),
            Mode::Tumbling { .. } | Mode::Session { .. } | Mode::HorizonClose { .. } => {
                self.state.remove(&place);
                self.emit(row, at, place.1, call);
            }
            Mode::Horizon { .. } => drop(self.state.remove(&place)),
            Mode::Corrected { size, lateness, .. } if !written => {
                self.set_wake(place, (place.1 + size + lateness, 0), call);
                self.emit(row, at, place.1, call);
            }
            Mode::Corrected { .. } | Mode::Updating { .. } => drop(self.state.remove(&place)),
        }
    }

    /// A row that a wake emits sees just less than the wake, and its time is at least that.
    fn emit(&self, row: Row, at: Stamp, window: i64, call: &mut Call) {
        let below = just_below(at);
        let sees = match self.mutant {
            Mutant::EmittedSeesTheStep => at,
            Mutant::EmittedSeesItsPredecessor => call.out.last().map_or(below, |row| row.sees),
            _ => below,
        };
        let time = if self.mutant == Mutant::EmittedKeepsItsTime { row.time } else { row.time.max(below.0) };
        let order = (time, row.order.1, row.order.2);
        call.out.push(Row { time, sees, window, order, ..row });
    }

    fn set_wake(&mut self, place: Place, at: Stamp, call: &mut Call) {
        self.sets += 1;
        let Some(entry) = self.state.get_mut(&place) else { return };
        let rank = (entry.row.time, entry.row.order, place.1);
        entry.wake = Some((at, rank, self.sets));
        if at <= call.end {
            call.heap.push(Reverse((at, rank, self.sets, place)));
        }
    }

    fn put(&mut self, place: Place, row: Row, low: i64, high: i64, written: bool) {
        let wake = self.state.get(&place).and_then(|entry| entry.wake);
        self.state.insert(place, Entry { row, low, high, written, wake });
    }

    fn row(&mut self, row: Row, call: &mut Call) {
        match self.mode.clone() {
            Mode::Final => self.row_final(row, call),
            Mode::Tumbling { keep, size } => self.row_tumbling(row, keep, size, call),
            Mode::Session { keep, gap } => self.row_session(row, keep, gap, call),
            Mode::Horizon { ttl } => self.row_horizon(row, None, ttl, call),
            Mode::HorizonClose { keep, ttl } => self.row_horizon(row, Some(keep), ttl, call),
            Mode::Updating { keep } => self.row_updating(row, keep, call),
            Mode::Corrected { keep, size, lateness } => self.row_corrected(row, keep, size, lateness, call),
        }
    }

    fn row_final(&mut self, row: Row, call: &mut Call) {
        let place = (row.key, 0);
        let entry = self.state.get(&place);
        if entry.is_some_and(|entry| entry.written) {
            return;
        }
        if row.time < row.sees.0 {
            return call.late.push(row.id);
        }
        if entry.is_none_or(|entry| (row.time, row.input) < (entry.row.time, entry.row.input)) {
            let at = (row.time, row.input);
            self.put(place, row, 0, 0, false);
            self.set_wake(place, at, call);
        }
    }

    fn row_tumbling(&mut self, row: Row, keep: Keep, size: i64, call: &mut Call) {
        let start = row.time.div_euclid(size) * size;
        let (place, end) = ((row.key, start), (start + size, 0));
        if end <= row.sees {
            return call.late.push(row.id);
        }
        if self.state.get(&place).is_none_or(|entry| better(keep, &row, &entry.row)) {
            self.put(place, row, 0, 0, false);
            self.set_wake(place, end, call);
        }
    }

    fn row_session(&mut self, row: Row, keep: Keep, gap: i64, call: &mut Call) {
        let near: Vec<Place> = self
            .state
            .range((row.key, i64::MIN)..=(row.key, i64::MAX))
            .filter(|(_, e)| e.low - gap <= row.time && row.time <= e.high + gap)
            .map(|(place, _)| *place)
            .collect();
        if near.is_empty() && (row.time + gap, ANY) <= row.sees {
            return call.late.push(row.id);
        }
        let (key, mut low, mut high, mut best) = (row.key, row.time, row.time, row);
        for place in near {
            let Some(entry) = self.state.remove(&place) else { continue };
            (low, high) = (low.min(entry.low), high.max(entry.high));
            if !better(keep, &best, &entry.row) {
                best = entry.row;
            }
        }
        self.put((key, low), best, low, high, false);
        self.set_wake((key, low), (high + gap, ANY), call);
    }

    /// `keep` of none: marks only, the first arrival leaves at once.
    fn row_horizon(&mut self, row: Row, keep: Option<Keep>, ttl: i64, call: &mut Call) {
        let live = self
            .state
            .range((row.key, i64::MIN)..=(row.key, i64::MAX))
            .filter(|((_, anchor), _)| (row.time - anchor).abs() < ttl && row.sees < (anchor + ttl, 0))
            .min_by_key(|((_, anchor), _)| ((row.time - anchor).abs(), *anchor))
            .map(|(place, _)| *place);
        match live {
            Some(place) => {
                let Some(keep) = keep else { return };
                if self.state.get(&place).is_some_and(|entry| better(keep, &row, &entry.row)) {
                    self.put(place, row, 0, 0, false);
                    self.set_wake(place, (place.1 + ttl, 0), call);
                }
            }
            None if row.time < row.sees.0 => call.late.push(row.id),
            None => {
                let place = (row.key, row.time);
                if keep.is_none() {
                    call.out.push(Row { window: 0, ..row.clone() });
                }
                self.put(place, row, 0, 0, false);
                self.set_wake(place, (place.1 + ttl, 0), call);
            }
        }
    }

    fn row_updating(&mut self, row: Row, keep: Keep, call: &mut Call) {
        let place = (row.key, 0);
        match self.state.get(&place) {
            None => call.out.push(Row { image: Image::Insert, ..row.clone() }),
            Some(entry) if better(keep, &row, &entry.row) => {
                call.out.push(Row { image: Image::Old, ..entry.row.clone() });
                call.out.push(Row { image: Image::New, ..row.clone() });
            }
            Some(_) => return,
        }
        self.put(place, row, 0, 0, true);
    }

    fn row_corrected(&mut self, row: Row, keep: Keep, size: i64, lateness: i64, call: &mut Call) {
        let start = row.time.div_euclid(size) * size;
        let (place, end) = ((row.key, start), (start + size, 0));
        if (start + size + lateness, 0) <= row.sees {
            return call.late.push(row.id);
        }
        let over = end <= row.sees;
        let (better, written) = match self.state.get(&place) {
            None => (true, false),
            Some(entry) => (better(keep, &row, &entry.row), entry.written),
        };
        if !better {
            return;
        }
        if over {
            if let Some(entry) = self.state.get(&place).filter(|_| written) {
                call.out.push(Row { image: Image::Old, window: start, ..entry.row.clone() });
            }
            let image = if written { Image::New } else { Image::Insert };
            call.out.push(Row { image, window: start, ..row.clone() });
        }
        self.put(place, row, 0, 0, over);
        let wake = if over { (start + size + lateness, 0) } else { end };
        self.set_wake(place, wake, call);
    }
}

/// Keep first: strictly smaller. Keep last: greater or equal in time.
fn better(keep: Keep, row: &Row, kept: &Row) -> bool {
    match keep {
        Keep::First => row.order < kept.order,
        Keep::Last => row.order.0 >= kept.order.0,
    }
}
