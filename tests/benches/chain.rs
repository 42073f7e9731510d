//! P1, P1b, P6, P8, P9: the chain of guests against native code that does the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tamis::batch::{Batch, Cell, Column, Origin, Payload, Row, Span};
use tamis::chain::{Chain, Emit, Out};
use tamis::config::guests::Library;
use tamis::guest::Engine;
use tamis::key::{self, Comparison};
use tamis::keyed::{Begin, Keyed, Session, Settings};
use tamis::plan::{Conditions, plan};
use tamis::task::{Input, Task};
use tamis::time::Stamp;

use crate::{duel, report, timed};

pub const ROWS: usize = 1024;
pub const BATCHES: usize = 48;
pub const SALT: u64 = 7;

/// Takes values, as a sink does that writes lines.
#[derive(Default)]
pub struct Forward {
    pub bytes: Vec<u8>,
    pub rows: usize,
}

impl Out for Forward {
    fn emit(&mut self, emit: Emit<'_>) {
        if let Payload::Bytes(span) = emit.row.value {
            self.bytes.extend_from_slice(emit.batch.bytes(span));
            self.rows += 1;
        }
    }
    fn mark(&mut self) -> usize {
        self.bytes.len()
    }
    fn undo(&mut self, to: usize) {
        self.bytes.truncate(to);
    }
}

/// A record of 200 bytes with 9 fields; the key is (ip, url).
fn record(number: u64, time: u64) -> Vec<u8> {
    let mut text = format!(
        "{{\"ts\":{time:013},\"ip\":\"10.{}.{}.{}\",\"method\":\"GET\",\"url\":\"https://example.com/item/{:09}\",\"status\":200,\"bytes\":51234,\"ua\":\"Mozilla/5.0 (X11)\",\"uid\":{},\"sid\":\"",
        number >> 16 & 255,
        number >> 8 & 255,
        number & 255,
        number,
        number % 100_000,
    )
    .into_bytes();
    while text.len() < 198 {
        text.push(b'a' + (text.len() % 26) as u8);
    }
    text.extend_from_slice(b"\"}");
    text
}

/// A time of 13 digits.
pub fn at(count: u64) -> u64 {
    1_700_000_000_000 + count
}

/// Batches of a round: three records in four are new, one repeats an earlier one; no round repeats another's.
pub fn batches(round: usize, step: impl Fn(u64) -> u64) -> Vec<Batch> {
    let base = (round as u64 + 1) << 24;
    (0..BATCHES)
        .map(|batch| {
            let mut bytes = Vec::with_capacity(ROWS * 200);
            let rows = (0..ROWS).map(|row| {
                let count = (batch * ROWS + row) as u64;
                let number = if count % 4 == 3 { base + count / 2 / 4 * 4 } else { base + count };
                let start = bytes.len() as u32;
                bytes.extend_from_slice(&record(number, step(base + count)));
                let span = Span { arena: 0, start, len: bytes.len() as u32 - start };
                let offset = (base + count) as i64;
                Row {
                    origin: Origin { input: 0, epoch: -1, offset, child: 0 },
                    timestamp: tamis::time::NONE_YET,
                    key: Payload::Null,
                    value: Payload::Bytes(span),
                    headers: Row::NO_HEADERS,
                    kind: Default::default(),
                    window: Row::NO_WINDOW,
                    arrival: 0,
                    redelivered: false,
                    bounds: false,
                }
            });
            let rows: Vec<Row> = rows.collect();
            Batch { rows, arenas: vec![Arc::new(bytes)], ..Batch::default() }
        })
        .collect()
}

pub struct Guests {
    pub chain: Chain,
    pub task: Task,
}

impl Guests {
    pub fn new(library: &Library, stages: &str) -> Guests {
        let text = format!(
            "version: 1\nname: bench\nsource: {{ file: in.jsonl }}\nsink: {{ file: out.jsonl }}\nerrors: {{ dead_letter: {{ file: dead.jsonl }} }}\n{stages}"
        );
        let pipeline = tamis::config::read(&text, None, &|_| None).expect("the pipeline of the benchmark is sound");
        let plan = Arc::new(plan(&pipeline, library, &Conditions::of(&pipeline, Some(1))).expect("it can be planned"));
        let chain = Chain::open(&plan, true);
        let task = Task::new(&chain, vec![Input { topic: Arc::from("bench"), partition: 0 }], SALT, 0);
        Guests { chain, task }
    }

