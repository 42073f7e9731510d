//! The random cases, which a model of the rules has written, against the reference: what it says must be what they say.

use std::path::Path;

use serde_json::Value;
use tamis::config::node::Node;
use tamis::script::content::Content;
use tamis::script::record::{self, Body};
use tamis::script::suite::Suite;
use tamis::script::{self, Expected, Test, moment};

use super::scripts::{Step, play};
use super::table::{Cell, Clock, Code, Emit, Keep, MS, Order, Output, Window};
use super::windows::ZONES;
use super::words::{Field, Late, NullKey, Record, Retention, Settings, Tag};

/// A test as the reference takes it; none: it speaks of what the reference does not know.
struct Case {
    set: Settings,
    steps: Vec<Step>,
}

/// Nanoseconds of a duration such as `1h30m`.
fn duration(value: &Value) -> Option<i64> {
    let text = value.as_str()?;
    let (sign, mut rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let mut sum = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        sum += number
            * match &rest[..unit] {
                "ms" => MS,
                "s" => 1_000 * MS,
                "m" => 60_000 * MS,
                "h" => 3_600_000 * MS,
                "d" => 86_400_000 * MS,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Some(sign * sum)
}

fn json(node: &Option<Node>) -> Value {
    node.as_ref().map_or(Value::Null, Node::to_json)
}

fn window(value: &Value) -> Option<Window> {
    let Value::Object(of) = value else { return Some(Window::None) };
    let length = |name: &str| of.get(name).and_then(duration);
    let offset = length("offset").unwrap_or(0);
    let zone = match of.get("zone").and_then(Value::as_str) {
        None => None,
        Some(zone) => Some(ZONES.into_iter().find(|known| *known == zone)?),
    };
    if let Some(size) = length("tumbling") {
        return Some(Window::Tumbling { size, offset, zone });
    } else if let Some(size) = length("hopping") {
        return Some(Window::Hopping { size, slide: length("every")?, offset });
    } else if let Some(size) = length("cumulative") {
        return Some(Window::Cumulative { size, step: length("step")?, offset });
    } else if let Some(gap) = length("session") {
        return Some(Window::Session { gap });
    }
    Some(Window::Horizon { ttl: length("horizon")?, access: of.get("refresh").is_some_and(|r| r == "access") })
}

/// The settings of a test, the paths of its order below `value`, and those its content leaves out.
fn settings(test: &Test, partitions: usize) -> Option<(Settings, Vec<String>, Vec<String>)> {
    let with = json(&test.replace.with);
    let (key, time, state) = (json(&test.replace.key), json(&test.replace.time), json(&test.replace.state));
    if with.get("batch").is_some() || with.get("input").is_some() || !is_plain_key(&key) {
        return None;
    }
    let word = |name: &str| with.get(name).and_then(Value::as_str);
    let paths = |value: Option<&Value>| -> Vec<String> {
        let all = value.and_then(Value::as_array).cloned().unwrap_or_default();
        all.iter().filter_map(|p| Some(p.as_str()?.strip_prefix("value.")?.to_owned())).collect()
    };
    let window = window(with.get("window").unwrap_or(&Value::Null))?;
    let clock = match word("clock") {
        Some("processing") => Clock::Processing,
        Some("ingestion") => Clock::Ingestion,
        _ => Clock::Event,
    };
    let output = match word("output") {
        Some("upsert") => Output::Upsert,
        Some("retract") => Output::Retract,
        _ => Output::Append,
    };
    let closes = window.is_aligned() || matches!(window, Window::Session { .. });
    let fields = paths(with.get("order"));
    let order = match word("order") {
        _ if !fields.is_empty() => Order::Field,
        Some("time") => Order::Time,
        Some(_) => Order::Arrival,
        None if clock == Clock::Event && closes => Order::Time,
        None => Order::Arrival,
    };
    let emit = match word("emit") {
        Some("immediate") => Emit::Immediate,
        Some("change") => Emit::Change,
        Some(_) => Emit::Close,
        None if closes => Emit::Close,
        None => Emit::Immediate,
    };
    let keep = if word("keep") == Some("last") { Keep::Last } else { Keep::First };
    let cell = Cell { window, keep, clock, order, output, emit };
    let length = |of: &Value, name: &str| of.get(name).and_then(duration);
    let retention = state.get("retention").map(|r| Retention {
        length: length(r, "for").unwrap_or(0),
        processing: match r.get("clock").and_then(Value::as_str) {
            Some(named) => named == "processing",
            None => clock == Clock::Processing,
        },
        access: r.get("refresh").is_some_and(|r| r == "access"),
    });
    let set = Settings {
        cell,
        code: cell.code(test.bounded.unwrap_or(true)).unwrap_or(Code::FA),
        lateness: length(&with, "lateness").unwrap_or(0),
        late: match word("late") {
            Some("drop") => Late::Drop,
            Some("pass") => Late::Pass,
            _ => Late::Route,
        },
        null_key: match key.get("null_key").and_then(Value::as_str) {
            Some("dlq") => NullKey::Dlq,
            Some("drop") => NullKey::Drop,
            Some("group") => NullKey::Group,
            Some(_) => NullKey::Pass,
            None if output == Output::Append => NullKey::Pass,
            None => NullKey::Dlq,
        },
        retention,
        max_entries: state.get("max_entries").and_then(Value::as_u64).map(|n| n as usize),
        heartbeat: length(&with, "heartbeat"),
        delay: length(&time, "delay").unwrap_or(0),
        idle: length(&time, "idle"),
        partitions,
    };
    Some((set, fields, paths(with.pointer("/content/except"))))
}

/// Whether the key is `value.k` or the record's own.
fn is_plain_key(key: &Value) -> bool {
    let plain = |key: &Value| key == "value.k" || key == "key";
    let options = |of: &serde_json::Map<String, Value>| of.keys().all(|name| name == "fields" || name == "null_key");
    match key {
        Value::Null => true,
        Value::Object(of) => options(of) && of.get("fields").is_some_and(|f| f.get(0).is_some_and(plain)),
        key => plain(key),
    }
}

fn case(test: &Test, partitions: usize) -> Option<Case> {
    let (set, fields, except) = settings(test, partitions)?;
    let (key, time) = (json(&test.replace.key), json(&test.replace.time));
    let own_key = key == "key" || key.pointer("/fields/0").is_some_and(|part| part == "key");
    let in_value = time.get("field").is_some();
    let or_stamp = time.get("invalid").is_some_and(|policy| policy == "timestamp");
    let mut steps = Vec::new();
    let (mut now, mut next) = (0, vec![0; partitions]);
    for said in &test.input {
        steps.push(match &said.step {
            script::Step::Record(r) => {
                now = r.at.unwrap_or(now).max(now);
                let p = r.p.unwrap_or(0) as usize;
                let o = r.o.unwrap_or(next[p]);
                next[p] = next[p].max(o + 1);
                let stamp = r.t.map(|t| t * MS);
                let event = match (in_value, number(&r.value, "ts").map(|ts| ts * MS)) {
                    (false, _) => stamp,
                    (true, None) if or_stamp => stamp,
                    (true, ts) => ts,
                };
                Step::Record(
                    Record {
                        key: if own_key { r.key.as_ref().and_then(text) } else { member(&r.value, "k").and_then(text) },
                        content: content(&r.value, &except)?,
                        fields: fields.iter().map(|path| field(&r.value, path)).collect(),
                        stamp,
                        event,
                        p,
                        o,
                    },
                    now,
                )
            }
            script::Step::Clock(moment::Moment::At(to)) => {
                now = now.max(*to);
                Step::Clock(*to)
            }
            script::Step::End(p) => Step::End(p.map(|p| p as usize)),
            script::Step::Idle(p) => Step::Idle(*p as usize),
            script::Step::Block(p) => Step::Block(*p as usize, true),
            script::Step::Unblock(p) => Step::Block(*p as usize, false),
            script::Step::Commit => Step::Commit,
            script::Step::Restart(_) => Step::Restart,
            script::Step::Crash => Step::Crash,
            script::Step::Batch => Step::Batch,
            script::Step::Redeliver(n) => Step::Redeliver(*n),
            _ => return None,
        });
    }
    Some(Case { set, steps })
}

fn member<'b>(value: &'b Body, name: &str) -> Option<&'b Content> {
    let Body::Document(Content::Map(members)) = value else { return None };
    members.iter().find(|(n, _)| n == name).map(|(_, content)| content)
}

