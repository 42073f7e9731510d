//! A stage that misbehaves as `how` says. It speaks to the bindings directly, since the SDK would not let it.

#![cfg_attr(not(target_arch = "wasm32"), allow(dead_code))]

use std::cell::{Cell, RefCell};

use serde_json::{Value, json};
use tamis_guest::bindings::stage_exports::{Batch, Guest, Outcome};
use tamis_guest::bindings::state;
use tamis_guest::bindings::types::{Column, Stamps};
use tamis_guest::failure::RowFailure;
use tamis_guest::{Level, kind, log, log_panics};

struct Evil;

#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, missing_docs)]
mod export {
    use super::Evil;
    tamis_guest::bindings::stage::export_stage!(Evil with_types_in tamis_guest::bindings::stage);
}

thread_local! {
    static PARAMS: RefCell<Value> = const { RefCell::new(Value::Null) };
    /// Calls of `process` in this instance.
    static CALLS: Cell<i64> = const { Cell::new(0) };
    /// How often a row has failed in passing.
    static FAILED: Cell<i64> = const { Cell::new(0) };
}

impl Guest for Evil {
    fn describe() -> String {
        include_str!("../manifest.json").to_string()
    }

    fn check(params: String, _context: String) -> String {
        match how(&params).as_str() {
            "loop-check" => forever(),
            "check-nonsense" => "no JSON".to_string(),
            "computes" => json!({
                "reads": ["value.n"], "writes": ["value.n"], "routes": ["side"], "counters": ["one"],
                "traits": {
                    "keyed": true, "expires-by": "now",
                    "computed": [
                        { "column": "value.hour", "from": ["value.ts"], "cyclic": "hour" },
                        { "column": "value.sum", "from": ["value.a", "value.b"] },
                    ],
                },
            })
            .to_string(),
            "computes-nonsense" => {
                json!({ "traits": { "keyed": true, "computed": [{ "column": "no path" }] } }).to_string()
            }
            _ => json!({
                "findings": [], "reads": ["value.n"], "writes": ["value.n"], "routes": ["side"], "counters": ["one"],
                "traits": { "keyed": true, "expires-by": "now" }
            })
            .to_string(),
        }
    }

    fn open(params: String, _context: String) -> Result<(), String> {
        log_panics();
        match how(&params).as_str() {
            "loop-open" => forever(),
            "trap-open" => panic!("evil: open"),
            _ => {}
        }
        PARAMS.set(serde_json::from_str(&params).unwrap_or_default());
        Ok(())
    }

    fn process(batch: Batch) -> Outcome {
        PARAMS.with_borrow(|params| {
            let how = params["how"].as_str().unwrap_or_default();
            resources(how);
            CALLS.set(CALLS.get() + 1);
            if how == "trap" {
                trap_at(&batch, params["n"].as_i64());
            }
            if how == "loop-at" && row_of(&batch, params["n"].as_i64()).is_some() {
                forever();
            }
            assert!(how != "age" || Some(CALLS.get()) <= params["n"].as_i64(), "evil: age");
            states(how, batch.rows);
            let mut outcome = good(batch.rows);
            if matches!(how, "passing" | "loop-at") {
                fail_in_passing(&batch, params, &mut outcome);
            }
            spoil(how, &mut outcome, batch.rows);
            outcome
        })
    }
}

fn how(params: &str) -> String {
    let params: Value = serde_json::from_str(params).unwrap_or_default();
    params["how"].as_str().unwrap_or_default().to_string()
}

fn forever() -> ! {
    let mut n = 0u64;
    loop {
        n = std::hint::black_box(n.wrapping_add(1));
    }
}

fn deeper(n: u64) -> u64 {
    let room = std::hint::black_box([n; 64]);
    if n == u64::MAX { room[0] } else { deeper(n + 1) + std::hint::black_box(room[7]) }
}

fn resources(how: &str) {
    match how {
        "loop-process" => forever(),
        "memory" => {
            let mut all: Vec<Vec<u8>> = Vec::new();
            loop {
                all.push(std::hint::black_box(vec![1; 1 << 20]));
            }
        }
        "log" => {
            let line = "evil ".repeat(200);
            for _ in 0..10_000 {
                log(Level::Error, &line);
            }
        }
        "stack" => {
            std::hint::black_box(deeper(0));
        }
        _ => {}
    }
}

fn trap_at(batch: &Batch, n: Option<i64>) {
    assert!(row_of(batch, n).is_none(), "evil: row");
}

/// The row whose number is `n`.
fn row_of(batch: &Batch, n: Option<i64>) -> Option<usize> {
    let is_n = |cell: tamis_guest::Cell<'_>| {
        cell.as_i64().or_else(|| cell.as_number()?.parse().ok()).is_some_and(|value| Some(value) == n)
    };
    batch.columns[0].cells().position(is_n)
}

