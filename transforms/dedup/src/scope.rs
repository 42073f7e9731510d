//! What happens between a record and the kept one of its scope, whatever the scope is. What leaves, and in what form, is
//! in [`crate::written`].

use tamis_guest::{Kind, NEVER, Out, Row, Slot, Verdict, Window};

use crate::entry::{self, Audit, Group, MARKS, NOTHING_KEPT, Phase};
use crate::settings::{Clock, Late};
use crate::standing::{Standing, arrival, beats, position, standing};
use crate::table::{Code, Output};
use crate::{DUPLICATES_DROPPED, Dedup, LATE, REDELIVERED_SELF, REPLACED, UNCHANGED_SUPPRESSED};

/// What a row did to the group it met.
pub enum Met {
    /// Nothing but what the verdict says; the group may have been touched.
    Lost(Verdict),
    /// It is the kept record now.
    Won(Verdict),
}

impl Dedup {
    /// Time of a row on the stage's clock, ns.
    pub(crate) fn time(&self, row: &Row<'_>) -> i64 {
        if self.settings.clock == Clock::Processing { row.now() } else { row.time().time }
    }

    /// Time that retention counts from, ns.
    fn ageing_time(&self, row: &Row<'_>) -> i64 {
        match self.settings.retention {
            Some(retention) if retention.processing => row.now(),
            _ => row.time().time,
        }
    }

    /// The expiry of an entry without window, ns.
    pub(crate) fn expiry(&self, group: &Group) -> i64 {
        match (self.settings.retention, group.time) {
            // A candidate that waits is never forgotten (X3).
            (Some(retention), Some(base)) if group.phase != Phase::Waiting => base.saturating_add(retention.after),
            _ => NEVER,
        }
    }

    /// Starts the life of a group anew, with this row as the kept one.
    pub(crate) fn open(&self, row: &Row<'_>, phase: Phase, image: u8) -> Group {
        let mut group = Group { phase, image, standing: self.standing_of(row, phase), ..Group::default() };
        self.date(&mut group, row);
        if self.settings.audit {
            let time = self.audit_time(row);
            group.audit = Some(Audit { first: time, last: time, count: 1 });
        }
        group.name = self.plan.named.then(|| self.name(row));
        if phase == Phase::Written {
            self.remember_row(&mut group, row);
        }
        group
    }

    /// Has what is kept in this phase left for good?
    pub(crate) fn is_final(&self, phase: Phase) -> bool {
        match self.plan.code {
            Code::FA => true,
            Code::FE => phase == Phase::Written,
            Code::NO3 => phase == Phase::Written && self.settings.output == Output::Append,
            _ => false,
        }
    }

    /// Where the row stands. Of what has left for good the place of its arrival will do, where groups become one; else the
    /// order value stays all the same, since the next settings may compare it.
    fn standing_of(&self, row: &Row<'_>, phase: Phase) -> Standing {
        let settled = self.is_final(phase) && self.settings.window.grows();
        if settled { arrival(self, row) } else { standing(self, row) }
    }

    /// Sets the time of a group to that of its kept record, if it is needed.
    pub(crate) fn date(&self, group: &mut Group, row: &Row<'_>) {
        group.time = match (group.phase, self.settings.retention) {
            (Phase::Waiting, _) => self.plan.ranks_by_time.then(|| row.time().time),
            (_, retention) => retention.map(|_| self.ageing_time(row)),
        };
    }

    /// Does a row that loses change what is remembered?
    pub(crate) fn remembers_losers(&self) -> bool {
        let access = self.settings.retention.is_some_and(|retention| retention.access);
        self.settings.audit || access || self.settings.heartbeat.is_some()
    }

    /// A row met the entry: with refresh on access its life is counted from the latest one (X2).
    pub(crate) fn touch(&self, group: &mut Group, row: &Row<'_>) {
        let access = self.settings.retention.is_some_and(|retention| retention.access);
        if access && group.phase != Phase::Waiting {
            let time = self.ageing_time(row);
            group.time = Some(group.time.map_or(time, |base| base.max(time)));
        }
    }

    /// A row meets the kept record of its scope. `window`: for what is written at once.
    pub(crate) fn meet(
        &self,
        group: &mut Group,
        row: &Row<'_>,
        slot: &mut Slot<'_>,
        out: &mut Out,
        window: Option<Window>,
    ) -> Met {
        if self.is_itself(group, row, out) {
            return Met::Lost(self.lose(group, row, slot, out, window));
        }
        if let Some(audit) = &mut group.audit {
            audit.add(self.audit_time(row));
        }
        let stands = (!self.is_final(group.phase)).then(|| standing(self, row));
        let Some(stands) = stands.filter(|stands| beats(self, row, stands, &group.standing)) else {
            self.touch(group, row);
            return Met::Lost(self.lose(group, row, slot, out, window));
        };
        out.count(REPLACED, 1);
        self.displace(group, &self.name_if(self.plan.displaces, row), slot, out);
        group.standing = stands;
        group.name = self.plan.named.then(|| self.name(row));
        let base = group.time;
        self.date(group, row);
        if self.settings.retention.is_some_and(|retention| retention.access) && group.phase != Phase::Waiting {
            group.time = group.time.max(base);
        }
        if group.phase == Phase::Waiting {
            self.keep_next(group, row, slot, group.again);
            return Met::Won(Verdict::Held);
        }
        if self.is_unchanged(group, row) && !self.is_due(group, row) {
            out.count(UNCHANGED_SUPPRESSED, 1);
            self.keep_next(group, row, slot, true);
            return Met::Won(Verdict::Held);
        }
        let verdict = self.emit_update(group, row, slot, out, window);
        self.keep_next(group, row, slot, false);
        self.remember_row(group, row);
        Met::Won(verdict)
    }

