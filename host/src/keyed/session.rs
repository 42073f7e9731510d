//! A guest's state imports during one call, checked against the contract.

use std::sync::Arc;

use hashbrown::HashTable;

use super::entry::{Entry, Wake};
use super::log::Old;
use super::marks::FREE_NONE;
use super::quota::Sum;
use super::{Begin, ExpiresBy, Kept, Keyed, Spent};
use crate::batch::{Batch, Column, Image, Origin, kind};
use crate::guest::call::{Dues, Entries, Refusal, StampsOf, State, View};
use crate::time::{END, NONE_YET, Stamp};

/// Most bytes of a rank.
const RANK: usize = 64;
/// What an entry may add besides its row's bytes, for the guess of `open`.
const GUESS: u64 = 512;

/// The state while one guest call has it.
#[derive(Debug)]
pub struct Session {
    pub(super) keyed: Keyed,
    pub(super) begin: Begin,
    slots: Vec<Slot>,
    /// Slots by key and space.
    index: HashTable<u32>,
    /// Marks and entries that expire up to here are over for every row from now on.
    pub(super) floor: i64,
    /// Origins of the marks that `seen` found, by row; empty until it does.
    pub(super) found: Vec<Option<Origin>>,
    full_at: Option<u32>,
    had_due: bool,
    had_open: bool,
    /// The row whose image was made last.
    pub(super) image: Option<(u32, Arc<Image>)>,
}

#[derive(Debug)]
struct Slot {
    space: i64,
    key: u128,
    /// Its entry, if there is one.
    number: Option<u32>,
    /// Its wake was handed out, and the entry has it still: until it is in the log.
    spent: bool,
    /// It is in the log of this call, and what it was there.
    logged: bool,
    old: Option<Old>,
}

/// What is left when a call is over.
#[derive(Debug)]
pub struct Finished {
    /// The state, with the writes of the call in it.
    pub keyed: Keyed,
    /// The rows of the stage's input, back.
    pub batch: Batch,
    /// After `Fault::Full`: rows of the call before this one fit for certain. A call of one row is judged exactly.
    pub full_at: Option<u32>,
    slots: Vec<Slot>,
    found: Vec<Option<Origin>>,
}

impl Finished {
    /// What a slot kept as this number when the call began; nothing once the state is taken or sealed.
    pub fn kept(&self, slot: u32, number: u8) -> Option<&Kept> {
        let slot = self.slots.get(slot as usize)?;
        let entry = match slot.logged {
            true => self.keyed.old(slot.space, slot.old?),
            false => self.keyed.entry(slot.space, slot.number?),
        }?;
        entry.kept.iter().find(|(n, _)| *n == number).map(|(_, kept)| kept)
    }

    /// The image a slot kept as this number when the call began.
    pub fn image(&self, slot: u32, number: u8) -> Option<&Arc<Image>> {
        match self.kept(slot, number)? {
            Kept::Image(image) => Some(image),
            Kept::Mark(_) => None,
        }
    }

    /// Position of what a slot kept as this number when the call began.
    pub fn origin(&self, slot: u32, number: u8) -> Option<Origin> {
        self.kept(slot, number).map(Kept::origin)
    }

    /// Position of the mark that `seen` found for a row of the call.
    pub fn found(&self, row: u32) -> Option<Origin> {
        self.found.get(row as usize).copied().flatten()
    }
}

impl Session {
    pub(super) fn new(mut keyed: Keyed, begin: Begin) -> Session {
        // A row that an earlier stage emitted may see one step less than the row before it: hence the one less. At the
        // end of bounded input the clock may yet go back.
        let floor = match keyed.settings.expires_by {
            ExpiresBy::Now => begin.now,
            _ => begin.seen.iter().map(|seen| seen.time).min().unwrap_or(FREE_NONE).saturating_sub(1),
        };
        let floor = if floor >= END - 1 { FREE_NONE } else { floor };
        keyed.full = None;
        let rows = begin.keys.len();
        if floor > FREE_NONE {
            keyed.free_some(floor);
        }
        Session {
            keyed,
            begin,
            slots: Vec::with_capacity(rows),
            index: HashTable::with_capacity(rows),
            floor,
            found: Vec::new(),
            full_at: None,
            had_due: false,
            had_open: false,
            image: None,
        }
    }

