//! Integration tests: one binary, one module per area.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod bad_input;
mod cases;
mod configs;
mod docs;
mod engine;
mod examples;
mod faults;
mod import;
mod kafka;
mod kill;
mod model;
mod operations;
mod oracle;
mod running;
mod tidy;
