//! Marks: the fast path. A mark says that a key was here: 128 bits of hash, until when, and where its record came from.
//!
//! An open-addressing table in 256 parts that grow on their own by a fifth, each a little out of step with the next,
//! so that growing is never one long stop and about 0.8 of all slots are in use at any time. Slots stand in groups of
//! eight with one byte of tag each; a slot takes 32 bytes, and two more where a task has several inputs. A mark that is
//! over is a free slot: the group knows the least expiry in it, so nobody looks for one in vain.

use crate::format::StoredMark;

/// What a mark counts for in quotas.
pub const MARK_BYTES: u64 = 46;

const GROUP: usize = 8;
const PARTS: usize = 256;
/// Slots of the first, only part, above which there are 256.
const SPLIT: usize = 8192;
const EMPTY: u8 = 0x00;
const REMOVED: u8 = 0x01;
const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;
const ALL: u8 = 0xff;
/// No mark is over: nothing is freed.
pub const FREE_NONE: i64 = i64::MIN;

/// Marks of one space.
#[derive(Clone, Debug)]
pub struct Marks {
    parts: Vec<Part>,
    len: usize,
}

#[derive(Clone, Debug, Default)]
struct Part {
    groups: Vec<Group>,
    slots: Vec<Slot>,
    /// Input of each slot; empty: all 0.
    inputs: Vec<u16>,
    /// Creation number of each slot; empty: all 0.
    born: Vec<u64>,
    /// Slots that hold a mark, or did and may not be passed over as empty.
    used: usize,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    /// A byte per slot: empty, removed, or 0x80 and seven bits of hash.
    tags: u64,
    /// No mark in this group is over before this.
    least: i64,
}

/// Aligned, so that a slot never lies in two lines of the cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct Slot {
    low: u64,
    high: u64,
    expires: i64,
    offset: i64,
}

/// Where a mark stands, until the next write.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    part: usize,
    slot: usize,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks { parts: vec![Part::default()], len: 0 }
    }
}

impl Marks {
    /// Number of marks, with those that are over and not yet overwritten.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory the table holds.
    pub fn memory(&self) -> usize {
        let part = |p: &Part| {
            p.groups.capacity() * size_of::<Group>()
                + p.slots.capacity() * size_of::<Slot>()
                + p.inputs.capacity() * 2
                + p.born.capacity() * 8
        };
        self.parts.iter().map(part).sum::<usize>() + self.parts.capacity() * size_of::<Part>()
    }

    /// Reads what the next lookups of these hashes, and inserts with this floor, will read, all at once, so that the
    /// waits for memory overlap: what stands for prefetch without unsafe code.
    pub fn touch(&self, hashes: &[u128], floor: i64) {
        if self.parts.len() == 1 {
            return; // small: it is in the cache
        }
        let mut homes = [(0u32, ALL); 64];
        for (home, &hash) in homes.iter_mut().zip(hashes) {
            let part = &self.parts[self.part(hash)];
            let at = part.home(hash);
            let Some(group) = part.groups.get(at) else { continue };
            let found = matching(group.tags, tag(hash));
            let slot = if found != 0 { first(found) } else { first(!group.tags & HIGH) };
            // Where something is over, every slot is looked at.
            let one = if found == 0 && group.least <= floor { None } else { slot };
            *home = (at as u32, one.map_or(ALL, |slot| slot as u8));
        }
        let mut sum = 0;
        for (&(at, slot), &hash) in homes.iter().zip(hashes) {
            let slots = &self.parts[self.part(hash)].slots;
            let read = |slot: usize| slots.get(at as usize * GROUP + slot).map_or(0, |s| s.expires);
            sum ^= if slot == ALL { read(0) ^ read(2) ^ read(4) ^ read(6) } else { read(slot as usize) };
        }
        std::hint::black_box(sum);
    }

    /// Where the mark of this hash stands, over or not.
    #[inline]
    pub fn find(&self, hash: u128) -> Option<Place> {
        let number = self.part(hash);
        let part = &self.parts[number];
        if part.groups.is_empty() {
            return None;
        }
        let (wanted, low, high) = (tag(hash), hash as u64, (hash >> 64) as u64);
        let mut at = part.home(hash);
        loop {
            let tags = part.groups[at].tags;
            let mut found = matching(tags, wanted);
            while let Some(i) = first(found) {
                let slot = &part.slots[at * GROUP + i];
                if slot.low == low && slot.high == high {
                    return Some(Place { part: number, slot: at * GROUP + i });
                }
                found &= found - 1;
            }
            if matching(tags, EMPTY) != 0 {
                return None;
            }
            at = if at + 1 == part.groups.len() { 0 } else { at + 1 };
        }
    }

