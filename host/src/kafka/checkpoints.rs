//! Checkpoints of tasks on Kafka: a copy of the state, in pieces of different moments (rounds.rs), so that a restart need
//! not read the changelog from its beginning. Never the truth: the state that comes of one is proved against the token, and a wrong one is
//! deleted.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

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
    /// before that said, and the spaces of which something was left to be taken away. Its age counts from now.
    pub fn head(offset: i64, marker: Marker, open: Vec<(String, i64)>) -> Option<Vec<u8>> {
        format::payload(&Head { offset, made: now(), marker, open }).ok()
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
        reading.begin(head.offset, head.marker, head.open);
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
