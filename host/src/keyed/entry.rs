//! Entries: what one key has in one space, in a slab with an index of its own per space.

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::Kept;
use crate::time::{NEVER, Stamp};

/// The guest's order among equal wakes.
pub type Rank = Short<30>;

/// Bytes in place up to so many, on the heap beyond: the usual value or rank allocates nothing.
#[derive(Clone, Debug)]
pub enum Short<const N: usize> {
    /// The first `len` of these.
    Here { len: u8, bytes: [u8; N] },
    /// More.
    There(Box<[u8]>),
}

impl<const N: usize> Short<N> {
    /// A copy of these bytes.
    pub fn of(from: &[u8]) -> Short<N> {
        if from.len() > N {
            return Short::There(from.into());
        }
        let mut short = Short::EMPTY;
        short.set(from);
        short
    }

    const EMPTY: Short<N> = Short::Here { len: 0, bytes: [0; N] };

    /// Becomes a copy of these bytes, in its place: a copy that is moved at once waits for itself.
    pub fn set(&mut self, from: &[u8]) {
        if from.len() > N {
            *self = Short::There(from.into());
            return;
        }
        if let Short::There(_) = self {
            *self = Short::EMPTY;
        }
        if let Short::Here { len, bytes } = self {
            bytes[..from.len()].copy_from_slice(from);
            *len = from.len() as u8;
        }
    }
}

impl<const N: usize> std::ops::Deref for Short<N> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Short::Here { len, bytes } => &bytes[..usize::from(*len)],
            Short::There(bytes) => bytes,
        }
    }
}

impl<const N: usize> PartialEq for Short<N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<const N: usize> Eq for Short<N> {}

impl<const N: usize> PartialOrd for Short<N> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<const N: usize> Ord for Short<N> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

/// A wake as an entry has it; ordered as wakes fire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wake {
    /// When.
    pub at: Stamp,
    /// The first bytes of the rank as a number, which mostly decides.
    first: u64,
    /// The guest's order.
    pub rank: Rank,
    /// The order of setting.
    pub set: u64,
}

impl Wake {
    /// A wake; `set` is given only once.
    pub fn new(at: Stamp, rank: &[u8], set: u64) -> Wake {
        let mut first = [0; 8];
        let len = rank.len().min(8);
        first[..len].copy_from_slice(&rank[..len]);
        Wake { at, first: u64::from_be_bytes(first), rank: Rank::of(rank), set }
    }
}

/// What the place of an entry is to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It is its entry.
    Live,
    /// It was taken away since the last seal, and is only remembered.
    Retired,
    /// Nothing: the next entry may have it.
    Free,
}

/// One key's state in one space.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Hash of the key.
    pub key: u128,
    /// Number of its creation; 0 where nothing is evicted.
    pub born: u64,
    /// Until when it counts, ns.
    pub expires: i64,
    /// Its part of the digest; 0 until it is sealed.
    pub digest: u128,
    /// Kind of the value's cell.
    pub kind: u8,
    /// The guest's own bytes.
    pub value: Short<54>,
    /// What it keeps, by number, in order.
    pub kept: SmallVec<[(u8, Kept); 1]>,
    /// Its wake.
    pub wake: Option<Wake>,
    /// What the kept rows count for: told by `keep`, so that nobody has to look at them.
    pub kept_bytes: u64,
    /// Whether it is there.
    pub life: Life,
}

impl Entry {
    /// With nothing but a value; its digest comes with the seal.
    pub fn new(key: u128, born: u64, expires: i64, kind: u8, value: &[u8]) -> Entry {
        let (kept, wake, life) = (SmallVec::new(), None, Life::Live);
        Entry { key, born, expires, digest: 0, kind, value: Short::of(value), kept, wake, kept_bytes: 0, life }
    }

    /// What it counts for in quotas: about what it takes in memory.
    pub fn bytes(&self) -> u64 {
        let rank = self.wake.as_ref().map_or(0, |w| 64 + w.rank.len());
        (128 + self.value.len() + rank) as u64 + self.kept_bytes
    }