    /// The mark at a place.
    pub fn at(&self, place: Place) -> StoredMark {
        self.parts[place.part].mark(place.slot)
    }

    /// The mark of this hash.
    #[cfg(test)]
    pub fn get(&self, hash: u128) -> Option<StoredMark> {
        self.find(hash).map(|place| self.at(place))
    }

    /// Writes a mark in place of the one that stands there.
    pub fn replace(&mut self, place: Place, mark: StoredMark) {
        self.parts[place.part].write(place.slot, mark);
    }

    /// Takes the mark at a place away.
    pub fn take(&mut self, place: Place) {
        self.parts[place.part].clear(place.slot);
        self.len -= 1;
    }

    /// Adds a mark for a hash that has none. Marks that are over at `floor` are free slots; `freed` hears of each one
    /// that goes.
    pub fn insert(&mut self, hash: u128, mark: StoredMark, floor: i64, mut freed: impl FnMut(u128, StoredMark)) {
        let mut number = self.part(hash);
        if self.parts[number].is_full() {
            if self.parts.len() == 1 && self.parts[0].slots.len() >= SPLIT {
                self.split();
                number = self.part(hash);
            }
            if self.parts[number].is_full() {
                self.len -= self.parts[number].rebuild(number, floor, &mut freed);
            }
        }
        let part = &mut self.parts[number];
        let mut at = part.home(hash);
        let slot = loop {
            if floor > FREE_NONE && part.groups[at].least <= floor {
                if let Some(slot) = part.over(at, floor) {
                    freed(part.hash(slot), part.mark(slot));
                    self.len -= 1;
                    break slot;
                }
            }
            let tags = part.groups[at].tags;
            if let Some(i) = first(!tags & HIGH) {
                part.used += usize::from((tags >> (8 * i)) as u8 == EMPTY);
                break at * GROUP + i;
            }
            at = if at + 1 == part.groups.len() { 0 } else { at + 1 };
        };
        part.place(slot, hash, mark);
        self.len += 1;
    }

    /// Sets or takes away the mark of a hash and returns what stood there; frees nothing else.
    pub fn set(&mut self, hash: u128, mark: Option<StoredMark>) -> Option<StoredMark> {
        let place = self.find(hash);
        let old = place.map(|place| self.at(place));
        match (place, mark) {
            (Some(place), Some(mark)) => self.replace(place, mark),
            (Some(place), None) => self.take(place),
            (None, Some(mark)) => self.insert(hash, mark, FREE_NONE, |_, _| ()),
            (None, None) => {}
        }
        old
    }

    /// Every mark, with its hash.
    pub fn iter(&self) -> impl Iterator<Item = (u128, StoredMark)> + '_ {
        self.parts.iter().flat_map(|part| part.full().map(|slot| (part.hash(slot), part.mark(slot))))
    }

    fn part(&self, hash: u128) -> usize {
        if self.parts.len() == 1 { 0 } else { (hash >> 120) as usize }
    }

    fn split(&mut self) {
        let all: Vec<(u128, StoredMark)> = self.iter().collect();
        self.parts = (0..PARTS).map(|number| Part::sized(groups_above(number, 2 * SPLIT / PARTS / GROUP))).collect();
        self.len = 0;
        for (hash, mark) in all {
            self.insert(hash, mark, FREE_NONE, |_, _| ());
        }
    }
}

impl Part {
    fn sized(groups: usize) -> Part {
        let none = Group { tags: 0, least: i64::MAX };
        Part { groups: vec![none; groups], slots: vec![Slot::default(); groups * GROUP], ..Part::default() }
    }

    /// Load at most 7/8.
    fn is_full(&self) -> bool {
        self.used >= self.slots.len() * 7 / 8
    }

    fn home(&self, hash: u128) -> usize {
        ((u128::from(hash as u64) * self.groups.len() as u128) >> 64) as usize
    }

