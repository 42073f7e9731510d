//! Random settings and streams, what the reference says of them, and all of it as a test file.

use std::fmt::Write;

use super::reference::Reference;
use super::table::{Cell, Clock, Code, Emit, Keep, Order, Window};
use super::words::{Late, NullKey, Out, Record, Retention, Settings, Tag};
use crate::model::Dice;

/// What happens, as a script writes it.
enum Step {
    Record(Record, i64),
    Clock(i64),
    Idle(usize),
    End(Option<usize>),
    Batch,
    Restart,
    Commit,
    Crash,
    Redeliver(usize),
}

/// Random settings of a cell.
pub fn settings(cell: Cell, dice: &mut Dice) -> Settings {
    let mut cell = cell;
    if let Window::Tumbling { size, .. } = cell.window {
        cell.window = Window::Tumbling { size, offset: dice.one_of(&[0, 0, 3, -4]) };
    }
    let code = cell.code(true).unwrap_or(Code::FA);
    let windowed = matches!(cell.window, Window::Tumbling { .. });
    let none = cell.window == Window::None;
    let retention = (none && dice.below(3) == 0).then(|| Retention {
        length: dice.one_of(&[5, 12]),
        processing: cell.clock == Clock::Processing || (cell.clock == Clock::Event && dice.below(3) == 0),
        access: dice.below(2) == 0,
    });
    let changes = code == Code::Changes && none;
    Settings {
        cell,
        code,
        lateness: if windowed && cell.clock != Clock::Processing { dice.one_of(&[0, 0, 3, 7]) } else { 0 },
        late: if cell.upsert {
            dice.one_of(&[Late::Route, Late::Drop])
        } else {
            dice.one_of(&[Late::Route, Late::Route, Late::Drop, Late::Pass])
        },
        null_key: if cell.upsert {
            dice.one_of(&[NullKey::Dlq, NullKey::Group, NullKey::Drop])
        } else {
            dice.one_of(&[NullKey::Pass, NullKey::Dlq, NullKey::Group, NullKey::Drop])
        },
        max_entries: (none && dice.below(4) == 0 && code != Code::Final).then(|| dice.one_of(&[1, 2])),
        retention,
        heartbeat: (changes && cell.upsert && dice.below(3) == 0).then(|| dice.one_of(&[4, 9])),
        delay: if cell.clock == Clock::Ingestion { 0 } else { dice.one_of(&[0, 2, 5]) },
        idle: dice.one_of(&[None, None, Some(6)]),
        partitions: dice.one_of(&[1, 1, 2, 3]),
    }
}

fn steps(set: &Settings, dice: &mut Dice) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut base, mut now) = (dice.below(20), 0);
    let mut offsets = vec![0; set.partitions];
    let (mut ended, mut said) = (vec![false; set.partitions], 0);
    let clock = set.idle.is_some() || set.cell.clock == Clock::Processing || dice.below(3) == 0;
    for _ in 0..8 + dice.below(30) {
        match dice.below(30) {
            0 => steps.push(Step::Batch),
            1 => steps.push(Step::Restart),
            2 => steps.push(Step::Commit),
            3 if dice.below(2) == 0 => steps.push(Step::Crash),
            4 if set.partitions > 1 => steps.push(Step::Idle(dice.below(set.partitions as i64) as usize)),
            5 if dice.below(3) == 0 && said > 0 => steps.push(Step::Redeliver(1 + dice.below(3) as usize)),
            6 if clock => {
                now += dice.one_of(&[1, 3, 8, 20]);
                steps.push(Step::Clock(now));
            }
            7 if dice.below(4) == 0 && ended.iter().filter(|e| !**e).count() > 1 => {
                let p = dice.below(set.partitions as i64) as usize;
                ended[p] = true;
                steps.push(Step::End(Some(p)));
            }
            _ => {}
        }
        let p = dice.below(set.partitions as i64) as usize;
        if ended[p] {
            continue;
        }
        if clock && dice.below(3) == 0 {
            now += dice.one_of(&[1, 2, 5]);
        }
        base += dice.one_of(&[0, 0, 1, 1, 2, 6]);
        let v = if dice.below(12) == 0 { None } else { Some(dice.below(2)) };
        let record = Record {
            key: dice.one_of(&[Some('a'), Some('a'), Some('b'), Some('b'), Some('c'), None]),
            // The field of the order stands in the value.
            s: v.and(dice.one_of(&[None, Some(1), Some(2), Some(3)])),
            v,
            t: if dice.below(15) == 0 { None } else { Some((base - dice.below(8)).max(0)) },
            p,
            o: offsets[p],
        };
        offsets[p] += 1;
        said += 1;
        steps.push(Step::Record(record, now));
    }
    if dice.below(2) == 0 {
        steps.push(Step::End(None));
    }
    steps
}

