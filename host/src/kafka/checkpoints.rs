//! Checkpoints of tasks on Kafka: a copy of the state, in pieces of different moments (rounds.rs), so that a restart need
//! not read the changelog from its beginning. Never the truth: the state that comes of one is proved against the token, and a wrong one is
//! deleted.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::buried::Buried;
use super::changelog::Marker;
use super::group::Place;
use super::reading::Reading;
use crate::checkpoint::Checkpoint;
use crate::format::{self, Kind};

/// An older one is not used: tombstones of what was taken away since may be gone (`delete.retention.ms` less an hour).
const OLDEST: Duration = Duration::from_secs(23 * 3600);

/// Where the checkpoints of one process are.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Head {
    offset: i64,
    /// Seconds since 1970.
    made: u64,
    marker: Marker,
    /// Spaces that were dropped and of which something is left in the changelog, by stage.
    open: Vec<(String, i64)>,
    /// Numbers of the sheaves that stand in it, by stage.
    sheaves: Vec<(String, Vec<u128>)>,
}

impl Checkpoints {
    /// Those below a directory that this process alone uses.
    pub fn below(dir: &Path) -> Checkpoints {
        Checkpoints { dir: dir.join("checkpoints") }
    }

    fn folder(&self, (topic, partition): &Place) -> PathBuf {
        self.dir.join(format!("{topic}-{partition}"))
    }

    /// What a checkpoint says of itself: an offset of the changelog from before its round began, what the last commit
    /// before that said, and what `buried` knows of its changelog. Its age counts from now.
    pub fn head(offset: i64, marker: Marker, buried: &Buried, place: &Place) -> Option<Vec<u8>> {
        let (open, sheaves) = (buried.open(place), buried.sheaves(place));
        format::payload(&Head { offset, made: now(), marker, open, sheaves }).ok()
    }

    /// The store of a task, to write to.
    pub fn open(&self, changelog: &str, place: &Place) -> Checkpoint {
        Checkpoint::open(&self.folder(place), identity(changelog, place))
    }

    /// Reads the checkpoint of a task, if there is one that may be used; true: it was whole. `is_in`: whether the changelog
    /// has an offset. What was read is to be proved all the same, or to be thrown away.
    pub fn read(&self, changelog: &str, place: &Place, is_in: impl Fn(i64) -> bool, reading: &mut Reading) -> bool {
        if !self.folder(place).exists() {
            return false;
        }
        let head = |bytes: &[u8]| format::from_payload::<Head>(bytes).ok();
        let may_be_used = |bytes: &[u8]| {
            let Some(head) = head(bytes) else { return false };
            let is_young = now().checked_sub(head.made).is_some_and(|age| age <= OLDEST.as_secs());
            if !is_young {
                tracing::info!("the checkpoint of {}/{} is too old: the changelog is read", place.0, place.1);
            }
            // Else the changelog is not the one it was made from.
            is_young && is_in(head.offset)
        };
        let mut damaged = false;
        let mut checkpoint = self.open(changelog, place);
        let found = checkpoint.read_each(may_be_used, |part| match format::read_task(Kind::Snapshot, &part) {
            Ok((_, pieces)) => pieces.into_iter().for_each(|piece| reading.apply(&piece.stage, piece.changes)),
            Err(_) => damaged = true,
        });
        let Some(head) = found.as_deref().and_then(head).filter(|_| !damaged) else { return false };
        reading.begin(head.offset, head.marker, head.open, head.sheaves);
        true
    }

    /// Deletes the checkpoint of a task.
    pub fn delete(&self, place: &Place) {
        // What is not there need not be deleted; what stays is proved again before it is used.
        let _ = std::fs::remove_dir_all(self.folder(place));
    }
}

/// A checkpoint of another changelog is none.
fn identity(changelog: &str, place: &Place) -> u128 {
    xxh3_128(format!("{changelog}\0{}\0{}", place.0, place.1).as_bytes())
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::sync::Arc;

    use super::*;
    use crate::keyed::Change;
    use crate::task::{self, Sealed};

    fn marker() -> Marker {
        Marker { token: "t".into(), next: Vec::new(), partitions: 1, task: task::Marker::blank(), stages: Vec::new() }
    }

    /// Whether a checkpoint is used that was made so many seconds ago, at offset 7, where the changelog has the offsets
    /// from `low` on.
    fn is_used(name: &str, age: u64, low: i64, changelog: &str) -> bool {
        let dir = std::env::temp_dir().join(format!("tamis-checkpoints-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let (checkpoints, place) = (Checkpoints::below(&dir), (Arc::from("topic"), 3));
        let head = Head { offset: 7, made: now() - age, marker: marker(), open: Vec::new(), sheaves: Vec::new() };
        let mark = crate::format::StoredMark { expires: 1, offset: 2, input: 0, born: 0 };
        let piece = vec![Change::Marks { space: 0, marks: vec![(9, Some(mark))] }];
        let piece = Sealed { stage: "d".into(), identity: "{}".into(), changes: piece, ..Sealed::default() };
        let part = format::write_task(Kind::Snapshot, &head.marker.task, &[piece]).unwrap();
        assert!(checkpoints.open("changelog", &place).write(&format::payload(&head).unwrap(), [part]));
        let mut reading = Reading::new(Arc::default());
        let used = checkpoints.read(changelog, &place, |offset| offset >= low, &mut reading);
        let found = reading.done().states.first().map_or(0, |(_, keyed)| keyed.stats().marks);
        assert_eq!(found, u64::from(used), "{name}");
        let _ = std::fs::remove_dir_all(&dir);
        used
    }

    #[test]
    fn a_checkpoint_is_used_while_it_is_young_and_its_changelog_has_what_follows() {
        assert!(is_used("good", 22 * 3600, 7, "changelog"));
        // Tombstones of what was taken away since may be gone.
        assert!(!is_used("old", 24 * 3600, 0, "changelog"));
        // The changelog begins behind it.
        assert!(!is_used("behind", 0, 8, "changelog"));
        assert!(!is_used("other", 0, 0, "another changelog"));
    }
}
