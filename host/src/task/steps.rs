//! Time that goes on without records: idle timers, wakes, the end of input.

use std::sync::Arc;

use super::{InputEvent, Task};
use crate::batch::{Batch, Field, Track};
use crate::chain::{Chain, Out, Stop};
use crate::plan::Clock as StageClock;
use crate::time::{Activity, Stamp};

impl Task {
    /// Something happened other than records; `now` is processing time.
    pub fn event(&mut self, chain: &mut Chain, event: InputEvent, now: i64, out: &mut dyn Out) -> Result<(), Stop> {
        self.clock(chain, now, out)?;
        match event {
            InputEvent::Clock => Ok(()),
            InputEvent::Idle(input) => self.turn(chain, &[input], Activity::Idle, out),
            InputEvent::Finished(input) => self.turn(chain, &[input], Activity::Finished, out),
            InputEvent::End => {
                let all: Vec<u16> = (0..self.marker.inputs.len() as u16).collect();
                self.turn(chain, &all, Activity::Finished, out)
            }
            InputEvent::Blocked(input) => {
                if let Some(blocked) = self.blocked.get_mut(usize::from(input)) {
                    *blocked = true;
                }
                Ok(())
            }
            InputEvent::Unblocked(input) => {
                if let Some(blocked) = self.blocked.get_mut(usize::from(input)) {
                    *blocked = false;
                }
                if let Some(heard) = self.heard.get_mut(usize::from(input)) {
                    *heard = now;
                }
                Ok(())
            }
            InputEvent::Watermark(time) => {
                let (event, ingestion) = (self.marker.event.now(), self.marker.ingestion.now());
                for input in 0..self.marker.inputs.len() as u16 {
                    self.marker.event.set(input, time, &self.marker.activity);
                }
                self.step(chain, event, ingestion, out)
            }
        }
    }

    fn turn(&mut self, chain: &mut Chain, inputs: &[u16], to: Activity, out: &mut dyn Out) -> Result<(), Stop> {
        let (event, ingestion) = (self.marker.event.now(), self.marker.ingestion.now());
        for &input in inputs {
            if let Some(activity) = self.marker.activity.get_mut(usize::from(input)) {
                if *activity != Activity::Finished {
                    *activity = to;
                }
            }
        }
        self.marker.event.combine(&self.marker.activity);
        self.marker.ingestion.combine(&self.marker.activity);
        self.step(chain, event, ingestion, out)
    }

    /// A step of time without rows.
    fn step(&mut self, chain: &mut Chain, event: Stamp, ingestion: Stamp, out: &mut dyn Out) -> Result<(), Stop> {
        let span = |evaluated: bool, start: Stamp, end: Stamp| match evaluated {
            true => Track { start: Some(start), end: Some(end), ..Track::default() },
            false => Track::default(),
        };
        let batch = Batch {
            event: span(self.time.evaluated, event, self.marker.event.now()),
            ingestion: span(self.time.ingestion, ingestion, self.marker.ingestion.now()),
            fields: vec![Field::default(); chain.fields()],
            now: self.now,
            ended: self.marker.event.now() == Stamp::END,
            steps: Arc::new(vec![(event, ingestion); usize::from(self.time.evaluated && self.time.ingestion)]),
            ..Batch::default()
        };
        chain.pass(0, batch, &mut self.passing(chain), out)?;
        self.after_the_end(chain, event, ingestion);
        Ok(())
    }

    /// Steps processing time on to `now`, stopping wherever something is due: idle timers and wakes happen at their
    /// instants, in order, however late this is called (W5).
    pub fn clock(&mut self, chain: &mut Chain, now: i64, out: &mut dyn Out) -> Result<(), Stop> {
        while let Some(due) = self.deadline().filter(|&due| due <= now) {
            self.now = self.now.max(due);
            let silent = self.silent();
            if silent.is_empty() {
                let (event, ingestion) = (self.marker.event.now(), self.marker.ingestion.now());
                self.step(chain, event, ingestion, out)?;
            } else {
                self.turn(chain, &silent, Activity::Idle, out)?;
            }
        }
        self.now = self.now.max(now);
        Ok(())
    }

    /// Inputs whose idle timer is over.
    fn silent(&self) -> Vec<u16> {
        let Some(idle) = self.time.idle else { return Vec::new() };
        let inputs = 0..self.marker.inputs.len();
        inputs.filter(|&i| self.timer(i, idle).is_some_and(|due| due <= self.now)).map(|i| i as u16).collect()
    }

    fn timer(&self, input: usize, idle: i64) -> Option<i64> {
        let active = self.marker.activity.get(input) == Some(&Activity::Active);
        let runs = active && !self.held && self.blocked.get(input) == Some(&false);
        runs.then(|| self.heard.get(input).map(|heard| heard.saturating_add(idle))).flatten()
    }

    /// The next processing time, ns, at which something is due.
    pub fn deadline(&self) -> Option<i64> {
        let idle = self.time.idle.filter(|_| self.time.evaluated || self.time.ingestion);
        let timers = idle.and_then(|idle| (0..self.marker.inputs.len()).filter_map(|i| self.timer(i, idle)).min());
        let wakes = self
            .clocks
            .iter()
            .zip(&self.states)
            .filter(|(clock, _)| **clock == StageClock::Processing)
            .filter_map(|(_, state)| state.as_ref()?.next_wake())
            .filter(|wake| wake.time < crate::time::END)
            // A wake with an input is due at the first instant after (T6).
            .map(|wake| if wake.input == 0 { wake.time } else { wake.time.saturating_add(1) })
            .min();
        timers.into_iter().chain(wakes).min()
    }

    /// After the end of bounded input the stored watermark is the greatest of the last one and of the wakes that fired:
    /// what was closed stays closed, and later times are on time (9.6). Inputs may go on in a later run.
    fn after_the_end(&mut self, chain: &Chain, event: Stamp, ingestion: Stamp) {
        if self.marker.event.now() == Stamp::END {
            self.marker.event.move_to(event.max(chain.fired(StageClock::Event)));
        }
        if self.marker.ingestion.now() == Stamp::END {
            self.marker.ingestion.move_to(ingestion.max(chain.fired(StageClock::Ingestion)));
        }
    }
}
