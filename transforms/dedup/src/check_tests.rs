//! What is refused and warned about, setting by setting.

use serde_json::{Value, json};

use crate::check::check;

/// Context of a bounded input of one partition.
fn context(more: Value) -> Value {
    let mut context = json!({
        "id": "dedup", "key": {}, "scope": "global", "state": { "retention": null },
        "time": { "field": "timestamp", "delay": 0 }, "bounded": true, "partitions": 1, "before": [], "stored": null,
    });
    if let (Some(all), Value::Object(more)) = (context.as_object_mut(), more) {
        all.extend(more);
    }
    context
}

fn codes(params: Value, more: Value) -> Vec<(String, bool)> {
    let check = check(&params, &context(more));
    check.findings.iter().map(|f| (f.code.clone(), f.severity == tamis_guest::Severity::Error)).collect()
}

fn refused(params: Value, code: &str) {
    let found = codes(params.clone(), json!({ "bounded": false }));
    assert!(found.contains(&(code.to_string(), true)), "{params}: {found:?} lacks {code}");
}

fn accepted(params: Value) {
    let found = codes(params.clone(), json!({}));
    assert!(found.iter().all(|(_, error)| !error), "{params}: {found:?}");
}

fn warned(params: Value, more: Value, code: &str) {
    let found = codes(params.clone(), more);
    assert!(found.contains(&(code.to_string(), false)), "{params}: {found:?} lacks {code}");
}

#[test]
fn cells_of_the_table_are_refused() {
    refused(json!({ "order": "time" }), "D-NO1");
    refused(json!({ "order": ["value.v"] }), "D-NO1");
    refused(json!({ "keep": "last" }), "D-NO2");
    refused(json!({ "keep": "last", "emit": "close" }), "D-NO3");
    refused(json!({ "order": ["value.s"], "window": { "horizon": "1m" } }), "D-NO1");
    accepted(json!({}));
    accepted(json!({ "keep": "last", "emit": "close" }));
    accepted(json!({ "order": "time", "emit": "close" }));
    accepted(json!({ "order": "time", "window": { "horizon": "1m" } }));
}

#[test]
fn a_refused_cell_names_the_nearest_legal_settings() {
    let help = |params: Value| {
        let check = check(&params, &context(json!({ "bounded": false })));
        check.findings[0].help.clone()
    };
    assert_eq!(
        help(json!({ "order": "time" })),
        ["emit: close", "output: upsert", "output: retract", "order: arrival"]
            .map(String::from)
            .into_iter()
            .chain(["a window with emit: close, such as window: { tumbling: 1h }".to_string()])
            .collect::<Vec<_>>()
    );
    assert!(help(json!({ "keep": "last" })).contains(&"output: upsert".to_string()));
    let help = help(json!({ "keep": "last", "emit": "close" }));
    assert!(help.contains(&"emit: immediate with output: upsert".to_string()), "{help:?}");
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    refused(json!({ "lateness": "1s" }), "D-LATENESS");
    refused(json!({ "lateness": "1s", "window": { "horizon": "1m" } }), "D-LATENESS");
    refused(json!({ "lateness": "1s", "window": { "tumbling": "1m" }, "clock": "processing" }), "D-LATENESS");
    refused(json!({ "window": { "tumbling": "1m" }, "output": "upsert", "late": "pass" }), "D-LATE-PASS");
    refused(json!({ "window": { "horizon": "1m", "refresh": "access" }, "output": "retract" }), "D-REFRESH");
    refused(json!({ "window": { "cumulative": "1m", "step": "7s" } }), "D-STEP");
    refused(json!({ "window": { "hopping": "1m", "every": "61s" } }), "D-STEP");
    refused(json!({ "window": { "tumbling": "7h", "zone": "Europe/Paris" } }), "D-ZONE");
    refused(json!({ "window": { "tumbling": "36h", "zone": "Europe/Paris" } }), "D-ZONE");
    refused(json!({ "window": { "hopping": "1d", "every": "1h", "zone": "Europe/Paris" } }), "D-ZONE");
    refused(json!({ "input": "changelog", "window": { "tumbling": "1m" }, "order": "arrival" }), "D-CHANGELOG");
    refused(json!({ "input": "changelog", "output": "upsert", "order": "time" }), "D-CHANGELOG");
    refused(json!({ "output": "upsert", "heartbeat": "1m" }), "D-EMIT");
    refused(json!({ "emit": "change", "heartbeat": "1m" }), "D-EMIT");
    refused(json!({ "output": "upsert", "content": { "except": ["value.ts"] } }), "D-EMIT");
    refused(json!({ "output": "upsert", "window": { "session": "1m" }, "window_in_key": false }), "D-WINDOW-KEY");
    refused(json!({ "window_in_key": false }), "D-WINDOW-KEY");
    refused(json!({ "output": "upsert", "batch": { "records": 5 } }), "D-BATCH-WAIT");
    accepted(json!({ "window": { "tumbling": "7h", "zone": "UTC" } }));
    accepted(json!({ "window": { "tumbling": "1d", "zone": "Europe/Paris" } }));
    accepted(json!({ "window": { "horizon": "1m", "refresh": "access" }, "output": "retract", "clock": "processing" }));
}

