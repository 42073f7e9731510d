//! What happens between a record and the kept one of its scope, whatever the scope is.

use tamis_guest::{Cell, Kind, NEVER, Out, Row, Slot, Verdict, Window};

use crate::entry::{self, Audit, Group, MARKS, NOTHING_KEPT, Phase};
use crate::settings::{Clock, Late};
use crate::standing::{Standing, beats, position, standing};
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
        if phase == Phase::Written {
            self.written(&mut group, row);
        }
        group
    }

    /// Has what is kept in this phase left for good?
    fn is_final(&self, phase: Phase) -> bool {
        match self.plan.code {
            Code::FA => true,
            Code::FE => phase == Phase::Written,
            Code::NO3 => phase == Phase::Written && self.settings.output == Output::Append,
            _ => false,
        }
    }

    /// Where the row stands; the position will do where nothing is compared.
    fn standing_of(&self, row: &Row<'_>, phase: Phase) -> Standing {
        if self.is_final(phase) { Standing::from_slice(&position(self, row)) } else { standing(self, row) }
    }

    /// Sets the time of a group to that of its kept record, if it is needed.
    fn date(&self, group: &mut Group, row: &Row<'_>) {
        group.time = match (group.phase, self.settings.retention) {
            (Phase::Waiting, _) => self.plan.ranks_by_time.then(|| row.time().time),
            (_, retention) => retention.map(|_| self.ageing_time(row)),
        };
    }

    /// The row is what was written last.
    fn written(&self, group: &mut Group, row: &Row<'_>) {
        group.content = self.plan.content.and_then(|column| row.cell(column).bytes.try_into().ok());
        group.wrote = self.settings.heartbeat.map(|_| self.time(row));
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
        if row.is_redelivered() && group.keeps(&position(self, row)) {
            out.count(REDELIVERED_SELF, 1);
            return Met::Lost(self.lose(group, row, slot, out));
        }
        if let Some(audit) = &mut group.audit {
            audit.add(self.audit_time(row));
        }
        let stands = (!self.is_final(group.phase)).then(|| standing(self, row));
        let Some(stands) = stands.filter(|stands| beats(self, row, stands, &group.standing)) else {
            self.touch(group, row);
            return Met::Lost(self.lose(group, row, slot, out));
        };
        out.count(REPLACED, 1);
        self.displace(group, row, slot, out);
        group.standing = stands;
        let base = group.time;
        self.date(group, row);
        if self.settings.retention.is_some_and(|retention| retention.access) && group.phase != Phase::Waiting {
            group.time = group.time.max(base);
        }
        let number = self.number(group.image % MARKS);
        if number != group.image && group.image != NOTHING_KEPT {
            // Made under settings that kept less, or more.
            slot.let_go(group.image);
            group.image = number;
        }
        self.keep(group, row, slot);
        if group.phase == Phase::Waiting {
            return Met::Won(Verdict::Held);
        }
        let unchanged = self
            .plan
            .content
            .is_some_and(|column| group.content.is_some_and(|content| row.cell(column).bytes == content));
        if unchanged && !self.is_due(group, row) {
            out.count(UNCHANGED_SUPPRESSED, 1);
            return Met::Won(Verdict::Held);
        }
        self.written(group, row);
        Met::Won(self.emit(group, row, out, Kind::New, window))
    }

    /// The row lost.
    fn lose(&self, group: &mut Group, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
        out.count(DUPLICATES_DROPPED, 1);
        if group.image != NOTHING_KEPT {
            slot.winner(group.image);
        }
        if group.phase == Phase::Written && group.has_image() && self.is_due(group, row) {
            out.emit_kept(slot, group.image, Kind::New, None);
            self.audit(group, out);
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

    /// The kept record lost against the row: it goes to the route of duplicates.
    fn displace(&self, group: &Group, row: &Row<'_>, slot: &Slot<'_>, out: &mut Out) {
        if !self.plan.displaces || !group.has_image() {
            return;
        }
        out.emit_kept(slot, group.image, Kind::Insert, None);
        out.to_route(0);
        let topic = row.text(self.plan.topic).unwrap_or_default();
        let partition = row.cell(self.plan.topic + 1).as_i64().unwrap_or(0);
        let offset = row.cell(self.plan.offset).as_i64().unwrap_or(0);
        out.write(self.plan.duplicate_of, Cell::text(&format!("{topic}/{partition}/{offset}")));
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

    /// The row leaves at once.
    pub(crate) fn emit(
        &self,
        group: &Group,
        row: &Row<'_>,
        out: &mut Out,
        kind: Kind,
        window: Option<Window>,
    ) -> Verdict {
        if window.is_none() && group.audit.is_none() {
            return if kind == Kind::New { Verdict::Update } else { Verdict::Keep };
        }
        out.emit_row(row, kind, window);
        self.audit(group, out);
        Verdict::Output
    }

    /// The kept record leaves, its scope being final.
    pub(crate) fn emit_kept(&self, group: &Group, slot: &Slot<'_>, out: &mut Out, window: Option<Window>) {
        let kind = if group.again { Kind::New } else { Kind::Insert };
        out.emit_kept(slot, group.image, kind, window);
        self.audit(group, out);
    }

    /// Audit headers of what was emitted last (O10).
    fn audit(&self, group: &Group, out: &mut Out) {
        let Some(audit) = group.audit.filter(|_| self.settings.audit) else { return };
        for (column, number) in [audit.first.div_euclid(MS), audit.last.div_euclid(MS)].into_iter().enumerate() {
            out.write(column, Cell::text(&number.to_string()));
        }
        out.write(2, Cell::text(&audit.count.to_string()));
    }

    /// The time that audit headers tell: event time if it is evaluated, else processing time.
    fn audit_time(&self, row: &Row<'_>) -> i64 {
        let time = self.plan.time.and_then(|column| row.cell(column).as_i64());
        match (time, self.plan.clock) {
            (Some(time), _) => time,
            (None, Clock::Event) => row.time().time,
            (None, _) => row.now(),
        }
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

const MS: i64 = 1_000_000;
