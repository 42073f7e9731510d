//! P6, P7: from the start of the process to the first record in the output, without state, with a checkpoint of it, and
//! with a changelog alone.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::Producer;

use crate::kafka_job::{Bench, PARTITIONS, Run, cpu, key, measured, now, send, stamp};
use crate::median;

/// Keys of the state that is restored.
const KEYS: u64 = 5_000_000;
const ROUNDS: u64 = 3;

/// P6 on Kafka: guests are compiled already, topics are there, nobody else is in the group.
pub fn p6() {
    let mut fresh = 0;
    for delivery in ["at-least-once", "exactly-once"] {
        let bench = Bench::new("start", 0, small);
        let run = bench.run(delivery);
        let file = run.pipeline(delivery, false, "");
        start(&run, &file, &mut fresh);
        let mut took: Vec<f64> = (0..7).map(|_| start(&run, &file, &mut fresh).ms).collect();
        println!(
            "P6    {:<58} {:>8.0}ms {:>10} {:>8}  <= 300 ms",
            format!("start to a first record out of 4 partitions, {delivery}"),
            median(&mut took),
            "-",
            "-"
        );
    }
}

/// What a start took until every partition had a record out.
struct Start {
    ms: f64,
    cpu: f64,
}

pub fn p7() {
    let keys = std::env::var("TAMIS_BENCH_KEYS").ok().and_then(|n| n.parse().ok()).unwrap_or(KEYS);
    let bench = Bench::new("restore", keys, small);
    let run = bench.run("restore");
    let file = run.pipeline("exactly-once", true, "");
    let took = measured(run.tamis(&["run", &file.to_string_lossy()]));
    assert!(took.said.contains(&format!("{keys} in, {keys} out")), "all are new: {}", took.said);
    let run_on = run.pipeline("exactly-once", false, "");
    let empty = Bench::new("empty", 0, small);
    let (mut none, mut checkpoint, mut changelog) = (Vec::new(), Vec::new(), Vec::new());
    let mut fresh = keys;
    let begun = empty.run("empty");
    let file = begun.pipeline("exactly-once", false, "");
    // The first start makes its topics, which is not what is asked.
    start(&begun, &file, &mut fresh);
    for _ in 0..ROUNDS {
        none.push(start(&begun, &file, &mut fresh));
        checkpoint.push(start(&run, &run_on, &mut fresh));
        delete_checkpoints(&bench.folder.path("state"));
        changelog.push(start(&run, &run_on, &mut fresh));
    }
    let of = |list: &[Start], what: fn(&Start) -> f64| median(&mut list.iter().map(what).collect::<Vec<f64>>());
    let (idle_ms, idle_cpu) = (of(&none, |s| s.ms), of(&none, |s| s.cpu));
    let (warm_ms, warm_cpu) = (of(&checkpoint, |s| s.ms) - idle_ms, of(&checkpoint, |s| s.cpu) - idle_cpu);
    let (cold_ms, cold_cpu) = (of(&changelog, |s| s.ms) - idle_ms, of(&changelog, |s| s.cpu) - idle_cpu);
    println!(
        "P7    {:<58} {:>8.2}M {:>10} {:>8}  >= 1 M entries/s/core ({:.2} s, {:.2} s of CPU; whole process)",
        format!("restore of {keys} marks from the changelog"),
        keys as f64 / cold_cpu / 1e6,
        "-",
        "-",
        cold_ms / 1e3,
        cold_cpu
    );
    println!(
        "P7    {:<58} {:>8.2}s {:>10} {:>8}  <= 2 s ({:.2} s of CPU; {:.0} ms of start are not in it)",
        format!("warm checkpoint of {keys} keys, verified"),
        warm_ms / 1e3,
        "-",
        "-",
        warm_cpu,
        idle_ms
    );
    pauses(&run, keys);
}

/// A click of few bytes.
fn small(number: u64) -> Vec<u8> {
    format!("{{\"ip\":\"{}\",\"url\":\"/{number:09}\"}}", key(number)).into_bytes()
}

