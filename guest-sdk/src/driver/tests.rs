//! Three small keyed guests under random cuts, limits of wakes and fresh instances; and that the harness notices a host
//! or a guest that breaks the rules.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use crate::kit::{Cutting, Line, Random, Record, Run, State, Stream, check_cuts, run};
use crate::{Check, ExpiresBy, Keyed, Kind, NEVER, Out, Row, Slot, Stamp, Verdict, Window};

/// Time, input, number of the row: what decides among rows of one entry and among equal wakes.
fn rank(row: &Row<'_>) -> [u8; 18] {
    let mut rank = [0; 18];
    let time = row.time();
    rank[..8].copy_from_slice(&(time.time as u64 ^ 1 << 63).to_be_bytes());
    rank[8..10].copy_from_slice(&time.input.to_be_bytes());
    rank[10..].copy_from_slice(&row.cell(0).as_i64().unwrap().to_be_bytes());
    rank
}

fn time_of(rank: &[u8]) -> i64 {
    (u64::from_be_bytes(rank[..8].try_into().unwrap()) ^ 1 << 63) as i64
}

fn check_of(counters: &[&str]) -> Check {
    let mut check = Check::of(&["arrival"], &[]);
    check.counters = counters.iter().map(|name| name.to_string()).collect();
    check.traits.wants_time = true;
    check
}

/// Keep first by event time, emitted when final. The value is the rank of the candidate; empty once it is out.
struct FirstFinal {
    ranks: bool,
}

impl Keyed for FirstFinal {
    fn check(_: &Value, _: &Value) -> Check {
        check_of(&["duplicates"])
    }
    fn open(params: &Value, _: &Value) -> Result<FirstFinal, String> {
        Ok(FirstFinal { ranks: params["ranks"] != json!(false) })
    }
    fn expires_by(&self) -> ExpiresBy {
        ExpiresBy::Seen
    }
    fn one_space(&self) -> bool {
        true
    }
    fn row(&mut self, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
        let new = rank(row);
        match slot.value() {
            Some([]) => {
                out.count(0, 1);
                Verdict::Duplicate
            }
            _ if row.time().time < row.seen().time => Verdict::Late,
            Some(kept) if new[..] >= *kept => {
                out.count(0, 1);
                Verdict::Duplicate
            }
            _ => {
                slot.put(&new, NEVER);
                slot.keep(0, row);
                slot.wake_at(row.time(), if self.ranks { &new } else { &[] });
                Verdict::Held
            }
        }
    }
    fn wake(&mut self, at: Stamp, slot: &mut Slot<'_>, out: &mut Out) {
        out.emit_kept(slot, 0, Kind::Insert, None);
        slot.put(&[], at.time + 12);
        slot.let_go(0);
    }
}

/// Keep last in hopping windows of 10 every 5: a space per window, an entry removed when it closes.
struct Hopping;

impl Keyed for Hopping {
    fn check(_: &Value, _: &Value) -> Check {
        check_of(&["late assignments"])
    }
    fn open(_: &Value, _: &Value) -> Result<Hopping, String> {
        Ok(Hopping)
    }
    fn expires_by(&self) -> ExpiresBy {
        ExpiresBy::Seen
    }
    fn spaces(&self, row: &Row<'_>, into: &mut Vec<i64>) {
        let first = row.time().time.div_euclid(5) * 5 + 5;
        into.extend([first, first + 5]);
    }
    fn row(&mut self, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
        let end = slot.space();
        if Stamp::at(end) <= row.seen() {
            out.count(0, 1);
            return Verdict::Late;
        }
        let new = rank(row);
        if slot.value().is_some_and(|kept| time_of(kept) > time_of(&new)) {
            slot.winner(0);
            return Verdict::Duplicate;
        }
        slot.put(&new, NEVER);
        slot.keep(0, row);
        slot.wake_at(Stamp::at(end), &new);
        Verdict::Held
    }
    fn wake(&mut self, at: Stamp, slot: &mut Slot<'_>, out: &mut Out) {
        let window = Window { start: at.time - 10, end: at.time };
        out.emit_kept(slot, 0, Kind::Insert, Some(window));
        slot.remove();
    }
}

/// Keep first in sessions of gap 4. The value is a list of sessions: lowest and highest time, number of the image, rank.
/// The wake is that of the session that closes first.
struct Session;

#[derive(Clone, Debug)]
struct Open {
    low: i64,
    high: i64,
    image: u8,
    rank: Vec<u8>,
}

const GAP: i64 = 4;

