//! Keyed state of one stage of one task: marks, entries, their wakes and expiry, quotas, and the one log of writes.
//!
//! Writes go in place. The log of what was there before serves as savepoint, as the list of what is dirty and as the
//! source of the changes that become durable (`seal`). Expiry is judged when an entry is read (X4); what is over may be
//! taken away at any later moment, which no answer can tell.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::batch::{Batch, Cell, Column, Image, Origin};
use crate::format::StoredMark;
use crate::time::{NONE_YET, Stamp};

mod entry;
#[cfg(test)]
mod forget_tests;
mod image;
#[cfg(test)]
pub(crate) mod keyed_tests;
mod layout;
mod log;
mod marks;
mod pending;
mod quota;
mod rebuild;
mod seal;
mod seen;
mod session;
#[cfg(test)]
mod session_tests;
mod slices;
mod wakes;

use entry::{Entries, Entry, Wake};
use log::Step;
use marks::{MARK_BYTES, Marks};
use pending::Pending;
use quota::{Item, Quota, Sum};
use wakes::Wakes;

pub use crate::format::Change;
pub use layout::Layout;
pub use rebuild::Grave;
pub use session::{Finished, Session};
pub use slices::Cursor;

/// What expiry is compared with: the trait `expires-by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiresBy {
    /// The row's time or what it sees, the later.
    Time,
    /// What the row sees.
    Seen,
    /// Processing time.
    #[default]
    Now,
}

/// What happens at a bound (X8). `Pause` and `Fail` are the stage's to do: here both refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Wait.
    #[default]
    Pause,
    /// Stop.
    Fail,
    /// The oldest by creation goes.
    EvictOldest,
}

/// What a stage's state keeps to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What expiry is compared with.
    pub expires_by: ExpiresBy,
    /// Most live entries and marks.
    pub max_entries: Option<u64>,
    /// Most live bytes.
    pub max_bytes: Option<u64>,
    /// What happens at either bound.
    pub overflow: Overflow,
}

/// One call of a keyed guest, as its state imports see it.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The rows of the stage's input.
    pub batch: Batch,
    /// Row of the call -> row of the batch.
    pub rows: Vec<u32>,
    /// Salted hash of the key, per row of the call.
    pub keys: Vec<u128>,
    /// The key in updating output (O6), per row of the call; kept with images.
    pub output_keys: Option<Column>,
    /// Time of each row of the call on the stage's clock, ns; empty without wants-time.
    pub times: Vec<i64>,
    /// What each row sees, and one more; empty without wants-time.
    pub seen: Vec<Stamp>,
    /// Wakes up to here, this one included, are due in this call.
    pub end: Stamp,
    /// Processing time, ns.
    pub now: i64,
    /// Most wakes this call takes; the first ones.
    pub limit: usize,
}

/// What an entry keeps of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The row itself: it can become an output.
    Image(Arc<Image>),
    /// Its position: it can be a winner.
    Mark(Origin),
}

impl Kept {
    /// Where the row came from.
    pub fn origin(&self) -> Origin {
        match self {
            Kept::Image(image) => image.origin,
            Kept::Mark(origin) => *origin,
        }
    }
}

/// An entry taken away because its wake cannot be done.
#[derive(Clone, Debug)]
pub struct Blamed {
    /// Its wake.
    pub wake: Stamp,
    /// Its space.
    pub space: i64,
    /// What it kept, by number.
    pub kept: Vec<(u8, Kept)>,
}

/// A savepoint: a position in the log, and the numbers that are given only once as they stood.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    log: usize,
    born: u64,
    set: u64,
    evicted_live: u64,
    expired: u64,
}

/// Size of a stage's state (X10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Marks, some of which may be over.
    pub marks: u64,
    /// Entries, some of which may be over.
    pub entries: u64,
    /// Entries that wait for their wake.
    pub waiting: u64,
    /// Spaces in use.
    pub spaces: u64,
    /// Bytes that marks and entries count for.
    pub bytes: u64,
    /// Live entries and marks evicted at a bound since the start (counter `evicted_live`).
    pub evicted_live: u64,
    /// Entries and marks freed since the start because they were over, or their space was.
    pub expired: u64,
    /// Writes since the last seal.
    pub unsealed: u64,
    /// Bytes of memory in the tables of marks.
    pub mark_memory: u64,
}

/// What a stage has in one space: tables of their own, so that a space goes as a whole.
#[derive(Debug, Default)]
struct Space {
    marks: Marks,
    entries: Entries,
    /// Bytes that the entries count for.
    bytes: u64,
    /// Entries with a wake.
    waiting: usize,
    /// Entries made since the last look for such that are over.
    created: usize,
    /// Sum over what is sealed.
    digest: u128,
    /// Given when an entry is first remembered here: another space may have this one's number later. 0: not yet.
    table: u32,
}