#[test]
fn single_values_are_refused_where_they_stand() {
    refused(json!({ "window": { "tumbling": "60" } }), "P-UNIT");
    refused(json!({ "window": { "tumbling": "0s" } }), "P-VALUE");
    refused(json!({ "window": { "tumbling": "1m", "refresh": "access" } }), "P-VALUE");
    refused(json!({ "window": { "tumbling": "1m", "session": "1m" } }), "P-VALUE");
    refused(json!({ "window": { "hopping": "1m" } }), "P-MISSING");
    refused(json!({ "lateness": "-1s", "window": { "tumbling": "1m" } }), "P-VALUE");
    refused(json!({ "window": { "tumbling": "1h", "zone": "Europe/Atlantis" } }), "P-VALUE");
    refused(json!({ "keep": "both" }), "P-VALUE");
    refused(json!({ "emit": "change", "content": { "except": ["ts"] } }), "P-PATH");
    let found = check(&json!({ "window": { "tumbling": "60" } }), &context(json!({})));
    assert_eq!(found.findings[0].at, "/with/window/tumbling");
}

#[test]
fn what_is_not_built_yet_is_refused_after_everything_else() {
    refused(json!({ "output": "upsert", "batch": { "records": 5, "wait": "1s" } }), "P-LATER");
    refused(json!({ "input": "changelog" }), "P-LATER");
    let found = codes(json!({ "input": "changelog", "order": "time", "output": "upsert" }), json!({}));
    assert!(!found.iter().any(|(code, _)| code == "P-LATER"), "{found:?}");
}

#[test]
fn what_may_surprise_is_said() {
    warned(json!({}), json!({ "partitions": 2 }), "W-ARRIVAL");
    warned(json!({}), json!({ "partitions": null }), "W-ARRIVAL");
    warned(json!({ "window": { "tumbling": "1m" } }), json!({}), "W-ALIGNED");
    warned(json!({ "window": { "hopping": "1m", "every": "7s" } }), json!({}), "W-REPEATS");
    warned(json!({ "window": { "session": "1m" }, "order": "arrival", "emit": "immediate" }), json!({}), "W-SESSION");
    let grows = json!({ "window": { "horizon": "1m", "refresh": "access" }, "order": "time" });
    warned(grows.clone(), json!({}), "W-SESSION");
    warned(grows, json!({}), "W-FIRST-ARRIVAL");
    warned(json!({ "emit": "close" }), json!({}), "W-SAME");
    let params = json!({ "output": "upsert", "window": { "tumbling": "1m" }, "window_in_key": false });
    warned(params, json!({}), "W-WINDOW-KEY");
}

#[test]
fn kept_state_of_another_order_or_window_is_refused() {
    let stored = |params: Value| check(&params, &context(json!({}))).traits.identity;
    let old = stored(json!({ "window": { "tumbling": "1m" } }));
    let found = codes(json!({ "window": { "tumbling": "60s" } }), json!({ "stored": old }));
    assert!(found.iter().all(|(_, error)| !error), "{found:?}");
    let found = codes(json!({ "window": { "tumbling": "2m" } }), json!({ "stored": old }));
    assert!(found.contains(&("D-WINDOW-CHANGED".to_string(), true)), "{found:?}");
    let found = codes(json!({ "keep": "last", "window": { "tumbling": "1m" } }), json!({ "stored": old }));
    assert!(found.contains(&("D-ORDER-CHANGED".to_string(), true)), "{found:?}");
}

#[test]
fn marks_do_not_become_entries_and_entries_stay_what_they_are() {
    let stored = |params: Value| check(&params, &context(json!({}))).traits.identity;
    let found = codes(json!({ "audit": true }), json!({ "stored": stored(json!({})) }));
    assert!(found.contains(&("D-ORDER-CHANGED".to_string(), true)), "{found:?}");
    let later = check(&json!({}), &context(json!({ "stored": stored(json!({ "audit": true })) })));
    assert!(!later.is_refused() && later.reads == ["offset"], "{later:?}");
}

#[test]
fn the_plain_mode_reads_nothing_and_asks_for_no_time() {
    let check = check(&json!({}), &context(json!({ "bounded": false })));
    assert!(check.reads.is_empty() && check.writes.is_empty() && check.routes.is_empty());
    assert!(!check.traits.wants_time && !check.traits.waits && !check.traits.bounded_state);
}

#[test]
fn the_manifest_describes_every_parameter() {
    let manifest: Value = serde_json::from_str(include_str!("../manifest.json")).unwrap();
    let params = manifest.pointer("/params/properties").and_then(Value::as_object).unwrap();
    for name in [
        "keep",
        "window",
        "clock",
        "order",
        "output",
        "emit",
        "lateness",
        "late",
        "input",
        "content",
        "heartbeat",
        "batch",
        "bounds",
        "window_in_key",
        "audit",
    ] {
        assert!(params.contains_key(name), "{name}");
        assert!(params[name].get("description").is_some(), "{name}");
    }
}
