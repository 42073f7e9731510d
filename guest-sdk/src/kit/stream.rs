//! Streams of records with their times, as a keyed guest meets them.

use crate::cells::{Cell, Column, kind};
use crate::row::{END, NONE_YET, Stamp};

/// One record.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its key.
    pub key: String,
    /// Its time on the stage's clock.
    pub time: Stamp,
    /// What it sees of that clock.
    pub seen: Stamp,
    /// Processing time, ns. Records of one call share it.
    pub now: i64,
    /// Is its value null?
    pub tombstone: bool,
    /// Did its position come before?
    pub redelivered: bool,
    /// The cells of the columns that the guest reads, in order: kind and bytes.
    pub cells: Vec<(u8, Vec<u8>)>,
}

impl Record {
    /// A record of this key and time in input 0, without cells.
    pub fn new(key: &str, time: i64) -> Record {
        Record {
            key: key.to_string(),
            time: Stamp::at(time),
            seen: Stamp::NONE_YET,
            now: 0,
            tombstone: false,
            redelivered: false,
            cells: Vec::new(),
        }
    }

    /// From this input of the task.
    pub fn input(mut self, input: u16) -> Record {
        self.time.input = input;
        self
    }

    /// At this processing time, ns.
    pub fn now(mut self, now: i64) -> Record {
        self.now = now;
        self
    }

    /// With a null value.
    pub fn tombstone(mut self) -> Record {
        self.tombstone = true;
        self
    }

    /// Appends a cell.
    pub fn cell(mut self, cell: Cell<'_>) -> Record {
        self.cells.push((cell.kind, cell.bytes.to_vec()));
        self
    }

    /// Appends a text.
    pub fn text(self, text: &str) -> Record {
        self.cell(Cell::text(text))
    }

    /// Appends an int64.
    pub fn int(self, value: i64) -> Record {
        self.cell(Cell { kind: kind::INT64, bytes: &value.to_le_bytes() })
    }
}

/// Records, and where the clock stands after the last one.
#[derive(Clone, Debug)]
pub struct Stream {
    /// In the order of arrival.
    pub records: Vec<Record>,
    /// What the clock comes to after the last record.
    pub end: Stamp,
    /// Processing time then, ns.
    pub end_now: i64,
    /// Are times and what is seen given to the guest?
    pub wants_time: bool,
    /// Is the clock that of processing time? Then it stands still during a call.
    pub processing: bool,
}

impl Stream {
    /// Under the event clock: each input's watermark is its greatest time less `delay` (ns), the stream's the least of
    /// them; each record sees it before its own time moves it. Then the input ends.
    pub fn event(mut records: Vec<Record>, delay: i64) -> Stream {
        let inputs = records.iter().map(|record| usize::from(record.time.input) + 1).max().unwrap_or(1);
        let mut own = vec![NONE_YET; inputs];
        let mut watermark = Stamp::NONE_YET;
        for record in &mut records {
            record.seen = watermark;
            let mine = &mut own[usize::from(record.time.input)];
            *mine = (*mine).max(record.time.time.saturating_sub(delay));
            let stamps = own.iter().enumerate().map(|(input, &time)| Stamp { time, input: input as u16 });
            let least = stamps.min().unwrap_or_default();
            if least.time != NONE_YET {
                watermark = watermark.max(least);
            }
        }
        let end_now = records.last().map_or(0, |record| record.now);
        Stream { records, end: Stamp::at(END), end_now, wants_time: true, processing: false }
    }

    /// Under the processing clock, up to `end_now` (ns) after the last record.
    pub fn processing(mut records: Vec<Record>, end_now: i64) -> Stream {
        for record in &mut records {
            record.time = Stamp { time: record.now, input: record.time.input };
            record.seen = Stamp::at(record.now);
        }
        Stream { records, end: Stamp::at(end_now), end_now, wants_time: true, processing: true }
    }

    /// Without times, for guests that do not want them.
    pub fn timeless(records: Vec<Record>) -> Stream {
        let end_now = records.last().map_or(0, |record| record.now);
        Stream { records, end: Stamp::NONE_YET, end_now, wants_time: false, processing: false }
    }

    /// The columns of some of the records.
    pub(super) fn columns(&self, from: usize, to: usize) -> Vec<Column> {
        let width = self.records.first().map_or(0, |record| record.cells.len());
        let mut columns = vec![Column::default(); width];
        for record in &self.records[from..to] {
            assert_eq!(record.cells.len(), width, "all records have the same columns");
            for (column, (kind, bytes)) in columns.iter_mut().zip(&record.cells) {
                column.push_bytes(*kind, bytes);
            }
        }
        columns
    }
}

/// Numbers that look random and are the same for the same seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}
