//! Entries: what one key has in one space, in a slab with an index of its own per space.

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::Kept;
use crate::time::{NEVER, Stamp};

/// The guest's order among equal wakes.
pub type Rank = SmallVec<[u8; 24]>;

/// A wake as an entry has it; ordered as wakes fire.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
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
        Wake { at, first: u64::from_be_bytes(first), rank: Rank::from_slice(rank), set }
    }
}

impl Clone for Wake {
    /// By hand, since a small vector clones its elements one by one.
    fn clone(&self) -> Wake {
        Wake { at: self.at, first: self.first, rank: Rank::from_slice(&self.rank), set: self.set }
    }
}

/// One key's state in one space.
#[derive(Debug)]
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
    pub value: SmallVec<[u8; 24]>,
    /// What it keeps, by number, in order.
    pub kept: SmallVec<[(u8, Kept); 1]>,
    /// Its wake.
    pub wake: Option<Wake>,
}

impl Clone for Entry {
    fn clone(&self) -> Entry {
        Entry { value: SmallVec::from_slice(&self.value), kept: self.kept.clone(), wake: self.wake.clone(), ..*self }
    }
}

impl Entry {
    /// What it counts for in quotas: about what it takes in memory.
    pub fn bytes(&self) -> u64 {
        let kept = |(_, kept): &(u8, Kept)| match kept {
            Kept::Image(image) => image.size() + 32,
            Kept::Mark(_) => 32,
        };
        let rank = self.wake.as_ref().map_or(0, |w| 64 + w.rank.len());
        (128 + self.value.len() + rank + self.kept.iter().map(kept).sum::<usize>()) as u64
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
    }
}

/// Entries in a chunk: growing moves none of them.
const CHUNK: usize = 1024;

/// The entries of one space.
#[derive(Debug, Default)]
pub struct Entries {
    chunks: Vec<Vec<Option<Entry>>>,
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
        self.chunks.get(number as usize / CHUNK)?.get(number as usize % CHUNK)?.as_ref()
    }

    /// The same, to write to.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Entry> {
        self.chunks.get_mut(number as usize / CHUNK)?.get_mut(number as usize % CHUNK)?.as_mut()
    }

    /// Adds the entry of a key that has none, and returns its number.
    pub fn insert(&mut self, entry: Entry) -> u32 {
        let low = entry.key as u64;
        let number = self.free.pop().unwrap_or_else(|| {
            if self.chunks.last().is_none_or(|c| c.len() == CHUNK) {
                self.chunks.push(Vec::with_capacity(if self.chunks.is_empty() { 4 } else { CHUNK }));
            }
            let chunks = self.chunks.len();
            let last = &mut self.chunks[chunks - 1];
            last.push(None);
            ((chunks - 1) * CHUNK + last.len() - 1) as u32
        });
        self.chunks[number as usize / CHUNK][number as usize % CHUNK] = Some(entry);
        self.index.insert_unique(low, (low, number), |&(low, _)| low);
        number
    }

    /// Takes an entry away.
    pub fn take(&mut self, number: u32) -> Option<Entry> {
        let entry = self.chunks.get_mut(number as usize / CHUNK)?.get_mut(number as usize % CHUNK)?.take()?;
        let low = entry.key as u64;
        if let Ok(found) = self.index.find_entry(low, |&(_, n)| n == number) {
            found.remove();
        }
        self.free.push(number);
        Some(entry)
    }

    /// Every entry.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> + '_ {
        self.chunks.iter().flatten().flatten()
    }

    /// Every entry, with its number.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, &Entry)> + '_ {
        self.chunks.iter().flatten().enumerate().filter_map(|(at, entry)| Some((at as u32, entry.as_ref()?)))
    }

    /// The entries of one chunk. An entry stays in its chunk; chunks are given up only when nothing is left.
    pub fn of_chunk(&self, number: usize) -> Option<impl Iterator<Item = &Entry> + '_> {
        self.chunks.get(number).map(|chunk| chunk.iter().flatten())
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
