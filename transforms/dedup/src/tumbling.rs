//! Tumbling windows: one group per key and window; the space is the window's end (2.2).

use tamis_guest::{Kind, NEVER, Out, Row, Slot, Stamp, Verdict, Window};

use crate::entry::{self, Group, Phase};
use crate::scope::Met;
use crate::settings::{self, Clock};
use crate::table::Code;
use crate::{Dedup, LATE_WINDOW_ASSIGNMENTS};

/// Number of the kept record.
const KEPT: u8 = 0;

/// The window of a time, ns; floor arithmetic, also before 1970 (T3).
pub fn window(time: i64, size: i64, offset: i64) -> Window {
    let (time, size, offset) = (i128::from(time), i128::from(size), i128::from(offset));
    let start = (time - offset).div_euclid(size) * size + offset;
    let clamp = |time: i128| time.clamp(i128::from(i64::MIN) + 1, i128::from(i64::MAX) - 1) as i64;
    Window { start: clamp(start), end: clamp(start + size) }
}

/// Judges a row in its window.
pub fn row(dedup: &mut Dedup, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
    let window = dedup.window_of(slot.space());
    let watermark = row.seen().time;
    // Under the processing clock no window is over for what arrives in it.
    if dedup.settings.clock != Clock::Processing && watermark >= window.end.saturating_add(dedup.settings.lateness) {
        out.count(LATE_WINDOW_ASSIGNMENTS, 1);
        return dedup.late(out);
    }
    let group = slot.value().map(entry::read).and_then(|groups| groups.into_iter().next());
    let Some(mut group) = group else {
        let waits = match dedup.plan.code {
            Code::FE | Code::LE => true,
            // Written at its end; what has none by then is written at once (L3).
            Code::WU => watermark < window.end,
            _ => false,
        };
        let phase = if waits { Phase::Waiting } else { Phase::Written };
        let group = dedup.open(row, phase, dedup.number(KEPT));
        dedup.save(std::slice::from_ref(&group), slot, NEVER);
        dedup.keep(&group, row, slot);
        if waits {
            wait(dedup, &group, window, slot);
            return Verdict::Held;
        }
        return dedup.emit(&group, row, out, Kind::Insert, Some(window));
    };
    match dedup.meet(&mut group, row, slot, out, Some(window)) {
        Met::Lost(verdict) => {
            if dedup.remembers_losers() {
                dedup.save(std::slice::from_ref(&group), slot, NEVER);
            }
            verdict
        }
        Met::Won(verdict) => {
            dedup.save(std::slice::from_ref(&group), slot, NEVER);
            if group.phase == Phase::Waiting {
                wait(dedup, &group, window, slot);
            }
            verdict
        }
    }
}

/// Sets the wake of a candidate.
fn wait(dedup: &Dedup, group: &Group, window: Window, slot: &mut Slot<'_>) {
    let lateness = if dedup.plan.code == Code::WU { 0 } else { dedup.settings.lateness };
    let at = Stamp::at(window.end.saturating_add(lateness));
    slot.wake_at(at, &group.rank(dedup.plan.ranks_by_time, window.start));
}

/// The window closes.
pub fn wake(dedup: &mut Dedup, slot: &mut Slot<'_>, out: &mut Out) {
    let window = dedup.window_of(slot.space());
    let group = slot.value().map(entry::read).and_then(|groups| groups.into_iter().next());
    let Some(mut group) = group.filter(|group| group.phase == Phase::Waiting) else { return };
    dedup.emit_kept(&group, slot, out, Some(window));
    if dedup.plan.code != Code::WU || dedup.settings.lateness == 0 {
        return slot.remove();
    }
    group.phase = Phase::Written;
    group.time = None;
    dedup.save(std::slice::from_ref(&group), slot, NEVER);
}

impl Dedup {
    /// The window that ends there.
    fn window_of(&self, end: i64) -> Window {
        let size = match self.settings.window {
            settings::Window::Tumbling { size, .. } => size,
            _ => 0,
        };
        Window { start: end.saturating_sub(size), end }
    }
}

#[cfg(test)]
mod tests {
    use super::window;

    fn check(time: i64, size: i64, offset: i64, start: i64) {
        let found = window(time, size, offset);
        assert_eq!((found.start, found.end), (start, start + size), "{time} {size} {offset}");
    }

    #[test]
    fn windows_start_at_or_before_their_records() {
        check(0, 7, 0, 0);
        check(-1, 7, 0, -7);
        check(-7, 7, 0, -7);
        check(-8, 7, 0, -14);
        check(6_999, 10_000, 7_000, -3_000);
        check(7_000, 10_000, 7_000, 7_000);
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        assert!(window(i64::MAX, 1000, 3).start < i64::MAX);
        assert!(window(i64::MIN, 1000, 3).end > i64::MIN);
    }
}
