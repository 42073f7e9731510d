//! Where the quotes of a row are: strings are hopped over, not read.

use crate::blocks::{self, BLOCK};
use crate::escape;

/// Rows up to this length are indexed; longer ones go the careful way.
pub const MAX_ROW: usize = 60_000;

/// Stands after the last quote, and is beyond every row.
const BEYOND: u16 = u16::MAX;

/// The quotes of one row. Its memory is kept from row to row.
#[derive(Debug, Default)]
pub struct Index {
    positions: Vec<u16>,
}

/// What an index found out on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Number of quotes that no backslash stands before.
    pub quotes: usize,
    /// Where the first escape starts, and where the last one ends; equal: there is none.
    pub escapes: (usize, usize),
    /// There is a control character, or an escape that JSON does not have.
    pub wrong: bool,
    /// There is a byte that is not ASCII.
    pub wide: bool,
}

impl Found {
    /// Can there be an escape between these places?
    #[inline(always)]
    pub fn escaped(&self, from: usize, to: usize) -> bool {
        from < self.escapes.1 && to > self.escapes.0
    }
}

impl Index {
    /// The positions found by `read`, two by two, and `BEYOND` after the last.
    pub fn strings(&self) -> &[[u16; 2]] {
        self.positions.as_chunks().0
    }

    /// Finds the quotes in the first `length` bytes of `row`, at most `MAX_ROW`. The bytes after them may be looked at.
    #[inline]
    pub fn read(&mut self, row: &[u8], length: usize) -> Found {
        // Room for a quote in every byte, and for what is written too much.
        if self.positions.len() < length + 2 * BLOCK {
            self.positions.resize(length + 2 * BLOCK, BEYOND);
        }
        let mut found = Found::default();
        let mut written = 0;
        let mut at = 0;
        while at < length {
            let tail;
            let block = match row.get(at..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
                Some(block) => block,
                None => {
                    tail = last_block(row, at);
                    &tail
                }
            };
            let read = blocks::read(block);
            let mut quotes = read.quotes;
            if read.special || found.escapes.1 > at {
                let row = row.get(..length).unwrap_or_default();
                quotes = special(quotes, block, row, at, &mut found);
            }
            let left = length - at;
            if left < BLOCK {
                quotes &= (1 << left) - 1;
            }
            written = self.write(quotes, at as u32, written);
            at += BLOCK;
        }
        if let Some(end) = self.positions.get_mut(written..written + 4) {
            end.fill(BEYOND);
        }
        found.quotes = written;
        found
    }

    /// Writes the positions of the bits. Straight code for the usual number: a loop costs more than a few writes too
    /// many.
    #[inline(always)]
    fn write(&mut self, mut bits: u64, base: u32, written: usize) -> usize {
        let count = bits.count_ones() as usize;
        let Some(room) = self.positions.get_mut(written..written + BLOCK) else { return written };
        macro_rules! write {
            ($($n:literal)*) => {$(
                room[$n] = (base + bits.trailing_zeros()) as u16;
                bits &= bits.wrapping_sub(1);
            )*};
        }
        write!(0 1 2 3 4 5 6 7);
        if count > 8 {
            write!(8 9 10 11 12 13 14 15);
            if count > 16 {
                write_rest(room, bits, base);
            }
        }
        written + count
    }
}

#[cold]
fn write_rest(room: &mut [u16], mut bits: u64, base: u32) {
    for place in room.iter_mut().skip(16) {
        if bits == 0 {
            break;
        }
        *place = (base + bits.trailing_zeros()) as u16;
        bits &= bits - 1;
    }
}

/// The last bytes of a column, filled up with spaces.
#[cold]
fn last_block(row: &[u8], at: usize) -> [u8; BLOCK] {
    let mut block = [b' '; BLOCK];
    let rest = row.get(at..).unwrap_or_default();
    for (to, from) in block.iter_mut().zip(rest) {
        *to = *from;
    }
    block
}

/// Looks closer at a block with special bytes, which starts at `at`: notes what they are, checks escapes, and takes away
/// the quotes that belong to one. An escape may reach into the next block.
#[inline(never)]
fn special(mut quotes: u64, block: &[u8; BLOCK], row: &[u8], at: usize, found: &mut Found) -> u64 {
    let specials = blocks::specials(block);
    let inside = match row.len() - at {
        left @ 0..BLOCK => (1u64 << left) - 1,
        _ => u64::MAX,
    };
    found.wrong |= specials.control & inside != 0;
    found.wide |= specials.wide & inside != 0;
    if found.escapes.1 > at {
        // Of an escape that began in the block before, only its second byte can be a quote.
        quotes &= !1;
    }
    let mut backslashes = specials.backslashes & inside;
    while backslashes != 0 {
        let bit = backslashes.trailing_zeros() as usize;
        backslashes &= backslashes - 1;
        let start = at + bit;
        if start < found.escapes.1 {
            // Part of an escape: the second backslash of two, or the second unit of a pair.
            continue;
        }
        let length = escape::length(row, start).unwrap_or_else(|_| {
            found.wrong = true;
            2
        });
        if found.escapes.1 == 0 {
            found.escapes.0 = start;
        }
        found.escapes.1 = start + length;
        quotes &= !(2 << bit);
    }
    quotes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against reading byte by byte.
    fn check(index: &mut Index, column: &[u8], length: usize) {
        let found = index.read(column, length);
        let mut expected = Vec::new();
        let mut escaped = false;
        for (at, &byte) in column[..length].iter().enumerate() {
            if escaped {
                escaped = false;
            } else if byte == b'\\' {
                escaped = true;
            } else if byte == b'"' {
                expected.push(at as u16);
            }
        }
        assert_eq!(&index.positions[..found.quotes], expected, "{:?}", String::from_utf8_lossy(column));
        assert_eq!(index.positions[found.quotes], BEYOND);
    }

    #[test]
    fn quotes_are_found_as_byte_by_byte() {
        let mut index = Index::default();
        let mut state = 5u64;
        for round in 0..20_000 {
            let length = round % 300;
            let column: Vec<u8> = (0..length + round % 70)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    b"\"\\aaa\"\\\"bb{}:,xyzw"[(state >> 40) as usize % if round % 3 == 0 { 2 } else { 17 }]
                })
                .collect();
            check(&mut index, &column, length);
        }
        check(&mut index, &[b'"'; 500], 500);
        check(&mut index, &[b'\\'; 500], 500);
    }
}
