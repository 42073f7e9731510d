//! P4: how much later a record is in the output topic than in the input topic, at half of what goes through at most.
//!
//! Both topics carry the time at which the broker appended a record, in ms; records are told apart by the time in their
//! value. The generator is this process, so that it shares the machine with both sides.

use std::collections::HashMap;
use std::process::Command;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::Producer;
use rdkafka::{Offset, TopicPartitionList};

use crate::kafka_job::{Bench, PARTITIONS, Run, click, key, measured, repeated, send};
use crate::median;

/// How long records are sent, and how much of the beginning does not count.
const LENGTH: Duration = Duration::from_secs(10);
const WARM_UP: u64 = 2;
/// Records of the run that finds out what full load is.
const FULL: u64 = 1_000_000;

pub fn p4() {
    let full = {
        let bench = Bench::new("full", FULL, click);
        let mut rates: Vec<f64> = (0..3)
            .map(|_| {
                let run = bench.run("full");
                let file = run.pipeline("at-least-once", true, "");
                measured(run.tamis(&["run", &file.to_string_lossy()]));
                FULL as f64 / run.span().as_secs_f64()
            })
            .collect();
        median(&mut rates)
    };
    let rate = (full / 2.0) as u64;
    println!("P4    half of {full:.0} records/s drained at least once: {rate} records/s");
    for round in 0..3 {
        for (what, ours) in [("copy", false), ("at least once", true)] {
            let bench = Bench::new("late", 0, click);
            let run = bench.run("late");
            let command = match ours {
                true => {
                    let file = run.pipeline("at-least-once", false, "");
                    run.tamis(&["run", &file.to_string_lossy()])
                }
                false => run.copy("follow"),
            };
            let late = latencies(&run, command, rate);
            let of = |part: usize| late.get(late.len().saturating_sub(1) * part / 1000).copied().unwrap_or(-1);
            let target = if ours { "p50 <= 5 ms, p99 <= 20 ms" } else { "-" };
            println!(
                "P4    {:<58} p50 {} p90 {} p99 {} p99.9 {} ms  {target}",
                format!("added latency, {what}, round {round}, {} records", late.len()),
                of(500),
                of(900),
                of(990),
                of(999),
            );
        }
    }
}

/// Added latencies in ms, sorted, of records that a child passes on while they come at a rate.
fn latencies(run: &Run<'_>, mut command: Command, rate: u64) -> Vec<i64> {
    // Nobody reads what it says.
    let mut child = command.stderr(std::process::Stdio::null()).spawn().expect("the child runs");
    let (bench, producer) = (run.bench, run.bench.producer("1"));
    let client = run.client();
    let mut number = 0;
    let mut give = |count: u64| {
        for _ in 0..count {
            send(&producer, &bench.source, key(repeated(number)).as_bytes(), &click(number));
            number += 1;
        }
    };
    // It is there when the first record has come out.
    give(1);
    let is_out = |p| client.fetch_watermarks(&run.sink, p, Duration::from_secs(20)).expect("offsets").1 > 0;
    while !(0..PARTITIONS).any(is_out) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let began = Instant::now();
    let mut given = 0;
    while began.elapsed() < LENGTH {
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
        give(due - given);
        given = due;
        std::thread::sleep(Duration::from_millis(1));
    }
    producer.flush(Duration::from_secs(60)).expect("the input arrives");
    std::thread::sleep(Duration::from_secs(2));
    child.kill().and_then(|()| child.wait()).expect("the child ends");
    let (came, left) = (stamps(run, &bench.source), stamps(run, &run.sink));
    let counts = |number: &i64| *number >= (rate * WARM_UP) as i64;
    let late = left.iter().filter(|(number, _)| counts(number));
    let mut late: Vec<i64> = late.filter_map(|(number, at)| Some(at - came.get(number)?)).collect();
    late.sort_unstable();
    late
}

/// When each record of a topic was appended, ms, by its number.
fn stamps(run: &Run<'_>, topic: &str) -> HashMap<i64, i64> {
    let client = run.client();
    let mut list = TopicPartitionList::new();
    (0..PARTITIONS).for_each(|p| list.add_partition_offset(topic, p, Offset::Beginning).expect("an offset"));
    client.assign(&list).expect("assigned");
    let (mut found, mut ended) = (HashMap::new(), 0);
    while ended < PARTITIONS {
        match client.poll(Duration::from_secs(10)).expect("records come") {
            Ok(message) => {
                let value = message.payload().expect("a value");
                let time: i64 = std::str::from_utf8(&value[6..19]).expect("digits").parse().expect("a time");
                found.insert(time - 1_700_000_000_000, message.timestamp().to_millis().expect("a time"));
            }
            Err(KafkaError::PartitionEOF(_)) => ended += 1,
            Err(error) => panic!("{topic}: {error}"),
        }
    }
    found
}
