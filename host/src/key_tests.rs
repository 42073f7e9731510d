#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::batch::kind::{ARRAY, BYTES, NUMBER, STRUCT};

fn json(value: &serde_json::Value, into: &mut Builder) {
    match value {
        serde_json::Value::Null => into.null(),
        serde_json::Value::Bool(b) => into.boolean(*b),
        serde_json::Value::Number(n) => into.bytes(NUMBER, n.to_string().as_bytes()),
        serde_json::Value::String(s) => into.text(s),
        serde_json::Value::Array(items) => {
            into.open(ARRAY);
            items.iter().for_each(|item| json(item, into));
            into.close();
        }
        serde_json::Value::Object(members) => {
            into.open(STRUCT);
            for (name, member) in members {
                into.name(name.as_bytes());
                json(member, into);
            }
            into.close();
        }
    }
}

fn bytes_of(text: &str, how: &Comparison) -> Vec<u8> {
    let mut builder = Builder::new();
    json(&serde_json::from_str(text).unwrap(), &mut builder);
    let (kind, bytes) = builder.finish();
    let mut canonical_bytes = Vec::new();
    canonical(Cell { kind, bytes: &bytes }, how, &mut canonical_bytes);
    canonical_bytes
}

#[track_caller]
fn check(a: &str, b: &str, how: Comparison, equal: bool) {
    assert_eq!(bytes_of(a, &how) == bytes_of(b, &how), equal, "{a} and {b} under {how:?}");
}

fn plain() -> Comparison {
    Comparison::default()
}

#[test]
fn numbers_compare_by_exact_value_and_by_type_on_request() {
    check("1", "1.0", plain(), true);
    check("1", "1e0", plain(), true);
    check("0.1", "0.10", plain(), true);
    check("-0.0", "0", plain(), true);
    check("9007199254740993", "9007199254740992", plain(), false);
    check("1", "\"1\"", plain(), false);
    check("1", "true", plain(), false);
    let typed = Comparison { typed_numbers: true, ..plain() };
    check("1", "1.0", typed, false);
    check("1.0", "1e0", typed, true);
}

#[test]
fn members_have_no_order_and_null_equals_missing_at_every_depth() {
    check(r#"{"a":1,"b":{"x":null,"y":2}}"#, r#"{"b":{"y":2},"a":1}"#, plain(), true);
    check(r#"{"a":1}"#, r#"{"b":1}"#, plain(), false);
    check("[1,2]", "[2,1]", plain(), false);
    check("[1,null]", "[1]", plain(), false);
    check(r#"{"a":{"b":1}}"#, r#"{"a.b":1}"#, plain(), false);
    let distinct = Comparison { missing_distinct: true, ..plain() };
    check(r#"{"a":1,"b":null}"#, r#"{"a":1}"#, distinct, false);
}

#[test]
fn text_is_normalised_and_folded_on_a_copy() {
    check("\"b\u{f4}h\"", "\"bo\u{302}h\"", plain(), false);
    check("\"b\u{f4}h\"", "\"bo\u{302}h\"", Comparison { normalize: Some(Normalize::Nfc), ..plain() }, true);
    check("\"stra\u{df}e\"", "\"STRASSE\"", Comparison { casefold: true, ..plain() }, true);
    check(r#"{"A":1}"#, r#"{"a":1}"#, Comparison { casefold: true, ..plain() }, false);
}

#[test]
fn excluded_paths_do_not_take_part() {
    let hash_without = |text: &str| {
        let mut builder = Builder::new();
        json(&serde_json::from_str(text).unwrap(), &mut builder);
        let (kind, bytes) = builder.finish();
        let except = vec![vec![Step::Member("ts".into())], vec![Step::Member("a".into()), Step::Element(1)]];
        let mut into = Vec::new();
        canonical_without(Cell { kind, bytes: &bytes }, &except, &plain(), &mut into);
        into
    };
    assert_eq!(hash_without(r#"{"v":5,"ts":1,"a":[1,2]}"#), hash_without(r#"{"a":[1,3],"v":5,"ts":2}"#));
    assert_ne!(hash_without(r#"{"v":5}"#), hash_without(r#"{"v":6}"#));
}

#[test]
fn equal_keys_are_written_alike() {
    let text_of = |number: &str| plain_number(number.as_bytes());
    for (number, expected) in [
        ("1.50", "1.5"),
        ("15e-1", "1.5"),
        ("0.015e2", "1.5"),
        ("100", "100"),
        ("1e2", "100"),
        ("-0.0", "0"),
        ("0.001", "0.001"),
        ("-12.340", "-12.34"),
    ] {
        assert_eq!(text_of(number).as_deref(), Some(expected), "{number}");
    }
    assert_eq!(text_of("1e400"), None);
}

#[test]
fn headers_are_bytes_unless_a_type_is_given() {
    let mut room = Vec::new();
    assert_eq!(read_header(b"7", ReadAs::Bytes, &mut room).unwrap().kind, BYTES);
    assert_eq!(read_header(b"7", ReadAs::Int, &mut room).unwrap().bytes, 7i64.to_le_bytes());
    assert!(read_header(b"x", ReadAs::Int, &mut Vec::new()).is_err());
    assert!(read_header(b"\xff", ReadAs::Text, &mut Vec::new()).is_err());
}
