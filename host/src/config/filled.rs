//! The file with every default filled in, and how JSON values are written as YAML.

use serde_json::{Map, Value, json};

use super::build::default_json;
use super::check::{member, one_of};
use super::ends;
use super::kafka::is_secret;
use super::node::{Node, NodeKind};
use super::params;
use super::path::Root;
use super::pipeline::{Format, NullKey, Pipeline, Sink, Tolerance};
use super::table::{Default, Kind, Table};
use super::tables;

/// What is not in the file and not in its tables: what a plan found out.
#[derive(Debug, Default)]
pub struct Found {
    /// Schema of the parameters of each stage, in order.
    pub schemas: Vec<Value>,
    /// Parameters of each stage with every default, where its guest told them.
    pub settings: Vec<Option<Value>>,
    /// What happens to null keys, for each stage that has a key.
    pub null_keys: Vec<Option<NullKey>>,
    /// What ages the state of each keyed stage, `event` or `processing`, where the file does not say it.
    pub ageing: Vec<Option<&'static str>>,
}

/// The file as JSON, in the order of the tables; tests are left out.
pub fn filled(pipeline: &Pipeline, found: &Found) -> Value {
    let mut file = mapping(Some(&pipeline.root), &tables::FILE);
    file.remove("tests");
    file.insert("name".to_string(), json!(pipeline.name));
    let mut set = |path: [&str; 2], value: Value| {
        let inner = file.entry(path[0]).or_insert_with(|| json!({}));
        if let Some(inner) = inner.as_object_mut() {
            inner.entry(path[1]).or_insert(value);
        }
    };
    if pipeline.time.min == Some(0) && pipeline.time.field.root == Root::Timestamp {
        set(["time", "min"], json!("1970-01-01T00:00:00Z"));
    }
    let tolerance = if pipeline.errors.tolerance == Tolerance::All { "all" } else { "none" };
    set(["errors", "tolerance"], json!(tolerance));
    if let Some(Value::Object(kafka)) = file.get_mut("source").and_then(|source| source.get_mut("kafka")) {
        kafka.entry("group").or_insert(json!(pipeline.name));
        in_order(kafka, &super::ends::KAFKA_SOURCE);
    }
    if !matches!(pipeline.sink, Sink::Kafka(_)) {
        file.insert("sink".to_string(), sink(&pipeline.sink));
    }
    let routes = [("late", &pipeline.late), ("duplicates", &pipeline.duplicates)];
    for (name, route) in routes {
        if let (Some(route), Some(routes)) = (route, file.get_mut("routes").and_then(Value::as_object_mut)) {
            routes.insert(name.to_string(), sink(route));
        }
    }
    if let (Some(dead), Some(errors)) =
        (&pipeline.errors.dead_letter, file.get_mut("errors").and_then(Value::as_object_mut))
    {
        errors.insert("dead_letter".to_string(), sink(dead));
    }
    if let Some(Value::Array(stages)) = file.get_mut("stages") {
        for (i, (stage, meant)) in stages.iter_mut().zip(&pipeline.stages).enumerate() {
            let Some(members) = stage.as_object_mut() else { continue };
            members.insert("id".to_string(), json!(meant.id));
            in_order(members, &tables::STAGE);
            if meant.key.is_none() {
                members.remove("scope");
            }
            if let Some(schema) = found.schemas.get(i) {
                let with = found.settings.get(i).and_then(Option::as_ref).unwrap_or(&meant.uses.with);
                members.insert("with".to_string(), params::filled(with, schema));
            }
            let retention = members.get_mut("state").and_then(|state| state.get_mut("retention"));
            if let (Some(Value::Object(retention)), Some(Some(clock))) = (retention, found.ageing.get(i)) {
                retention.entry("clock").or_insert(json!(clock));
            }
            if let (Some(Some(null_key)), Some(Value::Object(key))) = (found.null_keys.get(i), members.get_mut("key")) {
                key.insert("null_key".to_string(), json!(format!("{null_key:?}").to_lowercase()));
                in_order(key, &tables::KEY);
            }
        }
    }
    for (name, table) in [("time", &tables::TIME), ("errors", &tables::ERRORS)] {
        if let Some(members) = file.get_mut(name).and_then(Value::as_object_mut) {
            in_order(members, table);
        }
    }
    in_order(&mut file, &tables::FILE);
    let mut file = Value::Object(file);
    hide(&mut file);
    file
}

