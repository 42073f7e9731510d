//! Tumbling windows and horizons. The rows are those of the cases in the rules' annex, or worked out by hand.

use crate::harness::{Given, Test, record, stage, tombstone};
use serde_json::{Value, json};

fn tumbling(size: &str, more: Value) -> Test {
    let mut params = json!({ "window": { "tumbling": size } });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    stage(params)
}

fn horizon(ttl: &str, more: Value) -> Test {
    let mut params = json!({ "window": { "horizon": ttl } });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    stage(params)
}

/// F-11 and F-12, the null name as a key.
fn names() -> Vec<Given> {
    let rows = [
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("a", 4),
        ("b", 7),
        ("b", 6),
        ("a", 8),
        ("a", 4),
        ("b", 16),
        ("null", 32),
        ("b", 34),
    ];
    rows.map(|(name, second)| record(name, second * 1000)).to_vec()
}

#[test]
fn a_window_closes_with_its_last_record() {
    let wanted = [
        "dup 1 of test/0/1",
        "dup 2 of test/0/2",
        "dup 3 of test/0/3",
        "4 [0,5000)",
        "dup 6 of 5",
        "late 8",
        "5 [5000,10000)",
        "7 [5000,10000)",
        "9 [15000,20000)",
        "10 [30000,35000)",
        "11 [30000,35000)",
    ];
    let counters = [("late", 1), ("late_window_assignments", 1), ("replaced", 3), ("duplicates_dropped", 1)];
    tumbling("5s", json!({ "keep": "last" })).delay(1000).check(&names(), &wanted, &counters);
}

#[test]
fn a_window_closes_with_its_first_record() {
    let wanted = [
        "dup 2 of 1",
        "dup 3 of 1",
        "dup 4 of 1",
        "1 [0,5000)",
        "dup 5 of test/0/5",
        "late 8",
        "6 [5000,10000)",
        "7 [5000,10000)",
        "9 [15000,20000)",
        "10 [30000,35000)",
        "11 [30000,35000)",
    ];
    tumbling("5s", json!({})).delay(1000).check(&names(), &wanted, &[("late", 1), ("replaced", 1)]);
}

#[test]
fn windows_take_any_offset_t3() {
    // T-03, T-04
    let test = stage(json!({ "window": { "tumbling": "10s", "offset": "-3s" } }));
    test.check(&[record("a", 6999), record("a", 7000)], &["1 [-3000,7000)", "2 [7000,17000)"], &[]);
    let given = [record("a", 3000), record("a", 5000), record("a", 13_000), record("a", 14_000)];
    let test = stage(json!({ "keep": "last", "window": { "tumbling": "10s", "offset": "4s" } }));
    let wanted = ["1 [-6000,4000)", "dup 2 of test/0/2", "3 [4000,14000)", "4 [14000,24000)"];
    test.check(&given, &wanted, &[]);
}

#[test]
fn windows_before_1970_start_before_their_records() {
    let given = [record("a", -7001), record("a", -7000), record("a", -1), record("a", 0)];
    let wanted = ["1 [-14000,-7000)", "dup 3 of 2", "2 [-7000,0)", "4 [0,7000)"];
    tumbling("7s", json!({})).check(&given, &wanted, &[]);
}

#[test]
fn lateness_postpones_the_close_in_append_output_l3() {
    // L-02
    let given = [record("a", 12), record("b", 8), record("c", 15), record("d", 9)];
    let wanted = ["2 [0,10)", "late 4", "1 [10,20)", "3 [10,20)"];
    tumbling("10ms", json!({ "lateness": "5ms" })).check(&given, &wanted, &[("late", 1)]);
}

#[test]
fn updating_output_fires_at_the_end_and_corrects_within_the_lateness_l3() {
    let given = [record("a", 3), record("b", 12), record("a", 9), record("c", 8), record("b", 15), record("c", 9)];
    let wanted =
        ["1 [0,10)", "dup 1 of test/0/2", "+U 3 [0,10)", "4 [0,10)", "dup 2 of test/0/4", "late 6", "5 [10,20)"];
    let test = tumbling("10ms", json!({ "keep": "last", "output": "upsert", "lateness": "5ms" }));
    test.check(&given, &wanted, &[("late", 1), ("replaced", 2)]);
}

#[test]
fn the_first_of_each_window_leaves_at_once() {
    // S-15, T-17
    let given = [record("a", 0), record("b", 10), record("a", 20), record("a", 30), record("b", 40), record("a", 5)];
    let wanted = ["1 [0,30)", "2 [0,30)", "dup 3 of 1", "4 [30,60)", "5 [30,60)", "late 6"];
    tumbling("30ms", json!({ "order": "arrival", "emit": "immediate" })).check(&given, &wanted, &[("late", 1)]);
}

#[test]
fn a_window_is_corrected_at_once_and_unchanged_content_is_left_out() {
    let given = [record("a", 3).value("x"), record("a", 4).value("x"), record("a", 5).value("y"), record("a", 2)];
    let test = tumbling("10ms", json!({ "keep": "last", "output": "upsert", "emit": "change" })).delay(5);
    let wanted = ["1 [0,10)", "dup 1 of test/0/1", "dup 2 of test/0/2", "+U 3 [0,10)", "dup 4 of 3"];
    test.check(&given, &wanted, &[("unchanged_suppressed", 1), ("replaced", 2)]);
}

