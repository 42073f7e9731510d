//! What a task has counted.

use std::collections::BTreeMap;

use super::Task;
use crate::plan::Plan;

impl Task {
    /// Counters of every stage, by stage id and name; what the host counts of the whole task is in each.
    pub fn counters(&self, plan: &Plan) -> Vec<(String, BTreeMap<String, u64>)> {
        let stages = plan.stages.iter().zip(&self.marker.counters).zip(&self.states);
        stages
            .map(|((planned, counters), state)| {
                let mut all = counters.0.clone();
                for name in &planned.counters {
                    all.entry(name.clone()).or_default();
                }
                if let Some(keyed) = state {
                    let stats = keyed.stats();
                    *all.entry("evicted_live".to_owned()).or_default() += stats.evicted_live;
                    all.insert("state_entries".to_owned(), stats.entries + stats.marks);
                    all.insert("state_bytes".to_owned(), stats.bytes);
                    all.insert("pending".to_owned(), stats.waiting);
                    for name in ["null_key", "state_error"] {
                        all.entry(name.to_owned()).or_default();
                    }
                    all.insert("invalid_time".to_owned(), self.marker.invalid_time);
                    *all.entry("records_in".to_owned()).or_default() += self.marker.invalid_time;
                }
                (planned.id.clone(), all)
            })
            .collect()
    }
}
