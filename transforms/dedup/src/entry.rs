//! What an entry of state remembers: its groups, each with the record it keeps. The bytes carry their own shape, so
//! that an entry made under other settings (another `emit`, audit on or off) still reads.
//!
//! Layout 1: the byte 1, then the groups one after the other. A group: flags (u8), number of the kept image (u8),
//! length of the standing (u32), the standing, then what the flags name, in their order, little-endian.

use smallvec::SmallVec;

use crate::standing::{POSITION, Standing, ordered, position_of};

const LAYOUT: u8 = 1;

// Flags. The two lowest bits are the phase.
const PHASE: u8 = 0x03;
const AGAIN: u8 = 0x04;
const HAS_TIME: u8 = 0x08;
const HAS_ANCHOR: u8 = 0x10;
const HAS_CONTENT: u8 = 0x20;
const HAS_WROTE: u8 = 0x40;
const HAS_AUDIT: u8 = 0x80;

/// Numbers from here on are marks: only the position of the kept record. Below it they are images.
pub const MARKS: u8 = 128;
/// No image and no mark.
pub const NOTHING_KEPT: u8 = u8::MAX;

/// How far a group is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Its candidate waits for the group to close.
    #[default]
    Waiting = 0,
    /// Its kept record has left.
    Written = 1,
    /// It was deleted; only the marker is left.
    Deleted = 2,
}

/// Records of which one is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// How far it is.
    pub phase: Phase,
    /// Something was written before the candidate that waits now.
    pub again: bool,
    /// Number of the kept image or mark.
    pub image: u8,
    /// Where the kept record stands; its position alone where nothing will be compared any more.
    pub standing: Standing,
    /// Time of the kept record on the stage's clock, ns; of what retention counts from.
    pub time: Option<i64>,
    /// Time of the record that opened the group (horizon), ns.
    pub anchor: Option<i64>,
    /// Content of what was written last.
    pub content: Option<[u8; 16]>,
    /// When it was written, on the stage's clock, ns.
    pub wrote: Option<i64>,
    /// Least and greatest time (ns) and number of its records.
    pub audit: Option<Audit>,
}

/// What the audit headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Least time, ns.
    pub first: i64,
    /// Greatest time, ns.
    pub last: i64,
    /// Number of records.
    pub count: u64,
}

impl Audit {
    /// One more record.
    pub fn add(&mut self, time: i64) {
        self.first = self.first.min(time);
        self.last = self.last.max(time);
        self.count += 1;
    }
}

/// The groups of an entry.
pub type Groups = SmallVec<[Group; 1]>;

impl Group {
    /// Does it keep the record at this position?
    pub fn keeps(&self, position: &[u8]) -> bool {
        self.phase != Phase::Deleted && position_of(&self.standing) == position
    }

    /// What decides among results that become final at one instant (O9): the kept record's time, where it is
    /// evaluated, its position, the start of the window.
    pub fn rank(&self, by_time: bool, window_start: i64) -> SmallVec<[u8; 32]> {
        let mut rank = SmallVec::new();
        if by_time {
            rank.extend_from_slice(&ordered(self.time.unwrap_or(i64::MIN)));
        }
        rank.extend_from_slice(position_of(&self.standing));
        rank.extend_from_slice(&ordered(window_start));
        rank
    }

    /// Can the kept record leave again?
    pub fn has_image(&self) -> bool {
        self.image < MARKS
    }

    /// Forgets the order value: nothing will be compared with it.
    pub fn settle(&mut self) {
        let start = self.standing.len().saturating_sub(POSITION);
        self.standing.drain(..start);
    }