    fn hash(&self, slot: usize) -> u128 {
        u128::from(self.slots[slot].high) << 64 | u128::from(self.slots[slot].low)
    }

    fn mark(&self, slot: usize) -> StoredMark {
        StoredMark {
            expires: self.slots[slot].expires,
            offset: self.slots[slot].offset,
            input: self.inputs.get(slot).copied().unwrap_or(0),
            born: self.born.get(slot).copied().unwrap_or(0),
        }
    }

    fn write(&mut self, slot: usize, mark: StoredMark) {
        self.slots[slot].expires = mark.expires;
        self.slots[slot].offset = mark.offset;
        if mark.input != 0 && self.inputs.is_empty() {
            self.inputs = vec![0; self.slots.len()];
        }
        if let Some(input) = self.inputs.get_mut(slot) {
            *input = mark.input;
        }
        if mark.born != 0 && self.born.is_empty() {
            self.born = vec![0; self.slots.len()];
        }
        if let Some(born) = self.born.get_mut(slot) {
            *born = mark.born;
        }
        let group = &mut self.groups[slot / GROUP];
        group.least = group.least.min(mark.expires);
    }

    fn place(&mut self, slot: usize, hash: u128, mark: StoredMark) {
        self.slots[slot].low = hash as u64;
        self.slots[slot].high = (hash >> 64) as u64;
        self.set_tag(slot, tag(hash));
        self.write(slot, mark);
    }

    fn set_tag(&mut self, slot: usize, tag: u8) {
        let shift = 8 * (slot % GROUP);
        let tags = &mut self.groups[slot / GROUP].tags;
        *tags = *tags & !(0xff << shift) | u64::from(tag) << shift;
    }

    fn clear(&mut self, slot: usize) {
        // A group that lookups already stop at may have one more empty slot; any other must go on being passed.
        if matching(self.groups[slot / GROUP].tags, EMPTY) != 0 {
            self.set_tag(slot, EMPTY);
            self.used -= 1;
        } else {
            self.set_tag(slot, REMOVED);
        }
    }

    /// A slot of this group whose mark is over; sets the least expiry of the others.
    fn over(&mut self, at: usize, floor: i64) -> Option<usize> {
        let (mut found, mut least) = (None, i64::MAX);
        let mut full = self.groups[at].tags & HIGH;
        while let Some(i) = first(full) {
            full &= full - 1;
            let slot = at * GROUP + i;
            match self.slots[slot].expires {
                expires if expires <= floor && found.is_none() => found = Some(slot),
                expires => least = least.min(expires),
            }
        }
        self.groups[at].least = least;
        found
    }

    fn full(&self) -> impl Iterator<Item = usize> + '_ {
        let slots = |(at, group): (usize, &Group)| {
            let tags = group.tags;
            (0..GROUP).filter(move |i| tags >> (8 * i) & 0x80 != 0).map(move |i| at * GROUP + i)
        };
        self.groups.iter().enumerate().flat_map(slots)
    }

    /// Moves everything that is not over into a part of the right size. Returns how many marks went.
    fn rebuild(&mut self, number: usize, floor: i64, freed: &mut impl FnMut(u128, StoredMark)) -> usize {
        let is_live = |part: &Part, slot: usize| floor == FREE_NONE || part.slots[slot].expires > floor;
        let live = self.full().filter(|&slot| is_live(self, slot)).count();
        let (full, groups) = (self.slots.len() * 7 / 8, self.groups.len());
        let wanted = if live * 10 >= full * 9 {
            // Small parts double, since a fifth of them is little.
            groups_above(number, if groups < 32 { groups * 2 } else { groups + 1 })
        } else if live * 4 < full {
            groups_above(number, live / 4 + 1)
        } else {
            groups
        };
        let mut new = Part::sized(wanted);
        let mut gone = 0;
        for slot in self.full() {
            let (hash, mark) = (self.hash(slot), self.mark(slot));
            if !is_live(self, slot) {
                freed(hash, mark);
                gone += 1;
                continue;
            }
            let mut at = new.home(hash);
            let free = loop {
                if let Some(i) = first(!new.groups[at].tags & HIGH) {
                    break at * GROUP + i;
                }
                at = if at + 1 == new.groups.len() { 0 } else { at + 1 };
            };
            new.place(free, hash, mark);
            new.used += 1;
        }
        *self = new;
        gone
    }
}

