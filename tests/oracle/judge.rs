//! What the reference does with one record: keys, lateness, and what it meets in its scope.

use super::reference::Reference;
use super::state::{Entry, Image};
use super::table::{Clock, Code, Emit, Keep, Output, Window};
use super::windows::covering;
use super::words::{Late, NullKey, Record, Tag};

impl Reference {
    pub(super) fn judge(&mut self, record: &Record, again: bool) {
        if record.key.is_none() {
            self.count("null_key");
            match self.set.null_key {
                NullKey::Group => {}
                NullKey::Pass => return self.insert(record, None),
                NullKey::Dlq => return self.emit(Tag::DlqKey, record, None),
                NullKey::Drop => return,
            }
        }
        match self.set.cell.window {
            Window::None => self.judge_unwindowed(record, again),
            Window::Session { gap } => self.judge_session(record, gap, again),
            Window::Horizon { ttl, access } => self.judge_horizon(record, ttl, access, again),
            window => {
                let mut taken = false;
                for (start, end) in covering(&window, self.time_of(record)) {
                    if self.set.cell.clock != Clock::Processing && self.watermark >= end + self.set.lateness {
                        self.count("late_window_assignments");
                        continue;
                    }
                    taken = true;
                    self.meet(record, start, end, again);
                }
                if !taken {
                    self.late(record);
                }
            }
        }
    }

    fn judge_unwindowed(&mut self, record: &Record, again: bool) {
        if let Some(at) = self.find(&record.key, 0, 0).filter(|&at| self.is_gone(&self.entries[at], record)) {
            self.entries.remove(at);
        }
        if record.content.is_none() {
            return self.tombstone(record);
        }
        if let Some(at) = self.find(&record.key, 0, 0).filter(|&at| self.entries[at].deleted) {
            self.entries.remove(at);
        }
        let waits_for_time = self.set.code == Code::Final && self.by_event() && self.set.cell.keep == Keep::First;
        let done = self.find(&record.key, 0, 0).is_some_and(|at| self.entries[at].written);
        if waits_for_time && !done && record.event.is_some_and(|time| time < self.watermark) {
            return self.late(record);
        }
        self.meet(record, 0, 0, again);
    }

    /// Always forwarded, and it clears what is known of the key; in retract output what was written is deleted (O11).
    fn tombstone(&mut self, record: &Record) {
        let cell = &self.set.cell;
        let (output, none) = (cell.output, cell.window == Window::None);
        let marks = cell.emit == Emit::Change && output != Output::Append && none;
        if marks && self.find(&record.key, 0, 0).is_some_and(|at| self.entries[at].deleted) {
            return self.count("unchanged_suppressed");
        }
        let mut known: Vec<Entry> = self.entries.iter().filter(|e| e.key == record.key).cloned().collect();
        known.sort_by_key(|entry| entry.start);
        self.entries.retain(|entry| entry.key != record.key);
        if marks {
            let at = self.make(record, 0, 0);
            self.entries[at].deleted = true;
        }
        if output != Output::Retract {
            return self.emit(Tag::Tomb, record, None);
        }
        let images: Vec<Image> = known.into_iter().filter_map(|entry| entry.image).collect();
        images.iter().for_each(|image| self.delete(image));
    }

    fn late(&mut self, record: &Record) {
        self.count("late");
        match self.set.late {
            Late::Route => self.emit(Tag::Late, record, None),
            Late::Drop => {}
            Late::Pass => self.insert(record, None),
        }
    }

    /// A record meets what is known of its scope.
    fn meet(&mut self, record: &Record, start: i64, end: i64, again: bool) {
        let Some(at) = self.find(&record.key, start, end) else {
            return self.begin(record, start, end);
        };
        let entry = &self.entries[at];
        let (kept, written) = (entry.kept.clone(), entry.written);
        // FA, FE: what left is never corrected.
        let left = self.set.code == Code::FA || (self.is_final_code() && written);
        let wins = !left && if again { self.wins_again(record, &kept) } else { self.wins(record, &kept) };
        self.lost(record, &kept, wins, again);
        self.touch(record, at, wins);
        if !wins {
            return self.heartbeat(record, at);
        }
        if self.set.code == Code::Changes && kept.content == record.content {
            self.count("unchanged_suppressed");
            return self.heartbeat(record, at);
        }
        if self.leaves_at_once(at) {
            self.write(at);
            self.entries[at].written_at = self.time_of(record);
        }
    }

    /// The first record of a scope.
    fn begin(&mut self, record: &Record, start: i64, end: i64) {
        let at = self.make(record, start, end);
        if self.leaves_at_once(at) {
            self.write(at);
        }
    }

    fn is_final_code(&self) -> bool {
        matches!(self.set.code, Code::Final | Code::FinalSteps)
    }

    /// Whether the kept record of a scope leaves now.
    fn leaves_at_once(&self, at: usize) -> bool {
        let entry = &self.entries[at];
        match self.set.code {
            Code::Final | Code::FinalSteps => false,
            Code::Corrected => entry.written || self.final_at(entry).is_some_and(|end| self.stands() >= end),
            _ => true,
        }
    }

