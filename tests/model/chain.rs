//! The host of the model: clocks that stamp rows, and batches that pass through stages.

use std::rc::Rc;

use super::stages::{Mode, Stage};

/// A time and the input it belongs to; ordered by time, then input.
pub type Stamp = (i64, i64);
/// Before everything.
pub const NEVER_YET: Stamp = (-1_000_000_000, -1);
/// Beyond every input.
pub const ANY: i64 = 9;
/// The end of the input.
pub const END: Stamp = (1_000_000_000, ANY);

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
        /// Its append time.
        appended: i64,
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
    /// A row that a wake emitted keeps its time.
    EmittedKeepsItsTime,
    /// A row that a wake emitted sees the watermark after the step.
    EmittedSeesTheStep,
    /// A row that a wake emitted sees what the row before it saw.
    EmittedSeesItsPredecessor,
    /// A row that a wake emitted sees the other clocks as they stand at the end of the batch.
    EmittedSeesOtherClocksAtTheEnd,
    /// It sees them as the next row that is still there does.
    EmittedSeesOtherClocksOfItsSuccessor,
    /// Every part of the last batch is the last.
    EveryPartEnds,
    /// Wakes that came with the batch lost their rank.
    DuesWithoutRank,
    /// A wake that was replaced fires all the same.
    ReplacedWakeFires,
    /// What is over is judged when the batch ends, not when it is read.
    ExpiryBySweep,
    /// Processing time goes on in one step, however much is due on the way.
    ClockInOneStep,
    /// After a restart the watermark begins anew.
    RestartForgetsTime,
    /// After a restart nothing wakes.
    RestartForgetsWakes,
}

impl Mutant {
    /// All but the right one.
    pub const ALL: [Mutant; 14] = [
        Mutant::WakesAtTheEnd,
        Mutant::OneWatermarkPerBatch,
        Mutant::EmittedKeepsItsTime,
        Mutant::EmittedSeesTheStep,
        Mutant::EmittedSeesItsPredecessor,
        Mutant::EmittedSeesOtherClocksAtTheEnd,
        Mutant::EmittedSeesOtherClocksOfItsSuccessor,
        Mutant::EveryPartEnds,
        Mutant::DuesWithoutRank,
        Mutant::ReplacedWakeFires,
        Mutant::ExpiryBySweep,
        Mutant::ClockInOneStep,
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
    /// What was written is no more.
    Delete,
}

/// A clock of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Event time and its watermark.
    Event,
    /// Append time and its watermark.
    Ingestion,
    /// Processing time.
    Processing,
}

/// A row on one clock.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Its time here: stages further on see the time of the wake that emitted it, if that is later.
    pub time: i64,
    /// The watermark it sees.
    pub sees: Stamp,
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
    /// On the event clock.
    pub event: Timed,
    /// On the ingestion clock.
    pub ingestion: Timed,
    /// Event time, input, offset: the total order of records.
    pub order: (i64, i64, i64),
    /// What it is.
    pub image: Image,
    /// The window it stands for.
    pub window: (i64, i64),
    /// A wake of the chain emitted it.
    pub woken: bool,
}

/// Where a clock stands before and after some rows.
pub type Span = (Stamp, Stamp);

/// Rows, and where the clocks stand.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The rows.
    pub rows: Vec<Row>,
    /// Event time.
    pub event: Span,
    /// Append time.
    pub ingestion: Span,
    /// Where both stood before each record of the source, or before a step of time without records; records that are no
    /// longer there too.
    pub steps: Rc<[(Stamp, Stamp)]>,
    /// Processing time.
    pub now: i64,
    /// The input has ended.
    pub ended: bool,
}

impl Batch {
    /// Where the clocks stood before what made one of them reach a stamp.
    pub fn before(&self, on: On, at: Stamp) -> (Stamp, Stamp) {
        let reached = |step: &&(Stamp, Stamp)| (if on == On::Event { step.0 } else { step.1 }) < at;
        let before = self.steps.iter().take_while(reached).last();
        before.copied().unwrap_or((self.event.0, self.ingestion.0))
    }
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Came {
    /// Records and what they were, in order.
    pub rows: Vec<(i64, i64, Image, (i64, i64))>,
    /// Late records, by stage.
    pub late: Vec<Vec<i64>>,
    /// Those that the chain itself made late: a wake had emitted them.
    pub made_late: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Active,
    Idle,
}

/// One watermark.
#[derive(Clone, Debug)]
struct Marks {
    own: Vec<Stamp>,
    delay: i64,
    combined: Stamp,
}

impl Marks {
    /// The least of the active inputs; if there is none, the greatest of the idle ones.
    fn combine(&mut self, activity: &[Activity]) {
        let of = |wanted| {
            let all = self.own.iter().zip(activity).enumerate().filter(move |(_, (_, a))| **a == wanted);
            all.map(|(i, (own, _))| (own.0.max(self.combined.0), i as i64, own.0))
        };
        let active = of(Activity::Active).map(|(time, input, _)| (time, input)).min();
        let combined = active.or_else(|| of(Activity::Idle).map(|(.., own)| (own, ANY)).max());
        if let Some(combined) = combined {
            self.combined = self.combined.max(combined);
        }
    }

