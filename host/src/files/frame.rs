//! Bytes into lines. One buffer per input, filled in blocks; a line is looked at where it lies.
//!
//! A line ends with `\n` or `\r\n`, which are not part of it; the last line of an input needs neither. Blank lines are
//! no records. A line above the limit is passed over without holding it in memory, and reported with its place.

use memchr::memchr;

/// Bytes that are asked for at a time.
pub const BLOCK: usize = 256 * 1024;
/// The largest record. Beyond it a line is a failure (`too_large`), so that one broken file cannot take the memory.
pub const LARGEST: usize = 64 * 1024 * 1024;
/// How much of a line that is too large is kept for the dead letter.
pub const HEAD: usize = 64 * 1024;

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A record.
    Record {
        /// The line without its end.
        bytes: &'a [u8],
        /// Offset of its first byte in the input.
        at: u64,
    },
    /// A line above the limit.
    TooLarge {
        /// Its first bytes.
        head: Vec<u8>,
        /// Offset of its first byte in the input.
        at: u64,
        /// Its length in bytes, without its end.
        length: u64,
    },
}

/// Cuts one input into lines.
#[derive(Debug)]
pub struct Frame {
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Up to here there is no line end.
    scanned: usize,
    /// Offset in the input of `start`.
    position: u64,
    /// Longest line.
    limit: usize,
    /// Within a line that is too large: its first bytes and the bytes passed over so far.
    skipped: Option<(Vec<u8>, u64)>,
    ended: bool,
    /// Where the last line began, in the buffer and in the input.
    last: (usize, u64),
}

impl Frame {
    /// From an offset of the input on; `limit` is the longest line in bytes.
    pub fn new(position: u64, limit: usize) -> Frame {
        Frame {
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            position,
            limit,
            skipped: None,
            ended: false,
            last: (0, position),
        }
    }

    /// Offset in the input behind the last line that was given.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Adds bytes by letting `read` fill a block; gives what `read` gives: 0 at the end of what is there.
    pub fn fill(&mut self, read: &mut impl std::io::Read) -> std::io::Result<usize> {
        self.make_room();
        let from = self.buffer.len();
        self.buffer.resize(from + BLOCK, 0);
        let result = loop {
            match read.read(self.buffer.get_mut(from..).unwrap_or_default()) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(from + result.as_ref().map_or(0, |n| *n));
        result
    }

    /// Adds bytes that were read elsewhere.
    pub fn add(&mut self, bytes: &[u8]) {
        self.make_room();
        self.buffer.extend_from_slice(bytes);
    }

    /// No more bytes will come: what is left is the last line.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether something stands behind the last line end.
    pub fn has_rest(&self) -> bool {
        self.start < self.buffer.len() || self.skipped.is_some()
    }

    /// More bytes may come after all (a file that has grown since).
    pub fn reopen(&mut self) {
        self.ended = false;
    }

    /// The next line that is there in full; none: more bytes are needed, or it is the end.
    pub fn line(&mut self) -> Option<Line<'_>> {
        loop {
            let rest = self.buffer.get(self.scanned..).unwrap_or_default();
            let (end, next) = match memchr(b'\n', rest) {
                Some(i) => (self.scanned + i, self.scanned + i + 1),
                None if self.ended && (self.start < self.buffer.len() || self.skipped.is_some()) => {
                    (self.buffer.len(), self.buffer.len())
                }
                None => {
                    self.scanned = self.buffer.len();
                    self.pass_over();
                    return None;
                }
            };
            let (from, at) = (self.start, self.position);
            self.last = (from, at);
            self.start = next;
            self.scanned = next;
            self.position += (next - from) as u64;
            if let Some((head, before)) = self.skipped.take() {
                let tail = without_return(self.buffer.get(from..end).unwrap_or_default());
                let length = before + tail.len() as u64;
                return Some(Line::TooLarge { head, at: at - before, length });
            }
            let line = without_return(self.buffer.get(from..end).unwrap_or_default());
            if line.len() > self.limit {
                let head = line.get(..HEAD.min(line.len())).unwrap_or_default().to_vec();
                return Some(Line::TooLarge { head, at, length: line.len() as u64 });
            }
            if !is_blank(line) {
                // Borrowed anew: the loop would otherwise hold the borrow over its turns.
                let length = line.len();
                return Some(Line::Record { bytes: self.buffer.get(from..from + length).unwrap_or_default(), at });
            }
        }
    }

    /// Takes the last record back: `line` gives it again. Only right after `line`.
    pub fn put_back(&mut self) {
        (self.start, self.position) = self.last;
        self.scanned = self.start;
    }

    /// Throws away what is there of a line that is already longer than the limit.
    fn pass_over(&mut self) {
        // The last byte stays: it may be the return of a line end.
        let there = (self.buffer.len() - self.start).saturating_sub(1);
        if self.skipped.is_none() && there <= self.limit {
            return;
        }
        let (_, passed) = self.skipped.get_or_insert_with(|| {
            let line = self.buffer.get(self.start..).unwrap_or_default();
            (line.get(..HEAD.min(line.len())).unwrap_or_default().to_vec(), 0)
        });
        *passed += there as u64;
        self.position += there as u64;
        self.buffer = self.buffer.split_off(self.start + there);
        self.start = 0;
        self.scanned = self.buffer.len();
    }

    /// Moves the beginning of the line that is not complete to the front of the buffer.
    fn make_room(&mut self) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    /// All lines of an input that comes in pieces of `piece` bytes, as text; `!N@P` is a line of N bytes at P that is
    /// too large.
    fn lines(input: &[u8], piece: usize, limit: usize) -> Vec<String> {
        let mut frame = Frame::new(0, limit);
        let mut found = Vec::new();
        let mut pieces = input.chunks(piece);
        loop {
            while let Some(line) = frame.line() {
                found.push(match line {
                    Line::Record { bytes, at } => {
                        assert_eq!(&input[at as usize..at as usize + bytes.len()], bytes);
                        String::from_utf8_lossy(bytes).into_owned()
                    }
                    Line::TooLarge { at, length, .. } => format!("!{length}@{at}"),
                });
            }
            match pieces.next() {
                Some(piece) => frame.add(piece),
                None if frame.ended => break,
                None => frame.end(),
            }
        }
        assert_eq!(frame.position(), input.len() as u64);
        found
    }

    fn check(input: &[u8], expected: &[&str]) {
        for piece in 1..=input.len().max(1) {
            assert_eq!(lines(input, piece, 8), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_line_ends_with_or_without_a_return() {
        check(b"a\r\nb\nc", &["a", "b", "c"]);
    }

    #[test]
    fn the_last_line_needs_no_end() {
        check(b"a\nbc", &["a", "bc"]);
    }

    #[test]
    fn blank_lines_are_no_records() {
        check(b"\n\na\n \t\n\r\nb\n\n", &["a", "b"]);
    }

    #[test]
    fn an_empty_input_has_no_lines() {
        check(b"", &[]);
    }

    #[test]
    fn nul_bytes_are_bytes() {
        check(b"a\0b\n\0\n", &["a\0b", "\0"]);
    }

    #[test]
    fn a_line_above_the_limit_is_reported_with_its_place_and_the_next_one_is_read() {
        check(b"ok\n0123456789\r\nx\n", &["ok", "!10@3", "x"]);
        check(b"01234567\n", &["01234567"]);
        check(b"0123456789", &["!10@0"]);
    }
}
