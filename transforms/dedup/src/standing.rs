//! Where a record stands in the total order (O2, O3): its order value, then its position, as bytes that compare as the
//! records do.

use smallvec::SmallVec;
use tamis_guest::{Cell, Row, kind, number};

use crate::Dedup;
use crate::settings::Order;
use crate::table::Keep;

/// Order value and position.
pub type Standing = SmallVec<[u8; 32]>;

/// Length of a position: input (2 bytes) and offset (8 bytes), at the end of a standing.
pub const POSITION: usize = 10;

// What an order value begins with. Values of different types compare by type; what has no value loses either way.
const LEAST: u8 = 0x00;
const BOOLEAN: u8 = 0x10;
const NUMBER: u8 = 0x20;
const TEXT: u8 = 0x30;
const BYTES: u8 = 0x40;
const GREATEST: u8 = 0xff;

/// Bytes of a signed number that compare as the numbers do.
pub fn ordered(number: i64) -> [u8; 8] {
    ((number as u64) ^ (1 << 63)).to_be_bytes()
}

/// The position of a row.
pub fn position(dedup: &Dedup, row: &Row<'_>) -> [u8; POSITION] {
    let mut bytes = [0; POSITION];
    bytes[..2].copy_from_slice(&row.input().to_be_bytes());
    bytes[2..].copy_from_slice(&ordered(row.cell(dedup.plan.offset).as_i64().unwrap_or(0)));
    bytes
}

/// The position in a standing.
pub fn position_of(standing: &[u8]) -> &[u8] {
    &standing[standing.len().saturating_sub(POSITION)..]
}

/// Where a row stands that nothing is compared with: its position. In groups that grow, which may become one, its place
/// in the order of arrival comes first.
pub fn arrival(dedup: &Dedup, row: &Row<'_>) -> Standing {
    let mut into = Standing::new();
    if let Some(column) = dedup.plan.arrival {
        into.extend_from_slice(&ordered(row.cell(column).as_i64().unwrap_or(0)));
    }
    into.extend_from_slice(&position(dedup, row));
    into
}

/// Where a row stands. Under order arrival that is its position alone, and says nothing about before and after, but in
/// groups that grow.
pub fn standing(dedup: &Dedup, row: &Row<'_>) -> Standing {
    let mut into = Standing::new();
    match &dedup.settings.order {
        Order::Arrival => return arrival(dedup, row),
        Order::Time => {
            let time = match dedup.plan.time {
                Some(column) => row.cell(column).as_i64(),
                None => Some(row.time().time),
            };
            match (time, dedup.settings.keep) {
                (Some(time), _) => into.extend_from_slice(&ordered(time)),
                (None, Keep::First) => into.extend_from_slice(&[GREATEST; 8]),
                (None, Keep::Last) => into.extend_from_slice(&[LEAST; 8]),
            }
        }
        Order::Fields(paths) => {
            for column in dedup.plan.fields..dedup.plan.fields + paths.len() {
                value(row.cell(column), dedup.settings.keep, &mut into);
            }
        }
    }
    into.extend_from_slice(&position(dedup, row));
    into
}

/// Does a row replace the kept record (O1)? `new` and `kept` are their standings.
pub fn beats(dedup: &Dedup, row: &Row<'_>, new: &[u8], kept: &[u8]) -> bool {
    match (&dedup.settings.order, dedup.settings.keep) {
        (Order::Arrival, Keep::First) => false,
        // A position that comes again is no new arrival (R1).
        (Order::Arrival, Keep::Last) => !row.is_redelivered(),
        (_, Keep::First) => new < kept,
        (_, Keep::Last) => new >= kept,
    }
}

/// Of two kept records, does the one that stands here stay?
pub fn stays(dedup: &Dedup, one: &[u8], other: &[u8]) -> bool {
    match dedup.settings.keep {
        Keep::First => one <= other,
        Keep::Last => one >= other,
    }
}

/// An order value: no value is the beginning of another, so that several compare one after the other.
fn value(cell: Cell<'_>, keep: Keep, into: &mut Standing) {
    match cell.kind {
        kind::BOOL => into.extend_from_slice(&[BOOLEAN, u8::from(cell.as_bool() == Some(true))]),
        kind::TEXT => {
            into.push(TEXT);
            escaped(cell.bytes, into);
        }
        kind::BYTES => {
            into.push(BYTES);
            escaped(cell.bytes, into);
        }
        _ => match number(cell) {
            Some(key) => {
                into.push(NUMBER);
                escaped(&key, into);
            }
            None => into.push(if keep == Keep::First { GREATEST } else { LEAST }),
        },
    }
}

/// The key of a numeric cell; NaN stands above all numbers.
fn number(cell: Cell<'_>) -> Option<Vec<u8>> {
    if let Some(text) = cell.as_number() {
        return number::order_key(text.as_bytes());
    }
    let mut key = Vec::new();
    match cell.as_f64() {
        Some(float) => number::order_key_of_f64(float, &mut key),
        None => number::order_key_of_i64(cell.as_i64()?, &mut key),
    }
    Some(key)
}

/// Bytes with an end that is below every continuation.
fn escaped(bytes: &[u8], into: &mut Standing) {
    for &byte in bytes {
        into.push(byte);
        if byte == 0 {
            into.push(0xff);
        }
    }
    into.extend_from_slice(&[0, 1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cell: Cell<'_>, keep: Keep) -> Standing {
        let mut into = Standing::new();
        value(cell, keep, &mut into);
        into
    }

    #[test]
    fn values_compare_by_type_then_by_value() {
        let big = "123456789012345678901234567890";
        let nan = f64::NAN.to_le_bytes();
        let cells = [
            Cell { kind: kind::BOOL, bytes: &[0] },
            Cell { kind: kind::BOOL, bytes: &[1] },
            Cell { kind: kind::NUMBER, bytes: b"-2.5" },
            Cell { kind: kind::NUMBER, bytes: b"0" },
            Cell { kind: kind::NUMBER, bytes: b"1e-3" },
            Cell { kind: kind::NUMBER, bytes: big.as_bytes() },
            Cell { kind: kind::FLOAT64, bytes: &nan },
            Cell::text(""),
            Cell::text("\u{0}"),
            Cell::text("\u{0}a"),
            Cell::text("a"),
            Cell::text("ab"),
            Cell::text("b"),
            Cell { kind: kind::BYTES, bytes: b"" },
            Cell { kind: kind::BYTES, bytes: b"\xff" },
        ];
        for pair in cells.windows(2) {
            assert!(of(pair[0], Keep::First) < of(pair[1], Keep::First), "{pair:?}");
        }
        for cell in cells {
            assert!(of(cell, Keep::First) < of(Cell::MISSING, Keep::First), "null loses for keep first: {cell:?}");
            assert!(of(cell, Keep::Last) > of(Cell::MISSING, Keep::Last), "and for keep last: {cell:?}");
        }
        let float = 1.0f64.to_le_bytes();
        assert_eq!(
            of(Cell { kind: kind::NUMBER, bytes: b"1.0" }, Keep::First),
            of(Cell { kind: kind::FLOAT64, bytes: &float }, Keep::First)
        );
    }
}
