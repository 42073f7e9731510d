//! Settings, steps and rows of the reference as a test file.

use std::fmt::Write;

use super::reference::Reference;
use super::scripts::{Step, play, settings, steps};
use super::table::{Cell, Emit, MS, Order, Output, Window};
use super::words::{Field, Late, Out, Record, Settings, Tag};
use crate::model::Dice;

/// The head of a file that these tests can be put in.
pub const HEAD: &str = "version: 1\nname: oracle\nstages:\n  - uses: dedup\n    key: key\ntests:\n";

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
    write_steps(line, &steps);
    write_rows(line, &set, &reference);
    text
}

/// A test that says that the cell is refused.
pub fn refusal(cell: Cell, code: &str) -> String {
    let mut text = format!("  - name: \"{}\"\n    bounded: false\n    refused: {code}\n", cell.name());
    let _ = writeln!(text, "    with: {{ {} }}", parameters(&cell));
    text
}

fn write_steps(line: &mut String, steps: &[Step]) {
    let _ = writeln!(line, "    input:");
    let mut now = 0;
    for step in steps {
        let step = match step {
            Step::Record(r, at) => {
                let moved = if *at > now { format!(", at: {}", at / MS) } else { String::new() };
                now = *at;
                format!("{{ key: {}{}, p: {}{moved}{} }}", key(r), value(r), r.p, time(r))
            }
            Step::Clock(to) => {
                now = *to;
                format!("clock: {}", to / MS)
            }
            Step::Idle(p) => format!("idle: {p}"),
            Step::Block(p, true) => format!("block: {p}"),
            Step::Block(p, false) => format!("unblock: {p}"),
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
}

/// Whether each record has one scope at a time: only then the rules say how often it is replaced or dropped.
fn has_one_scope(set: &Settings) -> bool {
    let window = &set.cell.window;
    matches!(window, Window::None | Window::Tumbling { .. } | Window::Horizon { access: false, .. })
}

fn write_rows(line: &mut String, set: &Settings, reference: &Reference) {
    let listed = |out: &&Out| has_one_scope(set) || !matches!(out.tag, Tag::Duplicate { .. });
    let rows: Vec<&Out> = reference.out.iter().filter(listed).collect();
    let _ = writeln!(line, "    output:{}", if rows.is_empty() { " []" } else { "" });
    for out in rows {
        let _ = writeln!(line, "      - {}", row(out, set));
    }
    let count = |name| reference.counters.get(name).copied().unwrap_or(0);
    let mut names = vec!["late", "invalid_time", "null_key"];
    if has_one_scope(set) {
        names.extend(["duplicates_dropped", "replaced"]);
    }
    if set.cell.window.is_aligned() {
        names.push("late_window_assignments");
    }
    let counters: Vec<String> = names.into_iter().map(|name| format!("{name}: {}", count(name))).collect();
    let _ = writeln!(line, "    counters: {{ {} }}", counters.join(", "));
}

fn parameters(cell: &Cell) -> String {
    let word = |word: String| word.to_lowercase();
    let ms = |ns: i64| ns / MS;
    let window = match cell.window {
        Window::None => String::new(),
        Window::Tumbling { size, offset, zone } => {
            let zone = zone.map_or(String::new(), |zone| format!(", zone: {zone}"));
            format!("window: {{ tumbling: {}ms, offset: {}ms{zone} }}, ", ms(size), ms(offset))
        }
        Window::Hopping { size, slide, offset } => {
            format!("window: {{ hopping: {}ms, every: {}ms, offset: {}ms }}, ", ms(size), ms(slide), ms(offset))
        }
        Window::Cumulative { size, step, offset } => {
            format!("window: {{ cumulative: {}ms, step: {}ms, offset: {}ms }}, ", ms(size), ms(step), ms(offset))
        }
        Window::Session { gap } => format!("window: {{ session: {}ms }}, ", ms(gap)),
        Window::Horizon { ttl, access: false } => format!("window: {{ horizon: {}ms }}, ", ms(ttl)),
        Window::Horizon { ttl, .. } => format!("window: {{ horizon: {}ms, refresh: access }}, ", ms(ttl)),
    };
    let order = if cell.order == Order::Field { "[value.s]".into() } else { word(format!("{:?}", cell.order)) };
    let (keep, output) = (word(format!("{:?}", cell.keep)), word(format!("{:?}", cell.output)));
    let (clock, emit) = (word(format!("{:?}", cell.clock)), word(format!("{:?}", cell.emit)));
    format!("{window}keep: {keep}, clock: {clock}, order: {order}, output: {output}, emit: {emit}")
}

fn write_settings(line: &mut String, set: &Settings) {
    let null_key = format!("{:?}", set.null_key).to_lowercase();
    let _ = writeln!(line, "    key: {{ fields: [key], null_key: {null_key} }}");
    let idle = set.idle.map_or(String::new(), |idle| format!(", idle: {}ms", idle / MS));
    let _ = writeln!(line, "    time: {{ delay: {}ms{idle} }}", set.delay / MS);
    let mut state = Vec::new();
    if let Some(r) = set.retention {
        let (clock, refresh) =
            (if r.processing { "processing" } else { "event" }, if r.access { "access" } else { "create" });
        state.push(format!("retention: {{ for: {}ms, clock: {clock}, refresh: {refresh} }}", r.length / MS));
    }
    if let Some(most) = set.max_entries {
        state.push(format!("max_entries: {most}, overflow: evict-oldest"));
    }
    if !state.is_empty() {
        let _ = writeln!(line, "    state: {{ {} }}", state.join(", "));
    }
    let mut with = parameters(&set.cell);
    if set.lateness > 0 {
        let _ = write!(with, ", lateness: {}ms", set.lateness / MS);
    }
    if set.late != Late::Route {
        let _ = write!(with, ", late: {}", format!("{:?}", set.late).to_lowercase());
    }
    if set.cell.emit == Emit::Change {
        with.push_str(", content: { except: [value.o, value.p, value.s] }");
    }
    if let Some(beat) = set.heartbeat {
        let _ = write!(with, ", heartbeat: {}ms", beat / MS);
    }
    let _ = writeln!(line, "    with: {{ {with} }}");
    let _ = writeln!(line, "    partitions: {}\n    bounded: true", set.partitions);
}

fn key(record: &Record) -> String {
    record.key.clone().unwrap_or_else(|| "null".into())
}

fn value(record: &Record) -> String {
    let Some(v) = &record.content else { return String::new() };
    let s = match record.fields.first() {
        Some(Some(Field::Boolean(s))) => format!(", s: {s}"),
        Some(Some(Field::Number(s))) => format!(", s: {s}"),
        Some(Some(Field::Text(s))) => format!(", s: {s}"),
        _ => String::new(),
    };
    format!(", value: {{ v: {v}{s}, p: {}, o: {} }}", record.p, record.o)
}

fn time(record: &Record) -> String {
    record.stamp.map_or(String::new(), |t| format!(", t: {}", t / MS))
}

fn row(out: &Out, set: &Settings) -> String {
    let record = &out.record;
    let (tag, mut more) = match out.tag {
        Tag::Insert => ("", String::new()),
        Tag::Old => ("-U: ", String::new()),
        Tag::New => ("+U: ", String::new()),
        Tag::Delete => ("-D: ", String::new()),
        Tag::Put => ("PUT: ", String::new()),
        Tag::Tomb => ("TOMB: ", String::new()),
        Tag::Late => ("late: ", String::new()),
        Tag::DlqKey => ("dlq:key: ", String::new()),
        Tag::DlqTime => ("dlq:time: ", String::new()),
        Tag::Duplicate { of: (p, o) } => ("duplicate: ", format!(", of: [{p}, {o}]")),
    };
    let mut output_key = key(record);
    let is_output = matches!(out.tag, Tag::Insert | Tag::Old | Tag::New | Tag::Delete | Tag::Put | Tag::Tomb);
    // A record of updating output has the key of its scope (9.2); one that passes without key keeps its own.
    let upsert = set.cell.output == Output::Upsert && is_output;
    if let Some((start, end)) = out.window {
        let _ = write!(more, ", w: [{}, {}]", start / MS, end / MS);
        if upsert && set.cell.window.is_aligned() {
            output_key = format!("{{ key: {}, window_start: {}, window_end: {} }}", key(record), start / MS, end / MS);
        } else if upsert && matches!(set.cell.window, Window::Session { .. }) {
            output_key = format!("{{ key: {}, window_start: {} }}", key(record), start / MS);
        } else if upsert && record.key.is_none() {
            output_key = "{ key: null }".into();
        }
    } else if upsert && record.key.is_none() {
        output_key = "{ key: null }".into();
    }
    // Of a delete only key and window are the scope's; a tombstone that came in is the record it came as.
    if out.tag == Tag::Tomb && record.content.is_some() {
        return format!("{tag}{{ key: {output_key}{more} }}");
    }
    let place = format!("p: {}, o: {}", record.p, record.o);
    format!("{tag}{{ key: {output_key}{}, {place}{}{more} }}", value(record), time(record))
}
