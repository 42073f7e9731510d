#![allow(clippy::unwrap_used, clippy::expect_used)]
use serde_json::json;

use super::*;
use crate::config::yaml;

/// Checks the parameters against a schema like that of dedup; `expected` is `CODE column`, one per finding.
fn check_params(with: &str, expected: &[&str]) -> Vec<Diagnostic> {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["keep"],
        "properties": {
            "keep": { "type": "string", "enum": ["first", "last"], "default": "first", "description": "which one stays" },
            "lateness": { "type": "string", "format": "duration" },
            "window": { "oneOf": [
                { "type": "string", "enum": ["none"] },
                { "type": "object", "additionalProperties": false, "properties": {
                    "tumbling": { "type": "string", "format": "duration" },
                    "refresh": { "type": "string", "enum": ["create", "access"] },
                } },
            ] },
            "order": { "oneOf": [
                { "type": "string", "enum": ["time", "arrival"] },
                { "type": "array", "items": { "type": "string", "format": "path" }, "minItems": 1 },
            ] },
            "size": { "type": "string", "format": "size" },
            "count": { "type": "integer", "minimum": 1, "maximum": 10 },
            "audit": { "type": "boolean" },
            "free": {},
        },
    });
    let (node, _) = yaml::parse(with, None, &|_| None).unwrap();
    let found = check(Some(&node), &schema, "dedup", node.span);
    let got: Vec<String> = found.iter().map(|d| format!("{} {}", d.code, d.span.unwrap().column)).collect();
    assert_eq!(got, expected, "{with}: {found:?}");
    found
}

#[test]
fn what_fits_passes() {
    check_params(
        "{ keep: last, window: { tumbling: 1h }, order: [value.a, headers.b], count: 3, audit: true, free: [1] }",
        &[],
    );
    check_params("{ keep: last, window: none, order: time, lateness: 0s, size: 1MiB }", &[]);
}

#[test]
fn unknown_and_missing_members_are_named() {
    let found = check_params("{ keep: first, windw: none }", &["P-UNKNOWN 16"]);
    assert_eq!(found[0].help, ["perhaps `window`"]);
    check_params("{ audit: true }", &["P-MISSING 3"]);
    check_params("{}", &["P-MISSING 1"]);
    check_params("{ keep: first, window: { tumblng: 1h } }", &["P-UNKNOWN 26"]);
}

#[test]
fn units_are_asked_for() {
    check_params("{ keep: first, lateness: 5 }", &["P-UNIT 26"]);
    check_params("{ keep: first, window: { tumbling: \"60\" } }", &["P-UNIT 36"]);
    check_params("{ keep: first, size: 5 }", &["P-UNIT 22"]);
}

#[test]
fn wrong_values_say_what_is_legal() {
    let found = check_params("{ keep: frist }", &["P-VALUE 9"]);
    assert_eq!(found[0].help, ["perhaps `first`"]);
    check_params("{ keep: 1 }", &["P-VALUE 9"]);
    check_params("{ keep: first, count: 11 }", &["P-VALUE 23"]);
    check_params("{ keep: first, count: 1.5 }", &["P-VALUE 23"]);
    check_params("{ keep: first, audit: yes }", &["P-VALUE 23"]);
    check_params("{ keep: first, order: [] }", &["P-VALUE 23"]);
    check_params("{ keep: first, window: tumbling }", &["P-VALUE 24"]);
    check_params("{ keep: first, window: [1] }", &["P-VALUE 24"]);
    let found = check_params("{ keep: first, order: arival }", &["P-VALUE 23"]);
    assert_eq!(found[0].help, ["perhaps `arrival`"]);
}

#[test]
fn paths_in_parameters_have_roots() {
    check_params("{ keep: first, order: [a] }", &["P-PATH 24"]);
}

#[test]
fn everything_is_said_at_once() {
    check_params("{ keep: x, lateness: 5, nope: 1 }", &["P-VALUE 9", "P-UNIT 22", "P-UNKNOWN 25"]);
}

#[test]
fn defaults_are_filled_in_for_the_reader() {
    let schema = json!({ "properties": { "a": { "default": "x" }, "b": {} } });
    assert_eq!(filled(&json!({ "b": 1 }), &schema), json!({ "a": "x", "b": 1 }));
    assert_eq!(given(&json!({ "a": null, "b": 1 })), json!({ "b": 1 }));
}
