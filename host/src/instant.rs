//! Instants in cells and texts: event time of a row (rules T1, T2), and how instants are written.

use jiff::Timestamp;
use jiff::civil::DateTime;
use tamis_guest::number;

use crate::batch::{Cell, kind};
use crate::key::eight;

/// Nanoseconds in a millisecond.
pub const MILLI: i64 = 1_000_000;

/// The time in a cell, ns since 1970: numbers in `unit` ns with all their fractions, text as RFC 3339 or a number,
/// header bytes as text. `None`: null, unparsable, or out of the range of 64-bit nanoseconds.
pub fn of_cell(cell: Cell<'_>, unit: i64) -> Option<i64> {
    match cell.kind {
        kind::NUMBER => of_number(cell.bytes, unit),
        kind::INT64..=kind::INT8 => eight(cell.bytes).checked_mul(unit),
        kind::TIMESTAMP => eight(cell.bytes).checked_mul(MILLI),
        kind::DATE => eight(cell.bytes).checked_mul(86_400_000 * MILLI),
        kind::FLOAT64 | kind::FLOAT32 => {
            let value = f64::from_bits(eight(cell.bytes) as u64) * unit as f64;
            (value.is_finite() && value.abs() < 9.2e18).then_some(value.floor() as i64)
        }
        kind::TEXT | kind::BYTES => of_text(std::str::from_utf8(cell.bytes).ok()?, unit),
        _ => None,
    }
}

/// Text as RFC 3339 (`T` or a space, UTC without a zone), or a number in `unit` ns.
pub fn of_text(text: &str, unit: i64) -> Option<i64> {
    let text = text.trim();
    if number::is_number(text.as_bytes()) {
        return of_number(text.as_bytes(), unit);
    }
    let nanoseconds = match text.parse::<Timestamp>() {
        Ok(instant) => instant.as_nanosecond(),
        Err(_) => {
            let local: DateTime = text.parse().ok()?;
            if text.len() < 19 {
                return None;
            }
            jiff::tz::TimeZone::UTC.to_timestamp(local).ok()?.as_nanosecond()
        }
    };
    i64::try_from(nanoseconds).ok()
}

/// An exact decimal number of units of `unit` ns; digits below a nanosecond are cut off, towards the past.
fn of_number(text: &[u8], unit: i64) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(whole) = text.parse::<i64>() {
        return whole.checked_mul(unit);
    }
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b.wrapping_sub(b'0')).collect();
    // value = digits * 10^(exponent - len(fraction)) * unit, and unit is a power of ten.
    let unit_digits = unit.ilog10() as i32;
    let mut power = exponent.checked_sub(fraction.len() as i32)?.checked_add(unit_digits)?;
    let mut value: i128 = 0;
    let mut cut = false;
    let keep = (digits.len() as i32 + power.min(0)).max(0) as usize;
    for (i, &digit) in digits.iter().enumerate() {
        if i < keep {
            value = value.checked_mul(10)?.checked_add(i128::from(digit))?;
            if value > i128::from(i64::MAX) * 10 {
                return None;
            }
        } else {
            cut |= digit != 0;
        }
    }
    while power > 0 && value != 0 {
        value = value.checked_mul(10)?;
        if value > i128::from(i64::MAX) * 10 {
            return None;
        }
        power -= 1;
    }
    let value = if negative { -value - i128::from(cut) } else { value };
    i64::try_from(value).ok()
}

/// An instant in RFC 3339, with as many digits of the second as it needs.
pub fn format(nanoseconds: i64) -> String {
    match Timestamp::from_nanosecond(i128::from(nanoseconds)) {
        Ok(instant) => instant.to_string(),
        Err(_) => format!("{nanoseconds} ns since 1970"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[track_caller]
    fn check(text: &str, unit: i64, expected: Option<i64>) {
        assert_eq!(of_text(text, unit), expected, "{text}");
    }

    #[test]
    fn numbers_count_to_the_nanosecond() {
        check("1700000000.000000200", 1_000_000_000, Some(1_700_000_000_000_000_200));
        check("1.5", 1_000_000, Some(1_500_000));
        check("1e3", 1_000_000, Some(1_000_000_000));
        check("-0.0000001", 1_000_000, Some(-1));
        check("25", 1, Some(25));
        check("1e30", 1_000_000, None);
        check("99999999999999999999", 1, None);
        check("0e999999", 1, Some(0));
    }

    #[test]
    fn text_is_rfc_3339_with_t_or_a_space_and_utc_without_a_zone() {
        check("1970-01-01T00:00:01Z", 1, Some(1_000_000_000));
        check("1970-01-01 00:00:01", 1, Some(1_000_000_000));
        check("1970-01-01T02:00:00.5+02:00", 1, Some(500_000_000));
        check("1500-06-24T09:11:03+02:00", 1, None);
        check("DEFINITELY-NOT-PARSABLE", 1, None);
        check("1970-01-01", 1, None);
        check("", 1, None);
    }

    #[test]
    fn instants_are_written_as_they_are_read() {
        assert_eq!(format(1_500_000_000), "1970-01-01T00:00:01.5Z");
    }
}
