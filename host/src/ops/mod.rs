//! Operations: what a running process tells those who keep it running, and what they ask of it. Workers publish at their
//! commits what they have done; `/livez /readyz /metrics /status` show it on loopback. `/forget` and `/reload` are for
//! those who can read the token in the state directory.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

mod metrics;
pub mod orders;
mod progress;
mod seat;
pub mod server;
mod watch;

pub use metrics::Metrics;
pub use seat::{Phase, Seat};

/// A loop that has not turned for this long is not alive. A turn is bounded by the deadlines of guests, and by disk and
/// network.
const ALIVE_WITHIN: Duration = Duration::from_secs(60);

/// Everything one process tells: a seat for each of its pipelines.
#[derive(Debug)]
pub struct Board {
    seats: Mutex<Vec<Arc<Seat>>>,
    metrics: Arc<Metrics>,
    /// Set when somebody asked the process to stop.
    stop: Arc<AtomicBool>,
    /// Set when all pipelines have ended.
    closed: AtomicBool,
    began: Instant,
    /// What whoever asks for something must show.
    pub token: String,
    /// Those who wait for the files of the pipelines to be read again.
    reloads: Mutex<Vec<Sender<Value>>>,
}

impl Board {
    /// A board without pipelines. `stop` is the flag that signals set.
    pub fn new(stop: Arc<AtomicBool>) -> Arc<Board> {
        Arc::new(Board {
            seats: Mutex::default(),
            metrics: Arc::new(Metrics::new()),
            stop,
            closed: AtomicBool::new(false),
            began: Instant::now(),
            token: token(),
            reloads: Mutex::default(),
        })
    }

    /// Asks for the files of all pipelines to be read again; the answer says what became of each pipeline.
    pub fn ask_reload(&self) -> Receiver<Value> {
        let (answer, heard) = channel();
        self.reloads().push(answer);
        heard
    }

    /// Those who have asked for it since the last call.
    pub fn take_reloads(&self) -> Vec<Sender<Value>> {
        std::mem::take(&mut self.reloads())
    }

    fn reloads(&self) -> MutexGuard<'_, Vec<Sender<Value>>> {
        self.reloads.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The seat of a pipeline; without a name, of the only one.
    pub fn find(&self, pipeline: Option<&str>) -> Option<Arc<Seat>> {
        let seats = self.seats();
        match pipeline {
            Some(name) => seats.iter().find(|seat| seat.pipeline() == name).cloned(),
            None => seats.first().filter(|_| seats.len() == 1).cloned(),
        }
    }

    /// A seat for a pipeline.
    pub fn seat(&self, pipeline: &str) -> Arc<Seat> {
        let seat = Arc::new(Seat::new(pipeline, Arc::clone(&self.metrics)));
        self.seats().push(Arc::clone(&seat));
        seat
    }

    /// All pipelines have ended: the server may go.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn is_draining(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn seats(&self) -> MutexGuard<'_, Vec<Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Why the process is not alive; nothing if it is.
    pub fn dead(&self) -> Option<String> {
        let seats = self.seats();
        let silent = seats.iter().find(|seat| seat.phase() == Phase::Running && seat.silence() > ALIVE_WITHIN)?;
        Some(format!("{}: its loop has not turned for {} s", silent.pipeline(), silent.silence().as_secs()))
    }

    /// Why the process is not ready; nothing if it is. A pipeline that has failed is told in `/status`, and does not
    /// take its neighbours out of service.
    pub fn not_ready(&self) -> Option<String> {
        if self.is_draining() {
            return Some("draining: it was asked to stop".to_owned());
        }
        let seats = self.seats();
        let waits = seats.iter().find(|seat| matches!(seat.phase(), Phase::Starting | Phase::Restoring));
        if let Some(seat) = waits {
            return Some(format!("{}: {}", seat.pipeline(), seat.phase().word()));
        }
        let away =
            seats.iter().find_map(|seat| Some((seat, seat.is_away().filter(|_| seat.phase() == Phase::Running)?)));
        if let Some((seat, why)) = away {
            return Some(format!("{}: {why}", seat.pipeline()));
        }
        if seats.iter().all(|seat| matches!(seat.phase(), Phase::Failed | Phase::Ended)) {
            return Some("no pipeline runs".to_owned());
        }
        None
    }

    /// The answer of `/status`.
    pub fn status(&self) -> Value {
        let pipelines: Vec<Value> = self.seats().iter().map(|seat| seat.status(self.is_draining())).collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "seconds": self.began.elapsed().as_secs(),
            "ready": self.not_ready().is_none(),
            "reason": self.not_ready(),
            "pipelines": pipelines,
        })
    }

    /// The answer of `/metrics`, in the text form of OpenMetrics.
    pub fn metrics(&self) -> String {
        for seat in self.seats().iter() {
            seat.refresh(self.is_draining());
        }
        self.metrics.text()
    }
}

/// A text that nobody can guess.
fn token() -> String {
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn board() -> (Arc<AtomicBool>, Arc<Board>) {
        let stop = Arc::new(AtomicBool::new(false));
        (Arc::clone(&stop), Board::new(stop))
    }

    #[test]
    fn it_is_ready_when_every_pipeline_is() {
        let (_, board) = board();
        let (a, b) = (board.seat("a"), board.seat("b"));
        assert_eq!(board.not_ready().as_deref(), Some("a: starting"));
        a.enter(Phase::Running, "");
        b.enter(Phase::Restoring, "");
        assert_eq!(board.not_ready().as_deref(), Some("b: restoring"));
        b.enter(Phase::Running, "");
        assert_eq!(board.not_ready(), None);
    }

    #[test]
    fn a_failed_pipeline_does_not_take_its_neighbour_out_of_service() {
        let (_, board) = board();
        let (a, b) = (board.seat("a"), board.seat("b"));
        a.enter(Phase::Failed, "the disk is full");
        b.enter(Phase::Running, "");
        assert_eq!(board.not_ready(), None);
        assert_eq!(board.status()["pipelines"][0]["reason"], "the disk is full");
        b.enter(Phase::Failed, "");
        assert_eq!(board.not_ready().as_deref(), Some("no pipeline runs"));
    }

    #[test]
    fn it_is_not_ready_while_it_drains_and_still_alive() {
        let (stop, board) = board();
        let seat = board.seat("a");
        seat.enter(Phase::Running, "");
        seat.beat();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(board.not_ready().as_deref(), Some("draining: it was asked to stop"));
        assert_eq!(board.status()["pipelines"][0]["state"], "draining");
        assert_eq!(board.dead(), None);
    }

    #[test]
    fn metrics_have_their_names_and_labels() {
        let (_, board) = board();
        let seat = board.seat("a \"b\"");
        seat.enter(Phase::Running, "");
        seat.lag("users", 3, 17);
        seat.committed(Duration::from_millis(20));
        seat.commit_failed();
        let text = board.metrics();
        for line in [
            "tamis_task_state{pipeline=\"a \\\"b\\\"\",state=\"running\"} 1",
            "tamis_source_lag_records{pipeline=\"a \\\"b\\\"\",topic=\"users\",partition=\"3\"} 17",
            "tamis_commit_seconds_count{pipeline=\"a \\\"b\\\"\"} 1",
            "tamis_commit_failures_total{pipeline=\"a \\\"b\\\"\"} 1",
            "# EOF",
        ] {
            assert!(text.contains(line), "`{line}` is not in:\n{text}");
        }
        seat.revoked("users", 3);
        assert!(!board.metrics().contains("users"), "what is read elsewhere is not told here");
    }
}
