//! The host of the model: a clock that stamps rows, and batches that pass through stages.

use super::stages::{Mode, Stage};

/// A time and the input it belongs to; ordered by time, then input.
pub type Stamp = (i64, i64);
/// Before everything.
pub const NEVER_YET: Stamp = (-1_000_000_000, -1);
/// Beyond every input.
pub const ANY: i64 = 9;
/// The end of the input.
const END: Stamp = (1_000_000_000, ANY);

/// The greatest stamp below this one.
pub fn just_below(s: Stamp) -> Stamp {
    if s.1 > 0 { (s.0, s.1 - 1) } else { (s.0 - 1, ANY) }
}

/// What happens to a chain.
#[derive(Clone, Debug)]
pub enum Event {
    /// A record comes.
    Row {
        /// Its number.
        id: i64,
        /// Its key.
        key: i64,
        /// Its input.
        input: usize,
        /// Its event time.
        time: i64,
    },
    /// Processing time goes on.
    Clock(i64),
    /// A graceful stop and a start.
    Restart,
}

/// Ways to build it wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Right.
    None,
    /// Wakes fire after the last row of a batch only.
    WakesAtTheEnd,
    /// All rows of a batch see what stood before it.
    OneWatermarkPerBatch,
    /// A row that a wake emitted keeps its event time.
    EmittedKeepsItsTime,
    /// A row that a wake emitted sees the watermark after the step.
    EmittedSeesTheStep,
    /// A row that a wake emitted sees what the row before it saw.
    EmittedSeesItsPredecessor,
    /// Wakes that came with the batch lost their rank.
    DuesWithoutRank,
    /// A wake that was replaced fires all the same.
    ReplacedWakeFires,
    /// What is over is judged when the batch ends, not when it is read.
    ExpiryBySweep,
    /// After a restart the watermark begins anew.
    RestartForgetsTime,
    /// After a restart nothing wakes.
    RestartForgetsWakes,
}

impl Mutant {
    /// All but the right one.
    pub const ALL: [Mutant; 10] = [
        Mutant::WakesAtTheEnd,
        Mutant::OneWatermarkPerBatch,
        Mutant::EmittedKeepsItsTime,
        Mutant::EmittedSeesTheStep,
        Mutant::EmittedSeesItsPredecessor,
        Mutant::DuesWithoutRank,
        Mutant::ReplacedWakeFires,
        Mutant::ExpiryBySweep,
        Mutant::RestartForgetsTime,
        Mutant::RestartForgetsWakes,
    ];
}

/// What a row is to an updating output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// A record, or an insert.
    Insert,
    /// The old image of an update.
    Old,
    /// The new image of an update.
    New,
}

/// One row in a batch.
#[derive(Clone, Debug)]
pub struct Row {
    /// Number of the record.
    pub id: i64,
    /// Its key.
    pub key: i64,
    /// Its input.
    pub input: i64,
    /// Its time here: stages further on see the time of the wake that emitted it, if that is later.
    pub time: i64,
    /// Time, input, offset: the total order of records.
    pub order: (i64, i64, i64),
    /// The watermark it sees.
    pub sees: Stamp,
    /// What it is.
    pub image: Image,
    /// Start of the window it stands for.
    pub window: i64,
}

/// Rows, and where the clock stands before and after them.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The rows.
    pub rows: Vec<Row>,
    /// Before the first.
    pub start: Stamp,
    /// After the last.
    pub end: Stamp,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Came {
    /// Records and what they were, in order.
    pub rows: Vec<(i64, i64, Image, i64)>,
    /// Late records, by stage.
    pub late: Vec<Vec<i64>>,
    /// Those that the chain itself made late: at any stage but the first.
    pub made_late: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Active,
    Idle,
}

/// The watermark of the task; what a restart keeps.
#[derive(Clone, Debug)]
struct Clock {
    own: Vec<Stamp>,
    activity: Vec<Activity>,
    heard: Vec<i64>,
    delay: i64,
    idle: Option<i64>,
    now: i64,
    combined: Stamp,
}

impl Clock {
    /// The least of the active inputs; if there is none, the greatest of the idle ones.
    fn combine(&mut self) {
        let of = |wanted| {
            let all = self.own.iter().zip(&self.activity).enumerate().filter(move |(_, (_, a))| **a == wanted);
            all.map(|(i, (own, _))| (own.0.max(self.combined.0), i as i64, own.0))
        };
        let active = of(Activity::Active).map(|(time, input, _)| (time, input)).min();
        let combined = active.or_else(|| of(Activity::Idle).map(|(.., own)| (own, ANY)).max());
        if let Some(combined) = combined {
            self.combined = self.combined.max(combined);
        }
    }