/// The state of one stage of one task.
#[derive(Debug, Default)]
pub struct Keyed {
    settings: Settings,
    spaces: BTreeMap<i64, Space>,
    /// Every wake, as they fire: space and number of its entry.
    wakes: Wakes,
    log: Vec<Step>,
    /// So many steps of the log were given by `ahead`.
    ahead: usize,
    /// Entries as they were, for the log.
    olds: Vec<Entry>,
    quota: Quota,
    /// Tables of entries that were numbered so far.
    tables: u32,
    /// Creations so far; counted where something may be evicted.
    born: u64,
    /// Wakes set so far.
    set: u64,
    evicted_live: u64,
    expired: u64,
    /// The clock of the row for which there was no room.
    full: Option<i64>,
    /// It cannot be read or written now (X12).
    failing: bool,
    /// The savepoint of the last seal.
    base: Mark,
    /// How its marks lie in a changelog.
    layout: Layout,
    /// What the last seal did, until it is known whether that lasts.
    pending: Option<Box<Pending>>,
}

impl Keyed {
    /// Empty state.
    pub fn new(settings: Settings) -> Keyed {
        Keyed { settings, quota: Quota::new(&settings), ..Keyed::default() }
    }

    /// What it keeps to.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The same state under other settings. Take the changes of the log out first (`seal`): they begin anew.
    #[must_use]
    pub fn with_settings(self, settings: Settings) -> Keyed {
        if self.settings == settings {
            return self;
        }
        let (evicted_live, expired) = (self.evicted_live, self.expired);
        let (failing, layout) = (self.failing, self.layout);
        Keyed { evicted_live, expired, failing, layout, ..Keyed::load(settings, self.dump()) }
    }

    /// Says whether the state can be reached; if not, the stage does what `on_error` says (X12).
    pub fn set_failing(&mut self, failing: bool) {
        self.failing = failing;
    }

    /// Whether it cannot be reached.
    pub fn is_failing(&self) -> bool {
        self.failing
    }

    /// Numbers that are given only once, so far: creations and wakes.
    pub fn numbers(&self) -> (u64, u64) {
        (self.born, self.set)
    }

    /// Gives the state to one guest call. Take a `mark` first: a call that faults or does not fit is undone to it.
    pub fn session(self, begin: Begin) -> Session {
        Session::new(self, begin)
    }

    /// The earliest wake.
    pub fn next_wake(&self) -> Option<Stamp> {
        self.wakes.first().map(|(wake, _)| wake.at)
    }

    /// The first wakes up to and with `upto`, at most `limit`, in the order in which they fire.
    pub fn due(&self, upto: Stamp, limit: usize) -> Vec<Stamp> {
        self.wakes.stamps(upto, limit)
    }

    /// Takes away the entry whose wake is the first (within `upto`): its guest cannot do it.
    pub fn blame(&mut self, upto: Stamp) -> Option<Blamed> {
        let (wake, (space, number)) = self.wakes.first()?;
        let wake = wake.at;
        if wake > upto {
            return None;
        }
        let old = self.remove_logged(space, number, false)?;
        let kept = self.old(space, old).map(|entry| entry.kept.to_vec());
        Some(Blamed { wake, space, kept: kept.unwrap_or_default() })
    }

    /// Frees the oldest entry or mark by creation (X8), never one that waits nor one that is over for the row: a row
    /// that sees `seen` at `now`, or the last one there was no room for. False: nothing could be freed.
    pub fn evict_oldest(&mut self, seen: Stamp, now: i64) -> bool {
        let clock = if self.settings.expires_by == ExpiresBy::Now { now } else { seen.time };
        self.evict(clock.max(self.full.unwrap_or(NONE_YET)))
    }

    /// Frees every space up to and with `upto`, whole, in one step: its time is over.
    pub fn expire_spaces(&mut self, upto: i64) {
        self.expired += self.drop_spaces(upto);
    }

    /// Frees every space up to and with `upto`, whole, in one step. Gives how many entries and marks were there.
    pub fn drop_spaces(&mut self, upto: i64) -> u64 {
        let mut freed = 0;
        while let Some((&number, _)) = self.spaces.first_key_value().filter(|(number, _)| **number <= upto) {
            if let Some(space) = self.detach(number) {
                freed += (space.marks.len() + space.entries.len()) as u64;
                self.log.push(Step::Space { space: number, old: Box::new(space) });
            }
        }
        freed
    }

