//! The only user of wasmtime.

pub mod call;
