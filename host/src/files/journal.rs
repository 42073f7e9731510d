//! The commit journal: one record makes positions, state and output durable together (reliability, section 4.9).
//!
//! A commit appends output to the sinks and syncs them, then appends one record here and syncs it. Only then is it a
//! commit: whatever happens before leaves the last record as the truth, and the sinks are cut back to it.
//!
//! The journal is a chain of segments, `journal-N`. Each begins with a whole state, which is what a checkpoint is here,
//! and goes on with the changes of every commit. A segment is written beside the last one and takes its name when it
//! is complete; the one before stays until the next, so that a damaged checkpoint can be passed over.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Trouble;
use super::place::StateDir;
use super::sink::SinkPosition;
use super::source::Position;
use crate::format::{self, Bytes, FormatError, Kind};
use crate::task::{Marker, Sealed};

/// What one commit says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Number of the commit; rises by one.
    pub number: u64,
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
    /// Bytes of the segment.
    pub length: u64,
}

impl Journal {
    /// Opens the journal in a state directory, and tells what it knows.
    pub fn open(dir: StateDir) -> Result<(Journal, Option<Last>), Trouble> {
        let mut segments = segments(dir.path())?;
        segments.sort_unstable();
        let mut damage = None;
        while let Some(segment) = segments.pop() {
            let path = name(dir.path(), segment);
            match read(&path)? {
                Ok((last, length)) => {
                    let file = File::options().write(true).open(&path).map_err(|e| Trouble::io("open", &path, &e))?;
                    // What a kill left behind the last commit.
                    file.set_len(length).map_err(|e| Trouble::io("cut back", &path, &e))?;
                    let mut journal = Journal { dir, file: Some(file), segment, number: last.commit.number, length };
                    journal.to_the_end()?;
                    return Ok((journal, Some(last)));
                }
                Err(error) => damage = damage.or(Some((path, error))),
            }
        }
        match damage {
            None => Ok((Journal { dir, file: None, segment: 0, number: 0, length: 0 }, None)),
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
        self.length += bytes.len() as u64;
        self.number += 1;
        Ok(())
    }

    /// Begins a new segment with a commit that holds the whole state, and lets go of the segment before the last one.
    pub fn checkpoint(
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
            let commit = Commit { number: self.number + 1, clean, source, sinks, tasks };
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

/// What a segment says, and where its last whole commit ends; the inner error: it says nothing that can be used.
fn read(path: &Path) -> Result<Result<(Last, u64), FormatError>, Trouble> {
    let bytes = std::fs::read(path).map_err(|e| Trouble::io("read", path, &e))?;
    Ok(follow(&bytes))
}

fn follow(bytes: &[u8]) -> Result<(Last, u64), FormatError> {
    let mut rest = bytes;
    let mut last: Option<Last> = None;
    while !rest.is_empty() {
        let (payload, behind) = match format::split(Kind::Journal, rest) {
            Ok(found) => found,
            // The tail of a commit that was not finished; anything else before the end is damage.
            Err(error) if last.is_some() && is_torn(rest, &error) => break,
            Err(error) => return Err(error),
        };
        let mut commit: Commit = format::from_payload(payload)?;
        let mut states = last.map(|l| l.tasks).unwrap_or_default();
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
        last = Some(Last { commit, tasks: states });
        rest = behind;
    }
    match last {
        Some(last) => Ok((last, (bytes.len() - rest.len()) as u64)),
        None => Err(FormatError::Short),
    }
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