fn text(content: &Content) -> Option<String> {
    (!matches!(content, Content::Null)).then(|| content.to_string())
}

fn number(value: &Body, name: &str) -> Option<i64> {
    match member(value, name)? {
        Content::Number(digits) => digits.parse().ok(),
        _ => None,
    }
}

fn field(value: &Body, name: &str) -> Option<Field> {
    match member(value, name)? {
        Content::Boolean(b) => Some(Field::Boolean(*b)),
        Content::Number(digits) => digits.parse().ok().map(Field::Number),
        Content::Text(text) => Some(Field::Text(text.clone())),
        _ => None,
    }
}

/// What is compared of a value; the outer none: bytes, which only a codec can read.
fn content(value: &Body, except: &[String]) -> Option<Option<String>> {
    match value {
        Body::Null => Some(None),
        Body::Bytes(_) => None,
        Body::Document(Content::Map(members)) => {
            let mut compared: Vec<String> = members
                .iter()
                .filter(|(name, content)| !except.contains(name) && !matches!(content, Content::Null))
                .map(|(name, content)| format!("{name}: {content}"))
                .collect();
            compared.sort();
            Some(Some(compared.join(", ")))
        }
        Body::Document(other) => Some(Some(other.to_string())),
    }
}

/// A row as both sides can say it: tag, partition, offset, window.
type Said = (String, usize, Option<i64>, Option<(i64, i64)>);

