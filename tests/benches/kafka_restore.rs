//! P7: what state costs a start, from a changelog alone and with a checkpoint, and what writing a checkpoint costs a
//! commit. Figures of starts are those beyond a start without state; that a start had a checkpoint is read in what it
//! said, so that a checkpoint that was not there is not taken for a slow one.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rdkafka::producer::Producer;
use serde_json::Value;

use crate::kafka_job::{Bench, PARTITIONS, Run, key, measured, send};
use crate::kafka_start::{Start, out, small, start};
use crate::kafka_watch::{Watched, from_env, say};
use crate::median;

/// Keys of the state that is restored. The budget speaks of five millions, which take longer to write than to restore.
const KEYS: u64 = 1_000_000;
const ROUNDS: u64 = 3;
/// How long commits are counted without checkpoints.
const LENGTH: Duration = Duration::from_secs(8);
/// How much longer with them, for every million keys: a few thousand are written after each commit, and every partition
/// is to have its checkpoint.
const LONGER: Duration = Duration::from_secs(6);
/// So often they are counted again until every partition has a checkpoint.
const PATIENCE: usize = 6;
/// Between two commits here.
const COMMIT: Duration = Duration::from_millis(25);
/// New records between two commits.
const RECORDS: u64 = 250;
/// Commits at the beginning that do not count: state was just restored.
const WARM_UP: usize = 20;
/// Work after a commit that takes longer was for a checkpoint, ms; else there was none.
const WORK: f64 = 0.05;

pub fn p7() {
    let keys = from_env("TAMIS_BENCH_KEYS", KEYS);
    let bench = Bench::new("restore", keys, small);
    let run = bench.run("restore");
    let file = run.pipeline("exactly-once", true, "");
    let took = measured(&run, "P7 making the state", run.tamis(&["run", &file.to_string_lossy()]));
    assert!(took.said.contains(&format!("{keys} in, {keys} out")), "all are new: {}", took.said);
    let mut fresh = keys;
    commits(&run, &mut fresh);
    starts(&run, &mut fresh);
}

/// What state costs a start.
fn starts(run: &Run<'_>, fresh: &mut u64) {
    let file = run.pipeline("exactly-once", false, "");
    let empty = Bench::new("empty", 0, small);
    let (begun, mut other) = (empty.run("empty"), 0);
    let nothing = begun.pipeline("exactly-once", false, "");
    // The first start makes its topics, which is not what is asked.
    start(&begun, &nothing, &mut other);
    let (mut idle, mut warm, mut cold, mut behind) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let keys = *fresh;
    for _ in 0..from_env("TAMIS_BENCH_ROUNDS", ROUNDS) {
        idle.push(start(&begun, &nothing, &mut other));
        let (with, read) = restored(start(run, &file, fresh), true);
        warm.push(with);
        behind = read;
        let checkpoints = checkpoints(&run.bench.folder.path("state"));
        let aside = checkpoints.with_file_name("aside");
        std::fs::rename(&checkpoints, &aside).expect("they can be put aside");
        cold.push(restored(start(run, &file, fresh), false).0);
        // What it wrote itself when it was stopped may be of some partitions only.
        let _ = std::fs::remove_dir_all(&checkpoints);
        std::fs::rename(&aside, &checkpoints).expect("they can be put back");
    }
    let of = |list: &[Start], what: fn(&Start) -> f64| median(&mut list.iter().map(what).collect::<Vec<f64>>());
    let more =
        |list: &[Start]| (of(list, |s| s.all) - of(&idle, |s| s.all), of(list, |s| s.cpu) - of(&idle, |s| s.cpu));
    let (ms, cpu) = more(&cold);
    println!(
        "P7    {:<58} {:>9.2}M {:>10} {:>8}  >= 1 M entries/s/core ({:.2} s, {cpu:.2} s of CPU of the whole process)",
        format!("restore of {keys} marks from the changelog"),
        keys as f64 / cpu.max(0.01) / 1e6,
        "-",
        "-",
        ms / 1e3,
    );
    let (ms, cpu) = more(&warm);
    println!(
        "P7    {:<58} {:>9.2}s {:>10} {:>8}  <= {:.2} s, 2 s for 5 M ({cpu:.2} s of CPU; {behind} records behind it; a start without state takes {:.0} ms)",
        format!("warm checkpoint of {keys} keys, verified"),
        ms / 1e3,
        "-",
        "-",
        keys as f64 * 2.0 / 5e6,
        of(&idle, |s| s.all)
    );
}

/// The start, if all partitions had their checkpoints, or none had; and how many records of changelogs were read.
fn restored(start: Start, with: bool) -> (Start, u64) {
    let (found, records) = warm(&start.said);
    let expected = if with { PARTITIONS } else { 0 };
    assert_eq!(found, expected, "partitions that had a checkpoint:\n{}", start.said);
    (start, records)
}

/// How many partitions had a checkpoint, and how many records of changelogs were read.
fn warm(said: &str) -> (i32, u64) {
    let restored = lines(said, "state restored");
    let found = restored.iter().filter(|line| line["from"] == "a checkpoint").count();
    (found as i32, restored.iter().filter_map(|line| line["records"].as_u64()).sum())
}

fn lines(said: &str, message: &str) -> Vec<Value> {
    let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == message).collect()
}

