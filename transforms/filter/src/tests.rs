#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::json;
use tamis_guest::document::Builder;
use tamis_guest::{Batch, Cell, Column, kind};

use super::*;

fn check_of(expression: &str) -> Check {
    Filter::check(&json!({"keep": expression}), &json!({}))
}

/// The columns that an expression reads.
fn check_reads(expression: &str, columns: &[&str]) {
    let check = check_of(expression);
    assert_eq!(check.findings, [], "{expression}");
    assert_eq!(check.reads, columns, "{expression}");
}

/// Text of the finding for an expression that is refused.
fn refused(expression: &str) -> (String, String) {
    let check = check_of(expression);
    assert_eq!(check.findings.len(), 1, "{expression}: {:?}", check.findings);
    assert_eq!(check.findings[0].at, "/with/keep");
    (check.findings[0].code.clone(), check.findings[0].text.clone())
}

fn build(value: &Value, builder: &mut Builder) {
    match value {
        Value::Null => builder.null(),
        Value::Bool(value) => builder.boolean(*value),
        Value::Number(number) => builder.bytes(kind::NUMBER, number.to_string().as_bytes()),
        Value::String(text) => builder.text(text),
        Value::Array(elements) => {
            builder.open(kind::ARRAY);
            elements.iter().for_each(|element| build(element, builder));
            builder.close();
        }
        Value::Object(members) => {
            builder.open(kind::MAP);
            for (name, value) in members {
                builder.name(name.as_bytes());
                build(value, builder);
            }
            builder.close();
        }
    }
}

/// The cell that a host would give for a column of this row.
fn cell(row: &Value, column: &str) -> (u8, Vec<u8>) {
    if column == "timestamp" {
        return (kind::TIMESTAMP, row["timestamp"].as_i64().unwrap().to_le_bytes().to_vec());
    }
    if let Some(name) = column.strip_prefix("headers.") {
        return match &row["headers"][name] {
            Value::String(text) => (kind::BYTES, text.as_bytes().to_vec()),
            Value::Number(byte) => (kind::BYTES, vec![byte.as_u64().unwrap() as u8]),
            _ => (kind::MISSING, vec![]),
        };
    }
    let path = column.strip_prefix("value").unwrap();
    let path = tamis_guest::path::parse(path.strip_prefix('.').unwrap_or(path)).unwrap();
    let found = path.iter().try_fold(&row["value"], |value, step| match step {
        tamis_guest::path::Step::Member(name) => value.as_object()?.get(name),
        tamis_guest::path::Step::Element(number) => value.as_array()?.get(*number as usize),
    });
    match found {
        None => (kind::MISSING, vec![]),
        Some(value) => {
            let mut builder = Builder::new();
            build(value, &mut builder);
            builder.finish()
        }
    }
}

fn run(expression: &str, row: &Value) -> Result<Verdict, Failure> {
    let params = json!({"keep": expression});
    let check = check_of(expression);
    assert_eq!(check.findings, [], "{expression}");
    let mut filter = Filter::open(&params, &json!({})).unwrap();
    let columns: Vec<Column> = check
        .reads
        .iter()
        .map(|name| {
            let (kind, bytes) = cell(row, name);
            let mut column = Column::with_capacity(1, 0);
            column.push(Cell { kind, bytes: &bytes });
            column
        })
        .collect();
    let batch = Batch { rows: 1, columns: &columns, ..Batch::default() };
    filter.row(&batch.row(0), &mut Out::default())
}

fn check_value(expression: &str, value: Value, kept: bool) {
    let verdict = run(expression, &json!({"value": value}));
    assert_eq!(verdict, Ok(if kept { Verdict::Keep } else { Verdict::Drop }), "{expression}");
}

fn check_fails(expression: &str, value: Value, part: &str) {
    let failure = run(expression, &json!({"value": value})).unwrap_err();
    assert_eq!((failure.category, failure.code.as_str()), (2, "expression"));
    assert!(failure.text.contains(part), "{expression}: {}", failure.text);
}

#[test]
fn only_what_is_named_is_read() {
    check_reads("value.env != \"test\"", &["value.env"]);
    check_reads("value.user.id == 1 && value.user.name == 'x'", &["value.user.id", "value.user.name"]);
    check_reads("has(value.user) && value.user.id == 1", &["value.user"]);
    check_reads("has(value.user.id)", &["value.user.id"]);
    check_reads("value[\"a.b\"] == 1 || value['x'].y == 2", &["value[\"a.b\"]", "value.x.y"]);
    check_reads("value.tags[0] == 'x'", &["value.tags"]);
    check_reads("value.tags.exists(t, t == value.want)", &["value.tags", "value.want"]);
    check_reads("value.m[value.k] == 1", &["value.k", "value.m"]);
    check_reads("size(value) > 0 && value.a == 1", &["value."]);
    check_reads("value.name.startsWith('a')", &["value.name"]);
    check_reads("key == 'k' || key.id == 1", &["key."]);
    check_reads("headers.id == 'x' && headers['Msg-Id'] == 'y'", &["headers[\"Msg-Id\"]", "headers.id"]);
    check_reads("'id' in headers", &["headers.id"]);
    check_reads("has(headers.id)", &["headers.id"]);
    check_reads(
        "timestamp > 5 && topic == 't' && partition == 0 && offset > 1",
        &["offset", "partition", "timestamp", "topic"],
    );
    check_reads("type(value.a) == int", &["value.a"]);
    check_reads("true", &[]);
    check_reads("value.a.map(value, value + 1) == [2]", &["value.a"]);
    check_reads("value.?a.orValue(1) == 1", &["value.a"]);
    check_reads("optional.of(value.a).hasValue()", &["value.a"]);
}