    /// Takes the state back.
    pub fn finish(mut self) -> Finished {
        for slot in 0..self.slots.len() as u32 {
            if self.slots.get(slot as usize).is_some_and(|slot| slot.spent) {
                self.log(slot);
            }
        }
        let Session { keyed, begin, slots, found, full_at, .. } = self;
        Finished { keyed, batch: begin.batch, full_at, slots, found }
    }

    pub(super) fn rows(&self) -> usize {
        self.begin.keys.len()
    }

    /// The time that expiry is compared with for a row.
    pub(super) fn clock(&self, row: usize) -> i64 {
        let seen = self.begin.seen.get(row).map_or(NONE_YET, |seen| seen.time);
        match self.keyed.settings.expires_by {
            ExpiresBy::Time => seen.max(self.begin.times.get(row).copied().unwrap_or(NONE_YET)),
            ExpiresBy::Seen => seen,
            ExpiresBy::Now => self.begin.now,
        }
    }

    /// The time that bounds go by: an entry counts until what is seen has passed it, whatever the time of the row that
    /// needs its place (X8).
    pub(super) fn quota_clock(&self, row: usize) -> i64 {
        match self.keyed.settings.expires_by {
            ExpiresBy::Now => self.begin.now,
            _ => self.begin.seen.get(row).map_or(NONE_YET, |seen| seen.time),
        }
    }

    pub(super) fn refuse(&mut self, row: usize, clock: i64) -> Refusal {
        self.full_at = Some(row as u32);
        self.keyed.full = Some(clock);
        Refusal::Full
    }