    pub fn run(&mut self, batches: Vec<Batch>, out: &mut Forward) -> Duration {
        let start = Instant::now();
        for batch in batches {
            self.task.push(&mut self.chain, batch, out).expect("the chain runs");
        }
        let time = start.elapsed();
        self.task.seal(&self.chain.plan.clone());
        time
    }
}

pub fn library() -> Library {
    Library::new(Engine::new(None).expect("the engine starts"), tamis::bundled::all(), Vec::new())
}

/// The same algorithm in one program: same scanner, same canonical keys, same hash, same table.
struct Native {
    decoder: tamis_json::Decoder,
    keyed: Option<Keyed>,
}

impl Native {
    fn new() -> Native {
        let decoder = tamis_json::Decoder::new(&["ip".to_owned(), "url".to_owned()]).expect("two paths");
        Native { decoder, keyed: Some(Keyed::new(Settings::default())) }
    }

    fn run(&mut self, inputs: Vec<(tamis_guest::Column, Batch)>, out: &mut Vec<u8>) -> Duration {
        let how = Comparison::default();
        let start = Instant::now();
        let mut bytes = Vec::with_capacity(256);
        for (payloads, batch) in inputs {
            let decoded = self.decoder.decode(&payloads);
            let mut keys = Vec::with_capacity(ROWS);
            for row in 0..ROWS {
                bytes.clear();
                for column in &decoded.columns {
                    let (from, len) = (column.spans[2 * row] as usize, column.spans[2 * row + 1] as usize);
                    let cell = Cell { kind: column.kinds[row], bytes: &payloads.data[from..from + len] };
                    key::canonical(cell, &how, &mut bytes);
                }
                keys.push(key::hash(&bytes, SALT));
            }
            let begin =
                Begin { batch, rows: (0..ROWS as u32).collect(), keys, end: Stamp::START, ..crate::state::nothing() };
            let mut session: Session = self.keyed.take().expect("it came back").session(begin);
            let new =
                tamis::guest::call::State::seen(&mut session, 0, &[tamis::time::NEVER], &[], false).expect("no bound");
            let finished = session.finish();
            self.keyed = Some(finished.keyed);
            for (row, new) in new.iter().enumerate() {
                if *new == 1 {
                    let (from, to) = (payloads.offsets[row] as usize, payloads.offsets[row + 1] as usize);
                    out.extend_from_slice(&payloads.data[from..to]);
                }
            }
        }
        let time = start.elapsed();
        self.keyed.as_mut().expect("it came back").seal();
        time
    }
}

/// The payloads of each batch as a column, as a codec gets them, and the batch.
pub fn columns(batches: Vec<Batch>) -> Vec<(tamis_guest::Column, Batch)> {
    let column = |batch: &Batch| {
        let mut column = tamis_guest::Column::with_capacity(ROWS, ROWS * 200);
        for row in &batch.rows {
            if let Payload::Bytes(span) = row.value {
                column.push_bytes(tamis_guest::kind::BYTES, batch.bytes(span));
            }
        }
        column
    };
    batches.into_iter().map(|batch| (column(&batch), batch)).collect()
}

const P1: &str = "stages:\n  - uses: dedup\n    id: one\n    key: [value.ip, value.url]\n";

