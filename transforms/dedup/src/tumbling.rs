//! Tumbling windows: one after the other (2.2).

use tamis_guest::Window;

/// The window of a time, ns; floor arithmetic, also before 1970 (T3).
pub fn window(time: i64, size: i64, offset: i64) -> Window {
    let (size, offset) = (i128::from(size), i128::from(offset));
    let start = start(time, size, offset);
    Window { start: clamp(start), end: clamp(start + size) }
}

/// The greatest multiple of the size, shifted by the offset, that is not after a time.
pub fn start(time: i64, size: i128, offset: i128) -> i128 {
    (i128::from(time) - offset).div_euclid(size) * size + offset
}

/// What a time beyond the ends of time becomes: neither "none yet" nor "never".
pub fn clamp(time: i128) -> i64 {
    time.clamp(i128::from(i64::MIN) + 1, i128::from(i64::MAX) - 1) as i64
}

#[cfg(test)]
mod tests {
    use super::window;

    fn check(time: i64, size: i64, offset: i64, start: i64) {
        let found = window(time, size, offset);
        assert_eq!((found.start, found.end), (start, start + size), "{time} {size} {offset}");
    }

    #[test]
    fn windows_start_at_or_before_their_records() {
        check(0, 7, 0, 0);
        check(-1, 7, 0, -7);
        check(-7, 7, 0, -7);
        check(-8, 7, 0, -14);
        check(6_999, 10_000, 7_000, -3_000);
        check(7_000, 10_000, 7_000, 7_000);
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        assert!(window(i64::MAX, 1000, 3).start < i64::MAX);
        assert!(window(i64::MIN, 1000, 3).end > i64::MIN);
    }
}
