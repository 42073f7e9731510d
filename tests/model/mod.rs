//! A model of how time flows through a chain of keyed stages: rows carry the watermarks they see, wakes fire between
//! rows, a stage maps a batch to a batch. It is independent of the host (no code is shared) and shows why the design
//! works, for every window, output and clock: any cut into batches, any limit on wakes per call and any restart gives the
//! rows, in the order, of one record per batch; and no row is made late by the chain itself. Each of its mutants breaks
//! that.

mod chain;
mod modes;
mod stages;

use chain::{Came, Chain, Event, Mutant, On};
use stages::{Aligned, Keep, Mode};

/// Numbers from a seed.
pub struct Dice(u64);

impl Dice {
    /// Seeded.
    pub fn of(seed: u64) -> Dice {
        Dice(seed)
    }

    /// The next number below `n`.
    pub fn below(&mut self, n: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as i64
    }

    /// One of some.
    pub fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as i64) as usize]
    }
}

/// Every mode, with several lengths: those that only append first.
fn modes() -> Vec<Mode> {
    let windows = [
        Aligned::Tumbling(5),
        Aligned::Tumbling(10),
        Aligned::Zone,
        Aligned::Hopping(10, 4),
        Aligned::Hopping(6, 3),
        Aligned::Cumulative(12, 4),
    ];
    let mut modes = vec![Mode::Final, Mode::Horizon(6, false), Mode::Horizon(4, true)];
    modes.extend(windows.map(Mode::Marks));
    for keep in [Keep::First, Keep::Last] {
        modes.push(Mode::AtTheEnd(keep));
        modes.extend(windows.map(|windows| Mode::Closed(keep, windows, false)));
        modes.push(Mode::Closed(keep, Aligned::Cumulative(12, 3), true));
        modes.extend([Mode::Session(keep, 4), Mode::Session(keep, 7)]);
        modes.extend([Mode::HorizonClosed(keep, 6, false), Mode::HorizonClosed(keep, 5, true)]);
    }
    for keep in [Keep::First, Keep::Last] {
        modes.push(Mode::Updating(keep));
        modes.extend(windows.map(|windows| Mode::Replaced(keep, windows)));
        modes.extend(windows.map(|windows| Mode::Corrected(keep, windows, 3)));
        modes.extend([Mode::SessionReplaced(keep, 3), Mode::SessionCorrected(keep, 4, 3)]);
    }
    modes
}

/// Chains of one to three stages; what updates stands last.
fn chains() -> Vec<Vec<(Mode, On)>> {
    let modes = modes();
    let clocks = [On::Event, On::Processing, On::Ingestion];
    // Keep first by event time without a window waits for the event clock.
    let fits = |mode: &Mode, on: On| *mode != Mode::Final || on == On::Event;
    let alone = modes.iter().flat_map(|mode| clocks.map(|on| vec![(mode.clone(), on)]));
    let mut chains: Vec<Vec<(Mode, On)>> = alone.filter(|chain| fits(&chain[0].0, chain[0].1)).collect();
    let mut dice = Dice(7);
    let append: Vec<&Mode> = modes.iter().filter(|mode| !mode.updates()).collect();
    let pick = |dice: &mut Dice, last: bool| loop {
        let (all, some) = (modes.len() as i64, append.len() as i64);
        let mode = if last { &modes[dice.below(all) as usize] } else { append[dice.below(some) as usize] };
        let on = dice.one_of(&[On::Event, On::Event, On::Processing, On::Ingestion]);
        if fits(mode, on) {
            break (mode.clone(), on);
        }
    };
    for length in [2, 2, 2, 3, 3].repeat(60) {
        chains.push((1..=length).map(|place| pick(&mut dice, place == length)).collect());
    }
    chains
}

/// A stream: rows of one to three inputs, some time between them, some restarts.
struct Stream {
    inputs: usize,
    delay: i64,
    idle: Option<i64>,
    events: Vec<Event>,
}

fn stream(dice: &mut Dice, restarts: bool) -> Stream {
    let inputs = dice.one_of(&[1, 1, 2, 3]);
    let idle = dice.one_of(&[None, None, Some(3), Some(8)]);
    let (mut base, mut now) = (0, 0);
    let mut appended = vec![0; inputs as usize];
    let mut events = Vec::new();
    for id in 0..1 + dice.below(40) {
        base += dice.one_of(&[0, 0, 1, 1, 2, 15]);
        if dice.below(3) == 0 {
            now += dice.one_of(&[1, 2, 5, 9]);
            events.push(Event::Clock(now));
        }
        if restarts && dice.below(12) == 0 {
            events.push(Event::Restart);
        }
        let (input, key) = (dice.below(inputs) as usize, dice.below(3));
        // Append time does not run backwards.
        appended[input] = (base + dice.below(3)).max(appended[input]);
        events.push(Event::Row { id, key, input, time: (base - dice.below(7)).max(0), appended: appended[input] });
    }
    Stream { inputs: inputs as usize, delay: dice.one_of(&[0, 0, 2, 5]), idle, events }
}

