//! Retract output: what was written last is taken back before another takes its place.

use serde_json::{Value, json};

use crate::harness::{Test, record, stage, tombstone};

fn retract(more: Value) -> Test {
    let mut params = json!({ "output": "retract" });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    stage(params)
}

#[test]
fn an_earlier_record_replaces_the_first() {
    // F-03
    let given = [record("a", 5), record("a", 4), record("a", 6), record("b", 3)];
    retract(json!({ "order": "time" })).check(
        &given,
        &["1", "dup 1 of test/0/1", "-U 1", "+U 2", "dup 3 of 2", "4"],
        &[],
    );
}

#[test]
fn an_old_image_is_the_one_last_written_o13() {
    let given = [
        record("a", 1).value("x"),
        record("a", 2).value("x"),
        record("a", 3).value("x"),
        record("a", 4).value("y"),
        record("a", 5).value("y"),
    ];
    let test = retract(json!({ "keep": "last", "emit": "change", "order": "time" }));
    let wanted =
        ["1", "dup 1 of test/0/1", "dup 2 of test/0/2", "dup 3 of test/0/3", "-U 1", "+U 4", "dup 4 of test/0/4"];
    test.check(&given, &wanted, &[("unchanged_suppressed", 3)]);
}

#[test]
fn a_heartbeat_takes_back_what_was_written_x13() {
    let given = [0, 5, 10, 11].map(|time| record("a", time).value("x"));
    let params = json!({ "keep": "last", "emit": "change", "order": "arrival", "heartbeat": "10ms" });
    let wanted = ["1", "dup 1 of test/0/1", "dup 2 of test/0/2", "-U 1", "+U 3", "dup 3 of test/0/3"];
    retract(params).check(&given, &wanted, &[]);
}

#[test]
fn a_deletion_takes_back_what_was_written_and_nothing_else_o11() {
    let given = [tombstone("a", 1), record("a", 2), tombstone("a", 3), record("a", 4)];
    retract(json!({})).check(&given, &["drop 1", "2", "-D 2", "4"], &[]);
    let close = retract(json!({ "emit": "close", "order": "time" }));
    let given = [record("a", 1), record("b", 2), tombstone("a", 3), record("b", 3), tombstone("b", 4)];
    close.check(&given, &["1", "2", "-D 1", "dup 4 of 2", "-D 2"], &[]);
}

#[test]
fn a_deletion_takes_back_every_group_of_its_key_o11() {
    let given = [record("a", 40), record("a", 20), tombstone("a", 30)];
    let test = retract(json!({ "window": { "horizon": "10ms" } })).delay(50);
    test.check(&given, &["1", "2", "-D 2", "-D 1"], &[]);
}

#[test]
fn a_window_is_corrected_within_the_lateness_l3() {
    let given = [record("a", 3), record("b", 12), record("a", 9), record("c", 8), record("b", 15), record("c", 9)];
    let params = json!({ "keep": "last", "window": { "tumbling": "10ms" }, "lateness": "5ms" });
    let wanted = [
        "1 [0,10)",
        "dup 1 of test/0/2",
        "-U 1 [0,10)",
        "+U 3 [0,10)",
        "4 [0,10)",
        "dup 2 of test/0/4",
        "late 6",
        "5 [10,20)",
    ];
    retract(params).check(&given, &wanted, &[]);
}

#[test]
fn audit_headers_of_an_old_image_are_those_it_was_written_with() {
    let given = [record("a", 1), record("a", 0), record("a", 2)];
    let run = retract(json!({ "keep": "last", "order": "time", "audit": true })).run(&given);
    let outs = run.lines.iter().filter_map(|line| match line {
        tamis_guest::kit::Line::Out { kind, route: 0, cells, .. } => {
            let cell = |n: usize| String::from_utf8_lossy(&cells[n].1).into_owned();
            Some((*kind, cell(0), cell(1), cell(2)))
        }
        _ => None,
    });
    let row = |kind: u8, first: &str, last: &str, count: &str| (kind, first.into(), last.into(), count.into());
    assert_eq!(outs.collect::<Vec<_>>(), [row(0, "1", "1", "1"), row(1, "1", "1", "1"), row(2, "0", "2", "3")]);
}
