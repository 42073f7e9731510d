//! Which file it is: a path may name another file tomorrow (rotation), and a file may get another name.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// At most so many first bytes tell files apart.
const HEAD: usize = 1024;

/// Identity of a file: device, inode, and a hash of its first bytes, because inodes are used again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Device.
    pub device: u64,
    /// Number on the device.
    pub inode: u64,
    /// Number of first bytes that were hashed, at most 1,024; a file that was shorter may have grown since.
    pub head: u32,
    /// XXH3 of these bytes.
    pub hash: u64,
}

impl Identity {
    /// Of an open file; leaves its position where it was.
    pub fn of(file: &mut File) -> std::io::Result<Identity> {
        let (device, inode) = numbers(file)?;
        let head = first(file, HEAD)?;
        Ok(Identity { device, inode, head: head.len() as u32, hash: xxh3_64(&head) })
    }

    /// Whether an open file is the one this was taken of, possibly grown.
    pub fn is(&self, file: &mut File) -> std::io::Result<bool> {
        if numbers(file)? != (self.device, self.inode) {
            return Ok(false);
        }
        let head = first(file, self.head as usize)?;
        Ok(head.len() == self.head as usize && xxh3_64(&head) == self.hash)
    }
}

/// The first bytes of a file, up to `count`.
fn first(file: &mut File, count: usize) -> std::io::Result<Vec<u8>> {
    let before = file.stream_position()?;
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::with_capacity(count);
    Read::by_ref(file).take(count as u64).read_to_end(&mut bytes)?;
    file.seek(SeekFrom::Start(before))?;
    Ok(bytes)
}

#[cfg(unix)]
fn numbers(file: &File) -> std::io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
fn numbers(file: &File) -> std::io::Result<(u64, u64)> {
    // Without inodes the first bytes alone decide.
    file.metadata().map(|_| (0, 0))
}

/// Whether a path names the same file as an open one (it does not after a rotation).
pub fn still_named(file: &File, path: &std::path::Path) -> std::io::Result<bool> {
    match File::open(path) {
        Ok(other) => Ok(numbers(file)? == numbers(&other)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
