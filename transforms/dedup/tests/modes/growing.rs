//! Sessions, and horizons that refresh on access: groups that grow, and become one when they meet.

use serde_json::{Value, json};

use crate::harness::{Test, record, stage, tombstone};

fn with(window: Value, more: Value) -> Test {
    let mut params = json!({ "window": window });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    stage(params)
}

fn session(gap: &str, more: Value) -> Test {
    with(json!({ "session": gap }), more)
}

fn horizon(ttl: &str, more: Value) -> Test {
    with(json!({ "horizon": ttl, "refresh": "access" }), more)
}

#[test]
fn exactly_the_gap_joins_and_a_session_is_over_beyond_it_t6() {
    // T-15
    let given = [record("a", 0), record("b", 10), record("a", 10), record("c", 20), record("c", 21)];
    let wanted = ["dup 3 of 1", "dup 5 of 4", "1 [0,20)", "2 [10,20)", "4 [20,31)"];
    session("10ms", json!({})).check(&given, &wanted, &[]);
}

#[test]
fn the_last_record_of_a_session_leaves_when_it_closes() {
    let given = [record("a", 0), record("a", 6), record("a", 5), record("b", 40)];
    let wanted = ["dup 1 of test/0/1", "dup 3 of 2", "2 [0,16)", "4 [40,50)"];
    session("10ms", json!({ "keep": "last" })).delay(5).check(&given, &wanted, &[]);
}

#[test]
fn a_record_between_two_sessions_makes_them_one() {
    // T-16
    let given = [record("a", 0), record("a", 18), record("a", 9)];
    let close = session("10ms", json!({ "order": "arrival" })).delay(100);
    close.check(&given, &["dup 2 of test/0/0", "dup 3 of 1", "1 [0,28)"], &[("replaced", 1), ("merged_after_emit", 0)]);
    let at_once = session("10ms", json!({ "order": "arrival", "emit": "immediate" })).delay(100);
    at_once.check(&given, &["1 [0,10)", "2 [18,28)", "dup 3 of 1"], &[("merged_after_emit", 1)]);
}

#[test]
fn of_two_sessions_that_meet_the_first_arrival_stays_under_order_arrival() {
    let given = [record("a", 18).input(1), record("a", 0), record("a", 9)];
    let test = session("10ms", json!({ "order": "arrival" })).delay(100).partitions(2);
    test.check(&given, &["dup 2 of test/1/0", "dup 3 of 1", "1 [0,28)"], &[]);
}

#[test]
fn a_record_below_the_watermark_joins_an_open_session_or_opens_one_that_is_not_over_t6() {
    let rows = [("a", 20), ("b", 29), ("a", 12), ("a", 5), ("c", 19), ("c", 18)];
    let given = rows.map(|(key, time)| record(key, time));
    let wanted = ["dup 1 of test/0/2", "dup 3 of test/0/3", "dup 5 of test/0/5", "6 [18,29)", "4 [5,30)", "2 [29,39)"];
    session("10ms", json!({})).check(&given, &wanted, &[("late", 0)]);
}

#[test]
fn a_record_whose_session_would_be_over_is_late() {
    let given = [record("a", 30), record("b", 20), record("c", 19)];
    let wanted = ["late 3", "2 [20,30)", "1 [30,40)"];
    session("10ms", json!({})).check(&given, &wanted, &[("late", 1), ("late_window_assignments", 1)]);
}

#[test]
fn lateness_keeps_a_session_open_in_append_output_and_corrects_it_in_updating_output_l3() {
    let given = [record("a", 0), record("b", 12), record("a", 3), record("b", 16), record("a", 2)];
    let append = session("10ms", json!({ "keep": "last", "lateness": "5ms" }));
    append.check(&given, &["dup 1 of test/0/2", "dup 2 of test/0/3", "dup 5 of 3", "3 [0,13)", "4 [12,26)"], &[]);
    let upsert = session("10ms", json!({ "keep": "last", "lateness": "5ms", "output": "upsert" }));
    let wanted = ["1 [0,10)", "dup 1 of test/0/2", "+U 3 [0,13)", "dup 2 of test/0/3", "dup 5 of 3", "4 [12,26)"];
    upsert.check(&given, &wanted, &[]);
}