    /// The slot of a key in a space, and whether it is new. `number`: of its entry, if it is.
    fn slot(&mut self, space: i64, key: u128, number: Option<u32>) -> (u32, bool) {
        let hash = (key as u64).wrapping_add((space as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let slots = &self.slots;
        let same = |&at: &u32| slots.get(at as usize).is_some_and(|s| s.key == key && s.space == space);
        if let Some(&at) = self.index.find(hash, same) {
            return (at, false);
        }
        let at = self.slots.len() as u32;
        self.slots.push(Slot { space, key, number, spent: false, logged: false, old: None });
        let slots = &self.slots;
        self.index.insert_unique(hash, at, |&at| {
            slots
                .get(at as usize)
                .map_or(0, |s| (s.key as u64).wrapping_add((s.space as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        });
        (at, true)
    }

    /// Before the first write of the call to a slot: its entry as it stands goes into the log.
    fn log(&mut self, slot: u32) {
        let Some(slot) = self.slots.get_mut(slot as usize) else { return };
        if !slot.logged {
            slot.logged = true;
            slot.old = self.keyed.log_entry(slot.space, slot.key, slot.number);
            if let Some(number) = slot.number.filter(|_| std::mem::take(&mut slot.spent)) {
                self.keyed.lose_wake(slot.space, number);
            }
        }
    }

    /// The entry of a slot, logged: there must be one.
    fn writable(&mut self, slot: u32, what: &str) -> Result<(i64, u32), Refusal> {
        let Some(&Slot { space, number: Some(number), .. }) = self.slots.get(slot as usize) else {
            return Err(breach(format!("{what} of slot {slot}, where there is no entry")));
        };
        self.log(slot);
        Ok((space, number))
    }

    /// Changes the entry of a slot, but for its wake.
    fn edit(&mut self, slot: u32, what: &str, change: impl FnOnce(&mut Entry)) -> Result<(), Refusal> {
        let (space, number) = self.writable(slot, what)?;
        if self.keyed.edit(space, number, change) { self.check_bytes() } else { Ok(()) }
    }

    fn check_bytes(&mut self) -> Result<(), Refusal> {
        if self.keyed.settings.max_bytes.is_none() {
            return Ok(());
        }
        let clock = self.quota_clock(0);
        let live = self.keyed.quota.live(clock);
        // Only bytes: the number was decided when the entry was made.
        if self.keyed.quota.fits(Sum { count: 0, ..live }, Sum::default()) {
            return Ok(());
        }
        Err(self.refuse(0, clock))
    }

    fn check_slots(&self, slots: &[u32], what: &str) -> Result<(), Refusal> {
        match slots.iter().find(|&&slot| slot as usize >= self.slots.len()) {
            Some(slot) => Err(breach(format!("{what} of slot {slot}, of {} handed out", self.slots.len()))),
            None => Ok(()),
        }
    }

    /// In a call of several rows, entries that may come have room beside all that is there now, whatever goes during
    /// the call: only then is the answer the same as for one row after the other. A call of one row is judged by what
    /// it writes.
    fn check_open(&mut self, pairs: &[(u32, i64)]) -> Result<(), Refusal> {
        if self.rows() < 2 || !self.keyed.quota.is_bound() {
            return Ok(());
        }
        let first = (0..self.rows()).map(|row| self.quota_clock(row)).min().unwrap_or(NONE_YET);
        let last = (0..self.rows()).map(|row| self.clock(row)).max().unwrap_or(NONE_YET);
        let live = self.keyed.quota.live(first);
        let mut more = Sum::default();
        let mut new = std::collections::BTreeSet::new();
        for &(row, space) in pairs {
            let Some(&key) = self.begin.keys.get(row as usize) else { continue };
            let entry = self.keyed.find(space, key).and_then(|number| self.keyed.entry(space, number));
            if entry.is_none_or(|entry| entry.counts_until() <= last) && new.insert((space, key)) {
                more.count += 1;
            }
            more.bytes += GUESS + self.row_bytes(row);
            if more.count > 0 && !self.keyed.quota.fits(live, more) {
                return Err(self.refuse(row as usize, self.quota_clock(row as usize)));
            }
        }
        Ok(())
    }
}

pub(super) fn breach(text: String) -> Refusal {
    Refusal::Breach(text)
}

fn check_pairs(what: &str, slots: usize, others: usize) -> Result<(), Refusal> {
    if slots == others {
        return Ok(());
    }
    Err(breach(format!("{what} with {slots} slots and {others} of what belongs to them")))
}

fn push_entry(entries: &mut Entries, entry: Option<&Entry>) {
    match entry {
        Some(entry) => {
            entries.values.push(entry.kind, &entry.value);
            entries.expires.push(entry.expires);
        }
        None => {
            entries.values.push(kind::MISSING, &[]);
            entries.expires.push(NONE_YET);
        }
    }
}

impl State for Session {
    fn seen(&mut self, space: i64, expires: &[i64], clears: &[u32], refresh: bool) -> Result<Vec<u8>, Refusal> {
        self.seen_rows(space, expires, clears, refresh)
    }

    fn due(&mut self) -> Result<Dues, Refusal> {
        if self.had_due || self.had_open {
            return Err(breach("due may be called once, before open".into()));
        }
        self.had_due = true;
        let spent = self.keyed.spend(self.begin.end, self.begin.limit);
        let mut dues = Dues::with_capacity(spent.len());
        for Spent { wake, space, key, number } in spent {
            dues.spaces.push(space);
            dues.wakes.times.push(wake.at.time);
            dues.wakes.inputs.push(wake.at.input);
            dues.ranks.push(kind::BYTES, &wake.rank);
            push_entry(&mut dues.entries, self.keyed.entry(space, number));
            let (slot, _) = self.slot(space, key, Some(number));
            if let Some(slot) = self.slots.get_mut(slot as usize) {
                slot.spent = true;
            }
            if self.keyed.quota.is_bound() {
                self.log(slot);
            }
        }
        Ok(dues)
    }

    fn open(&mut self, rows: &[u32], spaces: &[i64]) -> Result<View, Refusal> {
        if self.had_open {
            return Err(breach("open may be called once".into()));
        }
        self.had_open = true;
        let (all, count) = (self.rows(), if rows.is_empty() { self.rows() } else { rows.len() });
        if spaces.len() != count && spaces.len() != 1 {
            return Err(breach(format!("open of {count} rows with {} spaces", spaces.len())));
        }
        if let Some(row) = rows.iter().find(|&&row| row as usize >= all) {
            return Err(breach(format!("open of row {row} of {all}")));
        }
        let pair = |i: usize| {
            let row = if rows.is_empty() { i as u32 } else { rows[i] };
            (row, spaces[if spaces.len() == 1 { 0 } else { i }])
        };
        let pairs: Vec<(u32, i64)> = (0..count).map(pair).collect();
        self.check_open(&pairs)?;
        let mut view = View { slots: Vec::with_capacity(count), entries: Entries::with_capacity(count) };
        // All lookups first: nothing else then stands between them, and their waits for memory overlap.
        let find = |&(row, space): &(u32, i64)| self.keyed.find(space, self.begin.keys[row as usize]);
        let found: Vec<Option<u32>> = pairs.iter().map(find).collect();
        for ((row, space), found) in pairs.into_iter().zip(found) {
            let key = self.begin.keys[row as usize];
            let (slot, is_new) = self.slot(space, key, found);
            view.slots.push(slot);
            if is_new {
                let number = self.slots.last().and_then(|slot| slot.number);
                push_entry(&mut view.entries, number.and_then(|number| self.keyed.entry(space, number)));
            }
        }
        Ok(view)
    }

    fn remove(&mut self, slots: &[u32]) -> Result<(), Refusal> {
        self.check_slots(slots, "remove")?;
        for &slot in slots {
            let slot = &mut self.slots[slot as usize];
            let Some(number) = slot.number.take() else { continue };
            if slot.logged {
                if let Some((_, table)) = self.keyed.retire(slot.space, number, false) {
                    self.keyed.release(slot.space, number, table);
                }
            } else {
                slot.logged = true;
                slot.old = self.keyed.remove_logged(slot.space, number, std::mem::take(&mut slot.spent));
            }
        }
        Ok(())
    }

    fn put(&mut self, slots: &[u32], values: &Column, expires: &[i64]) -> Result<(), Refusal> {
        self.check_slots(slots, "put")?;
        check_pairs("put", slots.len(), values.rows())?;
        check_pairs("put", slots.len(), expires.len())?;
        self.keyed.touch_free(slots.len());
        for (i, &slot) in slots.iter().enumerate() {
            let (value, expires) = (values.cell(i), expires[i]);
            if matches!(value.kind, kind::MISSING | kind::UNCHANGED) {
                return Err(breach(format!("put of slot {slot} without a value")));
            }
            self.log(slot);
            let Slot { space, key, number, .. } = self.slots[slot as usize];
            if number.is_some() {
                self.edit(slot, "put", |entry| {
                    entry.kind = value.kind;
                    entry.value.set(value.bytes);
                    entry.expires = expires;
                })?;
                continue;
            }
            let one = self.rows() < 2;
            let clock = self.quota_clock(0);
            if one && self.keyed.quota.is_bound() {
                let live = self.keyed.quota.live(clock);
                if !self.keyed.quota.fits(live, Sum { count: 1, bytes: 0 }) {
                    return Err(self.refuse(0, clock));
                }
            }
            let number = self.keyed.make_entry(space, key, expires, value);
            self.slots[slot as usize].number = Some(number);
            self.check_bytes()?;
        }
        Ok(())
    }

    fn keep(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32]) -> Result<(), Refusal> {
        self.keep_as("keep", slots, numbers, rows, |session, row| Kept::Image(session.image(row)))
    }

    fn mark(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32]) -> Result<(), Refusal> {
        self.keep_as("mark", slots, numbers, rows, |session, row| Kept::Mark(session.origin(row)))
    }

    fn wake(&mut self, slots: &[u32], wakes: StampsOf<'_>, ranks: &Column) -> Result<(), Refusal> {
        self.check_slots(slots, "wake")?;
        check_pairs("wake", slots.len(), wakes.times.len())?;
        if !wakes.inputs.is_empty() {
            check_pairs("wake", slots.len(), wakes.inputs.len())?;
        }
        if ranks.rows() != 0 {
            check_pairs("wake", slots.len(), ranks.rows())?;
        }
        for (i, &slot) in slots.iter().enumerate() {
            let rank = ranks.cell(i).bytes;
            if rank.len() > RANK {
                return Err(breach(format!("wake of slot {slot} with a rank of {} bytes, at most {RANK}", rank.len())));
            }
            let at = wakes.get(i).unwrap_or(Stamp::START);
            let wake = (at.time != NONE_YET).then(|| {
                self.keyed.set += 1;
                Wake::new(at, rank, self.keyed.set)
            });
            let (space, number) = self.writable(slot, "wake")?;
            if self.keyed.set_wake(space, number, wake) {
                self.check_bytes()?;
            }
        }
        Ok(())
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

impl Session {
    fn keep_as(
        &mut self,
        what: &str,
        slots: &[u32],
        numbers: &[u8],
        rows: &[u32],
        kept: impl Fn(&mut Session, u32) -> Kept,
    ) -> Result<(), Refusal> {
        self.check_slots(slots, what)?;
        check_pairs(what, slots.len(), numbers.len())?;
        check_pairs(what, slots.len(), rows.len())?;
        let all = self.rows() as u32;
        for ((&slot, &number), &row) in slots.iter().zip(numbers).zip(rows) {
            if row > all {
                return Err(breach(format!("{what} of row {row} of {all}")));
            }
            let kept = (row < all).then(|| kept(self, row));
            self.edit(slot, what, |entry| entry.keep(number, kept))?;
        }
        Ok(())
    }
}
