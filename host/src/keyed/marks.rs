//! Marks: the fast path. A mark says that a key was here: 128 bits of hash, until when, and where its record came from.
//!
//! An open-addressing table. Slots stand in groups of seven behind a header of tags, together four lines of the cache,
//! so that a lookup reads one page: the header's line and the slot's. A hash's home group rises with the hash, and a
//! mark stands at home or a little behind, so the table is in the order of its hashes: it grows in one pass from front to
//! back, reading and writing memory in order, and what has been read is what is written next. Above some size there are
//! 64 such tables, each a little out of step with the next, so that growing is never one long stop and about 0.8 of all
//! slots are in use at any time (0.75 of the first two million). A mark that is over is a free slot: the group knows the least expiry in it, so nobody looks
//! for one in vain.

use crate::format::StoredMark;

/// What a mark counts for in quotas.
pub const MARK_BYTES: u64 = 46;

/// Slots of a group.
const GROUP: usize = 7;
/// Groups of a piece of memory.
const CHUNK: usize = 32;
const PARTS: usize = 64;
/// Groups of a part from which on memory is dearer than time: some two million marks in all.
const LARGE: usize = 4096;
/// Marks of the first, only part, above which there are 64.
const SPLIT: usize = 1 << 16;
const LOW: u64 = 0x0101_0101_0101_0101;
/// The high bit of each of the seven tags.
const HIGH: u64 = 0x0080_8080_8080_8080;
/// One mark more that had no room in its home and stands further back.
const PASSED: u64 = 1 << 56;
/// So many marks tell how many are to come.
const TELLING: usize = 256;
/// How many times as many at most.
const MORE: f64 = 64.0;
/// Hashes that `touch` takes at once.
pub const AHEAD: usize = 64;
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
    /// All of 32 groups, but for the only one of a small part.
    chunks: Vec<Box<[Group]>>,
    /// Creation number of each slot, beside each chunk; none: all 0.
    born: Vec<Box<[[u64; GROUP]]>>,
    /// Groups that are home to a hash; those behind take what the last have no room for.
    homes: usize,
    /// Slots that hold a mark.
    used: usize,
}