#[test]
fn absorbed_identities_are_deleted_o8() {
    // T-18
    let given = [record("a", 0), record("a", 18), record("a", 9)];
    for output in ["upsert", "retract"] {
        let test = session("10ms", json!({ "emit": "immediate", "output": output })).delay(100);
        let wanted = ["1 [0,10)", "2 [18,28)", "dup 2 of test/0/0", "-D 2 [18,28)", "dup 3 of 1"];
        test.check(&given, &wanted, &[]);
    }
}

#[test]
fn an_earlier_record_moves_a_session_and_its_old_identity_goes_first_o8() {
    let given = [record("a", 20), record("a", 15), record("a", 24)];
    let params = json!({ "keep": "last", "emit": "immediate", "output": "retract" });
    let wanted =
        ["1 [20,30)", "-D 1 [20,30)", "1 [15,30)", "dup 2 of 1", "dup 1 of test/0/2", "-U 1 [15,30)", "+U 3 [15,34)"];
    session("10ms", params).delay(100).check(&given, &wanted, &[]);
}

#[test]
fn unchanged_content_is_left_out_unless_the_identity_moves() {
    let given = [
        record("a", 20).value("x"),
        record("a", 25).value("x"),
        record("a", 15).value("x"),
        record("a", 26).value("y"),
    ];
    let params = json!({ "keep": "last", "emit": "change", "output": "retract" });
    let wanted = [
        "1 [20,30)",
        "dup 1 of test/0/1",
        "-D 1 [20,30)",
        "2 [15,35)",
        "dup 3 of 2",
        "dup 2 of test/0/3",
        "-U 2 [15,35)",
        "+U 4 [15,36)",
    ];
    session("10ms", params).delay(100).check(&given, &wanted, &[("unchanged_suppressed", 1)]);
}

#[test]
fn sessions_by_the_wall_clock_close_by_their_timer() {
    let given = [record("a", 0).at(1), record("a", 0).at(11), record("a", 0).at(22)];
    let test = session("10ms", json!({ "clock": "processing" })).clock(50);
    test.check(&given, &["dup 2 of 1", "1 [1,21)", "3 [22,32)"], &[]);
}

#[test]
fn a_growing_horizon_closes_its_length_after_its_last_record_t8() {
    let given = [record("a", 3), record("a", 12), record("b", 21), record("b", 22)];
    let test = horizon("10ms", json!({ "emit": "close", "order": "time" }));
    test.check(&given, &["dup 2 of 1", "dup 4 of 3", "1 [3,22)", "3 [21,32)"], &[]);
}

#[test]
fn a_persistent_repeat_is_hidden_x2() {
    //
    let given = [0, 60, 120, 180, 301].map(|at| record("a", 0).at(at));
    horizon("120ms", json!({ "clock": "processing" })).check(&given, &["1", "dup 2", "dup 3", "dup 4", "5"], &[]);
    let audited = horizon("120ms", json!({ "clock": "processing", "audit": true }));
    audited.check(&given, &["1", "dup 2 of 1", "dup 3 of 1", "dup 4 of 1", "5"], &[]);
}

#[test]
fn growing_horizons_that_meet_become_one_t8() {
    let given = [record("a", 0), record("a", 18), record("a", 9), record("a", 27)];
    let at_once = horizon("10ms", json!({ "order": "time" })).delay(100);
    at_once.check(&given, &["1", "2", "dup 3 of 1", "dup 4 of 1"], &[("merged_after_emit", 1)]);
    let close = horizon("10ms", json!({ "order": "time", "emit": "close" })).delay(100);
    close.check(&given, &["dup 2 of test/0/0", "dup 3 of 1", "dup 4 of 1", "1 [0,37)"], &[]);
}

#[test]
fn a_tombstone_ends_growing_horizons_but_not_sessions_o11() {
    let given = [record("a", 20), tombstone("a", 22), record("a", 24)];
    horizon("10ms", json!({})).delay(50).check(&given, &["1", "2", "3"], &[]);
    session("10ms", json!({})).delay(50).check(&given, &["dup 2 of 1", "dup 3 of 1", "1 [20,34)"], &[]);
}

#[test]
fn many_open_groups_of_one_key_are_a_failure_not_a_loss() {
    let given: Vec<_> = (0..70).map(|i| record("a", i * 100)).collect();
    let run = session("10ms", json!({})).delay(1_000_000).run(&given);
    assert_eq!(run.failures.len(), 70 - 63, "{:?}", run.failures);
    assert!(run.failures.iter().all(|(code, _)| code == "too_many_groups"));
}
