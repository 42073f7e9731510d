//! A copy of all state, written in pieces between commits: as a checkpoint, or as the beginning of the next segment of the
//! journal. What the pieces are good for is said in keyed/slices.rs.
//!
//! The next segment takes every commit of the meantime, too, as the present one does. A piece in it is a record like a
//! commit: positions and number of the last one, and a piece of state in place of changes.

use std::fs::File;
use std::io::Write;

use super::Trouble;
use super::journal::{CHECKPOINT, Journal, Part, Token};
use super::sink::SinkPosition;
use super::source::Position;
use crate::checkpoint::Checkpoint;
use crate::format::{self, Bytes, Kind};
use crate::task::{Marker, Sealed};

/// What is being written.
#[derive(Debug)]
pub(super) enum Copying {
    /// A checkpoint.
    Checkpoint,
    /// The next segment.
    Segment(Next),
}

/// A segment that is not complete yet.
#[derive(Debug)]
pub(super) struct Next {
    file: File,
    length: u64,
    /// Where its last record begins.
    last: u64,
}

impl Journal {
    /// Begins a copy, right after a commit; one that was under way is given up. It becomes a segment if the changes have
    /// outgrown the state, else a checkpoint.
    pub fn begin_copy(&mut self) {
        if self.is_long() {
            let path = self.name_of_next();
            match File::create(&path) {
                Ok(file) => self.copying = Some(Copying::Segment(Next { file, length: 0, last: 0 })),
                Err(error) => self.give_up(&Trouble::io("write", &path, &error)),
            }
        } else if let Ok(token) = format::payload(&Token { segment: self.segment, offset: self.last }) {
            self.in_checkpoint(|checkpoint| checkpoint.begin(&token));
            self.copying = Some(Copying::Checkpoint);
        }
    }

    /// The pieces that are still to come do not fit those that are written: there is no copy.
    pub fn give_up_copy(&mut self) {
        self.copying = None;
    }

    /// Whether a copy is under way.
    pub fn is_copying(&self) -> bool {
        self.copying.is_some()
    }

    /// Writes a piece of the state of one task, as it is after the last commit; `last`: what that commit said.
    pub fn copy(&mut self, last: (Position, Vec<SinkPosition>, bool), markers: &[&Marker], task: usize, piece: Sealed) {
        match &self.copying {
            None => {}
            Some(Copying::Checkpoint) => {
                let Some(marker) = markers.get(task) else { return };
                let state = format::write_task(Kind::Snapshot, marker, &[piece]);
                let part =
                    state.and_then(|s| format::encode(Kind::Bucket, &Part { task: task as u32, state: Bytes(s) }));
                match part {
                    Ok(part) => self.in_checkpoint(|checkpoint| checkpoint.put(part)),
                    // The round is not finished: it is no checkpoint.
                    Err(error) => {
                        self.copying = None;
                        tracing::warn!("no checkpoint: {error}");
                    }
                }
            }
            Some(Copying::Segment(next)) => {
                let length = next.length;
                let mut tasks: Vec<(&Marker, Vec<Sealed>)> = markers.iter().map(|m| (*m, Vec::new())).collect();
                if let Some(own) = tasks.get_mut(task) {
                    own.1.push(piece);
                }
                let record = self.record(self.number(), length, last, &tasks);
                if let Err(trouble) = record.and_then(|bytes| self.append_to_next(&bytes)) {
                    self.give_up(&trouble);
                }
            }
        }
    }

    /// A commit was made: the next segment has it, too.
    pub(super) fn copy_commit(&mut self, bytes: &[u8]) {
        if let Err(trouble) = self.append_to_next(bytes) {
            self.give_up(&trouble);
        }
    }

    /// The present segment has it all: nothing is lost.
    fn give_up(&mut self, trouble: &Trouble) {
        self.copying = None;
        tracing::warn!("the next segment of the journal is given up: {trouble}");
    }

    fn append_to_next(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let path = self.name_of_next();
        let Some(Copying::Segment(next)) = &mut self.copying else { return Ok(()) };
        next.file.write_all(bytes).map_err(|e| Trouble::io("write", &path, &e))?;
        next.last = next.length;
        next.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes durable what was copied so far, so that the end has little left to do.
    pub fn sync_copy(&mut self) {
        match &self.copying {
            None => {}
            Some(Copying::Checkpoint) => self.in_checkpoint(Checkpoint::flush),
            Some(Copying::Segment(next)) => {
                if let Err(error) = next.file.sync_data() {
                    self.give_up(&Trouble::io("write", &self.name_of_next(), &error));
                }
            }
        }
    }

    /// Everything was copied: the copy counts from now on.
    pub fn end_copy(&mut self) -> Result<(), Trouble> {
        match self.copying.take() {
            None => Ok(()),
            Some(Copying::Checkpoint) => {
                self.in_checkpoint(|checkpoint| {
                    // What went wrong is told below.
                    let _ = checkpoint.finish();
                });
                Ok(())
            }
            Some(Copying::Segment(next)) => {
                let path = self.name_of_next();
                next.file.sync_all().map_err(|e| Trouble::io("write", &path, &e))?;
                self.last = next.last;
                self.go_over(next.file, next.length)
            }
        }
    }

    /// Does something with the store of checkpoints, and tells what went wrong with it: that is never more than a longer
    /// restart.
    fn in_checkpoint(&mut self, act: impl FnOnce(&mut Checkpoint)) {
        let (folder, run) = (self.dir.path().join(CHECKPOINT), self.run());
        let checkpoint = self.checkpoint.get_or_insert_with(|| Checkpoint::open(&folder, run));
        let before = checkpoint.troubles().len();
        act(checkpoint);
        for trouble in checkpoint.troubles().iter().skip(before) {
            tracing::warn!("the checkpoint was begun anew (nothing is lost, the journal has it all): {trouble}");
        }
    }
}