    fn observe(&mut self, input: usize, time: i64, activity: &[Activity]) {
        self.own[input] = self.own[input].max((time - self.delay, input as i64));
        self.combine(activity);
    }
}

/// The clocks of the task; what a restart keeps.
#[derive(Clone, Debug)]
struct Clock {
    event: Marks,
    ingestion: Marks,
    activity: Vec<Activity>,
    heard: Vec<i64>,
    idle: Option<i64>,
    now: i64,
}

impl Clock {
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
        self.event.combine(&self.activity);
        self.ingestion.combine(&self.activity);
    }
}

/// Stages, and the clocks before them.
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
    pub fn new(
        modes: &[(Mode, On)],
        inputs: usize,
        delay: i64,
        idle: Option<i64>,
        limit: usize,
        mutant: Mutant,
    ) -> Chain {
        let marks = |delay| Marks { own: vec![NEVER_YET; inputs], delay, combined: NEVER_YET };
        Chain {
            clock: Clock {
                event: marks(delay),
                ingestion: marks(0),
                activity: vec![Activity::Active; inputs],
                heard: vec![0; inputs],
                idle,
                now: 0,
            },
            offsets: vec![0; inputs],
            stages: modes.iter().map(|(mode, on)| Stage::new(mode.clone(), *on, limit, mutant)).collect(),
            mutant,
            came: Came { late: vec![Vec::new(); modes.len()], ..Came::default() },
        }
    }

    /// Records come, at one instant.
    pub fn push(&mut self, events: Vec<Event>) {
        let (event_start, ingestion_start) = (self.clock.event.combined, self.clock.ingestion.combined);
        let mut rows = Vec::new();
        for event in events {
            let Event::Row { id, key, input, time, appended } = event else { continue };
            let at_start = self.mutant == Mutant::OneWatermarkPerBatch;
            let sees = |start, marks: &Marks| if at_start { start } else { marks.combined };
            rows.push(Row {
                id,
                key,
                input: input as i64,
                event: Timed { time, sees: sees(event_start, &self.clock.event) },
                ingestion: Timed { time: appended, sees: sees(ingestion_start, &self.clock.ingestion) },
                order: (time, input as i64, self.offsets[input]),
                image: Image::Insert,
                window: (0, 0),
                woken: false,
            });
            self.offsets[input] += 1;
            let Clock { event, ingestion, activity, heard, now, .. } = &mut self.clock;
            activity[input] = Activity::Active;
            heard[input] = *now;
            event.observe(input, time, activity);
            ingestion.observe(input, appended, activity);
        }
        let event = (event_start, self.clock.event.combined);
        let ingestion = (ingestion_start, self.clock.ingestion.combined);
        let steps = rows.iter().map(|row| (row.event.sees, row.ingestion.sees)).collect();
        self.pass(0, Batch { rows, event, ingestion, steps, now: self.clock.now, ended: false });
    }

    /// A step of time without records.
    fn step(&mut self, event: Stamp, ingestion: Stamp, ends: (Stamp, Stamp), ended: bool) {
        let steps = Rc::from([(event, ingestion)]);
        let (event, ingestion) = ((event, ends.0), (ingestion, ends.1));
        self.pass(0, Batch { rows: Vec::new(), event, ingestion, steps, now: self.clock.now, ended });
    }

    /// Processing time goes on: inputs fall silent and wakes fire at their instants.
    pub fn clock(&mut self, now: i64) {
        loop {
            let wakes = self.stages.iter().filter_map(Stage::deadline);
            let due = self.clock.deadline().into_iter().chain(wakes).min();
            let Some(due) = due.filter(|&due| due <= now) else { break };
            self.clock.now = if self.mutant == Mutant::ClockInOneStep { now } else { due.max(self.clock.now) };
            let (event, ingestion) = (self.clock.event.combined, self.clock.ingestion.combined);
            self.clock.fall_silent();
            let ends = (self.clock.event.combined, self.clock.ingestion.combined);
            self.step(event, ingestion, ends, false);
        }
        self.clock.now = now;
    }

    /// State, wakes, watermarks and idle flags stay; timers of active inputs begin anew.
    pub fn restart(&mut self) {
        self.clock.heard.fill(self.clock.now);
        self.stages = self.stages.iter().map(Stage::restored).collect();
        if self.mutant == Mutant::RestartForgetsTime {
            for marks in [&mut self.clock.event, &mut self.clock.ingestion] {
                marks.combined = NEVER_YET;
                marks.own.fill(NEVER_YET);
            }
        }
    }

    /// The input has ended.
    pub fn finish(&mut self) {
        self.step(self.clock.event.combined, self.clock.ingestion.combined, (END, END), true);
    }

    /// Depth first: what a stage gives goes on before the rest of its input.
    fn pass(&mut self, at: usize, batch: Batch) {
        if at == self.stages.len() {
            self.came.rows.extend(batch.rows.iter().map(|row| (row.id, row.event.time, row.image, row.window)));
            return;
        }
        let mut input = Some(batch);
        while let Some(batch) = input {
            let (next, rest, late) = self.stages[at].call(batch);
            self.came.made_late += late.iter().filter(|row| row.woken).count();
            self.came.late[at].extend(late.iter().map(|row| row.id));
            self.pass(at + 1, next);
            input = rest;
        }
    }
}