    fn write(&self, into: &mut Vec<u8>) {
        let has = |there: bool, flag: u8| if there { flag } else { 0 };
        let flags = self.phase as u8
            | has(self.again, AGAIN)
            | has(self.time.is_some(), HAS_TIME)
            | has(self.anchor.is_some(), HAS_ANCHOR)
            | has(self.content.is_some(), HAS_CONTENT)
            | has(self.wrote.is_some(), HAS_WROTE)
            | has(self.audit.is_some(), HAS_AUDIT);
        into.push(flags);
        into.push(self.image);
        into.extend_from_slice(&(self.standing.len() as u32).to_le_bytes());
        into.extend_from_slice(&self.standing);
        for time in [self.time, self.anchor].into_iter().flatten() {
            into.extend_from_slice(&time.to_le_bytes());
        }
        if let Some(content) = &self.content {
            into.extend_from_slice(content);
        }
        if let Some(wrote) = self.wrote {
            into.extend_from_slice(&wrote.to_le_bytes());
        }
        if let Some(audit) = self.audit {
            into.extend_from_slice(&audit.first.to_le_bytes());
            into.extend_from_slice(&audit.last.to_le_bytes());
            into.extend_from_slice(&audit.count.to_le_bytes());
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Group> {
        let flags = take::<1>(bytes)?[0];
        let phase = match flags & PHASE {
            0 => Phase::Waiting,
            1 => Phase::Written,
            2 => Phase::Deleted,
            _ => return None,
        };
        let mut group = Group { phase, again: flags & AGAIN != 0, image: take::<1>(bytes)?[0], ..Group::default() };
        let length = u32::from_le_bytes(take(bytes)?) as usize;
        group.standing = Standing::from_slice(bytes.get(..length)?);
        *bytes = &bytes[length..];
        if flags & HAS_TIME != 0 {
            group.time = Some(i64::from_le_bytes(take(bytes)?));
        }
        if flags & HAS_ANCHOR != 0 {
            group.anchor = Some(i64::from_le_bytes(take(bytes)?));
        }
        if flags & HAS_CONTENT != 0 {
            group.content = Some(take(bytes)?);
        }
        if flags & HAS_WROTE != 0 {
            group.wrote = Some(i64::from_le_bytes(take(bytes)?));
        }
        if flags & HAS_AUDIT != 0 {
            let (first, last) = (i64::from_le_bytes(take(bytes)?), i64::from_le_bytes(take(bytes)?));
            group.audit = Some(Audit { first, last, count: u64::from_le_bytes(take(bytes)?) });
        }
        Some(group)
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

/// The groups of an entry's value.
///
/// # Panics
/// If these are no bytes of ours: state and module do not belong together, which is a fault.
pub fn read(mut value: &[u8]) -> Groups {
    let layout = take::<1>(&mut value).map(|byte| byte[0]);
    assert_eq!(layout, Some(LAYOUT), "an entry of a layout that this version of dedup does not know");
    let mut groups = Groups::new();
    while !value.is_empty() {
        match Group::read(&mut value) {
            Some(group) => groups.push(group),
            None => panic!("an entry that ends early"),
        }
    }
    groups
}

/// The value of an entry, in place of what `into` held.
pub fn write(groups: &[Group], into: &mut Vec<u8>) {
    into.clear();
    into.push(LAYOUT);
    for group in groups {
        group.write(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(groups: &[Group]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(groups, &mut bytes);
        assert_eq!(read(&bytes).as_slice(), groups);
        bytes
    }

    #[test]
    fn an_entry_reads_as_it_was_written() {
        let mark =
            Group { phase: Phase::Written, image: 1, standing: Standing::from_slice(&[7; 10]), ..Group::default() };
        assert_eq!(check(std::slice::from_ref(&mark)).len(), 17);
        let full = Group {
            phase: Phase::Waiting,
            again: true,
            image: 3,
            standing: Standing::from_slice(&[1; 100_000]),
            time: Some(-5),
            anchor: Some(i64::MAX),
            content: Some([9; 16]),
            wrote: Some(i64::MIN),
            audit: Some(Audit { first: 1, last: 2, count: 3 }),
        };
        check(&[full.clone(), mark, full]);
        check(&[]);
    }

    #[test]
    fn the_bytes_of_layout_1_stay_as_they_are() {
        let group = Group {
            phase: Phase::Written,
            image: 2,
            standing: Standing::from_slice(b"abcdefghij"),
            time: Some(1),
            ..Group::default()
        };
        let bytes = check(&[group]);
        assert_eq!(bytes, b"\x01\x09\x02\x0a\x00\x00\x00abcdefghij\x01\x00\x00\x00\x00\x00\x00\x00");
    }
}
