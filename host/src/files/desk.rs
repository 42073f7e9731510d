//! The inbox of a pipeline on files: the source, the clock of the machine, and the signals that ask for a stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::Trouble;
use super::source::{Polled, Polling, Position, Source};
use crate::ops::Seat;
use crate::task::Input;
use crate::worker::{Event, Inbox};

/// A signal is noticed within this time.
const ATTENTION: Duration = Duration::from_millis(50);

/// Source, clock and signals.
#[derive(Debug)]
pub struct Desk {
    /// The source.
    pub source: Source,
    stop: Arc<AtomicBool>,
    /// Latest processing time given: the clock of the machine may be set back.
    latest: i64,
    /// Whether the source has said that it is at its end.
    ended: bool,
    /// Where it is told that the loop turns.
    seat: Option<Arc<Seat>>,
}

impl Desk {
    /// `stop`: set by whoever wants the run to stop.
    pub fn new(source: Source, stop: Arc<AtomicBool>) -> Desk {
        Desk { source, stop, latest: i64::MIN, ended: false, seat: None }
    }

    /// Tells at this seat that the loop turns.
    pub fn tell(&mut self, seat: Arc<Seat>) {
        self.seat = Some(seat);
    }
}

impl Inbox for Desk {
    fn now(&mut self) -> i64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.latest = self.latest.max(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
        self.latest
    }

    fn next(&mut self, until: i64, may_read: &dyn Fn(u16) -> bool) -> Result<Event, Trouble> {
        if let Some(seat) = &self.seat {
            seat.beat();
        }
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Event::Stop);
        }
        let wait = u64::try_from(until.saturating_sub(self.now())).map_or(Duration::ZERO, Duration::from_nanos);
        let wait = wait.min(ATTENTION);
        let polled = self.source.poll(wait, may_read)?;
        for note in self.source.notes.drain(..) {
            tracing::info!("{note}");
        }
        if matches!(polled, Polled::End) && std::mem::replace(&mut self.ended, true) {
            // Said before: somebody waits for something else.
            std::thread::sleep(wait);
        }
        Ok(Event::Source(polled))
    }

    fn inputs(&self) -> &[Input] {
        self.source.inputs()
    }

    fn taken(&mut self, polling: &Polling, count: usize) {
        self.source.taken(polling, count);
    }

    fn position(&self) -> Position {
        self.source.position()
    }
}

/// A flag that SIGHUP sets.
pub fn flag_on_hangup() -> Result<Arc<AtomicBool>, Trouble> {
    let hangup = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&hangup))
        .map_err(|error| Trouble::new(format!("signals cannot be handled: {error}"), "report this"))?;
    Ok(hangup)
}

/// A flag that SIGTERM and SIGINT set; a second of them ends the process at once with 128 and its number.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>, Trouble> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // The order matters: the first signal finds the flag down, and sets it.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Trouble::new(format!("signals cannot be handled: {error}"), "report this"))?;
    }
    Ok(stop)
}
