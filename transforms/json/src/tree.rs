//! Documents of JSON text that a scanner has found valid.

use tamis_guest::document::Builder;
use tamis_guest::{kind, number};

use crate::escape;

/// Writes the value that `text` is into the builder. False: a member name is longer than a document can have.
pub fn build(text: &[u8], builder: &mut Builder) -> bool {
    let mut reader = Reader { text, at: 0, builder, resolved: Vec::new(), fits: true };
    reader.value();
    reader.fits
}

struct Reader<'s> {
    text: &'s [u8],
    at: usize,
    builder: &'s mut Builder,
    /// Text with its escapes resolved.
    resolved: Vec<u8>,
    fits: bool,
}

impl Reader<'_> {
    fn byte(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn token(&mut self) -> u8 {
        while matches!(self.byte(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.byte()
    }

    fn value(&mut self) {
        match self.token() {
            b'"' => self.string(false),
            b't' => {
                self.at += 4;
                self.builder.boolean(true);
            }
            b'f' => {
                self.at += 5;
                self.builder.boolean(false);
            }
            b'n' => {
                self.at += 4;
                self.builder.null();
            }
            b'{' => self.object(),
            b'[' => self.array(),
            _ => {
                let rest = self.text.get(self.at..).unwrap_or_default();
                let length = number::number_length(rest).unwrap_or(1);
                self.builder.bytes(kind::NUMBER, rest.get(..length).unwrap_or_default());
                self.at += length;
            }
        }
    }

    fn object(&mut self) {
        self.builder.open(kind::MAP);
        self.at += 1;
        while self.token() == b'"' {
            self.string(true);
            self.token();
            self.at += 1;
            self.value();
            if self.token() != b',' {
                break;
            }
            self.at += 1;
        }
        self.at += 1;
        self.builder.close();
    }

    fn array(&mut self) {
        self.builder.open(kind::ARRAY);
        self.at += 1;
        while !matches!(self.token(), b']' | 0) {
            self.value();
            if self.token() != b',' {
                break;
            }
            self.at += 1;
        }
        self.at += 1;
        self.builder.close();
    }

    /// Text, or the name of the member that comes next.
    fn string(&mut self, is_name: bool) {
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        let (length, escaped) = string_length(rest);
        self.at += length + 2;
        let mut text = rest.get(..length).unwrap_or_default();
        if escaped {
            self.resolved.clear();
            escape::resolve(text, &mut self.resolved);
            text = &self.resolved;
        }
        if is_name {
            self.fits &= self.builder.name(text);
        } else {
            self.builder.bytes(kind::TEXT, text);
        }
    }
}

/// Bytes before the quote that ends the text, and whether it has escapes.
fn string_length(text: &[u8]) -> (usize, bool) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The lowest byte that is zero has its high bit set; those above it may be wrong.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let mut at = 0;
    let mut escaped = false;
    loop {
        while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let word = u64::from_le_bytes(*chunk);
            let ends = zeros(word ^ (ONES * b'"' as u64)) | zeros(word ^ (ONES * b'\\' as u64));
            if ends != 0 {
                at += (ends.trailing_zeros() / 8) as usize;
                break;
            }
            at += 8;
        }
        match text.get(at) {
            None | Some(b'"') => return (at, escaped),
            Some(b'\\') => {
                escaped = true;
                at += 2;
            }
            Some(_) => at += 1,
        }
    }
}