/// Four lines of the cache. A slot never lies in two.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Group {
    /// A byte per slot: 0, or 0x80 and seven bits of hash. The eighth: how many marks were to stand here or before and
    /// passed by because it was full; from 255 on nobody counts, until the table is made anew.
    tags: u64,
    /// No mark in this group is over before this.
    least: i64,
    inputs: [u16; GROUP],
    slots: [Slot; GROUP],
}

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
    group: usize,
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
            let chunks: usize = p.chunks.iter().map(|c| size_of_val(&**c) + size_of::<Box<[Group]>>()).sum();
            chunks + p.born.iter().map(|c| size_of_val(&**c)).sum::<usize>()
        };
        self.parts.iter().map(part).sum::<usize>() + self.parts.capacity() * size_of::<Part>()
    }

    /// Reads what the next lookups of these hashes, and inserts, will read, all at once, so that the waits for memory
    /// overlap: what stands for prefetch without unsafe code.
    pub fn touch(&self, hashes: &[u128]) {
        if self.parts.len() == 1 {
            return; // small: it is in the cache
        }
        // No branch waits for memory, or a wrong guess would end the overlap. Three rounds: the header of each home,
        // the header behind it where the home is full, the slot.
        let mut headers = [(0u32, 0); AHEAD];
        for (header, &hash) in headers.iter_mut().zip(hashes) {
            let part = &self.parts[self.part(hash)];
            let at = part.home(hash);
            *header = (at as u32, part.group(at).map_or(0, |group| group.tags));
        }
        for (header, &hash) in headers.iter_mut().zip(hashes) {
            let (at, tags) = *header;
            let goes_on = (matching(tags, tag(hash)) == 0) & (tags >= PASSED);
            let at = at + u32::from(goes_on);
            let part = &self.parts[self.part(hash)];
            *header = (at, part.group(at as usize).map_or(0, |group| group.tags));
        }
        let mut sum = 0;
        for (&(at, tags), &hash) in headers.iter().zip(hashes) {
            let (found, free) = (matching(tags, tag(hash)), !tags & HIGH);
            let bits = if found != 0 { found } else { free } | 1 << 48;
            let slot = (bits.trailing_zeros() / 8) as usize;
            let part = &self.parts[self.part(hash)];
            sum ^= part.group(at as usize).map_or(0, |group| group.slots[slot].expires);
        }
        std::hint::black_box(sum);
    }

    /// Where the mark of this hash stands, over or not.
    #[inline]
    pub fn find(&self, hash: u128) -> Option<Place> {
        let number = self.part(hash);
        let part = &self.parts[number];
        let (wanted, low, high) = (tag(hash), hash as u64, (hash >> 64) as u64);
        let mut at = part.home(hash);
        loop {
            let group = part.group(at)?;
            let mut found = matching(group.tags, wanted);
            while let Some(i) = first(found) {
                let slot = &group.slots[i];
                if slot.low == low && slot.high == high {
                    return Some(Place { part: number, group: at, slot: i });
                }
                found &= found - 1;
            }
            if group.passed() == 0 {
                return None;
            }
            at += 1;
        }
    }

    /// The mark at a place.
    pub fn at(&self, place: Place) -> StoredMark {
        self.parts[place.part].mark(place.group, place.slot)
    }

    /// The mark of this hash.
    #[cfg(test)]
    pub fn get(&self, hash: u128) -> Option<StoredMark> {
        self.find(hash).map(|place| self.at(place))
    }

    /// Writes a mark in place of the one that stands there.
    pub fn replace(&mut self, place: Place, mark: StoredMark) {
        self.parts[place.part].write(place.group, place.slot, mark);
    }

    /// Takes the mark at a place away.
    pub fn take(&mut self, place: Place) {
        self.parts[place.part].clear(place.group, place.slot);
        self.len -= 1;
    }

    /// Adds a mark for a hash that has none. Marks that are over at `floor` are free slots; `freed` hears of each one
    /// that goes.
    pub fn insert(&mut self, hash: u128, mark: StoredMark, floor: i64, mut freed: impl FnMut(u128, StoredMark)) {
        let mut number = self.part(hash);
        if self.parts[number].is_full() {
            if self.parts.len() == 1 && self.len >= SPLIT {
                self.split();
                number = self.part(hash);
            }
            if self.parts[number].is_full() {
                self.len -= self.parts[number].make_room(number, floor, &mut freed);
            }
        }
        let part = &mut self.parts[number];
        let mut at = part.home(hash);
        loop {
            let Some(group) = part.group_mut(at) else {
                // The groups behind the last home are full: rare.
                part.lengthen(None);
                continue;
            };
            if floor > FREE_NONE
                && group.least <= floor
                && let Some(slot) = group.over(floor)
            {
                freed(group.hash(slot), part.mark(at, slot));
                part.clear(at, slot);
                self.len -= 1;
                part.place(at, slot, hash, mark);
                break;
            }
            if let Some(slot) = first(!group.tags & HIGH) {
                part.place(at, slot, hash, mark);
                break;
            }
            group.pass();
            at += 1;
        }
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
        self.parts.iter().flat_map(Part::iter)
    }

    /// Number of parts. It may rise, once; a mark stays in its part until then.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Some marks of a part: those whose hash, its low half, is `from` or above, and at home in the next so many groups.
    /// Gives where the next ones begin. None: these were the last.
    pub fn some_of(&self, number: usize, from: u64, groups: usize, each: impl FnMut(u128, StoredMark)) -> Option<u64> {
        self.parts.get(number)?.some(from, groups, each)
    }

    fn part(&self, hash: u128) -> usize {
        if self.parts.len() == 1 { 0 } else { (hash >> 122) as usize }
    }

    fn split(&mut self) {
        let old = std::mem::replace(self, Marks { parts: Vec::with_capacity(PARTS), len: 0 });
        for number in 0..PARTS {
            self.parts.push(Part { homes: groups_above(number, SPLIT / PARTS / GROUP * 5 / 4), ..Part::default() });
        }
        for (hash, mark) in old.iter() {
            self.insert(hash, mark, FREE_NONE, |_, _| ());
        }
    }
}

