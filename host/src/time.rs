//! Stamps and watermarks: one comparison decides order, lateness and closing (rules O3, W1-W6).

/// "None yet", as in the contract.
pub const NONE_YET: i64 = i64::MIN;
/// "Never".
pub const NEVER: i64 = i64::MAX;
/// "The end of bounded input".
pub const END: i64 = i64::MAX - 1;

/// A point in time and the input of the task it belongs to; ordered by time, then input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Nanoseconds since 1970 UTC.
    pub time: i64,
    /// Input of the task.
    pub input: u16,
}

impl Stamp {
    /// Where every clock starts.
    pub const START: Stamp = Stamp { time: NONE_YET, input: 0 };
    /// Where a clock stands when bounded input has ended.
    pub const END: Stamp = Stamp { time: END, input: u16::MAX };

    /// The greatest stamp below this one.
    #[must_use]
    pub fn just_below(self) -> Stamp {
        match (self.input, self.time) {
            (0, NONE_YET) => self,
            (0, time) => Stamp { time: time - 1, input: u16::MAX },
            (input, time) => Stamp { time, input: input - 1 },
        }
    }
}
