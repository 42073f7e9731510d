//! What each mode of a stage does with a row and with a wake.

use super::chain::{ANY, END, Image, Row, Stamp};
use super::stages::{Aligned, Call, Entry, Keep, Mode, Place, Stage, better};

/// The windows that cover a time, by end and then by start.
fn covering(windows: Aligned, time: i64) -> Vec<(i64, i64)> {
    let floor = |size: i64| time.div_euclid(size) * size;
    let mut found = match windows {
        Aligned::Tumbling(size) => vec![(floor(size), floor(size) + size)],
        Aligned::Zone => {
            let day = floor(24);
            let bounds = [day, day + 7, day + 8, day + 19, day + 24];
            bounds.windows(2).filter(|b| b[0] <= time && time < b[1]).map(|b| (b[0], b[1])).collect()
        }
        Aligned::Hopping(size, slide) => {
            let starts = (0..).map(|n| floor(slide) - n * slide).take_while(|start| start + size > time);
            starts.map(|start| (start, start + size)).collect()
        }
        Aligned::Cumulative(size, step) => {
            let ends = (1..=size / step).map(|n| floor(size) + n * step).filter(|end| *end > time);
            ends.map(|end| (floor(size), end)).collect()
        }
    };
    found.sort_unstable_by_key(|(start, end)| (*end, *start));
    found
}

impl Stage {
    pub(super) fn row(&mut self, row: Row, call: &mut Call) {
        match self.mode.clone() {
            Mode::Final => self.row_final(row, call),
            Mode::AtTheEnd(keep) => {
                let place = (row.key, 0, 0);
                if self.keep_better(place, &row, keep, call) {
                    self.set_wake(place, END, call);
                }
            }
            Mode::Updating(keep) => {
                let place = (row.key, 0, 0);
                if self.keep_better(place, &row, keep, call) {
                    self.say(place, &row, (0, 0), call);
                }
            }
            Mode::Closed(_, windows, _)
            | Mode::Marks(windows)
            | Mode::Replaced(_, windows)
            | Mode::Corrected(_, windows, _) => self.row_aligned(row, windows, call),
            Mode::Session(keep, gap) => self.row_session(row, keep, gap, 0, call),
            Mode::SessionReplaced(keep, gap) => self.row_session(row, keep, gap, 0, call),
            Mode::SessionCorrected(keep, gap, lateness) => self.row_session(row, keep, gap, lateness, call),
            Mode::Horizon(ttl, grows) => self.row_horizon(row, None, ttl, grows, call),
            Mode::HorizonClosed(keep, ttl, grows) => self.row_horizon(row, Some(keep), ttl, grows, call),
        }
    }

    /// A wake: what the entry holds is final, or over.
    pub(super) fn wake(&mut self, at: Stamp, place: Place, call: &mut Call) {
        let Some(entry) = self.state.get(&place) else { return };
        let (row, written) = (entry.row.clone(), entry.written);
        let (key, start, end) = place;
        match self.mode.clone() {
            Mode::Final | Mode::AtTheEnd(_) => {
                self.wrote(place, &row);
                self.emit(&row, at, (0, 0), call);
            }
            Mode::Closed(_, _, changes) => {
                self.state.remove(&place);
                let same = self.steps.insert((key, start), row.id) == Some(row.id);
                if !(changes && same) {
                    self.emit(&row, at, (start, end), call);
                }
            }
            Mode::Session(_, gap) => {
                self.state.remove(&place);
                self.emit(&row, at, (start, end + gap), call);
            }
            Mode::HorizonClosed(_, ttl, grows) => {
                self.state.remove(&place);
                self.emit(&row, at, (start, if grows { end } else { start } + ttl), call);
            }
            Mode::Corrected(_, _, lateness) if !written => {
                self.wrote(place, &row);
                self.set_wake(place, (end + lateness, 0), call);
                self.emit(&row, at, (start, end), call);
            }
            Mode::SessionCorrected(_, gap, lateness) if !written => {
                self.wrote(place, &row);
                self.set_wake(place, (end + gap + lateness, ANY), call);
                self.emit(&row, at, (start, end + gap), call);
            }
            _ => drop(self.state.remove(&place)),
        }
    }

