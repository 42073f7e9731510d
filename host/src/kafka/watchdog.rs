//! Notices partitions that have records and give none: the library has stalled like that after rebalances (librdkafka
//! 2933, 4849). Offsets alone do not prove it, since ends of transactions take offsets too and an open transaction holds
//! records back; so a reader that is no member looks whether it gets one.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer, DefaultConsumerContext};
use rdkafka::message::Message;

use super::client::Clients;
use super::group::{Place, list};

/// Silence that is looked into; it doubles each time that nothing was wrong.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest silence.
const LONGEST: Duration = Duration::from_secs(3600);
/// How long the other reader tries.
const TRY: Duration = Duration::from_secs(15);

/// What is known of each partition.
pub struct Watchdog {
    seen: HashMap<Place, Seen>,
    found: Receiver<Place>,
    tell: Sender<Place>,
}

/// Since when a partition gives nothing.
#[derive(Clone, Copy, Debug)]
struct Seen {
    next: i64,
    since: Instant,
    patience: Duration,
    /// Records were found there that the member did not get.
    stalled: bool,
}

impl Watchdog {
    /// One that has seen nothing.
    pub fn new() -> Watchdog {
        let (tell, found) = channel();
        Watchdog { seen: HashMap::new(), found, tell }
    }

    /// Looks at a partition whose next record is `next`. `waits`: there should be more, and it may be read. True: it is
    /// time to look whether there is a record.
    fn is_suspicious(&mut self, place: &Place, next: i64, waits: bool, now: Instant) -> bool {
        let fresh = Seen { next, since: now, patience: SILENCE, stalled: false };
        let seen = self.seen.entry(place.clone()).or_insert(fresh);
        if next > seen.next {
            *seen = fresh;
        }
        // What was not committed is read again.
        seen.next = next;
        if !waits {
            seen.since = now;
            return false;
        }
        if now.duration_since(seen.since) < seen.patience {
            return false;
        }
        (seen.since, seen.patience) = (now, (seen.patience * 2).min(LONGEST));
        true
    }

    /// As `is_suspicious`, and lets somebody look if so. `committed_only`: as the source reads.
    pub fn look(&mut self, clients: &Clients, place: &Place, next: i64, waits: bool) {
        if !self.is_suspicious(place, next, waits, Instant::now()) {
            return;
        }
        let (clients, place, tell) = (clients.clone(), place.clone(), self.tell.clone());
        let looking = std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            if has_record(&clients, &place, next) {
                // A run that is over does not hear it.
                let _ = tell.send(place);
            }
        });
        drop(looking);
    }

    /// A partition that has records which its member does not get; and whether it was so before, and to read it again
    /// did not help.
    pub fn found(&mut self) -> Option<(Place, bool)> {
        let place = self.found.try_recv().ok()?;
        let seen = self.seen.get_mut(&place)?;
        seen.patience = SILENCE;
        Some((place, std::mem::replace(&mut seen.stalled, true)))
    }

    /// A partition is read elsewhere.
    pub fn forget(&mut self, places: &[Place]) {
        self.seen.retain(|place, _| !places.contains(place));
    }
}

/// Whether there is a record from an offset on.
fn has_record(clients: &Clients, place: &Place, next: i64) -> bool {
    let Ok(reader) = clients.witness().create::<BaseConsumer<DefaultConsumerContext>>() else { return false };
    if reader.assign(&list([(place, Some(next))])).is_err() {
        return false;
    }
    let began = Instant::now();
    while began.elapsed() < TRY {
        match reader.poll(Duration::from_millis(200)) {
            Some(Ok(message)) if message.offset() >= next => return true,
            // Nothing is there after all.
            Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => return false,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_looked_into_when_records_wait_and_ever_less_often() {
        let mut dog = Watchdog::new();
        let (place, begin): (Place, _) = (("t".into(), 0), Instant::now());
        let mut at = |seconds: u64, next: i64, waits: bool| {
            dog.is_suspicious(&place, next, waits, begin + Duration::from_secs(seconds))
        };
        assert!(!at(0, 5, true));
        assert!(!at(59, 5, true));
        assert!(at(60, 5, true));
        assert!(!at(61, 5, true), "once");
        assert!(!at(179, 5, true) && at(180, 5, true), "the next time after twice as long");
        assert!(!at(190, 6, true) && !at(249, 6, true) && at(250, 6, true), "a record came");
        assert!(!at(300, 7, true) && !at(350, 7, false), "it may not be read");
        assert!(!at(400, 7, true) && at(410, 7, true));
    }

    #[test]
    fn a_partition_that_is_silent_again_after_it_was_read_again_needs_another_member() {
        let mut dog = Watchdog::new();
        let place: Place = ("t".into(), 0);
        let mut finds = |next: i64| {
            dog.is_suspicious(&place, next, true, Instant::now());
            dog.tell.send(place.clone()).ok();
            dog.found().map(|(_, again)| again)
        };
        assert_eq!((finds(5), finds(5), finds(3)), (Some(false), Some(true), Some(true)));
        assert_eq!((finds(6), finds(6)), (Some(false), Some(true)), "records came in between");
        dog.forget(&[place.clone()]);
        dog.tell.send(place).ok();
        assert_eq!(dog.found(), None, "it is read elsewhere");
    }
}
