//! Nothing a guest returns is used before it has been checked here (rule 10 of the contract): lengths, offsets, kinds,
//! sizes, UTF-8, numbers, documents, rows, slots, order. A breach is a fault of the module, not of a row.
//!
//! The checks of a whole column come first; cell by cell is looked at only where a column mixes kinds.

use std::fmt;

use super::call::{Decoded, Outcome, Refusal, RowFailure, StampsOf};
use super::cells::{self, Allowed};
use super::guest::Shape;
use crate::batch::Column;

/// How a guest broke the contract, for a person.
#[derive(Debug, PartialEq, Eq)]
pub struct Breach(pub String);

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Breach> for Refusal {
    fn from(breach: Breach) -> Refusal {
        Refusal::Breach(breach.0)
    }
}

type Check = Result<(), Breach>;

pub(super) fn breach(text: impl Into<String>) -> Check {
    Err(Breach(text.into()))
}

/// The answer of `keys`.
pub fn keys(column: &Column, failed: &[RowFailure], rows: usize) -> Check {
    failures(failed, rows)?;
    cells::column("its keys", column, rows, Allowed::Key, failed)
}

/// The answer of `encode`.
pub fn payloads(column: &Column, failed: &[RowFailure], rows: usize) -> Check {
    failures(failed, rows)?;
    cells::column("its payloads", column, rows, Allowed::Payload, failed)
}

/// The answer of `decode`: a column for each path.
pub fn decoded(decoded: &Decoded, columns: usize, payloads: &Column) -> Check {
    let rows = payloads.rows();
    failures(&decoded.failures, rows)?;
    if decoded.columns.len() != columns {
        return breach(format!("it was opened with {columns} paths and returns {} columns", decoded.columns.len()));
    }
    for (i, column) in decoded.columns.iter().enumerate() {
        cells::spans(i, column, rows, &payloads.data, &decoded.heap, &decoded.failures)?;
    }
    Ok(())
}

/// A column that a state import is given: the guest's own bytes, so only its form counts.
pub fn stored(what: &str, column: &Column, rows: usize) -> Check {
    cells::form(what, column, rows)?;
    cells::kinds(what, &column.kinds, Allowed::Written, &[]).map(|_| ())
}

/// Stamps, one for each of `rows`.
pub fn stamps(what: &str, stamps: StampsOf<'_>, rows: usize) -> Check {
    length(what, stamps.times.len(), rows)?;
    if stamps.inputs.is_empty() { Ok(()) } else { length(what, stamps.inputs.len(), rows) }
}

