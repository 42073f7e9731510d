//! A record that ends the process itself, with every guest's fault caught and every limit kept, would end it for ever.
//! So each start at the same position is counted in the state directory; after three of them records go one by one and
//! are written down before they are worked on; one that was the last three times is sent aside as failed.

use std::cell::RefCell;
use std::collections::HashSet;
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
    /// Starts of processes there, in a row.
    starts: u32,
    /// The record with which processes ended; below the position: none.
    suspect: i64,
    /// How many of them did so, in a row.
    ends: u32,
    /// The record that this process works on, alone; -1: none.
    now: i64,
}

/// The directory where it is remembered.
#[derive(Debug)]
pub struct Attempts {
    dir: PathBuf,
    /// Partitions that this process has begun: what it begins again, after a commit that failed, is no other start.
    begun: RefCell<HashSet<Place>>,
}

impl Attempt {
    fn new(offset: i64) -> Attempt {
        Attempt { offset, starts: 1, suspect: -1, ends: 0, now: -1 }
    }

    /// The next beginning, at this position. `process`: of another process, the last one having ended with `now`.
    fn begin(self, offset: i64, process: bool) -> Attempt {
        let blamed = match self.now {
            now if !process || now < 0 => self,
            now if now == self.suspect => Attempt { ends: self.ends.saturating_add(1), now: -1, ..self },
            now => Attempt { suspect: now, ends: 1, now: -1, ..self },
        };
        if self.offset != offset && blamed.suspect < offset {
            return Attempt::new(offset);
        }
        let starts = self.starts.saturating_add(u32::from(process));
        match blamed.suspect < offset {
            true => Attempt { starts, ..Attempt::new(offset) },
            false => Attempt { offset, starts, ..blamed },
        }
    }

    /// Whether this record goes alone.
    pub fn is_careful(&self, offset: i64) -> bool {
        self.starts > PATIENCE && offset <= self.suspect.max(self.offset.saturating_add(SPAN))
    }

    /// Whether a record is suspected although those from here on go together.
    pub fn is_over(&self, offset: i64) -> bool {
        self.suspect.max(self.now) >= 0 && !self.is_careful(offset)
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
        format!("{} {} {} {} {}", self.offset, self.starts, self.suspect, self.ends, self.now)
    }

    fn parse(text: &str) -> Option<Attempt> {
        let mut numbers = text.split(' ').map(|n| n.trim().parse::<i64>().ok());
        let mut next = || numbers.next().flatten();
        let count = |n: i64| u32::try_from(n).ok();
        let (offset, starts, suspect, ends) = (next()?, count(next()?)?, next()?, count(next()?)?);
        Some(Attempt { offset, starts, suspect, ends, now: next()? })
    }
}

impl Attempts {
    /// Those of one process.
    pub fn below(dir: &Path) -> Attempts {
        Attempts { dir: dir.join("attempts"), begun: RefCell::default() }
    }

    fn file(&self, (topic, partition): &Place) -> PathBuf {
        self.dir.join(format!("{topic}-{partition}"))
    }

    /// A partition begins at a position. `last`: what this process knew of it before it began anew.
    pub fn begin(&self, place: &Place, offset: i64, last: Option<Attempt>) -> Attempt {
        let process = self.begun.borrow_mut().insert(place.clone());
        let read = || std::fs::read_to_string(self.file(place)).ok().and_then(|text| Attempt::parse(&text));
        let last = last.filter(|_| !process).or_else(read);
        let attempt = last.map_or(Attempt::new(offset), |last| last.begin(offset, process));
        self.write(place, &attempt);
        attempt
    }

    /// A record is worked on, one by one.
    pub fn suspect(&self, place: &Place, attempt: &mut Attempt, offset: i64) {
        if attempt.now != offset {
            attempt.now = offset;
            self.write(place, attempt);
        }
    }

    /// Records go together again: none of them is suspected.
    pub fn acquit(&self, place: &Place, attempt: &mut Attempt) {
        *attempt = Attempt { suspect: -1, ends: 0, now: -1, ..*attempt };
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

    /// Processes that began at these positions, in order, each of which ended with a record worked on alone, if any; as
    /// the next one begins at a position.
    fn after(ended: &[(i64, Option<i64>)], next: i64) -> Attempt {
        let mut last: Option<Attempt> = None;
        for &(offset, worked) in ended {
            let attempt = last.map_or(Attempt::new(offset), |last| last.begin(offset, true));
            // Before it come those between.
            let attempt = Attempt { now: worked.unwrap_or(-1), ..attempt };
            last = Attempt::parse(&attempt.text());
        }
        last.unwrap().begin(next, true)
    }

    const NONE: (i64, Option<i64>) = (7, None);
    const AT: (i64, Option<i64>) = (7, Some(9));

    #[test]
    fn three_ends_at_one_position_make_the_fourth_start_careful() {
        assert!(!after(&[NONE, NONE], 7).is_careful(7));
        assert!(after(&[NONE, NONE, NONE], 7).is_careful(7));
        assert!(!after(&[NONE, NONE, NONE], 8).is_careful(8), "it went on");
    }

    #[test]
    fn a_record_that_was_the_last_three_times_is_poison() {
        assert!(!after(&[NONE, NONE, NONE, AT, AT], 7).is_poison(9));
        let attempt = after(&[NONE, NONE, NONE, AT, AT, AT], 8);
        assert!(attempt.is_poison(9) && !attempt.is_poison(8) && attempt.is_careful(8));
        assert!(!attempt.is_careful(8 + SPAN + 1), "far behind it all is well");
        assert!(attempt.is_over(8 + SPAN + 1) && !attempt.is_over(9));
        assert!(!attempt.begin(10, true).is_careful(10), "it was dealt with");
    }

    #[test]
    fn another_record_in_between_is_no_proof() {
        let other = (7, Some(10));
        assert!(after(&[NONE, NONE, NONE, AT, AT, AT], 7).is_poison(9));
        assert!(!after(&[NONE, NONE, NONE, AT, other, AT, AT], 7).is_poison(9));
    }

    #[test]
    fn a_process_that_ends_before_it_comes_to_the_suspect_says_nothing_of_it() {
        assert!(!after(&[NONE, NONE, NONE, AT, NONE, NONE, NONE, AT], 7).is_poison(9));
        assert!(after(&[NONE, NONE, NONE, AT, NONE, NONE, NONE, AT, AT], 7).is_poison(9));
    }

    #[test]
    fn commits_that_fail_are_no_ends_of_the_process() {
        let mut attempt = after(&[NONE, NONE, NONE], 7);
        for _ in 0..10 {
            attempt = Attempt { now: 9, ..attempt }.begin(7, false);
        }
        assert!(!attempt.is_poison(9) && attempt.ends == 0);
        let mut fresh = Attempt::new(7);
        for _ in 0..10 {
            fresh = fresh.begin(7, false);
        }
        assert!(!fresh.is_careful(7));
    }
}