impl Part {
    /// Load at most 9/10.
    fn is_full(&self) -> bool {
        self.used >= self.homes * GROUP * 9 / 10
    }

    fn home(&self, hash: u128) -> usize {
        ((u128::from(hash as u64) * self.homes as u128) >> 64) as usize
    }

    #[inline]
    fn group(&self, at: usize) -> Option<&Group> {
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }

    #[inline]
    fn group_mut(&mut self, at: usize) -> Option<&mut Group> {
        self.chunks.get_mut(at / CHUNK)?.get_mut(at % CHUNK)
    }

    fn mark(&self, at: usize, slot: usize) -> StoredMark {
        let born = self.born.get(at / CHUNK).map_or(0, |born| born[at % CHUNK][slot]);
        self.chunks[at / CHUNK][at % CHUNK].mark(slot, born)
    }

    fn write(&mut self, at: usize, slot: usize, mark: StoredMark) {
        let group = &mut self.chunks[at / CHUNK][at % CHUNK];
        group.slots[slot].expires = mark.expires;
        group.slots[slot].offset = mark.offset;
        group.inputs[slot] = mark.input;
        group.least = group.least.min(mark.expires);
        if mark.born != 0 || !self.born.is_empty() {
            self.set_born(at, slot, mark.born);
        }
    }

    fn place(&mut self, at: usize, slot: usize, hash: u128, mark: StoredMark) {
        let group = &mut self.chunks[at / CHUNK][at % CHUNK];
        group.slots[slot].low = hash as u64;
        group.slots[slot].high = (hash >> 64) as u64;
        group.set_tag(slot, tag(hash));
        self.used += 1;
        self.write(at, slot, mark);
    }

    fn clear(&mut self, at: usize, slot: usize) {
        let group = &mut self.chunks[at / CHUNK][at % CHUNK];
        group.set_tag(slot, 0);
        let home = {
            let hash = group.hash(slot);
            self.home(hash)
        };
        self.used -= 1;
        for passed in home..at {
            self.chunks[passed / CHUNK][passed % CHUNK].pass_no_more();
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u128, StoredMark)> + '_ {
        let groups = self.chunks.iter().flat_map(|chunk| chunk.iter()).enumerate();
        groups.flat_map(move |(at, group)| group.full().map(move |slot| (group.hash(slot), self.mark(at, slot))))
    }

    /// See `Marks::some_of`. A hash keeps its place among the others however the table grows, so that a walk from one
    /// hash to the next meets every mark that is there all the while.
    fn some(&self, from: u64, groups: usize, mut each: impl FnMut(u128, StoredMark)) -> Option<u64> {
        let first = self.home(u128::from(from));
        let end = first.saturating_add(groups);
        let next = (end < self.homes).then(|| ((end as u128) << 64).div_ceil(self.homes as u128) as u64);
        let mut at = first;
        // Behind the last home stand those that found no room there: as far as marks have passed by.
        while at < end || (at > 0 && self.group(at - 1).is_some_and(|group| group.passed() > 0)) {
            let Some(group) = self.group(at) else { break };
            for slot in group.full() {
                let (hash, low) = (group.hash(slot), group.hash(slot) as u64);
                if low >= from && next.is_none_or(|next| low < next) {
                    each(hash, self.mark(at, slot));
                }
            }
            at += 1;
        }
        next
    }

