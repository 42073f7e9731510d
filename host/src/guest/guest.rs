//! A guest: a module opened with parameters. What it returns has been checked; what it breaks is thrown away.

use std::mem::take;
use std::sync::Arc;
use std::time::Instant;

use super::call::{Call, Decoded, DecodedColumn, Fault, Outcome, Output, RowFailure, State};
use super::fault::{self, CONTRACT, OPEN};
use super::host::Host;
use super::instance::{Calls, Instance};
use super::layout::{self, Breach};
use super::module::Module;
use super::tally;
use super::watch::Watch;
use super::wire::{BatchIn, ColumnIn, DecodedOut, OutcomeOut, StampsIn, failures};
use crate::batch::Column;
use crate::config::pipeline::Limits;

/// Calls after which an instance makes room for a fresh one: what leaks in a guest, or is worn out there, ends with it.
/// Making one costs about as much as one call.
pub const CALLS_PER_INSTANCE: u32 = 10_000;

/// The arguments of `open`; parameters and context are JSON.
#[derive(Clone, Debug)]
pub enum Opening {
    /// A codec.
    Codec {
        /// Its parameters.
        params: String,
        /// What later stages name, without the root; the order of the columns of `decode`.
        paths: Vec<String>,
    },
    /// A transform, keyed or not.
    Transform {
        /// Its parameters.
        params: String,
        /// As for `check`.
        context: String,
    },
    /// A key guest.
    Key {
        /// Its parameters.
        params: String,
    },
}

/// What `check` said a stage answers with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Columns it writes.
    pub writes: usize,
    /// Routes beside the main output.
    pub routes: usize,
    /// Counters.
    pub counters: usize,
}

/// A guest. It belongs to one thread at a time and holds nothing between calls that matters.
pub struct Guest {
    module: Module,
    opening: Opening,
    limits: Limits,
    live: Option<Live>,
    watch: Option<Arc<dyn Watch>>,
}

struct Live {
    instance: Instance,
    /// Bytes of memory it had when it was opened.
    at_open: usize,
    /// Calls so far, without `open`.
    calls: u32,
    /// When the call that runs began, or the last one.
    began: Instant,
}

impl Guest {
    pub(super) fn new(module: Module, opening: Opening, limits: Limits) -> Guest {
        Guest { module, opening, limits, live: None, watch: None }
    }

    /// Its module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Throws the instance away; the next call makes another one.
    pub fn discard(&mut self) {
        self.retire("discard");
    }

    /// Tells `watch` from now on what is done.
    pub fn tell(&mut self, watch: Arc<dyn Watch>) {
        self.watch = Some(watch);
    }

    fn retire(&mut self, reason: &'static str) {
        if let (Some(_), Some(watch)) = (self.live.take(), &self.watch) {
            watch.recycled(reason);
        }
    }

    /// Makes the instance and opens it, if that has not been done.
    ///
    /// # Errors
    /// A fault; kind `open` if the guest refuses its parameters.
    pub fn open(&mut self) -> Result<(), Fault> {
        self.live().map(|_| ())
    }

    /// Bytes to fields: a column for each path of the opening. `payloads` are bytes or null.
    ///
    /// # Errors
    /// A fault; the instance is gone.
    pub fn decode(&mut self, payloads: &Column) -> Result<Decoded, Fault> {
        let limits = self.limits;
        let columns = match &self.opening {
            Opening::Codec { paths, .. } => paths.len(),
            _ => 0,
        };
        let (live, module) = self.live()?;
        let Calls::Codec { decode, .. } = live.instance.calls else { return Err(module.not_a("codec")) };
        let rows = payloads.rows();
        let answer = live
            .instance
            .call("decode", &limits, rows as u64, None, |store| decode.call(store, (ColumnIn::new(payloads),)));
        let answer = answer.and_then(|(decoded,)| {
            let decoded = decoded_of(decoded);
            live.instance.host().tally.moved(tally::column(payloads), tally::decoded(&decoded));
            checked("decode", layout::decoded(&decoded, columns, payloads))?;
            Ok(decoded)
        });
        self.after(answer)
    }

    /// Fields to bytes: one column, the whole document, to one column of bytes or null.
    ///
    /// # Errors
    /// A fault; the instance is gone.
    pub fn encode(&mut self, columns: &[Column]) -> Result<(Column, Vec<RowFailure>), Fault> {
        let limits = self.limits;
        let (live, module) = self.live()?;
        let Calls::Codec { encode, .. } = live.instance.calls else { return Err(module.not_a("codec")) };
        let rows = columns.first().map_or(0, Column::rows);
        let answer = live
            .instance
            .call("encode", &limits, rows as u64, None, |store| encode.call(store, (&*ColumnIn::all(columns),)));
        let answer = answer.and_then(|((column, failed),)| {
            let (column, failed) = (Column::from(column), failures(failed));
            live.instance
                .host()
                .tally
                .moved(tally::columns(columns), tally::column(&column) + tally::failures(&failed));
            checked("encode", layout::payloads(&column, &failed, rows))?;
            Ok((column, failed))
        });
        self.after(answer)
    }

    /// A key for each row, a cell of any kind but unchanged and documents.
    ///
    /// # Errors
    /// A fault; the instance is gone.
    pub fn keys(&mut self, columns: &[Column]) -> Result<(Column, Vec<RowFailure>), Fault> {
        let limits = self.limits;
        let (live, module) = self.live()?;
        let Calls::Key { keys, .. } = live.instance.calls else { return Err(module.not_a("key")) };
        let rows = columns.first().map_or(0, Column::rows);
        let answer = live
            .instance
            .call("keys", &limits, rows as u64, None, |store| keys.call(store, (&*ColumnIn::all(columns),)));
        let answer = answer.and_then(|((column, failed),)| {
            let (column, failed) = (Column::from(column), failures(failed));
            live.instance
                .host()
                .tally
                .moved(tally::columns(columns), tally::column(&column) + tally::failures(&failed));
            checked("keys", layout::keys(&column, &failed, rows))?;
            Ok((column, failed))
        });
        self.after(answer)
    }

