//! Without a window. The rows are those of the cases in the rules' annex, or worked out by hand from the rules named.

use crate::harness::{record, stage, tombstone};
use serde_json::json;

#[test]
fn the_first_arrival_leaves_and_its_repeats_do_not() {
    let given = [record("a", 5), record("b", 4), record("a", 3), record("a", 9)];
    for emit in ["immediate", "close", "change"] {
        stage(json!({ "emit": emit })).check(&given, &["1", "2", "dup 3", "dup 4"], &[("duplicates_dropped", 2)]);
    }
}

#[test]
fn a_tombstone_passes_and_clears_the_key_o11() {
    let given = [record("a", 1), record("a", 2), tombstone("a", 3), record("a", 4), tombstone("b", 5)];
    stage(json!({})).check(&given, &["1", "dup 2", "3", "4", "5"], &[]);
    let audited = stage(json!({ "audit": true }));
    audited.check(&given, &["1", "dup 2 of 1", "3", "4", "5"], &[("duplicates_dropped", 1)]);
}

#[test]
fn the_earliest_leaves_when_nothing_earlier_can_come_l1_o9() {
    // F-20
    let given = [
        record("Alice", 1),
        record("Alice", 3),
        record("Alice", 2),
        record("Bob", 3),
        record("Bob", 6),
        record("Carol", 3),
        record("Carol", 2),
        record("Dave", 4),
        record("Dave", 4),
    ];
    let lines = ["dup 2 of 1", "dup 3 of 1", "dup 5 of 4", "dup 6 of test/0/6", "dup 9 of 8", "1", "7", "4", "8"];
    stage(json!({ "order": "time", "emit": "close" })).delay(10_000).check(&given, &lines, &[("replaced", 1)]);
}

#[test]
fn a_late_record_of_an_unseen_key_is_late_and_leaves_no_mark_l5() {
    // L-01
    let given =
        [record("Bob", 1000), record("Bob", 20_000), record("Bob", 500), record("Carol", 500), record("Carol", 30_000)];
    let wanted = ["dup 2 of 1", "1", "dup 3 of 1", "late 4", "5"];
    let test = stage(json!({ "order": "time", "emit": "close" })).delay(10_000);
    test.check(&given, &wanted, &[("late", 1), ("duplicates_dropped", 2)]);
    let dropped = stage(json!({ "order": "time", "emit": "close", "late": "drop" })).delay(10_000);
    dropped.check(&given, &["dup 2 of 1", "1", "dup 3 of 1", "drop 4", "5"], &[("late", 1)]);
    let passed = stage(json!({ "order": "time", "emit": "close", "late": "pass" })).delay(10_000);
    passed.check(&given, &["dup 2 of 1", "1", "dup 3 of 1", "4", "5"], &[("late", 1)]);
}

#[test]
fn a_record_below_the_watermark_is_late_although_its_key_has_a_candidate_l5() {
    let given = [record("a", 10), record("b", 5).input(1), record("a", 4), record("a", 7)];
    let wanted = ["2", "late 3", "dup 1 of test/0/2", "4"];
    stage(json!({ "order": "time", "emit": "close" })).partitions(2).check(&given, &wanted, &[("replaced", 1)]);
}

#[test]
fn a_tombstone_takes_a_waiting_candidate_with_it() {
    let given = [record("a", 5), tombstone("a", 6), record("b", 9)];
    stage(json!({ "order": "time", "emit": "close" })).delay(100).check(&given, &["2", "3"], &[]);
}

#[test]
fn retention_counts_from_the_emission_and_never_takes_a_candidate_x2_x3() {
    // F-02 with a watermark that later records of another key move.
    let given = [
        record("a", 99).at(0),
        record("z", 102).at(0),
        record("a", 400).at(11),
        record("z", 402).at(11),
        record("a", 500).at(22),
        record("z", 502).at(40),
    ];
    let test = stage(json!({ "order": "time", "emit": "close" })).retention(10, "processing", "create");
    let run = test.run(&given);
    assert_eq!(crate::harness::counter(&run, "late"), 0);
    assert_eq!(crate::harness::counter(&run, "duplicates_dropped"), 0);
}

#[test]
fn an_earlier_record_corrects_and_a_tie_does_not_o1() {
    // N-07 and the example of the pipeline file
    let given = [record("a", 5), record("a", 6), record("a", 4), record("a", 4)];
    let wanted = ["1", "dup 2 of 1", "dup 1 of test/0/2", "+U 3", "dup 4 of 3"];
    let counters = [("replaced", 1), ("duplicates_dropped", 2)];
    stage(json!({ "order": "time", "output": "upsert" })).check(&given, &wanted, &counters);
}

#[test]
fn the_newcomer_wins_a_tie_of_keep_last_and_equal_content_is_not_written_o13() {
    let given = [record("a", 7).value("x"), record("a", 7).value("x"), record("a", 8).value("y"), record("a", 3)];
    let wanted = ["1", "dup 1 of test/0/1", "+U 2", "dup 2 of test/0/2", "+U 3", "dup 4 of 3"];
    stage(json!({ "keep": "last", "order": "time", "output": "upsert" })).check(&given, &wanted, &[("replaced", 2)]);
    let wanted = ["1", "dup 1 of test/0/1", "dup 2 of test/0/2", "+U 3", "dup 4 of 3"];
    let test = stage(json!({ "keep": "last", "order": "time", "output": "upsert", "emit": "change" }));
    test.check(&given, &wanted, &[("replaced", 2), ("unchanged_suppressed", 1)]);
}