    /// Makes place for more marks, in the right size for those that are not over. Returns how many marks went.
    fn make_room(&mut self, number: usize, floor: i64, freed: &mut impl FnMut(u128, StoredMark)) -> usize {
        let is_live = |group: &Group, slot: usize| floor == FREE_NONE || group.slots[slot].expires > floor;
        let (mut live, mut last) = (0, 0);
        for group in self.chunks.iter().flat_map(|chunk| chunk.iter()) {
            for slot in group.full().filter(|&slot| is_live(group, slot)) {
                (live, last) = (live + 1, group.slots[slot].low.max(last));
            }
        }
        let full = self.homes * GROUP * 9 / 10;
        let homes = if live * 10 >= full * 9 {
            // Small parts double, since a fifth of them is little.
            if self.homes < CHUNK { (self.homes * 2).max(1) } else { groups_above(number, self.homes + 1) }
        } else if live * 4 < full {
            groups_above(number, live * 2 / GROUP + 1)
        } else {
            self.homes
        };
        // Marks that come in the order of their hashes, as from a checkpoint, all have their homes in front, where each
        // would pass by those before it. As many are to come for the rest as are here for the front; more than so many
        // times as many are believed in when more have come.
        let front = last as f64 / u64::MAX as f64;
        let homes = match live >= TELLING && front < 0.9 {
            true => homes.max(groups_above(number, (live as f64 * (0.9 / front).min(MORE)) as usize / GROUP)),
            false => homes,
        };
        self.resize(homes, floor, freed)
    }

    /// Moves every mark to its home among `homes` groups; those that are over at `floor` go. Returns how many.
    fn resize(&mut self, homes: usize, floor: i64, freed: &mut impl FnMut(u128, StoredMark)) -> usize {
        let old = std::mem::replace(self, Part { homes, ..Part::default() });
        let mut born = old.born.into_iter();
        let (mut spare, mut gone) = (Vec::new(), 0);
        for mut chunk in old.chunks {
            let born = born.next();
            for (at, group) in chunk.iter().enumerate() {
                for slot in group.full() {
                    let born = born.as_ref().map_or(0, |born| born[at][slot]);
                    if floor > FREE_NONE && group.slots[slot].expires <= floor {
                        freed(group.hash(slot), group.mark(slot, born));
                        gone += 1;
                        continue;
                    }
                    self.append(group, slot, born, &mut spare);
                }
            }
            if chunk.len() == CHUNK && homes >= CHUNK {
                chunk.iter_mut().for_each(|group| (group.tags, group.least) = (0, i64::MAX));
                spare.push(chunk);
            }
        }
        gone
    }

    /// Puts a copy of a slot where it belongs while the table is made anew.
    fn append(&mut self, from: &Group, slot: usize, born: u64, spare: &mut Vec<Box<[Group]>>) {
        let hash = from.hash(slot);
        let mut at = self.home(hash);
        loop {
            let Some(group) = self.group_mut(at) else {
                self.lengthen(spare.pop());
                continue;
            };
            if let Some(free) = first(!group.tags & HIGH) {
                group.slots[free] = from.slots[slot];
                group.inputs[free] = from.inputs[slot];
                group.set_tag(free, tag(hash));
                group.least = group.least.min(from.slots[slot].expires);
                self.used += 1;
                if born != 0 {
                    self.set_born(at, free, born);
                }
                return;
            }
            group.pass();
            at += 1;
        }
    }

    /// One more piece of memory behind the last.
    fn lengthen(&mut self, spare: Option<Box<[Group]>>) {
        match self.chunks.last_mut() {
            // A small part has one short chunk; where that does not do it becomes a whole one.
            Some(last) if last.len() < CHUNK => {
                let mut whole = last.to_vec();
                whole.resize(CHUNK, Group::NONE);
                *last = whole.into();
            }
            last => {
                let groups = if last.is_none() { CHUNK.min(self.homes + 1) } else { CHUNK };
                self.chunks.push(spare.unwrap_or_else(|| vec![Group::NONE; groups].into()));
            }
        }
        if !self.born.is_empty() {
            self.lengthen_born();
        }
    }