pub fn p1() {
    let library = library();
    let (mut guests, mut native) = (Guests::new(&library, P1), Native::new());
    // A million keys first, then rounds of new ones.
    for round in 0..27 {
        guests.run(batches(round, at), &mut Forward::default());
        native.run(columns(batches(round, at)), &mut Vec::new());
    }
    let records = BATCHES * ROWS;
    let (ours, theirs) = duel(
        11,
        |round| {
            let (input, mut out) =
                (batches(100 + round, at), Forward { bytes: Vec::with_capacity(records * 200), rows: 0 });
            let time = guests.run(input, &mut out);
            assert_eq!(out.rows, records * 3 / 4, "three in four are new");
            (time, records)
        },
        |round| {
            let (input, mut out) = (columns(batches(100 + round, at)), Vec::with_capacity(records * 200));
            let time = native.run(input, &mut out);
            assert_eq!(out.len(), records * 3 / 4 * 200, "three in four are new");
            (time, records)
        },
    );
    report("P1", "decode, dedup by 2 of 9 fields, forward; best native", ours, theirs, ">= 0.70 now, 0.72");
    let mut seen: HashMap<(String, String), ()> = HashMap::new();
    let (ours, serde) = duel(
        5,
        |round| (guests.run(batches(200 + round, at), &mut Forward::default()), records),
        |round| {
            let (input, mut out) = (columns(batches(200 + round, at)), Vec::with_capacity(records * 200));
            let (time, ()) = timed(|| {
                for (column, _) in &input {
                    for row in 0..ROWS {
                        let (from, to) = (column.offsets[row] as usize, column.offsets[row + 1] as usize);
                        let text = &column.data[from..to];
                        let click: Click = serde_json::from_slice(text).expect("it is JSON");
                        if seen.insert((click.ip, click.url), ()).is_none() {
                            out.extend_from_slice(text);
                        }
                    }
                }
            });
            (time, records)
        },
    );
    report("P1", "the same against serde_json into a struct, HashMap", ours, serde, ">= 2.5");
}

#[derive(serde::Deserialize)]
struct Click {
    ip: String,
    url: String,
}

/// The same by hand in one program: same scanner, same canonical keys, same hash; candidates in a map with a copy of
/// their record, a heap of their times, and what was emitted in the same map.
struct NativeOnClose {
    decoder: tamis_json::Decoder,
    keys: HashMap<u128, Held, std::hash::BuildHasherDefault<AsIs>>,
    times: std::collections::BinaryHeap<std::cmp::Reverse<(i64, u128)>>,
    newest: i64,
}

enum Held {
    Candidate(i64, Box<[u8]>),
    Gone,
}

/// A hash is its own hash.
#[derive(Default)]
struct AsIs(u64);

impl std::hash::Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |all, &byte| all << 8 | u64::from(byte));
    }
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

impl NativeOnClose {
    fn new() -> NativeOnClose {
        let paths = ["ip".to_owned(), "url".to_owned(), "ts".to_owned()];
        let decoder = tamis_json::Decoder::new(&paths).expect("three paths");
        NativeOnClose { decoder, keys: HashMap::default(), times: Default::default(), newest: i64::MIN }
    }

    fn run(&mut self, inputs: Vec<(tamis_guest::Column, Batch)>, out: &mut Vec<u8>) -> Duration {
        let how = Comparison::default();
        let start = Instant::now();
        let mut bytes = Vec::with_capacity(256);
        for (payloads, _) in inputs {
            let decoded = self.decoder.decode(&payloads);
            let cell = |column: usize, row: usize| {
                let column = &decoded.columns[column];
                let (from, len) = (column.spans[2 * row] as usize, column.spans[2 * row + 1] as usize);
                Cell { kind: column.kinds[row], bytes: &payloads.data[from..from + len] }
            };
            for row in 0..ROWS {
                bytes.clear();
                key::canonical(cell(0, row), &how, &mut bytes);
                key::canonical(cell(1, row), &how, &mut bytes);
                let hash = key::hash(&bytes, SALT);
                let time = tamis_guest::number::to_i64(cell(2, row).bytes).expect("a time");
                let (from, to) = (payloads.offsets[row] as usize, payloads.offsets[row + 1] as usize);
                let record = || payloads.data[from..to].into();
                match self.keys.entry(hash) {
                    std::collections::hash_map::Entry::Vacant(place) => {
                        place.insert(Held::Candidate(time, record()));
                        self.times.push(std::cmp::Reverse((time, hash)));
                    }
                    std::collections::hash_map::Entry::Occupied(mut place) => match place.get() {
                        Held::Candidate(other, _) if time < *other => {
                            place.insert(Held::Candidate(time, record()));
                            self.times.push(std::cmp::Reverse((time, hash)));
                        }
                        _ => {}
                    },
                }
                self.newest = self.newest.max(time);
                let watermark = self.newest - 5_000;
                while let Some(&std::cmp::Reverse((due, hash))) = self.times.peek() {
                    if due > watermark {
                        break;
                    }
                    self.times.pop();
                    if let Some(held) = self.keys.get_mut(&hash)
                        && let Held::Candidate(time, record) = held
                        && *time == due
                    {
                        out.extend_from_slice(record);
                        *held = Held::Gone;
                    }
                }
            }
        }
        start.elapsed()
    }
}

