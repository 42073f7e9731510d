#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::super::call::{DecodedColumn, Output, Stamps};
use super::*;
use crate::batch::kind;

const SHAPE: Shape = Shape { writes: 1, routes: 2, counters: 1 };
const ROWS: u32 = 4;
const SLOTS: u64 = 2;

/// Four rows: kept, dropped, replaced, failed; the third leaves as two rows, the second of them from a slot.
fn good() -> Outcome {
    let mut column = Column::default();
    column.push(kind::TEXT, "é".as_bytes());
    column.push(kind::UNCHANGED, b"");
    Outcome {
        verdicts: vec![0, 4, 2, 3],
        output: Output {
            at: vec![2, 4],
            origins: vec![2, 5],
            routes: vec![0, 2],
            windows: vec![1, 2, 3, 4],
            columns: vec![column],
            ..Output::default()
        },
        failures: vec![failure(3)],
        winners: vec![4],
        winner_images: vec![7],
        counts: vec![9],
    }
}

fn failure(row: u32) -> RowFailure {
    RowFailure { row, category: 2, code: "not-text".into(), text: "why".into() }
}

/// `words`: empty if it is fine, else part of what is said.
fn check(change: impl FnOnce(&mut Outcome), words: &str) {
    let mut bad = good();
    change(&mut bad);
    match outcome(&mut bad, ROWS, SLOTS, &SHAPE) {
        Ok(()) => assert_eq!(words, "", "was accepted: {bad:?}"),
        Err(Breach(text)) => assert!(!words.is_empty() && text.contains(words), "{text} / {words}"),
    }
}

#[test]
fn an_outcome_that_keeps_the_contract_is_accepted() {
    check(|_| {}, "");
    check(|o| o.verdicts = vec![7, 4, 130, 3], "");
    check(|o| o.verdicts = vec![128, 4, 5, 3], "");
    check(|o| (o.winners, o.winner_images) = (vec![], vec![]), "");
    check(|o| o.output.wakes = Stamps { times: vec![1, 2], inputs: vec![0, 1] }, "");
}

#[test]
fn verdicts_are_one_a_row_and_in_range() {
    check(|o| o.verdicts.push(0), "verdicts: 5 in place of 4");
    check(|o| o.verdicts[0] = 8, "verdict 8");
    check(|o| o.verdicts[0] = 127, "verdict 127");
    check(|o| o.verdicts[0] = 131, "verdict 131: the stage has 2 routes");
    check(|o| o.verdicts[0] = 255, "verdict 255");
}

#[test]
fn failures_and_verdict_3_belong_together() {
    check(|o| o.failures.clear(), "1 rows have verdict 3, but there are 0");
    check(|o| o.failures[0].row = 0, "row 0, which has not verdict 3");
    check(|o| o.failures[0].row = 4, "names row 4 of 4");
    check(|o| o.failures.push(failure(3)), "two failures name row 3");
    check(|o| o.failures[0].category = 0, "category 0");
    check(|o| o.failures[0].category = 4, "category 4");
    for bad in ["", "Not", "a b", "é", "x\n"] {
        check(|o| o.failures[0].code = bad.into(), "[a-z0-9_-]+");
    }
    check(|o| o.failures[0].code = "x".repeat(65), "[a-z0-9_-]+");
    check(|o| (o.verdicts, o.failures) = (vec![3, 4, 2, 3], vec![failure(3), failure(0)]), "");
}

#[test]
fn winners_are_rows_or_slots_that_were_handed_out() {
    check(|o| o.winners = vec![5], "");
    check(|o| o.winners = vec![6], "winner 6");
    check(|o| o.winners = vec![u32::MAX], "winner 4294967295");
    check(|o| o.winners = vec![1, 2], "winners: 2 in place of 1");
    check(|o| o.winner_images = vec![1, 2], "winner-images: 2 in place of 1");
    check(|o| o.winners.clear(), "winner-images: 1 in place of 0");
}

#[test]
fn output_lists_have_one_element_a_row() {
    check(|o| o.output.origins.truncate(1), "origins: 1 in place of 2");
    check(|o| o.output.images = vec![1], "images: 1 in place of 2");
    check(|o| o.output.routes = vec![1], "routes: 1 in place of 2");
    check(|o| o.output.kinds = vec![1; 3], "kinds: 3 in place of 2");
    check(|o| o.output.wakes.times = vec![1], "wakes: 1 in place of 2");
    check(|o| o.output.wakes.inputs = vec![1], "inputs: 1 in place of 0");
    check(|o| o.output.windows = vec![1, 2], "windows: 2 in place of 4");
    check(|o| o.output.columns.clear(), "columns: 0 in place of 1");
    check(|o| o.output.columns.push(Column::default()), "columns: 2 in place of 1");
    check(|o| o.output.columns[0] = Column::default(), "column 0: 0 in place of 2");
    check(|o| o.counts.clear(), "counts: 0 in place of 1");
}

#[test]
fn output_stands_in_order_and_points_at_what_is_there() {
    check(|o| o.output.at = vec![4, 4], "");
    check(|o| o.output.at = vec![2, 5], "output at 5");
    check(|o| o.output.at = vec![3, 2], "`at` falls");
    check(|o| o.output.origins = vec![2, 6], "output origin 6: there are 4 rows and 2 slots");
    check(|o| o.output.routes = vec![0, 3], "output route 3");
    check(|o| o.output.kinds = vec![0, 4], "output kind 4");
    check(|o| o.output.columns[0].data[0] = 0xff, "column 0: row 0: its text");
}

#[test]
fn columns_may_be_left_out_where_there_is_no_output() {
    let mut empty = Outcome { verdicts: vec![0; 4], counts: vec![0], ..Outcome::default() };
    outcome(&mut empty, ROWS, 0, &SHAPE).unwrap();
    assert_eq!(empty.output.columns, [Column::default()]);
}

#[test]
fn a_call_without_rows_has_an_outcome_too() {
    let mut wakes = good();
    (wakes.verdicts, wakes.failures, wakes.winners, wakes.winner_images) = (vec![], vec![], vec![], vec![]);
    wakes.output.at = vec![0, 0];
    wakes.output.origins = vec![0, 1];
    outcome(&mut wakes, 0, SLOTS, &SHAPE).unwrap();
}

#[test]
fn decode_returns_a_column_for_each_path() {
    let mut payload = Column::default();
    payload.push(kind::BYTES, b"abc");
    let column = DecodedColumn { kinds: vec![kind::TEXT], spans: vec![0, 3] };
    let answer = |columns| Decoded { columns, ..Decoded::default() };
    decoded(&answer(vec![column.clone()]), 1, &payload).unwrap();
    assert!(decoded(&answer(vec![column.clone()]), 2, &payload).is_err());
    assert!(decoded(&answer(vec![]), 1, &payload).is_err());
    let late = Decoded { columns: vec![column], failures: vec![failure(1)], ..Decoded::default() };
    assert!(decoded(&late, 1, &payload).is_err());
}

#[test]
fn what_is_stored_needs_form_and_known_kinds_only() {
    let mut values = Column::default();
    values.push(kind::BYTES, b"\xff");
    values.push(kind::TEXT, b"\xff");
    stored("v", &values, 2).unwrap();
    assert!(stored("v", &values, 1).is_err());
    values.kinds[0] = 0x33;
    assert!(stored("v", &values, 2).is_err());
}