    /// Creation numbers are kept for every slot from the first one on that has any.
    #[cold]
    fn lengthen_born(&mut self) {
        for (number, chunk) in self.chunks.iter().enumerate() {
            match self.born.get_mut(number) {
                Some(born) if born.len() == chunk.len() => {}
                Some(born) => {
                    let mut longer = born.to_vec();
                    longer.resize(chunk.len(), [0; GROUP]);
                    *born = longer.into();
                }
                None => self.born.push(vec![[0; GROUP]; chunk.len()].into()),
            }
        }
    }

    fn set_born(&mut self, at: usize, slot: usize, born: u64) {
        if self.born.is_empty() {
            self.lengthen_born();
        }
        if let Some(chunk) = self.born.get_mut(at / CHUNK) {
            chunk[at % CHUNK][slot] = born;
        }
    }
}

impl Group {
    const NONE: Group = Group {
        tags: 0,
        least: i64::MAX,
        inputs: [0; GROUP],
        slots: [Slot { low: 0, high: 0, expires: 0, offset: 0 }; GROUP],
    };

    fn hash(&self, slot: usize) -> u128 {
        u128::from(self.slots[slot].high) << 64 | u128::from(self.slots[slot].low)
    }

    fn mark(&self, slot: usize, born: u64) -> StoredMark {
        let Slot { expires, offset, .. } = self.slots[slot];
        StoredMark { expires, offset, input: self.inputs[slot], born }
    }

    fn set_tag(&mut self, slot: usize, tag: u8) {
        let shift = 8 * slot;
        self.tags = self.tags & !(0xff << shift) | u64::from(tag) << shift;
    }

    fn passed(&self) -> u64 {
        self.tags >> 56
    }

    fn pass(&mut self) {
        if self.passed() < 255 {
            self.tags += PASSED;
        }
    }

    fn pass_no_more(&mut self) {
        if self.passed() < 255 {
            self.tags -= PASSED;
        }
    }

    /// A slot whose mark is over; sets the least expiry of the others.
    fn over(&mut self, floor: i64) -> Option<usize> {
        let (mut found, mut least) = (None, i64::MAX);
        for slot in self.full() {
            match self.slots[slot].expires {
                expires if expires <= floor && found.is_none() => found = Some(slot),
                expires => least = least.min(expires),
            }
        }
        self.least = least;
        found
    }

    fn full(&self) -> impl Iterator<Item = usize> + use<> {
        let mut full = self.tags & HIGH;
        std::iter::from_fn(move || {
            let slot = first(full)?;
            full &= full - 1;
            Some(slot)
        })
    }
}

/// The least size of this part in its series that is at least `groups`: powers of 3/2, of 6/5 from `LARGE` on, shifted by
/// the part's number. Growing by 6/5 moves each mark five times as it fills, growing by 3/2 twice, but a tenth of the
/// memory more is in use then.
fn groups_above(number: usize, groups: usize) -> usize {
    let shift = (number % PARTS) as f64 / PARTS as f64;
    let by: f64 = if groups < LARGE { 1.5 } else { 1.2 };
    let step = ((groups.max(1) as f64).ln() / by.ln() - shift).ceil();
    (by.powf(step + shift).ceil() as usize).max(groups).max(1)
}

fn tag(hash: u128) -> u8 {
    0x80 | (hash >> 64) as u8
}

/// The high bit of each tag that is `wanted`. Above a match there may be false ones, never before the first.
fn matching(tags: u64, wanted: u8) -> u64 {
    let diff = tags ^ (LOW * u64::from(wanted));
    diff.wrapping_sub(LOW) & !diff & HIGH
}

/// Number of the first byte whose high bit is set.
fn first(bits: u64) -> Option<usize> {
    (bits != 0).then(|| bits.trailing_zeros() as usize / 8)
}

#[cfg(test)]
#[path = "marks_tests.rs"]
mod tests;
