//! Topics that get more partitions while there is state: keys that are in a new partition now were in others before, and
//! are not known in the new one. Old partitions go on, new ones are not read until somebody decides (reliability 4.8).

use super::group::Place;
use super::restore::{Found, Job};
use crate::files::Trouble;

/// The word for a topic that has got more partitions than there is state for.
pub const PARTITION_COUNT_CHANGED: &str = "partition_count_changed";

/// A topic has more partitions than its changelog, and what can be done about it.
pub fn grown(topic: &str, before: u32, now: i32, changelog: &str, brokers: &str) -> Trouble {
    Trouble::new(
        format!(
            "{PARTITION_COUNT_CHANGED}: {topic} had {before} partitions, now at least {now}: keys that moved are not known in their new partition"
        ),
        format!(
            "stop, let the state have as many (kafka-topics.sh --bootstrap-server {brokers} --alter --topic {changelog} --partitions {now}), and run again, which counts a key that moved as new once; or give the pipeline a new `name`, which begins with empty state"
        ),
    )
}

impl Job {
    /// Takes new partitions out of what is asked for, and says so. False: that is the end of it.
    pub(super) fn set_grown_aside(&mut self) -> bool {
        let all = std::mem::take(&mut self.places);
        let (grown, places): (Vec<Place>, Vec<Place>) = all.into_iter().partition(|place| self.is_new(place));
        self.places = places;
        let Some(place) = grown.first() else { return true };
        let why = self.grown(place);
        // Who reads to the end and leaves some out has not read to the end.
        let bounded = self.until.is_some();
        self.answer(if bounded { Found::Failed(why) } else { Found::Grown(grown, why) });
        !bounded
    }

    /// Whether a partition came when there was state already: keys that are in it now were in others before (4.8).
    fn is_new(&self, (topic, partition): &Place) -> bool {
        let known = self.partitions.get(topic).copied().unwrap_or(u32::MAX);
        self.changelogs.contains_key(topic) && u32::try_from(*partition).is_ok_and(|partition| partition >= known)
    }

    fn grown(&self, (topic, partition): &Place) -> Trouble {
        let count = self.partitions.get(topic).copied().unwrap_or_default();
        let changelog = self.changelogs.get(topic).map_or("", String::as_str);
        grown(topic, count, *partition + 1, changelog, self.clients.brokers())
    }
}
