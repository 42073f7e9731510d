//! Durations as the pipeline file writes them: `250ms`, `1d12h`, `-3s`, `1.5s`.

/// Units, largest first, with their length in nanoseconds.
const UNITS: [(&str, i128); 8] = [
    ("w", 604_800_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Nanoseconds of a duration. An error says what is wrong with the text.
pub fn parse(text: &str) -> Result<i64, String> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if rest.is_empty() {
        return Err("a duration is a number and a unit, such as 15m".to_string());
    }
    let mut total: i128 = 0;
    let mut last = usize::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        if number.is_empty() {
            return Err(format!("`{text}` is not a number and a unit, such as 15m"));
        }
        if unit.is_empty() {
            return Err(format!("`{text}` has no unit; units are ns us ms s m h d w"));
        }
        let Some(place) = UNITS.iter().position(|(name, _)| *name == unit) else {
            return Err(format!("`{unit}` is no unit; units are ns us ms s m h d w"));
        };
        if last != usize::MAX && place <= last {
            return Err(format!("`{text}`: units go from large to small, each once"));
        }
        last = place;
        total += part(number, UNITS[place].1).ok_or_else(|| format!("`{number}` is not a number"))?;
        if total > i128::from(i64::MAX) {
            return Err(format!("`{text}` is longer than 292 years"));
        }
        rest = after;
    }
    let total = if negative { -total } else { total };
    i64::try_from(total).map_err(|_| format!("`{text}` is longer than 292 years"))
}

/// `1.5` of a unit, in nanoseconds; what is below a nanosecond is cut off.
fn part(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() > 19 || fraction.contains('.') || number.ends_with('.') {
        return None;
    }
    let mut total = whole.parse::<i128>().ok()?.checked_mul(unit)?;
    let mut scale = unit;
    for digit in fraction.bytes() {
        scale /= 10;
        total += i128::from(digit - b'0') * scale;
    }
    Some(total)
}

/// A duration as the pipeline file writes it, units from days down.
pub fn print(nanoseconds: i64) -> String {
    if nanoseconds == 0 {
        return "0s".to_string();
    }
    let mut text = if nanoseconds < 0 { "-".to_string() } else { String::new() };
    let mut rest = i128::from(nanoseconds).abs();
    // Days are read more easily than weeks.
    for (unit, size) in UNITS.into_iter().skip(1) {
        if rest >= size {
            text.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{parse, print};

    #[test]
    fn what_is_printed_is_read_back() {
        for text in ["250ms", "1d12h", "1s500ms", "0s", "-3s", "14d", "1m1ns"] {
            assert_eq!(parse(text).map(print).as_deref(), Ok(text));
        }
    }

    #[test]
    fn numbers_with_units_are_durations() {
        for (text, wanted) in [
            ("250ms", 250_000_000),
            ("1d12h", 129_600_000_000_000),
            ("1.5s", 1_500_000_000),
            ("0s", 0),
            ("-3s", -3_000_000_000),
            ("2w", 1_209_600_000_000_000),
            ("1m1ns", 60_000_000_001),
        ] {
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in ["", "-", "5", "s", "1x", "1s1m", "1s1s", "1.s", "1..5s", "1 s", "400000w", "99999999999999999999s"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
