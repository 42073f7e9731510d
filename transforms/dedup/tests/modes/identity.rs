//! Properties that hold for any stream.

use crate::harness::{Given, counter, record, stage};
use serde_json::{Value, json};
use tamis_guest::kit::{Line, Random};

const KEYS: [&str; 3] = ["a", "b", "c"];
const VALUES: [&str; 2] = ["x", "y"];

fn stream(random: &mut Random) -> Vec<Given> {
    let mut below = |n: u64| random.below(n) as i64;
    let count = 5 + below(60);
    let (mut base, mut at) = (0, 0);
    (0..count)
        .map(|_| {
            base += [0, 0, 1, 1, 2, 15][below(6) as usize];
            at += [0, 0, 1, 7][below(4) as usize];
            let given = record(KEYS[below(3) as usize], base - below(7));
            let given = given.input(below(3) as u16).at(at).order(json!(below(4)));
            given.value(VALUES[below(2) as usize])
        })
        .collect()
}

fn modes() -> Vec<Value> {
    let mut modes = Vec::new();
    let windows = [
        json!("none"),
        json!({ "tumbling": "10ms" }),
        json!({ "tumbling": "7ms", "offset": "3ms" }),
        json!({ "horizon": "6ms" }),
    ];
    for window in windows {
        for keep in ["first", "last"] {
            for output in ["append", "upsert"] {
                for emit in ["immediate", "close", "change"] {
                    for (clock, order) in [
                        ("event", json!("time")),
                        ("event", json!("arrival")),
                        ("event", json!(["value.s"])),
                        ("processing", json!("arrival")),
                        ("processing", json!("time")),
                        ("ingestion", json!("arrival")),
                    ] {
                        modes.push(json!({ "window": window, "keep": keep, "output": output, "emit": emit, "clock": clock, "order": order }));
                    }
                }
            }
        }
    }
    modes
}

/// Every record of a stream is accounted for once: first images, losers, replaced ones, late ones. The input ends, so
/// nothing waits.
#[test]
fn records_in_are_first_images_and_losers_and_replaced_and_late() {
    let mut random = Random::new(1);
    let mut tried = 0;
    for params in modes() {
        let test = stage(params.clone()).partitions(3).delay(2);
        if refused(&test) {
            continue;
        }
        for _ in 0..3 {
            let given = stream(&mut random);
            let run = test.run(&given);
            let firsts = run.lines.iter().filter(|line| match line {
                Line::Record { verdict, .. } => *verdict == 0,
                Line::Out { kind, route, .. } => *kind == 0 && *route == 0,
            });
            let told = firsts.count() as u64
                + counter(&run, "duplicates_dropped")
                + counter(&run, "replaced")
                + counter(&run, "late");
            assert_eq!(told, given.len() as u64, "{params}");
            tried += 1;
        }
    }
    assert!(tried > 150, "{tried}");
}

fn refused(test: &crate::harness::Test) -> bool {
    <tamis_dedup::Dedup as tamis_guest::Keyed>::check(&test.params, &test.context).is_refused()
}

/// Keep first: no key leaves twice while its state lives.
#[test]
fn keep_first_without_a_window_lets_each_key_out_once() {
    let mut random = Random::new(2);
    for params in [json!({}), json!({ "order": "time", "emit": "close" }), json!({ "audit": true })] {
        for _ in 0..20 {
            let given = stream(&mut random);
            let run = stage(params.clone()).partitions(3).delay(2).run(&given);
            let mut out: Vec<&str> = run
                .lines
                .iter()
                .filter_map(|line| match line {
                    Line::Record { record, verdict: 0, .. } => Some(given[*record].key),
                    Line::Out { record, route: 0, .. } => Some(given[*record].key),
                    _ => None,
                })
                .collect();
            let all = out.len();
            out.sort_unstable();
            out.dedup();
            assert_eq!(out.len(), all, "{params}");
        }
    }
}
