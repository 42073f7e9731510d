//! Groups that grow with their records, and become one when they meet: sessions (2.5, T6) and horizons that refresh on
//! access (2.6, T8). A record joins every group whose records it is near; at most two, since groups that both are near
//! it would be near each other otherwise.
//!
//! A session is a group of this kind whose reach is its gap and the next instant: exactly the gap joins, and a session
//! is over when the clock is beyond it.

use smallvec::SmallVec;
use tamis_guest::{Kind, NONE_YET, Out, Row, Slot, Stamp, Verdict, Window};

use crate::entry::{self, Group, Groups, MARKS, NOTHING_KEPT, Phase};
use crate::settings::{self, Clock};
use crate::standing::{beats, standing, stays};
use crate::table::Code;
use crate::{DUPLICATES_DROPPED, Dedup, LATE_WINDOW_ASSIGNMENTS, MERGED_AFTER_EMIT, REPLACED, UNCHANGED_SUPPRESSED};

/// Judges a row.
pub fn row(dedup: &mut Dedup, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
    let mut groups = slot.value().map(entry::read).unwrap_or_default();
    let seen = row.seen().time;
    let stored = groups.len();
    groups.retain(|group| {
        let live = seen < dedup.gone_at(group);
        if !live {
            let_go(group, slot);
        }
        live
    });
    let is_horizon = !dedup.is_session();
    if is_horizon && row.is_tombstone() {
        return dedup.delete(&mut groups, slot, out);
    }
    let pruned = groups.len() < stored;
    let time = dedup.time(row);
    let near = take_near(dedup, &mut groups, time);
    if !near.is_empty() {
        return join(dedup, row, near, groups, slot, out);
    }
    // What it would open is over already, or its mark may be gone (L6).
    let late =
        if is_horizon { time < seen } else { seen >= dedup.over_at(time).saturating_add(dedup.settings.lateness) };
    if late && dedup.settings.clock != Clock::Processing {
        if pruned {
            save(dedup, &groups, slot, false);
        }
        out.count(LATE_WINDOW_ASSIGNMENTS, u64::from(!is_horizon));
        return dedup.late(out);
    }
    first(dedup, row, groups, slot, out)
}

/// Takes out the groups that a time is in reach of, the earlier first.
fn take_near(dedup: &Dedup, groups: &mut Groups, time: i64) -> SmallVec<[Group; 2]> {
    let mut near = SmallVec::new();
    let is_near = |group: &Group| {
        let (first, last) = span(group);
        let distance = if time < first { first.abs_diff(time) } else { last.abs_diff(time) };
        (first <= time && time <= last) || distance < dedup.reach() as u64
    };
    while let Some(at) = groups.iter().position(is_near) {
        near.push(groups.remove(at));
    }
    near.sort_by_key(|group: &Group| group.anchor);
    near
}

/// A record near no group opens one.
fn first(dedup: &mut Dedup, row: &Row<'_>, mut groups: Groups, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
    let time = dedup.time(row);
    let waits = match dedup.plan.code {
        Code::FE | Code::LE => true,
        // Written when it is over; what is over already is written at once (L3).
        Code::WU => row.seen().time < dedup.over_at(time),
        _ => false,
    };
    let free = dedup.free_number(&groups);
    if free.is_none() && dedup.plan.images {
        return dedup.too_many(row, out);
    }
    let phase = if waits { Phase::Waiting } else { Phase::Written };
    let mut group = dedup.open(row, phase, free.unwrap_or(NOTHING_KEPT));
    (group.anchor, group.last) = (Some(time), Some(time));
    let window = dedup.shown(&group);
    group.until = window.filter(|_| !waits && dedup.settings.updates()).map(|window| window.end);
    groups.push(group);
    save(dedup, &groups, slot, waits);
    let Some(group) = groups.last() else { return Verdict::Keep };
    dedup.keep(group, row, slot);
    if waits { Verdict::Held } else { dedup.emit(group, row, out, window) }
}

