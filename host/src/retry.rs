//! Failures that may pass: when a record that failed so is tried again, and when no more (`errors.retry`). Pure.

use crate::batch::Origin;
use crate::bundled;
use crate::chain::Failure;
use crate::config::pipeline::Tolerance;
use crate::files::sink::Refused;
use crate::plan::Plan;

/// The first pause, ns; each further one is twice as long.
const FIRST: i64 = 300_000_000;
/// The category of failures that may pass (contract).
const TRANSIENT: u8 = 1;

/// How long something is tried. Durations in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// From the first failure on, in all; 0: not again.
    pub total: i64,
    /// The longest pause.
    pub longest: i64,
}

/// A record that is tried again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// Which record; `input` is of the task.
    pub origin: Origin,
    /// When it failed first, processing time, ns.
    since: i64,
    /// How often it has failed.
    pub count: u32,
}

impl Retry {
    /// What the pipeline says; nothing is tried again where no guest can ask for it.
    pub fn of(plan: &Plan) -> Retry {
        let errors = &plan.pipeline.errors;
        let total = if can_fail_in_passing(plan) { errors.retry_for } else { 0 };
        Retry { total, longest: errors.retry_max_delay }
    }

    /// A record failed at `now`. Gives its attempts so far, and when the next one is due: after 300 ms, 600 ms and so
    /// on, the longest pause at most, the last one when the time is over.
    pub fn failed(&self, origin: Origin, before: Option<Attempts>, now: i64) -> (Attempts, i64) {
        let known = before.filter(|attempts| attempts.origin == origin);
        let mut attempts = known.unwrap_or(Attempts { origin, since: now, count: 0 });
        attempts.count += 1;
        let doubled = FIRST.saturating_mul(1 << (attempts.count - 1).min(30));
        let again = now.saturating_add(doubled.min(self.longest)).min(attempts.since.saturating_add(self.total));
        (attempts, again)
    }

    /// The attempt that is made now if it is the last one: its failure counts.
    pub fn last(&self, before: Option<Attempts>, now: i64) -> Option<Attempts> {
        let over = |attempts: &Attempts| now >= attempts.since.saturating_add(self.total);
        before.filter(over).map(|attempts| Attempts { count: attempts.count + 1, ..attempts })
    }
}

/// Decides which failures hold a push up: those that the tolerance does not let pass, and those that may pass while
/// their record can be tried again.
#[derive(Debug)]
pub struct Gate {
    tolerance: Tolerance,
    retries: bool,
    /// Whether the push that is running can be held up: it is of rows that can be pushed again.
    pub may_wait: bool,
    /// The record that is tried for the last time: its failure counts.
    pub given_up: Option<Attempts>,
}

impl Gate {
    /// As the pipeline says.
    pub fn of(plan: &Plan) -> Gate {
        let (tolerance, retries) = (plan.pipeline.errors.tolerance, Retry::of(plan).total > 0);
        Gate { tolerance, retries, may_wait: false, given_up: None }
    }

    /// The failure as one that holds its push up, if it does.
    pub fn refuse(&self, failure: &Failure, origin: Origin) -> Option<Refused> {
        let last = self.given_up.is_some_and(|attempts| attempts.origin == origin);
        let passing = self.retries && self.may_wait && failure.category == TRANSIENT && !last;
        let stops = self.tolerance == Tolerance::None && failure.code != "late";
        (passing || stops).then(|| Refused { failure: failure.clone(), origin, passing })
    }

    /// How often a record was tried.
    pub fn tried(&self, origin: Origin) -> u32 {
        self.given_up.filter(|attempts| attempts.origin == origin).map_or(1, |attempts| attempts.count)
    }
}

/// Whether a guest of the pipeline may say that a failure passes. Ours see nothing but the record, so theirs never do.
fn can_fail_in_passing(plan: &Plan) -> bool {
    let codecs = [&plan.decode_key, &plan.decode_value, &plan.encode_key, &plan.encode_made_key, &plan.encode_value];
    let keys = plan.stages.iter().filter_map(|stage| stage.key.as_ref()?.guest.as_ref()).map(|guest| &guest.module);
    let stages = plan.stages.iter().map(|stage| &stage.module);
    let mut modules = codecs.into_iter().map(|coder| &coder.module).chain(stages).chain(keys);
    // The names of bundled guests are reserved.
    modules.any(|module| !bundled::all().iter().any(|(name, _)| *name == module.name()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    const MS: i64 = 1_000_000;

    /// Milliseconds from the first failure at which a record that fails for ever is tried again.
    fn check(total: i64, longest: i64, expected: &[i64]) {
        let retry = Retry { total: total * MS, longest: longest * MS };
        let (mut now, mut attempts, mut found) = (7 * MS, None, Vec::new());
        while retry.last(attempts, now).is_none() {
            let (failed, again) = retry.failed(Origin::default(), attempts, now);
            (attempts, now) = (Some(failed), again);
            found.push((again - 7 * MS) / MS);
        }
        assert_eq!(retry.last(attempts, now).map(|last| last.count), Some(found.len() as u32 + 1));
        assert_eq!(found, expected, "{total} {longest}");
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_the_last_try_is_at_the_end() {
        check(1000, 10_000, &[300, 900, 1000]);
        check(5000, 1000, &[300, 900, 1900, 2900, 3900, 4900, 5000]);
        check(300, 10_000, &[300]);
    }

    #[test]
    fn another_record_has_the_whole_time_again() {
        let retry = Retry { total: 1000 * MS, longest: 1000 * MS };
        let first = Origin { offset: 1, ..Origin::default() };
        let (attempts, _) = retry.failed(first, None, 0);
        let (attempts, again) = retry.failed(Origin { offset: 2, ..first }, Some(attempts), 900 * MS);
        assert_eq!((attempts.count, again), (1, 1200 * MS));
    }
}
