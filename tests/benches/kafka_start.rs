//! P6 on Kafka: from the start of the process to the first record in the output.
//!
//! An idempotent producer that is in no transactions, as that of at least once, asks for its id half a second after it was
//! made and no sooner, whatever is set: that is the client library's (`rd_kafka_idemp_init`), and in the figure.

use std::path::Path;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::Producer;

use crate::kafka_job::{Bench, PARTITIONS, Run, cpu, key, now, send, stamp};
use crate::kafka_watch::{Watched, from_env, say};
use crate::median;

const ROUNDS: u64 = 7;
/// Longest time until records come out, seconds.
const LONGEST: u64 = 120;

/// P6 on Kafka: guests are compiled already, topics are there, nobody else is in the group.
pub fn p6() {
    let mut fresh = 0;
    for delivery in ["at-least-once", "exactly-once"] {
        let bench = Bench::new("start", 0, small);
        let run = bench.run(delivery);
        let file = run.pipeline(delivery, false, "");
        // The first start makes its topics, which is not what is asked.
        start(&run, &file, &mut fresh);
        let starts: Vec<Start> =
            (0..from_env("TAMIS_BENCH_ROUNDS", ROUNDS)).map(|_| start(&run, &file, &mut fresh)).collect();
        let of = |what: fn(&Start) -> f64| median(&mut starts.iter().map(what).collect::<Vec<f64>>());
        println!(
            "P6    {:<58} {:>8.0}ms {:>10} {:>8}  <= 300 ms ({:.0} ms to one of each of {PARTITIONS} partitions, {:.0} ms until all are committed)",
            format!("start to the first record in the output, {delivery}"),
            of(|s| s.first),
            "-",
            "-",
            of(|s| s.all),
            of(|s| s.seen)
        );
    }
}

/// What a start took until there was a record in the output, and one of every partition, ms as the broker stamps them.
pub struct Start {
    pub first: f64,
    pub all: f64,
    /// When a reader of what is committed could see all of them.
    pub seen: f64,
    /// CPU until then, seconds.
    pub cpu: f64,
    /// What it said.
    pub said: String,
}

/// A click of few bytes.
pub fn small(number: u64) -> Vec<u8> {
    format!("{{\"ip\":\"{}\",\"url\":\"/{number:09}\"}}", key(number)).into_bytes()
}

/// Starts, and waits until a new record of every partition has come out; then it is asked to stop.
pub fn start(run: &Run<'_>, file: &Path, fresh: &mut u64) -> Start {
    let client = run.client();
    let ends: Vec<i64> = (0..PARTITIONS).map(|p| out(&client, &run.sink, p)).collect();
    give(run, fresh, 1);
    let command = run.tamis(&["run", &file.to_string_lossy(), "-v"]);
    let began = now();
    let mut child = Watched::start(command, &run.name, &run.log());
    child.wait_for("every partition has a record out", Duration::from_secs(LONGEST), || {
        let came = (0..PARTITIONS).filter(|&p| out(&client, &run.sink, p) > ends[p as usize]).count();
        if came == PARTITIONS as usize { Ok(()) } else { Err(format!("{came} of {PARTITIONS}")) }
    });
    let cpu = cpu(&child.id().to_string(), 11).as_secs_f64();
    let seen = now() - began;
    let said = child.stop();
    let stopped = now() - began - seen;
    let came = |p: i32| stamp(&client, &run.sink, p, |_, _| ends[p as usize], false).expect("a record");
    let mut came: Vec<f64> = (0..PARTITIONS).map(|p| (came(p) - began) as f64).collect();
    came.sort_by(f64::total_cmp);
    let (first, all) = (came[0], came[came.len() - 1]);
    say(&format!("{}: records out after {first} to {all} ms, seen after {seen} ms, stopped in {stopped} ms", run.name));
    Start { first, all, seen: seen as f64, cpu, said }
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

/// Where a partition of the output ends.
pub fn out(client: &BaseConsumer, topic: &str, partition: i32) -> i64 {
    client.fetch_watermarks(topic, partition, Duration::from_secs(20)).expect("offsets").1
}