/// The one folder of checkpoints below a directory.
fn checkpoints(below: &Path) -> PathBuf {
    fn find(below: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(below).expect("a folder").flatten() {
            match entry.file_name() == "checkpoints" {
                true => found.push(entry.path()),
                false if entry.path().is_dir() => find(&entry.path(), found),
                false => {}
            }
        }
    }
    let mut found = Vec::new();
    find(below, &mut found);
    assert_eq!(found.len(), 1, "folders of checkpoints: {found:?}");
    found.remove(0)
}

/// What writing checkpoints costs commits. Leaves a checkpoint of every partition.
fn commits(run: &Run<'_>, fresh: &mut u64) {
    let without = committed(run, fresh, "1h", LENGTH);
    let length = LENGTH + LONGER.mul_f64(*fresh as f64 / 1e6);
    let (mut with, mut found) = (Vec::new(), 0);
    for _ in 0..PATIENCE {
        with.extend(committed(run, fresh, "1s", length));
        found = warm(&start(run, &run.pipeline("exactly-once", false, ""), fresh).said).0;
        say(&format!("P7: {found} of {PARTITIONS} partitions have a checkpoint"));
        if found == PARTITIONS {
            break;
        }
    }
    let seconds = PATIENCE as u64 * length.as_secs();
    assert_eq!(found, PARTITIONS, "partitions with a whole checkpoint after {seconds} s with commits every {COMMIT:?}");
    let mut work: Vec<f64> = with.iter().map(|commit| commit.work).filter(|&work| work >= WORK).collect();
    assert!(!work.is_empty(), "none of {} commits was followed by work on a checkpoint", with.len());
    let p50 = median(&mut work);
    println!(
        "P7    {:<58} {p50:>8.2}ms {:>8.2}ms {:>8}  <= 2 ms (columns: p50, worst, commits)",
        format!("checkpoint work after a commit, {fresh} keys"),
        work.last().copied().unwrap_or(0.0),
        work.len()
    );
    let all = |list: &[Commit]| {
        let mut all: Vec<f64> = list.iter().map(|commit| commit.whole + commit.work).collect();
        let p50 = median(&mut all);
        (p50, all[(all.len() - 1) * 99 / 100])
    };
    let ((ours, ours_late), (theirs, theirs_late)) = (all(&with), all(&without));
    println!(
        "P7    {:<58} {ours:>8.2}ms {theirs:>8.2}ms {:>8.2}  <= 2 ms more (p99: {ours_late:.2} ms, {theirs_late:.2} ms)",
        "commits while checkpoints are written; without",
        theirs / ours
    );
}

/// A commit, and the work on a checkpoint behind it, ms.
struct Commit {
    whole: f64,
    work: f64,
}

/// Commits while records come, with checkpoints as often as said.
fn committed(run: &Run<'_>, fresh: &mut u64, checkpoint: &str, length: Duration) -> Vec<Commit> {
    let file = run.pipeline("exactly-once", false, "");
    let text = std::fs::read_to_string(&file).expect("the pipeline");
    let text = text.replace("state: { changelog", &format!("state: {{ checkpoint: {checkpoint}, changelog"));
    let text = text.replace("commit: 200ms", &format!("commit: {}ms", COMMIT.as_millis()));
    std::fs::write(&file, text).expect("the pipeline");
    let (producer, client) = (run.bench.producer("1"), run.client());
    let mut give = |count: u64| {
        for number in *fresh..*fresh + count {
            send(&producer, &run.bench.source, key(number).as_bytes(), &small(number));
        }
        *fresh += count;
    };
    let before: Vec<i64> = (0..PARTITIONS).map(|p| out(&client, &run.sink, p)).collect();
    let what = format!("P7 checkpoints every {checkpoint}");
    let mut child = Watched::start(run.tamis(&["run", &file.to_string_lossy(), "-v", "-v"]), &what, &run.log());
    give(RECORDS);
    child.wait_for("every partition has a record out", Duration::from_secs(120), || {
        let came = (0..PARTITIONS).filter(|&p| out(&client, &run.sink, p) > before[p as usize]).count();
        if came == PARTITIONS as usize { Ok(()) } else { Err(format!("{came} of {PARTITIONS}")) }
    });
    say(&format!("{what}: commits are counted for {} s", length.as_secs()));
    let began = Instant::now();
    while began.elapsed() < length {
        give(RECORDS / 5);
        std::thread::sleep(COMMIT / 5);
    }
    producer.flush(Duration::from_secs(60)).expect("the input arrives");
    let said = child.stop();
    for line in said.lines().filter(|line| line.contains("\"WARN\"")) {
        say(&format!("{what}: {line}"));
    }
    let mut commits = Vec::new();
    let mut whole = None;
    for line in said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let ms = |name: &str| line[name].as_f64().map(|us| us / 1e3);
        if line["message"] == "committed" {
            whole = ms("whole_us");
        } else if line["message"] == "checkpoint work"
            && let (Some(whole), Some(work)) = (whole.take(), ms("took_us"))
        {
            commits.push(Commit { whole, work });
        }
    }
    let count = commits.len();
    assert!(count > 2 * WARM_UP, "{what}: only {count} commits in {} s:\n{said}", length.as_secs());
    commits.split_off(WARM_UP)
}
