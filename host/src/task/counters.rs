//! What a task has counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Marker, Task};
use crate::plan::Plan;
use crate::stage::Counters;

#[cfg(test)]
impl Marker {
    /// That of a task without inputs, for tests.
    pub fn blank() -> Marker {
        let clock = || crate::time::Clock::new(1, 0);
        Marker {
            inputs: Vec::new(),
            salt: 0,
            activity: Vec::new(),
            event: clock(),
            ingestion: clock(),
            positions: Vec::new(),
            arrivals: 0,
            invalid_time: 0,
            stages: std::sync::Arc::default(),
            counters: Vec::new(),
        }
    }
}

impl Marker {
    /// The counters are those of the stages of a plan from now on: a stage keeps its own wherever it stands, a new one
    /// begins at nothing, and what one has counted that is gone is left out.
    pub(super) fn count_for(&mut self, plan: &Plan) {
        let counters = plan.stages.iter().map(|stage| self.counters_of(&stage.id).cloned().unwrap_or_default());
        self.counters = counters.collect();
        self.stages = plan.stages.iter().map(|stage| stage.id.clone()).collect();
    }

    /// Counters of a stage, by its id.
    pub fn counters_of(&self, stage: &str) -> Option<&Counters> {
        self.counters.get(self.stages.iter().position(|id| id == stage)?)
    }
}

pub(super) fn ids_out<S: serde::Serializer>(ids: &Arc<[String]>, to: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&**ids, to)
}

pub(super) fn ids_in<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Arc<[String]>, D::Error> {
    <Vec<String> as serde::Deserialize>::deserialize(from).map(Arc::from)
}

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