/// Row `n` fails `times` times in a way that may pass, then no more. Nothing is emitted besides.
fn fail_in_passing(batch: &Batch, params: &Value, outcome: &mut Outcome) {
    *outcome = Outcome { verdicts: vec![0; batch.rows as usize], counts: vec![1], ..Outcome::default() };
    outcome.output.columns = vec![Column::default()];
    let Some(row) = row_of(batch, params["n"].as_i64()) else { return };
    if FAILED.get() < params["times"].as_i64().unwrap_or(0) {
        FAILED.set(FAILED.get() + 1);
        outcome.verdicts[row] = 3;
        let (row, text) = (row as u32, "evil: not now".to_string());
        outcome.failures.push(RowFailure { row, category: 1, code: "busy".into(), text });
    }
}

/// What breaks the rules of state; does nothing without rows.
fn states(how: &str, rows: u32) {
    if rows == 0 {
        return;
    }
    let column = |cells: usize, bytes: &[u8]| {
        let mut column = Column::default();
        for _ in 0..cells {
            column.push_bytes(kind::BYTES, bytes);
        }
        column
    };
    let stamps = Stamps { times: vec![5], inputs: vec![] };
    match how {
        "open-twice" => {
            state::open(&[], &[0]);
            state::open(&[], &[0]);
        }
        "due-late" => {
            state::open(&[], &[0]);
            state::due();
        }
        "slot" => state::put(&[u32::MAX], &column(1, b"x"), &[i64::MAX]),
        "no-entry" => {
            state::open(&[], &[0]);
            state::wake(&[0], &stamps, &Column::default());
        }
        "keep-row" => {
            state::open(&[], &[0]);
            state::put(&[0], &column(1, b"x"), &[i64::MAX]);
            state::keep(&[0], &[0], &[rows + 1]);
        }
        "lengths" => {
            state::open(&[], &[0]);
            state::put(&[0], &column(2, b"x"), &[i64::MAX]);
        }
        "rank" => {
            state::open(&[], &[0]);
            state::put(&[0], &column(1, b"x"), &[i64::MAX]);
            state::wake(&[0], &stamps, &column(1, &[7; 65]));
        }
        "space-list" => {
            state::open(&[0], &[1, 2, 3]);
        }
        "seen-list" => {
            state::seen(0, &vec![i64::MAX; rows as usize + 1], &[], false);
        }
        _ => {}
    }
}

/// Keeps every row, and emits the first once more.
fn good(rows: u32) -> Outcome {
    let mut outcome = Outcome { verdicts: vec![0; rows as usize], counts: vec![1], ..Outcome::default() };
    outcome.output.columns = vec![Column::default()];
    if rows > 0 {
        emit(&mut outcome, 0);
    }
    outcome
}

fn emit(outcome: &mut Outcome, at: u32) {
    outcome.output.at.push(at);
    outcome.output.origins.push(0);
    outcome.output.columns[0].push_bytes(kind::TEXT, b"abcd");
}

fn cell(outcome: &mut Outcome, kind: u8, bytes: &[u8]) {
    outcome.output.columns[0].clear();
    outcome.output.columns[0].push_bytes(kind, bytes);
}

/// What breaks the rules of outcomes; does nothing without rows.
fn spoil(how: &str, outcome: &mut Outcome, rows: u32) {
    if rows == 0 {
        return;
    }
    let failure = |row, category, code: &str| RowFailure { row, category, code: code.into(), text: "evil".into() };
    match how {
        "output" => outcome.verdicts = vec![0; 48 << 20],
        "verdicts-short" => outcome.verdicts.truncate(rows as usize - 1),
        "verdicts-long" => outcome.verdicts.push(0),
        "verdict-unknown" => outcome.verdicts[0] = 99,
        "counts" => outcome.counts.push(1),
        "origin" => outcome.output.origins[0] = rows + 1_000,
        "at-falls" => {
            outcome.output.at[0] = rows;
            emit(outcome, 0);
        }
        "at-beyond" => outcome.output.at[0] = rows + 1,
        "columns" => outcome.output.columns.push(Column::default()),
        "cells" => outcome.output.columns[0].push_bytes(kind::NULL, b""),
        "offsets-fall" => {
            emit(outcome, rows);
            outcome.output.columns[0].offsets = vec![0, 9, 8];
        }
        "offsets-beyond" => outcome.output.columns[0].offsets = vec![0, 5],
        "kind" => cell(outcome, 0x99, b""),
        "utf8" => cell(outcome, kind::TEXT, &[b'a', 0xff]),
        "number" => cell(outcome, kind::NUMBER, b"01"),
        "bool" => cell(outcome, kind::BOOL, &[2]),
        "width" => cell(outcome, kind::INT64, &[1, 2, 3]),
        "document" => cell(outcome, kind::MAP, &[1, 0, 0, 0, 255, 255, 255, 255]),
        "route" => outcome.output.routes = vec![2],
        "output-kind" => outcome.output.kinds = vec![4],
        "windows" => outcome.output.windows = vec![1],
        "winner" => {
            outcome.verdicts[0] = 4;
            outcome.winners = vec![rows + 1_000];
        }
        "failure-row" => {
            outcome.verdicts[0] = 3;
            outcome.failures.push(failure(rows, 2, "evil"));
        }
        "failure-code" => {
            outcome.verdicts[0] = 3;
            outcome.failures.push(failure(0, 2, "No Code!"));
        }
        "failure-category" => {
            outcome.verdicts[0] = 3;
            outcome.failures.push(failure(0, 9, "evil"));
        }
        _ => {}
    }
}
