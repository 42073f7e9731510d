//! A line on a terminal that says how a run is getting on; it is written over again and again.

use std::io::Write;
use std::sync::atomic::Ordering;

use super::Seat;

impl Seat {
    /// Somebody looks at a terminal.
    pub fn show_progress(&self, on: bool) {
        self.shows.store(on, Ordering::Relaxed);
    }

    /// Writes the line anew. What cannot be written is not missed.
    pub fn draw(&self) {
        if self.shows.load(Ordering::Relaxed) {
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", self.line());
        }
    }

    /// Takes the line away.
    pub fn end_progress(&self) {
        if self.shows.swap(false, Ordering::Relaxed) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
