//! Where bytes come from: a file that can be read at any place, or a stream (a pipe, standard input) that is read by a
//! thread of its own, so that nothing here waits longer than it wants to.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::Trouble;
use super::frame::Frame;
use super::identity::{Identity, still_named};

/// Bytes of one read of a stream.
const PIECE: usize = 64 * 1024;
/// Pieces of a stream that wait to be taken; more are not read.
const WAITING: usize = 4;

/// What an attempt to get more bytes gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// Some.
    Bytes,
    /// None now; there may be some later.
    Nothing,
    /// It is the end.
    End,
}

/// A file or a stream.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    from: From,
    follow: bool,
}

#[derive(Debug)]
enum From {
    File(File),
    Stream(Receiver<std::io::Result<Vec<u8>>>),
}

impl Reader {
    /// Opens a file; `follow`: its end is not the end.
    pub fn open(path: &Path, follow: bool) -> Result<Reader, Trouble> {
        let trouble = |e: &std::io::Error| Trouble::io("read", path, e);
        let file = File::open(path).map_err(|e| trouble(&e))?;
        let meta = file.metadata().map_err(|e| trouble(&e))?;
        if meta.is_dir() {
            return Err(trouble(&std::io::ErrorKind::IsADirectory.into()));
        }
        let from = if meta.is_file() { From::File(file) } else { From::Stream(stream(file)) };
        Ok(Reader { path: path.to_path_buf(), from, follow })
    }

    /// Standard input.
    pub fn stdin() -> Reader {
        Reader { path: PathBuf::from("standard input"), from: From::Stream(stream(std::io::stdin())), follow: false }
    }

    /// Which file it is; none for streams.
    pub fn identity(&mut self) -> Result<Option<Identity>, Trouble> {
        match &mut self.from {
            From::File(file) => Identity::of(file).map(Some).map_err(|e| Trouble::io("read", &self.path, &e)),
            From::Stream(_) => Ok(None),
        }
    }

    /// Whether it is the file of this identity and has at least so many bytes.
    pub fn is(&mut self, identity: &Identity, bytes: u64) -> Result<bool, Trouble> {
        let From::File(file) = &mut self.from else { return Ok(false) };
        let same = identity.is(file).and_then(|same| Ok(same && file.metadata()?.len() >= bytes));
        same.map_err(|e| Trouble::io("read", &self.path, &e))
    }

    /// Goes on at this byte.
    pub fn seek(&mut self, position: u64) -> Result<(), Trouble> {
        let From::File(file) = &mut self.from else { return Ok(()) };
        file.seek(SeekFrom::Start(position)).map(drop).map_err(|e| Trouble::io("read", &self.path, &e))
    }

    /// Gets more bytes into the frame, waiting for a stream at most this long.
    pub fn fill(&mut self, frame: &mut Frame, wait: Duration) -> Result<Got, Trouble> {
        let got = match &mut self.from {
            From::File(file) => match frame.fill(file) {
                Ok(0) if self.follow => Ok(Got::Nothing),
                Ok(0) => Ok(Got::End),
                Ok(_) => Ok(Got::Bytes),
                Err(error) => Err(error),
            },
            From::Stream(pieces) => match pieces.recv_timeout(wait) {
                Ok(Ok(piece)) => {
                    frame.add(&piece);
                    Ok(Got::Bytes)
                }
                Ok(Err(error)) => Err(error),
                Err(RecvTimeoutError::Timeout) => Ok(Got::Nothing),
                Err(RecvTimeoutError::Disconnected) => Ok(Got::End),
            },
        };
        got.map_err(|e| Trouble::io("read", &self.path, &e))
    }

    /// A file that is followed was replaced (rotation) or cut: opens what its path names now. None: it was not, or
    /// nothing has taken its place yet.
    pub fn successor(&mut self) -> Result<Option<Reader>, Trouble> {
        let From::File(file) = &mut self.from else { return Ok(None) };
        let trouble = |e: std::io::Error| Trouble::io("read", &self.path, &e);
        let named = still_named(file, &self.path).map_err(trouble)?;
        let cut = file.metadata().and_then(|m| Ok(m.len() < file.stream_position()?)).map_err(trouble)?;
        if (named && !cut) || !self.path.exists() {
            return Ok(None);
        }
        Reader::open(&self.path, self.follow).map(Some)
    }
}

/// Reads ahead in a thread. It ends with the stream, or at the next piece after nobody wants any more.
fn stream(mut from: impl Read + Send + 'static) -> Receiver<std::io::Result<Vec<u8>>> {
    let (send, receive) = sync_channel(WAITING);
    std::thread::spawn(move || {
        loop {
            let mut piece = vec![0; PIECE];
            let read = match from.read(&mut piece) {
                Ok(0) => return,
                Ok(count) => {
                    piece.truncate(count);
                    Ok(piece)
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = read.is_err();
            if send.send(read).is_err() || failed {
                return;
            }
        }
    });
    receive
}
