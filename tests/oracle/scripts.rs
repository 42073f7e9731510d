//! What happens to a stage, step by step, and random settings and streams.

use super::reference::Reference;
use super::table::{Cell, Clock, Code, MINUTE, MS, Output, Window};
use super::windows;
use super::words::{Field, Late, NullKey, Record, Retention, Settings};
use crate::model::Dice;

/// One step of a script; times in nanoseconds.
#[derive(Clone, Debug)]
pub enum Step {
    /// A record comes at this processing time.
    Record(Record, i64),
    Clock(i64),
    Idle(usize),
    Block(usize, bool),
    End(Option<usize>),
    Batch,
    Restart,
    Commit,
    Crash,
    Redeliver(usize),
}

/// Random settings of a cell.
pub fn settings(cell: Cell, dice: &mut Dice) -> Settings {
    let mut cell = cell;
    let unit = unit(&cell.window);
    cell.window = match cell.window {
        Window::Tumbling { size, zone: None, .. } => {
            Window::Tumbling { size, offset: dice.one_of(&[0, 0, 3, -4]) * unit, zone: None }
        }
        Window::Tumbling { .. } => {
            let size = dice.one_of(&[30, 60, 60, 180, 24 * 60, 48 * 60]) * MINUTE;
            Window::Tumbling {
                size,
                offset: dice.one_of(&[0, 0, -90]) * MINUTE,
                zone: Some(dice.one_of(&windows::ZONES)),
            }
        }
        Window::Hopping { .. } => {
            let (size, slide) = dice.one_of(&[(10, 4), (8, 4), (6, 6), (9, 2)]);
            Window::Hopping { size: size * unit, slide: slide * unit, offset: dice.one_of(&[0, 0, 1, -3]) * unit }
        }
        Window::Cumulative { .. } => {
            let (size, step) = dice.one_of(&[(12, 4), (10, 5), (6, 6), (9, 3)]);
            Window::Cumulative { size: size * unit, step: step * unit, offset: dice.one_of(&[0, 0, 2, -5]) * unit }
        }
        Window::Session { .. } => Window::Session { gap: dice.one_of(&[1, 3, 4, 6]) * unit },
        Window::Horizon { access, .. } => Window::Horizon { ttl: dice.one_of(&[3, 5, 8]) * unit, access },
        Window::None => Window::None,
    };
    let code = cell.code(true).unwrap_or(Code::FA);
    let none = cell.window == Window::None;
    let lasts = cell.window.is_aligned() || matches!(cell.window, Window::Session { .. });
    let retention = (none && dice.below(3) == 0).then(|| Retention {
        length: dice.one_of(&[5, 12]) * unit,
        processing: cell.clock == Clock::Processing || (cell.clock == Clock::Event && dice.below(3) == 0),
        access: dice.below(2) == 0,
    });
    let beats = code == Code::Changes && none;
    let delays = if matches!(cell.window, Window::Tumbling { zone: Some(_), .. }) { [0, 30, 120] } else { [0, 2, 5] };
    Settings {
        cell,
        code,
        lateness: if lasts && cell.clock != Clock::Processing { dice.one_of(&[0, 0, 3, 7]) * unit } else { 0 },
        late: match cell.output {
            Output::Upsert => dice.one_of(&[Late::Route, Late::Drop]),
            _ => dice.one_of(&[Late::Route, Late::Route, Late::Drop, Late::Pass]),
        },
        null_key: match cell.output {
            Output::Upsert => dice.one_of(&[NullKey::Dlq, NullKey::Group, NullKey::Drop]),
            _ => dice.one_of(&[NullKey::Pass, NullKey::Dlq, NullKey::Group, NullKey::Drop]),
        },
        max_entries: (none && dice.below(4) == 0 && code != Code::Final).then(|| dice.one_of(&[1, 2])),
        retention,
        heartbeat: (beats && dice.below(3) == 0).then(|| dice.one_of(&[4, 9]) * unit),
        delay: if cell.clock == Clock::Ingestion { 0 } else { dice.one_of(&delays) * unit },
        idle: dice.one_of(&[None, None, Some(6 * unit)]),
        partitions: dice.one_of(&[1, 1, 2, 3]),
    }
}

/// What streams of a window count in: local hours need time to pass.
fn unit(window: &Window) -> i64 {
    if matches!(window, Window::Tumbling { zone: Some(_), .. }) { MINUTE } else { MS }
}

