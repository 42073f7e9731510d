//! The performance budget as ratios within one run: `cargo xtask bench [ID ..]`. Variants of one figure take turns, so
//! that a machine that slows down slows both; medians are printed. Nothing here judges: the targets stand beside.
//! Those on Kafka tell on standard error how far they are; what hangs or fails ends the run with what it said last.
//!
//! Sizes of those on Kafka, from the environment: `TAMIS_BENCH_RECORDS` (P2, P3; P4 to find what full load is),
//! `TAMIS_BENCH_RATE` (P4: records/s in place of half of full load), `TAMIS_BENCH_KEYS` (P7), `TAMIS_BENCH_ROUNDS`
//! (P2, P3, P4, P6, P7).

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod chain;
mod kafka_copy;
mod kafka_job;
mod kafka_latency;
mod kafka_race;
mod kafka_restore;
mod kafka_start;
mod kafka_watch;
mod session;
mod state;

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What there is.
const IDS: [&str; 12] = ["P1", "P1b", "P1c", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10"];

fn main() -> ExitCode {
    if let Some(code) = kafka_job::child() {
        return code;
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if let Some(unknown) = wanted.iter().find(|w| !IDS.iter().any(|id| w.eq_ignore_ascii_case(id))) {
        eprintln!("ratios: there is no `{unknown}`; there are {}", IDS.join(", "));
        return ExitCode::from(2);
    }
    let runs = |id: &str| wanted.is_empty() || wanted.iter().any(|w| w.eq_ignore_ascii_case(id));
    println!("{:<5} {:<58} {:>10} {:>10} {:>8}  target", "id", "what", "tamis", "baseline", "ratio");
    if runs("P1") {
        chain::p1();
    }
    if runs("P1b") {
        chain::p1b();
    }
    if runs("P1c") {
        session::p1c();
    }
    if runs("P2") || runs("P3") {
        kafka_race::race(runs("P2"), runs("P3"));
    }
    if runs("P4") {
        kafka_latency::p4();
    }
    if runs("P5") {
        state::p5();
    }
    if runs("P6") {
        chain::p6();
        kafka_start::p6();
    }
    if runs("P7") {
        kafka_restore::p7();
    }
    if runs("P8") {
        chain::p8();
    }
    if runs("P9") {
        chain::p9();
    }
    if runs("P10") {
        state::p10();
    }
    ExitCode::SUCCESS
}

/// Prints a line: nanoseconds a record of both sides, and baseline / ours (1 is as fast as the baseline).
pub fn report(id: &str, what: &str, ours: f64, baseline: f64, target: &str) {
    println!("{id:<5} {what:<58} {ours:>8.1}ns {baseline:>8.1}ns {:>8.2}  {target}", baseline / ours);
}

/// Median nanoseconds a record of two jobs that take turns. Each gets the number of the round and gives the time it
/// took for so many records.
pub fn duel(
    rounds: usize,
    mut ours: impl FnMut(usize) -> (Duration, usize),
    mut theirs: impl FnMut(usize) -> (Duration, usize),
) -> (f64, f64) {
    let per = |(time, records): (Duration, usize)| time.as_nanos() as f64 / records as f64;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        a.push(per(ours(round)));
        b.push(per(theirs(round)));
    }
    (median(&mut a), median(&mut b))
}

pub fn median(list: &mut [f64]) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

/// Time of a job.
pub fn timed<T>(job: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let answer = std::hint::black_box(job());
    (start.elapsed(), answer)
}
