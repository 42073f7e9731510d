//! The entries of one call while it runs: what stood in them, what the guest wrote, which wakes are set.

use crate::cells::{Column, kind};
use crate::keyed::{Dues, Entries, ExpiresBy};
use crate::row::{NEVER, NONE_YET, Stamp};

/// No number: of a wake, of a kept image.
pub(super) const NONE: u32 = u32::MAX;

/// One entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) space: i64,
    pub(super) expires: i64,
    pub(super) value: Value,
    /// The wake that is set, by its number; of a due one until it has fired.
    pub(super) wake: u32,
    /// The image written last in this call; a chain through [`Kept::before`].
    pub(super) kept: u32,
    /// Was there an entry when the call began?
    pub(super) stood: bool,
    /// Did the host hand it out as due? Then the host's wake is spent.
    pub(super) due: bool,
    /// Was it removed in this call, whatever came after?
    pub(super) removed: bool,
    /// Was value or expiry written since?
    pub(super) put: bool,
    /// Was a wake set or cancelled in this call?
    pub(super) woken: bool,
    /// Its place among those made in this call, from 1; 0: it was there before. The host evicts by creation (X8).
    pub(super) made: u32,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    /// There is no entry.
    None,
    /// In the values that came with the dues.
    Due(u32),
    /// In the values that `open` gave.
    Opened(u32),
    /// Written in this call: offset and length in the arena.
    Written(u32, u32),
}

/// An image or mark written, or let go, in this call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) n: u8,
    pub(super) what: Image,
    /// The one written before it in the same entry.
    pub(super) before: u32,
}

/// What stands at a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Image {
    /// The image of a row of the call.
    Row(u32),
    /// The position of a row of the call.
    Mark(u32),
    /// Nothing any more.
    Gone,
}

/// A wake, by number: first the dues, then those set in the call, in the order of setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    pub(super) at: Stamp,
    pub(super) slot: u32,
    rank: (u32, u32),
}

/// The entries of one call. All lists are kept from call to call: in steady state nothing is allocated per row.
#[derive(Debug, Default)]
pub struct Table {
    pub(super) entries: Vec<Entry>,
    pub(super) wakes: Vec<Wake>,
    pub(super) kept: Vec<Kept>,
    due_values: Column,
    opened_values: Column,
    arena: Vec<u8>,
    ranks: Vec<u8>,
    /// Wakes set in this call and not beyond its end: a binary heap of numbers.
    heap: Vec<u32>,
    /// Number of the next due that has not fired.
    next_due: u32,
    dues: u32,
    rows: u32,
    /// Entries made in this call.
    made: u32,
    now: i64,
    end: Stamp,
    /// What the row being judged lost to.
    pub(crate) winner: Option<(u32, u8)>,
}

impl Table {
    /// Empties the table for the next call, keeping its memory.
    pub(super) fn begin(&mut self, rows: u32, now: i64, end: Stamp) {
        self.entries.clear();
        self.wakes.clear();
        self.kept.clear();
        self.arena.clear();
        self.ranks.clear();
        self.heap.clear();
        (self.next_due, self.dues, self.made) = (0, 0, 0);
        (self.rows, self.now, self.end) = (rows, now, end);
        self.winner = None;
    }

    /// Takes the dues in: the first slots, and the first wakes, which are in order already.
    pub(super) fn take_dues(&mut self, dues: Dues) {
        let Dues { entries, spaces, wakes, ranks } = dues;
        self.dues = spaces.len() as u32;
        for (i, &space) in spaces.iter().enumerate() {
            let stood = entries.values.cell(i).kind != kind::MISSING;
            let value = if stood { Value::Due(i as u32) } else { Value::None };
            let expires = entries.expires.get(i).copied().unwrap_or(NEVER);
            let input = wakes.inputs.get(i).copied().unwrap_or(0);
            let at = Stamp { time: wakes.times.get(i).copied().unwrap_or(NEVER), input };
            let from = self.ranks.len() as u32;
            self.ranks.extend_from_slice(ranks.cell(i).bytes);
            self.wakes.push(Wake { at, slot: i as u32, rank: (from, self.ranks.len() as u32) });
            self.entries.push(Entry { space, expires, value, wake: i as u32, due: true, stood, ..Entry::EMPTY });
        }
        self.due_values = entries.values;
    }

