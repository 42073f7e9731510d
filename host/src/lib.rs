//! The tamis host: pipelines of WebAssembly guests over records, with the state, the time and the positions in the host.

pub mod batch;
pub mod bundled;
pub mod checkpoint;
pub mod chain;
pub mod cli;
pub mod columns;
pub mod config;
pub mod decode;
pub mod encode;
pub mod event_time;
pub mod files;
pub mod format;
pub mod guest;
pub mod in_order;
pub mod instant;
pub mod key;
pub mod keyed;
pub mod outcome;
mod routed;
pub mod plan;
pub mod portion;
pub mod script;
pub mod stage;
pub mod task;
pub mod telemetry;
pub mod time;
pub mod worker;
