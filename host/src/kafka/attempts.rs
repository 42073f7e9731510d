//! A record that ends the process itself, with every guest's fault caught and every limit kept, would end it for ever.
//! So each start at the same position is counted in the state directory; after three of them records go one by one and
//! are written down before they are worked on; one that was the last three times is sent aside as failed.

use std::path::{Path, PathBuf};

use super::group::Place;
use crate::files::source::Broken;

/// Starts at one position before records go one by one, and ends at one record before it is sent aside.
const PATIENCE: u32 = 3;
/// So far from the position records go one by one: more than a run works on between two commits.
const SPAN: i64 = 10_000;

/// What is remembered of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Position at the last start.
    offset: i64,
    /// Starts there, in a row.
    starts: u32,
    /// The record that was worked on last, one by one; below the position: none.
    suspect: i64,
    /// How often a run ended with it.
    ends: u32,
}

/// The directory where it is remembered.
#[derive(Clone, Debug)]
pub struct Attempts {
    dir: PathBuf,
}

impl Attempt {
    /// The next start, at this position.
    fn start(self, offset: i64) -> Attempt {
        let again = self.offset == offset || self.suspect >= offset;
        let starts = if again { self.starts.saturating_add(1) } else { 1 };
        let ends = if self.suspect >= offset { self.ends.saturating_add(1) } else { 0 };
        let suspect = if self.suspect >= offset { self.suspect } else { -1 };
        Attempt { offset, starts, suspect, ends }
    }

    /// Whether this record goes alone.
    pub fn is_careful(&self, offset: i64) -> bool {
        self.starts > PATIENCE && offset <= self.suspect.max(self.offset.saturating_add(SPAN))
    }

    /// Whether a record is suspected although those from here on go together.
    pub fn is_over(&self, offset: i64) -> bool {
        self.suspect >= 0 && !self.is_careful(offset)
    }

    /// Whether this record has ended the process often enough.
    pub fn is_poison(&self, offset: i64) -> bool {
        self.ends >= PATIENCE && offset == self.suspect
    }

    /// Why such a record is sent aside.
    pub fn broken(&self) -> Broken {
        let text = format!("the process ended {} times while it worked on this record", self.ends);
        Broken { code: "poison", text }
    }

    fn text(&self) -> String {
        format!("{} {} {} {}", self.offset, self.starts, self.suspect, self.ends)
    }

    fn parse(text: &str) -> Option<Attempt> {
        let mut numbers = text.split(' ').map(|n| n.trim().parse::<i64>().ok());
        let mut next = || numbers.next().flatten();
        let count = |n: i64| u32::try_from(n).ok();
        Some(Attempt { offset: next()?, starts: count(next()?)?, suspect: next()?, ends: count(next()?)? })
    }
}

impl Attempts {
    /// Those of one process.
    pub fn below(dir: &Path) -> Attempts {
        Attempts { dir: dir.join("attempts") }
    }

    fn file(&self, (topic, partition): &Place) -> PathBuf {
        self.dir.join(format!("{topic}-{partition}"))
    }

    /// A partition begins at a position.
    pub fn begin(&self, place: &Place, offset: i64) -> Attempt {
        let last = std::fs::read_to_string(self.file(place)).ok().and_then(|text| Attempt::parse(&text));
        let attempt = last.map_or(Attempt { offset, starts: 1, suspect: -1, ends: 0 }, |last| last.start(offset));
        self.write(place, &attempt);
        attempt
    }

    /// A record is worked on, one by one.
    pub fn suspect(&self, place: &Place, attempt: &mut Attempt, offset: i64) {
        if attempt.suspect != offset {
            (attempt.suspect, attempt.ends) = (offset, 0);
            self.write(place, attempt);
        }
    }

    /// Records go together again: none of them is suspected.
    pub fn acquit(&self, place: &Place, attempt: &mut Attempt) {
        (attempt.suspect, attempt.ends) = (-1, 0);
        self.write(place, attempt);
    }

    /// A run ended as it should.
    pub fn forget(&self, place: &Place) {
        // What cannot be removed counts one start too many.
        let _ = std::fs::remove_file(self.file(place));
    }

    fn write(&self, place: &Place, attempt: &Attempt) {
        // Without it a poisonous record ends the process once more: no reason to stop here.
        let _ = std::fs::create_dir_all(&self.dir);
        let _ = std::fs::write(self.file(place), attempt.text());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    /// Starts at these positions, in order, each of which ended with a record worked on alone, if any.
    fn after(starts: &[(i64, Option<i64>)]) -> Attempt {
        let mut last: Option<Attempt> = None;
        for &(offset, worked) in starts {
            let mut attempt =
                last.map_or(Attempt { offset, starts: 1, suspect: -1, ends: 0 }, |last| last.start(offset));
            if let Some(worked) = worked.filter(|&w| attempt.suspect != w) {
                (attempt.suspect, attempt.ends) = (worked, 0);
            }
            last = Attempt::parse(&attempt.text());
        }
        last.unwrap()
    }

    #[test]
    fn three_ends_at_one_position_make_the_fourth_start_careful() {
        let none = (7, None);
        assert!(!after(&[none, none, none]).is_careful(7));
        assert!(after(&[none, none, none, none]).is_careful(7));
        assert!(!after(&[none, none, none, (8, None)]).is_careful(8), "it went on");
    }

    #[test]
    fn a_record_that_was_the_last_three_times_is_poison() {
        let none = (7, None);
        let at = (7, Some(9));
        let attempt = after(&[none, none, none, at, at, at]);
        assert!(!attempt.is_poison(9));
        let attempt = attempt.start(8);
        assert!(attempt.is_poison(9) && !attempt.is_poison(8) && attempt.is_careful(8));
        assert!(!attempt.is_careful(8 + SPAN + 1), "far behind it all is well");
        assert!(attempt.is_over(8 + SPAN + 1) && !attempt.is_over(9));
        assert!(!attempt.start(10).is_careful(10), "it was dealt with");
    }

    #[test]
    fn another_record_in_between_is_no_proof() {
        let none = (7, None);
        let attempt = after(&[none, none, none, (7, Some(9)), (7, Some(10)), (7, Some(9)), (7, Some(9))]);
        assert!(!attempt.start(7).is_poison(9));
    }
}
