//! Windows with edges that are the same for all keys: tumbling, hopping, cumulative (2.2 to 2.4). One group per key and
//! window; the space is the window's end, which tells the window.

use tamis_guest::{NEVER, Out, Row, Slot, Stamp, Verdict, Window};

use crate::entry::{self, Group, Phase};
use crate::scope::Met;
use crate::settings::{self, Clock};
use crate::standing::position_of;
use crate::table::Code;
use crate::zone::Zoned;
use crate::{Dedup, LATE_WINDOW_ASSIGNMENTS, cumulative, hopping, tumbling};

/// Number of the kept record.
const KEPT: u8 = 0;

/// How windows lie on the axis of time, lengths in ns.
#[derive(Debug)]
#[allow(missing_docs, reason = "pipeline-file words")]
pub enum Windows {
    Tumbling { size: i64, offset: i64 },
    Zoned(Zoned),
    Hopping { size: i64, every: i64, offset: i64 },
    Cumulative { size: i64, step: i64, offset: i64 },
}

impl Windows {
    /// Of the settings, if their window is of this sort.
    pub fn of(window: &settings::Window) -> Option<Windows> {
        use settings::Window as Set;
        Some(match *window {
            Set::Tumbling { size, offset, .. } => match window.zone().and_then(|zone| Zoned::new(zone, size, offset)) {
                Some(zoned) => Windows::Zoned(zoned),
                None => Windows::Tumbling { size, offset },
            },
            Set::Hopping { size, every, offset, .. } => Windows::Hopping { size, every, offset },
            Set::Cumulative { size, step, offset, .. } => Windows::Cumulative { size, step, offset },
            Set::None | Set::Session { .. } | Set::Horizon { .. } => return None,
        })
    }

    /// Ends of the windows that cover a time, ascending.
    pub fn ends(&self, time: i64, into: &mut Vec<i64>) {
        match self {
            Windows::Tumbling { size, offset } => into.push(tumbling::window(time, *size, *offset).end),
            Windows::Zoned(zoned) => into.push(zoned.window(time).end),
            Windows::Hopping { size, every, offset } => hopping::ends(time, *size, *every, *offset, into),
            Windows::Cumulative { size, step, offset } => cumulative::ends(time, *size, *step, *offset, into),
        }
    }

    /// The window that ends there.
    pub fn ending(&self, end: i64) -> Window {
        let start = match self {
            Windows::Tumbling { size, .. } | Windows::Hopping { size, .. } => end.saturating_sub(*size),
            Windows::Zoned(zoned) => zoned.window(end.saturating_sub(1)).start,
            Windows::Cumulative { size, offset, .. } => tumbling::window(end.saturating_sub(1), *size, *offset).start,
        };
        Window { start, end }
    }

    /// Is this window the last that covers the time?
    fn is_last(&self, window: Window, time: i64) -> bool {
        match self {
            Windows::Tumbling { .. } | Windows::Zoned(_) => true,
            Windows::Hopping { every, .. } => time.saturating_sub(window.start) < *every,
            Windows::Cumulative { size, .. } => window.end.saturating_sub(window.start) == *size,
        }
    }

    /// Is this window the first that covers the time?
    fn is_first(&self, window: Window, time: i64) -> bool {
        match self {
            Windows::Tumbling { .. } | Windows::Zoned(_) => true,
            Windows::Hopping { every, .. } => window.end.saturating_sub(time) <= *every,
            Windows::Cumulative { step, .. } => window.end.saturating_sub(time) <= *step,
        }
    }
}

/// Judges a row in one of its windows.
pub fn row(dedup: &mut Dedup, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
    let Some(windows) = &dedup.windows else { return Verdict::Keep };
    let (window, time) = (windows.ending(slot.space()), dedup.time(row));
    let is_last = windows.is_last(window, time);
    if windows.is_first(window, time) {
        dedup.step_before = None;
    }
    let watermark = row.seen().time;
    // Under the processing clock no window is over for what arrives in it.
    if dedup.settings.clock != Clock::Processing && watermark >= window.end.saturating_add(dedup.settings.lateness) {
        out.count(LATE_WINDOW_ASSIGNMENTS, 1);
        // Late is what no window takes; the last closes last (L4).
        return if is_last { dedup.late(out) } else { Verdict::Late };
    }
    let group = slot.value().map(entry::read).and_then(|groups| groups.into_iter().next());
    let (group, verdict) = match group {
        Some(mut group) => {
            let (wins, verdict) = match dedup.meet(&mut group, row, slot, out, Some(window)) {
                Met::Lost(verdict) => (false, verdict),
                Met::Won(verdict) => (true, verdict),
            };
            if wins {
                group.follows = follows(dedup, &group);
            }
            if wins || dedup.remembers_losers() {
                dedup.save(std::slice::from_ref(&group), slot, NEVER);
            }
            if wins && group.phase == Phase::Waiting {
                wait(dedup, &group, window, slot);
            }
            (group, verdict)
        }
        None => first(dedup, row, window, slot, out),
    };
    if dedup.plan.changed_steps {
        dedup.step_before = Some(group.standing);
    }
    verdict
}

/// The first of its key and window.
fn first(dedup: &mut Dedup, row: &Row<'_>, window: Window, slot: &mut Slot<'_>, out: &mut Out) -> (Group, Verdict) {
    let waits = match dedup.plan.code {
        Code::FE | Code::LE => true,
        // Written at its end; what has none by then is written at once (L3).
        Code::WU => row.seen().time < window.end,
        _ => false,
    };
    let phase = if waits { Phase::Waiting } else { Phase::Written };
    let mut group = dedup.open(row, phase, dedup.number(KEPT));
    group.follows = follows(dedup, &group);
    dedup.save(std::slice::from_ref(&group), slot, NEVER);
    dedup.keep(&group, row, slot);
    let verdict = if waits {
        wait(dedup, &group, window, slot);
        Verdict::Held
    } else {
        dedup.emit(&group, row, out, Some(window))
    };
    (group, verdict)
}

/// Is the kept record that of the step before? The row at hand was judged there just now, if it belongs there and that
/// step is open. While it is, both change only by rows that both see; when it is closed, it changes no more.
fn follows(dedup: &Dedup, group: &Group) -> bool {
    dedup.step_before.as_ref().is_some_and(|before| position_of(before) == position_of(&group.standing))
}

/// Sets the wake of a candidate.
fn wait(dedup: &Dedup, group: &Group, window: Window, slot: &mut Slot<'_>) {
    let lateness = if dedup.plan.code == Code::WU { 0 } else { dedup.settings.lateness };
    let at = Stamp::at(window.end.saturating_add(lateness));
    slot.wake_at(at, &group.rank(dedup.plan.ranks_by_time, window.start));
}

/// The window closes.
pub fn wake(dedup: &mut Dedup, slot: &mut Slot<'_>, out: &mut Out) {
    let Some(window) = dedup.windows.as_ref().map(|windows| windows.ending(slot.space())) else { return };
    let group = slot.value().map(entry::read).and_then(|groups| groups.into_iter().next());
    let Some(mut group) = group.filter(|group| group.phase == Phase::Waiting) else { return };
    if !group.follows {
        dedup.emit_kept(&mut group, slot, out, Some(window));
    }
    if dedup.plan.code != Code::WU || dedup.settings.lateness == 0 {
        return slot.remove();
    }
    group.phase = Phase::Written;
    group.time = None;
    dedup.save(std::slice::from_ref(&group), slot, NEVER);
}
