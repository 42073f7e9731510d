//! What the integration tests share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod kafka;
pub mod program;
pub mod watched;
