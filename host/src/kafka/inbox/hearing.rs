//! What the group, the restoring threads and the watchdog say, and what the inbox makes of it.

use std::sync::atomic::Ordering;

use super::super::group::{Place, Said, names};
use super::super::grown::PARTITION_COUNT_CHANGED;
use super::super::restore::{Answer, Found};
use super::KafkaInbox;
use crate::files::Trouble;
use crate::worker::{Event, Inbox};

impl KafkaInbox<'_> {
    /// What the group and the restoring threads say; an event if the worker must act.
    pub(super) fn hear(&mut self) -> Result<Option<Event>, Trouble> {
        while let Some(said) = self.member.hear() {
            match said {
                Said::Assign(places) => {
                    self.assigned = true;
                    tracing::info!("assigned: {}", names(&places));
                    if places.is_empty() {
                        self.member.assign(&[])?;
                    } else {
                        self.ask(places)?;
                    }
                }
                Said::Revoke { places, lost } => {
                    // Those that are still being restored, too: their tasks may be kept from before.
                    let inputs: Vec<u16> = places.iter().filter_map(|p| self.numbers.get(p).copied()).collect();
                    tracing::info!("{}: {}", if lost { "lost" } else { "revoked" }, names(&places));
                    self.asked.retain(|place| !places.contains(place));
                    (self.leaving, self.were_lost) = (Some(places), lost);
                    // Even if no task leaves: what a commit left open that took too long is ended then.
                    if inputs.is_empty() && lost {
                        self.left()?;
                    } else {
                        return Ok(Some(Event::Leave { inputs, lost }));
                    }
                }
                Said::Fatal(code) => {
                    self.member.fail(code)?;
                    return Ok(Some(self.leave_all()));
                }
                Said::Refused(code) if !self.assigned => {
                    return Err(Trouble::new(
                        format!("Kafka does not let this user read: {code}"),
                        format!(
                            "it needs READ on the topics of the source and on the group {}",
                            self.job.clients.group
                        ),
                    ));
                }
                Said::Refused(code) => tracing::warn!("kafka: {code}"),
                Said::Away if !std::mem::replace(&mut self.away, true) => {
                    tracing::warn!("no broker answers at {}: waiting", self.job.clients.brokers());
                    if let Some((seat, ..)) = &self.seat {
                        seat.away(Some("no broker answers"));
                    }
                }
                Said::Away => {}
                Said::Trouble(text) => tracing::debug!("kafka: {text}"),
            }
        }
        while let Ok(Answer(epoch, found)) = self.answers.try_recv() {
            if epoch != self.job.epoch {
                continue;
            }
            match found {
                Found::Progress(place, read, left) => {
                    if let Some((seat, ..)) = &self.seat {
                        seat.restoring(&place.0, place.1, read, left);
                    }
                }
                Found::Grown(places, why) => self.set_aside(places, &why),
                Found::Begins(begins) => self.begin(begins)?,
                Found::State(place, restored) => {
                    if let Some(event) = self.restored(&place, *restored)? {
                        return Ok(Some(event));
                    }
                }
                Found::Kept(place, became, token) => {
                    if let Some(event) = self.kept(&place, became, token) {
                        return Ok(Some(event));
                    }
                }
                Found::Failed(trouble) => return Err(trouble),
            }
        }
        if let Some((place, again)) = self.watchdog.found() {
            if again {
                self.member.replace(&format!("records of {} wait, and it does not get them", names(&[place])))?;
                return Ok(Some(self.leave_all()));
            }
            tracing::warn!(topic = &*place.0, partition = place.1, "records wait and are not handed out: read again");
            return Ok(Some(Event::Leave { inputs: Vec::new(), lost: true }));
        }
        Ok(None)
    }

    /// The member is gone, and with it whatever it had.
    fn leave_all(&mut self) -> Event {
        let inputs = self.owned.iter().map(|o| o.input).collect();
        self.job.cancelled.store(true, Ordering::Relaxed);
        self.job.epoch += 1;
        let owned = self.owned.iter().map(|o| o.place.clone());
        self.leaving = Some(owned.chain(self.asked.drain(..)).chain(self.grown.iter().cloned()).collect());
        (self.assigned, self.were_lost) = (false, true);
        Event::Leave { inputs, lost: true }
    }

    /// New partitions of a topic whose keys were elsewhere before: they are ours, and nobody reads them.
    fn set_aside(&mut self, places: Vec<Place>, why: &Trouble) {
        tracing::error!("{}; {}: not read until then: {}", why.what, why.way_out, names(&places));
        self.asked.retain(|place| !places.contains(place));
        if let Some((seat, ..)) = &self.seat {
            places.iter().for_each(|(topic, partition)| seat.pause(topic, *partition, PARTITION_COUNT_CHANGED));
        }
        self.grown.extend(places);
    }
}
