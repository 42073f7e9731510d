//! P1c: sessions on close, against the same in one program.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use tamis::batch::{Batch, Cell};
use tamis::key::{self, Comparison};

use crate::chain::{BATCHES, Forward, Guests, ROWS, SALT, batches, columns, library};
use crate::{duel, report};

/// Records at most this apart belong together, ms. A repeat comes up to 25 s after its original.
const GAP: i64 = 30_000;
const DELAY: i64 = 5_000;
const STAGES: &str = "time: { field: value.ts, delay: 5s }\nstages:\n  - uses: dedup\n    id: one\n    key: [value.ip, value.url]\n    with: { window: { session: 30s } }\n";

/// A session that is open.
struct Open {
    first: i64,
    last: i64,
    /// Time and number of the record that stays.
    kept: (i64, u64),
    /// When the wake that is set fires.
    wakes: i64,
    payload: Vec<u8>,
}

/// The same scanner, the same canonical keys and hash; sessions in a hash table, their ends in an ordered one. In this
/// stream a key never has two sessions at once.
struct Native {
    decoder: tamis_json::Decoder,
    open: HashMap<u128, Open>,
    ends: BTreeSet<(i64, (i64, u64), u128)>,
    watermark: i64,
    count: u64,
}

impl Native {
    fn new() -> Native {
        let paths = ["ip", "url", "ts"].map(str::to_owned);
        let decoder = tamis_json::Decoder::new(&paths).expect("three paths");
        Native { decoder, open: HashMap::new(), ends: BTreeSet::new(), watermark: i64::MIN, count: 0 }
    }

    fn run(&mut self, inputs: Vec<(tamis_guest::Column, Batch)>, out: &mut Vec<u8>) -> Duration {
        let how = Comparison::default();
        let start = Instant::now();
        let mut bytes = Vec::with_capacity(256);
        for (payloads, _) in &inputs {
            let decoded = self.decoder.decode(payloads);
            for row in 0..ROWS {
                self.close(out);
                bytes.clear();
                let cell = |column: usize| {
                    let column = &decoded.columns[column];
                    let (from, len) = (column.spans[2 * row] as usize, column.spans[2 * row + 1] as usize);
                    Cell { kind: column.kinds[row], bytes: &payloads.data[from..from + len] }
                };
                key::canonical(cell(0), &how, &mut bytes);
                key::canonical(cell(1), &how, &mut bytes);
                let time = cell(2).bytes.iter().fold(0, |time, digit| time * 10 + i64::from(digit - b'0'));
                let payload = &payloads.data[payloads.offsets[row] as usize..payloads.offsets[row + 1] as usize];
                self.judge(key::hash(&bytes, SALT), time, payload);
                self.watermark = self.watermark.max(time - DELAY);
            }
        }
        start.elapsed()
    }

    fn judge(&mut self, key: u128, time: i64, payload: &[u8]) {
        self.count += 1;
        let place = (time, self.count);
        match self.open.get_mut(&key) {
            Some(open) if time >= open.first - GAP && time <= open.last + GAP => {
                (open.first, open.last) = (open.first.min(time), open.last.max(time));
                if place < open.kept {
                    open.kept = place;
                    open.payload.clear();
                    open.payload.extend_from_slice(payload);
                }
            }
            _ => {
                let wakes = time + GAP;
                let open = Open { first: time, last: time, kept: place, wakes, payload: payload.to_vec() };
                self.ends.insert((wakes, place, key));
                self.open.insert(key, open);
            }
        }
    }

    /// Sends what the watermark is beyond. A session that has grown since gets its end anew.
    fn close(&mut self, out: &mut Vec<u8>) {
        while let Some(&(end, _, key)) = self.ends.first().filter(|(end, ..)| *end < self.watermark) {
            self.ends.pop_first();
            let Some(open) = self.open.get_mut(&key).filter(|open| open.wakes == end) else { continue };
            if open.last + GAP > end {
                open.wakes = open.last + GAP;
                self.ends.insert((open.wakes, open.kept, key));
            } else if let Some(open) = self.open.remove(&key) {
                out.extend_from_slice(&open.payload);
            }
        }
    }
}

pub fn p1c() {
    let library = library();
    let (mut guests, mut native) = (Guests::new(&library, STAGES), Native::new());
    // One record in ten is out of order, by up to two seconds.
    let step = |count: u64| 1_700_000_000_000 + count - if count % 10 == 0 { count % 2000 } else { 0 };
    // Rounds follow each other in time; so many rounds have left that sessions close as fast as they open.
    let input = |round: usize| batches(round, |count| step(count - (round as u64 + 1) * ((1 << 24) - RECORDS as u64)));
    const RECORDS: usize = BATCHES * ROWS;
    for round in 0..3 {
        guests.run(input(round), &mut Forward::default());
        native.run(columns(input(round)), &mut Vec::new());
    }
    let (mut left, mut right) = (0, 0);
    let (ours, theirs) = duel(
        11,
        |round| {
            let mut out = Forward { bytes: Vec::with_capacity(RECORDS * 200), rows: 0 };
            let time = guests.run(input(3 + round), &mut out);
            left += out.rows;
            (time, RECORDS)
        },
        |round| {
            let (input, mut out) = (columns(input(3 + round)), Vec::with_capacity(RECORDS * 200));
            let time = native.run(input, &mut out);
            right += out.len() / 200;
            (time, RECORDS)
        },
    );
    assert!(left > RECORDS && left == right, "both close the same sessions: {left} and {right}");
    report("P1c", "sessions of 30 s on close, 5 s, 1 in 10 out of order", ours, theirs, ">= 0.45");
}
