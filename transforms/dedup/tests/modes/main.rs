//! Each mode of deduplication under the SDK's native kit: hand-worked rows, random cuts, properties of any stream.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod growing;
mod harness;
mod identity;
mod retract;
mod steps;
mod unwindowed;
mod windowed;