#[test]
fn what_cannot_run_is_refused_while_planning() {
    let (code, text) = refused("value.env ==");
    assert_eq!(code, "P-VALUE");
    assert!(text.contains("1:13"), "{text}");
    assert_eq!(refused("env == 'test'").0, "P-PATH");
    assert_eq!(check_of("env == 'test'").findings[0].help[0], "a field of the value is `value.env`");
    assert_eq!(refused("size(headers) > 0").0, "P-PATH");
    assert_eq!(refused("frobnicate(value.a)"), ("P-VALUE".to_owned(), "there is no function `frobnicate`".to_owned()));
    assert_eq!(refused("value.a.frobnicate()").0, "P-VALUE");
    assert_eq!(Filter::check(&json!({}), &json!({})).findings[0].code, "P-VALUE");
}

#[test]
fn rows_are_kept_or_dropped() {
    check_value("value.env != \"test\"", json!({"env": "live"}), true);
    check_value("value.env != \"test\"", json!({"env": "test"}), false);
    check_value("value.a.b == [1, 'x', null]", json!({"a": {"b": [1, "x", null]}}), true);
    check_value("value.tags.exists(t, t == 'x')", json!({"tags": ["y", "x"]}), true);
    check_value("value.name.startsWith('a') && value.name.size() > 2", json!({"name": "abc"}), true);
    check_value("size(value) == 2 && value.a == 1", json!({"a": 1, "b": 2}), true);
    check_value("value == null", json!(null), true);
    check_value("value.ok", json!({"ok": true}), true);
    check_value("value.a in ['x', 'y']", json!({"a": "y"}), true);
}

#[test]
fn missing_members_are_absent() {
    check_value("has(value.a)", json!({}), false);
    check_value("has(value.a)", json!({"a": null}), true);
    check_value("has(value.a.b)", json!({}), false);
    check_value("has(value.a.b)", json!({"a": 5}), false);
    check_value("!has(value.a) || value.a > 3", json!({}), true);
    check_fails("value.a == 1", json!({}), "No such key: a");
    check_fails("value.a.b == 1", json!({"a": {}}), "No such key: b");
}

#[test]
fn numbers_compare_by_value_and_do_not_mix_in_arithmetic() {
    check_value("value.n == 1.0 && value.n >= 1 && value.n < 1.5", json!({"n": 1}), true);
    check_value("value.n == 1 && value.n in [1, 2]", json!({"n": 1.0}), true);
    check_value("value.n == 1 && type(value.n) == double", json!({"n": 1.0}), true);
    check_value("value.n == 9223372036854775807", json!({"n": i64::MAX}), true);
    check_value("value.n > 9223372036854775807", serde_json::from_str("{\"n\": 92233720368547758080}").unwrap(), true);
    check_value("type(value.n) == int", serde_json::from_str("{\"n\": 1e2}").unwrap(), false);
    check_value("value.n + 1 == 3", json!({"n": 2}), true);
    check_value("double(value.n) * 1.5 == 3.0", json!({"n": 2}), true);
    check_fails("value.n * 1.5 == 3.0", json!({"n": 2}), "");
    // An int beside a double is rounded to a double first.
    check_value("value.n == 9007199254740992.0", json!({"n": 9007199254740993i64}), true);
    check_value("value.n == 9007199254740992", json!({"n": 9007199254740993i64}), false);
    check_value("value.a == '1'", json!({"a": 1}), false);
}

#[test]
fn what_is_not_a_boolean_fails() {
    check_fails("value.a", json!({"a": 1}), "gives int, not true or false");
    check_fails("value.a", json!({"a": null}), "gives null, not true or false");
    check_fails("value.a > 'x'", json!({"a": 1}), "");
    check_fails("value.a / 0 == 1", json!({"a": 1}), "ivi");
    let long = run("value.a > 1", &json!({"value": {"a": "é".repeat(1000)}})).unwrap_err();
    assert!(long.text.len() < 410);
}

#[test]
fn headers_are_text_if_they_can_be() {
    let row = json!({"value": null, "timestamp": 1000, "headers": {"id": "é1", "raw": 255}});
    assert_eq!(run("headers.id == 'é1' && timestamp == 1000", &row), Ok(Verdict::Keep));
    assert_eq!(run("headers.raw == b'\\xff'", &row), Ok(Verdict::Keep));
    assert_eq!(run("has(headers.no) || 'no' in headers", &row), Ok(Verdict::Drop));
    assert_eq!(run("'id' in headers", &row), Ok(Verdict::Keep));
}
