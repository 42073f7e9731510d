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

/// Whether an input takes part in the watermark (W3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Activity {
    /// It counts.
    Active,
    /// It was silent for the idle timeout, or its source said so.
    Idle,
    /// It has ended, and never counts again.
    Finished,
}

/// The watermark of a task: one per input, and the combined one as a stamp. In one comparison it decides what is late
/// (W2), what is closed, and which candidate is final: the combined stamp is the lexicographic minimum over the active
/// inputs of (own watermark, input).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Clock {
    delay: i64,
    own: Vec<i64>,
    time: i64,
    input: u16,
}

impl Clock {
    /// A clock over some inputs; `delay` in nanoseconds.
    pub fn new(inputs: usize, delay: i64) -> Clock {
        Clock { delay, own: vec![NONE_YET; inputs], time: Stamp::START.time, input: Stamp::START.input }
    }

    /// Where it stands.
    pub fn now(&self) -> Stamp {
        Stamp { time: self.time, input: self.input }
    }

    /// An input's own watermark, ns; `NONE_YET` before its first record.
    pub fn own(&self, input: u16) -> i64 {
        self.own.get(usize::from(input)).copied().unwrap_or(NONE_YET)
    }

    /// Takes another delay, after a restart with other settings.
    pub fn set_delay(&mut self, delay: i64) {
        self.delay = delay;
    }

    /// More inputs than before: each starts at the beginning (W4).
    pub fn grow(&mut self, inputs: usize) {
        if inputs > self.own.len() {
            self.own.resize(inputs, NONE_YET);
        }
    }

    /// A record of this time was seen on an input (W1): monotone, steps back are ignored.
    pub fn observe(&mut self, input: u16, time: i64, activity: &[Activity]) {
        self.set(input, time.saturating_sub(self.delay), activity);
    }

    /// Sets an input's own watermark, if that is a step forward.
    pub fn set(&mut self, input: u16, watermark: i64, activity: &[Activity]) {
        let Some(own) = self.own.get_mut(usize::from(input)) else { return };
        if watermark <= *own {
            return;
        }
        *own = watermark;
        if self.own.len() == 1 {
            // One input: the combined watermark is its own.
            if watermark > self.time && activity.first() == Some(&Activity::Active) {
                self.time = watermark;
                self.input = 0;
            }
        } else {
            self.combine(activity);
        }
    }

    /// Recomputes the combined watermark after an input changed; it never goes back.
    pub fn combine(&mut self, activity: &[Activity]) {
        let floor = self.time;
        let of = |wanted: Activity| self.own.iter().zip(activity).enumerate().filter(move |(_, (_, a))| **a == wanted);
        let active = of(Activity::Active).map(|(i, (own, _))| Stamp { time: (*own).max(floor), input: i as u16 }).min();
        let combined = active.or_else(|| {
            let idle = of(Activity::Idle).map(|(_, (own, _))| *own).max()?;
            Some(Stamp { time: idle, input: u16::MAX })
        });
        match combined {
            Some(stamp) if stamp > self.now() => self.move_to(stamp),
            None if !self.own.is_empty() => self.move_to(Stamp::END),
            _ => {}
        }
    }

    /// Moves the combined watermark, also back: after the end of bounded input it returns to what really passed.
    pub fn move_to(&mut self, stamp: Stamp) {
        self.time = stamp.time;
        self.input = stamp.input;
    }
}

/// A clock that never goes back, whatever the one does that it is read from (ns since 1970).
#[derive(Clone, Copy, Debug)]
pub struct Forward(i64);

impl Default for Forward {
    fn default() -> Forward {
        Forward(i64::MIN)
    }
}

impl Forward {
    /// What it says when the other one says this.
    pub fn at(&mut self, found: i64) -> i64 {
        self.0 = self.0.max(found);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_back_changes_nothing() {
        let mut clock = Forward::default();
        let told: Vec<i64> = [5, 3, 4, 7, i64::MIN, 8].into_iter().map(|found| clock.at(found)).collect();
        assert_eq!(told, [5, 5, 5, 7, 7, 8]);
    }
    use Activity::{Active, Finished, Idle};

    fn at(clock: &Clock) -> (i64, u16) {
        (clock.now().time, clock.now().input)
    }

    #[test]
    fn the_combined_watermark_is_the_least_of_the_active_inputs() {
        let mut clock = Clock::new(2, 2);
        let both = [Active, Active];
        clock.observe(0, 100, &both);
        assert_eq!(clock.now().time, NONE_YET, "input 1 has not spoken");
        clock.observe(1, 50, &both);
        assert_eq!(at(&clock), (48, 1));
        clock.observe(1, 200, &both);
        assert_eq!(at(&clock), (98, 0));
        clock.observe(1, 10, &both);
        assert_eq!(at(&clock), (98, 0), "it never goes back");
    }

    #[test]
    fn idle_inputs_do_not_hold_it_and_finished_ones_never_count() {
        let mut clock = Clock::new(2, 0);
        clock.observe(0, 5, &[Active, Active]);
        clock.observe(1, 4, &[Active, Active]);
        clock.combine(&[Idle, Active]);
        assert_eq!(at(&clock), (4, 1));
        clock.combine(&[Idle, Idle]);
        assert_eq!(at(&clock), (5, u16::MAX), "the greatest of the idle ones");
        let mut clock = Clock::new(2, 0);
        clock.observe(0, 3, &[Active, Active]);
        clock.observe(1, 4, &[Finished, Active]);
        assert_eq!(at(&clock), (4, 1));
        clock.combine(&[Finished, Finished]);
        assert_eq!(clock.now(), Stamp::END);
    }

    #[test]
    fn an_input_that_wakes_up_counts_as_at_least_the_combined_one() {
        let mut clock = Clock::new(2, 0);
        clock.observe(0, 100, &[Active, Idle]);
        assert_eq!(at(&clock), (100, 0));
        clock.observe(1, 7, &[Active, Active]);
        assert_eq!(at(&clock), (100, 0));
        clock.observe(0, 110, &[Active, Active]);
        assert_eq!(at(&clock), (100, 1));
    }

    #[test]
    fn just_below_steps_through_inputs_first() {
        let stamp = Stamp { time: 10, input: 1 };
        assert_eq!(stamp.just_below(), Stamp { time: 10, input: 0 });
        assert_eq!(stamp.just_below().just_below(), Stamp { time: 9, input: u16::MAX });
        assert_eq!(Stamp::START.just_below(), Stamp::START);
    }
}
