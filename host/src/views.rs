//! What a row sees that a wake emits, or that leaves from an image, and its times from there on (idea 5 of the
//! architecture).

use crate::batch::{Batch, Track};
use crate::outcome::Assembly;
use crate::plan::Clock;
use crate::time::{NONE_YET, Stamp};

impl Assembly<'_> {
    /// The last row of the next batch, a copy of a row of this call, is emitted by a wake: it leaves as it would from an
    /// image, had a batch ended in between.
    pub(crate) fn woken(&self, batch: &Batch, row: u32, output: usize, next: &mut Batch) {
        let own = |track: &Track| track.times.get(row as usize).copied().unwrap_or(NONE_YET);
        let times = (own(&batch.event), own(&batch.ingestion));
        for track in [&mut next.event, &mut next.ingestion] {
            track.times.pop();
            track.seen.pop();
        }
        if let Some(last) = next.rows.last_mut() {
            last.redelivered = false;
        }
        self.add_times(batch, output, times, next);
    }

    /// Adds the times of an output row to the next batch; `own`: those it had, on the event and the ingestion clock, ns.
    pub(crate) fn add_times(&self, batch: &Batch, output: usize, own: (i64, i64), next: &mut Batch) {
        let at = self.answer.output.at.get(output).copied().unwrap_or_default() as usize;
        let row = self.rows.get(at).map(|&row| row as usize);
        let wake = self.answer.output.wakes.get(output).filter(|wake| wake.time != NONE_YET);
        let clock = self.stage.traits.clock;
        // Another clock stands where it stood before what brought the wake about: no cut, and no row that is gone by
        // now, can change that.
        let before = wake.and_then(|wake| batch.before(clock == Clock::Event, wake));
        let sees = |track: &Track, own_clock: bool, other: Option<Stamp>| -> Option<Stamp> {
            let end = track.end?;
            match wake {
                Some(wake) if own_clock => Some(wake.just_below()),
                Some(_) if clock == Clock::Processing => track.start,
                Some(_) if other.is_some() => other,
                _ => Some(row.and_then(|row| track.seen.get(row)).copied().unwrap_or(end)),
            }
        };
        if let Some(seen) = sees(&batch.event, clock == Clock::Event, before.map(|step| step.0)) {
            next.event.seen.push(seen);
            next.event.times.push(if wake.is_some() { own.0.max(seen.time) } else { own.0 });
        }
        if let Some(seen) = sees(&batch.ingestion, clock == Clock::Ingestion, before.map(|step| step.1)) {
            next.ingestion.seen.push(seen);
            next.ingestion.times.push(if wake.is_some() { own.1.max(seen.time) } else { own.1 });
        }
    }
}
