//! Files and standard streams as source and sink, and the journal that makes their positions, the state and the output
//! durable together. All I/O of a pipeline without Kafka is here.
//!
//! `place` finds files, `frame` cuts bytes into lines, `envelope` reads and writes records with key, headers and
//! position, `source` makes batches, `sink` writes them, `journal` commits.

mod copying;
pub mod dead_letter;
pub mod desk;
pub mod envelope;
pub mod filling;
mod follow;
pub mod frame;
pub mod identity;
pub mod journal;
pub mod json;
pub mod ledger;
pub mod place;
pub mod reader;
pub mod sink;
pub mod source;
pub mod writer;

use std::fmt;

/// Something outside of the pipeline that does not work: a file, a disk, a lock. Ends a run with exit code 3.
#[derive(Debug)]
pub struct Trouble {
    /// What is wrong, with the path.
    pub what: String,
    /// What a person can do about it.
    pub way_out: String,
    /// The reader of standard output has gone: no error, the run ends quietly.
    pub reader_gone: bool,
}

impl Trouble {
    /// What is wrong, and what to do about it.
    pub fn new(what: impl Into<String>, way_out: impl Into<String>) -> Trouble {
        Trouble { what: what.into(), way_out: way_out.into(), reader_gone: false }
    }

    /// A failed operation on a path.
    pub fn io(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Trouble {
        use std::io::ErrorKind::{
            BrokenPipe, IsADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem, StorageFull,
        };
        let way_out = match error.kind() {
            NotFound => "check the path; paths in a pipeline file are relative to the file",
            PermissionDenied => "give the user that runs tamis the right to it, or name another path",
            IsADirectory => "name a file, or a glob such as `folder/*.jsonl`",
            StorageFull => "make room and run again: it goes on after the last commit, nothing is lost",
            ReadOnlyFilesystem => "name a path on a file system that can be written",
            _ => "put the cause right and run again: it goes on after the last commit",
        };
        let mut trouble = Trouble::new(format!("cannot {doing} {}: {}", path.display(), plain(error)), way_out);
        trouble.reader_gone = error.kind() == BrokenPipe;
        trouble
    }
}

/// The text of an error without the number of the operating system.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Trouble {}