pub fn p1b() {
    let library = library();
    let stages = "time: { field: value.ts, delay: 5s }\nstages:\n  - uses: dedup\n    id: one\n    key: [value.ip, value.url]\n    state: { retention: 1d }\n    with: { order: time, emit: close }\n";
    let (mut guests, mut native) = (Guests::new(&library, stages), NativeOnClose::new());
    // One record in ten is out of order, by up to two seconds.
    let step = |count: u64| 1_700_000_000_000 + count * 2 - if count % 10 == 0 { count % 2000 } else { 0 };
    let records = BATCHES * ROWS;
    let (mut emitted, mut expected) = (0, 0);
    let (ours, theirs) = duel(
        9,
        |round| {
            let mut out = Forward { bytes: Vec::with_capacity(records * 200), rows: 0 };
            let time = guests.run(batches(round, step), &mut out);
            emitted += out.rows;
            (time, records)
        },
        |round| {
            let mut out = Vec::with_capacity(records * 200);
            let time = native.run(columns(batches(round, step)), &mut out);
            expected += out.len() / 200;
            (time, records)
        },
    );
    assert_eq!(emitted, expected, "both emit the same records");
    report("P1b", "first by event time, on close, 5 s, 1 in 10 out of order", ours, theirs, ">= 0.55");
}

pub fn p6() {
    let library = library();
    let (cold, _) = timed(|| {
        let mut guests = Guests::new(&library, P1);
        guests.run(batches(0, at).into_iter().take(1).collect(), &mut Forward::default())
    });
    let (warm, _) = timed(|| {
        let mut guests = Guests::new(&library, P1);
        guests.run(batches(0, at).into_iter().take(1).collect(), &mut Forward::default())
    });
    println!(
        "P6    {:<58} {:>8.0}ms {:>10} {:>8}  <= 2 s",
        "plan and first batch, guests to be compiled",
        cold.as_secs_f64() * 1e3,
        "-",
        "-"
    );
    println!(
        "P6    {:<58} {:>8.0}ms {:>10} {:>8}  <= 150 ms",
        "plan and first batch, guests compiled",
        warm.as_secs_f64() * 1e3,
        "-",
        "-"
    );
}

pub fn p8() {
    let library = library();
    let mask = "  - uses: mask\n    id: none-ID\n    with: { fields: [value.none], text: x }\n";
    let more = format!("stages:\n{}{}", mask.replace("ID", "a"), mask.replace("ID", "b"));
    let mut two = Guests::new(&library, &more);
    let mut one = Guests::new(&library, &format!("stages:\n{}", mask.replace("ID", "a")));
    let records = BATCHES * ROWS;
    let (long, short) = duel(
        9,
        |round| (two.run(batches(round, at), &mut Forward::default()), records),
        |round| (one.run(batches(round, at), &mut Forward::default()), records),
    );
    println!("P8    {:<58} {:>8.1}ns {:>10} {:>8}  <= 25 ns", "one more pass-through stage", long - short, "-", "-");
}

pub fn p9() {
    let library = library();
    let mut guests = Guests::new(
        &library,
        "stages:\n  - uses: mask\n    id: hide\n    with: { fields: [value.ua], text: \"***\" }\n",
    );
    let records = BATCHES * ROWS;
    let (ours, theirs) = duel(
        7,
        |round| (guests.run(batches(round, at), &mut Forward::default()), records),
        |round| {
            let input = columns(batches(round, at));
            let mut out = Vec::with_capacity(records * 200);
            let (time, ()) = timed(|| {
                for (column, _) in &input {
                    for row in 0..ROWS {
                        let (from, to) = (column.offsets[row] as usize, column.offsets[row + 1] as usize);
                        let mut value: serde_json::Value =
                            serde_json::from_slice(&column.data[from..to]).expect("it is JSON");
                        value["ua"] = "***".into();
                        serde_json::to_writer(&mut out, &value).expect("it can be written");
                    }
                }
            });
            (time, records)
        },
    );
    report("P9", "decode all, mask one field, encode; serde_json Value", ours, theirs, ">= 0.6");
    let _ = Column::default();
}
