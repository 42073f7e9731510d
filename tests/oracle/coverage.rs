//! Nothing of the table is left out: every legal cell is played against the reference, every other one is refused with
//! its code, and every refusal there is has a test.

use std::collections::BTreeSet;
use std::path::Path;

use super::table::Cell;
use super::text;
use tamis::script::report;
use tamis::script::suite::{Suite, Verdict, run_all};

/// Streams of each cell; more with `TAMIS_STREAMS=20`.
const STREAMS: u64 = 2;
/// Windows with cells that may still be refused with P-LATER: none. What is, of all that is defined, is not in the table:
/// micro-batches and changelog input.
const LATER: [&str; 0] = [];

/// Runs the tests of a text; the names of those that passed, of those that the plan cannot do yet, and what failed.
fn run(name: &str, text: &str) -> (Vec<String>, Vec<String>, String) {
    let pipeline = tamis::config::read(text, None, &|_| None).map_err(|(findings, _)| findings).unwrap();
    let suites = [Suite::new(&pipeline, crate::cases::library())];
    let jobs: Vec<(usize, usize)> = (0..suites[0].tests.len()).map(|test| (0, test)).collect();
    let verdicts = run_all(&suites, &jobs, &|_| ());
    assert_eq!(verdicts.len(), jobs.len(), "{name}: a test panicked");
    let (mut passed, mut later, mut failed) = (Vec::new(), Vec::new(), String::new());
    for ((test, span, _), verdict) in suites[0].tests.iter().zip(&verdicts) {
        match verdict {
            Verdict::Passed => passed.push(test.clone()),
            Verdict::NotRunnable(findings) if findings.iter().filter(|f| f.is_error()).all(|f| f.code == "P-LATER") => {
                later.push(test.clone());
            }
            verdict => {
                let shown = report::text(verdict, false, &|f| format!("{}: {}", f.code, f.message));
                failed.push_str(&format!("{name}:{}  {test}\n{shown}", span.line));
            }
        }
    }
    (passed, later, failed)
}

#[test]
fn every_legal_cell_does_what_the_rules_say() {
    // A part of a cell's name, to play only those: `horizon, last`.
    let only = std::env::var("TAMIS_CELLS").unwrap_or_default();
    let streams = std::env::var("TAMIS_STREAMS").map_or(STREAMS, |streams| streams.parse().unwrap());
    let cells: Vec<Cell> = Cell::all().into_iter().filter(|cell| cell.code(true).is_ok()).collect();
    let (mut played, mut later, mut failed) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for (number, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.name().contains(&only)) {
        let seeds = (0..streams).map(|stream| number as u64 * 1000 + stream);
        let text: String = text::HEAD.to_string() + &seeds.map(|seed| text::test(*cell, seed)).collect::<String>();
        let (passed, not_yet, wrong) = run(&cell.name(), &text);
        if passed.len() as u64 == streams {
            played.insert(cell.name());
        }
        if !not_yet.is_empty() {
            later.insert(cell.window.name());
        }
        if !wrong.is_empty() {
            failed.push(format!("{wrong}the tests are in {}", keep(number, &text)));
        }
    }
    assert!(failed.is_empty(), "{} of {} cells:\n{}", failed.len(), cells.len(), failed.join("\n"));
    assert_eq!(later.into_iter().collect::<Vec<_>>(), LATER, "what is refused with P-LATER");
    if only.is_empty() {
        let all: BTreeSet<String> = cells.iter().map(Cell::name).collect();
        assert_eq!(all.len(), cells.len(), "names are unique");
        assert_eq!(played, all, "cells without a test that passed");
    }
}

/// Keeps tests that failed, for `tamis test`; where.
fn keep(number: usize, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cell-{number}.yaml"));
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn every_other_cell_is_refused_with_its_code() {
    let refused = Cell::all().into_iter().filter_map(|cell| Some((cell, cell.code(false).err()?)));
    let text: String = refused.map(|(cell, code)| text::refusal(cell, code)).collect();
    let (passed, later, failed) = run("refused cells", &(text::HEAD.to_string() + &text));
    assert!(failed.is_empty(), "{failed}");
    assert!(later.is_empty(), "refused with P-LATER instead: {later:#?}");
    assert!(passed.len() > 200, "only {} cells are refused", passed.len());
}

#[test]
fn only_micro_batches_and_changelog_input_come_later() {
    let legal = [
        "keep: last, output: upsert, batch: { records: 10, wait: 1s }",
        "keep: last, output: retract, window: { tumbling: 1h }, emit: change, batch: { records: 2, wait: 1s }",
        "input: changelog",
        "keep: last, input: changelog, output: upsert, emit: change",
    ];
    let tests = legal.iter().map(|with| format!("  - {{ name: \"{with}\", with: {{ {with} }} }}\n"));
    let (passed, later, failed) = run("later", &(text::HEAD.to_string() + &tests.collect::<String>()));
    assert_eq!((later.len(), passed, failed), (legal.len(), Vec::new(), String::new()));
}

/// Every refusal of 8.4.
const REFUSALS: [&str; 20] = [
    "D-NO1",
    "D-NO2",
    "D-NO3",
    "D-EMPTY-KEY",
    "D-NULL-PASS",
    "D-LATE-PASS",
    "D-LATENESS",
    "D-UNBOUNDED",
    "D-RETENTION",
    "D-BATCH-WAIT",
    "D-CHANGELOG",
    "D-STEP",
    "D-ZONE",
    "D-REFRESH",
    "D-EMIT",
    "D-WINDOW-KEY",
    "D-DELAY",
    "D-KEY-CHANGED",
    "D-ORDER-CHANGED",
    "D-WINDOW-CHANGED",
];

#[test]
fn every_refusal_has_a_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut text = String::new();
    for below in ["dedup", "more"] {
        for entry in std::fs::read_dir(folder.join(below)).unwrap() {
            text.push_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
        }
    }
    let refused: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("refused: "))
        .map(|code| code.split_whitespace().next().unwrap_or_default())
        .collect();
    let missing: Vec<&&str> = REFUSALS.iter().filter(|code| !refused.contains(**code)).collect();
    assert!(missing.is_empty(), "no test in cases/dedup or cases/more is refused with {missing:?}");
}