#[test]
fn wall_clock_windows_fire_by_their_timer() {
    // F-27
    let given = [record("a", 0).at(1), record("a", 0).at(9), record("a", 0).at(11)];
    let test = tumbling("10ms", json!({ "clock": "processing" })).clock(20);
    test.check(&given, &["dup 2 of 1", "1 [0,10)", "3 [10,20)"], &[]);
}

#[test]
fn time_may_order_what_the_wall_clock_closes() {
    let given = [record("a", 7).at(1), record("a", 3).at(2)];
    let test = tumbling("10ms", json!({ "keep": "last", "clock": "processing", "order": "time" })).clock(10);
    test.check(&given, &["dup 2 of 1", "1 [0,10)"], &[]);
}

#[test]
fn a_null_value_is_an_ordinary_value_in_a_window_o11() {
    let given = [record("a", 1), tombstone("a", 2), record("a", 0)];
    tumbling("10ms", json!({ "keep": "last" })).delay(9).check(
        &given,
        &["dup 1 of test/0/1", "dup 3 of 2", "2 [0,10)"],
        &[],
    );
}

#[test]
fn a_repeat_within_the_horizon_is_a_duplicate_both_ways_t8() {
    // X-08, S-14
    horizon("10ms", json!({ "order": "time" })).delay(20).check(
        &[record("x", 10), record("x", 1), record("x", 12)],
        &["1", "dup 2 of 1", "dup 3 of 1"],
        &[],
    );
    let given = [record("a", 0), record("a", 90), record("a", 119), record("a", 120)];
    horizon("120ms", json!({ "order": "time" })).check(&given, &["1", "dup 2 of 1", "dup 3 of 1", "4"], &[]);
}

#[test]
fn a_record_below_the_watermark_in_reach_of_no_group_is_late_l6() {
    //
    let rows = [("a", 17), ("a", 16), ("a", 13), ("b", 22), ("c", 21), ("a", 21), ("d", 25)];
    let given = rows.map(|(key, second)| record(key, second * 1000));
    let wanted = ["1", "dup 2 of 1", "late 3", "4", "5", "6", "7"];
    horizon("2s", json!({ "order": "time" })).delay(2000).check(&given, &wanted, &[("late", 1)]);
}

#[test]
fn a_horizon_opens_with_its_first_record_and_closes_after_its_length() {
    // F-26
    let given = [record("a", 3), record("a", 12), record("a", 13), record("b", 24)];
    let test = horizon("10ms", json!({ "keep": "last", "order": "time", "emit": "close" }));
    test.check(&given, &["dup 1 of test/0/1", "2 [3,13)", "3 [13,23)", "4 [24,34)"], &[]);
}

#[test]
fn a_record_between_two_groups_belongs_to_the_nearer_anchor_t8() {
    let given = [record("a", 0), record("a", 14), record("a", 7), record("a", 8)];
    let test = horizon("10ms", json!({ "keep": "last", "output": "upsert", "order": "time" })).delay(100);
    test.check(&given, &["1", "2", "dup 1 of test/0/2", "+U 3", "dup 4 of 2"], &[("duplicates_dropped", 1)]);
}

#[test]
fn the_anchor_stays_when_an_earlier_record_wins_t8() {
    let given = [record("a", 10), record("a", 5), record("a", 19), record("a", 20)];
    let test = horizon("10ms", json!({ "output": "upsert", "order": "time" })).delay(100);
    test.check(&given, &["1", "dup 1 of test/0/1", "+U 2", "dup 3 of 2", "4"], &[]);
}

#[test]
fn several_groups_of_a_key_close_one_after_the_other() {
    let given = [record("a", 20), record("a", 40), record("a", 0), record("a", 41), record("b", 90)];
    let test = horizon("10ms", json!({ "order": "time", "emit": "close" })).delay(50);
    test.check(&given, &["dup 4 of 2", "3 [0,10)", "1 [20,30)", "2 [40,50)", "5 [90,100)"], &[]);
}

#[test]
fn a_tombstone_ends_every_group_of_its_key_o11() {
    let given = [record("a", 20), record("a", 40), tombstone("a", 30), record("a", 21)];
    horizon("10ms", json!({ "emit": "close" })).delay(50).check(&given, &["3", "4 [21,31)"], &[]);
    horizon("10ms", json!({})).delay(50).check(&given, &["1", "2", "3", "4"], &[]);
}

#[test]
fn a_wall_clock_horizon_is_an_age_x3() {
    let given = [record("a", 0).at(0), record("a", 0).at(9), record("a", 0).at(10), record("a", 0).at(30)];
    horizon("10ms", json!({ "clock": "processing" })).check(&given, &["1", "dup 2", "3", "4"], &[]);
    let test = horizon("10ms", json!({ "clock": "processing", "audit": true }));
    test.check(&given, &["1", "dup 2 of 1", "3", "4"], &[]);
}
