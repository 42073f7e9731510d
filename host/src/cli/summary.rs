//! What a run did, in numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::exit::Failure;
use crate::files::sink::Counts;
use crate::plan::Plan;
use crate::stage::Counters;
use crate::task::Task;

/// Sums over tasks, of all runs so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Records that came in.
    pub records: u64,
    /// Records that were dropped as duplicates.
    pub duplicates: u64,
    /// Records that a stage without key dropped.
    pub filtered: u64,
}

impl Totals {
    /// With what stages had counted that are gone.
    #[must_use]
    pub fn with(mut self, gone: &[Counters]) -> Totals {
        let sum = |name: &str| gone.iter().filter_map(|counters| counters.0.get(name)).sum::<u64>();
        self.duplicates += sum("duplicates_dropped");
        self.filtered += sum("filtered");
        self
    }

    /// What has come since.
    pub fn since(self, before: Totals) -> Totals {
        Totals {
            records: self.records.saturating_sub(before.records),
            duplicates: self.duplicates.saturating_sub(before.duplicates),
            filtered: self.filtered.saturating_sub(before.filtered),
        }
    }

    /// Of these tasks.
    pub fn of<'a>(plan: &Plan, tasks: impl Iterator<Item = &'a Task>) -> Totals {
        let mut totals = Totals::default();
        for task in tasks {
            totals.records += task.marker().arrivals;
            for (_, counters) in task.counters(plan) {
                totals.duplicates += counters.get("duplicates_dropped").copied().unwrap_or(0);
                totals.filtered += counters.get("filtered").copied().unwrap_or(0);
            }
        }
        totals
    }
}

/// Counters of every stage, over all tasks and runs.
pub fn counters<'a>(plan: &Plan, tasks: impl Iterator<Item = &'a Task>) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut stages: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for (stage, counters) in tasks.flat_map(|task| task.counters(plan)) {
        let sums = stages.entry(stage).or_default();
        for (name, count) in counters {
            *sums.entry(name).or_default() += count;
        }
    }
    stages
}

/// What a run did.
#[derive(Debug, Default)]
pub struct Summary {
    /// Name of the pipeline.
    pub name: String,
    /// What came in, and what of it was dropped, in this run.
    pub totals: Totals,
    /// What left.
    pub counts: Counts,
    /// Commits.
    pub commits: u64,
    /// Whether somebody asked it to stop.
    pub asked: bool,
    /// Counters of the stages, of all runs.
    pub stages: BTreeMap<String, BTreeMap<String, u64>>,
    /// How long it took.
    pub took: Duration,
    /// What stopped it.
    pub failed: Option<Failure>,
}

impl Summary {
    /// One line.
    pub fn text(&self) -> String {
        let counts = &self.counts;
        let mut parts = vec![format!("{} in", self.totals.records), format!("{} out", counts.main)];
        let mut also = |count: u64, what: &str| {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        };
        also(self.totals.duplicates, "duplicates");
        also(self.totals.filtered, "filtered");
        also(counts.late, "late");
        also(counts.late_lost, "late ones went nowhere (no `routes.late`, no dead letter)");
        also(counts.dead, "dead-lettered");
        also(counts.failed_lost, "failed and passed over");
        let how = if self.asked { ", stopped" } else { "" };
        format!("{}: {} ({:.1} s{how})", self.name, parts.join(", "), self.took.as_secs_f64())
    }

    /// For `--json`.
    pub fn json(&self) -> Value {
        json!({
            "pipeline": self.name,
            "records_in": self.totals.records,
            "records_out": self.counts.main,
            "duplicates": self.totals.duplicates,
            "filtered": self.totals.filtered,
            "late": self.counts.late,
            "late_lost": self.counts.late_lost,
            "dead_lettered": self.counts.dead,
            "failed_passed_over": self.counts.failed_lost,
            "commits": self.commits,
            "ended": if self.asked { "stopped" } else { "input" },
            "seconds": self.took.as_secs_f64(),
            "stages": self.stages,
        })
    }
}