    /// Counts what it keeps.
    pub fn weigh(&mut self) {
        let kept = |(_, kept): &(u8, Kept)| match kept {
            Kept::Image(image) => image.size() + 32,
            Kept::Mark(_) => 32,
        };
        self.kept_bytes = self.kept.iter().map(kept).sum::<usize>() as u64;
    }

    /// Something of each of its cache lines; the number says nothing.
    fn lines(&self) -> u64 {
        let value = self.value.first().copied().unwrap_or(0);
        let wake = self.wake.as_ref().map_or(0, |wake| wake.set);
        self.key as u64 ^ self.expires as u64 ^ self.kept_bytes ^ wake ^ u64::from(value ^ self.kind)
    }

    /// Until when it counts; what waits always does (X3).
    pub fn counts_until(&self) -> i64 {
        if self.wake.is_some() { NEVER } else { self.expires }
    }

    /// Keeps something as this number, or lets it go.
    pub fn keep(&mut self, number: u8, kept: Option<Kept>) {
        match (self.kept.binary_search_by_key(&number, |(n, _)| *n), kept) {
            (Ok(at), Some(kept)) => self.kept[at].1 = kept,
            (Ok(at), None) => drop(self.kept.remove(at)),
            (Err(at), Some(kept)) => self.kept.insert(at, (number, kept)),
            (Err(_), None) => {}
        }
        self.weigh();
    }
}

/// Entries in a chunk: growing moves none of them.
const CHUNK: usize = 1024;

/// The entries of one space. Those taken away since the last seal stay in their places, out of the index: undo and seal
/// want them, and moving them would cost more than all else that is done to them.
#[derive(Debug, Default)]
pub struct Entries {
    chunks: Vec<Vec<Entry>>,
    /// Low half of the key, and number in the slab.
    index: HashTable<(u64, u32)>,
    free: Vec<u32>,
    /// Where the next look for entries that are over begins.
    hand: u32,
}

impl Entries {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// The number of a key's entry.
    pub fn find(&self, key: u128) -> Option<u32> {
        let low = key as u64;
        self.index.find(low, |&(l, n)| l == low && self.get(n).is_some_and(|e| e.key == key)).map(|&(_, n)| n)
    }

    /// An entry by number.
    pub fn get(&self, number: u32) -> Option<&Entry> {
        self.place(number).filter(|entry| entry.life == Life::Live)
    }

