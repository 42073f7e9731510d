//! What sums up the keyed state of a task, so that a restored one can be proved to be the one that was committed.

use std::collections::BTreeMap;

use super::{Sealed, Task};
use crate::keyed::Keyed;
use crate::plan::{Plan, Planned};

/// What sums up the keyed state of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Digest of what was sealed or restored.
    pub digest: u128,
    /// Numbers that are given only once, so far: creations and wakes.
    pub numbers: (u64, u64),
}

impl Task {
    /// What sums up the keyed state of each stage, by id.
    pub fn sums(&self, plan: &Plan) -> BTreeMap<String, Sum> {
        let stages = plan.stages.iter().zip(&self.states);
        let sum = |keyed: &Keyed| Sum { digest: keyed.digest(), numbers: keyed.numbers() };
        stages.filter_map(|(planned, state)| Some((planned.id.clone(), sum(state.as_ref()?)))).collect()
    }

    /// Entries and marks of all stages.
    pub fn entries(&self) -> u64 {
        self.states.iter().flatten().map(Keyed::stats).map(|stats| stats.entries + stats.marks).sum()
    }

    /// What the keyed stages dropped as whole spaces since the last seal, key by key (`Keyed::dropped`), by stage.
    pub fn dropped(&self, plan: &Plan) -> Vec<Sealed> {
        let stages = plan.stages.iter().zip(&self.states);
        let of = |(planned, state): (&Planned, &Option<Keyed>)| {
            let changes = state.as_ref()?.dropped();
            let sealed = Sealed { stage: planned.id.clone(), identity: String::new(), changes };
            (!sealed.changes.is_empty()).then_some(sealed)
        };
        stages.filter_map(of).collect()
    }

    /// Whether a stage has anything in a space.
    pub fn has_space(&self, plan: &Plan, stage: &str, space: i64) -> bool {
        let mut stages = plan.stages.iter().zip(&self.states);
        stages.any(|(planned, state)| planned.id == stage && state.as_ref().is_some_and(|s| s.has_space(space)))
    }
}
