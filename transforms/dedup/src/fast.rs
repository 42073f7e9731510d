//! The first arrival leaves for good and nothing is compared: one call of `state.seen` judges a whole batch.

use tamis_guest::{Batch, NEVER, Outcome, Output, StateCalls};

use crate::settings::{Settings, Window};
use crate::{COUNTERS, DUPLICATES_DROPPED};

/// Verdicts of a batch. Tombstones pass and take the mark away (O11).
pub fn batch(s: &Settings, batch: &Batch<'_>, state: &mut dyn StateCalls) -> Outcome {
    let access = s.retention.is_some_and(|retention| retention.access) || s.window.grows();
    let mut expires = Vec::with_capacity(1);
    match (&s.window, s.retention) {
        // Under the processing clock nothing arrives before its anchor, so a horizon is an age.
        (Window::Horizon { ttl, .. }, _) => expires.push(batch.now.saturating_add(*ttl)),
        (_, Some(retention)) if retention.processing => expires.push(batch.now.saturating_add(retention.after)),
        (_, Some(retention)) => expires.extend(batch.times.iter().map(|time| time.saturating_add(retention.after))),
        _ => expires.push(NEVER),
    }
    let mut verdicts = state.seen(0, &expires, batch.tombstones, access);
    let mut duplicates = 0;
    for verdict in &mut verdicts {
        // 1 and 2: new, seen. 3 and 4: cleared. In place, without branches.
        let seen = *verdict == 2;
        duplicates += u64::from(seen);
        *verdict = u8::from(seen) << 2;
    }
    let mut counts = vec![0; COUNTERS.len()];
    counts[DUPLICATES_DROPPED] = duplicates;
    Outcome {
        verdicts,
        output: Output::default(),
        failures: Vec::new(),
        winners: Vec::new(),
        winner_images: Vec::new(),
        counts,
    }
}