    /// Sizes and counters.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            spaces: self.spaces.len() as u64,
            evicted_live: self.evicted_live,
            expired: self.expired,
            unsealed: self.log.len() as u64,
            ..Stats::default()
        };
        for space in self.spaces.values() {
            stats.marks += space.marks.len() as u64;
            stats.entries += space.entries.len() as u64;
            stats.waiting += space.waiting as u64;
            stats.mark_memory += space.marks.memory() as u64;
            stats.bytes += space.marks.len() as u64 * MARK_BYTES + space.bytes;
        }
        stats
    }

    fn evict(&mut self, clock: i64) -> bool {
        let Some(oldest) = self.quota.oldest(clock) else { return false };
        let done = if oldest.is_mark {
            self.unmark_logged(oldest.space, oldest.key)
        } else {
            let number = self.find(oldest.space, oldest.key);
            number.and_then(|number| self.remove_logged(oldest.space, number, false)).is_some()
        };
        self.evicted_live += u64::from(done);
        done
    }

    /// There is room for this much more, if need be after evicting.
    fn make_room(&mut self, clock: i64, more: Sum) -> bool {
        loop {
            let live = self.quota.live(clock);
            if self.quota.fits(live, more) {
                return true;
            }
            if !self.quota.evicts() || !self.evict(clock) {
                return false;
            }
        }
    }

    fn next_born(&mut self) -> u64 {
        self.born += u64::from(self.quota.evicts());
        if self.quota.evicts() { self.born } else { 0 }
    }

    fn find(&self, space: i64, key: u128) -> Option<u32> {
        self.spaces.get(&space)?.entries.find(key)
    }

    fn entry(&self, space: i64, number: u32) -> Option<&Entry> {
        self.spaces.get(&space)?.entries.get(number)
    }

    /// Adds an entry, its wake with it; not logged.
    fn put_entry(&mut self, number: i64, entry: Entry) -> u32 {
        if self.quota.is_bound() {
            self.quota.add(&item(number, &entry));
        }
        let wake = entry.wake.clone();
        let space = self.spaces.entry(number).or_default();
        space.bytes += entry.bytes();
        space.waiting += usize::from(wake.is_some());
        space.created += 1;
        let at = space.entries.insert(entry);
        if let Some(wake) = wake {
            self.wakes.insert(wake, (number, at));
        }
        at
    }

    /// Makes an entry with nothing but a value; not logged.
    fn make_entry(&mut self, number: i64, key: u128, expires: i64, value: Cell<'_>) -> u32 {
        let born = self.next_born();
        let space = self.spaces.entry(number).or_default();
        let at = space.entries.make(key, born, expires, value.kind, value.bytes);
        space.created += 1;
        if let Some(entry) = space.entries.get(at) {
            space.bytes += entry.bytes();
            if self.quota.is_bound() {
                self.quota.add(&item(number, entry));
            }
        }
        at
    }

    /// Takes an entry away, its wake with it, and remembers it in its place; not logged. Gives its key, and the
    /// number of its table. `spent`: its
    /// wake is out of the index.
    fn retire(&mut self, number: i64, at: u32, spent: bool) -> Option<(u128, u32)> {
        let space = self.spaces.get_mut(&number)?;
        if space.table == 0 {
            self.tables += 1;
            space.table = self.tables;
        }
        let table = space.table;
        let entry = space.entries.retire(at)?;
        space.bytes -= entry.bytes();
        space.waiting -= usize::from(entry.wake.is_some());
        if let Some(wake) = entry.wake.as_ref().filter(|_| !spent) {
            self.wakes.remove(wake);
        }
        if self.quota.is_bound() {
            self.quota.sub(&item(number, entry));
        }
        Some((entry.key, table))
    }

    /// Brings an entry back that was retired, its wake with it; not logged.
    fn revive(&mut self, number: i64, at: u32) {
        let Some(space) = self.spaces.get_mut(&number) else { return };
        let Some(entry) = space.entries.revive(at) else { return };
        space.bytes += entry.bytes();
        space.waiting += usize::from(entry.wake.is_some());
        if let Some(wake) = entry.wake.clone() {
            self.wakes.insert(wake, (number, at));
        }
        if self.quota.is_bound() {
            self.quota.add(&item(number, entry));
        }
    }

    /// So many entries will be made.
    fn touch_free(&self, entries: usize) {
        // Which spaces they are for is not known yet: mostly it is one.
        if let Some((_, space)) = self.spaces.first_key_value().filter(|_| self.spaces.len() == 1) {
            space.entries.touch_free(entries);
        }
    }

    /// Forgets an entry that was retired.
    fn release(&mut self, number: i64, at: u32, table: u32) {
        if let Some(space) = self.spaces.get_mut(&number).filter(|space| space.table == table) {
            space.entries.release(at);
        }
    }

    /// Changes an entry in place, but for its wake; not logged. True: it counts for more bytes than before.
    fn edit(&mut self, number: i64, at: u32, change: impl FnOnce(&mut Entry)) -> bool {
        let Some(space) = self.spaces.get_mut(&number) else { return false };
        let Some(entry) = space.entries.get_mut(at) else { return false };
        if self.quota.is_bound() {
            self.quota.sub(&item(number, entry));
        }
        let before = entry.bytes();
        change(entry);
        let now = entry.bytes();
        space.bytes = space.bytes - before + now;
        if self.quota.is_bound() {
            self.quota.add(&item(number, entry));
        }
        now > before
    }

    /// Sets or cancels an entry's wake; not logged. True: it counts for more bytes than before.
    fn set_wake(&mut self, number: i64, at: u32, wake: Option<Wake>) -> bool {
        let (mut old, new) = (None, wake.clone());
        let grew = self.edit(number, at, |entry| old = std::mem::replace(&mut entry.wake, wake));
        if let Some(old) = &old {
            self.wakes.remove(old);
            self.waits(number, -1);
        }
        if let Some(new) = new {
            self.wakes.insert(new, (number, at));
            self.waits(number, 1);
        }
        grew
    }

    /// Takes the first wakes out of the index, up to and with `upto`, at most `limit`. Their entries still have them:
    /// they go into the log with them, and are to lose them (`lose_wake`) before anything else is done to them.
    fn spend(&mut self, upto: Stamp, limit: usize) -> Vec<Spent> {
        let mut spent = Vec::new();
        while spent.len() < limit
            && let Some((wake, (space, number))) = self.wakes.pop(upto)
        {
            spent.push(Spent { wake, space, key: 0, number });
        }
        let mut rest = spent.as_mut_slice();
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|spent| spent.space == first.space).count();
            let (some, others) = rest.split_at_mut(same);
            if let Some(space) = some.first().and_then(|spent| self.spaces.get(&spent.space)) {
                space.entries.touch(some.iter().map(|spent| spent.number));
                for spent in some.iter_mut() {
                    spent.key = space.entries.get(spent.number).map_or(0, |entry| entry.key);
                }
                // And what the index has of them: many go.
                let numbers = some.iter().filter_map(|spent| space.entries.find(spent.key));
                std::hint::black_box(numbers.fold(0, |a, b| a ^ b));
            }
            rest = others;
        }
        spent
    }

    /// Of a wake that was spent.
    fn lose_wake(&mut self, space: i64, number: u32) {
        self.edit(space, number, |entry| entry.wake = None);
        self.waits(space, -1);
    }

    fn waits(&mut self, number: i64, by: isize) {
        if let Some(space) = self.spaces.get_mut(&number) {
            space.waiting = space.waiting.saturating_add_signed(by);
        }
    }

    /// Takes a space out, its wakes with it; not logged.
    fn detach(&mut self, number: i64) -> Option<Space> {
        let space = self.spaces.remove(&number)?;
        if space.waiting > 0 {
            for wake in space.entries.iter().filter_map(|entry| entry.wake.as_ref()) {
                self.wakes.remove(wake);
            }
        }
        if self.quota.is_bound() {
            space.entries.iter().for_each(|entry| self.quota.sub(&item(number, entry)));
            space.marks.iter().for_each(|(hash, mark)| self.quota.sub(&mark_item(number, hash, &mark)));
        }
        Some(space)
    }

    /// Looks for entries that are over, about twice as many places as entries were made: memory stays in bounds
    /// without a sweep.
    fn free_some(&mut self, floor: i64) {
        let mut over = Vec::new();
        for (&number, space) in &mut self.spaces {
            // What waits is never over.
            if space.created > 0 && space.waiting < space.entries.len() {
                over.extend(space.entries.over(floor, 2 * space.created).into_iter().map(|at| (number, at)));
                space.created = 0;
            }
        }
        self.expired += over.len() as u64;
        for (space, at) in over {
            self.remove_logged(space, at, false);
        }
    }
}

/// A wake that is handed out, and the entry it was of.
struct Spent {
    wake: Wake,
    space: i64,
    key: u128,
    number: u32,
}

/// What an entry counts for.
fn item(space: i64, entry: &Entry) -> Item {
    Item {
        space,
        key: entry.key,
        is_mark: false,
        until: entry.counts_until(),
        bytes: entry.bytes(),
        born: entry.born,
        waits: entry.wake.is_some(),
    }
}

/// What a mark counts for.
fn mark_item(space: i64, hash: u128, mark: &StoredMark) -> Item {
    Item { space, key: hash, is_mark: true, until: mark.expires, bytes: MARK_BYTES, born: mark.born, waits: false }
}
