//! What `plan` says, mode by mode, and that it says something of every cell.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use tamis_guest::Says;

use crate::check::check as plan;

fn context(more: Value) -> Value {
    let mut context = json!({
        "id": "dedup", "key": { "fields": [{ "field": "value.ip" }, { "field": "value.url" }] }, "scope": "global",
        "state": { "retention": null }, "time": { "field": "value.ts", "delay": 0 }, "bounded": true, "partitions": 1,
        "before": [], "stored": null,
    });
    if let (Some(all), Value::Object(more)) = (context.as_object_mut(), more) {
        all.extend(more);
    }
    context
}

fn says(params: Value, more: Value) -> Says {
    plan(&params, &context(more)).says.unwrap()
}

#[track_caller]
fn check(params: Value, more: Value, does: &str) {
    assert_eq!(says(params, more).does, does);
}

#[test]
fn aligned_windows_say_when_they_close() {
    let delay = json!({ "time": { "field": "value.ts", "delay": 5_000_000_000_i64 } });
    let hour = json!({ "window": { "tumbling": "1h" } });
    check(
        hour.clone(),
        delay.clone(),
        "keeps the first record per (ip, url) and hour of value.ts; a row leaves when its hour closes, 5s after value.ts has reached its end",
    );
    check(
        hour,
        json!({}),
        "keeps the first record per (ip, url) and hour of value.ts; a row leaves when its hour closes, as soon as value.ts reaches its end",
    );
    check(
        json!({ "keep": "last", "window": { "tumbling": "15m", "offset": "5m" }, "clock": "processing" }),
        json!({ "key": { "fields": [{ "field": "headers.id" }] } }),
        "keeps the last record to arrive per headers.id and window of 15m of the wall clock, shifted by 5m; a row leaves when its window of 15m closes by the wall clock",
    );
    check(
        json!({ "window": { "tumbling": "1d", "zone": "Europe/Paris" }, "output": "upsert", "lateness": "1h" }),
        delay,
        "keeps the first record per (ip, url) and day of value.ts in Europe/Paris; a row leaves when its day closes, 5s after value.ts has reached its end, and corrections for 1h after that end",
    );
    check(
        json!({ "window": { "hopping": "1h", "every": "10m" } }),
        json!({}),
        "keeps the first record per (ip, url) and hour of value.ts, a new one every 10m; a row leaves when its hour closes, as soon as value.ts reaches its end",
    );
    check(
        json!({ "window": { "cumulative": "1d", "step": "1h" }, "emit": "change" }),
        json!({}),
        "keeps the first record per (ip, url) and day of value.ts, so far in steps of 1h; a row leaves when its step closes, as soon as value.ts reaches its end, if it is another than that of the step before",
    );
}

#[test]
fn without_a_window_the_order_is_told() {
    check(json!({}), json!({}), "keeps the first record to arrive per (ip, url); a row leaves at once");
    check(
        json!({ "order": "time", "emit": "close" }),
        json!({}),
        "keeps the first record by value.ts per (ip, url); a row leaves once value.ts has gone past it",
    );
    check(
        json!({ "keep": "last", "output": "upsert", "emit": "change" }),
        json!({ "key": { "whole": "value", "except": ["value.ts"] } }),
        "keeps the last record to arrive per value without ts; a row leaves at once, and each that comes later replaces it, if its content differs",
    );
    check(
        json!({ "keep": "last", "output": "upsert", "emit": "change", "heartbeat": "1h" }),
        json!({}),
        "keeps the last record to arrive per (ip, url); a row leaves at once, and each that comes later replaces it, if its content differs; it leaves again with a record that changes nothing, from 1h after it left last",
    );
    check(
        json!({ "order": ["value.v"], "output": "retract" }),
        json!({ "key": { "fields": [] }, "scope": "stream" }),
        "keeps the first record by value.v of the whole stream; a row leaves at once, and one with a smaller value.v replaces it",
    );
    check(
        json!({ "keep": "last", "emit": "close" }),
        json!({ "key": { "uses": "host" }, "scope": "partition" }),
        "keeps the last record to arrive per key of host in each partition; a row leaves when the input ends",
    );
}

