//! What sums up the keyed state of a task, so that a restored one can be proved to be the one that was committed.

use std::collections::BTreeMap;

use super::{Sealed, Task};
use crate::chain::Chain;
use crate::keyed::{Keyed, Layout, Settings};
use crate::plan::{Plan, Planned};

/// What sums up the keyed state of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Digest of what was sealed or restored.
    pub digest: u128,
    /// Numbers that are given only once, so far: creations and wakes.
    pub numbers: (u64, u64),
    /// How its marks lie in a changelog.
    pub layout: Layout,
}

impl Task {
    /// What sums up the keyed state of each stage, by id.
    pub fn sums(&self, plan: &Plan) -> BTreeMap<String, Sum> {
        let stages = plan.stages.iter().zip(&self.states);
        let sum = |keyed: &Keyed| {
            let (digest, numbers, layout) = (keyed.digest(), keyed.numbers(), keyed.layout());
            Sum { digest, numbers, layout }
        };
        stages.filter_map(|(planned, state)| Some((planned.id.clone(), sum(state.as_ref()?)))).collect()
    }

    /// Digest of all keyed state: equal for equal state.
    pub fn digest(&self) -> u128 {
        self.states.iter().flatten().fold(0u128, |sum, keyed| sum.wrapping_add(keyed.digest()))
    }

    /// Entries and marks of all stages.
    pub fn entries(&self) -> u64 {
        self.states.iter().flatten().map(Keyed::stats).map(|stats| stats.entries + stats.marks).sum()
    }

    /// Entries and marks of each keyed stage that went since the start because their time was over, by id.
    pub fn expired(&self, plan: &Plan) -> Vec<(String, u64)> {
        let stages = plan.stages.iter().zip(&self.states);
        stages.filter_map(|(planned, state)| Some((planned.id.clone(), state.as_ref()?.stats().expired))).collect()
    }

    /// What the keyed stages dropped as whole spaces since the last seal, key by key (`Keyed::dropped`), by stage; with
    /// what was restored of stages that are gone.
    pub fn dropped(&mut self, plan: &Plan) -> Vec<Sealed> {
        let stages = plan.stages.iter().zip(&self.states);
        let of = |(planned, state): (&Planned, &Option<Keyed>)| {
            let changes = state.as_ref()?.dropped();
            let sealed = Sealed { stage: planned.id.clone(), changes, ..Sealed::default() };
            (!sealed.changes.is_empty()).then_some(sealed)
        };
        let mut dropped: Vec<Sealed> = stages.filter_map(of).collect();
        dropped.extend(self.part_with(|keyed| keyed.dropped()));
        dropped
    }

    /// Whether a stage has a mark, and whether it has an entry, for a key in a space.
    pub fn has(&self, plan: &Plan, stage: &str, space: i64, key: u128) -> (bool, bool) {
        let stages = plan.stages.iter().zip(&self.states);
        let state = stages.filter(|(planned, _)| planned.id == stage).find_map(|(_, state)| state.as_ref());
        state.map_or((false, false), |keyed| keyed.has(space, key))
    }

    /// Takes over the keyed state of a stage that was built elsewhere; that of a stage which is gone is taken away with the
    /// next seal.
    pub fn adopt(&mut self, plan: &Plan, stage: &str, mut built: Keyed) {
        built.begin_here();
        let failing = self.failing;
        match self.state(plan, stage) {
            Some(state) => {
                *state = built.with_settings(*state.settings());
                state.set_failing(failing);
            }
            // Of one whose keys were all taken away nothing need be dropped, unless sheaves have them still.
            None if built.stats().marks + built.stats().entries > 0 || built.layout() != Layout::Single => {
                built.use_sheaves();
                *self.gone(stage) = built;
            }
            None => {}
        }
    }

    /// What the keyed state of each stage of a chain keeps to, by id.
    pub fn settings(chain: &Chain) -> BTreeMap<String, Settings> {
        let task = Task::new(chain, Vec::new(), 0, 0);
        let stages = chain.plan.stages.iter().zip(&task.states);
        stages.filter_map(|(planned, state)| Some((planned.id.clone(), *state.as_ref()?.settings()))).collect()
    }
}
