//! How much of a batch one call may do: contract rule 8 (wakes), and what earlier faults and full states have taught.

use crate::batch::{Batch, Track};
use crate::keyed::Keyed;
use crate::plan::Clock;
use crate::stage::Stage;
use crate::time::Stamp;

/// What one call works on.
pub(crate) struct Portion {
    pub(crate) batch: Batch,
    pub(crate) rest: Option<Batch>,
    /// Wakes up to here are due.
    pub(crate) due: Stamp,
    /// Most of them that the call gets.
    pub(crate) limit: usize,
}

impl Stage {
    fn track<'a>(&self, batch: &'a mut Batch) -> Option<&'a mut Track> {
        match self.traits.clock {
            Clock::Event => Some(&mut batch.event),
            Clock::Ingestion => Some(&mut batch.ingestion),
            Clock::Processing => None,
        }
    }

    /// Cuts off what one call may do (contract rule 8, and what earlier faults have taught).
    pub(crate) fn portion(&self, batch: Batch, state: Option<&Keyed>) -> Portion {
        let end = self.end(&batch);
        let rows = batch.rows.len();
        if rows > self.rows_per_call {
            let middle = self.seen(&batch, self.rows_per_call).unwrap_or(end);
            let (first, rest) = self.split(batch, self.rows_per_call, middle);
            return self.portion_of(first, state).with_rest(rest);
        }
        if self.rows_per_call == 1 && rows == 1 {
            // Time steps without rows, rows without time steps: a fault then has one cause.
            let (before, after) = (self.seen(&batch, 0).unwrap_or(end), end);
            let pending = |upto: Stamp| state.is_some_and(|keyed| keyed.next_wake().is_some_and(|wake| wake <= upto));
            if pending(before) {
                let (first, rest) = self.split(batch, 0, before);
                return self.portion_of(first, state).with_rest(rest);
            }
            if after > before && pending(after) {
                let (first, rest) = self.split(batch, 1, before);
                return Portion { batch: first, rest: Some(rest), due: before, limit: 0 };
            }
        }
        self.portion_of(batch, state)
    }

    fn portion_of(&self, batch: Batch, state: Option<&Keyed>) -> Portion {
        let end = self.end(&batch);
        let limit = self.wakes_per_call;
        let due = state.map(|keyed| keyed.due(end, limit + 1)).unwrap_or_default();
        let (Some(&first), Some(&over)) = (due.first(), due.get(limit)) else {
            return Portion { batch, rest: None, due: end, limit };
        };
        // `over` is the wake of the first that is not given.
        let below = over.just_below();
        let rows = (0..batch.rows.len()).take_while(|&i| self.seen(&batch, i).is_some_and(|s| s < over)).count();
        if first < over {
            let (head, rest) = self.split(batch, rows, below);
            Portion { batch: head, rest: Some(rest), due: below, limit }
        } else if rows > 0 {
            let (head, rest) = self.split(batch, rows, below);
            Portion { batch: head, rest: Some(rest), due: below, limit: 0 }
        } else {
            let (head, rest) = self.split(batch, 0, below);
            Portion { batch: head, rest: Some(rest), due: over, limit }
        }
    }

    /// What a row sees on the stage's clock.
    pub(crate) fn seen(&self, batch: &Batch, row: usize) -> Option<Stamp> {
        match self.traits.clock {
            Clock::Event => batch.event.seen.get(row).copied(),
            Clock::Ingestion => batch.ingestion.seen.get(row).copied(),
            Clock::Processing => Some(processing(batch)),
        }
    }

    /// The first rows with their time up to `end` on the stage's clock, and the rest.
    fn split(&self, mut batch: Batch, rows: usize, end: Stamp) -> (Batch, Batch) {
        let mut rest = Batch {
            rows: batch.rows.split_off(rows.min(batch.rows.len())),
            arenas: batch.arenas.clone(),
            headers: batch.headers.clone(),
            fields: Vec::new(),
            event: cut(&mut batch.event, rows),
            ingestion: cut(&mut batch.ingestion, rows),
            now: batch.now,
            // The end comes with the last part.
            ended: std::mem::take(&mut batch.ended),
            steps: std::sync::Arc::clone(&batch.steps),
            causes: batch.causes.split_off(rows.min(batch.causes.len())),
        };
        for field in &mut batch.fields {
            rest.fields.push(crate::batch::Field {
                kinds: field.kinds.split_off(rows.min(field.kinds.len())),
                spans: field.spans.split_off(rows.min(field.spans.len())),
            });
        }
        if let (Some(first), Some(second)) = (self.track(&mut batch), self.track(&mut rest)) {
            if first.end.is_some() {
                first.end = Some(end);
                second.start = Some(end);
            }
        }
        (batch, rest)
    }
}

impl Portion {
    fn with_rest(mut self, after: Batch) -> Portion {
        self.rest = Some(match self.rest.take() {
            Some(rest) => join(rest, Some(after)),
            None => after,
        });
        self
    }
}

/// Where the processing clock stands for the rows of a batch; at the end of bounded input everything is due (W10).
pub(crate) fn processing(batch: &Batch) -> Stamp {
    if batch.ended { Stamp::END } else { Stamp { time: batch.now, input: 0 } }
}

/// Cuts a track before a row; the parts meet where that row's view stands.
fn cut(track: &mut Track, rows: usize) -> Track {
    let middle = track.seen.get(rows).or(track.seen.last()).copied().or(track.start);
    let rest = Track {
        times: track.times.split_off(rows.min(track.times.len())),
        seen: track.seen.split_off(rows.min(track.seen.len())),
        start: middle.filter(|_| track.end.is_some()),
        end: track.end,
    };
    track.end = rest.start;
    rest
}

/// Puts two neighbours together again.
pub(crate) fn join(mut first: Batch, rest: Option<Batch>) -> Batch {
    let Some(rest) = rest else { return first };
    if !first.causes.is_empty() || !rest.causes.is_empty() {
        let (head, tail) = (0..first.rows.len(), 0..rest.rows.len());
        first.causes = head.map(|row| first.cause(row)).chain(tail.map(|row| rest.cause(row))).collect();
    }
    // Both hold the same arenas and headers but for what came behind the cut.
    if rest.arenas.len() > first.arenas.len() {
        first.arenas.extend(rest.arenas.into_iter().skip(first.arenas.len()));
    }
    first.ended |= rest.ended;
    first.rows.extend(rest.rows);
    for (field, more) in first.fields.iter_mut().zip(rest.fields) {
        field.kinds.extend(more.kinds);
        field.spans.extend(more.spans);
    }
    for (track, more) in [(&mut first.event, rest.event), (&mut first.ingestion, rest.ingestion)] {
        track.times.extend(more.times);
        track.seen.extend(more.seen);
        track.end = more.end.or(track.end);
    }
    first
}
