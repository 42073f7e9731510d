//! What is told of the calls of guests, to whoever keeps them running.

use std::time::Duration;

use super::tally::Tally;

/// Is told what the guest at one place does, by the thread that calls it.
pub trait Watch: Send + Sync {
    /// An instance was made and opened.
    fn started(&self);
    /// A call ended after `took`; the instance has `memory` bytes now. `tally`: what the call moved and did to state.
    fn called(&self, took: Duration, memory: usize, tally: &Tally);
    /// A call ended in a fault of this kind.
    fn faulted(&self, kind: &str);
    /// An instance was thrown away: `fault`, `memory`, `calls` or `discard`.
    fn recycled(&self, reason: &'static str);
}
