#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

fn read(text: &str) -> Result<(Node, Vec<Diagnostic>), Vec<Diagnostic>> {
    parse(text, None, &|name| (name == "A").then(|| "7".to_string()))
}

fn check(text: &str, json: &str) {
    let (node, _) = read(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    assert_eq!(node.to_json().to_string(), json, "{text}");
}

fn check_error(text: &str, code: &str, line: u32, column: u32) {
    let findings = read(text).expect_err(text);
    assert_eq!(findings.len(), 1, "{findings:?}");
    let span = findings[0].span.unwrap();
    assert_eq!((findings[0].code.as_str(), span.line, span.column), (code, line, column), "{findings:?}");
}

#[test]
fn only_true_and_false_are_booleans() {
    check("[true, false, no, yes, on]", r#"[true,false,"no","yes","on"]"#);
}

#[test]
fn times_and_dates_are_text() {
    check(
        "[01:10:00, 2026-01-01, 2026-01-01T00:30:00Z, 1h, +15m]",
        r#"["01:10:00","2026-01-01","2026-01-01T00:30:00Z","1h","+15m"]"#,
    );
}

#[test]
fn numbers_keep_their_digits() {
    check("[1.0, 1.50, 12345678901234567890123, 1e400, -0]", "[1.0,1.50,12345678901234567890123,1e+400,-0]");
    check("[+5, .5, 5., 007, 0x1F, 0o17]", "[5,0.5,5.0,7,31,15]");
}

#[test]
fn quoted_scalars_are_text() {
    check(r#"["1", 'true', ""]"#, r#"["1","true",""]"#);
}

#[test]
fn json_is_accepted() {
    check("{\"a\": [1, {\"b\": null}], \"c\": \"\\u00e9\"}", r#"{"a":[1,{"b":null}],"c":"é"}"#);
}

#[test]
fn anchors_are_followed() {
    check("a: &x { b: 1 }\nc: *x\n", r#"{"a":{"b":1},"c":{"b":1}}"#);
}

#[test]
fn variables_are_put_in_before_the_type_is_seen() {
    check("a: ${A}\nb: x${A}\nc: '${A}'\n", r#"{"a":7,"b":"x7","c":"${A}"}"#);
}

#[test]
fn quoted_variables_are_warned_about() {
    let (_, findings) = read("a: '${A}'\nb: '$5 {x}'\n").unwrap();
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].code.as_str(), findings[0].span.unwrap().line), ("W-QUOTED", 1));
}

#[test]
fn what_is_wrong_has_a_place() {
    check_error("a: 1\nb: 2\na: 3\n", "P-UNKNOWN", 3, 1);
    check_error("a: ${B}\n", "P-VARIABLE", 1, 4);
    check_error("a: 1\n---\nb: 2\n", "P-SYNTAX", 2, 1);
    check_error("a: !thing 1\n", "P-SYNTAX", 1, 4);
}

#[test]
fn all_duplicates_are_reported_at_once() {
    assert_eq!(read("a: 1\na: 2\nb: { c: 1, c: 2 }\n").expect_err("duplicates").len(), 2);
}

#[test]
fn spans_count_characters_and_bytes() {
    let (node, _) = read("é: [ä, wort]\n").unwrap();
    let word = &node.get("é").unwrap().as_list().unwrap()[1];
    assert_eq!((word.span.column, word.span.start, word.span.end), (8, 9, 13));
}

#[test]
fn deep_nesting_and_alias_bombs_end_in_an_error() {
    let deep = "[".repeat(5000);
    assert!(read(&deep).is_err());
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_string();
    for i in 1..12 {
        let refs = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
    }
    assert!(read(&bomb).expect_err("bomb")[0].message.contains("values"));
}

#[test]
fn an_empty_file_is_null() {
    check("", "null");
    check("# only a comment\n", "null");
}