    /// Takes the entries in that `open` handed out first, which are the slots from here on; the spaces stand beside the
    /// pairs, one for all or one each.
    pub(super) fn take_opened(&mut self, slots: &[u32], spaces: &[i64], entries: Entries) {
        let first = self.entries.len();
        for (pair, &slot) in slots.iter().enumerate() {
            if slot as usize != self.entries.len() {
                continue;
            }
            let i = slot as usize - first;
            let stood = entries.values.cell(i).kind != kind::MISSING;
            let value = if stood { Value::Opened(i as u32) } else { Value::None };
            let expires = entries.expires.get(i).copied().unwrap_or(NEVER);
            let space = if spaces.len() == 1 { spaces[0] } else { spaces[pair] };
            self.entries.push(Entry { space, expires, value, stood, ..Entry::EMPTY });
        }
        self.opened_values = entries.values;
    }

    /// Removes an entry that is over for a row.
    #[inline]
    pub(super) fn expire(&mut self, slot: u32, by: ExpiresBy, time: Stamp, seen: Stamp) {
        let entry = &self.entries[slot as usize];
        if matches!(entry.value, Value::None) || entry.expires == NEVER {
            return;
        }
        let reached = match by {
            ExpiresBy::Time => time.time.max(seen.time),
            ExpiresBy::Seen => seen.time,
            ExpiresBy::Now => self.now,
        };
        if entry.expires <= reached {
            self.remove(slot);
        }
    }

    /// The next wake at or before a stamp, taken off: its stamp and slot.
    pub(super) fn next_wake(&mut self, upto: Stamp) -> Option<(Stamp, u32)> {
        loop {
            let due = (self.next_due < self.dues).then_some(self.next_due);
            let number = match (due, self.heap.first().copied()) {
                (Some(due), Some(set)) if self.before(set, due) => set,
                (Some(due), _) => due,
                (None, Some(set)) => set,
                (None, None) => return None,
            };
            let wake = self.wakes[number as usize];
            let is_set = self.entries[wake.slot as usize].wake == number;
            if is_set && wake.at > upto {
                return None;
            }
            if number < self.dues {
                self.next_due += 1;
            } else {
                self.pop();
            }
            if is_set {
                self.entries[wake.slot as usize].wake = NONE;
                return Some((wake.at, wake.slot));
            }
        }
    }

    pub(crate) fn space(&self, slot: u32) -> i64 {
        self.entries[slot as usize].space
    }

    pub(crate) fn now(&self) -> i64 {
        self.now
    }

    #[inline]
    pub(crate) fn value(&self, slot: u32) -> Option<&[u8]> {
        match self.entries[slot as usize].value {
            Value::None => None,
            Value::Due(i) => Some(self.due_values.cell(i as usize).bytes),
            Value::Opened(i) => Some(self.opened_values.cell(i as usize).bytes),
            Value::Written(from, length) => self.arena.get(from as usize..(from + length) as usize),
        }
    }

    pub(crate) fn expires(&self, slot: u32) -> i64 {
        match self.entries[slot as usize].value {
            Value::None => NEVER,
            _ => self.entries[slot as usize].expires,
        }
    }

    #[inline]
    pub(crate) fn put(&mut self, slot: u32, value: &[u8], expires: i64) {
        let entry = &mut self.entries[slot as usize];
        entry.expires = expires;
        entry.put = true;
        if matches!(entry.value, Value::None) {
            self.made += 1;
            entry.made = self.made;
        }
        if let Value::Written(from, length) = entry.value
            && length as usize == value.len()
        {
            self.arena[from as usize..][..value.len()].copy_from_slice(value);
            return;
        }
        entry.value = Value::Written(self.arena.len() as u32, value.len() as u32);
        self.arena.extend_from_slice(value);
    }

    pub(crate) fn keep(&mut self, slot: u32, n: u8, row: u32) {
        self.must_stand(slot, "keep");
        self.set_kept(slot, n, Image::Row(row));
    }

    pub(crate) fn mark(&mut self, slot: u32, n: u8, row: u32) {
        self.must_stand(slot, "mark");
        self.set_kept(slot, n, Image::Mark(row));
    }