#[test]
fn sessions_and_horizons_say_how_far_they_reach() {
    check(
        json!({ "window": { "session": "5m" } }),
        json!({}),
        "keeps the first record by value.ts per (ip, url) and session, records at most 5m apart by value.ts; a row leaves when its session closes, once value.ts is more than 5m past its last record",
    );
    check(
        json!({ "window": { "horizon": "15m" } }),
        json!({ "time": { "field": "timestamp", "delay": 0 } }),
        "keeps the first record to arrive per (ip, url) within 15m of the one that opened its group, by the record timestamp; a row leaves at once",
    );
    check(
        json!({ "window": { "session": "5m" }, "output": "upsert", "emit": "immediate" }),
        json!({}),
        "keeps the first record by value.ts per (ip, url) and session, records at most 5m apart by value.ts; a row leaves at once, and one that is earlier replaces it; sessions that meet become one",
    );
}

#[test]
fn what_may_change_and_what_it_costs_follows_from_the_mode() {
    let kept = json!({ "state": { "retention": { "for": 3_600_000_000_000_i64 }, "max_entries": 9 } });
    let first = says(json!({}), kept);
    assert_eq!(
        first.changes,
        "nothing: a row that has left stays; a null value passes, and the next record of its key is a first"
    );
    assert_eq!(
        first.costs,
        "a mark of 46 bytes per key, for 1h after the kept record, for at most 9 keys; changelog: one mark per first record, nothing per duplicate"
    );
    let window = says(json!({ "window": { "tumbling": "1h" } }), json!({}));
    assert_eq!(window.changes, "nothing: a row that has left stays; late records go to the route `late`");
    assert_eq!(
        window.costs,
        "the record and about 100 bytes per key, until its hour is over; changelog: one image per candidate that outlives a commit"
    );
    let latest = says(json!({ "keep": "last", "output": "upsert", "order": "time" }), json!({ "duplicates": false }));
    assert!(latest.changes.starts_with("a row may be replaced while its key is remembered: the row is written again"));
    assert!(latest.costs.starts_with("a mark and the order value, no record per key"), "{}", latest.costs);
}

/// Every cell of the table, legal on bounded input.
#[test]
fn every_cell_says_what_it_does() {
    let windows = [
        json!("none"),
        json!({ "tumbling": "1h" }),
        json!({ "hopping": "1h", "every": "10m" }),
        json!({ "cumulative": "1h", "step": "10m" }),
        json!({ "session": "5m" }),
        json!({ "horizon": "15m" }),
        json!({ "horizon": "15m", "refresh": "access" }),
    ];
    let orders = [json!("time"), json!("arrival"), json!(["value.v"])];
    let mut cells = 0;
    for window in &windows {
        for keep in ["first", "last"] {
            for order in &orders {
                for clock in ["event", "processing", "ingestion"] {
                    for output in ["append", "upsert", "retract"] {
                        for emit in ["immediate", "close", "change"] {
                            let params = json!({ "window": window, "keep": keep, "order": order, "clock": clock, "output": output, "emit": emit });
                            let answer = plan(&params, &context(json!({})));
                            let said = answer.says.unwrap();
                            let settings = answer.settings.unwrap();
                            assert!(
                                said.does.starts_with(&format!("keeps the {keep} record")),
                                "{params}: {}",
                                said.does
                            );
                            assert!(said.does.contains("; a row leaves "), "{params}: {}", said.does);
                            assert!(!said.changes.is_empty() && said.costs.contains("; changelog: "), "{params}");
                            assert!(!said.does.contains("none"), "{params}: {}", said.does);
                            assert_eq!((&settings["order"], &settings["emit"]), (order, &json!(emit)));
                            cells += 1;
                        }
                    }
                }
            }
        }
    }
    assert_eq!(cells, 7 * 2 * 3 * 3 * 3 * 3);
}

#[test]
fn settings_that_depend_are_filled_in() {
    let settings = |params: Value| plan(&params, &context(json!({}))).settings.unwrap();
    assert_eq!(
        settings(json!({ "window": { "tumbling": "1h" } })),
        json!({ "window": { "tumbling": "1h", "offset": "0s", "zone": "UTC" }, "order": "time", "emit": "close" })
    );
    assert_eq!(settings(json!({ "keep": null })), json!({ "order": "arrival", "emit": "immediate" }));
    assert_eq!(
        settings(json!({ "window": { "horizon": "1h" }, "order": ["value.v"] })),
        json!({ "window": { "horizon": "1h", "refresh": "create" }, "order": ["value.v"], "emit": "immediate" })
    );
}
