//! Every wake of a stage, as they fire. Most are set in the order in which they fire, since time goes on: they stand in
//! a row, where one more costs next to nothing. The others are in a tree.

use std::collections::{BTreeMap, VecDeque};

use super::entry::Wake;
use crate::time::Stamp;

/// Space and number of an entry.
type Place = (i64, u32);

/// Taken away in the row before it is looked whether they are too many.
const FEW: usize = 1024;

/// The wakes.
#[derive(Debug, Default)]
pub struct Wakes {
    /// Each behind the one before; without a place: taken away. The first has one.
    row: VecDeque<(Wake, Option<Place>)>,
    tree: BTreeMap<Wake, Place>,
    /// Those of the row that were taken away.
    gone: usize,
}

impl Wakes {
    /// Adds a wake.
    pub fn insert(&mut self, wake: Wake, place: Place) {
        if self.row.back().is_none_or(|(last, _)| *last < wake) {
            self.row.push_back((wake, Some(place)));
        } else {
            self.tree.insert(wake, place);
        }
    }

    /// Takes a wake away.
    pub fn remove(&mut self, wake: &Wake) {
        if self.tree.remove(wake).is_some() {
            return;
        }
        let Ok(at) = self.row.binary_search_by(|(other, _)| other.cmp(wake)) else { return };
        if self.row[at].1.take().is_some() {
            self.gone += 1;
            self.tidy();
        }
    }

    /// The first one, and whose it is.
    pub fn first(&self) -> Option<(&Wake, Place)> {
        let row = self.row.front().and_then(|(wake, place)| Some((wake, (*place)?)));
        let tree = self.tree.first_key_value().map(|(wake, place)| (wake, *place));
        match (row, tree) {
            (Some(row), Some(tree)) => Some(if row.0 < tree.0 { row } else { tree }),
            (row, tree) => row.or(tree),
        }
    }

    /// Takes the first one out, if it is not beyond `upto`.
    pub fn pop(&mut self, upto: Stamp) -> Option<(Wake, Place)> {
        let (first, place) = self.first()?;
        if first.at > upto {
            return None;
        }
        let is_of_row = self.row.front().is_some_and(|(wake, _)| std::ptr::eq(wake, first));
        if !is_of_row {
            return self.tree.pop_first();
        }
        let (wake, _) = self.row.pop_front()?;
        self.tidy();
        Some((wake, place))
    }

    /// The first ones up to and with `upto`, at most `limit`.
    pub fn stamps(&self, upto: Stamp, limit: usize) -> Vec<Stamp> {
        let mut row = self.row.iter().filter(|(_, place)| place.is_some()).map(|(wake, _)| wake).peekable();
        let mut tree = self.tree.keys().peekable();
        let next = || match (row.peek(), tree.peek()) {
            (Some(first), Some(other)) if first < other => row.next(),
            (Some(_), None) => row.next(),
            _ => tree.next(),
        };
        std::iter::from_fn(next).map(|wake| wake.at).take_while(|at| *at <= upto).take(limit).collect()
    }

    /// The first of the row has a place, most of the others, too; and memory that is not used is returned.
    fn tidy(&mut self) {
        while self.row.front().is_some_and(|(_, place)| place.is_none()) {
            self.row.pop_front();
            self.gone -= 1;
        }
        if self.gone > FEW && 2 * self.gone > self.row.len() {
            self.row.retain(|(_, place)| place.is_some());
            self.gone = 0;
        }
        if self.row.capacity() > 8 * self.row.len().max(FEW) {
            self.row.shrink_to(2 * self.row.len());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::keyed_tests::Dice;
    use super::*;

    /// Wakes that mostly come in order, are taken away or fire, and come back: as in one sorted list.
    fn check(seed: u64, disorder: u64) {
        let mut dice = Dice::new(seed);
        let (mut wakes, mut plain) = (Wakes::default(), BTreeMap::new());
        let (mut time, mut most, mut lost) = (0i64, 0, Vec::new());
        for set in 0..20_000u64 {
            time += dice.below(3) as i64;
            let late = if dice.below(10) < disorder { dice.below(500) as i64 } else { 0 };
            let at = Stamp { time: time + 300 - late, input: dice.below(2) as u16 };
            let wake = Wake::new(at, &[dice.below(3) as u8], set);
            wakes.insert(wake.clone(), (0, set as u32));
            plain.insert(wake, (0, set as u32));
            for _ in 0..dice.below(3) {
                let Some((gone, place)) = plain.iter().nth(dice.below(40) as usize).map(|(w, p)| (w.clone(), *p))
                else {
                    break;
                };
                wakes.remove(&gone);
                plain.remove(&gone);
                lost.push((gone, place));
            }
            if dice.below(5) == 0
                && let Some((wake, place)) = lost.pop()
            {
                wakes.insert(wake.clone(), place);
                plain.insert(wake, place);
            }
            let upto = Stamp { time: time - dice.below(50) as i64, input: 0 };
            let first: Vec<Stamp> = plain.keys().map(|wake| wake.at).take_while(|at| *at <= upto).take(7).collect();
            assert_eq!(wakes.stamps(upto, 7), first, "seed {seed}, {set}");
            while plain.first_key_value().is_some_and(|(wake, _)| wake.at <= upto) {
                assert_eq!(wakes.pop(upto), plain.pop_first(), "seed {seed}, {set}");
            }
            assert_eq!(wakes.pop(upto), None);
            assert_eq!(wakes.first(), plain.iter().next().map(|(wake, place)| (wake, *place)), "seed {seed}, {set}");
            most = most.max(wakes.row.len());
        }
        assert!(most > 50, "the row was used");
        assert!(disorder == 0 || most < 4 * FEW, "what was taken away goes: {most}");
    }

    #[test]
    fn wakes_fire_in_order_in_whatever_order_they_are_set() {
        for (seed, disorder) in [(1, 0), (2, 1), (3, 5), (4, 9)] {
            check(seed, disorder);
        }
    }

    #[test]
    fn a_wake_that_is_put_off_again_and_again_takes_no_memory() {
        let mut wakes = Wakes::default();
        for set in 0..100_000 {
            let at = |set: u64| Wake::new(Stamp { time: set as i64, input: 0 }, &[], set);
            wakes.insert(at(set), (0, 0));
            if set > 0 {
                wakes.remove(&at(set - 1));
            }
        }
        assert_eq!((wakes.row.len(), wakes.tree.len()), (1, 0));
        for set in 0..100_000 {
            wakes.insert(Wake::new(Stamp { time: 1_000_000 + set as i64, input: 0 }, &[], set), (0, 0));
        }
        for set in 1..100_000 {
            wakes.remove(&Wake::new(Stamp { time: 1_000_000 + set as i64, input: 0 }, &[], set));
        }
        assert!(wakes.row.len() <= 2 * FEW + 2 && wakes.row.capacity() < 20_000, "{}", wakes.row.len());
    }
}