    pub(crate) fn let_go(&mut self, slot: u32, n: u8) {
        self.set_kept(slot, n, Image::Gone);
    }

    pub(crate) fn wake_at(&mut self, slot: u32, at: Stamp, rank: &[u8]) {
        if at.time == NONE_YET {
            return self.cancel_wake(slot);
        }
        self.must_stand(slot, "wake_at");
        let number = self.wakes.len() as u32;
        let from = self.ranks.len() as u32;
        self.ranks.extend_from_slice(rank);
        self.wakes.push(Wake { at, slot, rank: (from, self.ranks.len() as u32) });
        let entry = &mut self.entries[slot as usize];
        entry.wake = number;
        entry.woken = true;
        if at <= self.end {
            self.push(number);
        }
    }

    pub(crate) fn cancel_wake(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        entry.wake = NONE;
        entry.woken = true;
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        entry.value = Value::None;
        (entry.wake, entry.kept) = (NONE, NONE);
        (entry.removed, entry.put, entry.woken) = (true, false, false);
    }

    /// Where image or mark `n` is: a row of the call, or rows + slot and the number there.
    pub(crate) fn origin(&self, slot: u32, n: u8, mark_will_do: bool) -> (u32, u8) {
        let entry = &self.entries[slot as usize];
        match self.find_kept(slot, n).map(|at| self.kept[at as usize].what) {
            Some(Image::Row(row)) => (row, 0),
            Some(Image::Mark(row)) if mark_will_do => (row, 0),
            Some(Image::Mark(_)) => panic!("number {n} of this entry is a mark, not an image"),
            Some(Image::Gone) => panic!("image {n} of this entry was let go"),
            None if entry.stood && !entry.removed => (self.rows + slot, n),
            None => panic!("this entry keeps no image {n}"),
        }
    }

    /// The rank of a wake.
    pub(super) fn rank(&self, number: u32) -> &[u8] {
        let (from, to) = self.wakes[number as usize].rank;
        &self.ranks[from as usize..to as usize]
    }

    /// Was the wake with this number set in this call?
    pub(super) fn is_set_here(&self, number: u32) -> bool {
        number != NONE && number >= self.dues
    }

    fn must_stand(&self, slot: u32, what: &str) {
        assert!(!matches!(self.entries[slot as usize].value, Value::None), "{what} of an entry that was not put");
    }

    fn find_kept(&self, slot: u32, n: u8) -> Option<u32> {
        let mut at = self.entries[slot as usize].kept;
        while let Some(kept) = self.kept.get(at as usize) {
            if kept.n == n {
                return Some(at);
            }
            at = kept.before;
        }
        None
    }

    fn set_kept(&mut self, slot: u32, n: u8, what: Image) {
        match self.find_kept(slot, n) {
            Some(at) => self.kept[at as usize].what = what,
            None => {
                let entry = &mut self.entries[slot as usize];
                let before = std::mem::replace(&mut entry.kept, self.kept.len() as u32);
                self.kept.push(Kept { n, what, before });
            }
        }
    }

    /// Does wake `a` fire before wake `b`? Stamp, rank, order of setting, which is that of the numbers.
    fn before(&self, a: u32, b: u32) -> bool {
        let (left, right) = (&self.wakes[a as usize], &self.wakes[b as usize]);
        left.at.cmp(&right.at).then_with(|| self.rank(a).cmp(self.rank(b))).then(a.cmp(&b)).is_lt()
    }

    fn push(&mut self, number: u32) {
        let mut at = self.heap.len();
        self.heap.push(number);
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.before(number, self.heap[parent]) {
                break;
            }
            self.heap.swap(at, parent);
            at = parent;
        }
    }

    fn pop(&mut self) {
        let Some(last) = self.heap.pop() else { return };
        if self.heap.is_empty() {
            return;
        }
        self.heap[0] = last;
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                return;
            }
            if child + 1 < self.heap.len() && self.before(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if !self.before(self.heap[child], last) {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }
}

impl Entry {
    const EMPTY: Entry = Entry {
        space: 0,
        expires: NEVER,
        value: Value::None,
        wake: NONE,
        kept: NONE,
        stood: false,
        due: false,
        removed: false,
        put: false,
        woken: false,
        made: 0,
    };
}
