//! P5, P10: keyed state alone.

use std::time::Instant;

use tamis::batch::{Batch, Column};
use tamis::guest::call::{Stamps, State};
use tamis::keyed::{Begin, Keyed, Settings};
use tamis::time::{NEVER, Stamp};

const ROWS: usize = 1024;

fn keys(from: u64) -> Vec<u128> {
    let mix = |n: u64| {
        u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(n.wrapping_mul(0xc2b2_ae3d_27d4_eb4f) ^ n)
    };
    (from..from + ROWS as u64).map(mix).collect()
}

/// A call without rows in which nothing is due.
pub fn nothing() -> Begin {
    Begin {
        batch: Batch::default(),
        rows: Vec::new(),
        keys: Vec::new(),
        output_keys: None,
        times: Vec::new(),
        seen: Vec::new(),
        end: Stamp::START,
        now: 0,
        limit: 0,
    }
}

fn begin(from: u64) -> Begin {
    let batch = Batch { rows: crate::chain::batches(0, crate::chain::at)[0].rows.clone(), ..Batch::default() };
    Begin { batch, rows: (0..ROWS as u32).collect(), keys: keys(from), end: Stamp::START, ..nothing() }
}

/// Bytes a mark takes and the cost of a check-and-set as the table grows.
pub fn p5() {
    let mut keyed = Keyed::new(Settings::default());
    let template = begin(0);
    let mut costs = Vec::new();
    let resident = || -> f64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or_default() * 4096.0
    };
    let before = resident();
    let total = 10_000_000u64;
    let (mut done, mut time) = (0u64, 0u128);
    while done < total {
        let start_of = Begin { keys: keys(done), ..template.clone() };
        let start = Instant::now();
        let mut session = keyed.session(start_of);
        session.seen(0, &[NEVER], &[], false).expect("no bound");
        keyed = session.finish().keyed;
        time += start.elapsed().as_nanos();
        keyed.seal();
        done += ROWS as u64;
        if done % (ROWS as u64 * 2048) == 0 {
            costs.push(time as f64 / (ROWS * 2048) as f64);
            time = 0;
        }
    }
    let bytes = (resident() - before) / done as f64;
    println!("P5    {:<58} {bytes:>8.1} B {:>10} {:>8}  <= 46 bytes", "resident bytes a key, 10 M keys", "-", "-");
    let (first, last) = (costs.first().copied().unwrap_or(1.0), costs.last().copied().unwrap_or(1.0));
    println!(
        "P5    {:<58} {last:>8.1}ns {first:>8.1}ns {:>8.2}  first 2 M against last 2 M",
        "insert of a new key",
        first / last
    );
}

/// Closing a million keys at once, at most 4,096 wakes a call.
pub fn p10() {
    let mut keyed = Keyed::new(Settings::default());
    let template = begin(0);
    let total = 1_000_000u64;
    let mut made = 0;
    while made < total {
        let mut session = keyed.session(Begin { keys: keys(made), ..template.clone() });
        let view = session.open(&[], &[10]).expect("rows");
        let mut values = Column::default();
        view.slots.iter().for_each(|_| values.push(0x50, b"value of an entry"));
        session.put(&view.slots, &values, &vec![NEVER; view.slots.len()]).expect("no bound");
        let wakes = Stamps { times: vec![10; view.slots.len()], inputs: Vec::new() };
        session.wake(&view.slots, wakes.of(), &Column::default()).expect("slots");
        keyed = session.finish().keyed;
        keyed.seal();
        made += ROWS as u64;
    }
    let (mut worst, mut all, mut closed) = (0u128, 0u128, 0usize);
    loop {
        let start = Instant::now();
        let empty = Begin { end: Stamp { time: 10, input: 0 }, limit: 4096, ..nothing() };
        let mut session = keyed.session(empty);
        let dues = session.due().expect("first call");
        let slots: Vec<u32> = (0..dues.spaces.len() as u32).collect();
        session.remove(&slots).expect("slots");
        keyed = session.finish().keyed;
        keyed.seal();
        let time = start.elapsed().as_nanos();
        worst = worst.max(time);
        all += time;
        closed += slots.len();
        if slots.is_empty() {
            break;
        }
    }
    println!(
        "P10   {:<58} {:>8.1}ms {:>8.0}ns {:>8}  <= 100 ms; ns a key",
        "closing 1 M keys: longest call",
        worst as f64 / 1e6,
        all as f64 / closed as f64,
        "-"
    );
}
