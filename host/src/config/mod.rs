//! The pipeline file: what was written (`node`), what is meant (`pipeline`), and how to say what is wrong.

pub mod diagnostic;
pub mod node;
pub mod path;
pub mod pipeline;
