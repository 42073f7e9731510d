//! Cumulative windows: they begin together, and each is a step longer than the one before (2.4).

use crate::tumbling::{clamp, start};

/// Ends of the steps that cover a time, ascending, ns.
pub fn ends(time: i64, size: i64, step: i64, offset: i64, into: &mut Vec<i64>) {
    let (size, step, offset) = (i128::from(size), i128::from(step), i128::from(offset));
    let start = start(time, size, offset);
    let first = (i128::from(time) - start).div_euclid(step) + 1;
    let begun = into.len();
    for steps in first..=size / step {
        let end = clamp(start + steps * step);
        if into[begun..].last() != Some(&end) {
            into.push(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ends;

    fn check(time: i64, size: i64, step: i64, offset: i64, wanted: &[i64]) {
        let mut found = Vec::new();
        ends(time, size, step, offset, &mut found);
        assert_eq!(found, wanted, "{time} {size} {step} {offset}");
    }

    #[test]
    fn a_time_is_in_every_step_that_covers_it() {
        check(0, 15, 5, 0, &[5, 10, 15]);
        check(5, 15, 5, 0, &[10, 15]);
        check(14, 15, 5, 0, &[15]);
        check(15, 15, 5, 0, &[20, 25, 30]);
        check(-1, 15, 5, 0, &[0]);
        check(3, 15, 5, 4, &[4]);
    }
}
