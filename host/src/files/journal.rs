//! The commit journal: one record makes positions, state and output durable together (reliability, section 4.9).
//!
//! A commit appends output to the sinks and syncs them, then appends one record here and syncs it. Only then is it a
//! commit: whatever happens before leaves the last record as the truth, and the sinks are cut back to it.
//!
//! The journal is a chain of segments, `journal-N`. Each begins with the whole state and goes on with the changes of every
//! commit; when the changes have outgrown the state, a new one is begun. A segment is written beside the last one and
//! takes its name when it is complete; the one before stays until the next, so that a damaged one can be passed over.
//!
//! Checkpoints (checkpoint.rs) make a restart short: state from the checkpoint, changes from the commit it names on.
//! Without one, or with a damaged one, everything comes from the segment.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Trouble;
use super::place::StateDir;
use super::sink::SinkPosition;
use super::source::Position;
use crate::checkpoint::Checkpoint;
use crate::format::{self, Bytes, FormatError, Kind};
use crate::task::{Marker, Sealed};

/// What one commit says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Number of the commit; rises by one.
    pub number: u64,
    /// Made once for a journal, so that a checkpoint of another one is known.
    run: u128,
    /// Whether the run came to its end with it: what stands in the sinks behind it is somebody else's.
    pub clean: bool,
    /// Where each source file stands.
    pub source: Position,
    /// How long each sink file is.
    pub sinks: Vec<SinkPosition>,
    /// Every task: its marker, and what changed in its state, in the envelope of format.rs.
    tasks: Vec<Bytes>,
}

/// What the journal knew when it was opened.
#[derive(Debug)]
pub struct Last {
    /// The last commit.
    pub commit: Commit,
    /// For every task its marker, and its state as changes in the order of the commits.
    pub tasks: Vec<(Marker, Vec<Sealed>)>,
}

/// The journal of one pipeline, open for appending.
#[derive(Debug)]
pub struct Journal {
    dir: StateDir,
    file: Option<File>,
    segment: u64,
    number: u64,
    run: u128,
    /// Bytes of the segment, of its first record, and up to its last one.
    length: u64,
    base: u64,
    last: u64,
    checkpoint: Option<Checkpoint>,
}

/// Where in the journal a checkpoint belongs: the commit it was made after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Token {
    segment: u64,
    offset: u64,
}

/// A piece of a checkpoint: some of the state of one task.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    task: u32,
    state: Bytes,
}

/// Folder of the checkpoints.
const CHECKPOINT: &str = "checkpoint";
/// Changes in one piece of a checkpoint.
const PIECE: usize = 4096;
/// A segment may grow to this size in any case, and to so many times its whole state.
const SMALL: u64 = 16 << 20;
const GROWTH: u64 = 4;

impl Journal {
    /// Opens the journal in a state directory, and tells what it knows.
    pub fn open(dir: StateDir) -> Result<(Journal, Option<Last>), Trouble> {
        let mut segments = segments(dir.path())?;
        segments.sort_unstable();
        let mut damage = None;
        while let Some(segment) = segments.pop() {
            let path = name(dir.path(), segment);
            let bytes = std::fs::read(&path).map_err(|e| Trouble::io("read", &path, &e))?;
            let (run, base) = match first(&bytes) {
                Ok(found) => found,
                Err(error) => {
                    damage = damage.or(Some((path, error)));
                    continue;
                }
            };
            let folder = dir.path().join(CHECKPOINT);
            let mut checkpoint = folder.exists().then(|| Checkpoint::open(&folder, run));
            let start = checkpoint.as_mut().and_then(Checkpoint::read).and_then(|found| Start::of(found, segment));
            let followed = start.and_then(|start| follow(&bytes, start).ok());
            match followed.map_or_else(|| follow(&bytes, Start::default()), Ok) {
                Ok(Followed { last, start, length }) => {
                    let file = File::options().write(true).open(&path).map_err(|e| Trouble::io("open", &path, &e))?;
                    // What a kill left behind the last commit.
                    file.set_len(length).map_err(|e| Trouble::io("cut back", &path, &e))?;
                    let (file, number) = (Some(file), last.commit.number);
                    let mut journal =
                        Journal { dir, file, segment, number, run, length, base, last: start, checkpoint };
                    journal.to_the_end()?;
                    return Ok((journal, Some(last)));
                }
                Err(error) => damage = damage.or(Some((path, error))),
            }
        }
        match damage {
            None => {
                let (file, checkpoint, run) = (None, None, nonce());
                let (segment, number, length, base, last) = (0, 0, 0, 0, 0);
                Ok((Journal { dir, file, segment, number, run, length, base, last, checkpoint }, None))
            }
            Some((path, error)) => Err(Trouble::new(
                format!("the journal {} cannot be read: it is {error}", path.display()),
                match error {
                    FormatError::Version(_) => "run the version of tamis that wrote it".to_owned(),
                    _ => format!("put a copy back, or remove {} to start without state", dir.path().display()),
                },
            )),
        }
    }