    /// The same, to write to.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Entry> {
        self.place_mut(number).filter(|entry| entry.life == Life::Live)
    }

    /// An entry that was taken away, and is remembered.
    pub fn retired(&self, number: u32) -> Option<&Entry> {
        self.place(number).filter(|entry| entry.life == Life::Retired)
    }

    fn place(&self, number: u32) -> Option<&Entry> {
        self.chunks.get(number as usize / CHUNK)?.get(number as usize % CHUNK)
    }

    fn place_mut(&mut self, number: u32) -> Option<&mut Entry> {
        self.chunks.get_mut(number as usize / CHUNK)?.get_mut(number as usize % CHUNK)
    }

    /// Adds the entry of a key that has none, and returns its number.
    pub fn insert(&mut self, entry: Entry) -> u32 {
        let low = entry.key as u64;
        let number = match self.free.pop() {
            Some(number) => {
                self.chunks[number as usize / CHUNK][number as usize % CHUNK] = entry;
                number
            }
            None => {
                if self.chunks.last().is_none_or(|c| c.len() == CHUNK) {
                    self.chunks.push(Vec::with_capacity(if self.chunks.is_empty() { 4 } else { CHUNK }));
                }
                let chunks = self.chunks.len();
                let last = &mut self.chunks[chunks - 1];
                last.push(entry);
                ((chunks - 1) * CHUNK + last.len() - 1) as u32
            }
        };
        self.index.insert_unique(low, (low, number), |&(low, _)| low);
        number
    }

    /// Makes an entry with nothing but a value.
    pub fn make(&mut self, key: u128, born: u64, expires: i64, kind: u8, value: &[u8]) -> u32 {
        let Some(number) = self.free.pop() else {
            return self.insert(Entry::new(key, born, expires, kind, value));
        };
        if let Some(entry) = self.place_mut(number) {
            // What was released keeps nothing and has no wake.
            (entry.key, entry.born, entry.expires, entry.kind) = (key, born, expires, kind);
            (entry.digest, entry.kept_bytes, entry.life) = (0, 0, Life::Live);
            entry.value.set(value);
        }
        let low = key as u64;
        self.index.insert_unique(low, (low, number), |&(low, _)| low);
        number
    }

    /// Takes an entry away, and remembers it in its place.
    pub fn retire(&mut self, number: u32) -> Option<&Entry> {
        let entry = self.get_mut(number)?;
        entry.life = Life::Retired;
        let low = entry.key as u64;
        self.unindex(low, number);
        self.retired(number)
    }

    /// Brings back an entry that is remembered.
    pub fn revive(&mut self, number: u32) -> Option<&Entry> {
        let entry = self.place_mut(number).filter(|entry| entry.life == Life::Retired)?;
        entry.life = Life::Live;
        let low = entry.key as u64;
        self.index.insert_unique(low, (low, number), |&(low, _)| low);
        self.get(number)
    }

    /// Forgets an entry that was remembered: its place is free.
    pub fn release(&mut self, number: u32) {
        let Some(entry) = self.place_mut(number).filter(|entry| entry.life == Life::Retired) else { return };
        entry.life = Life::Free;
        // What lies elsewhere goes; the rest is written over.
        entry.kept.clear();
        entry.wake = None;
        if let Short::There(_) = entry.value {
            entry.value = Short::EMPTY;
        }
        self.free.push(number);
    }

    fn unindex(&mut self, low: u64, number: u32) {
        if let Ok(found) = self.index.find_entry(low, |&(_, n)| n == number) {
            found.remove();
        }
    }

    /// Every entry.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> + '_ {
        self.chunks.iter().flatten().filter(|entry| entry.life == Life::Live)
    }

    /// Every entry, with its number.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, &Entry)> + '_ {
        let entries = self.chunks.iter().flatten().enumerate();
        entries.filter(|(_, entry)| entry.life == Life::Live).map(|(at, entry)| (at as u32, entry))
    }

    /// The same with the places that the next entries get, so many.
    pub fn touch_free(&self, entries: usize) {
        let next = self.free.iter().rev().take(entries).filter_map(|&number| self.place(number));
        std::hint::black_box(next.fold(0, |seen, entry| seen ^ entry.lines()));
    }

    /// Reads the entries with these numbers and what they keep, all at once, so that the waits for memory overlap: what
    /// stands for prefetch without unsafe code.
    pub fn touch(&self, numbers: impl Iterator<Item = u32> + Clone) {
        let entries = || numbers.clone().filter_map(|number| self.place(number));
        let seen =
            entries().fold(0, |seen, e| seen ^ e.key as u64 ^ e.expires as u64 ^ u64::from(e.kind) ^ e.kept_bytes);
        std::hint::black_box(seen);
        let images = || {
            entries().filter_map(|entry| match entry.kept.first() {
                Some((_, Kept::Image(image))) => Some(image),
                _ => None,
            })
        };
        std::hint::black_box(images().fold(0, |seen, image| seen ^ image.arrival ^ image.timestamp as u64));
        std::hint::black_box(images().fold(0, |seen, image| seen ^ image.value.lines()));
    }

    /// The entries of one chunk. An entry stays in its chunk; chunks are given up only when nothing is left.
    pub fn of_chunk(&self, number: usize) -> Option<impl Iterator<Item = &Entry> + '_> {
        self.chunks.get(number).map(|chunk| chunk.iter().filter(|entry| entry.life == Life::Live))
    }

    /// Returns the memory once nothing is left.
    pub fn shrink(&mut self) {
        if self.index.is_empty() && !self.chunks.is_empty() {
            *self = Entries::default();
        }
    }

    /// Looks at the next `budget` places for entries that are over at `floor` and wait for nothing.
    pub fn over(&mut self, floor: i64, budget: usize) -> Vec<u32> {
        let places = self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len()) as u32;
        let mut found = Vec::new();
        for _ in 0..budget.min(places as usize) {
            self.hand = if self.hand >= places.saturating_sub(1) { 0 } else { self.hand + 1 };
            if let Some(entry) = self.get(self.hand)
                && entry.counts_until() <= floor
            {
                found.push(self.hand);
            }
        }
        found
    }
}