/// A record near one group or two: they become one, and one record of it stays. `others`: the rest of the entry.
fn join(
    dedup: &mut Dedup,
    row: &Row<'_>,
    before: SmallVec<[Group; 2]>,
    mut others: Groups,
    slot: &mut Slot<'_>,
    out: &mut Out,
) -> Verdict {
    if let Some(group) = before.iter().find(|group| dedup.is_itself(group, row, out)) {
        // Its time is in there already.
        out.count(DUPLICATES_DROPPED, 1);
        name_winner(group, slot);
        return Verdict::Duplicate;
    }
    let mut group = united(dedup, &before, out);
    let time = dedup.time(row);
    let (first, last) = span(&group);
    (group.anchor, group.last) = (Some(first.min(time)), Some(last.max(time)));
    if let Some(audit) = &mut group.audit {
        audit.add(dedup.audit_time(row));
    }
    let stands = (!dedup.is_final(group.phase)).then(|| standing(dedup, row));
    let stands = stands.filter(|stands| beats(dedup, row, stands, &group.standing));
    let won = stands.is_some();
    if let Some(stands) = stands {
        out.count(REPLACED, 1);
        group.standing = stands;
        group.name = dedup.plan.named.then(|| dedup.name(row));
        dedup.date(&mut group, row);
    } else {
        out.count(DUPLICATES_DROPPED, 1);
        name_winner(&group, slot);
    }
    for lost in before.iter().filter(|lost| won || lost.image != group.image) {
        dedup.displace(lost, group.name.as_deref().unwrap_or_default(), slot, out);
    }
    let wrote = group.phase == Phase::Written
        && dedup.plan.code != Code::FA
        && write(dedup, row, won, &before, &mut group, slot, out);
    if won && group.image != NOTHING_KEPT {
        // What was written last stays beside the kept record; a group has a pair of numbers.
        let beside = u8::from(group.old == Some(group.image));
        group.image = dedup.number((group.image ^ beside) % MARKS);
    }
    let still = |number: u8| number == group.image || Some(number) == group.old;
    for number in before.iter().flat_map(|group| [Some(group.image), group.old]).flatten() {
        if number != NOTHING_KEPT && !still(number) {
            slot.let_go(number);
        }
    }
    // A wake that is too early only looks and is set anew, so a group that lasts longer keeps the one it has.
    let lasts = before.iter().all(|before| before.last < group.last);
    let as_before = !won && before.len() == 1 && before[0].anchor == group.anchor;
    let wakes = group.phase == Phase::Waiting && !lasts && !as_before;
    others.push(group);
    save(dedup, &others, slot, wakes);
    if let Some(group) = others.last().filter(|_| won) {
        dedup.keep(group, row, slot);
    }
    match (won, wrote) {
        (false, _) => Verdict::Duplicate,
        (true, true) => Verdict::Output,
        (true, false) => Verdict::Held,
    }
}

/// The groups as one, with the record of one of them.
fn united(dedup: &Dedup, before: &[Group], out: &mut Out) -> Group {
    let Some(mut group) = before.first().cloned() else { return Group::default() };
    for other in &before[1..] {
        out.count(REPLACED, 1);
        if !dedup.settings.updates() && group.phase == Phase::Written && other.phase == Phase::Written {
            out.count(MERGED_AFTER_EMIT, 1);
        }
        let phase = if other.phase == Phase::Written { Phase::Written } else { group.phase };
        let audit = match (group.audit, other.audit) {
            (Some(mut audit), Some(other)) => {
                audit.join(other);
                Some(audit)
            }
            (one, other) => one.or(other),
        };
        let (first, last) = (group.anchor.min(other.anchor), group.last.max(other.last));
        if !stays(dedup, &group.standing, &other.standing) {
            group = other.clone();
        }
        (group.phase, group.audit, group.anchor, group.last) = (phase, audit, first, last);
    }
    group
}

/// Writes what a record changed in what was written before (O8): identities that are gone are deleted, by start; then
/// the kept record is written, as an insert under a start that is new, as an update if it is another one. A later end
/// alone writes nothing. Says whether the kept record was written.
fn write(
    dedup: &Dedup,
    row: &Row<'_>,
    won: bool,
    before: &[Group],
    group: &mut Group,
    slot: &mut Slot<'_>,
    out: &mut Out,
) -> bool {
    let written = || before.iter().filter(|before| before.phase == Phase::Written);
    let same = written().find(|before| before.anchor == group.anchor);
    for gone in written().filter(|gone| gone.anchor != group.anchor) {
        dedup.take_back(gone, slot, out, Kind::Delete, dedup.shown_last(gone));
    }
    // The kept record's content: that of its group, which was written with it or an equal one, or of the row.
    let content = if won { dedup.content(row) } else { group.content };
    let kind = match same {
        None => Kind::Insert,
        Some(same) if !won && same.image == group.image => {
            *group =
                Group { old: same.old, content: same.content, until: same.until, told: same.told, ..group.clone() };
            return false;
        }
        Some(same) if dedup.plan.content.is_some() && content == same.content => {
            out.count(UNCHANGED_SUPPRESSED, 1);
            let old = dedup.plan.retracts.then(|| same.old.unwrap_or(same.image));
            *group = Group { old, content, until: same.until, told: same.told, ..group.clone() };
            if won {
                group.image = same.image;
            }
            return false;
        }
        Some(same) => {
            dedup.take_back(same, slot, out, Kind::Old, dedup.shown_last(same));
            Kind::New
        }
    };
    let window = dedup.shown(group);
    if won {
        out.emit_row(row, kind, window);
    } else if group.has_image() {
        out.emit_kept(slot, group.image, kind, window);
    }
    dedup.tell(group.audit, out);
    group.old = None;
    group.content = content;
    group.until = window.map(|window| window.end);
    dedup.remember(group);
    true
}