/// What the source said, to be said again.
#[derive(Clone)]
enum Word {
    Record(Record),
    Idle(usize),
    End(Option<usize>),
}

fn say(reference: &mut Reference, word: &Word) {
    match word {
        Word::Record(record) => reference.record(record),
        Word::Idle(p) => reference.idle(*p),
        Word::End(p) => reference.end(*p),
    }
}

/// Plays the steps through the reference.
fn play(set: &Settings, steps: &[Step]) -> Reference {
    let mut reference = Reference::new(set.clone(), 0);
    let mut saved = None::<Reference>;
    let (mut since, mut records): (Vec<Word>, Vec<Record>) = (Vec::new(), Vec::new());
    for step in steps {
        let word = match step {
            Step::Record(record, at) => {
                reference.clock(*at);
                records.push(record.clone());
                Word::Record(record.clone())
            }
            Step::Idle(p) => Word::Idle(*p),
            Step::End(p) => Word::End(*p),
            Step::Clock(to) => {
                reference.clock(*to);
                continue;
            }
            Step::Batch => continue,
            Step::Commit => {
                saved = Some(reference.clone());
                since.clear();
                continue;
            }
            Step::Restart => {
                reference.restart(reference.now);
                saved = Some(reference.clone());
                since.clear();
                continue;
            }
            Step::Crash => {
                let now = reference.now;
                reference = saved.clone().unwrap_or_else(|| Reference::new(set.clone(), now));
                reference.restart(now);
                since.iter().for_each(|word| say(&mut reference, word));
                continue;
            }
            Step::Redeliver(n) => {
                for record in &records[records.len().saturating_sub(*n)..] {
                    say(&mut reference, &Word::Record(record.clone()));
                    since.push(Word::Record(record.clone()));
                }
                continue;
            }
        };
        say(&mut reference, &word);
        since.push(word);
    }
    reference
}

/// One test of a file: random settings of the cell, a random stream, and what the reference says of it.
pub fn test(cell: Cell, seed: u64) -> String {
    let mut dice = Dice::of(seed);
    let set = settings(cell, &mut dice);
    let steps = steps(&set, &mut dice);
    let reference = play(&set, &steps);
    let mut text = String::new();
    let line = &mut text;
    let _ = writeln!(line, "  - name: \"{} {seed}\"", cell.name());
    write_settings(line, &set);
    let _ = writeln!(line, "    input:");
    let mut now = 0;
    for step in &steps {
        let step = match step {
            Step::Record(r, at) => {
                let moved = if *at > now { format!(", at: {at}") } else { String::new() };
                now = *at;
                format!("{{ key: {}{}, p: {}{moved}{} }}", key(r), value(r), r.p, time(r))
            }
            Step::Clock(to) => {
                now = *to;
                format!("clock: {to}")
            }
            Step::Idle(p) => format!("idle: {p}"),
            Step::End(Some(p)) => format!("end: {p}"),
            Step::End(None) => "end".into(),
            Step::Batch => "batch".into(),
            Step::Restart => "restart".into(),
            Step::Commit => "commit".into(),
            Step::Crash => "crash".into(),
            Step::Redeliver(n) => format!("redeliver: {n}"),
        };
        let _ = writeln!(line, "      - {step}");
    }
    let _ = writeln!(line, "    output:{}", if reference.out.is_empty() { " []" } else { "" });
    for out in &reference.out {
        let _ = writeln!(line, "      - {}", row(out, &set));
    }
    let count = |name| reference.counters.get(name).copied().unwrap_or(0);
    let counters: Vec<String> = ["late", "invalid_time", "null_key", "duplicates_dropped", "replaced"]
        .iter()
        .map(|name| format!("{name}: {}", count(name)))
        .collect();
    let _ = writeln!(line, "    counters: {{ {} }}", counters.join(", "));
    text
}

/// The head of a file that these tests can be put in.
pub const HEAD: &str = "version: 1\nname: oracle\nstages:\n  - uses: dedup\n    key: key\ntests:\n";

/// A test that says that the cell is refused.
pub fn refusal(cell: Cell, code: &str) -> String {
    let mut text = format!("  - name: \"{}\"\n    bounded: false\n    refused: {code}\n", cell.name());
    let _ = writeln!(text, "    with: {{ {} }}", parameters(&cell));
    text
}