    /// Is this the kept record, come again (R1)?
    pub(crate) fn is_itself(&self, group: &Group, row: &Row<'_>, out: &mut Out) -> bool {
        let is_itself = row.is_redelivered() && group.keeps(&position(self, row));
        if is_itself {
            out.count(REDELIVERED_SELF, 1);
        }
        is_itself
    }

    /// Is the content of the row that which was written last?
    pub(crate) fn is_unchanged(&self, group: &Group, row: &Row<'_>) -> bool {
        let column = self.plan.content;
        column.is_some_and(|column| group.content.is_some_and(|content| row.cell(column).bytes == content))
    }

    /// The row lost.
    pub(crate) fn lose(
        &self,
        group: &mut Group,
        row: &Row<'_>,
        slot: &mut Slot<'_>,
        out: &mut Out,
        window: Option<Window>,
    ) -> Verdict {
        out.count(DUPLICATES_DROPPED, 1);
        if group.image != NOTHING_KEPT {
            slot.winner(group.image);
        }
        if group.phase == Phase::Written && group.has_image() && self.is_due(group, row) {
            self.take_back(group, slot, out, Kind::Old, window);
            out.emit_kept(slot, group.image, Kind::New, window);
            self.tell(group.audit, out);
            if let Some(old) = group.old.take() {
                slot.let_go(old);
            }
            self.remember(group);
            group.wrote = Some(self.time(row));
        }
        Verdict::Duplicate
    }

    /// Is a heartbeat due (X13)? The record leaves the content of its key as it is.
    fn is_due(&self, group: &Group, row: &Row<'_>) -> bool {
        let Some(heartbeat) = self.settings.heartbeat else { return false };
        let wrote = group.wrote.unwrap_or(i64::MIN);
        self.time(row).saturating_sub(wrote) >= heartbeat
    }

    /// The number under which the kept record of a group stays: its image where that may leave again, else a mark.
    pub(crate) fn number(&self, n: u8) -> u8 {
        if self.plan.images { n } else { n + MARKS }
    }

    /// Keeps the row under the group's number.
    pub(crate) fn keep(&self, group: &Group, row: &Row<'_>, slot: &mut Slot<'_>) {
        match group.image {
            NOTHING_KEPT => {}
            mark if mark >= MARKS => slot.mark(mark, row),
            image => slot.keep(image, row),
        }
    }

    /// Keeps the row in place of the kept record. `aside`: what was written last is another record, and stays if it may
    /// have to be taken back. A group has two numbers for this, an even one and the next.
    fn keep_next(&self, group: &mut Group, row: &Row<'_>, slot: &mut Slot<'_>, aside: bool) {
        if !aside && let Some(old) = group.old.take() {
            slot.let_go(old);
        }
        if aside && self.plan.retracts && group.old.is_none() && group.has_image() {
            group.old = Some(group.image);
            group.image ^= 1;
        }
        let number = self.number(group.image % MARKS);
        if number != group.image && group.image != NOTHING_KEPT {
            // Made under settings that kept less, or more.
            slot.let_go(group.image);
            group.image = number;
        }
        self.keep(group, row, slot);
    }

    /// A number for the kept record of a new group, if there is one: even, and neither it nor the next is taken.
    pub(crate) fn free_number(&self, groups: &[Group]) -> Option<u8> {
        let pair = |number: u8| number % MARKS & !1;
        let takes = |group: &Group, number: u8| {
            let numbers = [Some(group.image), group.old].into_iter().flatten();
            numbers.filter(|n| *n != NOTHING_KEPT).any(|n| pair(n) == number)
        };
        let free = (0..MARKS - 2).step_by(2).find(|&number| !groups.iter().any(|group| takes(group, number)));
        free.map(|number| self.number(number))
    }

    /// The row is late (L2).
    pub(crate) fn late(&self, out: &mut Out) -> Verdict {
        out.count(LATE, 1);
        match self.settings.late {
            Late::Route => Verdict::Late,
            Late::Drop => Verdict::Drop,
            Late::Pass => Verdict::Keep,
        }
    }

    /// Writes the groups of an entry.
    pub(crate) fn save(&mut self, groups: &[Group], slot: &mut Slot<'_>, expires: i64) {
        entry::write(groups, &mut self.buffer);
        slot.put(&self.buffer, expires);
    }
}
