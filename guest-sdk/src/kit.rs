//! Runs guests natively, for tests: keys and transforms over columns, keyed guests over a stream of records, against a
//! state in memory that keeps the contract and refuses what breaks it.
//!
//! A keyed guest must give the same lines however its input is cut: [`check_cuts`] compares random cuts, few wakes a
//! call and fresh instances with one record a call.

mod run;
mod session;
mod state;
mod stream;

use serde_json::Value;

use crate::bindings::stage_exports;
use crate::cells::Column;
use crate::export::{OpenKey, OpenTransform};
use crate::failure::RowFailure;
use crate::key::Key;
use crate::keyed::Outcome;
use crate::transform::Transform;

pub use run::{Cutting, Line, Run, check_cuts, run};
#[cfg(test)]
pub(crate) use state::Mutant;
pub use state::State;
pub use stream::{Random, Record, Stream};

/// The keys of rows, and the rows that failed.
///
/// # Errors
/// What `open` refuses.
pub fn keys<K: Key>(params: &Value, columns: &[Column]) -> Result<(Column, Vec<RowFailure>), String> {
    let (mut key, _) = OpenKey::<K>::open(&params.to_string())?;
    Ok(key.keys(columns))
}

/// What a stage without state makes of rows; `columns` are those that its check reads.
///
/// # Errors
/// What `open` refuses.
pub fn transform<T: Transform>(params: &Value, context: &Value, columns: &[Column]) -> Result<Outcome, String> {
    let mut stage = OpenTransform::<T>::open(&params.to_string(), &context.to_string())?;
    let rows = columns.first().map_or(0, Column::len) as u32;
    Ok(stage.process(&stage_exports::Batch { rows, columns: columns.to_vec(), ..Default::default() }))
}