/// A random stream for these settings.
pub fn steps(set: &Settings, dice: &mut Dice) -> Vec<Step> {
    let mut steps = Vec::new();
    let unit = unit(&set.cell.window);
    // Around a change of the clock, or in the first milliseconds of 1970.
    let (mut base, pace) = match set.cell.window {
        Window::Tumbling { zone: Some(zone), .. } => {
            (windows::change(zone, dice.below(2) as usize) / unit - dice.below(400), 23)
        }
        _ => (dice.below(20), 1),
    };
    let mut now = if pace > 1 { base } else { 0 };
    let mut offsets = vec![0; set.partitions];
    let (mut ended, mut said) = (vec![false; set.partitions], 0);
    let clock = set.idle.is_some() || set.cell.clock == Clock::Processing || dice.below(3) == 0;
    for _ in 0..8 + dice.below(30) {
        match dice.below(30) {
            0 => steps.push(Step::Batch),
            1 => steps.push(Step::Restart),
            2 => steps.push(Step::Commit),
            3 if dice.below(2) == 0 => steps.push(Step::Crash),
            4 if set.partitions > 1 => steps.push(Step::Idle(dice.below(set.partitions as i64) as usize)),
            5 if dice.below(3) == 0 && said > 0 => steps.push(Step::Redeliver(1 + dice.below(3) as usize)),
            6 if clock => {
                now += dice.one_of(&[1, 3, 8, 20]) * pace;
                steps.push(Step::Clock(now * unit));
            }
            7 if dice.below(4) == 0 && ended.iter().filter(|e| !**e).count() > 1 => {
                let p = dice.below(set.partitions as i64) as usize;
                ended[p] = true;
                steps.push(Step::End(Some(p)));
            }
            _ => {}
        }
        let p = dice.below(set.partitions as i64) as usize;
        if ended[p] {
            continue;
        }
        if clock && dice.below(3) == 0 {
            now += dice.one_of(&[1, 2, 5]) * pace;
        }
        base += dice.one_of(&[0, 0, 1, 1, 2, 6]) * pace;
        let content = if dice.below(12) == 0 { None } else { Some(dice.below(2).to_string()) };
        let stamp = (dice.below(15) > 0).then(|| (base - dice.below(8) * pace).max(0) * unit);
        // The field of the order stands in the value.
        let number = |n| Some(Field::Number(n));
        let fields = [None, number(1), number(1), number(2), number(3), Some(Field::Boolean(true)), text("x")];
        let field = fields[dice.below(fields.len() as i64) as usize].clone().filter(|_| content.is_some());
        let record = Record {
            key: dice.one_of(&[Some("a"), Some("a"), Some("b"), Some("b"), Some("c"), None]).map(str::to_owned),
            content,
            fields: vec![field],
            stamp,
            event: stamp,
            p,
            o: offsets[p],
        };
        offsets[p] += 1;
        said += 1;
        steps.push(Step::Record(record, now * unit));
    }
    if dice.below(2) == 0 {
        steps.push(Step::End(None));
    }
    steps
}

fn text(text: &str) -> Option<Field> {
    Some(Field::Text(text.to_owned()))
}

/// What the source said, to be said again.
#[derive(Clone)]
enum Word {
    Record(Record),
    Idle(usize),
    End(Option<usize>),
}

fn say(reference: &mut Reference, word: &Word) {
    match word {
        Word::Record(record) => reference.record(record),
        Word::Idle(p) => reference.idle(*p),
        Word::End(p) => reference.end(*p),
    }
}

/// Plays the steps through the reference.
pub fn play(set: &Settings, steps: &[Step]) -> Reference {
    let mut reference = Reference::new(set.clone(), 0);
    let mut saved = None::<Reference>;
    let mut blocked = vec![false; set.partitions];
    let (mut since, mut records): (Vec<Word>, Vec<Record>) = (Vec::new(), Vec::new());
    for step in steps {
        let word = match step {
            Step::Record(record, at) => {
                reference.clock(*at);
                records.push(record.clone());
                Word::Record(record.clone())
            }
            Step::Idle(p) => Word::Idle(*p),
            Step::End(p) => Word::End(*p),
            Step::Clock(to) => {
                reference.clock(*to);
                continue;
            }
            Step::Block(p, is_blocked) => {
                blocked[*p] = *is_blocked;
                reference.block(*p, *is_blocked);
                continue;
            }
            Step::Batch => continue,
            Step::Commit => {
                saved = Some(reference.clone());
                since.clear();
                continue;
            }
            Step::Restart => {
                saved = Some(reference.clone());
                since.clear();
                reference.restart(reference.now);
                block_again(&mut reference, &blocked);
                continue;
            }
            Step::Crash => {
                let now = reference.now;
                reference = saved.clone().unwrap_or_else(|| Reference::new(set.clone(), now));
                reference.restart(now);
                block_again(&mut reference, &blocked);
                since.iter().for_each(|word| say(&mut reference, word));
                continue;
            }
            Step::Redeliver(n) => {
                for record in &records[records.len().saturating_sub(*n)..] {
                    say(&mut reference, &Word::Record(record.clone()));
                    since.push(Word::Record(record.clone()));
                }
                continue;
            }
        };
        say(&mut reference, &word);
        since.push(word);
    }
    reference
}

/// Not reading a partition is the script's word, and holds until it is taken back.
fn block_again(reference: &mut Reference, blocked: &[bool]) {
    for (p, _) in blocked.iter().enumerate().filter(|(_, blocked)| **blocked) {
        reference.block(p, true);
    }
}