/// The answer of `process`. `slots`: how many the state handed out in this call. Where there are no output rows, columns
/// that were left out are filled in.
pub fn outcome(outcome: &mut Outcome, rows: u32, slots: u64, shape: &Shape) -> Check {
    let row_count = rows as usize;
    length("its verdicts", outcome.verdicts.len(), row_count)?;
    let (failed, duplicates) = verdicts(&outcome.verdicts, shape.routes)?;

    failures(&outcome.failures, row_count)?;
    if outcome.failures.len() != failed {
        let count = outcome.failures.len();
        return breach(format!("{failed} rows have verdict 3, but there are {count} failures"));
    }
    if let Some(f) = outcome.failures.iter().find(|f| outcome.verdicts.get(f.row as usize) != Some(&3)) {
        return breach(format!("a failure names row {}, which has not verdict 3", f.row));
    }

    let sources = u64::from(rows) + slots;
    length_or_none("its winners", outcome.winners.len(), duplicates)?;
    if let Some(bad) = outcome.winners.iter().find(|&&w| u64::from(w) >= sources) {
        return breach(format!("winner {bad}: there are {rows} rows and {slots} slots"));
    }
    length_or_none("its winner-images", outcome.winner_images.len(), outcome.winners.len())?;
    length("its counts", outcome.counts.len(), shape.counters)?;

    let out = &mut outcome.output;
    let count = out.at.len();
    if let Some(bad) = out.at.iter().find(|&&at| at > rows) {
        return breach(format!("output at {bad}: there are {rows} rows"));
    }
    if !out.at.is_sorted() {
        return breach("the output's `at` falls");
    }
    length("the output's origins", out.origins.len(), count)?;
    if let Some(bad) = out.origins.iter().find(|&&origin| u64::from(origin) >= sources) {
        return breach(format!("output origin {bad}: there are {rows} rows and {slots} slots"));
    }
    length_or_none("the output's images", out.images.len(), count)?;
    length_or_none("the output's routes", out.routes.len(), count)?;
    if let Some(bad) = out.routes.iter().find(|&&route| usize::from(route) > shape.routes) {
        return breach(format!("output route {bad}: the stage has {} routes", shape.routes));
    }
    length_or_none("the output's kinds", out.kinds.len(), count)?;
    if let Some(bad) = out.kinds.iter().find(|&&kind| kind > 3) {
        return breach(format!("output kind {bad}"));
    }
    length_or_none("the output's wakes", out.wakes.times.len(), count)?;
    length_or_none("the output's wakes' inputs", out.wakes.inputs.len(), out.wakes.times.len())?;
    length_or_none("the output's windows", out.windows.len(), 2 * count)?;

    if count == 0 && out.columns.is_empty() {
        out.columns.resize_with(shape.writes, Column::default);
    }
    length("the output's columns", out.columns.len(), shape.writes)?;
    for (i, column) in out.columns.iter().enumerate() {
        cells::column(&format!("the output's column {i}"), column, count, Allowed::Written, &[])?;
    }
    Ok(())
}

/// Checks verdicts; gives how many rows failed and how many are duplicates.
fn verdicts(verdicts: &[u8], routes: usize) -> Result<(usize, usize), Breach> {
    // The highest verdict that is a route, and the highest that is not, tell whether all are in range.
    let (mut plain, mut route, mut failed, mut duplicates) = (0u8, 128u8, 0usize, 0usize);
    for &v in verdicts {
        plain = plain.max(if v < 128 { v } else { 0 });
        route = route.max(v);
        failed += usize::from(v == 3);
        duplicates += usize::from(v == 4);
    }
    if plain > 7 {
        return Err(Breach(format!("verdict {plain}")));
    }
    if usize::from(route - 128) > routes {
        return Err(Breach(format!("verdict {route}: the stage has {routes} routes")));
    }
    Ok((failed, duplicates))
}

/// Failures name rows that exist, each once, with a category and a code as the contract wants them.
fn failures(failures: &[RowFailure], rows: usize) -> Check {
    for f in failures {
        if f.row as usize >= rows {
            return breach(format!("a failure names row {} of {rows}", f.row));
        }
        if !(1..=3).contains(&f.category) {
            return breach(format!("the failure of row {} has category {}", f.row, f.category));
        }
        let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'-';
        if f.code.is_empty() || f.code.len() > 64 || !f.code.bytes().all(fits) {
            let code: String = f.code.chars().take(64).collect();
            return breach(format!("the failure of row {} has code `{code}`, not [a-z0-9_-]+", f.row));
        }
    }
    // Almost always there are none, or they come in order.
    if !failures.is_sorted_by(|a, b| a.row < b.row) {
        let mut named: Vec<u32> = failures.iter().map(|f| f.row).collect();
        named.sort_unstable();
        if let Some(twice) = named.windows(2).find(|w| w[0] == w[1]) {
            return breach(format!("two failures name row {}", twice[0]));
        }
    }
    Ok(())
}

pub(super) fn length(what: &str, has: usize, wants: usize) -> Check {
    if has == wants { Ok(()) } else { breach(format!("{what}: {has} in place of {wants}")) }
}

fn length_or_none(what: &str, has: usize, wants: usize) -> Check {
    if has == 0 { Ok(()) } else { length(what, has, wants) }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
