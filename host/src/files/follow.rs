//! What a source does that follows: files appear, get another name, and make room for new ones under their path.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Trouble;
use super::frame::{Frame, LARGEST};
use super::identity::Identity;
use super::place;
use super::reader::Reader;
use super::source::{FilePosition, Source};

/// How often paths and globs are looked at.
const EVERY: Duration = Duration::from_millis(500);
/// Files that are remembered after their path names another one.
const REMEMBERED: usize = 256;

/// Paths and globs that may name more files later.
#[derive(Debug)]
pub(super) struct Watch {
    base: PathBuf,
    written: Vec<String>,
    next: Instant,
}

impl Source {
    /// From now on files that appear and are named by these paths and globs are read, too. `base`: the folder that
    /// relative paths start from.
    pub fn watch(&mut self, base: &Path, written: &[String]) {
        let (base, written) = (base.to_path_buf(), written.to_vec());
        self.watch = Some(Watch { base, written, next: Instant::now() + EVERY });
    }

    /// Looks for files that have appeared, if it is time to.
    pub(super) fn look(&mut self) -> Result<(), Trouble> {
        let now = Instant::now();
        let Some(watch) = self.watch.as_mut().filter(|watch| now >= watch.next) else { return Ok(()) };
        watch.next = now + EVERY;
        for path in place::files_so_far(&watch.base, &watch.written)? {
            let name = path.display().to_string();
            if self.files.iter().any(|file| file.reader.is_some() && file.path == name) {
                continue;
            }
            let mut reader = match Reader::open(&path, self.settings.follow) {
                Ok(reader) => reader,
                // It was there a moment ago.
                Err(_) if !path.exists() => continue,
                Err(trouble) => return Err(trouble),
            };
            // One that is rotated now: its first reader reads it to its end.
            if self.is_being_read(&mut reader)? {
                continue;
            }
            let partition = self.files.len();
            self.add(name, reader, partition, None)?;
        }
        Ok(())
    }

    fn is_being_read(&self, reader: &mut Reader) -> Result<bool, Trouble> {
        for file in self.files.iter().filter(|file| file.reader.is_some()) {
            if let Some(identity) = &file.identity {
                if reader.is(identity, 0)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// How far a file was read under another name, if it was.
    pub(super) fn moved(&self, reader: &mut Reader) -> Result<Option<FilePosition>, Trouble> {
        for gone in self.gone.iter().rev() {
            if let Some(identity) = &gone.identity {
                if reader.is(identity, gone.bytes)? {
                    return Ok(Some(gone.clone()));
                }
            }
        }
        Ok(None)
    }

    /// Files that are read under the path they have need not be remembered.
    pub(super) fn forget_those_at_hand(&mut self) {
        let files = &self.files;
        let number = |identity: &Option<Identity>| identity.as_ref().map(|i| (i.device, i.inode));
        self.gone.retain(|gone| {
            !files.iter().any(|file| file.reader.is_some() && number(&file.identity) == number(&gone.identity))
        });
    }

    /// Remembers a file whose path names another one now.
    pub(super) fn let_go(&mut self, path: String, identity: Identity, bytes: u64) {
        self.gone.retain(|gone| gone.identity.as_ref() != Some(&identity));
        self.gone.push(FilePosition { path, identity: Some(identity), bytes });
        let over = self.gone.len().saturating_sub(REMEMBERED);
        self.gone.drain(..over);
    }

    /// Goes over to the file that has taken the place of one that is followed. What stands behind its last line end is
    /// its last record.
    pub(super) fn rotate(&mut self, at: usize) -> Result<(), Trouble> {
        let Some(file) = self.files.get_mut(at) else { return Ok(()) };
        let Some(reader) = &mut file.reader else { return Ok(()) };
        let Some(mut successor) = reader.successor()? else { return Ok(()) };
        if file.frame.has_rest() {
            file.frame.end();
            return Ok(());
        }
        // Anew: it may have been empty when it was opened.
        let (path, before, taken) = (file.path.clone(), reader.identity()?, file.taken);
        if let Some(identity) = before {
            self.let_go(path, identity, taken);
        }
        let moved = self.moved(&mut successor)?;
        let identity = successor.identity()?;
        let start = moved.map_or(0, |moved| moved.bytes);
        successor.seek(start)?;
        let Some(file) = self.files.get_mut(at) else { return Ok(()) };
        self.notes.push(format!("{} was replaced: the new file is read from byte {start}", file.path));
        file.identity = identity;
        file.reader = Some(successor);
        file.frame = Frame::new(start, self.settings.largest.min(LARGEST));
        file.taken = start;
        Ok(())
    }
}
