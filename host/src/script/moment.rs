//! Times as scripts write them (14.2).

use crate::config::diagnostic::Diagnostic;
use crate::config::node::{Node, NodeKind};
use crate::config::values;

/// Nanoseconds of a millisecond.
pub const MS: i64 = 1_000_000;

/// Where a `clock:` step goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// To this instant, ns since 1970.
    At(i64),
    /// This much further, ns.
    After(i64),
}

/// An instant, ns since 1970: a number is milliseconds, `90s` a duration since 1970, `01:10:00` a time on 1970-01-01,
/// else RFC 3339. Errors: P-VALUE.
pub fn instant(node: &Node) -> Result<i64, Diagnostic> {
    let found = match &*node.kind {
        NodeKind::Number(text) => decimal(text, MS),
        NodeKind::Text { text, .. } => {
            values::duration(text).ok().or_else(|| time_of_day(text)).or_else(|| values::instant(text).ok())
        }
        _ => None,
    };
    found.ok_or_else(|| {
        Diagnostic::error("P-VALUE", node.span, "this is no time")
            .help("a number of milliseconds since 1970, a duration such as 90s, 01:10:00, or RFC 3339")
    })
}

/// An instant, or `+15m`. Errors: P-VALUE.
pub fn moment(node: &Node) -> Result<Moment, Diagnostic> {
    if let Some(text) = node.as_text().filter(|text| text.starts_with('+'))
        && let Ok(length) = values::duration(text)
    {
        return Ok(Moment::After(length));
    }
    instant(node).map(Moment::At)
}

/// `1.5` of a unit, exact to the nanosecond; what is finer is cut off.
fn decimal(text: &str, unit: i64) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut sum = i128::from(whole.parse::<i64>().ok()?) * i128::from(unit);
    let mut place = i128::from(unit);
    for digit in fraction.bytes() {
        place /= 10;
        sum += i128::from(digit - b'0') * place;
    }
    i64::try_from(if negative { -sum } else { sum }).ok()
}

/// `01:10:00` or `01:10:00.250` on 1970-01-01, ns.
fn time_of_day(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let two = |part: &str, below: i64| {
        let value: i64 = part.parse().ok()?;
        (part.len() == 2 && value < below).then_some(value)
    };
    if parts.next().is_some() || seconds.split('.').next()?.len() != 2 {
        return None;
    }
    let seconds = decimal(seconds, 1_000 * MS).filter(|&s| (0..60_000 * MS).contains(&s))?;
    Some((two(hours, 24)? * 3_600_000 + two(minutes, 60)? * 60_000) * MS + seconds)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn node(text: &str) -> Node {
        crate::config::yaml::parse(text, None, &|_| None).unwrap().0
    }

    fn check(text: &str, ms: Option<f64>) {
        let got = instant(&node(text)).ok();
        assert_eq!(got, ms.map(|ms| (ms * 1e6) as i64), "{text}");
    }

    #[test]
    fn times_have_four_spellings() {
        check("1000", Some(1000.0));
        check("-7001", Some(-7001.0));
        check("0.5", Some(0.5));
        check("90s", Some(90_000.0));
        check("-3m", Some(-180_000.0));
        check("1d12h", Some(129_600_000.0));
        check("01:10:00", Some(4_200_000.0));
        check("01:10:00.250", Some(4_200_250.0));
        check("1970-01-02T00:00:01Z", Some(86_401_000.0));
        check("1970-01-01T02:00:00+02:00", Some(0.0));
        check("25:00:00", None);
        check("1:10:00", None);
        check("soon", None);
        check("5x", None);
    }

    #[test]
    fn a_clock_can_be_advanced() {
        assert_eq!(moment(&node("+15m")).unwrap(), Moment::After(900_000 * MS));
        assert_eq!(moment(&node("15m")).unwrap(), Moment::At(900_000 * MS));
    }
}
