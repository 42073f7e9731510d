//! What an operator asks of a running worker: to forget (X11), or to go on under another plan. Either happens between two
//! commits and is durable when it is answered: a crash before undoes all of it, one after it nothing.

use std::sync::Arc;

use super::{Commit, Outcome, Worker};
use crate::batch::Batch;
use crate::chain::Chain;
use crate::files::Trouble;
use crate::files::envelope;
use crate::files::filling::{self, Filling};
use crate::files::source::Codec;
use crate::ops::orders::{Answer, Done, Order, Refusal};
use crate::ops::{Phase, Seat};
use crate::plan::Plan;
use crate::task::{Input, Task};
use crate::time::NONE_YET;

/// The commit that an order was part of did not take place.
const UNDONE: &str = "the commit with it did not succeed, so nothing of it has happened: ask again";

impl Worker<'_> {
    /// Carries out what is asked at this seat.
    pub fn obey(&mut self, seat: Arc<Seat>) {
        self.seat = Some(seat);
    }

    /// Carries out the next order, if there is one. While state is being restored it waits.
    pub(super) fn order(&mut self) -> Result<bool, Trouble> {
        let ready = |seat: &&Arc<Seat>| seat.orders.is_waiting() && seat.phase() == Phase::Running;
        let Some(asked) = self.seat.as_ref().filter(ready).and_then(|seat| seat.orders.take()) else {
            return Ok(false);
        };
        let answer = match &asked.order {
            Order::ForgetAll => self.forget_keys(None)?,
            Order::Forget(record) => match record_of(record, &self.plan) {
                Ok(record) => self.forget_keys(Some(&record))?,
                Err(why) => Err(Refusal::Wrong(why)),
            },
            Order::Reload(plan) => self.reload(plan)?,
        };
        asked.answer(answer);
        Ok(true)
    }

    /// Frees state of every task, all of it or that of a record's keys, and commits that with what was done before.
    fn forget_keys(&mut self, record: Option<&Record>) -> Result<Answer, Trouble> {
        let savepoints: Vec<_> = self.tasks.iter().map(|running| running.task.savepoint()).collect();
        let mut done = Vec::new();
        for running in &mut self.tasks {
            let freed = match record {
                None => Ok(running.task.forget_all()),
                Some(record) => record.forget(&mut running.task, self.chain),
            };
            match freed {
                Ok(freed) => done.push(Done { inputs: running.inputs.to_vec(), freed }),
                Err(why) => {
                    self.tasks.iter_mut().zip(savepoints).for_each(|(running, to)| running.task.undo(to));
                    return Ok(Err(Refusal::Wrong(why)));
                }
            }
        }
        self.touch_all();
        if self.commit(Commit::Usual)? == Outcome::Undone {
            return Ok(Err(Refusal::NotNow(UNDONE.to_owned())));
        }
        // There is room now for what waits for it.
        self.paused = false;
        self.tasks.iter_mut().filter_map(|running| running.held.as_mut()).for_each(|held| held.again = self.committed);
        let freed: u64 = done.iter().map(|done| done.freed).sum();
        let what = if record.is_some() { "what is known of a key was forgotten" } else { "all state was forgotten" };
        self.outbox.note(&format!("{}: {what}, as was asked for: {freed} entries", self.plan.pipeline.name));
        Ok(Ok(done))
    }

    /// Goes on under another plan: what was done is committed under the old one, without the state of stages that are
    /// gone; then everything goes over, and what the stages are made with now is committed.
    fn reload(&mut self, plan: &Arc<Plan>) -> Result<Answer, Trouble> {
        let mut done = Vec::new();
        for running in &mut self.tasks {
            let freed = running.task.forget_stages(&self.plan, |stage| plan.stages.iter().all(|s| s.id != stage));
            done.push(Done { inputs: running.inputs.to_vec(), freed });
        }
        self.touch_all();
        if self.commit(Commit::Usual)? == Outcome::Undone {
            return Ok(Err(Refusal::NotNow(UNDONE.to_owned())));
        }
        let old = std::mem::replace(&mut self.plan, Arc::clone(plan));
        *self.chain = Chain::open(plan, true);
        self.settle_in();
        self.inbox.reload(plan, self.chain);
        self.outbox.reload(plan);
        for running in &mut self.tasks {
            let counted = old.stages.iter().zip(&running.task.marker().counters);
            let gone = counted.filter(|(stage, _)| plan.stages.iter().all(|s| s.id != stage.id));
            self.gone.extend(gone.map(|(_, counters)| counters.clone()));
            running.task.reload(&old, self.chain);
            running.remember();
        }
        // Tasks that were lost know the old plan: if they come back they are restored.
        self.limbo.clear();
        if let Some(seat) = &self.seat {
            seat.modules(plan);
            let seat = Arc::clone(seat);
            self.chain.tell(&move |place| seat.watch(place));
        }
        self.touch_all();
        // If this one is undone, tasks come again under the new plan; what it would have said, the next one says.
        self.commit(Commit::Usual)?;
        self.paused = false;
        let freed: u64 = done.iter().map(|done| done.freed).sum();
        let gone =
            if freed > 0 { format!("; the state of stages that are gone: {freed} entries") } else { String::new() };
        self.outbox
            .note(&format!("{}: goes on under the settings that were read again{gone}", self.plan.pipeline.name));
        Ok(Ok(done))
    }

    /// Every task takes part in the next commit.
    fn touch_all(&mut self) {
        let now = self.inbox.now();
        for (at, running) in self.tasks.iter().enumerate() {
            self.outbox.enter(at, Arc::clone(&running.inputs), None, now);
        }
        self.dirty = true;
    }
}