/// Groups are over.
pub fn wake(dedup: &mut Dedup, at: Stamp, slot: &mut Slot<'_>, out: &mut Out) {
    let mut groups = slot.value().map(entry::read).unwrap_or_default();
    let corrects = dedup.plan.code == Code::WU && dedup.settings.lateness > 0;
    groups.retain(|group| {
        if group.phase != Phase::Waiting || dedup.leaves_at(group) > at.time {
            return true;
        }
        let window = dedup.shown(group);
        dedup.emit_kept(group, slot, out, window);
        if !corrects {
            let_go(group, slot);
            return false;
        }
        group.phase = Phase::Written;
        group.time = None;
        group.until = window.map(|window| window.end);
        true
    });
    if groups.is_empty() {
        return slot.remove();
    }
    save(dedup, &groups, slot, true);
}

/// Writes the groups. `wakes`: the wake that is set may be too late for the next to leave, or of another rank.
fn save(dedup: &mut Dedup, groups: &[Group], slot: &mut Slot<'_>, wakes: bool) {
    let Some(expires) = groups.iter().map(|group| dedup.gone_at(group)).max() else { return slot.remove() };
    dedup.save(groups, slot, expires);
    if !wakes {
        return;
    }
    let waiting = groups.iter().filter(|group| group.phase == Phase::Waiting);
    match waiting.min_by_key(|group| group.last) {
        Some(next) => {
            let rank = next.rank(dedup.plan.ranks_by_time, span(next).0);
            slot.wake_at(Stamp::at(dedup.leaves_at(next)), &rank);
        }
        None => slot.cancel_wake(),
    }
}

fn let_go(group: &Group, slot: &mut Slot<'_>) {
    for number in [Some(group.image), group.old].into_iter().flatten().filter(|number| *number != NOTHING_KEPT) {
        slot.let_go(number);
    }
}

fn name_winner(group: &Group, slot: &mut Slot<'_>) {
    if group.image != NOTHING_KEPT {
        slot.winner(group.image);
    }
}

/// Least and greatest time of its records, ns.
fn span(group: &Group) -> (i64, i64) {
    (group.anchor.unwrap_or(NONE_YET), group.last.unwrap_or(NONE_YET))
}

impl Dedup {
    fn is_session(&self) -> bool {
        matches!(self.settings.window, settings::Window::Session { .. })
    }

    /// Records less than this apart belong together, ns.
    fn reach(&self) -> i64 {
        match self.settings.window {
            settings::Window::Session { gap } => gap.saturating_add(1),
            settings::Window::Horizon { ttl, .. } => ttl,
            _ => 0,
        }
    }

    /// The first instant at which a group is over whose last record has this time, ns.
    fn over_at(&self, last: i64) -> i64 {
        last.saturating_add(self.reach())
    }

    /// The first instant at which no record joins the group any more.
    fn gone_at(&self, group: &Group) -> i64 {
        self.over_at(span(group).1).saturating_add(self.settings.lateness)
    }

    /// The instant at which the candidate of the group leaves (L3).
    fn leaves_at(&self, group: &Group) -> i64 {
        if self.plan.code == Code::WU { self.over_at(span(group).1) } else { self.gone_at(group) }
    }

    /// The window of a group that is written now: a session always shows one, a horizon when it closes.
    fn shown(&self, group: &Group) -> Option<Window> {
        let (start, last) = span(group);
        match self.settings.window {
            settings::Window::Session { gap } => Some(Window { start, end: last.saturating_add(gap) }),
            _ if group.phase == Phase::Waiting => Some(Window { start, end: self.over_at(last) }),
            _ => None,
        }
    }

    /// The window that a group was written with last.
    fn shown_last(&self, group: &Group) -> Option<Window> {
        let window = self.shown(group)?;
        Some(Window { end: group.until.unwrap_or(window.end), ..window })
    }
}
