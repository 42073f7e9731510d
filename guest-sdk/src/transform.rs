//! Stages without state.

use serde_json::Value;

use crate::check::Check;
use crate::failure::Failure;
use crate::out::{Out, Verdict};
use crate::row::Row;

/// A stage without state: keeps, drops, changes, splits, routes.
pub trait Transform: Sized {
    /// While planning: what is wrong with the parameters, and what the stage reads and writes. Same arguments, same
    /// answer; the SDK asks again when the stage is opened.
    fn check(params: &Value, context: &Value) -> Check;

    /// Before the first row. An error is a fault of the module, since `check` has accepted the parameters.
    fn open(params: &Value, context: &Value) -> Result<Self, String>;

    /// One row. To change or split it: `out.emit_row(..)`, `out.write(..)`, and [`Verdict::Output`].
    fn row(&mut self, row: &Row<'_>, out: &mut Out) -> Result<Verdict, Failure>;
}
