//! A horizon that opens with a record and lasts a fixed time: several groups per key may be open (2.6, T8).

use tamis_guest::{NONE_YET, Out, Row, Slot, Stamp, Verdict, Window};

use crate::Dedup;
use crate::entry::{self, Group, Groups, NOTHING_KEPT, Phase};
use crate::scope::Met;
use crate::settings::{self, Clock};
use crate::table::Code;

/// Judges a row.
pub fn row(dedup: &mut Dedup, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
    let time = dedup.time(row);
    let watermark = row.seen().time;
    let mut groups = slot.value().map(entry::read).unwrap_or_default();
    let stored = groups.len();
    groups.retain(|group| {
        let live = watermark < dedup.horizon_of(group).end;
        if !live {
            for number in [Some(group.image), group.old].into_iter().flatten().filter(|n| *n != NOTHING_KEPT) {
                slot.let_go(number);
            }
        }
        live
    });
    if row.is_tombstone() {
        // The key is as new (O11).
        return dedup.delete(&mut groups, slot, out);
    }
    let pruned = groups.len() < stored;
    let Some(near) = nearest(dedup, &groups, time) else {
        // Its mark may be gone, so nobody can tell whether it is new (L6).
        if dedup.settings.clock != Clock::Processing && time < watermark {
            match (pruned, groups.is_empty()) {
                (true, true) => slot.remove(),
                (true, false) => dedup.save_groups(&groups, slot, false),
                _ => {}
            }
            return dedup.late(out);
        }
        return first(dedup, row, groups, slot, out);
    };
    match dedup.meet(&mut groups[near], row, slot, out, None) {
        Met::Lost(verdict) => {
            if pruned || dedup.remembers_losers() {
                dedup.save_groups(&groups, slot, false);
            }
            verdict
        }
        Met::Won(verdict) => {
            dedup.save_groups(&groups, slot, groups[near].phase == Phase::Waiting);
            verdict
        }
    }
}

/// The group whose anchor is nearest and less than the horizon away; of two equally near the earlier.
fn nearest(dedup: &Dedup, groups: &[Group], time: i64) -> Option<usize> {
    let reach = groups.iter().enumerate().filter_map(|(i, group)| {
        let anchor = group.anchor?;
        let distance = anchor.abs_diff(time);
        (distance < dedup.ttl() as u64).then_some((distance, anchor, i))
    });
    reach.min().map(|(.., i)| i)
}

/// A record in reach of no group opens one.
fn first(dedup: &mut Dedup, row: &Row<'_>, mut groups: Groups, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
    let waits = matches!(dedup.plan.code, Code::FE | Code::LE);
    let phase = if waits { Phase::Waiting } else { Phase::Written };
    let free = dedup.free_number(&groups);
    if free.is_none() && dedup.plan.images {
        return dedup.too_many(row, out);
    }
    let mut group = dedup.open(row, phase, free.unwrap_or(NOTHING_KEPT));
    group.anchor = Some(dedup.time(row));
    groups.push(group);
    dedup.save_groups(&groups, slot, waits);
    let Some(group) = groups.last() else { return Verdict::Keep };
    dedup.keep(group, row, slot);
    if waits {
        return Verdict::Held;
    }
    dedup.emit(group, row, out, None)
}

/// Groups close.
pub fn wake(dedup: &mut Dedup, at: Stamp, slot: &mut Slot<'_>, out: &mut Out) {
    let mut groups = slot.value().map(entry::read).unwrap_or_default();
    groups.retain(|group| {
        let window = dedup.horizon_of(group);
        let closes = group.phase == Phase::Waiting && window.end <= at.time;
        if closes {
            dedup.emit_kept(group, slot, out, Some(window));
            slot.let_go(group.image);
        }
        !closes
    });
    if groups.is_empty() {
        return slot.remove();
    }
    dedup.save_groups(&groups, slot, true);
}

impl Dedup {
    fn ttl(&self) -> i64 {
        match self.settings.window {
            settings::Window::Horizon { ttl, .. } => ttl,
            _ => 0,
        }
    }

    /// From the anchor to the instant at which the group closes.
    fn horizon_of(&self, group: &Group) -> Window {
        let start = group.anchor.unwrap_or(NONE_YET);
        Window { start, end: start.saturating_add(self.ttl()) }
    }

    /// Writes the groups, and the wake of the next to close if it may have changed.
    fn save_groups(&mut self, groups: &[Group], slot: &mut Slot<'_>, wakes: bool) {
        let expires = groups.iter().map(|group| self.horizon_of(group).end).max().unwrap_or(NONE_YET);
        self.save(groups, slot, expires);
        if !wakes {
            return;
        }
        let waiting = groups.iter().filter(|group| group.phase == Phase::Waiting);
        if let Some(next) = waiting.min_by_key(|group| group.anchor) {
            let window = self.horizon_of(next);
            slot.wake_at(Stamp::at(window.end), &next.rank(self.plan.ranks_by_time, window.start));
        }
    }
}
