//! P2, P3: records from topic to topic, against **copy**.

use crate::kafka_job::{Bench, Took, click, measured};
use crate::kafka_watch::from_env;
use crate::median;

/// Records that one run reads.
const RECORDS: u64 = 2_000_000;
const ROUNDS: u64 = 5;

/// What the rounds of one variant gave.
#[derive(Default)]
struct Rounds {
    /// ns a record: between the first and the last one that left.
    passing: Vec<f64>,
    /// CPU ns a record of the whole process.
    cpu: Vec<f64>,
    /// Durations of commits, ms: whole, and from "all delivered" on.
    whole: Vec<f64>,
    tail: Vec<f64>,
}

impl Rounds {
    fn add(&mut self, took: &Took, span: f64, records: u64) {
        self.passing.push(span * 1e9 / records as f64);
        self.cpu.push(took.cpu.as_nanos() as f64 / records as f64);
        for line in took.said.lines().filter(|line| line.contains("\"committed\"")) {
            let number = |name: &str| {
                let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
                line[name].as_f64().expect("a number") / 1e3
            };
            self.whole.push(number("whole_us"));
            self.tail.push(number("delivered_us"));
        }
    }
}

fn records() -> u64 {
    from_env("TAMIS_BENCH_RECORDS", RECORDS)
}

fn rounds() -> u64 {
    from_env("TAMIS_BENCH_ROUNDS", ROUNDS)
}

/// P2: at least once. P3: exactly once against at least once, and how long a close takes.
pub fn race(p2: bool, p3: bool) {
    let bench = Bench::new("race", records(), click);
    let (mut copy, mut least, mut exactly) = (Rounds::default(), Rounds::default(), Rounds::default());
    for _ in 0..rounds() {
        if p2 {
            let run = bench.run("copy");
            let took = measured(&run, "P2 copy", run.copy("end"));
            copy.add(&took, run.span().as_secs_f64(), bench.records);
        }
        for (delivery, rounds, wanted) in [("at-least-once", &mut least, true), ("exactly-once", &mut exactly, p3)] {
            if !wanted {
                continue;
            }
            let run = bench.run(delivery);
            let file = run.pipeline(delivery, true, "");
            let command = run.tamis(&["run", &file.to_string_lossy(), "-v", "-v"]);
            let took = measured(&run, &format!("P2, P3 {delivery}"), command);
            let (all, new) = (bench.records, bench.records / 4 * 3);
            assert!(took.said.contains(&format!("{all} in, {new} out")), "three in four are new: {}", took.said);
            rounds.add(&took, run.span().as_secs_f64(), bench.records);
        }
    }
    if p2 {
        let (ours, theirs) = (median(&mut least.passing), median(&mut copy.passing));
        crate::report("P2", "topic to topic at least once; copy", ours, theirs, ">= 0.70");
        let (ours, theirs) = (median(&mut least.cpu), median(&mut copy.cpu));
        println!(
            "P2    {:<58} {ours:>8.1}ns {theirs:>8.1}ns {:>8.2}  <= 1.6 (ours / copy)",
            "CPU of the whole process a record; copy",
            ours / theirs
        );
    }
    if p3 {
        let (ours, theirs) = (median(&mut exactly.passing), median(&mut least.passing));
        crate::report("P3", "the same exactly once; at least once", ours, theirs, ">= 0.90");
        let (ours, theirs) = (median(&mut exactly.cpu), median(&mut least.cpu));
        crate::report("P3", "CPU of the whole process a record; at least once", ours, theirs, "-");
        for (name, rounds) in [("exactly once", &mut exactly), ("at least once", &mut least)] {
            for (what, list, target) in [
                ("all delivered to committed", &mut rounds.tail, "p99 <= 15 ms"),
                ("a whole close at saturation", &mut rounds.whole, "p99 <= 50 ms"),
            ] {
                let p50 = median(list);
                let p99 = list[(list.len() - 1) * 99 / 100];
                println!(
                    "P3    {:<58} {p50:>8.1}ms {p99:>8.1}ms {:>8}  {target} (columns: p50, p99)",
                    format!("{what}, {name}"),
                    list.len()
                );
            }
        }
    }
}