    /// Where the state lives.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Makes a commit. The sinks must be synced before.
    pub fn commit(
        &mut self,
        source: Position,
        sinks: Vec<SinkPosition>,
        tasks: &[(&Marker, Vec<Sealed>)],
        clean: bool,
    ) -> Result<(), Trouble> {
        let bytes = self.record(source, sinks, tasks, clean)?;
        let path = name(self.dir.path(), self.segment);
        let trouble = |e| Trouble::io("write", &path, &e);
        let Some(file) = &mut self.file else {
            return Err(Trouble::new("the journal has no segment", "this is a defect of tamis: report it"));
        };
        let written = file.write_all(&bytes).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // A half record must not stand before the next one.
            let _ = file.set_len(self.length);
            return Err(trouble(error));
        }
        self.last = self.length;
        self.length += bytes.len() as u64;
        self.number += 1;
        Ok(())
    }

    /// Whether there is no segment yet.
    pub fn is_new(&self) -> bool {
        self.file.is_none()
    }

    /// Whether the changes have outgrown the state, so that a new segment would be shorter.
    pub fn is_long(&self) -> bool {
        self.length > SMALL.max(self.base * GROWTH)
    }

    /// Writes a checkpoint: the whole state as it is after the last commit. If it fails the one before holds, or none.
    pub fn checkpoint(&mut self, tasks: &[(&Marker, Vec<Sealed>)]) {
        let Ok(token) = format::payload(&Token { segment: self.segment, offset: self.last }) else { return };
        let folder = self.dir.path().join(CHECKPOINT);
        let run = self.run;
        let checkpoint = self.checkpoint.get_or_insert_with(|| Checkpoint::open(&folder, run));
        let before = checkpoint.troubles().len();
        checkpoint.begin(&token);
        for (task, (marker, states)) in tasks.iter().enumerate() {
            for piece in pieces(states) {
                let state = format::write_task(Kind::Snapshot, marker, &[piece]);
                let part =
                    state.and_then(|s| format::encode(Kind::Bucket, &Part { task: task as u32, state: Bytes(s) }));
                match part {
                    Ok(part) => checkpoint.put(part),
                    // The round is not finished: it is no checkpoint.
                    Err(error) => return tracing::warn!("no checkpoint: {error}"),
                }
            }
        }
        checkpoint.finish();
        for trouble in checkpoint.troubles().iter().skip(before) {
            tracing::warn!("the checkpoint was begun anew (nothing is lost, the journal has it all): {trouble}");
        }
    }

    /// Begins a new segment with a commit that holds the whole state, and lets go of the segment before the last one.
    pub fn begin(
        &mut self,
        source: Position,
        sinks: Vec<SinkPosition>,
        tasks: &[(&Marker, Vec<Sealed>)],
        clean: bool,
    ) -> Result<(), Trouble> {
        let bytes = self.record(source, sinks, tasks, clean)?;
        let folder = self.dir.path().to_path_buf();
        let path = name(&folder, self.segment + 1);
        let new = path.with_extension("new");
        let trouble = |e| Trouble::io("write", &new, &e);
        let mut file = File::create(&new).map_err(trouble)?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(trouble)?;
        std::fs::rename(&new, &path).map_err(|e| Trouble::io("rename", &new, &e))?;
        // The name must last, too, before anything relies on it.
        File::open(&folder).and_then(|f| f.sync_all()).map_err(|e| Trouble::io("sync", &folder, &e))?;
        for segment in segments(&folder)?.into_iter().filter(|&s| s < self.segment) {
            let _ = std::fs::remove_file(name(&folder, segment));
        }
        self.file = Some(file);
        self.segment += 1;
        self.number += 1;
        self.length = bytes.len() as u64;
        self.base = self.length;
        self.last = 0;
        Ok(())
    }

    fn record(
        &self,
        source: Position,
        sinks: Vec<SinkPosition>,
        tasks: &[(&Marker, Vec<Sealed>)],
        clean: bool,
    ) -> Result<Vec<u8>, Trouble> {
        let stored = tasks.iter().map(|(marker, sealed)| format::write_task(Kind::Changes, marker, sealed).map(Bytes));
        let bytes = stored.collect::<Result<Vec<Bytes>, FormatError>>().and_then(|tasks| {
            let commit = Commit { number: self.number + 1, run: self.run, clean, source, sinks, tasks };
            format::encode(Kind::Journal, &commit)
        });
        bytes.map_err(|e| Trouble::new(format!("the commit cannot be written: {e}"), "report this: it is a defect"))
    }

    fn to_the_end(&mut self) -> Result<(), Trouble> {
        use std::io::{Seek, SeekFrom};
        let path = name(self.dir.path(), self.segment);
        let Some(file) = &mut self.file else { return Ok(()) };
        file.seek(SeekFrom::End(0)).map(drop).map_err(|e| Trouble::io("read", &path, &e))
    }
}

