//! Hopping windows: one begins every slide, and a record belongs to each that covers it (2.3).

use crate::tumbling::{clamp, start};

/// Ends of the windows that cover a time, ascending, ns.
pub fn ends(time: i64, size: i64, every: i64, offset: i64, into: &mut Vec<i64>) {
    let (size, every, offset) = (i128::from(size), i128::from(every), i128::from(offset));
    let last = start(time, every, offset) + size;
    let covering = (last - i128::from(time) - 1).div_euclid(every);
    let begun = into.len();
    for back in (0..=covering).rev() {
        let end = clamp(last - back * every);
        if into[begun..].last() != Some(&end) {
            into.push(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ends;

    fn check(time: i64, size: i64, every: i64, offset: i64, wanted: &[i64]) {
        let mut found = Vec::new();
        ends(time, size, every, offset, &mut found);
        assert_eq!(found, wanted, "{time} {size} {every} {offset}");
    }

    #[test]
    fn a_time_is_in_every_window_that_covers_it() {
        check(7, 10, 5, 0, &[10, 15]);
        check(5, 10, 5, 0, &[10, 15]);
        check(4, 10, 5, 0, &[5, 10]);
        check(-1, 10, 5, 0, &[0, 5]);
        check(7, 10, 5, 3, &[8, 13]);
        check(0, 10, 10, 0, &[10]);
        // A slide that does not divide the size: now two windows, now one.
        check(0, 10, 7, 0, &[3, 10]);
        check(5, 10, 7, 0, &[10]);
        check(7, 10, 7, 0, &[10, 17]);
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        check(i64::MAX - 1, 10, 5, 0, &[i64::MAX - 1]);
    }
}
