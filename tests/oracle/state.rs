//! What the reference knows of a scope, how long, and what it writes of it.

use super::reference::Reference;
use super::table::{Code, Keep, Order, Output, Window};
use super::words::{Record, Tag};

/// What was last sent of a scope, with the bounds it was sent with (O13).
#[derive(Clone, Debug)]
pub struct Image {
    pub record: Record,
    pub window: Option<(i64, i64)>,
}

/// What is known of a scope.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Option<String>,
    /// Start of the window; time of the first record of a session or a growing horizon; anchor.
    pub start: i64,
    /// End of the window; time of the last record of a session or a growing horizon.
    pub end: i64,
    pub kept: Record,
    /// The kept record's time on the stage's clock.
    pub time: i64,
    /// In which order records came that were kept.
    pub arrived: u64,
    /// Something of this scope has left.
    pub written: bool,
    pub image: Option<Image>,
    /// What retention counts from.
    pub base: i64,
    /// When it was last written, on the stage's clock.
    pub written_at: i64,
    /// In which order entries were made.
    pub made: u64,
    /// It stands for a delete.
    pub deleted: bool,
}

impl Reference {
    /// Number of the entry of a scope.
    pub(super) fn find(&self, key: &Option<String>, start: i64, end: i64) -> Option<usize> {
        self.entries.iter().position(|e| e.key == *key && e.start == start && e.end == end)
    }

    /// A new entry with this record in it; its number.
    pub(super) fn make(&mut self, record: &Record, start: i64, end: i64) -> usize {
        if let Some(most) = self.set.max_entries {
            // What time has passed goes first, and is not counted.
            let (now, stands) = (self.now, self.watermark);
            if let Some(retention) = self.set.retention {
                let clock = if retention.processing { now } else { stands };
                self.entries.retain(|e| clock < e.base.saturating_add(retention.length) || e.waits());
            }
            while self.entries.len() >= most {
                let oldest = self.entries.iter().enumerate().filter(|(_, e)| !e.waits()).min_by_key(|(_, e)| e.made);
                let Some(oldest) = oldest.map(|(at, _)| at) else { break };
                self.entries.remove(oldest);
                self.count("evicted_live");
            }
        }
        self.made += 1;
        let time = self.time_of(record);
        self.entries.push(Entry {
            key: record.key.clone(),
            start,
            end,
            kept: record.clone(),
            time,
            arrived: self.made,
            written: false,
            image: None,
            base: self.base_of(record),
            written_at: time,
            made: self.made,
            deleted: false,
        });
        self.entries.len() - 1
    }

    /// The record joined the entry; if it won, it is the kept one now.
    pub(super) fn touch(&mut self, record: &Record, at: usize, won: bool) {
        let (time, base) = (self.time_of(record), self.base_of(record));
        let access = self.set.retention.is_some_and(|r| r.access);
        self.made += u64::from(won);
        let made = self.made;
        let entry = &mut self.entries[at];
        if won {
            (entry.kept, entry.time, entry.arrived) = (record.clone(), time, made);
        }
        if access {
            entry.base = entry.base.max(base);
        } else if won {
            entry.base = base;
        }
    }

    /// What retention counts from.
    pub(super) fn base_of(&self, record: &Record) -> i64 {
        let by_time = if self.set.cell.clock == super::table::Clock::Ingestion { record.stamp } else { record.event };
        if self.aged() { by_time.unwrap_or(0) } else { self.now }
    }

    /// X2: gone by the record's time or by the watermark before it; a candidate that waits never (X3).
    pub(super) fn is_gone(&self, entry: &Entry, record: &Record) -> bool {
        let Some(retention) = self.set.retention else { return false };
        if entry.waits() {
            return false;
        }
        let until = entry.base.saturating_add(retention.length);
        if retention.processing {
            return self.now >= until;
        }
        self.base_of(record) >= until || self.watermark >= until
    }

