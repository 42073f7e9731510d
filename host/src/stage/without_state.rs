//! A stage whose state cannot be reached (X12): what `on_error` says happens to its records. None of them is dropped for
//! it, and no wake fires until the state is back.

use super::{Output, Stage};
use crate::batch::Batch;
use crate::chain::{Out, Stop};
use crate::columns::{Env, Keys};
use crate::config::pipeline::{NullKey, OnError};
use crate::guest::call::{Outcome, RowFailure};
use crate::keyed::Keyed;
use crate::outcome;
use crate::stage::Counters;
use crate::time::Stamp;

/// Code of failures, and name of the counter.
const CODE: &str = "state_error";
const TEXT: &str = "the state of this stage cannot be reached";

impl Stage {
    /// Does with a batch what can be done without state: records that need none go on as ever, the others wait, pass,
    /// go to the dead letter or stop the pipeline.
    pub(super) fn without_state(
        &mut self,
        batch: Batch,
        state: Option<&Keyed>,
        env: &Env<'_>,
        counters: &mut Counters,
        out: &mut dyn Out,
    ) -> Result<Output, Stop> {
        let write = self.traits.output != crate::plan::OutputKind::Append;
        let keys = match self.key.as_mut().map(|key| key.make(&batch, env, write)) {
            Some(Ok(keys)) => keys,
            _ => return Err(self.unreachable(true, None)),
        };
        let wake = state.and_then(Keyed::next_wake);
        let due = |at: Stamp| wake.is_some_and(|wake| wake <= at);
        let waits = matches!(self.on_error, OnError::Pause | OnError::Fail);
        if waits {
            let stands = |at: usize| self.needs_state(&keys, at) || self.seen(&batch, at).is_some_and(due);
            let fails = |at: usize| keys.null.get(at) == Some(&true) && self.null_key == NullKey::Fail;
            if let Some(at) = (0..batch.rows.len()).find(|&at| stands(at) || fails(at))
                && stands(at)
            {
                let origin = batch.rows.get(at).map(|row| row.origin);
                return Err(self.unreachable(self.on_error == OnError::Pause, origin));
            }
        }
        // The end of the input comes once: what it must close waits for the state whatever the policy is.
        if (batch.ended || (waits && batch.rows.is_empty())) && due(self.end(&batch)) {
            return Err(self.unreachable(self.on_error != OnError::Fail, None));
        }
        let rows = self.rows_with_key(&batch, &keys)?;
        counters.add(CODE, rows.len() as u64);
        let dead = self.on_error == OnError::Dlq;
        let failure = |row: u32| RowFailure { row, category: 1, code: CODE.to_owned(), text: TEXT.to_owned() };
        let answer = Outcome {
            verdicts: vec![if dead { 3 } else { 0 }; rows.len()],
            failures: if dead { (0..rows.len() as u32).map(failure).collect() } else { Vec::new() },
            ..Outcome::default()
        };
        let done = self.assemble(batch, answer, &rows, keys, None, env, false, out);
        self.count(&done, counters);
        let outcome::Done { next, undecoded, writes, unkeyed, .. } = done;
        Ok(Output { next, undecoded, writes, unkeyed, rest: None })
    }

    fn needs_state(&self, keys: &Keys, row: usize) -> bool {
        let failed = keys.failures.iter().any(|failure| failure.row as usize == row);
        let null = keys.null.get(row) == Some(&true);
        !failed && (!null || self.null_key == NullKey::Group)
    }

    fn unreachable(&self, pause: bool, origin: Option<crate::batch::Origin>) -> Stop {
        Stop { failure: self.failure(CODE, TEXT.to_owned(), 1), origin, pause }
    }
}
