//! Hopping and cumulative windows: a record belongs to several at once.

use serde_json::{Value, json};

use crate::harness::{Given, Test, counter, line, record, stage};

fn with(window: Value, more: Value) -> Test {
    let mut params = json!({ "window": window });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    stage(params)
}

fn cumulative(more: Value) -> Test {
    with(json!({ "cumulative": "15s", "step": "5s" }), more)
}

/// F-13 and F-14, the null name as a key.
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

/// What leaves where nobody wants the duplicates.
fn leaves(test: &Test, given: &[Given], wanted: &[&str], counters: &[(&str, u64)]) {
    let mut test = test.clone();
    test.context["duplicates"] = json!(false);
    let run = test.run(given);
    let lines: Vec<String> = run.lines.iter().filter_map(line).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.starts_with("dup")).collect();
    assert_eq!(lines, wanted);
    for (name, count) in counters {
        assert_eq!(counter(&run, name), *count, "{name}");
    }
}

#[test]
fn a_key_leaves_once_for_each_hopping_window() {
    // F-23
    let given = [record("a", 7000), record("a", 12_000)];
    let test = with(json!({ "hopping": "10s", "every": "5s" }), json!({}));
    let wanted = ["1 [0,10000)", "1 [5000,15000)", "2 [10000,20000)"];
    leaves(&test, &given, &wanted, &[("duplicates_dropped", 1)]);
}

#[test]
fn a_record_is_late_only_if_no_window_takes_it_l4() {
    let given = [record("b", 12_000), record("a", 7000), record("a", 1000)];
    let test = with(json!({ "hopping": "10s", "every": "5s" }), json!({}));
    // [0,10) is over for the second, [-5,5) and [0,10) for the third.
    let wanted = ["late 3", "2 [5000,15000)", "1 [5000,15000)", "1 [10000,20000)"];
    leaves(&test, &given, &wanted, &[("late", 1), ("late_window_assignments", 3)]);
}

#[test]
fn a_late_record_may_pass_once() {
    let given = [record("b", 12_000), record("a", 1000)];
    let test = with(json!({ "hopping": "10s", "every": "5s" }), json!({ "late": "pass" }));
    leaves(&test, &given, &["2", "1 [5000,15000)", "1 [10000,20000)"], &[("late", 1)]);
}

#[test]
fn every_step_sends_its_winner_again() {
    // F-13
    let wanted = [
        "4 [0,5000)",
        "5 [0,10000)",
        "7 [0,10000)",
        "5 [0,15000)",
        "7 [0,15000)",
        "9 [15000,20000)",
        "9 [15000,25000)",
        "9 [15000,30000)",
        "10 [30000,35000)",
        "11 [30000,35000)",
        "10 [30000,40000)",
        "11 [30000,40000)",
        "10 [30000,45000)",
        "11 [30000,45000)",
    ];
    let test = cumulative(json!({ "keep": "last" })).delay(1000);
    leaves(&test, &names(), &wanted, &[("late", 0), ("late_window_assignments", 1)]);
}

#[test]
fn only_steps_with_another_winner_leave_on_change() {
    // F-14
    let wanted =
        ["4 [0,5000)", "5 [0,10000)", "7 [0,10000)", "9 [15000,20000)", "10 [30000,35000)", "11 [30000,35000)"];
    leaves(&cumulative(json!({ "keep": "last", "emit": "change" })).delay(1000), &names(), &wanted, &[]);
}

#[test]
fn a_step_follows_the_one_before_only_while_both_keep_the_same_record() {
    let test = cumulative(json!({ "emit": "change" })).delay(20_000);
    // The second takes all steps, the third only those that begin with it.
    let given = [record("a", 3000), record("a", 1000), record("b", 6000), record("b", 12_000), record("b", 11_000)];
    leaves(&test, &given, &["2 [0,5000)", "3 [0,10000)"], &[]);
    let test = cumulative(json!({ "keep": "last", "emit": "change" })).delay(20_000);
    leaves(&test, &given, &["1 [0,5000)", "3 [0,10000)", "4 [0,15000)"], &[]);
}

#[test]
fn steps_are_corrected_within_the_lateness() {
    let test = cumulative(json!({ "keep": "last", "output": "retract", "lateness": "5s" }));
    let given = [record("a", 1000), record("b", 6000), record("a", 2000), record("b", 20_500)];
    let wanted = [
        "1 [0,5000)",
        "-U 1 [0,5000)",
        "+U 3 [0,5000)",
        "3 [0,10000)",
        "2 [0,10000)",
        "3 [0,15000)",
        "2 [0,15000)",
        "4 [15000,25000)",
        "4 [15000,30000)",
    ];
    leaves(&test, &given, &wanted, &[]);
}
