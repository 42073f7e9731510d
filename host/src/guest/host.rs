//! What a store carries beside the instance: meters, the log of a call, and the state during `process`.

use std::sync::Arc;

use wasmtime::ResourceLimiter;

use super::call::{Refusal, State};
use super::escape::escape;
use super::tally::Tally;
use crate::batch::Column;

/// The largest table, in elements; the largest seen in practice has 7,700.
const TABLE_ELEMENTS: usize = 16_384;
/// Core instances of a component, and its memories; a Python component has 38.
const INSTANCES: usize = 64;
/// Tables of a component.
const TABLES: usize = 128;
/// How much of what a guest logged goes into the text of its fault, bytes.
const LAST_WORDS: usize = 2048;

/// The data of a store.
pub struct Host {
    /// Counts memory.
    pub meter: Meter,
    /// What the guest logs in this call.
    pub log: Log,
    /// The session of a keyed stage, only during `process`.
    pub state: Option<Box<dyn State>>,
    /// Slots that the state has handed out in this call.
    pub slots: u64,
    /// What the call moved and did to state.
    pub tally: Tally,
    /// Why an import refused; the trap that follows carries no words of its own.
    pub refusal: Option<Refusal>,
    /// Columns that state imports were given, copied here; kept for their memory.
    pub scratch: Column,
}

impl Host {
    /// For one instance of the module of this name. `memory` and `log` are bounds in bytes.
    pub fn new(module: Arc<str>, memory: u64, log: u64) -> Host {
        Host {
            meter: Meter { limit: usize::try_from(memory).unwrap_or(usize::MAX), used: 0, refused: false },
            log: Log { module, cap: usize::try_from(log).unwrap_or(usize::MAX), used: 0, words: String::new() },
            state: None,
            slots: 0,
            tally: Tally::default(),
            refusal: None,
            scratch: Column::default(),
        }
    }

    /// Before a call.
    pub fn begin(&mut self, state: Option<Box<dyn State>>) {
        self.state = state;
        self.slots = 0;
        self.tally = Tally::default();
        self.refusal = None;
        self.meter.refused = false;
        self.log.used = 0;
        self.log.words.clear();
    }
}

/// Bounds what an instance takes.
pub struct Meter {
    /// Bytes of all its memories together.
    limit: usize,
    used: usize,
    /// It wanted more in this call and did not get it.
    pub refused: bool,
}

impl Meter {
    /// Bytes of memory the instance has.
    pub fn used(&self) -> usize {
        self.used
    }

    /// An eighth of the limit is left, or less. Memory never shrinks.
    pub fn is_high(&self) -> bool {
        self.used > self.limit - self.limit / 8
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.used.saturating_sub(current).saturating_add(desired);
        if total > self.limit {
            self.refused = true;
            return Ok(false);
        }
        if maximum.is_none_or(|max| desired <= max) {
            self.used = total;
        }
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS)
    }

    fn instances(&self) -> usize {
        INSTANCES
    }

    fn tables(&self) -> usize {
        TABLES
    }

    fn memories(&self) -> usize {
        INSTANCES
    }
}

/// The log of one call.
pub struct Log {
    module: Arc<str>,
    /// Bytes of one call.
    cap: usize,
    used: usize,
    /// The end of what was logged.
    words: String,
}

impl Log {
    /// Nothing more is written in this call.
    pub fn is_full(&self) -> bool {
        self.used >= self.cap
    }

    /// Writes a line at the guest's level, 1 error to 4 debug. What goes beyond the cap is left out, and that is said
    /// once.
    pub fn line(&mut self, level: u8, text: &str) {
        if self.is_full() {
            return;
        }
        let text = &text[..text.floor_char_boundary(self.cap - self.used)];
        // An empty line costs, too.
        self.used = self.used.saturating_add(text.len().max(1));
        self.keep(text);
        let (module, text) = (&*self.module, escape(text));
        match level {
            1 => tracing::error!(module, "{text}"),
            2 => tracing::warn!(module, "{text}"),
            3 => tracing::info!(module, "{text}"),
            _ => tracing::debug!(module, "{text}"),
        }
        if self.is_full() {
            tracing::warn!(
                module,
                "more than {} bytes logged in one call (limits.log): the rest is left out",
                self.cap
            );
        }
    }

    fn keep(&mut self, text: &str) {
        if !self.words.is_empty() {
            self.words.push('\n');
        }
        self.words.push_str(text);
        if self.words.len() > LAST_WORDS {
            let from = self.words.ceil_char_boundary(self.words.len() - LAST_WORDS);
            self.words.drain(..from);
        }
    }

    /// The end of what the guest logged in this call, not escaped; empty if it said nothing.
    pub fn last_words(&self) -> &str {
        &self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_over_all_memories_and_refused_beyond_the_limit() {
        let mut host = Host::new("m".into(), 1 << 20, 100);
        let mut grow = |from: usize, to: usize| matches!(host.meter.memory_growing(from, to, None), Ok(true));
        assert!(grow(0, 1 << 19));
        assert!(grow(0, 1 << 18));
        assert!(!grow(1 << 18, 1 << 20));
        assert!(grow(1 << 18, 1 << 19));
        assert!(host.meter.refused && host.meter.is_high() && host.meter.used() == 1 << 20);
    }

    #[test]
    fn growth_beyond_the_memorys_own_maximum_does_not_count() {
        let mut meter = Host::new("m".into(), 1 << 20, 100).meter;
        assert!(matches!(meter.memory_growing(0, 1 << 19, Some(1 << 18)), Ok(true)));
        assert_eq!(meter.used(), 0);
    }

    #[test]
    fn the_log_is_cut_at_its_cap_between_characters() {
        let mut log = Host::new("m".into(), 0, 5).log;
        log.line(1, "abcdéf");
        assert_eq!(log.last_words(), "abcd");
        log.line(1, "xyz");
        log.line(1, "more");
        assert_eq!(log.last_words(), "abcd\nx");
    }

    #[test]
    fn the_last_words_are_the_end_of_the_log() {
        let mut log = Host::new("m".into(), 0, 1 << 20).log;
        for i in 0..1000 {
            log.line(4, &format!("é{i}"));
        }
        assert!(log.last_words().len() <= LAST_WORDS && log.last_words().ends_with("é999"));
    }
}
