//! The only user of wasmtime: what a module is, how a guest is called, and why nothing it returns is believed.
//!
//! `Engine::load` turns bytes into a `Module`; `Module::guest` gives a `Guest`, which makes its instance when it is first
//! called and makes another one after a fault. `wire` holds the types that cross, `layout` checks what came back.

pub mod call;
mod cells;
mod engine;
mod escape;
mod fault;
// What the folder is about.
#[allow(clippy::module_inception)]
mod guest;
mod host;
mod instance;
mod layout;
mod link;
mod load;
mod manifest;
mod module;
mod names;
mod tally;
mod watch;
mod wire;

pub use engine::Engine;
pub use escape::escape;
pub use guest::{CALLS_PER_INSTANCE, Guest, Opening, Shape};
pub use load::LoadError;
pub use manifest::{Manifest, manifest_of};
pub use module::{CheckError, Module, World};
pub use tally::{OPS, Tally};
pub use watch::Watch;
