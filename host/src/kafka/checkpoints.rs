//! Checkpoints of tasks on Kafka: a copy of the state as of one commit, so that a restart need not read the changelog
//! from its beginning. Never the truth: the state that comes of one is proved against the token, and a wrong one is
//! deleted.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::changelog::Marker;
use super::group::Place;
use crate::checkpoint::Checkpoint;
use crate::format::{self, Kind};
use crate::keyed::Change;
use crate::task::Sealed;

/// An older one is not used: tombstones of what was taken away since may be gone (`delete.retention.ms` less an hour).
const OLDEST: Duration = Duration::from_secs(23 * 3600);
/// Changes in one piece.
const PIECE: usize = 4096;

/// Where the checkpoints of one process are.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: PathBuf,
}

/// A checkpoint.
#[derive(Debug)]
pub struct Found {
    /// Where in the changelog reading goes on: everything before it is in the state.
    pub offset: i64,
    /// What the commit said.
    pub marker: Marker,
    /// The state, by stage.
    pub states: Vec<Sealed>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    offset: i64,
    /// Seconds since 1970.
    made: u64,
    marker: Marker,
}

impl Checkpoints {
    /// Those below a directory that this process alone uses.
    pub fn below(dir: &Path) -> Checkpoints {
        Checkpoints { dir: dir.join("checkpoints") }
    }

    fn folder(&self, (topic, partition): &Place) -> PathBuf {
        self.dir.join(format!("{topic}-{partition}"))
    }

    /// Writes the state of a task. If that fails there is none, which costs a longer restart and nothing else.
    pub fn write(&self, changelog: &str, place: &Place, offset: i64, marker: Marker, states: &[Sealed]) {
        let made = now();
        let task = marker.task.clone();
        let Ok(head) = format::payload(&Head { offset, made, marker }) else { return };
        let mut checkpoint = Checkpoint::open(&self.folder(place), identity(changelog, place));
        checkpoint.begin(&head);
        for state in states {
            let empty: &[&[Change]] = &[&[]];
            let pieces: Vec<&[Change]> = state.changes.chunks(PIECE).collect();
            for changes in if pieces.is_empty() { empty } else { &pieces } {
                let piece =
                    Sealed { stage: state.stage.clone(), identity: state.identity.clone(), changes: changes.to_vec() };
                match format::write_task(Kind::Snapshot, &task, &[piece]) {
                    Ok(part) => checkpoint.put(part),
                    Err(error) => return tracing::warn!("no checkpoint: {error}"),
                }
            }
        }
        checkpoint.finish();
        for trouble in checkpoint.troubles() {
            tracing::warn!("the checkpoint of {}/{} was begun anew (nothing is lost): {trouble}", place.0, place.1);
        }
    }

    /// The checkpoint of a task, if there is one that may be used.
    pub fn read(&self, changelog: &str, place: &Place) -> Option<Found> {
        let folder = self.folder(place);
        if !folder.exists() {
            return None;
        }
        let mut checkpoint = Checkpoint::open(&folder, identity(changelog, place));
        let (head, parts) = checkpoint.read()?;
        let head: Head = format::from_payload(&head).ok()?;
        let age = now().checked_sub(head.made)?;
        if age > OLDEST.as_secs() {
            tracing::info!("the checkpoint of {}/{} is too old: the changelog is read", place.0, place.1);
            return None;
        }
        let mut states: Vec<Sealed> = Vec::new();
        for part in parts {
            let (_, sealed) = format::read_task(Kind::Snapshot, &part).ok()?;
            for sealed in sealed {
                match states.last_mut().filter(|last| last.stage == sealed.stage) {
                    Some(last) => last.changes.extend(sealed.changes),
                    None => states.push(sealed),
                }
            }
        }
        Some(Found { offset: head.offset, marker: head.marker, states })
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
