//! Which windows a time is in (T3, T4), as plainly as can be.

use super::table::{MINUTE, Window};

const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Instants at which a zone's clock changes, and what it adds to UTC before and from then on; seconds, minutes.
type Change = (i64, i64, i64);

/// The clocks of some zones, around the changes that tests are about.
fn changes(zone: &str) -> &'static [Change] {
    match zone {
        "Europe/Paris" => &[(1_616_893_200, 60, 120), (1_635_642_000, 120, 60)],
        "America/Sao_Paulo" => &[(1_541_300_400, -180, -120), (1_550_368_800, -120, -180)],
        "Australia/Lord_Howe" => &[(1_617_462_000, 660, 630), (1_633_188_600, 630, 660)],
        _ => &[],
    }
}

/// Every zone there is.
pub const ZONES: [&str; 3] = ["Europe/Paris", "America/Sao_Paulo", "Australia/Lord_Howe"];

/// The instant of a change of a zone's clock.
pub fn change(zone: &str, number: usize) -> i64 {
    changes(zone)[number].0 * 1_000_000_000
}

/// What a zone adds to UTC at an instant.
fn added(zone: &str, at: i64) -> i64 {
    let changes = changes(zone);
    let first = changes.first().map_or(0, |(_, before, _)| *before);
    let past = changes.iter().filter(|(instant, ..)| at >= instant * 1_000_000_000);
    past.last().map_or(first, |(.., after)| *after) * MINUTE
}

/// The instants at which a local clock shows a reading; one that it skips counts as shown right after the gap.
fn shown(zone: &str, reading: i64) -> Vec<i64> {
    let mut sums: Vec<i64> = changes(zone).iter().flat_map(|(_, before, after)| [*before, *after]).collect();
    sums.sort_unstable();
    sums.dedup();
    let instants = sums.iter().map(|minutes| reading - minutes * MINUTE);
    let instants: Vec<i64> = instants.filter(|at| at + added(zone, *at) == reading).collect();
    if !instants.is_empty() {
        return instants;
    }
    let skips = |(instant, before, after): &&Change| {
        let instant = instant * 1_000_000_000;
        instant + before * MINUTE <= reading && reading < instant + after * MINUTE
    };
    changes(zone).iter().filter(skips).map(|(instant, ..)| instant * 1_000_000_000).collect()
}

/// The window of a zone that a time is in.
fn in_zone(zone: &str, size: i64, offset: i64, time: i64) -> (i64, i64) {
    let offset = offset.rem_euclid(size);
    let days = (size / DAY).max(1);
    let today = (time + added(zone, time)).div_euclid(DAY);
    let mut starts = Vec::new();
    for day in today - days - 2..=today + days + 2 {
        if day.rem_euclid(days) != 0 {
            continue;
        }
        let readings = if size >= DAY { 1 } else { DAY / size };
        for reading in 0..readings {
            starts.extend(shown(zone, day * DAY + reading * size.min(DAY) + offset));
        }
    }
    starts.sort_unstable();
    let start = starts.iter().copied().filter(|start| *start <= time).next_back().unwrap_or(time);
    let end = starts.iter().copied().find(|start| *start > time).unwrap_or(time);
    (start, end)
}

/// Every aligned window that covers a time, by end and then by start.
pub fn covering(window: &Window, time: i64) -> Vec<(i64, i64)> {
    let floor = |size: i64, offset: i64| (time - offset).div_euclid(size) * size + offset;
    let mut windows = match *window {
        Window::Tumbling { size, offset, zone: Some(zone) } => vec![in_zone(zone, size, offset, time)],
        Window::Tumbling { size, offset, zone: None } => vec![(floor(size, offset), floor(size, offset) + size)],
        Window::Hopping { size, slide, offset } => {
            let last = floor(slide, offset);
            let starts = (0..).map(|n| last - n * slide).take_while(|start| start + size > time);
            starts.map(|start| (start, start + size)).collect()
        }
        Window::Cumulative { size, step, offset } => {
            let start = floor(size, offset);
            let ends = (1..=size / step).map(|n| start + n * step).filter(|end| *end > time);
            ends.map(|end| (start, end)).collect()
        }
        _ => Vec::new(),
    };
    windows.sort_unstable_by_key(|(start, end)| (*end, *start));
    windows
}