impl Open {
    fn closes(&self) -> Stamp {
        Stamp::after(self.high + GAP)
    }
    fn read(value: Option<&[u8]>) -> Vec<Open> {
        let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
        let open = |bytes: &[u8]| Open {
            low: number(&bytes[..8]),
            high: number(&bytes[8..16]),
            image: bytes[16],
            rank: bytes[17..].to_vec(),
        };
        value.unwrap_or_default().chunks(35).map(open).collect()
    }
    fn write(list: &[Open], slot: &mut Slot<'_>) {
        let Some(first) = list.iter().min_by(|a, b| (a.closes(), &a.rank).cmp(&(b.closes(), &b.rank))) else {
            return slot.remove();
        };
        let mut value = Vec::new();
        for open in list {
            value.extend(open.low.to_le_bytes());
            value.extend(open.high.to_le_bytes());
            value.push(open.image);
            value.extend(&open.rank);
        }
        slot.put(&value, NEVER);
        slot.wake_at(first.closes(), &first.rank);
    }
}

impl Keyed for Session {
    fn check(_: &Value, _: &Value) -> Check {
        check_of(&[])
    }
    fn open(_: &Value, _: &Value) -> Result<Session, String> {
        Ok(Session)
    }
    fn expires_by(&self) -> ExpiresBy {
        ExpiresBy::Seen
    }
    fn row(&mut self, row: &Row<'_>, slot: &mut Slot<'_>, _: &mut Out) -> Verdict {
        let time = row.time().time;
        let all = Open::read(slot.value());
        let (near, mut rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|open| open.low - GAP <= time && time <= open.high + GAP);
        if near.is_empty() && Stamp::after(time + GAP) <= row.seen() {
            return Verdict::Late;
        }
        let free = |rest: &[Open], near: &[Open]| {
            (0..=u8::MAX).find(|n| rest.iter().chain(near).all(|open| open.image != *n)).unwrap()
        };
        let mut joined = Open { low: time, high: time, image: free(&rest, &near), rank: rank(row).to_vec() };
        let mine = joined.image;
        for open in &near {
            joined.low = joined.low.min(open.low);
            joined.high = joined.high.max(open.high);
            if open.rank < joined.rank {
                (joined.image, joined.rank) = (open.image, open.rank.clone());
            }
        }
        let kept = joined.image;
        rest.push(joined);
        Open::write(&rest, slot);
        for open in near.iter().filter(|open| open.image != kept) {
            slot.let_go(open.image);
        }
        if kept == mine {
            slot.keep(mine, row);
            return Verdict::Held;
        }
        slot.winner(kept);
        Verdict::Duplicate
    }
    fn wake(&mut self, at: Stamp, slot: &mut Slot<'_>, out: &mut Out) {
        let (mut over, open): (Vec<_>, Vec<_>) =
            Open::read(slot.value()).into_iter().partition(|open| open.closes() <= at);
        over.sort_by(|a, b| a.rank.cmp(&b.rank));
        let first = over.remove(0);
        let window = Window { start: first.low, end: first.high + GAP };
        out.emit_kept(slot, first.image, Kind::Insert, Some(window));
        let left: Vec<_> = open.into_iter().chain(over).collect();
        slot.let_go(first.image);
        Open::write(&left, slot);
    }
}

fn random_stream(random: &mut Random) -> Stream {
    let inputs = [1, 1, 2, 3][random.below(4) as usize];
    let count = 1 + random.below(40) as i64;
    let mut base = 0;
    let records = (0..count).map(|number| {
        base += [0, 0, 1, 1, 2, 15][random.below(6) as usize];
        let time = (base - random.below(7) as i64).max(0);
        let key = ["a", "b", "c"][random.below(3) as usize];
        Record::new(key, time).input(random.below(inputs) as u16).int(number)
    });
    let records = records.collect();
    Stream::event(records, [0, 0, 2, 5][random.below(4) as usize])
}

fn check<K: Keyed>(params: Value) {
    for seed in 0..400 {
        let stream = random_stream(&mut Random::new(seed));
        check_cuts::<K>(&params, &json!({}), &stream, seed, 6);
    }
}

#[test]
fn cuts_change_nothing_for_first_final() {
    check::<FirstFinal>(json!({}));
}

#[test]
fn cuts_change_nothing_for_hopping_windows() {
    check::<Hopping>(json!({}));
}

#[test]
fn cuts_change_nothing_for_sessions() {
    check::<Session>(json!({}));
}

/// How many of so many streams a mutant changes.
fn differences<K: Keyed>(mutant: crate::kit::Mutant) -> usize {
    let mut differences = 0;
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let stream = random_stream(&mut random);
        let go = |cutting: &Cutting| -> Option<Run> {
            let mut state = State::with(mutant);
            let run = || run::<K>(&json!({}), &json!({}), &stream, cutting, &mut state).unwrap();
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).ok()
        };
        let reference = go(&Cutting::whole());
        let other = (0..4).any(|_| go(&Cutting::random(&stream, &mut random)) != reference);
        differences += usize::from(other);
    }
    differences
}

#[test]
fn a_host_that_loses_ranks_is_noticed() {
    assert_eq!(differences::<Hopping>(crate::kit::Mutant::None), 0);
    assert!(differences::<Hopping>(crate::kit::Mutant::NoRanks) > 0);
}