/// A record that names keys, as a row, and the inputs it may stand for.
struct Record {
    batch: Batch,
    topic: Option<String>,
    partition: Option<i32>,
}

/// Reads an envelope; the error is a sentence for a person.
fn record_of(text: &str, plan: &Plan) -> Result<Record, String> {
    let envelope = envelope::read(text.as_bytes())?;
    let codec = |name: &str| Codec::named(name);
    let mut filling = Filling::new(0, text.len());
    let key = filling.part(envelope.key, codec(&plan.pipeline.decode.key.name), false);
    let value = filling.part(envelope.value, codec(&plan.pipeline.decode.value.name), true);
    let mut row = filling::row(0, envelope.offset.unwrap_or(0), key, value);
    row.timestamp = envelope.timestamp.unwrap_or(NONE_YET);
    if !envelope.headers.is_empty() {
        filling.headers.push(envelope.headers);
        row.headers = 0;
    }
    filling.push(row, 0);
    Ok(Record { batch: filling.done().batch, topic: envelope.topic, partition: envelope.partition })
}

impl Record {
    /// Frees what a task knows of the keys, as a record of each of its inputs.
    fn forget(&self, task: &mut Task, chain: &mut Chain) -> Result<u64, String> {
        let is_meant = |input: &Input| {
            self.topic.as_deref().is_none_or(|topic| *topic == *input.topic)
                && self.partition.is_none_or(|partition| partition == input.partition)
        };
        let inputs = task.marker().inputs.clone();
        let mut freed = 0;
        for (number, _) in inputs.iter().enumerate().filter(|(_, input)| is_meant(input)) {
            let mut batch = self.batch.clone();
            batch.rows.iter_mut().for_each(|row| row.origin.input = number as u16);
            let done = task.forget(chain, batch);
            freed +=
                done.map_err(|stop| format!("{}: {}: {}", stop.failure.stage, stop.failure.code, stop.failure.text))?;
        }
        Ok(freed)
    }
}

/// For a worker that does not run: frees state of restored tasks, all of it or that of a record's keys.
///
/// # Errors
/// A sentence for a person; nothing was freed then.
pub fn forget(plan: &Plan, chain: &mut Chain, tasks: &mut [Task], record: Option<&str>) -> Result<Vec<u64>, String> {
    let record = record.map(|record| record_of(record, plan)).transpose()?;
    let each = tasks.iter_mut().map(|task| match &record {
        None => Ok(task.forget_all()),
        Some(record) => record.forget(task, chain),
    });
    each.collect()
}
