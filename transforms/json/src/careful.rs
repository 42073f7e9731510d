//! The careful way through a row: byte by byte, with everything that JSON allows, and an answer to what is wrong where.

use tamis_guest::{kind, number};

use crate::escape;
use crate::wanted::{Level, NOWHERE, ROOT, Taker};

/// Containers within containers.
const MAX_DEPTH: usize = 128;

/// Why a row is not JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Offset of the first byte that is wrong.
    pub at: usize,
    /// What is wrong with it.
    pub what: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not JSON, at byte {}: {}", self.at, self.what)
    }
}

/// Reads a row. On an error what was found does not count.
pub fn row(row: &[u8], taker: &mut Taker<'_>) -> Result<(), Wrong> {
    let mut scan = Scan { row, at: 0, depth: 0, taker };
    let read = scan.document();
    let Err(utf8) = std::str::from_utf8(row) else { return read };
    let at = utf8.valid_up_to();
    match read {
        Err(wrong) if wrong.at < at => Err(wrong),
        _ if row.starts_with(&[0xef, 0xbb, 0xbf]) => read,
        _ => Err(Wrong { at, what: "not UTF-8".to_owned() }),
    }
}

struct Scan<'s, 't> {
    row: &'s [u8],
    at: usize,
    depth: usize,
    taker: &'s mut Taker<'t>,
}

impl Scan<'_, '_> {
    fn byte(&self) -> Option<u8> {
        self.row.get(self.at).copied()
    }

    /// The next byte that is not white space.
    fn token(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }

    fn wrong<T>(&self, what: impl Into<String>) -> Result<T, Wrong> {
        Err(Wrong { at: self.at, what: what.into() })
    }

    /// `wanted`: what could have stood here.
    fn expected<T>(&self, wanted: &str) -> Result<T, Wrong> {
        match self.byte() {
            None => self.wrong(format!("the text ends, {wanted} is missing")),
            Some(byte @ 0x21..=0x7e) => self.wrong(format!("`{}` where {wanted} should be", byte as char)),
            Some(byte) => self.wrong(format!("byte 0x{byte:02x} where {wanted} should be")),
        }
    }

    fn document(&mut self) -> Result<(), Wrong> {
        if self.row.is_empty() {
            return self.wrong("there is nothing");
        }
        if self.row.starts_with(&[0xef, 0xbb, 0xbf]) {
            return self.wrong("a byte order mark, which JSON text must not have");
        }
        self.value(ROOT)?;
        match self.token() {
            None => Ok(()),
            Some(_) => self.expected("the end"),
        }
    }

    fn value(&mut self, level: Level) -> Result<(), Wrong> {
        let token = self.token();
        let from = self.at;
        match token {
            Some(b'"') => {
                let escaped = self.string()?;
                if escaped {
                    self.taker.text(level, self.row, from + 1, self.at - 1);
                } else {
                    self.taker.plain(level, kind::TEXT, from + 1, self.at - 1);
                }
            }
            Some(b'-' | b'0'..=b'9') => {
                let Some(length) = number::number_length(self.row.get(from..).unwrap_or_default()) else {
                    return self.wrong("not a number that JSON has");
                };
                self.at += length;
                if matches!(self.byte(), Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
                    return self.wrong("not a number that JSON has");
                }
                self.taker.plain(level, kind::NUMBER, from, self.at);
            }
            Some(b't') => {
                self.word("true")?;
                self.taker.boolean(level, true);
            }
            Some(b'f') => {
                self.word("false")?;
                self.taker.boolean(level, false);
            }
            Some(b'n') => {
                self.word("null")?;
                self.taker.null(level);
            }
            Some(open @ (b'{' | b'[')) => {
                if self.depth == MAX_DEPTH {
                    return self.wrong("deeper than 128 levels");
                }
                self.taker.begin(level);
                self.depth += 1;
                self.at += 1;
                if open == b'{' { self.members(level) } else { self.elements(level) }?;
                self.depth -= 1;
                self.taker.container(level, from, self.at);
            }
            _ => return self.expected("a value"),
        }
        Ok(())
    }

    fn members(&mut self, level: Level) -> Result<(), Wrong> {
        if self.token() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            if self.token() != Some(b'"') {
                return self.expected("a member name in quotes");
            }
            let from = self.at + 1;
            let escaped = self.string()?;
            let rest = self.row.get(from..).unwrap_or_default();
            let length = self.at - 1 - from;
            let inner = match level {
                NOWHERE => NOWHERE,
                _ if escaped => self.taker.escaped_member(level, rest.get(..length).unwrap_or_default()),
                _ => self.taker.member(level, self.row, from, from + length),
            };
            if self.token() != Some(b':') {
                return self.expected("`:`");
            }
            self.at += 1;
            self.value(inner)?;
            match self.token() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.expected("`,` or `}`"),
            }
        }
    }

    fn elements(&mut self, level: Level) -> Result<(), Wrong> {
        if self.token() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        for number in 0.. {
            self.value(self.taker.element(level, number))?;
            match self.token() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.expected("`,` or `]`"),
            }
        }
        self.wrong("more than 4,294,967,296 elements")
    }

    /// A string; has it escapes?
    fn string(&mut self) -> Result<bool, Wrong> {
        self.at += 1;
        let mut escaped = false;
        loop {
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    match escape::length(self.row, self.at) {
                        Ok(length) => self.at += length,
                        Err(what) => return self.wrong(what),
                    }
                }
                Some(byte) if byte < 0x20 => {
                    return self.wrong(format!("control character 0x{byte:02x} in text; it must be escaped"));
                }
                Some(_) => self.at += 1,
                None => return self.expected("the closing quote"),
            }
        }
    }

    fn word(&mut self, word: &str) -> Result<(), Wrong> {
        if !self.row.get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes())) {
            return self.expected("a value");
        }
        self.at += word.len();
        Ok(())
    }
}
