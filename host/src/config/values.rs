//! Durations, sizes and instants as they are written (pipeline-file section 2).

use std::net::SocketAddr;

/// Why a value is refused: its code is P-UNIT or P-VALUE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// `P-UNIT` or `P-VALUE`.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// The way out.
    pub help: String,
}

impl ValueError {
    fn value(message: String, help: &str) -> ValueError {
        ValueError { code: "P-VALUE", message, help: help.to_string() }
    }

    fn unit(message: String, help: String) -> ValueError {
        ValueError { code: "P-UNIT", message, help }
    }
}

/// Units of durations in nanoseconds, largest first.
const DURATIONS: [(&str, i64); 8] = [
    ("w", 604_800_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

const DURATION_HELP: &str = "a duration is a number and a unit, repeated, largest first: `250ms`, `1d12h`, `1.5s`";
const SIZE_HELP: &str = "a size is a number and one of B KB MB GB TB KiB MiB GiB TiB: `64MiB`";

/// Reads a duration; nanoseconds, a leading `-` makes it negative.
pub fn duration(text: &str) -> Result<i64, ValueError> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !rest.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(ValueError::value(format!("`{text}` is no duration"), DURATION_HELP));
    }
    let mut total: i128 = 0;
    let mut last = i64::MAX;
    while !rest.is_empty() {
        let (number, unit, after) = number_and_unit(rest);
        if unit.is_empty() {
            return Err(ValueError::unit(format!("`{text}` has no unit"), no_unit(text)));
        }
        let Some((_, size)) = DURATIONS.iter().find(|(name, _)| *name == unit) else {
            let help = super::nearest(unit, DURATIONS.iter().map(|(name, _)| *name));
            let help = match (unit, help) {
                ("min" | "mins" | "minute" | "minutes", _) => "perhaps `m`".to_string(),
                ("sec" | "secs" | "second" | "seconds", _) => "perhaps `s`".to_string(),
                ("hour" | "hours" | "hr" | "hrs", _) => "perhaps `h`".to_string(),
                ("day" | "days", _) => "perhaps `d`".to_string(),
                ("M" | "mo" | "month" | "months" | "y" | "year" | "years", _) => {
                    "months and years have no one length: count in days".to_string()
                }
                (_, Some(unit)) => format!("perhaps `{unit}`"),
                (_, None) => "units are ns us ms s m h d w".to_string(),
            };
            return Err(ValueError::unit(format!("`{unit}` is no unit of time"), help));
        };
        if *size >= last {
            return Err(ValueError::value(
                format!("the units of `{text}` do not fall"),
                "largest first, each once: `1d12h`",
            ));
        }
        last = *size;
        total += scaled(number, i128::from(*size)).ok_or_else(|| {
            ValueError::value(format!("`{number}{unit}` is not a whole number of nanoseconds"), DURATION_HELP)
        })?;
        rest = after;
    }
    // The two greatest values and the smallest stand for "never", "the end" and "none yet".
    i64::try_from(if negative { -total } else { total })
        .ok()
        .filter(|n| n.unsigned_abs() < (1 << 62))
        .ok_or_else(|| ValueError::value(format!("`{text}` is longer than 146 years"), "write a shorter one"))
}

/// Reads a size; bytes.
pub fn size(text: &str) -> Result<u64, ValueError> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(ValueError::value(format!("`{text}` is no size"), SIZE_HELP));
    }
    let (number, unit, rest) = number_and_unit(text);
    if unit.is_empty() {
        return Err(ValueError::unit(format!("`{text}` has no unit"), no_size_unit(text)));
    }
    let found = SIZES.iter().find(|(name, _)| *name == unit).filter(|_| rest.is_empty());
    let Some((_, bytes)) = found else {
        let same = SIZES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(&format!("{}b", unit.trim_end_matches(['b', 'B']))));
        let help = same.map_or_else(|| SIZE_HELP.to_string(), |(name, _)| format!("perhaps `{number}{name}`"));
        return Err(ValueError::unit(format!("`{unit}{rest}` is no unit of size"), help));
    };
    scaled(number, i128::from(*bytes))
        .and_then(|n| u64::try_from(n).ok())
        .filter(|n| *n <= i64::MAX as u64)
        .ok_or_else(|| ValueError::value(format!("`{text}` is not a whole number of bytes below 8 EiB"), SIZE_HELP))
}

/// Reads an instant in RFC 3339; nanoseconds since 1970 UTC. What lies outside the years 1677 to 2262 counts as their
/// first or last instant.
pub fn instant(text: &str) -> Result<i64, ValueError> {
    const HELP: &str = "an instant is RFC 3339 with a zone: `2026-01-01T00:30:00Z`";
    let plain = !text.contains('[') && text.starts_with(|c: char| c.is_ascii_digit());
    let parsed = plain.then(|| text.parse::<jiff::Timestamp>().ok()).flatten();
    let timestamp = parsed.ok_or_else(|| ValueError::value(format!("`{text}` is no instant"), HELP))?;
    let nanoseconds = timestamp.as_nanosecond().clamp(i128::from(i64::MIN + 2), i128::from(i64::MAX - 2));
    Ok(i64::try_from(nanoseconds).unwrap_or_default())
}

/// An IP address of this machine, and a port.
///
/// # Errors
/// `P-VALUE`; a host name is none, since what it stands for may change.
pub fn address(text: &str) -> Result<SocketAddr, ValueError> {
    const HELP: &str = "IP address and port: `127.0.0.1:8484`; `none` switches it off";
    text.parse().map_err(|_| ValueError::value(format!("`{text}` is no address"), HELP))
}

