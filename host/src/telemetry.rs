//! What a running pipeline tells its operator: log lines on standard error, repeated ones with a count.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;

use crate::chain::Failure;
use crate::files::sink::Position;
use crate::ops::Seat;

/// Lines of one kind of failure that are logged in full; later ones are counted.
const IN_FULL: u64 = 5;

/// Runs `work` with log lines going to standard error: text for a terminal, else JSON. `verbose`: 0 warnings, 1 what
/// happens, 2 everything.
pub fn with_log<T>(terminal: bool, verbose: u8, work: impl FnOnce() -> T) -> T {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    if terminal {
        tracing::subscriber::with_default(lines.compact().finish(), work)
    } else {
        tracing::subscriber::with_default(lines.json().flatten_event(true).finish(), work)
    }
}

/// The log of failed records: the first of a kind in full, then the 10th, the 100th and so on with their count.
#[derive(Debug, Default)]
pub struct FailureLog {
    on: bool,
    seen: BTreeMap<(String, String), u64>,
    seat: Option<Arc<Seat>>,
}

impl FailureLog {
    /// A log, or none.
    pub fn new(on: bool) -> FailureLog {
        FailureLog { on, ..FailureLog::default() }
    }

    /// Logs from now on, or does not.
    pub fn turn(&mut self, on: bool) {
        self.on = on;
    }

    /// Counts failures at this seat, too.
    pub fn tell(&mut self, seat: Arc<Seat>) {
        self.seat = Some(seat);
    }

    /// A record failed.
    pub fn failed(&mut self, pipeline: &str, failure: &Failure, at: &Position) {
        if let Some(seat) = &self.seat {
            seat.failed(&failure.stage, &failure.code);
        }
        if !self.on {
            return;
        }
        let count = self.seen.entry((failure.stage.clone(), failure.code.clone())).or_default();
        *count += 1;
        if *count > IN_FULL && !is_power_of_ten(*count) {
            return;
        }
        tracing::warn!(
            pipeline,
            stage = failure.stage,
            code = failure.code,
            topic = &*at.topic,
            partition = at.partition,
            offset = at.offset,
            module = failure.module,
            value = at.value,
            count = *count,
            "record failed: {}",
            failure.text
        );
    }

    /// Says how many lines were left out.
    pub fn close(&mut self, pipeline: &str) {
        for ((stage, code), count) in std::mem::take(&mut self.seen) {
            if count > IN_FULL {
                tracing::warn!(pipeline, stage, code, count, "records failed in all");
            }
        }
    }
}

fn is_power_of_ten(mut number: u64) -> bool {
    while number >= 10 && number % 10 == 0 {
        number /= 10;
    }
    number == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_ten_are_known() {
        let found: Vec<u64> = (1..2000).filter(|&n| is_power_of_ten(n)).collect();
        assert_eq!(found, [1, 10, 100, 1000]);
    }
}