fn parameters(cell: &Cell) -> String {
    let word = |word: String| word.to_lowercase();
    let window = match cell.window {
        Window::None => String::new(),
        Window::Tumbling { size, offset } => format!("window: {{ tumbling: {size}ms, offset: {offset}ms }}, "),
        Window::Horizon { ttl } => format!("window: {{ horizon: {ttl}ms }}, "),
    };
    let order = if cell.order == Order::Field { "[value.s]".into() } else { word(format!("{:?}", cell.order)) };
    let keep = if cell.keep == Keep::Last { "last" } else { "first" };
    let output = if cell.upsert { "upsert" } else { "append" };
    let (clock, emit) = (word(format!("{:?}", cell.clock)), word(format!("{:?}", cell.emit)));
    format!("{window}keep: {keep}, clock: {clock}, order: {order}, output: {output}, emit: {emit}")
}

fn write_settings(line: &mut String, set: &Settings) {
    let null_key = format!("{:?}", set.null_key).to_lowercase();
    let _ = writeln!(line, "    key: {{ fields: [key], null_key: {null_key} }}");
    let idle = set.idle.map_or(String::new(), |idle| format!(", idle: {idle}ms"));
    let _ = writeln!(line, "    time: {{ delay: {}ms{idle} }}", set.delay);
    let mut state = Vec::new();
    if let Some(r) = set.retention {
        let (clock, refresh) =
            (if r.processing { "processing" } else { "event" }, if r.access { "access" } else { "create" });
        state.push(format!("retention: {{ for: {}ms, clock: {clock}, refresh: {refresh} }}", r.length));
    }
    if let Some(most) = set.max_entries {
        state.push(format!("max_entries: {most}, overflow: evict-oldest"));
    }
    if !state.is_empty() {
        let _ = writeln!(line, "    state: {{ {} }}", state.join(", "));
    }
    let mut with = parameters(&set.cell);
    if set.lateness > 0 {
        let _ = write!(with, ", lateness: {}ms", set.lateness);
    }
    if set.late != Late::Route {
        let _ = write!(with, ", late: {}", format!("{:?}", set.late).to_lowercase());
    }
    if set.cell.emit == Emit::Change {
        with.push_str(", content: { except: [value.o, value.p, value.s] }");
    }
    if let Some(beat) = set.heartbeat {
        let _ = write!(with, ", heartbeat: {beat}ms");
    }
    let _ = writeln!(line, "    with: {{ {with} }}");
    let _ = writeln!(line, "    partitions: {}\n    bounded: true", set.partitions);
}

fn key(record: &Record) -> String {
    record.key.map_or("null".into(), String::from)
}

fn value(record: &Record) -> String {
    let s = record.s.map_or(String::new(), |s| format!(", s: {s}"));
    record.v.map_or(String::new(), |v| format!(", value: {{ v: {v}{s}, p: {}, o: {} }}", record.p, record.o))
}

fn time(record: &Record) -> String {
    record.t.map_or(String::new(), |t| format!(", t: {t}"))
}

fn row(out: &Out, set: &Settings) -> String {
    let record = &out.record;
    let (tag, mut more) = match out.tag {
        Tag::Insert => ("", String::new()),
        Tag::Put => ("PUT: ", String::new()),
        Tag::Tomb => ("TOMB: ", String::new()),
        Tag::Late => ("late: ", String::new()),
        Tag::DlqKey => ("dlq:key: ", String::new()),
        Tag::DlqTime => ("dlq:time: ", String::new()),
        Tag::Duplicate { of: (p, o) } => ("duplicate: ", format!(", of: [{p}, {o}]")),
    };
    let mut output_key = key(record);
    if let Some((start, end)) = out.window {
        let _ = write!(more, ", w: [{start}, {end}]");
        if set.cell.upsert && matches!(set.cell.window, Window::Tumbling { .. }) {
            output_key = format!("{{ key: {}, window_start: {start}, window_end: {end} }}", key(record));
        }
    }
    let to_output = matches!(out.tag, Tag::Put | Tag::Tomb);
    if set.cell.upsert
        && to_output
        && out.window.is_none_or(|_| !matches!(set.cell.window, Window::Tumbling { .. }))
        && record.key.is_none()
    {
        output_key = "{ key: null }".into();
    }
    format!("{tag}{{ key: {output_key}{}, p: {}, o: {}{}{more} }}", value(record), record.p, record.o, time(record))
}
