//! The commit journal: one record makes positions, state and output durable together (reliability, section 4.9).
//!
//! A commit appends output to the sinks and syncs them, then appends one record here and syncs it. Only then is it a
//! commit: whatever happens before leaves the last record as the truth, and the sinks are cut back to it.
//!
//! The journal is a chain of segments, `journal-N`. Each begins with a copy of the state and goes on with the changes of
//! every commit; when the changes have outgrown the state, a new one is begun. A segment is written beside the last one
//! and takes its name when it is complete; the one before stays until the next, so that a damaged one can be passed over.
//! The copy is written in pieces, a few after each commit (copying.rs).
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
use super::copying::Copying;
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
    /// Up to this byte the segment is a copy of the state and what was committed meanwhile; 0: this record is the copy.
    base: u64,
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
    pub(super) dir: StateDir,
    pub(super) file: Option<File>,
    pub(super) segment: u64,
    number: u64,
    run: u128,
    /// Bytes of the segment, of the copy it begins with, and up to its last commit.
    pub(super) length: u64,
    pub(super) base: u64,
    pub(super) last: u64,
    pub(super) checkpoint: Option<Checkpoint>,
    /// A copy of the state that is being written.
    pub(super) copying: Option<Copying>,
}

/// Where in the journal a checkpoint belongs: the commit it was made after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

/// A piece of a checkpoint: some of the state of one task.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) task: u32,
    pub(super) state: Bytes,
}

/// Folder of the checkpoints.
pub(super) const CHECKPOINT: &str = "checkpoint";
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
            let run = match first(&bytes) {
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
                    let base = if last.commit.base == 0 { length } else { last.commit.base };
                    let copying = None;
                    let mut journal =
                        Journal { dir, file, segment, number, run, length, base, last: start, checkpoint, copying };
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
                let copying = None;
                Ok((Journal { dir, file, segment, number, run, length, base, last, checkpoint, copying }, None))
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
        let bytes = self.record(self.number + 1, self.base, (source, sinks, clean), tasks)?;
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
        self.copy_commit(&bytes);
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

    /// Bytes that journal and checkpoints take on the disk.
    pub fn disk(&self) -> u64 {
        self.dir.bytes()
    }

    /// Whether a good part of what is on the disk is not the state: older changes, older segments, checkpoints.
    pub fn can_shrink(&self) -> bool {
        let disk = self.disk();
        disk - self.base.min(disk) > disk / 4
    }

    /// Lets go of what only makes a restart quicker or safer against damage: checkpoints and older segments.
    pub fn shrink(&mut self) {
        (self.checkpoint, self.copying) = (None, None);
        let folder = self.dir.path().to_path_buf();
        let _ = std::fs::remove_dir_all(folder.join(CHECKPOINT));
        for segment in segments(&folder).unwrap_or_default().into_iter().filter(|&s| s < self.segment) {
            let _ = std::fs::remove_file(name(&folder, segment));
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
        self.copying = None;
        let bytes = self.record(self.number + 1, 0, (source, sinks, clean), tasks)?;
        let new = self.name_of_next();
        let trouble = |e| Trouble::io("write", &new, &e);
        let mut file = File::create(&new).map_err(trouble)?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(trouble)?;
        self.number += 1;
        self.last = 0;
        self.go_over(file, bytes.len() as u64)
    }

    /// Where the next segment is written until it is complete.
    pub(super) fn name_of_next(&self) -> PathBuf {
        name(self.dir.path(), self.segment + 1).with_extension("new")
    }

    /// The next segment is complete: it takes its name, and the one before the last goes.
    pub(super) fn go_over(&mut self, file: File, length: u64) -> Result<(), Trouble> {
        let folder = self.dir.path().to_path_buf();
        let (new, path) = (self.name_of_next(), name(&folder, self.segment + 1));
        std::fs::rename(&new, &path).map_err(|e| Trouble::io("rename", &new, &e))?;
        // The name must last, too, before anything relies on it.
        File::open(&folder).and_then(|f| f.sync_all()).map_err(|e| Trouble::io("sync", &folder, &e))?;
        for segment in segments(&folder)?.into_iter().filter(|&s| s < self.segment) {
            let _ = std::fs::remove_file(name(&folder, segment));
        }
        self.file = Some(file);
        self.segment += 1;
        self.length = length;
        self.base = length;
        Ok(())
    }

    /// The number of the last commit.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Told apart from every other journal by this.
    pub(super) fn run(&self) -> u128 {
        self.run
    }

    pub(super) fn record(
        &self,
        number: u64,
        base: u64,
        (source, sinks, clean): (Position, Vec<SinkPosition>, bool),
        tasks: &[(&Marker, Vec<Sealed>)],
    ) -> Result<Vec<u8>, Trouble> {
        let stored = tasks.iter().map(|(marker, sealed)| format::write_task(Kind::Changes, marker, sealed).map(Bytes));
        let bytes = stored.collect::<Result<Vec<Bytes>, FormatError>>().and_then(|tasks| {
            let commit = Commit { number, run: self.run, clean, source, sinks, base, tasks };
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

/// Nonce of the journal, from the first record of a segment.
fn first(bytes: &[u8]) -> Result<u128, FormatError> {
    let (payload, _) = format::split(Kind::Journal, bytes)?;
    let commit: Commit = format::from_payload(payload)?;
    Ok(commit.run)
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