fn expected(test: &Test) -> Vec<Said> {
    let rows = test.output.iter().filter_map(|row| match row {
        Expected::Row(row) => Some(row),
        Expected::Series(_) => None,
    });
    let said = rows.map(|row| {
        let r = &row.record;
        let tag = match &row.tag {
            record::Tag::Duplicate => {
                let (p, o) = r.of.unwrap_or_default();
                format!("duplicate of {p}/{o}")
            }
            // An append record with a null value may be written either way.
            record::Tag::Insert if matches!(r.value, Body::Null) => "null".to_owned(),
            record::Tag::Tomb => "null".to_owned(),
            tag => tag.word(),
        };
        (tag, r.p.unwrap_or(0) as usize, r.o, r.w)
    });
    said.collect()
}

fn came(out: &super::words::Out) -> Said {
    let r = &out.record;
    let tag = match out.tag {
        Tag::Tomb => "null".to_owned(),
        Tag::Insert if r.content.is_none() => "null".to_owned(),
        Tag::Insert => String::new(),
        Tag::Old => "-U".to_owned(),
        Tag::New => "+U".to_owned(),
        Tag::Delete => "-D".to_owned(),
        Tag::Put => "PUT".to_owned(),
        Tag::Late => "late".to_owned(),
        Tag::DlqKey => "dlq:key".to_owned(),
        Tag::DlqTime => "dlq:time".to_owned(),
        Tag::Duplicate { of: (p, o) } => format!("duplicate of {p}/{o}"),
    };
    (tag, r.p, Some(r.o), out.window)
}

/// How what the reference says differs from what the test says.
fn difference(test: &Test, case: &Case) -> Option<String> {
    let reference = play(&case.set, &case.steps);
    let wanted = expected(test);
    let duplicates = wanted.iter().any(|row| row.0.starts_with("duplicate"));
    let all: Vec<Said> = reference.out.iter().map(came).collect();
    let route = |row: &Said| match row.0.as_str() {
        "late" => 1,
        dlq if dlq.starts_with("dlq") => 2,
        duplicate if duplicate.starts_with("duplicate") => 3,
        _ => 0,
    };
    for number in 0..if duplicates { 4 } else { 3 } {
        let of = |rows: &[Said]| -> Vec<Said> { rows.iter().filter(|row| route(row) == number).cloned().collect() };
        let (wanted, said) = (of(&wanted), of(&all));
        // A delete is known by its key alone.
        let same = |a: &Said, b: &Said| {
            a.0 == b.0 && (a.2.is_none() || (a.1 == b.1 && a.2 == b.2)) && (a.3.is_none() || a.3 == b.3)
        };
        let equal = wanted.iter().zip(&said).take_while(|(a, b)| same(a, b)).count();
        if equal < wanted.len() || equal < said.len() {
            return Some(format!(
                "row {equal}: the test has {:?}, the reference {:?}",
                wanted.get(equal),
                said.get(equal)
            ));
        }
    }
    let count = |name: &str| reference.counters.get(name).copied().unwrap_or(0);
    let wrong = test.counters.iter().find(|(name, expected)| count(name) != *expected);
    wrong.map(|(name, expected)| format!("{name}: the test has {expected}, the reference {}", count(name)))
}

/// Refusals of cells; others are of settings beside the table.
const OF_THE_TABLE: [&str; 4] = ["D-NO1", "D-NO2", "D-NO3", "D-REFRESH"];

#[test]
fn the_reference_says_what_the_random_cases_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/random");
    // Another folder with such cases.
    let folder = std::env::var("TAMIS_CASES").map_or(folder, Into::into);
    let (mut compared, mut failed) = (0, Vec::new());
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let pipeline = tamis::config::read(&text, None, &|_| None).map_err(|(findings, _)| findings).unwrap();
        let suite = Suite::new(&pipeline, crate::cases::library());
        for (name, span, test) in &suite.tests {
            let test = test.as_ref().unwrap();
            let partitions = script::source::inputs(test).len();
            let Some(case) = case(test, partitions) else { continue };
            if test.refused.as_ref().is_some_and(|code| !OF_THE_TABLE.contains(&code.as_str())) {
                continue;
            }
            compared += 1;
            let at = format!("{}:{} {name}", path.file_name().unwrap().to_string_lossy(), span.line);
            match (&test.refused, case.set.cell.code(test.bounded.unwrap_or(true))) {
                (Some(code), Err(found)) if code == found => {}
                (Some(code), other) => failed.push(format!("{at}: refused with {code}, by the table {other:?}")),
                (None, Err(found)) => failed.push(format!("{at}: the table refuses it with {found}")),
                (None, Ok(_)) => failed.extend(difference(test, &case).map(|what| format!("{at}: {what}"))),
            }
        }
    }
    assert!(compared > 250, "only {compared} tests could be compared");
    assert!(failed.is_empty(), "{} of {compared} differ:\n{}", failed.len(), failed.join("\n"));
}
