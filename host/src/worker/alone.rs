//! Commits that fail again and again: a task that cannot be committed must not hold up the others. From the second failure
//! in a row on all tasks are suspects, and each is committed alone; what succeeds is none any more. As long as there are
//! suspects the others are committed first, then one suspect alone, in turn.

use std::collections::VecDeque;

use crate::task::{Input, Task};

use super::Running;

/// Failures in a row from which on it does not look like chance.
const OFTEN: u32 = 2;
/// A turn takes no longer than this, ns.
const TURN: i64 = 50_000_000;

/// Who may be served.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    failures: u32,
    /// Inputs of tasks that may be to blame, the next one first.
    suspects: VecDeque<Input>,
    /// It is the turn of the others, not of the first suspect.
    others: bool,
}

impl Alone {
    /// Whether a task may be served now.
    pub(crate) fn serves(&self, task: &Task) -> bool {
        let is_one = |input: &Input| task.input(&input.topic, input.partition).is_some();
        match self.suspects.front() {
            None => true,
            Some(_) if self.others => !self.suspects.iter().any(is_one),
            Some(first) => is_one(first),
        }
    }

    /// How long a turn takes, if turns are taken; else it is the pace of commits that counts.
    pub(crate) fn turn(&self) -> Option<i64> {
        (!self.suspects.is_empty()).then_some(TURN)
    }

    /// A commit is durable, or whoever had the turn had nothing to commit. `tasks`: how many there are.
    pub(crate) fn done(&mut self, tasks: usize) {
        self.failures = 0;
        if !std::mem::take(&mut self.others) {
            self.suspects.pop_front();
            self.others = (1..tasks).contains(&self.suspects.len());
        }
    }

    /// A commit failed; `all`: the inputs of all tasks.
    pub(crate) fn failed(&mut self, all: impl Iterator<Item = Input>) {
        self.failures += 1;
        if self.suspects.is_empty() || self.others {
            if self.failures >= OFTEN || self.others {
                (self.suspects, self.others) = (all.collect(), false);
                tracing::warn!("commits fail again and again: tasks are committed one at a time");
            }
        } else {
            self.suspects.rotate_left(1);
            self.others = true;
        }
    }

    /// Gives the turn to somebody who is here: tasks that are restored, or that left, hold up nobody. Call it when tasks
    /// may have come or gone.
    pub(super) fn arrange(&mut self, tasks: &[Running]) {
        if self.suspects.is_empty() {
            return;
        }
        let is_one = |running: &Running, input: &Input| running.task.input(&input.topic, input.partition).is_some();
        let first = self.suspects.iter().position(|input| tasks.iter().any(|running| is_one(running, input)));
        let others = tasks.iter().any(|running| !self.suspects.iter().any(|input| is_one(running, input)));
        self.turn_to(first, others);
    }

    /// `first`: the first suspect that is here. `others`: whether others than suspects are.
    fn turn_to(&mut self, first: Option<usize>, others: bool) {
        match (first, others) {
            // Nobody is here whose turn it could be.
            (None, false) => {}
            (None, true) => self.others = true,
            (Some(first), _) => {
                self.others &= others;
                self.suspects.rotate_left(first);
            }
        }
    }

    /// Inputs are somebody else's.
    pub(crate) fn forget(&mut self, gone: &[Input]) {
        self.suspects.retain(|input| !gone.contains(input));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(partition: i32) -> Input {
        Input { topic: "t".into(), partition }
    }

    /// Commits of three tasks of which some cannot be committed: who was in each.
    fn commits(bad: &[i32], count: usize) -> Vec<Vec<i32>> {
        let mut alone = Alone::default();
        let mut commits = Vec::new();
        for _ in 0..count {
            let suspect = |partition: i32| alone.suspects.contains(&input(partition));
            let is_served = |partition: &i32| match alone.suspects.front() {
                None => true,
                Some(_) if alone.others => !suspect(*partition),
                Some(first) => first.partition == *partition,
            };
            let served: Vec<i32> = (0..3).filter(is_served).collect();
            match served.iter().any(|partition| bad.contains(partition)) {
                true => alone.failed((0..3).map(input)),
                false => alone.done(3),
            }
            commits.push(served);
        }
        commits
    }

    #[test]
    fn one_failure_is_chance() {
        let mut alone = Alone::default();
        alone.failed((0..3).map(input));
        assert!(alone.suspects.is_empty());
        alone.done(3);
        alone.failed((0..3).map(input));
        assert!(alone.suspects.is_empty(), "a success lay between");
    }

    #[test]
    fn a_task_that_cannot_be_committed_does_not_hold_up_the_others() {
        let all = vec![0, 1, 2];
        let alone = [vec![0], vec![0], vec![1], vec![0], vec![2], vec![0, 2], vec![1], vec![0, 2], vec![1]];
        let expected: Vec<Vec<i32>> = [all.clone(), all].into_iter().chain(alone).collect();
        assert_eq!(commits(&[1], 11), expected);
    }

    #[test]
    fn the_turn_is_of_somebody_who_is_here() {
        let mut alone = Alone::default();
        alone.failed((0..3).map(input));
        alone.failed((0..3).map(input));
        alone.turn_to(Some(2), false);
        assert_eq!(alone.suspects, [input(2), input(0), input(1)], "the first two are being restored");
        alone.turn_to(None, true);
        assert!(alone.others, "no suspect is here");
        alone.turn_to(Some(0), false);
        assert!(!alone.others, "the others left");
        alone.turn_to(None, false);
        assert_eq!((alone.others, alone.suspects.len()), (false, 3), "nobody is here");
    }

    #[test]
    fn when_the_cause_is_gone_all_go_on_together() {
        let mut alone = Alone::default();
        alone.failed((0..2).map(input));
        alone.failed((0..2).map(input));
        assert_eq!(alone.turn(), Some(TURN));
        alone.done(2);
        // The others, then the last suspect.
        alone.done(2);
        alone.done(2);
        assert_eq!(alone.turn(), None);
    }
}