#[test]
fn order_fields_compare_by_type_and_null_loses_o2() {
    let orders = [json!(null), json!("x"), json!(null), json!(7), json!(true)];
    let given = orders.map(|order| record("a", 0).order(order));
    let first = stage(json!({ "order": ["value.s"], "output": "upsert" }));
    first.check(
        &given,
        &["1", "dup 1 of test/0/1", "+U 2", "dup 3 of 2", "dup 2 of test/0/3", "+U 4", "dup 4 of test/0/4", "+U 5"],
        &[],
    );
    let orders = [json!(true), json!(7), json!(null), json!("x"), json!(8)];
    let given = orders.map(|order| record("a", 0).order(order));
    let last = stage(json!({ "keep": "last", "order": ["value.s"], "output": "upsert" }));
    last.check(
        &given,
        &["1", "dup 1 of test/0/1", "+U 2", "dup 3 of 2", "dup 2 of test/0/3", "+U 4", "dup 5 of 4"],
        &[],
    );
}

#[test]
fn ties_across_partitions_are_decided_by_position_o3() {
    let given = [record("a", 7).input(1), record("a", 7), record("a", 7).input(1)];
    let wanted = ["1", "dup 1 of test/0/0", "+U 2", "dup 3 of 2"];
    stage(json!({ "order": "time", "output": "upsert" })).partitions(2).check(&given, &wanted, &[]);
}

#[test]
fn only_the_end_of_the_input_closes_a_key_without_window_d3() {
    // F-25
    let given = [record("a", 5), record("b", 6), record("a", 4), record("a", 9)];
    let wanted = ["dup 3 of 1", "dup 1 of test/0/3", "2", "4"];
    stage(json!({ "keep": "last", "order": "time", "emit": "close" })).check(&given, &wanted, &[("replaced", 1)]);
}

#[test]
fn retention_counts_from_the_record_kept_now_x2() {
    let given = [record("a", 0), record("a", 9), record("a", 18), record("a", 28)];
    let test = stage(json!({ "keep": "last", "order": "time", "output": "upsert" })).retention(10, "event", "create");
    test.check(&given, &["1", "dup 1 of test/0/1", "+U 2", "dup 2 of test/0/2", "+U 3", "4"], &[]);
}

#[test]
fn what_time_has_passed_is_expired_for_old_records_too_x4() {
    let given = [record("a", 0), record("a", 9), record("b", 10), record("a", 1)];
    stage(json!({})).retention(10, "event", "create").check(&given, &["1", "dup 2", "3", "4"], &[]);
    let given = [record("a", 0), record("a", 9), record("a", 18), record("a", 28)];
    stage(json!({})).retention(10, "event", "access").check(&given, &["1", "dup 2", "dup 3", "4"], &[]);
    let given = [record("a", 0).at(0), record("a", 0).at(9), record("a", 0).at(10), record("a", 0).at(19)];
    let test = stage(json!({ "clock": "processing" })).retention(10, "processing", "create");
    test.check(&given, &["1", "dup 2", "3", "dup 4"], &[]);
}

#[test]
fn an_unchanged_record_is_written_again_after_the_heartbeat_x13() {
    let given = [record("a", 0), record("a", 4), record("a", 10), record("a", 15), record("a", 20)];
    let params = json!({ "keep": "last", "order": "time", "output": "upsert", "emit": "change", "heartbeat": "10ms" });
    let wanted =
        ["1", "dup 1 of test/0/1", "dup 2 of test/0/2", "+U 3", "dup 3 of test/0/3", "dup 4 of test/0/4", "+U 5"];
    stage(params).check(&given, &wanted, &[("unchanged_suppressed", 2)]);
    let params = json!({ "output": "upsert", "emit": "change", "heartbeat": "10ms" });
    let wanted = ["1", "dup 2 of 1", "+U 1", "dup 3 of 1", "dup 4 of 1", "+U 1", "dup 5 of 1"];
    stage(params).check(&given, &wanted, &[("duplicates_dropped", 4)]);
}

#[test]
fn a_second_deletion_is_left_out_in_change_mode_o11() {
    let given =
        [tombstone("a", 0), tombstone("a", 1), record("a", 2), tombstone("a", 3), tombstone("a", 14), record("a", 15)];
    let test = stage(json!({ "output": "upsert", "emit": "change" })).retention(10, "event", "create");
    test.check(&given, &["1", "drop 2", "3", "4", "5", "6"], &[("unchanged_suppressed", 1)]);
    let immediate = stage(json!({ "output": "upsert" }));
    immediate.check(&given, &["1", "2", "3", "4", "5", "6"], &[]);
}

#[test]
fn a_position_that_comes_again_never_replaces_under_order_arrival_r1() {
    let given = [record("a", 1), record("a", 2), record("a", 1).again(0), record("a", 2).again(1), record("a", 3)];
    let wanted = ["1", "dup 1 of test/0/1", "+U 2", "dup 3 of 2", "dup 4 of 2", "dup 2 of test/0/2", "+U 5"];
    let test = stage(json!({ "keep": "last", "output": "upsert" }));
    test.check(&given, &wanted, &[("redelivered_self", 1), ("replaced", 2), ("duplicates_dropped", 2)]);
}

#[test]
fn audit_headers_count_the_records_of_the_scope_o10() {
    let test = stage(json!({ "keep": "last", "order": "time", "output": "upsert", "audit": true }));
    let run = test.run(&[record("a", 2000), record("a", 7000)]);
    let texts: Vec<Vec<String>> = run
        .lines
        .iter()
        .filter_map(|line| match line {
            tamis_guest::kit::Line::Out { route: 0, cells, .. } => {
                Some(cells.iter().take(3).map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect())
            }
            _ => None,
        })
        .collect();
    assert_eq!(texts, [["2000", "2000", "1"], ["2000", "7000", "2"]]);
}
