//! One instance: a store, its limits, and the functions the host calls in it.

use wasmtime::component::{ComponentNamedList, Lift, Lower, TypedFunc};
use wasmtime::{Store, StoreContextMut};

use super::call::{Fault, State};
use super::engine::Engine;
use super::fault::{self, CONTRACT};
use super::host::Host;
use super::module::{Module, World};
use super::wire::{BatchIn, ColumnIn, ColumnOut, DecodedOut, FailureOut, OutcomeOut};
use crate::config::pipeline::Limits;

/// Nanoseconds a call may take for each of its rows, beside `limits.call`.
const PER_ROW: u64 = 1_000_000;

type Text = &'static str;
type Texts = &'static [String];
/// `result<_, string>`
type Opened = (Result<(), String>,);
/// `tuple<column, list<failure>>`
pub type Columned = (ColumnOut, Vec<FailureOut>);

/// The functions of a role. Lifetimes are shortened when they are called.
#[derive(Clone, Copy)]
pub enum Calls {
    Codec {
        open: TypedFunc<(Text, Texts), Opened>,
        decode: TypedFunc<(ColumnIn<'static>,), (DecodedOut,)>,
        encode: TypedFunc<(&'static [ColumnIn<'static>],), (Columned,)>,
    },
    Transform {
        check: TypedFunc<(Text, Text), (String,)>,
        open: TypedFunc<(Text, Text), Opened>,
        process: TypedFunc<(BatchIn<'static>,), (OutcomeOut,)>,
    },
    Key {
        open: TypedFunc<(Text,), (Result<Vec<String>, String>,)>,
        keys: TypedFunc<(&'static [ColumnIn<'static>],), (Columned,)>,
    },
}

/// An instance that has not been opened yet, or has.
pub struct Instance {
    store: Store<Host>,
    /// Its manifest.
    pub describe: TypedFunc<(), (String,)>,
    /// What it is for.
    pub calls: Calls,
}

impl Instance {
    /// Makes an instance within limits. Nothing of it has run but its start function.
    ///
    /// # Errors
    /// A fault: `memory`, `trap`, `deadline`; `contract` if its functions have other types than the contract.
    pub fn new(module: &Module, limits: &Limits) -> Result<Instance, Fault> {
        let parts = module.parts();
        let mut store = Store::new(parts.engine.wasm(), Host::new(parts.name.clone(), limits.memory, limits.log));
        store.limiter(|host| &mut host.meter);
        store.set_hostcall_fuel(usize::try_from(limits.output).unwrap_or(usize::MAX));
        store.set_epoch_deadline(deadline(limits, 0));
        let instance = match parts.pre.instantiate(&mut store) {
            Ok(instance) => instance,
            Err(e) => return Err(fault::of(&e, store.data_mut(), "its start")),
        };
        let mut functions = Functions { store: &mut store, instance, export: &parts.export };
        let calls = match parts.world {
            World::Codec => functions.codec(),
            World::Transform | World::Keyed => functions.transform(),
            World::Key => functions.key(),
        };
        let describe = functions.typed("describe");
        let other = |e: String| fault::module(CONTRACT, e);
        let (calls, describe) = (calls.map_err(other)?, describe.map_err(other)?);
        Ok(Instance { store, describe, calls })
    }

    /// Runs one function: `name` is for messages, `rows` for the deadline, `state` for its imports. After an error the
    /// instance is spent.
    pub fn call<R>(
        &mut self,
        name: &str,
        limits: &Limits,
        rows: u64,
        state: Option<Box<dyn State>>,
        function: impl FnOnce(StoreContextMut<'_, Host>) -> wasmtime::Result<R>,
    ) -> Result<R, Fault> {
        self.store.data_mut().begin(state);
        self.store.set_epoch_deadline(deadline(limits, rows));
        function((&mut self.store).into()).map_err(|e| fault::of(&e, self.store.data_mut(), name))
    }

    /// What the last call left in the store.
    pub fn host(&mut self) -> &mut Host {
        self.store.data_mut()
    }
}

fn deadline(limits: &Limits, rows: u64) -> u64 {
    let call = u64::try_from(limits.call).unwrap_or_default();
    Engine::ticks(call.saturating_add(rows.saturating_mul(PER_ROW)))
}

/// Looks functions up by name and type.
struct Functions<'a> {
    store: &'a mut Store<Host>,
    instance: wasmtime::component::Instance,
    export: &'a str,
}

impl Functions<'_> {
    fn codec(&mut self) -> Result<Calls, String> {
        Ok(Calls::Codec { open: self.typed("open")?, decode: self.typed("decode")?, encode: self.typed("encode")? })
    }

    fn transform(&mut self) -> Result<Calls, String> {
        Ok(Calls::Transform { check: self.typed("check")?, open: self.typed("open")?, process: self.typed("process")? })
    }

    fn key(&mut self) -> Result<Calls, String> {
        Ok(Calls::Key { open: self.typed("open")?, keys: self.typed("keys")? })
    }

    fn typed<P, R>(&mut self, name: &str) -> Result<TypedFunc<P, R>, String>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let missing = || format!("{} has no function `{name}`", self.export);
        let interface = self.instance.get_export_index(&mut *self.store, None, self.export).ok_or_else(missing)?;
        let missing = || format!("{} has no function `{name}`", self.export);
        let function = self.instance.get_export_index(&mut *self.store, Some(&interface), name).ok_or_else(missing)?;
        self.instance
            .get_typed_func(&mut *self.store, function)
            .map_err(|e| format!("`{name}` of {} has another type: {e:#}", self.export))
    }
}
