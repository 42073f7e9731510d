//! The stages of the model: the driver that merges rows and wakes, and the state of one stage. What a mode does with a
//! row or a wake is in `modes.rs`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::chain::{Batch, END, Image, Mutant, On, Row, Span, Stamp, just_below};

/// Which one stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The least in order.
    First,
    /// The greatest; a tie goes to the newcomer.
    Last,
}

/// Windows whose bounds do not depend on rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aligned {
    /// Of one size.
    Tumbling(i64),
    /// Of sizes that take turns, as those of a zone do.
    Zone,
    /// Of a size, every so often.
    Hopping(i64, i64),
    /// Steps that grow to a size.
    Cumulative(i64, i64),
}

/// What a stage does.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Keep first by event time, on close, no window.
    Final,
    /// No window, on close: at the end of the input.
    AtTheEnd(Keep),
    /// On close of the window; of cumulative steps perhaps only those with another winner than the step before.
    Closed(Keep, Aligned, bool),
    /// The first arrival of a window leaves at once.
    Marks(Aligned),
    /// The first of a window leaves at once, replacements too.
    Replaced(Keep, Aligned),
    /// Windows that leave on close and are corrected within the lateness.
    Corrected(Keep, Aligned, i64),
    /// Sessions on close.
    Session(Keep, i64),
    /// Sessions at once; the identity is the start.
    SessionReplaced(Keep, i64),
    /// Sessions that leave on close and are corrected within the lateness.
    SessionCorrected(Keep, i64, i64),
    /// The first arrival leaves at once; what is near it does not. The groups may grow.
    Horizon(i64, bool),
    /// Groups of which the kept one leaves when they close. They may grow.
    HorizonClosed(Keep, i64, bool),
    /// No window, nothing is final: updates at once.
    Updating(Keep),
}

impl Mode {
    /// Whether its output takes back what it said.
    pub fn updates(&self) -> bool {
        !matches!(
            self,
            Mode::Final
                | Mode::AtTheEnd(_)
                | Mode::Closed(..)
                | Mode::Marks(_)
                | Mode::Session(..)
                | Mode::Horizon(..)
                | Mode::HorizonClosed(..)
        )
    }
}

/// Key, and the start and end of a scope.
pub(super) type Place = (i64, i64, i64);
/// Rank of a wake: the kept row's time and position, and the place.
type Rank = (i64, (i64, i64, i64), i64);

/// What stands at one place.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) row: Row,
    /// The row's time on the stage's clock.
    pub(super) time: i64,
    /// What was written last.
    pub(super) image: Option<Row>,
    pub(super) written: bool,
    pub(super) wake: Option<(Stamp, Rank, u64)>,
}

/// A keyed stage and its state.
#[derive(Clone, Debug)]
pub struct Stage {
    pub(super) mode: Mode,
    on: On,
    limit: usize,
    mutant: Mutant,
    pub(super) state: BTreeMap<Place, Entry>,
    /// Winners of closed steps, by key and start.
    pub(super) steps: BTreeMap<(i64, i64), i64>,
    sets: u64,
}

/// What goes on during one call.
pub(super) struct Call {
    heap: BinaryHeap<Reverse<(Stamp, Rank, u64, Place)>>,
    pub(super) out: Vec<Row>,
    pub(super) late: Vec<Row>,
    left: usize,
    end: Stamp,
    now: i64,
    /// The batch without its rows.
    around: Batch,
    /// What the row sees before which wakes fire, on the event and on the ingestion clock.
    views: (Stamp, Stamp),
}

impl Stage {
    /// An empty stage.
    pub fn new(mode: Mode, on: On, limit: usize, mutant: Mutant) -> Stage {
        Stage { mode, on, limit, mutant, state: BTreeMap::new(), steps: BTreeMap::new(), sets: 0 }
    }

    /// As it comes back from a snapshot: entries with wake, rank and the number of its setting.
    pub fn restored(&self) -> Stage {
        let mut stage = self.clone();
        if self.mutant == Mutant::RestartForgetsWakes {
            stage.state.values_mut().for_each(|entry| entry.wake = None);
        }
        stage
    }

    /// The next instant of processing time at which it has something to do; a wake of an input is due right after.
    pub fn deadline(&self) -> Option<i64> {
        let wakes = self.state.values().filter_map(|entry| entry.wake).map(|(at, ..)| at);
        let first = wakes.filter(|at| self.on == On::Processing && *at < END).min()?;
        Some(if first.1 > 0 { first.0 + 1 } else { first.0 })
    }

    /// Where its clock stands before and after a batch.
    fn span(&self, batch: &Batch) -> Span {
        match self.on {
            On::Event => batch.event,
            On::Ingestion => batch.ingestion,
            On::Processing if batch.ended => ((batch.now, 0), END),
            On::Processing => ((batch.now, 0), (batch.now, 0)),
        }
    }

    /// What a row sees on its clock.
    pub(super) fn sees(&self, row: &Row, now: i64) -> Stamp {
        match self.on {
            On::Event => row.event.sees,
            On::Ingestion => row.ingestion.sees,
            On::Processing => (now, 0),
        }
    }

    /// A row's time on its clock.
    pub(super) fn time(&self, row: &Row, now: i64) -> i64 {
        match self.on {
            On::Event => row.event.time,
            On::Ingestion => row.ingestion.time,
            On::Processing => now,
        }
    }

    /// Whether nothing is ever late here.
    pub(super) fn has_no_late(&self) -> bool {
        self.on == On::Processing
    }