/// How batches are cut: `cut` of 0 is one record per batch.
fn run(stream: &Stream, modes: &[(Mode, On)], cut: i64, limit: usize, mutant: Mutant, dice: &mut Dice) -> Came {
    let mut chain = Chain::new(modes, stream.inputs, stream.delay, stream.idle, limit, mutant);
    let mut batch = Vec::new();
    for event in &stream.events {
        match event {
            Event::Row { .. } => {
                if cut == 0 || dice.below(cut) == 0 {
                    chain.push(std::mem::take(&mut batch));
                }
                batch.push(event.clone());
            }
            Event::Clock(now) => {
                chain.push(std::mem::take(&mut batch));
                chain.clock(*now);
            }
            Event::Restart => {
                chain.push(std::mem::take(&mut batch));
                chain.restart();
            }
        }
    }
    chain.push(batch);
    chain.finish();
    chain.came
}

/// The first stream whose result depends on cuts, limits, steps of the clock or restarts, or that the chain made late.
fn broken(mutant: Mutant, streams: u64) -> Option<u64> {
    let chains = chains();
    (0..streams).find(|&seed| {
        let mut dice = Dice(seed);
        let modes = &chains[(seed % chains.len() as u64) as usize];
        let stream = stream(&mut dice, true);
        let reference = run(&stream, modes, 0, usize::MAX, mutant, &mut dice);
        // Over several clocks a call fires all that is due: parts of one step of time would reach the next clock apart.
        let limits: &[usize] =
            if modes.iter().all(|(_, on)| *on == modes[0].1) { &[1, 2, 3, usize::MAX] } else { &[usize::MAX] };
        let differs = (0..4).any(|_| {
            let (cut, limit) = (dice.one_of(&[2, 5, 1000]), dice.one_of(limits));
            run(&stream, modes, cut, limit, mutant, &mut dice) != reference
        });
        // The clock may take any steps on its way.
        let stepped = run(&in_steps(&stream), modes, 5, usize::MAX, mutant, &mut dice) != reference;
        // Without idle timers a restart is nothing; with them it starts the timers anew.
        let restarted = stream.idle.is_none() && {
            let mut calm = Stream { events: Vec::new(), ..stream };
            calm.events = stream.events.iter().filter(|e| !matches!(e, Event::Restart)).cloned().collect();
            run(&calm, modes, 5, usize::MAX, mutant, &mut dice) != reference
        };
        differs || stepped || restarted || reference.made_late > 0
    })
}

/// The same stream with a clock that goes from instant to instant.
fn in_steps(stream: &Stream) -> Stream {
    let mut now = 0;
    let mut events = Vec::new();
    for event in &stream.events {
        match event {
            Event::Clock(to) => {
                events.extend((now + 1..=*to).map(Event::Clock));
                now = *to;
            }
            other => events.push(other.clone()),
        }
    }
    Stream { events, ..*stream }
}

/// Enough for every chain, many times.
const STREAMS: u64 = 12_000;

#[test]
fn cuts_limits_steps_and_restarts_change_nothing() {
    assert_eq!(broken(Mutant::None, STREAMS), None, "the stream of this seed differs");
}

#[test]
fn every_mutant_is_found() {
    for mutant in Mutant::ALL {
        assert!(broken(mutant, STREAMS).is_some(), "{mutant:?} goes unseen");
    }
}

#[test]
fn every_mode_is_played_on_every_clock_and_says_something() {
    let chains = chains();
    for mode in modes() {
        for on in [On::Event, On::Processing, On::Ingestion] {
            let alone = vec![(mode.clone(), on)];
            if mode == Mode::Final && on != On::Event {
                continue;
            }
            let at = chains.iter().position(|chain| *chain == alone);
            let at = at.unwrap_or_else(|| panic!("{mode:?} on {on:?} is not played")) as u64;
            assert!(at < STREAMS);
            let mut dice = Dice(at + chains.len() as u64);
            let stream = stream(&mut dice, true);
            let came = run(&stream, &alone, 0, usize::MAX, Mutant::None, &mut dice);
            assert!(!came.rows.is_empty(), "{mode:?} on {on:?} is silent");
        }
    }
}
