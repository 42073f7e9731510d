//! A model of how time flows through a chain of keyed stages: rows carry the watermark they see, wakes fire between
//! rows, a stage maps a batch to a batch. It is independent of the host (no code is shared) and shows why the design
//! works: any cut into batches, any limit on wakes per call and any restart gives the rows, in the order, of one record
//! per batch; and no row is made late by the chain itself. Each of its mutants breaks that.

mod chain;
mod stages;

use chain::{Came, Chain, Event, Mutant};
use stages::{Keep, Mode};

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

/// Chains of one to three stages; what updates stands last.
fn chains() -> Vec<Vec<Mode>> {
    let tumbling = |size| move |keep| Mode::Tumbling { keep, size };
    let session = |gap| move |keep| Mode::Session { keep, gap };
    let close = |ttl| move |keep| Mode::HorizonClose { keep, ttl };
    vec![
        vec![Mode::Final],
        vec![tumbling(10)(Keep::Last)],
        vec![session(4)(Keep::Last)],
        vec![Mode::Horizon { ttl: 6 }],
        vec![close(6)(Keep::Last)],
        vec![Mode::Updating { keep: Keep::First }],
        vec![Mode::Updating { keep: Keep::Last }],
        vec![Mode::Corrected { keep: Keep::Last, size: 5, lateness: 3 }],
        vec![Mode::Final, tumbling(10)(Keep::First)],
        vec![tumbling(5)(Keep::Last), session(7)(Keep::Last)],
        vec![Mode::Horizon { ttl: 4 }, tumbling(10)(Keep::First)],
        vec![close(5)(Keep::First), Mode::Corrected { keep: Keep::First, size: 8, lateness: 2 }],
        vec![tumbling(5)(Keep::First), Mode::Updating { keep: Keep::Last }],
        vec![Mode::Final, tumbling(5)(Keep::Last), session(7)(Keep::First)],
        vec![session(3)(Keep::First), tumbling(20)(Keep::Last), Mode::Final],
        vec![tumbling(5)(Keep::Last), close(9)(Keep::Last), Mode::Horizon { ttl: 11 }],
    ]
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
    let mut events = Vec::new();
    for id in 0..1 + dice.below(40) {
        base += dice.one_of(&[0, 0, 1, 1, 2, 15]);
        if idle.is_some() && dice.below(3) == 0 {
            now += dice.one_of(&[1, 2, 5, 9]);
            events.push(Event::Clock(now));
        }
        if restarts && dice.below(12) == 0 {
            events.push(Event::Restart);
        }
        let (input, key) = (dice.below(inputs) as usize, dice.below(3));
        events.push(Event::Row { id, key, input, time: (base - dice.below(7)).max(0) });
    }
    Stream { inputs: inputs as usize, delay: dice.one_of(&[0, 0, 2, 5]), idle, events }
}

/// How batches are cut: `cut` of 0 is one record per batch.
fn run(stream: &Stream, modes: &[Mode], cut: i64, limit: usize, mutant: Mutant, dice: &mut Dice) -> Came {
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

/// The first stream whose result depends on cuts, limits or restarts, or that the chain made late.
fn broken(mutant: Mutant, streams: u64) -> Option<u64> {
    let chains = chains();
    (0..streams).find(|&seed| {
        let mut dice = Dice(seed);
        let modes = &chains[(seed % chains.len() as u64) as usize];
        let stream = stream(&mut dice, true);
        let reference = run(&stream, modes, 0, usize::MAX, mutant, &mut dice);
        let differs = (0..4).any(|_| {
            let (cut, limit) = (dice.one_of(&[2, 5, 1000]), dice.one_of(&[1, 2, 3, usize::MAX]));
            run(&stream, modes, cut, limit, mutant, &mut dice) != reference
        });
        // Without idle timers a restart is nothing; with them it starts the timers anew.
        let restarted = stream.idle.is_none() && {
            let mut calm = Stream { events: Vec::new(), ..stream };
            calm.events = stream.events.iter().filter(|e| !matches!(e, Event::Restart)).cloned().collect();
            run(&calm, modes, 5, usize::MAX, mutant, &mut dice) != reference
        };
        differs || restarted || reference.made_late > 0
    })
}

#[test]
fn cuts_limits_and_restarts_change_nothing() {
    assert_eq!(broken(Mutant::None, 20_000), None, "the stream of this seed differs");
}

#[test]
fn every_mutant_is_found() {
    for mutant in Mutant::ALL {
        assert!(broken(mutant, 20_000).is_some(), "{mutant:?} goes unseen");
    }
}
