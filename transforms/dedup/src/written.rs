//! What leaves, and how what has left is taken back: kinds of rows, audit headers, the route of duplicates, deletions.

use tamis_guest::{Cell, Failure, Kind, Out, Row, Slot, Verdict, Window};

use crate::Dedup;
use crate::entry::{Audit, Group, MARKS, NOTHING_KEPT, Phase};
use crate::settings::Clock;
use crate::table::Output;

const MS: i64 = 1_000_000;

impl Dedup {
    /// The row leaves at once, the first of its scope.
    pub(crate) fn emit(&self, group: &Group, row: &Row<'_>, out: &mut Out, window: Option<Window>) -> Verdict {
        if window.is_none() && group.audit.is_none() {
            return Verdict::Keep;
        }
        out.emit_row(row, Kind::Insert, window);
        self.tell(group.audit, out);
        Verdict::Output
    }

    /// The row leaves in place of what was written last.
    pub(crate) fn emit_update(
        &self,
        group: &Group,
        row: &Row<'_>,
        slot: &Slot<'_>,
        out: &mut Out,
        window: Option<Window>,
    ) -> Verdict {
        if window.is_none() && group.audit.is_none() && !self.plan.retracts {
            return Verdict::Update;
        }
        self.take_back(group, slot, out, Kind::Old, window);
        out.emit_row(row, Kind::New, window);
        self.tell(group.audit, out);
        Verdict::Output
    }

    /// The kept record leaves, its scope being final.
    pub(crate) fn emit_kept(&self, group: &mut Group, slot: &mut Slot<'_>, out: &mut Out, window: Option<Window>) {
        if group.again {
            self.take_back(group, slot, out, Kind::Old, window);
        }
        out.emit_kept(slot, group.image, if group.again { Kind::New } else { Kind::Insert }, window);
        self.tell(group.audit, out);
        if let Some(old) = group.old.take() {
            slot.let_go(old);
        }
        self.remember(group);
    }

    /// What was written last is taken back: as the old image of an update, which only retract output writes, or deleted,
    /// for which upsert output needs no more than the key. `window`: the one it was written with (O13).
    pub(crate) fn take_back(&self, group: &Group, slot: &Slot<'_>, out: &mut Out, kind: Kind, window: Option<Window>) {
        let number = group.old.unwrap_or(group.image);
        let possible = if self.plan.retracts { number < MARKS } else { kind == Kind::Delete && number != NOTHING_KEPT };
        if possible {
            out.emit_kept(slot, number, kind, window);
            self.tell(group.told.or(group.audit), out);
        }
    }

    /// The row is what was written last.
    pub(crate) fn remember_row(&self, group: &mut Group, row: &Row<'_>) {
        group.content = self.content(row);
        group.wrote = self.settings.heartbeat.map(|_| self.time(row));
        self.remember(group);
    }

    /// The content of a row, if it is compared.
    pub(crate) fn content(&self, row: &Row<'_>) -> Option<[u8; 16]> {
        self.plan.content.and_then(|column| row.cell(column).bytes.try_into().ok())
    }

    /// What the headers of the row written last said.
    pub(crate) fn remember(&self, group: &mut Group) {
        group.told = group.audit.filter(|_| self.plan.retracts);
    }

    /// Audit headers of what was emitted last (O10).
    pub(crate) fn tell(&self, audit: Option<Audit>, out: &mut Out) {
        let Some(audit) = audit.filter(|_| self.settings.audit) else { return };
        for (column, number) in [audit.first.div_euclid(MS), audit.last.div_euclid(MS)].into_iter().enumerate() {
            out.write(column, Cell::text(&number.to_string()));
        }
        out.write(2, Cell::text(&audit.count.to_string()));
    }

    /// The time that audit headers tell: event time if it is evaluated, else processing time.
    pub(crate) fn audit_time(&self, row: &Row<'_>) -> i64 {
        let time = self.plan.time.and_then(|column| row.cell(column).as_i64());
        match (time, self.plan.clock) {
            (Some(time), _) => time,
            (None, Clock::Event) => row.time().time,
            (None, _) => row.now(),
        }
    }

    /// The kept record lost against the one of this name: it goes to the route of duplicates.
    pub(crate) fn displace(&self, group: &Group, winner: &str, slot: &Slot<'_>, out: &mut Out) {
        if self.plan.displaces && group.has_image() {
            out.emit_kept(slot, group.image, Kind::Insert, None);
            out.to_route(0);
            out.write(self.plan.duplicate_of, Cell::text(winner));
        }
    }

    /// The position of a row, as headers tell it.
    pub(crate) fn name(&self, row: &Row<'_>) -> String {
        let topic = row.text(self.plan.topic).unwrap_or_default();
        let partition = row.cell(self.plan.topic + 1).as_i64().unwrap_or(0);
        let offset = row.cell(self.plan.offset).as_i64().unwrap_or(0);
        format!("{topic}/{partition}/{offset}")
    }

    /// The same where it is needed.
    pub(crate) fn name_if(&self, needed: bool, row: &Row<'_>) -> String {
        if needed { self.name(row) } else { String::new() }
    }

    /// A deletion came in: it clears the key, and leaves at once (O11). Retract output deletes what was written, and
    /// has nothing to delete where nothing was.
    pub(crate) fn delete(&self, groups: &mut [Group], slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
        let mut verdict = Verdict::Keep;
        if self.settings.output == Output::Retract {
            verdict = Verdict::Drop;
            groups.sort_by_key(|group| group.anchor);
            for group in groups.iter().filter(|group| group.phase == Phase::Written || group.again) {
                let before = out.emitted();
                self.take_back(group, slot, out, Kind::Delete, None);
                if out.emitted() > before {
                    verdict = Verdict::Output;
                }
            }
        }
        if slot.value().is_some() {
            slot.remove();
        }
        verdict
    }

    /// Too many groups of one key wait at once: the row is given up.
    pub(crate) fn too_many(&self, row: &Row<'_>, out: &mut Out) -> Verdict {
        let text = "63 groups of this key are open: the delay of time is far longer than the window";
        out.fail(row, Failure::permanent("too_many_groups", text));
        Verdict::Drop
    }
}