    /// One batch: what goes on, what is left when more wakes were due than one call may fire, and what was late.
    pub fn call(&mut self, batch: Batch) -> (Batch, Option<Batch>, Vec<Row>) {
        let (start, end) = self.span(&batch);
        let mut call = Call {
            heap: BinaryHeap::new(),
            out: Vec::new(),
            late: Vec::new(),
            left: self.limit,
            end,
            now: batch.now,
            around: Batch { rows: Vec::new(), ..batch.clone() },
            views: (batch.event.0, batch.ingestion.0),
        };
        for (place, entry) in &self.state {
            if let Some((at, rank, set)) = entry.wake.filter(|(at, ..)| *at <= end) {
                let rank = if self.mutant == Mutant::DuesWithoutRank { (i64::MIN, (0, 0, 0), 0) } else { rank };
                call.heap.push(Reverse((at, rank, set, *place)));
            }
        }
        for i in 0..batch.rows.len() {
            let row = &batch.rows[i];
            call.views = (row.event.sees, row.ingestion.sees);
            let upto = if self.mutant == Mutant::WakesAtTheEnd { start } else { self.sees(row, batch.now) };
            if self.fire(upto, &mut call) {
                return self.cut_short(call, batch, i);
            }
            let mut row = row.clone();
            if self.mutant == Mutant::ExpiryBySweep {
                (row.event.sees, row.ingestion.sees) = (call.around.event.0, call.around.ingestion.0);
            }
            self.row(row, &mut call);
        }
        call.views = (batch.event.1, batch.ingestion.1);
        if self.fire(end, &mut call) {
            let rows = batch.rows.len();
            return self.cut_short(call, batch, rows);
        }
        (Batch { rows: call.out, ..batch }, None, call.late)
    }

    /// The call ends just below the first wake that it may not fire; the rest follows.
    fn cut_short(&self, mut call: Call, batch: Batch, row: usize) -> (Batch, Option<Batch>, Vec<Row>) {
        // The other clocks stand where the first row that the rest emits sees them.
        let owed = self.owed(&mut call).unwrap_or(call.end);
        let (event, ingestion) = match self.on {
            On::Event => (just_below(owed), batch.before(On::Event, owed).1),
            On::Ingestion => (batch.before(On::Ingestion, owed).0, just_below(owed)),
            On::Processing => (batch.event.0, batch.ingestion.0),
        };
        let head = Batch {
            rows: call.out,
            event: (batch.event.0, event),
            ingestion: (batch.ingestion.0, ingestion),
            steps: batch.steps.clone(),

            now: batch.now,
            ended: batch.ended && self.mutant == Mutant::EveryPartEnds,
        };
        let rest = Batch {
            rows: batch.rows[row..].to_vec(),
            event: (event, batch.event.1),
            ingestion: (ingestion, batch.ingestion.1),
            steps: batch.steps.clone(),
            now: batch.now,
            ended: batch.ended,
        };
        (head, Some(rest), call.late)
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
            if let Some(entry) = self.state.get_mut(&place) {
                entry.wake = None;
                self.wake(at, place, call);
            }
        }
        false
    }

    /// A row that a wake emits sees just less than the wake, and its time is at least that. It sees the other clocks as
    /// they stood before what brought the wake about, which no cut and no row that is gone can change.
    pub(super) fn emit(&self, row: &Row, at: Stamp, window: (i64, i64), call: &mut Call) {
        let below = just_below(at);
        let own = match self.mutant {
            Mutant::EmittedSeesTheStep => at,
            Mutant::EmittedSeesItsPredecessor => call.out.last().map_or(below, |row| self.sees(row, call.now)),
            _ => below,
        };
        let before = match self.on {
            On::Processing => call.around.steps.first().copied().unwrap_or(call.views),
            on => call.around.before(on, at),
        };
        let others = match (self.mutant, self.on) {
            (Mutant::EmittedSeesOtherClocksAtTheEnd, _) => (call.around.event.1, call.around.ingestion.1),
            (Mutant::EmittedSeesOtherClocksOfItsSuccessor, _) => call.views,
            _ => before,
        };
        let keeps = self.mutant == Mutant::EmittedKeepsItsTime;
        let mut row = Row { window, woken: true, ..row.clone() };
        for (timed, on, other) in [(&mut row.event, On::Event, others.0), (&mut row.ingestion, On::Ingestion, others.1)]
        {
            let (sees, floor) = if on == self.on { (own, below.0) } else { (other, other.0) };
            timed.sees = sees;
            timed.time = if keeps { timed.time } else { timed.time.max(floor) };
        }
        row.order.0 = row.event.time;
        call.out.push(row);
    }

    /// A row that another row brings about sees what that one sees.
    pub(super) fn image(&self, image: Image, row: &Row, cause: &Row, window: (i64, i64), call: &mut Call) {
        let mut row = Row { image, window, ..row.clone() };
        (row.event.sees, row.ingestion.sees) = (cause.event.sees, cause.ingestion.sees);
        call.out.push(row);
    }

    pub(super) fn set_wake(&mut self, place: Place, at: Stamp, call: &mut Call) {
        self.sets += 1;
        let Some(entry) = self.state.get_mut(&place) else { return };
        let rank = (entry.time, entry.row.order, place.1);
        entry.wake = Some((at, rank, self.sets));
        if at <= call.end {
            call.heap.push(Reverse((at, rank, self.sets, place)));
        }
    }

    /// The stage's time of a row, what it sees there.
    pub(super) fn stands(&self, row: &Row, call: &Call) -> (i64, Stamp) {
        (self.time(row, call.now), self.sees(row, call.now))
    }
}

/// Keep first: strictly smaller. Keep last: greater or equal in time.
pub(super) fn better(keep: Keep, row: &Row, kept: &Row) -> bool {
    match keep {
        Keep::First => row.order < kept.order,
        Keep::Last => row.order.0 >= kept.order.0,
    }
}