    /// O1 to O3.
    pub(super) fn wins(&self, record: &Record, kept: &Record) -> bool {
        let by_value = match self.set.cell.order {
            Order::Arrival => return self.set.cell.keep == Keep::Last,
            Order::Time => compare(&record.event, &kept.event, self.set.cell.keep),
            Order::Field => record.fields.iter().zip(&kept.fields).find_map(|(a, b)| compare(a, b, self.set.cell.keep)),
        };
        let (new, old) = ((record.p, record.o), (kept.p, kept.o));
        by_value.unwrap_or(if self.set.cell.keep == Keep::First { new < old } else { new >= old })
    }

    /// A position that came before never replaces itself, nor anything under order arrival (R1).
    pub(super) fn wins_again(&self, record: &Record, kept: &Record) -> bool {
        self.set.cell.order != Order::Arrival && !record.is(kept) && self.wins(record, kept)
    }

    // ---- output

    /// The window that a row of this scope shows.
    fn shown(&self, entry: &Entry) -> Option<(i64, i64)> {
        match self.set.cell.window {
            Window::None => None,
            Window::Session { gap } => Some((entry.start, entry.end + gap)),
            Window::Horizon { .. } => {
                let closes = self.over_at(entry).filter(|_| self.set.code == Code::Final);
                closes.map(|end| (entry.start, end))
            }
            _ => Some((entry.start, entry.end)),
        }
    }

    /// The kept record is written: an insert, or an update of what was written before.
    pub(super) fn write(&mut self, at: usize) {
        let entry = &self.entries[at];
        let (record, window, old) = (entry.kept.clone(), self.shown(entry), entry.image.clone());
        match (self.set.cell.output, old) {
            (Output::Retract, Some(old)) => {
                self.emit(Tag::Old, &old.record, old.window);
                self.emit(Tag::New, &record, window);
            }
            _ => self.insert(&record, window),
        }
        let entry = &mut self.entries[at];
        entry.written = true;
        entry.image = Some(Image { record, window });
    }

    /// A record on its own.
    pub(super) fn insert(&mut self, record: &Record, window: Option<(i64, i64)>) {
        let tag = match (self.set.cell.output, &record.content) {
            (Output::Retract, _) => Tag::Insert,
            (_, None) => Tag::Tomb,
            (Output::Upsert, _) => Tag::Put,
            (Output::Append, _) => Tag::Insert,
        };
        self.emit(tag, record, window);
    }

    /// What was written of a scope is no more.
    pub(super) fn delete(&mut self, image: &Image) {
        let tag = if self.set.cell.output == Output::Retract { Tag::Delete } else { Tag::Tomb };
        self.emit(tag, &image.record, image.window);
    }

    /// What waited leaves.
    pub(super) fn leave(&mut self, due: &Entry) {
        let Some(at) = self.find(&due.key, due.start, due.end) else { return };
        if self.set.code == Code::FinalSteps {
            let step = (due.key.clone(), due.start);
            if self.steps.get(&step).is_some_and(|winner| winner.is(&due.kept)) {
                self.entries[at].written = true;
                return;
            }
            self.steps.insert(step, due.kept.clone());
        }
        // Its life as a mark begins now, with the time of the kept record: what it met while it waited is forgotten (X2).
        self.entries[at].base = self.base_of(&due.kept);
        self.write(at);
    }
}

/// Whether the first of two wins; none: they are equal. A null loses, whichever is kept (O2).
fn compare<T: PartialOrd>(a: &Option<T>, b: &Option<T>, keep: Keep) -> Option<bool> {
    match (a, b) {
        (Some(_), None) => Some(true),
        (None, Some(_)) => Some(false),
        (Some(a), Some(b)) if a != b => Some((a < b) == (keep == Keep::First)),
        _ => None,
    }
}

impl Entry {
    /// A candidate that waits: neither written nor a sign of a delete.
    pub fn waits(&self) -> bool {
        !self.written && !self.deleted
    }
}