/// The least size of this part in its series that is at least `groups`: powers of 6/5, shifted by the part's number.
fn groups_above(number: usize, groups: usize) -> usize {
    let shift = (number % PARTS) as f64 / PARTS as f64;
    let step = ((groups.max(1) as f64).ln() / 1.2f64.ln() - shift).ceil();
    (1.2f64.powf(step + shift).ceil() as usize).max(groups).max(1)
}

fn tag(hash: u128) -> u8 {
    0x80 | (hash >> 64) as u8
}

/// The high bit of each byte that is `wanted`. Above a match there may be false ones, never before the first.
fn matching(tags: u64, wanted: u8) -> u64 {
    let diff = tags ^ (LOW * u64::from(wanted));
    diff.wrapping_sub(LOW) & !diff & HIGH
}

/// Number of the first byte whose high bit is set.
fn first(bits: u64) -> Option<usize> {
    (bits != 0).then(|| bits.trailing_zeros() as usize / 8)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::collections::HashMap;
    use xxhash_rust::xxh3::xxh3_128;

    fn hash(n: u64) -> u128 {
        xxh3_128(&n.to_le_bytes())
    }

    fn mark(expires: i64, n: u64) -> StoredMark {
        StoredMark { expires, offset: n as i64, input: (n % 3) as u16, born: n }
    }

    /// Random sets, removals and freeing inserts against a plain map.
    fn check(keys: u64, writes: u64, seed: u64) {
        let (mut marks, mut model) = (Marks::default(), HashMap::new());
        let mut random = seed;
        for n in 0..writes {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (key, dice) = (hash((random >> 33) % keys), random >> 24 & 0xf);
            let floor = n as i64;
            match marks.find(key) {
                Some(place) if dice == 0 => {
                    marks.take(place);
                    model.remove(&key);
                }
                Some(place) => {
                    marks.replace(place, mark(floor + 500, n));
                    model.insert(key, mark(floor + 500, n));
                }
                None => {
                    assert!(!model.contains_key(&key));
                    let expires = if dice == 1 { i64::MAX } else { floor + (random >> 40 & 0x3ff) as i64 };
                    marks.insert(key, mark(expires, n), floor, |freed, old| {
                        assert!(old.expires <= floor);
                        assert_eq!(model.remove(&freed), Some(old));
                    });
                    model.insert(key, mark(expires, n));
                }
            }
            assert_eq!(marks.len(), model.len());
        }
        let all: HashMap<u128, StoredMark> = marks.iter().collect();
        assert_eq!(all, model);
        assert!(model.iter().all(|(&key, &value)| marks.get(key) == Some(value)));
    }

    #[test]
    fn marks_do_what_a_map_does() {
        for seed in 0..20 {
            check(50, 3_000, seed);
            check(3_000, 30_000, seed);
        }
        check(300_000, 600_000, 1);
    }

    #[test]
    fn removed_slots_do_not_fill_the_table() {
        let mut marks = Marks::default();
        for n in 0..200_000 {
            marks.set(hash(n), Some(mark(i64::MAX, 0)));
            if n >= 100 {
                marks.set(hash(n - 100), None);
            }
        }
        assert_eq!(marks.len(), 100);
        assert!(marks.memory() < 20_000, "{}", marks.memory());
    }

    #[test]
    fn a_mark_takes_at_most_46_bytes() {
        let mut marks = Marks::default();
        for n in 0..1_000_000u64 {
            let input = (n % 2) as u16;
            marks.insert(hash(n), StoredMark { expires: 1, offset: 1, input, born: 0 }, FREE_NONE, |_, _| ());
            if n > 500_000 && n % 10_000 == 0 {
                marks.touch(&[hash(n)], 0);
                assert!(marks.memory() as f64 / n as f64 <= 46.0, "{} at {n}", marks.memory() as f64 / n as f64);
            }
        }
    }

    #[test]
    fn marks_that_are_over_give_their_slots_to_new_ones() {
        let mut marks = Marks::default();
        let mut freed = 0;
        for n in 0..400_000u64 {
            marks.insert(hash(n), mark(n as i64 + 20_000, 0), n as i64, |_, _| freed += 1);
        }
        assert_eq!(marks.len() + freed, 400_000);
        assert!(marks.memory() < 46 * 45_000, "{}", marks.memory());
    }
}