    fn wrote(&mut self, place: Place, row: &Row) {
        if let Some(entry) = self.state.get_mut(&place) {
            entry.written = true;
            entry.image = Some(row.clone());
        }
    }

    /// The row is what the place keeps from now on; what was written of it stays.
    fn put(&mut self, place: Place, row: &Row, call: &Call) {
        let (time, _) = self.stands(row, call);
        let old = self.state.get(&place);
        let (image, written) = (old.and_then(|e| e.image.clone()), old.is_some_and(|e| e.written));
        let wake = old.and_then(|e| e.wake);
        self.state.insert(place, Entry { row: row.clone(), time, image, written, wake });
    }

    /// Keeps the row if there is none, or a worse one.
    fn keep_better(&mut self, place: Place, row: &Row, keep: Keep, call: &Call) -> bool {
        let wins = self.state.get(&place).is_none_or(|entry| better(keep, row, &entry.row));
        if wins {
            self.put(place, row, call);
        }
        wins
    }

    /// The kept row leaves because of a row: as an insert, or as an update of what was written.
    fn say(&mut self, place: Place, cause: &Row, window: (i64, i64), call: &mut Call) {
        let Some(entry) = self.state.get(&place) else { return };
        let (row, old) = (entry.row.clone(), entry.image.clone());
        if let Some(old) = &old {
            self.image(Image::Old, old, cause, old.window, call);
        }
        let image = if old.is_some() { Image::New } else { Image::Insert };
        self.image(image, &row, cause, window, call);
        self.wrote(place, &Row { window, ..row });
    }

    fn row_final(&mut self, row: Row, call: &mut Call) {
        let place = (row.key, 0, 0);
        let entry = self.state.get(&place);
        if entry.is_some_and(|entry| entry.written) {
            return;
        }
        if row.event.time < row.event.sees.0 {
            return call.late.push(row);
        }
        if entry.is_none_or(|entry| (row.event.time, row.input) < (entry.row.event.time, entry.row.input)) {
            let at = (row.event.time, row.input);
            self.put(place, &row, call);
            self.set_wake(place, at, call);
        }
    }

    fn row_aligned(&mut self, row: Row, windows: Aligned, call: &mut Call) {
        let (time, sees) = self.stands(&row, call);
        let lateness = if let Mode::Corrected(_, _, lateness) = self.mode { lateness } else { 0 };
        let mut taken = false;
        for (start, end) in covering(windows, time) {
            if (end + lateness, 0) <= sees && !self.has_no_late() {
                continue;
            }
            taken = true;
            let place = (row.key, start, end);
            match self.mode.clone() {
                Mode::Marks(_) => {
                    if !self.state.contains_key(&place) {
                        self.put(place, &row, call);
                        self.set_wake(place, (end, 0), call);
                        self.image(Image::Insert, &row, &row, (start, end), call);
                    }
                }
                Mode::Replaced(keep, _) => {
                    if self.keep_better(place, &row, keep, call) {
                        self.set_wake(place, (end, 0), call);
                        self.say(place, &row, (start, end), call);
                    }
                }
                Mode::Corrected(keep, _, lateness) => {
                    if self.keep_better(place, &row, keep, call) {
                        let over = (end, 0) <= sees;
                        if over {
                            self.say(place, &row, (start, end), call);
                        }
                        self.set_wake(place, if over { (end + lateness, 0) } else { (end, 0) }, call);
                    }
                }
                Mode::Closed(keep, ..) => {
                    if self.keep_better(place, &row, keep, call) {
                        self.set_wake(place, (end, 0), call);
                    }
                }
                _ => {}
            }
        }
        if !taken {
            call.late.push(row);
        }
    }

