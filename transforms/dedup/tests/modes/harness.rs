//! Records in, lines out: the guest under the SDK's native kit, in one run and under random cuts.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};
use tamis_dedup::{COUNTERS, Dedup};
use tamis_guest::kit::{self, Cutting, Line, Random, Record, Run, State, Stream};
use tamis_guest::{Cell, Check, Keyed, Stamp, kind};

const MS: i64 = 1_000_000;

/// A record as a test gives it; times in milliseconds.
#[derive(Clone, Debug)]
pub struct Given {
    pub key: &'static str,
    pub time: i64,
    pub input: u16,
    pub at: i64,
    pub value: Option<&'static str>,
    pub order: Value,
    pub offset: Option<i64>,
    pub redelivered: bool,
}

/// A record of this key and event time.
pub fn record(key: &'static str, time: i64) -> Given {
    let value = Some("value");
    Given { key, time, input: 0, at: 0, value, order: Value::Null, offset: None, redelivered: false }
}

/// A deletion.
pub fn tombstone(key: &'static str, time: i64) -> Given {
    Given { value: None, ..record(key, time) }
}

impl Given {
    /// From this partition.
    pub fn input(self, input: u16) -> Given {
        Given { input, ..self }
    }

    /// Arrives at this processing time.
    pub fn at(self, at: i64) -> Given {
        Given { at, ..self }
    }

    /// With this value.
    pub fn value(self, value: &'static str) -> Given {
        Given { value: Some(value), ..self }
    }

    /// With this order field.
    pub fn order(self, order: Value) -> Given {
        Given { order, ..self }
    }

    /// Comes again at this offset.
    pub fn again(self, offset: i64) -> Given {
        Given { offset: Some(offset), redelivered: true, ..self }
    }
}

/// A stage and what it is given.
#[derive(Clone, Debug)]
pub struct Test {
    pub params: Value,
    pub context: Value,
    pub delay: i64,
    pub clock: i64,
}

/// A stage with these parameters, over bounded input.
pub fn stage(params: Value) -> Test {
    let context = json!({
        "id": "dedup", "key": {}, "scope": "global", "state": { "retention": null }, "bounded": true, "partitions": 1,
        "time": { "field": "timestamp", "delay": 0 }, "before": [], "stored": null,
    });
    Test { params, context, delay: 0, clock: 0 }
}

impl Test {
    /// Event time waits so many milliseconds.
    pub fn delay(self, delay: i64) -> Test {
        Test { delay, ..self }
    }

    /// Processing time at the end of a stream on the processing clock, ms.
    pub fn clock(self, clock: i64) -> Test {
        Test { clock, ..self }
    }

    /// Forgets after so many milliseconds.
    pub fn retention(mut self, after: i64, clock: &str, refresh: &str) -> Test {
        self.context["state"] = json!({ "retention": { "for": after * MS, "clock": clock, "refresh": refresh } });
        self
    }

    /// Over so many partitions.
    pub fn partitions(mut self, partitions: u64) -> Test {
        self.context["partitions"] = json!(partitions);
        self
    }

    /// What is decided before the first record.
    pub fn plan(&self) -> Check {
        let check = Dedup::check(&self.params, &self.context);
        assert!(!check.is_refused(), "{:?}", check.findings);
        check
    }