/// Takes passwords that were written where everybody can read them out of client settings.
fn hide(value: &mut Value) {
    for (name, value) in value.as_object_mut().into_iter().flatten() {
        match (name.as_str(), &mut *value) {
            ("properties", Value::Object(settings)) => {
                let shown = |name: &str, value: &Value| value.is_object() || !is_secret(name);
                settings.iter_mut().filter(|(n, v)| !shown(n, v)).for_each(|(_, v)| *v = json!("not shown"));
            }
            _ => hide(value),
        }
    }
}

/// Members in the order of their table.
fn in_order(members: &mut Map<String, Value>, table: &Table) {
    let mut old = std::mem::take(members);
    for member in table.members {
        if let Some(value) = old.shift_remove(member.name) {
            members.insert(member.name.to_string(), value);
        }
    }
    members.extend(old);
}

fn sink(sink: &Sink) -> Value {
    let word = |format: &Format| format!("{format:?}").to_lowercase();
    match sink {
        Sink::File { path, format } => {
            json!({ "file": { "path": path.display().to_string(), "format": word(format) } })
        }
        Sink::Stdout { format } => json!({ "stdout": { "format": word(format) } }),
        Sink::Kafka(kafka) => json!({ "kafka": Value::Object(mapping(Some(&kafka.node), &ends::KAFKA_SINK)) }),
    }
}

fn mapping(node: Option<&Node>, table: &Table) -> Map<String, Value> {
    let mut members = Map::new();
    for entry in table.members {
        let written = node.and_then(|n| member(n, table, entry.name));
        let value = match (written, entry.default) {
            (Some(node), _) => value(node, &entry.kind),
            (None, Default::Is(text)) => match super::yaml::parse(text, None, &|_| None) {
                Ok((node, _)) => value(&node, &entry.kind),
                Err(_) => default_json(text),
            },
            (None, _) => continue,
        };
        members.insert(entry.name.to_string(), value);
    }
    members
}

fn value(node: &Node, kind: &Kind) -> Value {
    match kind {
        // A part of a key stays as short as it was written.
        Kind::Map(table) if table.short == Some("field") && table.member("as").is_some() && node.as_map().is_none() => {
            node.to_json()
        }
        Kind::Map(table) => Value::Object(mapping(Some(node), table)),
        Kind::List(kind) | Kind::Many(kind) => match node.as_list() {
            Some(items) => Value::Array(items.iter().map(|item| value(item, kind)).collect()),
            None => Value::Array(vec![value(node, kind)]),
        },
        Kind::OneOf(members, bare) => match one_of(node, members, bare) {
            Some((name, inner)) => {
                let empty = Node::new(node.span, NodeKind::Map(Vec::new()));
                let kind = members.iter().find(|m| m.name == name).map_or(&Kind::Free, |m| &m.kind);
                json!({ name: value(inner.unwrap_or(&empty), kind) })
            }
            None => node.to_json(),
        },
        _ => node.to_json(),
    }
}

/// A JSON value as YAML: short parts on one line, the rest one member a line.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| write_member(&mut out, name, value, 0)),
        other => out.push_str(&flow(other)),
    }
    out
}

fn write_member(out: &mut String, name: &str, value: &Value, indent: usize) {
    out.push_str(&" ".repeat(indent));
    out.push_str(&scalar(name, true));
    out.push(':');
    write_value(out, value, indent);
}

/// Longest line of a part that is written on one.
const WIDTH: usize = 72;

