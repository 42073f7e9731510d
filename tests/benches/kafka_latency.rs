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
use crate::kafka_start::out;
use crate::kafka_watch::{Watched, from_env, say};
use crate::median;

/// How long records are sent, and how much of the beginning does not count.
const LENGTH: Duration = Duration::from_secs(6);
const WARM_UP: u64 = 2;
const ROUNDS: u64 = 3;
/// Records of the runs that find out what full load is, and how many runs.
const FULL: u64 = 500_000;
const FULL_ROUNDS: u64 = 3;
/// How long records may take to come out that have been sent.
const LONGEST: Duration = Duration::from_secs(30);

pub fn p4() {
    let rate = match from_env("TAMIS_BENCH_RATE", 0) {
        0 => half_load(),
        rate => rate,
    };
    let mut medians: [Vec<f64>; 4] = Default::default();
    for round in 0..from_env("TAMIS_BENCH_ROUNDS", ROUNDS) {
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
            let late = latencies(&run, &format!("P4 {what}, round {round}"), command, rate, ours);
            let of = |part: usize| late[(late.len() - 1) * part / 1000];
            println!(
                "P4    {:<58} p50 {} p90 {} p99 {} p99.9 {} ms",
                format!("added latency, {what}, round {round}, {} records", late.len()),
                of(500),
                of(900),
                of(990),
                of(999),
            );
            let at = if ours { 0 } else { 2 };
            medians[at].push(of(500) as f64);
            medians[at + 1].push(of(990) as f64);
        }
    }
    let [p50, p99, copy_p50, copy_p99] = &mut medians;
    for (what, ours, theirs, target) in [("p50", p50, copy_p50, "<= 5 ms"), ("p99", p99, copy_p99, "<= 20 ms")] {
        let (ours, theirs) = (median(ours), median(theirs));
        println!(
            "P4    {:<58} {ours:>8.0}ms {theirs:>8.0}ms {:>8.2}  {target}",
            format!("added latency at {rate} records/s at least once, {what}; copy"),
            theirs.max(1.0) / ours.max(1.0)
        );
    }
}

/// Half of the records/s that go through when they are there already.
fn half_load() -> u64 {
    let records = from_env("TAMIS_BENCH_RECORDS", FULL);
    let bench = Bench::new("full", records, click);
    let mut rates: Vec<f64> = (0..FULL_ROUNDS)
        .map(|round| {
            let run = bench.run("full");
            let file = run.pipeline("at-least-once", true, "");
            measured(&run, &format!("P4 full load, round {round}"), run.tamis(&["run", &file.to_string_lossy()]));
            records as f64 / run.span().as_secs_f64()
        })
        .collect();
    let full = median(&mut rates);
    println!("P4    half of {full:.0} records/s drained at least once: {:.0} records/s", full / 2.0);
    (full / 2.0) as u64
}

/// Added latencies in ms, sorted, of records that a child passes on while they come at a rate.
fn latencies(run: &Run<'_>, what: &str, command: Command, rate: u64, ours: bool) -> Vec<i64> {
    let mut child = Watched::start(command, what, &run.log());
    let (bench, producer) = (run.bench, run.bench.producer("1"));
    let client = run.client();
    let mut number = 0;
    let mut give = |count: u64| {
        for _ in 0..count {
            send(&producer, &bench.source, key(repeated(number)).as_bytes(), &click(number));
            number += 1;
        }
        number
    };
    let came = || (0..PARTITIONS).map(|p| out(&client, &run.sink, p)).sum::<i64>() as u64;
    // It is there when the first record has come out.
    give(1);
    child.wait_for("the first record is out", LONGEST, || if came() > 0 { Ok(()) } else { Err("none is".to_owned()) });
    say(&format!("{what}: {rate} records/s for {} s", LENGTH.as_secs()));
    let began = Instant::now();
    let mut given = 0;
    while began.elapsed() < LENGTH {
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
        give(due - given);
        given = due;
        std::thread::sleep(Duration::from_millis(1));
    }
    let behind = began.elapsed().saturating_sub(LENGTH);
    producer.flush(Duration::from_secs(60)).expect("the input arrives");
    let all = give(0);
    // One in four is a repeat, and stays.
    let expected = if ours { all - all / 4 } else { all };
    let sent = Instant::now();
    child.wait_for("all records are out", LONGEST, || {
        let came = came();
        if came >= expected { Ok(()) } else { Err(format!("{came} of {expected}")) }
    });
    say(&format!("{what}: all out {} ms after the last was sent ({behind:?} late)", sent.elapsed().as_millis()));
    drop(child);
    let (came, left) = (stamps(run, &bench.source), stamps(run, &run.sink));
    let counts = |number: &i64| *number >= (rate * WARM_UP) as i64;
    let late = left.iter().filter(|(number, _)| counts(number));
    let mut late: Vec<i64> = late.filter_map(|(number, at)| Some(at - came.get(number)?)).collect();
    late.sort_unstable();
    assert!(!late.is_empty(), "{what}: no records came out after the first {WARM_UP} s");
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