    /// One batch through a stage. The state is what the guest's imports reach in this call; it comes back in any case.
    ///
    /// # Errors
    /// A fault; the instance is gone, and what was done to the state is to be undone.
    pub fn process(
        &mut self,
        call: &Call,
        shape: &Shape,
        state: Option<Box<dyn State>>,
    ) -> (Result<Outcome, Fault>, Option<Box<dyn State>>) {
        let limits = self.limits;
        let (live, module) = match self.live() {
            Ok(live) => live,
            Err(fault) => return (Err(fault), state),
        };
        let Calls::Transform { process, .. } = live.instance.calls else {
            return (Err(module.not_a("transform")), state);
        };
        let columns = ColumnIn::all(&call.columns);
        let batch = BatchIn {
            rows: call.rows,
            now: call.now,
            columns: &columns,
            tombstones: &call.tombstones,
            redelivered: &call.redelivered,
            times: StampsIn::new(&call.times),
            seen: StampsIn::new(&call.seen),
        };
        let answer =
            live.instance.call("process", &limits, u64::from(call.rows), state, |store| process.call(store, (batch,)));
        let host = live.instance.host();
        let state = host.state.take();
        let slots = host.slots;
        let answer = answer.and_then(|(outcome,)| {
            let mut outcome = outcome_of(outcome);
            live.instance.host().tally.moved(tally::call(call), tally::outcome(&outcome));
            checked("process", layout::outcome(&mut outcome, call.rows, slots, shape))?;
            Ok(outcome)
        });
        (self.after(answer), state)
    }

    /// The instance, opened.
    fn live(&mut self) -> Result<(&mut Live, &Module), Fault> {
        let mut live = match self.live.take() {
            Some(live) => live,
            None => {
                let started = start(&self.module, &self.opening, &self.limits);
                match (&self.watch, &started) {
                    (Some(watch), Ok(_)) => watch.started(),
                    (Some(watch), Err(fault)) => watch.faulted(fault.kind()),
                    _ => {}
                }
                started?
            }
        };
        live.began = Instant::now();
        Ok((self.live.insert(live), &self.module))
    }

    /// Keeps the instance if it is worth keeping.
    fn after<T>(&mut self, answer: Result<T, Fault>) -> Result<T, Fault> {
        let spent = self.live.as_mut().and_then(|live| {
            live.calls += 1;
            let Host { meter, tally, .. } = live.instance.host();
            if let Some(watch) = &self.watch {
                watch.called(live.began.elapsed(), meter.used(), tally);
            }
            // Memory never shrinks. One that is as it was when it was opened would be no better a second time.
            let high = meter.is_high() && meter.used() > live.at_open;
            if live.calls >= CALLS_PER_INSTANCE { Some("calls") } else { high.then_some("memory") }
        });
        if let (Some(watch), Err(fault)) = (&self.watch, &answer) {
            watch.faulted(fault.kind());
        }
        if let Some(reason) = answer.as_ref().err().map(|_| "fault").or(spent) {
            self.retire(reason);
        }
        answer
    }
}

/// Makes an instance and opens it.
fn start(module: &Module, opening: &Opening, limits: &Limits) -> Result<Live, Fault> {
    let mut instance = Instance::new(module, limits)?;
    let opened = match (opening, instance.calls) {
        (Opening::Codec { params, paths }, Calls::Codec { open, .. }) => {
            instance.call("open", limits, 0, None, |store| open.call(store, (&**params, &**paths)))?.0
        }
        (Opening::Transform { params, context }, Calls::Transform { open, .. }) => {
            instance.call("open", limits, 0, None, |store| open.call(store, (&**params, &**context)))?.0
        }
        (Opening::Key { params }, Calls::Key { open, .. }) => {
            let (answer,) = instance.call("open", limits, 0, None, |store| open.call(store, (&**params,)))?;
            answer.map(|_| ())
        }
        (Opening::Codec { .. }, _) => return Err(module.not_a("codec")),
        (Opening::Transform { .. }, _) => return Err(module.not_a("transform")),
        (Opening::Key { .. }, _) => return Err(module.not_a("key")),
    };
    opened.map_err(|text| fault::module(OPEN, text))?;
    let at_open = instance.host().meter.used();
    Ok(Live { instance, at_open, calls: 0, began: Instant::now() })
}

/// A breach is a fault of the module.
fn checked(call: &str, check: Result<(), Breach>) -> Result<(), Fault> {
    check.map_err(|breach| fault::module(CONTRACT, format!("{call}: {breach}")))
}

fn decoded_of(out: DecodedOut) -> Decoded {
    let columns = out.columns.into_iter().map(|c| DecodedColumn { kinds: c.kinds, spans: c.spans }).collect();
    Decoded { columns, heap: out.heap, failures: failures(out.failures) }
}

fn outcome_of(mut out: OutcomeOut) -> Outcome {
    let columns = take(&mut out.output.columns).into_iter().map(Column::from).collect();
    Outcome {
        verdicts: out.verdicts,
        output: Output {
            at: out.output.at,
            origins: out.output.origins,
            images: out.output.images,
            routes: out.output.routes,
            kinds: out.output.kinds,
            wakes: out.output.wakes.into(),
            windows: out.output.windows,
            columns,
        },
        failures: failures(out.failures),
        winners: out.winners,
        winner_images: out.winner_images,
        counts: out.counts,
    }
}
