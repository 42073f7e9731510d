//! One file or standard output that records are appended to, and how far it has got.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Trouble;

/// Bytes that are gathered before they are written.
const BUFFER: usize = 256 * 1024;

/// A file or standard output.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    to: To,
    buffer: Vec<u8>,
    /// Bytes of the file, without the buffer.
    length: u64,
}

#[derive(Debug)]
enum To {
    /// A file that can be cut back.
    File(File),
    /// A device or a pipe.
    Pipe(File),
    Stdout,
}

impl Writer {
    /// Opens a file to append to it; makes it, and the folders it lies in, if they are missing.
    pub fn open(path: &Path) -> Result<Writer, Trouble> {
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty() && !f.exists()) {
            std::fs::create_dir_all(folder).map_err(|e| Trouble::io("make the folder", folder, &e))?;
        }
        // Not with `append`: a file that is cut back goes on where it was cut.
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path);
        let file = match file {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                // A pipe that may only be written.
                File::options().write(true).open(path)
            }
            other => other,
        };
        let mut file = file.map_err(|e| Trouble::io("write", path, &e))?;
        let meta = file.metadata().map_err(|e| Trouble::io("write", path, &e))?;
        let (to, length) = match meta.is_file() {
            true => {
                let length = file.seek(SeekFrom::End(0)).map_err(|e| Trouble::io("write", path, &e))?;
                (To::File(file), length)
            }
            false => (To::Pipe(file), 0),
        };
        Ok(Writer { path: path.to_path_buf(), to, buffer: Vec::new(), length })
    }

    /// Standard output.
    pub fn stdout() -> Writer {
        Writer { path: PathBuf::from("standard output"), to: To::Stdout, buffer: Vec::new(), length: 0 }
    }

    /// Where it writes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it can be cut back to an earlier length.
    pub fn is_file(&self) -> bool {
        matches!(self.to, To::File(_))
    }

    /// Bytes written, with those that are gathered.
    pub fn length(&self) -> u64 {
        self.length + self.buffer.len() as u64
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    /// Hands everything that is gathered to the system.
    pub fn flush(&mut self) -> Result<(), Trouble> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = match &mut self.to {
            To::File(file) | To::Pipe(file) => file.write_all(&self.buffer),
            To::Stdout => {
                let mut out = std::io::stdout().lock();
                out.write_all(&self.buffer).and_then(|()| out.flush())
            }
        };
        written.map_err(|e| Trouble::io("write", &self.path, &e))?;
        self.length += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes durable what was written.
    pub fn sync(&mut self) -> Result<(), Trouble> {
        self.flush()?;
        match &self.to {
            To::File(file) => file.sync_data().map_err(|e| Trouble::io("write", &self.path, &e)),
            To::Pipe(_) | To::Stdout => Ok(()),
        }
    }

    /// Forgets what is gathered and cuts the file back to a length. A file that is shorter stays as it is.
    pub fn cut(&mut self, length: u64) -> Result<(), Trouble> {
        self.buffer.clear();
        let To::File(file) = &mut self.to else { return Ok(()) };
        let trouble = |e| Trouble::io("cut back", &self.path, &e);
        if file.metadata().map_err(trouble)?.len() > length {
            file.set_len(length).map_err(trouble)?;
        }
        self.length = file.seek(SeekFrom::End(0)).map_err(trouble)?;
        Ok(())
    }

    /// Ends the last line of the file, if what stands there has no end: ours begin on a line of their own.
    pub fn begin_on_a_line(&mut self) -> Result<(), Trouble> {
        let To::File(file) = &mut self.to else { return Ok(()) };
        let trouble = |e| Trouble::io("read the end of", &self.path, &e);
        if self.length == 0 {
            return Ok(());
        }
        let mut last = [0];
        file.seek(SeekFrom::Start(self.length - 1)).map_err(trouble)?;
        file.read_exact(&mut last).map_err(trouble)?;
        file.seek(SeekFrom::End(0)).map_err(trouble)?;
        if last != *b"\n" { self.append(b"\n") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_file_is_appended_to_and_cut_back() {
        let path = std::env::temp_dir().join(format!("tamis-writer-{}", std::process::id()));
        std::fs::write(&path, "old").unwrap();
        let mut writer = Writer::open(&path).unwrap();
        writer.begin_on_a_line().unwrap();
        writer.append(b"new\n").unwrap();
        assert_eq!(writer.length(), 8);
        writer.sync().unwrap();
        writer.append(b"more\n").unwrap();
        writer.flush().unwrap();
        writer.append(b"lost\n").unwrap();
        writer.cut(8).unwrap();
        writer.append(b"end\n").unwrap();
        writer.sync().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old\nnew\nend\n");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_full_disk_is_trouble_with_a_way_out() {
        let path = Path::new("/dev/full");
        if !path.exists() {
            return;
        }
        let mut writer = Writer::open(path).unwrap();
        writer.append(b"x").unwrap();
        let trouble = writer.sync().unwrap_err();
        assert!(trouble.what.contains("/dev/full"), "{}", trouble.what);
        assert!(trouble.way_out.contains("make room"), "{}", trouble.way_out);
    }
}
