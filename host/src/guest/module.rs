//! A module: compiled, compared with this host, found to be what its manifest says. No state, shared by all threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use wasmtime::component::InstancePre;

use super::call::Fault;
use super::engine::Engine;
use super::fault::{self, CONTRACT, OPEN};
use super::guest::{Guest, Opening};
use super::host::Host;
use super::instance::{Calls, Instance};
use super::manifest::Manifest;
use crate::config::pipeline::Limits;

/// What a module is for, and what it may import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// Bytes to fields and back.
    Codec,
    /// A stage without state.
    Transform,
    /// A stage with state.
    Keyed,
    /// A key made of a record.
    Key,
}

/// A module that may run. Clones share everything.
#[derive(Clone)]
pub struct Module {
    parts: Arc<Parts>,
}

/// What a module is made of.
pub(super) struct Parts {
    pub engine: Engine,
    pub name: Arc<str>,
    pub digest: String,
    pub size: usize,
    /// How long it took to compile it, or to take it from the cache.
    pub compiled: Duration,
    pub manifest: Manifest,
    pub world: World,
    /// Name of the export to call.
    pub export: String,
    pub imports: Vec<String>,
    pub pre: InstancePre<Host>,
}

/// Why a key guest names no columns.
#[derive(Clone, Debug)]
pub enum CheckError {
    /// It refuses its parameters; in its own words.
    Refused(String),
    /// It could not be asked.
    Fault(Fault),
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({} {} {:?} {})", self.name(), self.version(), self.world(), self.digest())
    }
}

impl Module {
    pub(super) fn new(parts: Parts) -> Module {
        Module { parts: Arc::new(parts) }
    }

    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The name it was loaded by.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// Its own version, as its manifest has it.
    pub fn version(&self) -> &str {
        &self.parts.manifest.version
    }

    /// SHA-256 of the file, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.parts.digest
    }

    /// Bytes of the file.
    pub fn size(&self) -> usize {
        self.parts.size
    }

    /// How long it took to compile it, or to take it from the cache.
    pub fn compiled(&self) -> Duration {
        self.parts.compiled
    }

    /// What it says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.parts.manifest
    }

    /// What it is for.
    pub fn world(&self) -> World {
        self.parts.world
    }

    /// Interfaces it imports, as in the file.
    pub fn imports(&self) -> Vec<String> {
        self.parts.imports.clone()
    }

    /// Asks a stage what it thinks of its parameters; the answer's shape is in the contract. Transforms only.
    ///
    /// # Errors
    /// A fault; `contract` if the answer is no JSON object, or the module is no transform.
    pub fn check(&self, params: &Value, context: &Value, limits: &Limits) -> Result<Value, Fault> {
        let mut instance = Instance::new(self, limits)?;
        let Calls::Transform { check, .. } = instance.calls else { return Err(self.not_a("transform")) };
        let (answer,) = instance
            .call("check", limits, 0, None, |store| check.call(store, (&*params.to_string(), &*context.to_string())))?;
        match serde_json::from_str(&answer) {
            Ok(answer @ Value::Object(_)) => Ok(answer),
            Ok(_) => Err(fault::module(CONTRACT, "check: its answer is not a JSON object")),
            Err(e) => Err(fault::module(CONTRACT, format!("check: its answer is not JSON: {e}"))),
        }
    }

    /// Asks a key guest which columns it wants. Key guests only.
    ///
    /// # Errors
    /// It refuses its parameters, or a fault; `contract` if it names no column, or the module is no key guest.
    pub fn key_columns(&self, params: &Value, limits: &Limits) -> Result<Vec<String>, CheckError> {
        let mut instance = Instance::new(self, limits).map_err(CheckError::Fault)?;
        let Calls::Key { open, .. } = instance.calls else { return Err(CheckError::Fault(self.not_a("key"))) };
        let (answer,) = instance
            .call("open", limits, 0, None, |store| open.call(store, (&*params.to_string(),)))
            .map_err(CheckError::Fault)?;
        match answer {
            Ok(columns) if columns.is_empty() => {
                Err(CheckError::Fault(fault::module(CONTRACT, "open: it names no column to make a key of")))
            }
            Ok(columns) => Ok(columns),
            Err(text) => Err(CheckError::Refused(text)),
        }
    }

    /// A guest of this module. Its instance is made when it is first called.
    pub fn guest(&self, opening: Opening, limits: Limits) -> Guest {
        Guest::new(self.clone(), opening, limits)
    }

    pub(super) fn not_a(&self, wanted: &str) -> Fault {
        fault::module(OPEN, format!("{} is a {:?} module, not a {wanted}", self.name(), self.world()))
    }

    /// Its manifest by its own account. The error is a text for a person.
    pub(super) fn describe(&self) -> Result<String, String> {
        // Of these only memory may differ from a pipeline's: what an instance needs merely to exist.
        let limits = Limits { call: 5_000_000_000, memory: 256 << 20, ..Limits::default() };
        let words = |fault: Fault| match fault {
            Fault::Module { kind, text } => format!("it cannot say what it is: {kind}: {text}"),
            Fault::Full => "it cannot say what it is".into(),
        };
        let mut instance = Instance::new(self, &limits).map_err(words)?;
        let describe = instance.describe;
        let (text,) = instance.call("describe", &limits, 0, None, |store| describe.call(store, ())).map_err(words)?;
        Ok(text)
    }
}
