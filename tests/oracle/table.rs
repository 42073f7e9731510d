//! The decision table of the rules (section 2): which cells are legal, and what each does. Written from the rules;
//! nothing is shared with the guest.

/// Nanoseconds of a millisecond.
pub const MS: i64 = 1_000_000;
/// Nanoseconds of a minute.
pub const MINUTE: i64 = 60_000 * MS;

/// Which one stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    First,
    Last,
}

/// The scope of sameness; nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    None,
    Tumbling { size: i64, offset: i64, zone: Option<&'static str> },
    Hopping { size: i64, slide: i64, offset: i64 },
    Cumulative { size: i64, step: i64, offset: i64 },
    Session { gap: i64 },
    Horizon { ttl: i64, access: bool },
}

/// What assigns and closes windows and ages state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Event,
    Processing,
    Ingestion,
}

/// What first and last compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Time,
    Arrival,
    Field,
}

/// Kind of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Append,
    Upsert,
    Retract,
}

/// When a result leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    Immediate,
    Close,
    Change,
}

/// One cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub window: Window,
    pub keep: Keep,
    pub clock: Clock,
    pub order: Order,
    pub output: Output,
    pub emit: Emit,
}

/// What a cell does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The first arrival leaves at once.
    FA,
    /// One leaves when its scope is final: FE, LE.
    Final,
    /// As `Final`, but of steps with one start only those whose winner is another than that of the step before (2.4).
    FinalSteps,
    /// The first leaves at once, every replacement is written: FU, LU, and MU of sessions.
    Updates,
    /// As `Updates`, but equal content is not written: FC, LC.
    Changes,
    /// One leaves at the end of its window, corrections within the lateness at once: WU.
    Corrected,
}

impl Window {
    /// Windows whose bounds do not depend on the records.
    pub fn is_aligned(&self) -> bool {
        matches!(self, Window::Tumbling { .. } | Window::Hopping { .. } | Window::Cumulative { .. })
    }

    /// A name for people.
    pub fn name(&self) -> &'static str {
        match self {
            Window::None => "none",
            Window::Tumbling { zone: None, .. } => "tumbling",
            Window::Tumbling { .. } => "zone",
            Window::Hopping { .. } => "hopping",
            Window::Cumulative { .. } => "cumulative",
            Window::Session { .. } => "session",
            Window::Horizon { access: false, .. } => "horizon",
            Window::Horizon { .. } => "horizon on access",
        }
    }
}

impl Cell {
    /// What it does, or the code of its refusal. `bounded`: the input ends.
    pub fn code(&self, bounded: bool) -> Result<Code, &'static str> {
        let updating = self.output != Output::Append;
        match self.window {
            Window::None => self.unwindowed(bounded),
            Window::Cumulative { .. } if self.emit == Emit::Change && !updating => Ok(Code::FinalSteps),
            Window::Horizon { access: true, .. }
                if updating && self.emit != Emit::Close && self.clock != Clock::Processing =>
            {
                Err("D-REFRESH")
            }
            Window::Horizon { .. } if self.emit == Emit::Close => Ok(Code::Final),
            _ if self.emit == Emit::Close => Ok(if updating { Code::Corrected } else { Code::Final }),
            // A session's start may move whatever first means, but not under a clock that goes on with every record.
            Window::Session { .. } if updating => Ok(self.updates()),
            _ => self.at_once(),
        }
    }

    /// Table 2.1.
    fn unwindowed(&self, bounded: bool) -> Result<Code, &'static str> {
        let first = self.keep == Keep::First;
        match self.emit {
            Emit::Close if first && self.order == Order::Arrival => Ok(Code::FA),
            Emit::Close if first && self.order == Order::Time && self.clock == Clock::Event => Ok(Code::Final),
            Emit::Close if bounded => Ok(Code::Final),
            Emit::Close => Err("D-NO3"),
            _ => self.at_once(),
        }
    }

    /// What leaves at once.
    fn at_once(&self) -> Result<Code, &'static str> {
        let append = self.output == Output::Append;
        let by_event = self.order == Order::Time && self.clock == Clock::Event;
        match self.keep {
            Keep::Last if append => Err("D-NO2"),
            Keep::First if self.order == Order::Arrival => Ok(Code::FA),
            Keep::First if append && by_event && matches!(self.window, Window::Horizon { .. }) => Ok(Code::FA),
            Keep::First if append => Err("D-NO1"),
            _ => Ok(self.updates()),
        }
    }

    fn updates(&self) -> Code {
        if self.emit == Emit::Change { Code::Changes } else { Code::Updates }
    }

    /// Every cell.
    pub fn all() -> Vec<Cell> {
        let windows = [
            Window::None,
            Window::Tumbling { size: 10 * MS, offset: 0, zone: None },
            Window::Tumbling { size: 60 * MINUTE, offset: 0, zone: Some("Europe/Paris") },
            Window::Hopping { size: 10 * MS, slide: 4 * MS, offset: 0 },
            Window::Cumulative { size: 12 * MS, step: 4 * MS, offset: 0 },
            Window::Session { gap: 4 * MS },
            Window::Horizon { ttl: 8 * MS, access: false },
            Window::Horizon { ttl: 5 * MS, access: true },
        ];
        let mut cells = Vec::new();
        for window in windows {
            for keep in [Keep::First, Keep::Last] {
                for clock in [Clock::Event, Clock::Processing, Clock::Ingestion] {
                    for order in [Order::Time, Order::Arrival, Order::Field] {
                        for output in [Output::Append, Output::Upsert, Output::Retract] {
                            for emit in [Emit::Immediate, Emit::Close, Emit::Change] {
                                cells.push(Cell { window, keep, clock, order, output, emit });
                            }
                        }
                    }
                }
            }
        }
        cells
    }

    /// A name for people.
    pub fn name(&self) -> String {
        let window = self.window.name();
        format!("{window}, {:?}, {:?}, {:?}, {:?}, {:?}", self.keep, self.clock, self.order, self.output, self.emit)
            .to_lowercase()
    }
}