    fn stream(&self, given: &[Given]) -> Stream {
        let check = self.plan();
        let mut offsets = [0; 16];
        let mut records = Vec::new();
        for (arrival, given) in given.iter().enumerate() {
            let next = &mut offsets[usize::from(given.input)];
            let offset = given.offset.unwrap_or(*next);
            *next = (*next).max(offset + 1);
            let mut record = Record::new(given.key, given.time * MS).input(given.input).now(given.at * MS);
            record.tombstone = given.value.is_none();
            record.redelivered = given.redelivered;
            for column in &check.reads {
                record = match column.as_str() {
                    "offset" => record.int(offset),
                    "partition" => record.int(i64::from(given.input)),
                    "topic" => record.text("test"),
                    "arrival" => record.int(arrival as i64),
                    "time" => record.int(given.time * MS),
                    "content" => record.cell(Cell::bytes(&content(given.value))),
                    _ => field(record, &given.order),
                };
            }
            records.push(record);
        }
        match check.traits.clock.as_deref() {
            Some("processing") => {
                let mut stream = Stream::processing(records, self.clock * MS);
                stream.end = if self.clock == 0 { Stamp::at(tamis_guest::END) } else { stream.end };
                stream
            }
            _ if !check.traits.wants_time => Stream::timeless(records),
            _ => Stream::event(records, self.delay * MS),
        }
    }

    /// Runs it whole and under random cuts, which must not differ.
    pub fn run(&self, given: &[Given]) -> Run {
        let stream = self.stream(given);
        let run = |cutting: &Cutting| {
            kit::run::<Dedup>(&self.params, &self.context, &stream, cutting, &mut State::default()).unwrap()
        };
        let wanted = run(&Cutting::singly(&stream));
        let mut random = Random::new(given.len() as u64);
        for _ in 0..8 {
            let cutting = Cutting::random(&stream, &mut random);
            let found = run(&cutting);
            assert_eq!(found.lines, wanted.lines, "{cutting:?} changes what comes out");
            assert_eq!(found.counts, wanted.counts, "{cutting:?} changes the counters");
        }
        wanted
    }

    /// Runs it and compares lines and counters. Records are numbered from 1; a line is `3`, `3 [0,10)` with a window,
    /// `+U 3` for a new image, `-U 3` for an old one, `-D 3` for a deletion, `late 3`, `dup 3` or `dup 3 of 1`, `drop 3`; what waits has no line.
    pub fn check(&self, given: &[Given], wanted: &[&str], counters: &[(&str, u64)]) -> Run {
        let run = self.run(given);
        let lines: Vec<String> = run.lines.iter().filter_map(line).collect();
        assert_eq!(lines, wanted);
        for (name, count) in counters {
            assert_eq!(counter(&run, name), *count, "{name}");
        }
        run
    }
}

/// A counter of a run.
pub fn counter(run: &Run, name: &str) -> u64 {
    let place = COUNTERS.iter().position(|counter| *counter == name).unwrap();
    run.counts.get(place).copied().unwrap_or(0)
}

/// What `check` compares of a line.
pub fn line(line: &Line) -> Option<String> {
    Some(match line {
        Line::Record { record, verdict, winner } => {
            let record = record + 1;
            match verdict {
                0 => format!("{record}"),
                1 => format!("drop {record}"),
                4 => match winner {
                    Some(winner) => format!("dup {record} of {}", winner + 1),
                    None => format!("dup {record}"),
                },
                5 => format!("late {record}"),
                7 => format!("+U {record}"),
                _ => return None,
            }
        }
        Line::Out { record, kind, route, window, cells, .. } => {
            let record = record + 1;
            let of = cells.last().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
            if *route != 0 {
                return Some(format!("dup {record} of {of}"));
            }
            let kind = ["", "-U ", "+U ", "-D "][usize::from(*kind)];
            let window = window.map(|(start, end)| format!(" [{},{})", start / MS, end / MS)).unwrap_or_default();
            format!("{kind}{record}{window}")
        }
    })
}

fn content(value: Option<&str>) -> [u8; 16] {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&hasher.finish().to_le_bytes());
    bytes
}

fn field(record: Record, value: &Value) -> Record {
    match value {
        Value::Bool(is) => record.cell(Cell { kind: kind::BOOL, bytes: &[u8::from(*is)] }),
        Value::Number(number) => record.cell(Cell { kind: kind::NUMBER, bytes: number.to_string().as_bytes() }),
        Value::String(text) => record.text(text),
        _ => record.cell(Cell::NULL),
    }
}
