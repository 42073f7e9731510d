//! The decision table of the rules (section 2), for append and upsert output: which cells are legal, and what each does.
//! Written from the rules; nothing is shared with the guest.

/// Which one stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    First,
    Last,
}

/// The scope of sameness; milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    None,
    Tumbling { size: i64, offset: i64 },
    Horizon { ttl: i64 },
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
    pub upsert: bool,
    pub emit: Emit,
}

/// What a cell does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The first arrival leaves at once.
    FA,
    /// One leaves when its scope is final: FE, LE.
    Final,
    /// The first leaves at once, every replacement is written: FU, LU.
    Updates,
    /// As `Updates`, but equal content is not written: FC, LC.
    Changes,
    /// One leaves at the end of its window, corrections within the lateness at once.
    Corrected,
}

impl Cell {
    /// What it does, or the code of its refusal. `bounded`: the input ends.
    pub fn code(&self, bounded: bool) -> Result<Code, &'static str> {
        let by_event = self.order == Order::Time && self.clock == Clock::Event;
        let by_field = self.order == Order::Field || (self.order == Order::Time && self.clock != Clock::Event);
        let arrival = self.order == Order::Arrival;
        if self.window == Window::None && self.emit == Emit::Close {
            // FE by the watermark, FA, or nothing before the end.
            return match self.keep {
                Keep::First if arrival => Ok(Code::FA),
                Keep::First if by_event => Ok(Code::Final),
                _ if bounded => Ok(Code::Final),
                _ => Err("D-NO3"),
            };
        }
        if self.emit == Emit::Close {
            let corrected = matches!(self.window, Window::Tumbling { .. }) && self.upsert;
            return Ok(if corrected { Code::Corrected } else { Code::Final });
        }
        match (self.keep, self.upsert) {
            (Keep::Last, false) => Err("D-NO2"),
            (Keep::First, _) if arrival => Ok(Code::FA),
            (Keep::First, false) if by_event && matches!(self.window, Window::Horizon { .. }) => Ok(Code::FA),
            (Keep::First, false) if by_event || by_field => Err("D-NO1"),
            _ if self.emit == Emit::Change => Ok(Code::Changes),
            _ => Ok(Code::Updates),
        }
    }

    /// Every cell of the slice.
    pub fn all() -> Vec<Cell> {
        let mut cells = Vec::new();
        for window in [Window::None, Window::Tumbling { size: 10, offset: 0 }, Window::Horizon { ttl: 8 }] {
            for keep in [Keep::First, Keep::Last] {
                for clock in [Clock::Event, Clock::Processing, Clock::Ingestion] {
                    for order in [Order::Time, Order::Arrival, Order::Field] {
                        for upsert in [false, true] {
                            for emit in [Emit::Immediate, Emit::Close, Emit::Change] {
                                cells.push(Cell { window, keep, clock, order, upsert, emit });
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
        let window = match self.window {
            Window::None => "none",
            Window::Tumbling { .. } => "tumbling",
            Window::Horizon { .. } => "horizon",
        };
        let output = if self.upsert { "upsert" } else { "append" };
        format!("{window}, {:?}, {:?}, {:?}, {output}, {:?}", self.keep, self.clock, self.order, self.emit)
            .to_lowercase()
    }
}
