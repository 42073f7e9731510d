//! What an entry of state remembers: its groups, each with the record it keeps. The bytes carry their own shape, so
//! that an entry made under other settings (another `emit`, audit on or off) still reads.
//!
//! Layout 1: the byte 1, then the groups one after the other. A group: flags (u8), number of the kept image (u8),
//! length of the standing (u32), the standing, then what the flags name, in their order, little-endian. Layout 2 is the
//! same with flags of two bytes, for what only some modes remember.

use smallvec::SmallVec;

use crate::standing::{POSITION, Standing, ordered, position_of};

const NARROW: u8 = 1;
const WIDE: u8 = 2;

// Flags. The two lowest bits are the phase.
const PHASE: u16 = 0x03;
const AGAIN: u16 = 0x04;
const HAS_TIME: u16 = 0x08;
const HAS_ANCHOR: u16 = 0x10;
const HAS_CONTENT: u16 = 0x20;
const HAS_WROTE: u16 = 0x40;
const HAS_AUDIT: u16 = 0x80;
// From here on layout 2.
const FOLLOWS: u16 = 0x100;
const HAS_OLD: u16 = 0x200;
const HAS_LAST: u16 = 0x400;
const HAS_UNTIL: u16 = 0x800;
const HAS_TOLD: u16 = 0x1000;
const HAS_NAME: u16 = 0x2000;

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
    /// The step before keeps the same record (cumulative).
    pub follows: bool,
    /// Number of the kept image or mark.
    pub image: u8,
    /// Number of the image written last, where that is not the kept one.
    pub old: Option<u8>,
    /// Where the kept record stands; its position alone where nothing will be compared any more.
    pub standing: Standing,
    /// Time of the kept record on the stage's clock, ns; of what retention counts from.
    pub time: Option<i64>,
    /// Time of the record that opened the group (horizon); least time of its records (one that grows), ns.
    pub anchor: Option<i64>,
    /// Greatest time of its records, in a group that grows, ns.
    pub last: Option<i64>,
    /// Where its window ended when it was written last (session), ns.
    pub until: Option<i64>,
    /// Content of what was written last.
    pub content: Option<[u8; 16]>,
    /// When it was written, on the stage's clock, ns.
    pub wrote: Option<i64>,
    /// Least and greatest time (ns) and number of its records.
    pub audit: Option<Audit>,
    /// The same as it was written last, where that can be taken back.
    pub told: Option<Audit>,
    /// Position of the kept record as headers tell it, where it may have to be told later.
    pub name: Option<String>,
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
        self.join(Audit { first: time, last: time, count: 1 });
    }

    /// The records of another group.
    pub fn join(&mut self, other: Audit) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.count += other.count;
    }

    fn write(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.first.to_le_bytes());
        into.extend_from_slice(&self.last.to_le_bytes());
        into.extend_from_slice(&self.count.to_le_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Option<Audit> {
        let (first, last) = (time(bytes)?, time(bytes)?);
        Some(Audit { first, last, count: u64::from_le_bytes(take(bytes)?) })
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

    fn flags(&self) -> u16 {
        let has = |there: bool, flag: u16| if there { flag } else { 0 };
        self.phase as u16
            | has(self.again, AGAIN)
            | has(self.time.is_some(), HAS_TIME)
            | has(self.anchor.is_some(), HAS_ANCHOR)
            | has(self.content.is_some(), HAS_CONTENT)
            | has(self.wrote.is_some(), HAS_WROTE)
            | has(self.audit.is_some(), HAS_AUDIT)
            | has(self.follows, FOLLOWS)
            | has(self.old.is_some(), HAS_OLD)
            | has(self.last.is_some(), HAS_LAST)
            | has(self.until.is_some(), HAS_UNTIL)
            | has(self.told.is_some(), HAS_TOLD)
            | has(self.name.is_some(), HAS_NAME)
    }

    fn write(&self, layout: u8, into: &mut Vec<u8>) {
        let flags = self.flags().to_le_bytes();
        into.extend_from_slice(&flags[..usize::from(layout)]);
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
            audit.write(into);
        }
        into.extend(self.old);
        for time in [self.last, self.until].into_iter().flatten() {
            into.extend_from_slice(&time.to_le_bytes());
        }
        if let Some(told) = self.told {
            told.write(into);
        }
        if let Some(name) = &self.name {
            into.extend_from_slice(&(name.len() as u32).to_le_bytes());
            into.extend_from_slice(name.as_bytes());
        }
    }

    fn read(layout: u8, bytes: &mut &[u8]) -> Option<Group> {
        let low = take::<1>(bytes)?[0];
        let high = if layout == WIDE { take::<1>(bytes)?[0] } else { 0 };
        let flags = u16::from_le_bytes([low, high]);
        let has = |flag: u16| flags & flag != 0;
        let phase = match flags & PHASE {
            0 => Phase::Waiting,
            1 => Phase::Written,
            2 => Phase::Deleted,
            _ => return None,
        };
        let image = take::<1>(bytes)?[0];
        let mut group = Group { phase, again: has(AGAIN), follows: has(FOLLOWS), image, ..Group::default() };
        group.standing = Standing::from_slice(some(bytes)?);
        group.time = if has(HAS_TIME) { Some(time(bytes)?) } else { None };
        group.anchor = if has(HAS_ANCHOR) { Some(time(bytes)?) } else { None };
        group.content = if has(HAS_CONTENT) { Some(take(bytes)?) } else { None };
        group.wrote = if has(HAS_WROTE) { Some(time(bytes)?) } else { None };
        group.audit = if has(HAS_AUDIT) { Some(Audit::read(bytes)?) } else { None };
        group.old = if has(HAS_OLD) { Some(take::<1>(bytes)?[0]) } else { None };
        group.last = if has(HAS_LAST) { Some(time(bytes)?) } else { None };
        group.until = if has(HAS_UNTIL) { Some(time(bytes)?) } else { None };
        group.told = if has(HAS_TOLD) { Some(Audit::read(bytes)?) } else { None };
        group.name = if has(HAS_NAME) { Some(String::from_utf8(some(bytes)?.to_vec()).ok()?) } else { None };
        Some(group)
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

fn time(bytes: &mut &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(take(bytes)?))
}

/// Bytes after their length (u32).
fn some<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_le_bytes(take(bytes)?) as usize;
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// The groups of an entry's value.
///
/// # Panics
/// If these are no bytes of ours: state and module do not belong together, which is a fault.
pub fn read(mut value: &[u8]) -> Groups {
    let layout = take::<1>(&mut value).map_or(0, |byte| byte[0]);
    assert!(matches!(layout, NARROW | WIDE), "an entry of a layout that this version of dedup does not know");
    let mut groups = Groups::new();
    while !value.is_empty() {
        match Group::read(layout, &mut value) {
            Some(group) => groups.push(group),
            None => panic!("an entry that ends early"),
        }
    }
    groups
}

/// The value of an entry, in place of what `into` held.
pub fn write(groups: &[Group], into: &mut Vec<u8>) {
    let layout = if groups.iter().any(|group| group.flags() > 0xff) { WIDE } else { NARROW };
    into.clear();
    into.push(layout);
    for group in groups {
        group.write(layout, into);
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
            ..Group::default()
        };
        let wide = Group {
            follows: true,
            old: Some(4),
            last: Some(7),
            until: Some(8),
            told: Some(Audit { first: -1, last: -2, count: 9 }),
            name: Some("test/0/1".to_string()),
            ..full.clone()
        };
        check(&[wide, mark.clone()]);
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
        let bytes = check(std::slice::from_ref(&group));
        assert_eq!(bytes, b"\x01\x09\x02\x0a\x00\x00\x00abcdefghij\x01\x00\x00\x00\x00\x00\x00\x00");
    }

    #[test]
    fn the_bytes_of_layout_2_stay_as_they_are() {
        let group = Group {
            phase: Phase::Written,
            image: 2,
            standing: Standing::from_slice(b"abcdefghij"),
            anchor: Some(1),
            old: Some(3),
            last: Some(2),
            until: Some(4),
            ..Group::default()
        };
        let mut wanted = b"\x02\x11\x0e\x02\x0a\x00\x00\x00abcdefghij".to_vec();
        wanted.extend(1i64.to_le_bytes());
        wanted.push(3);
        wanted.extend(2i64.to_le_bytes());
        wanted.extend(4i64.to_le_bytes());
        assert_eq!(check(&[group]), wanted);
    }
}