/// Starts, and waits until a new record of every partition has come out; then it is asked to stop.
fn start(run: &Run<'_>, file: &Path, fresh: &mut u64) -> Start {
    let client = run.client();
    let ends = ends(&client, &run.sink);
    give(run, fresh, 1);
    let mut command = run.tamis(&["run", &file.to_string_lossy()]);
    let began = now();
    let mut child = command.stderr(Stdio::null()).spawn().expect("the child runs");
    let is_out = |p: i32| self::end(&client, &run.sink, p) > ends[p as usize];
    while !(0..PARTITIONS).all(is_out) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let spent = cpu(&child.id().to_string(), 11);
    terminate(&mut child);
    let out = |p: i32| stamp(&client, &run.sink, p, |_, _| ends[p as usize], false).expect("a record");
    let last = (0..PARTITIONS).map(out).max().expect("partitions");
    Start { ms: (last - began) as f64, cpu: spent.as_secs_f64() }
}

/// Writes new records until each partition has so many.
fn give(run: &Run<'_>, fresh: &mut u64, each: usize) {
    let producer = run.bench.producer("1");
    let mut counts = [0; PARTITIONS as usize];
    while counts.iter().any(|&count| count < each) {
        let key = key(*fresh);
        counts[tamis::kafka::partition::of_key(key.as_bytes(), PARTITIONS) as usize] += 1;
        send(&producer, &run.bench.source, key.as_bytes(), &small(*fresh));
        *fresh += 1;
    }
    producer.flush(Duration::from_secs(60)).expect("the input arrives");
}

fn ends(client: &BaseConsumer, topic: &str) -> Vec<i64> {
    (0..PARTITIONS).map(|p| end(client, topic, p)).collect()
}

fn end(client: &BaseConsumer, topic: &str, partition: i32) -> i64 {
    client.fetch_watermarks(topic, partition, Duration::from_secs(20)).expect("offsets").1
}

fn terminate(child: &mut std::process::Child) {
    let done = Command::new("kill").arg(child.id().to_string()).status().expect("kill runs");
    assert!(done.success());
    child.wait().expect("the child ends");
}

fn delete_checkpoints(below: &Path) {
    for entry in std::fs::read_dir(below).expect("a folder").flatten() {
        let path = entry.path();
        match entry.file_name() == "checkpoints" {
            true => std::fs::remove_dir_all(&path).expect("it can be deleted"),
            false if path.is_dir() => delete_checkpoints(&path),
            false => {}
        }
    }
}

/// How long the worker is busy with checkpoints after commits, while one of all keys is written every other second.
fn pauses(run: &Run<'_>, keys: u64) {
    let text = run.bench.folder.read(&format!("{}.yaml", run.name));
    let text = text.replace("state: { changelog", "state: { checkpoint: 2s, changelog");
    run.bench.folder.write(&format!("{}.yaml", run.name), &text);
    let mut command = run.tamis(&["run", &format!("{}.yaml", run.name), "-v", "-v"]);
    let mut child = command.spawn().expect("the child runs");
    let said = child.stderr.take().expect("its standard error");
    let lines = std::thread::spawn(move || std::io::read_to_string(said).expect("text"));
    let mut fresh = keys * 2;
    for _ in 0..50 {
        give(run, &mut fresh, 500);
        std::thread::sleep(Duration::from_millis(200));
    }
    terminate(&mut child);
    let lines = lines.join().expect("what it said");
    let mut took: Vec<f64> = Vec::new();
    for line in lines.lines().filter(|line| line.contains("\"checkpoint work\"")) {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        took.push(line["took_us"].as_f64().expect("a number") / 1e3);
    }
    // The last one is written when the run ends, and delays no commit.
    took.pop();
    let p50 = median(&mut took);
    println!(
        "P7    {:<58} {p50:>8.2}ms {:>8.2}ms {:>8}  <= 2 ms (columns: p50, worst)",
        format!("checkpoint work after a commit, {keys} keys"),
        took.last().copied().unwrap_or(0.0),
        took.len()
    );
}