    /// One of the two lost.
    fn lost(&mut self, record: &Record, kept: &Record, wins: bool, again: bool) {
        let (loser, winner) = if wins { (kept, record) } else { (record, kept) };
        if !wins && again && record.is(kept) {
            self.count("redelivered_self");
        }
        self.count(if wins { "replaced" } else { "duplicates_dropped" });
        self.emit(Tag::Duplicate { of: (winner.p, winner.o) }, loser, None);
    }

    /// The record left the content of its key as it was (X13).
    fn heartbeat(&mut self, record: &Record, at: usize) {
        let Some(beat) = self.set.heartbeat else { return };
        let time = self.time_of(record);
        if time >= self.entries[at].written_at + beat {
            self.write(at);
            self.entries[at].written_at = time;
        }
    }

    // ---- scopes that move

    fn judge_horizon(&mut self, record: &Record, ttl: i64, access: bool, again: bool) {
        if record.content.is_none() {
            return self.tombstone(record);
        }
        let time = self.time_of(record);
        let distance =
            |e: &Entry| if access { (e.start - time).max(time - e.end).max(0) } else { (time - e.start).abs() };
        let mut near: Vec<Entry> =
            self.entries.iter().filter(|e| e.key == record.key && distance(e) < ttl).cloned().collect();
        near.sort_by_key(|entry| (distance(entry), entry.start));
        if near.is_empty() {
            if self.set.cell.clock != Clock::Processing && time < self.watermark {
                return self.late(record);
            }
            return self.begin(record, time, if access { time } else { 0 });
        }
        if !access {
            return self.meet(record, near[0].start, 0, again);
        }
        if again && self.comes_to_itself(record, &near) {
            return;
        }
        // It grows, and takes in whom it meets; then the record is one of its records.
        near.sort_by_key(|entry| entry.start);
        let merged = self.merge(near, time);
        let (start, end) = (merged.start, merged.end);
        self.entries.push(merged);
        self.meet(record, start, end, again);
    }

    /// Takes scopes out and puts them together, a time included.
    fn merge(&mut self, near: Vec<Entry>, time: i64) -> Entry {
        self.entries.retain(|e| !near.iter().any(|n| n.key == e.key && n.start == e.start && n.end == e.end));
        if self.set.code == Code::FA {
            (1..near.len()).for_each(|_| self.count("merged_after_emit"));
        }
        let start = near.iter().map(|e| e.start).fold(time, i64::min);
        let end = near.iter().map(|e| e.end).fold(time, i64::max);
        let mut all = near.into_iter();
        let mut best = all.next().unwrap_or_else(|| unreachable!("there is one at least"));
        for other in all {
            let later = match self.set.cell.order {
                super::table::Order::Arrival => (other.arrived > best.arrived) == (self.set.cell.keep == Keep::Last),
                _ if self.set.code == Code::FA => other.arrived < best.arrived,
                _ => self.wins(&other.kept, &best.kept),
            };
            let written = best.written || other.written;
            let made = best.made.min(other.made);
            let loser = if later { std::mem::replace(&mut best, other) } else { other };
            let winner = best.kept.clone();
            self.lost(&loser.kept, &winner, false, false);
            (best.written, best.made) = (written, made);
        }
        Entry { start, end, ..best }
    }

    /// A duplicate of the scope that holds its own position (R1): its time is in there already.
    fn comes_to_itself(&mut self, record: &Record, near: &[Entry]) -> bool {
        let holds = near.iter().any(|entry| entry.kept.is(record));
        if holds {
            self.lost(record, record, false, true);
        }
        holds
    }

    /// T6, O8.
    fn judge_session(&mut self, record: &Record, gap: i64, again: bool) {
        let time = self.time_of(record);
        let joins = |e: &&Entry| e.key == record.key && e.start - gap <= time && time <= e.end + gap;
        let mut near: Vec<Entry> = self.entries.iter().filter(joins).cloned().collect();
        near.sort_by_key(|entry| entry.start);
        if near.is_empty() {
            if self.set.cell.clock != Clock::Processing && self.watermark > time + gap + self.set.lateness {
                self.count("late_window_assignments");
                return self.late(record);
            }
            return self.begin(record, time, time);
        }
        if again && self.comes_to_itself(record, &near) {
            return;
        }
        let images: Vec<(i64, Image)> = near.iter().filter_map(|e| Some((e.start, e.image.clone()?))).collect();
        let merged = self.merge(near, time);
        let (start, kept) = (merged.start, merged.kept.clone());
        self.entries.push(merged);
        let at = self.entries.len() - 1;
        let wins =
            self.set.code != Code::FA && if again { self.wins_again(record, &kept) } else { self.wins(record, &kept) };
        self.lost(record, &kept, wins, again);
        self.touch(record, at, wins);
        if self.set.code == Code::FA || !self.leaves_at_once(at) {
            return;
        }
        // What was written under another start is no more; then the one that is left.
        for (_, image) in images.iter().filter(|(was, _)| *was != start) {
            self.delete(image);
        }
        let image = images.into_iter().find(|(was, _)| *was == start).map(|(_, image)| image);
        let kept = &self.entries[at].kept;
        let same = image.as_ref().is_some_and(|image| match self.set.code {
            Code::Changes => image.record.content == kept.content,
            _ => image.record.is(kept),
        });
        self.entries[at].image = image;
        if !same {
            self.write(at);
        }
    }
}
