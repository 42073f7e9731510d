//! No window: one group per key, as long as state lives (2.1).

use tamis_guest::{END, Out, Row, Slot, Stamp, Verdict};

use crate::entry::{self, Group, Phase};
use crate::scope::Met;
use crate::settings::Retention;
use crate::table::Code;
use crate::{Dedup, UNCHANGED_SUPPRESSED};

/// Number of the kept record.
const KEPT: u8 = 0;
/// Number of the mark that stays when a candidate has left.
const LEFT: u8 = entry::MARKS;

/// Judges a row.
pub fn row(dedup: &mut Dedup, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
    let group = slot.value().map(entry::read).and_then(|groups| groups.into_iter().next());
    if row.is_tombstone() {
        return tombstone(dedup, row, group, slot, out);
    }
    let code = dedup.plan.code;
    let group = group.filter(|group| group.phase != Phase::Deleted);
    // What was emitted makes later ones duplicates, also below the watermark; for all others time decides (L5).
    let left = group.as_ref().is_some_and(|group| group.phase == Phase::Written);
    if code == Code::FE && !left && row.time().time < row.seen().time {
        return dedup.late(out);
    }
    let Some(mut group) = group else { return first(dedup, row, slot, out) };
    // Left at the end of an earlier run, and may be written again at the end of this one.
    let again = code == Code::NO3 && left && dedup.settings.updates();
    if again {
        (group.phase, group.again) = (Phase::Waiting, true);
    }
    match dedup.meet(&mut group, row, slot, out, None) {
        Met::Lost(verdict) => {
            if again {
                (group.phase, group.again) = (Phase::Written, false);
            }
            if dedup.remembers_losers() {
                dedup.save_one(&group, slot);
            }
            verdict
        }
        Met::Won(verdict) => {
            dedup.save_one(&group, slot);
            if group.phase == Phase::Waiting {
                wait(dedup, &group, row, slot);
            }
            verdict
        }
    }
}

/// The first of its key.
fn first(dedup: &mut Dedup, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
    let waits = matches!(dedup.plan.code, Code::FE | Code::NO3);
    let phase = if waits { Phase::Waiting } else { Phase::Written };
    let group = dedup.open(row, phase, dedup.number(KEPT));
    // A delete marker has nothing to do with what comes after it.
    if slot.value().is_some() {
        slot.remove();
    }
    dedup.save_one(&group, slot);
    dedup.keep(&group, row, slot);
    if waits {
        wait(dedup, &group, row, slot);
        return Verdict::Held;
    }
    dedup.emit(&group, row, out, None)
}

/// Sets the wake of a candidate: when nothing smaller can come (W2), or the end of the input.
fn wait(dedup: &Dedup, group: &Group, row: &Row<'_>, slot: &mut Slot<'_>) {
    let at = match dedup.plan.code {
        Code::FE => row.time(),
        _ => Stamp::at(END),
    };
    if dedup.plan.code == Code::FE && !dedup.plan.retracts {
        slot.mark(LEFT, row);
    }
    slot.wake_at(at, &group.rank(dedup.plan.ranks_by_time, 0));
}

/// The candidate is final.
pub fn wake(dedup: &mut Dedup, slot: &mut Slot<'_>, out: &mut Out) {
    let group = slot.value().map(entry::read).and_then(|groups| groups.into_iter().next());
    let Some(mut group) = group.filter(|group| group.phase == Phase::Waiting) else { return };
    dedup.emit_kept(&mut group, slot, out, None);
    (group.phase, group.again) = (Phase::Written, false);
    if dedup.plan.code == Code::FE {
        // Its position will do; but retract output may have to delete it.
        if !dedup.plan.retracts {
            slot.let_go(group.image);
            group.image = LEFT;
        }
        group.settle();
    }
    match dedup.settings.retention {
        // Its life begins now.
        Some(Retention { processing: true, .. }) => group.time = Some(slot.now()),
        Some(_) => {}
        None => group.time = None,
    }
    dedup.save_one(&group, slot);
}

/// A deletion: always forwarded at once, and it clears the key (O11). Where a second one in a row shall be left out,
/// it leaves a marker.
fn tombstone(
    dedup: &mut Dedup,
    row: &Row<'_>,
    mut group: Option<Group>,
    slot: &mut Slot<'_>,
    out: &mut Out,
) -> Verdict {
    if group.as_ref().is_some_and(|group| group.phase == Phase::Deleted) {
        out.count(UNCHANGED_SUPPRESSED, 1);
        return Verdict::Drop;
    }
    let verdict = dedup.delete(group.as_mut_slice(), slot, out);
    if dedup.plan.marks_deletes {
        let marker = dedup.open(row, Phase::Deleted, entry::NOTHING_KEPT);
        dedup.save_one(&marker, slot);
    }
    verdict
}

impl Dedup {
    fn save_one(&mut self, group: &Group, slot: &mut Slot<'_>) {
        let expires = self.expiry(group);
        self.save(std::slice::from_ref(group), slot, expires);
    }
}