/// The shortest way to write a duration.
pub fn print_duration(nanoseconds: i64) -> String {
    if nanoseconds == 0 {
        return "0s".to_string();
    }
    let mut out = if nanoseconds < 0 { "-".to_string() } else { String::new() };
    let mut rest = nanoseconds.unsigned_abs();
    // Days are read more easily than weeks.
    for (unit, size) in DURATIONS.into_iter().skip(1) {
        let count = rest / size as u64;
        if count > 0 {
            out.push_str(&format!("{count}{unit}"));
            rest %= size as u64;
        }
    }
    out
}

/// The shortest way to write a size.
pub fn print_size(bytes: u64) -> String {
    let fits = SIZES.iter().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
    fits.map_or_else(|| "0B".to_string(), |(unit, size)| format!("{}{unit}", bytes / size))
}

/// What to write in place of a number without unit of time.
pub fn no_unit(number: &str) -> String {
    let zero = number.bytes().all(|b| matches!(b, b'0' | b'.'));
    if zero { "zero is written `0s`".to_string() } else { format!("say which: `{number}s`, `{number}ms`, `{number}m`") }
}

/// What to write in place of a number without unit of size.
pub fn no_size_unit(number: &str) -> String {
    if number == "0" {
        "zero is written `0B`".to_string()
    } else {
        format!("say which: `{number}B`, `{number}KiB`, `{number}MiB`")
    }
}

fn number_and_unit(text: &str) -> (&str, &str, &str) {
    let number = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let unit = text[number..].find(|c: char| c.is_ascii_digit()).map_or(text.len(), |n| number + n);
    (&text[..number], text[number..unit].trim(), &text[unit..])
}

/// `number * size`, exactly; `None` if a fraction remains or it is no number.
fn scaled(number: &str, size: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || whole.is_empty() || whole.len() > 24 || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let mut total = whole.parse::<i128>().ok()?.checked_mul(size)?;
    let mut unit = size;
    for digit in fraction.trim_end_matches('0').bytes() {
        if unit % 10 != 0 {
            // Powers of 1024 allow few decimal places; go on in finer parts only while they come out whole.
            let rest = fraction.trim_end_matches('0');
            let scale = 10i128.checked_pow(u32::try_from(rest.len()).ok()?)?;
            let part = rest.parse::<i128>().ok()?.checked_mul(size)?;
            return (part % scale == 0)
                .then(|| whole.parse::<i128>().ok()?.checked_mul(size)?.checked_add(part / scale))
                .flatten();
        }
        unit /= 10;
        total = total.checked_add(i128::from(digit - b'0') * unit)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn check(text: &str, expected: Result<i64, &str>) {
        match (duration(text), expected) {
            (Ok(got), Ok(wanted)) => assert_eq!(got, wanted, "{text}"),
            (Err(error), Err(code)) => assert_eq!(error.code, code, "{text}: {error:?}"),
            (got, _) => panic!("{text}: {got:?}"),
        }
    }

    #[test]
    fn durations_are_numbers_with_units() {
        check("250ms", Ok(250_000_000));
        check("1d12h", Ok(129_600_000_000_000));
        check("1.5s", Ok(1_500_000_000));
        check("0s", Ok(0));
        check("-3m", Ok(-180_000_000_000));
        check("1w", Ok(604_800_000_000_000));
        check("1.000000001s", Ok(1_000_000_001));
    }

    #[test]
    fn durations_without_or_with_wrong_unit_are_refused() {
        check("60", Err("P-UNIT"));
        check("0", Err("P-UNIT"));
        check("5min", Err("P-UNIT"));
        check("5S", Err("P-UNIT"));
        check("5s1m", Err("P-VALUE"));
        check("1h1h", Err("P-VALUE"));
        check("soon", Err("P-VALUE"));
        check("", Err("P-VALUE"));
        check("0.5ns", Err("P-VALUE"));
        check("999999999w", Err("P-VALUE"));
    }

    #[test]
    fn sizes_have_powers_of_1000_and_1024() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("1KB"), Ok(1000));
        assert_eq!(size("1.5GiB"), Ok(3 << 29));
        assert_eq!(size("1.5KB"), Ok(1500));
        assert_eq!(size("0B"), Ok(0));
        for (text, code) in
            [("64", "P-UNIT"), ("64mb", "P-UNIT"), ("x", "P-VALUE"), ("1.5B", "P-VALUE"), ("1MiB2", "P-UNIT")]
        {
            assert_eq!(size(text).expect_err(text).code, code, "{text}");
        }
        assert_eq!(size("64mb").expect_err("mb").help, "perhaps `64MB`");
    }

    #[test]
    fn instants_are_rfc_3339() {
        assert_eq!(instant("1970-01-01T00:00:01Z"), Ok(1_000_000_000));
        assert_eq!(instant("1970-01-01T01:00:00.000000001+01:00"), Ok(1));
        assert_eq!(instant("0001-01-01T00:00:00Z"), Ok(i64::MIN + 2));
        for text in ["1970-01-01", "yesterday", "2026-01-01T00:00:00"] {
            assert!(instant(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_and_sizes_are_printed_as_people_write_them() {
        for text in ["250ms", "1d12h", "1s500ms", "0s", "-3m", "7d", "8d"] {
            assert_eq!(print_duration(duration(text).unwrap()), text);
        }
        for text in ["64MiB", "1KB", "0B", "1500B"] {
            assert_eq!(print_size(size(text).unwrap()), text);
        }
    }
}