    /// The places of a key.
    fn places(&self, key: i64, near: impl Fn(&Place) -> bool) -> Vec<Place> {
        let all = self.state.range((key, i64::MIN, i64::MIN)..=(key, i64::MAX, i64::MAX));
        all.map(|(place, _)| *place).filter(near).collect()
    }

    fn row_session(&mut self, row: Row, keep: Keep, gap: i64, lateness: i64, call: &mut Call) {
        let (time, sees) = self.stands(&row, call);
        let near = self.places(row.key, |(_, low, high)| low - gap <= time && time <= high + gap);
        if near.is_empty() && (time + gap + lateness, ANY) <= sees && !self.has_no_late() {
            return call.late.push(row);
        }
        let (mut low, mut high, mut best, mut written) = (time, time, row.clone(), false);
        let mut images = Vec::new();
        for place in near {
            let Some(entry) = self.state.remove(&place) else { continue };
            (low, high) = (low.min(place.1), high.max(place.2));
            written |= entry.written;
            images.extend(entry.image.map(|image| (place.1, image)));
            if !better(keep, &best, &entry.row) {
                best = entry.row;
            }
        }
        let (place, window) = ((row.key, low, high), (low, high + gap));
        self.put(place, &best, call);
        let over = (high + gap, ANY) <= sees;
        let at_once = match self.mode {
            Mode::SessionReplaced(..) => true,
            Mode::SessionCorrected(..) => written || over,
            _ => false,
        };
        let stays = if at_once { lateness } else { 0 };
        self.set_wake(place, (high + gap + stays, ANY), call);
        if !at_once {
            return;
        }
        for (_, image) in images.iter().filter(|(start, _)| *start != low) {
            self.image(Image::Delete, image, &row, image.window, call);
        }
        let image = images.into_iter().find(|(start, _)| *start == low).map(|(_, image)| image);
        let same = image.as_ref().is_some_and(|image| image.id == best.id);
        if let Some(entry) = self.state.get_mut(&place) {
            entry.written = true;
            entry.image = image;
        }
        if !same {
            self.say(place, &row, window, call);
        }
    }

    /// `keep` of none: marks only, the first arrival leaves at once.
    fn row_horizon(&mut self, row: Row, keep: Option<Keep>, ttl: i64, grows: bool, call: &mut Call) {
        let (time, sees) = self.stands(&row, call);
        let last = |place: &Place| if grows { place.2 } else { place.1 };
        let distance = |place: &Place| (place.1 - time).max(time - last(place)).max(0);
        let mut near = self.places(row.key, |place| distance(place) < ttl && sees < (last(place) + ttl, 0));
        near.sort_by_key(|place| (distance(place), place.1));
        if near.is_empty() {
            if time < sees.0 && !self.has_no_late() {
                return call.late.push(row);
            }
            let place = (row.key, time, time);
            self.put(place, &row, call);
            self.set_wake(place, (time + ttl, 0), call);
            if keep.is_none() {
                self.image(Image::Insert, &row, &row, (0, 0), call);
            }
            return;
        }
        if !grows {
            let place = near[0];
            if keep.is_some_and(|keep| self.keep_better(place, &row, keep, call)) {
                self.set_wake(place, (place.1 + ttl, 0), call);
            }
            return;
        }
        // It grows, and takes in whom it meets.
        let (mut low, mut high, mut best) = (time, time, row.clone());
        near.sort_unstable();
        for place in near {
            let Some(entry) = self.state.remove(&place) else { continue };
            (low, high) = (low.min(place.1), high.max(place.2));
            if keep.is_some_and(|keep| !better(keep, &best, &entry.row)) {
                best = entry.row;
            }
        }
        let place = (row.key, low, high);
        self.put(place, &best, call);
        self.set_wake(place, (high + ttl, 0), call);
    }
}