fn name(folder: &Path, segment: u64) -> PathBuf {
    folder.join(format!("journal-{segment}"))
}

/// Numbers of the segments in a folder.
fn segments(folder: &Path) -> Result<Vec<u64>, Trouble> {
    let entries = std::fs::read_dir(folder).map_err(|e| Trouble::io("list", folder, &e))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter_map(|name| name.strip_prefix("journal-")?.parse().ok()).collect())
}

/// Nonce of the journal and length of the first record of a segment.
fn first(bytes: &[u8]) -> Result<(u128, u64), FormatError> {
    let (payload, rest) = format::split(Kind::Journal, bytes)?;
    let commit: Commit = format::from_payload(payload)?;
    Ok((commit.run, (bytes.len() - rest.len()) as u64))
}

/// Where following a segment begins: at its beginning, or with what a checkpoint knows.
#[derive(Debug, Default)]
struct Start {
    offset: u64,
    tasks: Vec<(Marker, Vec<Sealed>)>,
}

impl Start {
    /// From a checkpoint, if it belongs to this segment.
    fn of((token, parts): (Vec<u8>, Vec<Vec<u8>>), segment: u64) -> Option<Start> {
        let token: Token = format::from_payload(&token).ok()?;
        if token.segment != segment {
            return None;
        }
        let mut tasks: Vec<(Marker, Vec<Sealed>)> = Vec::new();
        for bytes in parts {
            let part: Part = format::decode(Kind::Bucket, &bytes).ok()?;
            let (marker, sealed) = format::read_task(Kind::Snapshot, &part.state.0).ok()?;
            if part.task as usize == tasks.len() {
                tasks.push((marker, sealed));
            } else {
                tasks.get_mut(part.task as usize)?.1.extend(sealed);
            }
        }
        Some(Start { offset: token.offset, tasks })
    }
}

/// What following a segment found.
struct Followed {
    last: Last,
    /// Where the last record begins, and where it ends.
    start: u64,
    length: u64,
}

/// Reads a segment to its last whole commit. A change is absolute: those that a checkpoint has already do no harm.
fn follow(bytes: &[u8], from: Start) -> Result<Followed, FormatError> {
    let mut rest = bytes.get(from.offset as usize..).ok_or(FormatError::Short)?;
    let mut states = from.tasks;
    let (mut last, mut start) = (None, 0);
    while !rest.is_empty() {
        let (payload, behind) = match format::split(Kind::Journal, rest) {
            Ok(found) => found,
            // The tail of a commit that was not finished; anything else before the end is damage.
            Err(error) if last.is_some() && is_torn(rest, &error) => break,
            Err(error) => return Err(error),
        };
        let mut commit: Commit = format::from_payload(payload)?;
        for (at, task) in std::mem::take(&mut commit.tasks).iter().enumerate() {
            let (marker, sealed) = format::read_task(Kind::Changes, &task.0)?;
            match states.get_mut(at) {
                Some((old, changes)) => {
                    *old = marker;
                    changes.extend(sealed);
                }
                None => states.push((marker, sealed)),
            }
        }
        last = Some(commit);
        start = (bytes.len() - rest.len()) as u64;
        rest = behind;
    }
    let commit = last.ok_or(FormatError::Short)?;
    let last = Last { commit, tasks: states };
    Ok(Followed { last, start, length: (bytes.len() - rest.len()) as u64 })
}

/// State in pieces that are quickly written; a stage without changes is one of them, for its identity.
fn pieces(states: &[Sealed]) -> Vec<Sealed> {
    let mut pieces = Vec::new();
    for state in states {
        let piece = |changes: &[crate::keyed::Change]| Sealed {
            stage: state.stage.clone(),
            identity: state.identity.clone(),
            changes: changes.to_vec(),
        };
        if state.changes.is_empty() {
            pieces.push(piece(&[]));
        }
        pieces.extend(state.changes.chunks(PIECE).map(piece));
    }
    pieces
}

/// A number that no other journal has.
fn nonce() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}

/// Whether what stands behind the last commit is one that was not finished: cut off, not all of it on the disk, or
/// room that was never written.
fn is_torn(rest: &[u8], error: &FormatError) -> bool {
    let empty = || rest.iter().skip(format::HEADER).all(|&b| b == 0);
    match error {
        FormatError::Short => true,
        FormatError::Damaged => is_last(rest) || empty(),
        _ => empty(),
    }
}

/// Whether the record that begins here reaches to the end.
fn is_last(rest: &[u8]) -> bool {
    let length = rest.get(8..16).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    length.is_none_or(|length| length >= (rest.len().saturating_sub(format::HEADER)) as u64)
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
