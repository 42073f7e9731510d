//! `dedup`: of records with the same key, perhaps within a window, one stays.
//!
//! Which one, when it leaves and what becomes of the others stands in one decision table ([`table`]); `check` refuses
//! what it forbids, [`plan`] says what the rest needs. Then there are two ways to judge: [`fast`] takes a whole batch
//! at once where the first arrival leaves for good, and row by row where something is compared or waits: without a
//! window ([`unwindowed`]), in windows with fixed edges ([`aligned`]: [`tumbling`], [`hopping`], [`cumulative`], by a
//! [`zone`]), within a horizon ([`horizon`]), in groups that grow ([`growing`]: sessions, and horizons that refresh on
//! access). They share what happens when a record meets the kept one ([`scope`]) and what leaves ([`written`]).

mod aligned;
pub mod check;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod check_tests;
mod cumulative;
pub mod duration;
pub mod entry;
mod fast;
mod growing;
mod hopping;
mod horizon;
pub mod plan;
mod scope;
pub mod settings;
pub mod standing;
pub mod table;
mod tumbling;
mod unwindowed;
pub mod words;
mod written;
pub mod zone;

use serde_json::Value;
use tamis_guest::{Batch, Check, ExpiresBy, Keyed, Out, Outcome, Row, Slot, Stamp, StateCalls, Verdict};

use crate::aligned::Windows;
use crate::plan::Plan;
use crate::settings::{Settings, Window};
use crate::standing::Standing;

/// Counters of a stage, in the order of the constants below.
pub const COUNTERS: [&str; 7] = [
    "duplicates_dropped",
    "replaced",
    "late",
    "late_window_assignments",
    "unchanged_suppressed",
    "merged_after_emit",
    "redelivered_self",
];
const DUPLICATES_DROPPED: usize = 0;
const REPLACED: usize = 1;
const LATE: usize = 2;
const LATE_WINDOW_ASSIGNMENTS: usize = 3;
const UNCHANGED_SUPPRESSED: usize = 4;
const MERGED_AFTER_EMIT: usize = 5;
const REDELIVERED_SELF: usize = 6;

/// A stage that deduplicates.
#[derive(Debug)]
pub struct Dedup {
    settings: Settings,
    plan: Plan,
    /// Where windows with fixed edges lie.
    windows: Option<Windows>,
    /// Where the record stands that the step before keeps, while one row is judged step by step (2.4).
    step_before: Option<Standing>,
    /// Bytes of the entry being written, kept for the next one.
    buffer: Vec<u8>,
}

impl Keyed for Dedup {
    fn check(params: &Value, context: &Value) -> Check {
        check::check(params, context)
    }

    fn open(params: &Value, context: &Value) -> Result<Self, String> {
        let settings = check::settings(params, context)?;
        let plan = Plan::of(&settings);
        let windows = Windows::of(&settings.window);
        Ok(Dedup { settings, plan, windows, step_before: None, buffer: Vec::new() })
    }

    fn batch(&mut self, batch: &Batch<'_>, state: &mut dyn StateCalls) -> Option<Outcome> {
        self.plan.fast.then(|| fast::batch(&self.settings, batch, state))
    }

    fn expires_by(&self) -> ExpiresBy {
        self.plan.expires_by
    }

    fn spaces(&self, row: &Row<'_>, into: &mut Vec<i64>) {
        match &self.windows {
            Some(windows) => windows.ends(row.time().time, into),
            None => into.push(0),
        }
    }

    fn one_space(&self) -> bool {
        self.windows.is_none()
    }

    fn row(&mut self, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
        match self.settings.window {
            Window::None => unwindowed::row(self, row, slot, out),
            Window::Horizon { access: false, .. } => horizon::row(self, row, slot, out),
            Window::Horizon { .. } | Window::Session { .. } => growing::row(self, row, slot, out),
            Window::Tumbling { .. } | Window::Hopping { .. } | Window::Cumulative { .. } => {
                aligned::row(self, row, slot, out)
            }
        }
    }

    fn wake(&mut self, at: Stamp, slot: &mut Slot<'_>, out: &mut Out) {
        match self.settings.window {
            Window::None => unwindowed::wake(self, slot, out),
            Window::Horizon { access: false, .. } => horizon::wake(self, at, slot, out),
            Window::Horizon { .. } | Window::Session { .. } => growing::wake(self, at, slot, out),
            Window::Tumbling { .. } | Window::Hopping { .. } | Window::Cumulative { .. } => {
                aligned::wake(self, slot, out)
            }
        }
    }
}

tamis_guest::keyed!(Dedup, include_str!("../manifest.json"));
