//! `dedup`: of records with the same key, perhaps within a window, one stays.
//!
//! Which one, when it leaves and what becomes of the others stands in one decision table ([`table`]); `check` refuses
//! what it forbids, [`plan`] says what the rest needs. Then there are two ways to judge: [`fast`] takes a whole batch
//! at once where the first arrival leaves for good, and row by row where something is compared or waits: without a
//! window ([`unwindowed`]), in tumbling windows ([`tumbling`]), within a horizon ([`horizon`]). Those three share what
//! happens when a record meets the kept one ([`scope`]).

pub mod check;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod check_tests;
pub mod duration;
pub mod entry;
mod fast;
mod horizon;
pub mod plan;
mod scope;
pub mod settings;
pub mod standing;
pub mod table;
mod tumbling;
mod unwindowed;

use serde_json::Value;
use tamis_guest::{Batch, Check, ExpiresBy, Keyed, Out, Outcome, Row, Slot, Stamp, StateCalls, Verdict};

use crate::plan::Plan;
use crate::settings::{Settings, Window};
use crate::table::Shape;

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
const REDELIVERED_SELF: usize = 6;

/// A stage that deduplicates.
#[derive(Debug)]
pub struct Dedup {
    settings: Settings,
    plan: Plan,
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
        Ok(Dedup { settings, plan, buffer: Vec::new() })
    }

    fn batch(&mut self, batch: &Batch<'_>, state: &mut dyn StateCalls) -> Option<Outcome> {
        self.plan.fast.then(|| fast::batch(&self.settings, batch, state))
    }

    fn expires_by(&self) -> ExpiresBy {
        self.plan.expires_by
    }

    fn spaces(&self, row: &Row<'_>, into: &mut Vec<i64>) {
        match self.settings.window {
            Window::Tumbling { size, offset, .. } => into.push(tumbling::window(row.time().time, size, offset).end),
            _ => into.push(0),
        }
    }

    fn one_space(&self) -> bool {
        !self.settings.window.is_aligned()
    }

    fn row(&mut self, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
        match self.settings.window.shape() {
            Shape::None => unwindowed::row(self, row, slot, out),
            Shape::Horizon => horizon::row(self, row, slot, out),
            _ => tumbling::row(self, row, slot, out),
        }
    }

    fn wake(&mut self, at: Stamp, slot: &mut Slot<'_>, out: &mut Out) {
        match self.settings.window.shape() {
            Shape::None => unwindowed::wake(self, slot, out),
            Shape::Horizon => horizon::wake(self, at, slot, out),
            _ => tumbling::wake(self, slot, out),
        }
    }
}

tamis_guest::keyed!(Dedup, include_str!("../manifest.json"));