#[test]
fn a_wake_that_is_not_cancelled_is_noticed() {
    assert!(differences::<FirstFinal>(crate::kit::Mutant::NoCancel) > 0);
}

#[test]
fn a_wake_that_is_not_renewed_is_noticed() {
    assert_eq!(differences::<Renewing>(crate::kit::Mutant::None), 0);
    assert!(differences::<Renewing>(crate::kit::Mutant::NoRenewal) > 0);
}

/// Emits the last row of each window of 10, and gives no rank: the order of setting decides.
struct Renewing;

impl Keyed for Renewing {
    fn check(_: &Value, _: &Value) -> Check {
        check_of(&[])
    }
    fn open(_: &Value, _: &Value) -> Result<Renewing, String> {
        Ok(Renewing)
    }
    fn expires_by(&self) -> ExpiresBy {
        ExpiresBy::Seen
    }
    fn spaces(&self, row: &Row<'_>, into: &mut Vec<i64>) {
        into.push(row.time().time.div_euclid(10) * 10 + 10);
    }
    fn row(&mut self, row: &Row<'_>, slot: &mut Slot<'_>, _: &mut Out) -> Verdict {
        let end = Stamp::at(slot.space());
        if end <= row.seen() {
            return Verdict::Late;
        }
        slot.put(b"x", NEVER);
        slot.keep(0, row);
        slot.wake_at(end, &[]);
        Verdict::Held
    }
    fn wake(&mut self, _: Stamp, slot: &mut Slot<'_>, out: &mut Out) {
        out.emit_kept(slot, 0, Kind::Insert, None);
        slot.remove();
    }
}

#[test]
fn the_example_of_the_contract_comes_out_as_written_there() {
    let records = vec![
        Record::new("z", 98).int(0),
        Record::new("a", 100).int(1),
        Record::new("b", 99).int(2),
        Record::new("a", 101).int(3),
        Record::new("c", 103).int(4),
    ];
    let run = check_cuts::<FirstFinal>(&json!({}), &json!({}), &Stream::event(records, 0), 1, 20);
    let lines = run.lines.iter().map(|line| match line {
        Line::Record { record, verdict, .. } => format!("{record}:{verdict}"),
        Line::Out { record, wake, .. } => format!("out {record} at {}", wake.unwrap().time),
    });
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines, ["0:6", "out 0 at 98", "1:6", "out 1 at 100", "2:5", "3:4", "4:6", "out 4 at 103"]);
    assert_eq!(run.counts, [1]);
}

/// Says of each space what the text of the row says: one letter per space.
struct Spelled;

impl Keyed for Spelled {
    fn check(_: &Value, _: &Value) -> Check {
        Check::of(&["value.says"], &[])
    }
    fn open(_: &Value, _: &Value) -> Result<Spelled, String> {
        Ok(Spelled)
    }
    fn expires_by(&self) -> ExpiresBy {
        ExpiresBy::Now
    }
    fn spaces(&self, row: &Row<'_>, into: &mut Vec<i64>) {
        into.extend(0..row.text(0).unwrap().len() as i64);
    }
    fn row(&mut self, row: &Row<'_>, slot: &mut Slot<'_>, out: &mut Out) -> Verdict {
        match row.text(0).unwrap().as_bytes()[slot.space() as usize] {
            b'l' => Verdict::Late,
            b'd' => Verdict::Drop,
            b'D' => Verdict::Duplicate,
            b'h' => Verdict::Held,
            b'k' => Verdict::Keep,
            b'o' => {
                out.emit_row(row, Kind::Insert, None);
                Verdict::Output
            }
            _ => {
                out.emit_row(row, Kind::Insert, None);
                out.fail(row, crate::Failure::permanent("no", "no"));
                Verdict::Output
            }
        }
    }
    fn wake(&mut self, _: Stamp, _: &mut Slot<'_>, _: &mut Out) {}
}

#[test]
fn of_several_verdicts_the_weightiest_counts_and_a_failure_above_all() {
    let says = ["ll", "lD", "Dd", "hD", "loh", "kl", "", "d", "of"];
    let records = says.iter().map(|says| Record::new("a", 0).text(says)).collect();
    let run = check_cuts::<Spelled>(&json!({}), &json!({}), &Stream::timeless(records), 3, 10);
    let verdicts = run.lines.iter().filter_map(|line| match line {
        Line::Record { verdict, .. } => Some(*verdict),
        Line::Out { .. } => None,
    });
    assert_eq!(verdicts.collect::<Vec<_>>(), [5, 4, 4, 6, 2, 0, 0, 1, 3]);
    let emitted = run.lines.iter().filter(|line| matches!(line, Line::Out { .. })).count();
    assert_eq!(emitted, 1, "what a failed row emitted is gone");
    assert_eq!(run.failures, [("no".to_string(), 8)]);
}
