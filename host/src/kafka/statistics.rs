//! How far the library has fetched each partition, as its statistics say. Ends of transactions take offsets and are no
//! records: only the library knows that behind the last record nothing else is to be read.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use serde::Deserialize;

use super::group::Place;

/// Where the next fetch of each partition begins.
#[derive(Debug, Default)]
pub struct Fetched(Mutex<HashMap<Place, i64>>);

#[derive(Deserialize)]
struct Statistics {
    #[serde(default)]
    topics: HashMap<String, Topic>,
}

#[derive(Deserialize)]
struct Topic {
    #[serde(default)]
    partitions: HashMap<String, Partition>,
}

#[derive(Deserialize)]
struct Partition {
    partition: i32,
    next_offset: i64,
}

impl Fetched {
    /// Takes over what statistics say. Such that cannot be read are left out: then more lag is told than there is.
    pub fn hear(&self, json: &[u8]) {
        let Ok(statistics) = serde_json::from_slice::<Statistics>(json) else { return };
        let mut all = self.all();
        for (topic, said) in statistics.topics {
            for said in said.partitions.into_values().filter(|said| said.next_offset >= 0) {
                all.insert((topic.as_str().into(), said.partition), said.next_offset);
            }
        }
    }

    /// The next offset to be fetched of a partition. What is below it has been handed out, or is no record.
    pub fn of(&self, place: &Place) -> Option<i64> {
        self.all().get(place).copied()
    }

    /// A partition is read from somewhere else from now on.
    pub fn forget(&self, place: &Place) {
        self.all().remove(place);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Place, i64>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_say_where_the_next_fetch_begins() {
        let fetched = Fetched::default();
        let said = r#"{ "name": "x", "topics": { "a.b": { "age": 7, "partitions": {
            "3": { "partition": 3, "fetch_state": "active", "next_offset": 12, "hi_offset": 12 },
            "-1": { "partition": -1, "next_offset": -1001 } } } } }"#;
        fetched.hear(said.as_bytes());
        fetched.hear(b"{ nonsense");
        let place = |partition| ("a.b".into(), partition);
        assert_eq!((fetched.of(&place(3)), fetched.of(&place(-1)), fetched.of(&place(0))), (Some(12), None, None));
        fetched.forget(&place(3));
        assert_eq!(fetched.of(&place(3)), None);
    }
}
