//! What counts against the bounds of a stage's state (X8), and which of it is the oldest.
//!
//! What is over does not count. It is not looked for: what is in the state is summed by expiry, and a clock that goes
//! on, or back for a row of an earlier time, moves the sum of what is over.

use std::collections::BTreeMap;

use super::{Overflow, Settings};
use crate::time::NONE_YET;

/// Number and bytes of entries and marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Entries and marks.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What one mark or entry counts for.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Its space.
    pub space: i64,
    /// Hash of its key.
    pub key: u128,
    /// A mark, not an entry.
    pub is_mark: bool,
    /// Until when it counts, ns.
    pub until: i64,
    /// Its bytes.
    pub bytes: u64,
    /// Number of its creation.
    pub born: u64,
    /// It waits for its wake and is not evicted.
    pub waits: bool,
}

/// Something to evict.
#[derive(Clone, Copy, Debug)]
pub struct Oldest {
    /// Its space.
    pub space: i64,
    /// Hash of its key.
    pub key: u128,
    /// A mark, not an entry.
    pub is_mark: bool,
    /// Until when it counts, ns.
    pub until: i64,
}

/// The ledger; it costs nothing where there is no bound.
#[derive(Debug, Default)]
pub struct Quota {
    max_entries: Option<u64>,
    max_bytes: Option<u64>,
    evicts: bool,
    all: Sum,
    over: Sum,
    clock: i64,
    by_expiry: BTreeMap<i64, Sum>,
    by_birth: BTreeMap<u64, Oldest>,
}

impl Quota {
    /// Nothing in it yet.
    pub fn new(settings: &Settings) -> Quota {
        let evicts = settings.overflow == Overflow::EvictOldest
            && (settings.max_entries.is_some() || settings.max_bytes.is_some());
        Quota {
            max_entries: settings.max_entries,
            max_bytes: settings.max_bytes,
            evicts,
            clock: NONE_YET,
            ..Quota::default()
        }
    }

    /// There is a bound.
    pub fn is_bound(&self) -> bool {
        self.max_entries.is_some() || self.max_bytes.is_some()
    }

    /// Creations are numbered.
    pub fn evicts(&self) -> bool {
        self.evicts
    }

    /// Counts something in.
    #[inline]
    pub fn add(&mut self, item: &Item) {
        if self.is_bound() {
            self.add_bound(item);
        }
    }

    fn add_bound(&mut self, item: &Item) {
        self.all.count += 1;
        self.all.bytes += item.bytes;
        let sum = self.by_expiry.entry(item.until).or_default();
        sum.count += 1;
        sum.bytes += item.bytes;
        if item.until <= self.clock {
            self.over.count += 1;
            self.over.bytes += item.bytes;
        }
        if self.evicts && !item.waits {
            let Item { space, key, is_mark, until, .. } = *item;
            self.by_birth.insert(item.born, Oldest { space, key, is_mark, until });
        }
    }

    /// Counts something out.
    #[inline]
    pub fn sub(&mut self, item: &Item) {
        if self.is_bound() {
            self.sub_bound(item);
        }
    }

    fn sub_bound(&mut self, item: &Item) {
        self.all.count -= 1;
        self.all.bytes -= item.bytes;
        if let Some(sum) = self.by_expiry.get_mut(&item.until) {
            sum.count -= 1;
            sum.bytes -= item.bytes;
            if sum.count == 0 {
                self.by_expiry.remove(&item.until);
            }
        }
        if item.until <= self.clock {
            self.over.count -= 1;
            self.over.bytes -= item.bytes;
        }
        if self.evicts && !item.waits {
            self.by_birth.remove(&item.born);
        }
    }

    /// What counts at this point of the clock that expiry is compared with.
    pub fn live(&mut self, clock: i64) -> Sum {
        let between = |from: i64, to: i64| {
            let mut sum = Sum::default();
            for (_, part) in self.by_expiry.range((std::ops::Bound::Excluded(from), std::ops::Bound::Included(to))) {
                sum.count += part.count;
                sum.bytes += part.bytes;
            }
            sum
        };
        if clock > self.clock {
            let sum = between(self.clock, clock);
            self.over.count += sum.count;
            self.over.bytes += sum.bytes;
        } else if clock < self.clock {
            let sum = between(clock, self.clock);
            self.over.count -= sum.count;
            self.over.bytes -= sum.bytes;
        }
        self.clock = clock;
        Sum { count: self.all.count - self.over.count, bytes: self.all.bytes - self.over.bytes }
    }

    /// `live` and this much more keep to the bounds.
    pub fn fits(&self, live: Sum, more: Sum) -> bool {
        self.max_entries.is_none_or(|max| live.count + more.count <= max)
            && self.max_bytes.is_none_or(|max| live.bytes + more.bytes <= max)
    }

    /// The oldest by creation that counts at this point and does not wait.
    pub fn oldest(&self, clock: i64) -> Option<Oldest> {
        self.by_birth.values().find(|oldest| oldest.until > clock).copied()
    }
}