fn write_value(out: &mut String, value: &Value, indent: usize) {
    let short = flow(value);
    let nested = matches!(value, Value::Object(m) if m.values().any(|v| v.is_object() && v.as_object().is_some_and(|o| !o.is_empty())));
    match value {
        Value::Object(members) if !members.is_empty() && (nested || short.len() + indent > WIDTH) => {
            out.push('\n');
            members.iter().for_each(|(name, value)| write_member(out, name, value, indent + 2));
        }
        Value::Array(items) if items.iter().any(Value::is_object) || short.len() + indent > WIDTH => {
            out.push('\n');
            for item in items {
                let mut inner = String::new();
                match item {
                    Value::Object(members) if !members.is_empty() => {
                        members.iter().for_each(|(name, value)| write_member(&mut inner, name, value, indent + 4));
                    }
                    other => inner = format!("{}{}\n", " ".repeat(indent + 4), flow(other)),
                }
                // The dash stands in place of the last two blanks before the first member.
                out.push_str(&" ".repeat(indent + 2));
                out.push_str("- ");
                out.push_str(inner.trim_start());
            }
        }
        Value::String(text) => {
            out.push(' ');
            out.push_str(&scalar(text, false));
            out.push('\n');
        }
        _ => {
            out.push(' ');
            out.push_str(&short);
            out.push('\n');
        }
    }
}

/// A JSON value as YAML on one line.
pub fn flow(value: &Value) -> String {
    match value {
        Value::Object(members) if members.is_empty() => "{}".to_string(),
        Value::Object(members) => {
            let inner: Vec<String> = members.iter().map(|(n, v)| format!("{}: {}", scalar(n, true), flow(v))).collect();
            format!("{{ {} }}", inner.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::String(text) => scalar(text, true),
        other => other.to_string(),
    }
}

/// Text as it may stand plainly, else quoted; `in_flow`: between brackets.
fn scalar(text: &str, in_flow: bool) -> String {
    let first = text.chars().next();
    let plain = first.is_some_and(|c| c.is_alphanumeric() || "./_".contains(c))
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.contains("${")
        && !text.chars().any(|c| c.is_control() || (in_flow && "[]{},\"".contains(c)))
        && matches!(super::yaml::parse(text, None, &|_| None), Ok((node, _)) if node.as_text() == Some(text));
    if plain { text.to_string() } else { Value::String(text.to_string()).to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::config::{read, yaml};

    fn check(file: &str) -> String {
        let pipeline = read(file, None, &|_| None).unwrap_or_else(|(e, _)| panic!("{e:?}"));
        let all = filled(&pipeline, &Found::default());
        let text = to_yaml(&all);
        let (node, _) = yaml::parse(&text, None, &|_| None).unwrap_or_else(|e| panic!("{text}\n{e:?}"));
        assert_eq!(node.to_json(), all, "{text}");
        // A file with its defaults means what the file meant.
        let again = read(&text, None, &|_| None).unwrap_or_else(|(e, _)| panic!("{text}\n{e:?}"));
        assert_eq!(filled(&again, &Found::default()), all, "{text}");
        text
    }

    #[test]
    fn defaults_are_filled_in_and_mean_the_same() {
        let text = check(
            "version: 1\ntime: value.created_at\nstages:\n  - uses: dedup\n    key: value.id\n    with: { window: { horizon: 15m } }\n",
        );
        for part in
            ["name: pipeline", "field: value.created_at", "delay: 0s", "tolerance: none", "checkpoint: 1m", "stdin:"]
        {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn what_needs_quotes_gets_them() {
        check(
            "version: 1\ndescription: 'a: b # c'\nlabels: { a: 'true', b: '1', c: '${X}', d: '[x]', e: '' }\nsource: { file: ['a,b.json', '*.json'] }\n",
        );
        check(
            "version: 1\nstages:\n  - { uses: dedup, key: [value.a, 'headers[\"x, y\"]', { field: headers.b, as: int }] }\n",
        );
    }
}