    fn observe(&mut self, input: usize, time: i64) {
        self.activity[input] = Activity::Active;
        self.heard[input] = self.now;
        self.own[input] = self.own[input].max((time - self.delay, input as i64));
        self.combine();
    }

    /// The next instant at which an input has been silent for too long.
    fn deadline(&self) -> Option<i64> {
        let idle = self.idle?;
        let active = self.heard.iter().zip(&self.activity).filter(|(_, a)| **a == Activity::Active);
        active.map(|(heard, _)| heard + idle).min()
    }

    fn fall_silent(&mut self) {
        let Some(idle) = self.idle else { return };
        for (heard, activity) in self.heard.iter().zip(&mut self.activity) {
            if self.now >= heard + idle {
                *activity = Activity::Idle;
            }
        }
        self.combine();
    }
}

/// Stages, and the clock before them.
pub struct Chain {
    clock: Clock,
    offsets: Vec<i64>,
    stages: Vec<Stage>,
    mutant: Mutant,
    /// What came out so far.
    pub came: Came,
}

impl Chain {
    /// `limit`: how many wakes one call may fire.
    pub fn new(modes: &[Mode], inputs: usize, delay: i64, idle: Option<i64>, limit: usize, mutant: Mutant) -> Chain {
        Chain {
            clock: Clock {
                own: vec![NEVER_YET; inputs],
                activity: vec![Activity::Active; inputs],
                heard: vec![0; inputs],
                delay,
                idle,
                now: 0,
                combined: NEVER_YET,
            },
            offsets: vec![0; inputs],
            stages: modes.iter().map(|mode| Stage::new(mode.clone(), limit, mutant)).collect(),
            mutant,
            came: Came { late: vec![Vec::new(); modes.len()], ..Came::default() },
        }
    }

    /// Records come, at one instant.
    pub fn push(&mut self, events: Vec<Event>) {
        let start = self.clock.combined;
        let mut rows = Vec::new();
        for event in events {
            let Event::Row { id, key, input, time } = event else { continue };
            let sees = if self.mutant == Mutant::OneWatermarkPerBatch { start } else { self.clock.combined };
            let order = (time, input as i64, self.offsets[input]);
            self.offsets[input] += 1;
            rows.push(Row { id, key, input: input as i64, time, order, sees, image: Image::Insert, window: 0 });
            self.clock.observe(input, time);
        }
        let end = self.clock.combined;
        self.pass(0, Batch { rows, start, end });
    }

    /// Processing time goes on: inputs fall silent at their instants.
    pub fn clock(&mut self, now: i64) {
        while let Some(due) = self.clock.deadline().filter(|&due| due <= now) {
            self.clock.now = due;
            let start = self.clock.combined;
            self.clock.fall_silent();
            let end = self.clock.combined;
            self.pass(0, Batch { rows: Vec::new(), start, end });
        }
        self.clock.now = now;
    }

    /// State, wakes, watermarks and idle flags stay; timers of active inputs begin anew.
    pub fn restart(&mut self) {
        self.clock.heard.fill(self.clock.now);
        self.stages = self.stages.iter().map(Stage::restored).collect();
        if self.mutant == Mutant::RestartForgetsTime {
            self.clock.combined = NEVER_YET;
            self.clock.own.fill(NEVER_YET);
        }
    }

    /// The input has ended.
    pub fn finish(&mut self) {
        self.pass(0, Batch { rows: Vec::new(), start: self.clock.combined, end: END });
    }

    /// Depth first: what a stage gives goes on before the rest of its input.
    fn pass(&mut self, at: usize, batch: Batch) {
        if at == self.stages.len() {
            self.came.rows.extend(batch.rows.iter().map(|row| (row.id, row.time, row.image, row.window)));
            return;
        }
        let mut input = Some(batch);
        while let Some(batch) = input {
            let (next, rest, late) = self.stages[at].call(batch);
            if at > 0 {
                self.came.made_late += late.len();
            }
            self.came.late[at].extend(late);
            self.pass(at + 1, next);
            input = rest;
        }
    }
}
