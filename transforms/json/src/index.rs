//! Where the quotes of a row are: strings are hopped over, not read.

use crate::blocks::{self, BLOCK};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Number of quotes that no backslash stands before.
    pub quotes: usize,
    /// The row may have backslashes, control characters, or bytes that are not ASCII (a byte after the row's end may
    /// have been looked at).
    pub special: bool,
}

impl Index {
    /// The positions found by `read`, and `BEYOND` after the last.
    pub fn positions(&self) -> &[u16] {
        &self.positions
    }

    /// Finds the quotes in the first `length` bytes of `row`, at most `MAX_ROW`. The bytes after them may be looked at.
    #[inline]
    pub fn read(&mut self, row: &[u8], length: usize) -> Found {
        // Room for a quote in every byte, and for what is written too much.
        if self.positions.len() < length + 2 * BLOCK {
            self.positions.resize(length + 2 * BLOCK, BEYOND);
        }
        let mut written = 0;
        let mut special = false;
        let mut escaped = 0u64;
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
            let found = blocks::read(block);
            let mut quotes = found.quotes;
            if found.special || escaped != 0 {
                special = true;
                quotes = without_escaped(quotes, block, &mut escaped);
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
        Found { quotes: written, special }
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

/// Takes away the quotes that a backslash stands before. `escaped`: bit 0 is set if the first byte of this block is
/// escaped by the last of the block before; leaves the same for the next block.
#[inline(never)]
fn without_escaped(quotes: u64, block: &[u8; BLOCK], escaped: &mut u64) -> u64 {
    let first = std::mem::take(escaped);
    let mut quotes = quotes & !first;
    let mut backslashes = blocks::backslashes(block) & !first;
    while backslashes != 0 {
        let bit = backslashes & backslashes.wrapping_neg();
        *escaped = bit >> (BLOCK - 1);
        quotes &= !(bit << 1);
        backslashes &= !(bit | bit << 1);
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
        assert_eq!(&index.positions()[..found.quotes], expected, "{:?}", String::from_utf8_lossy(column));
        assert_eq!(index.positions()[found.quotes], BEYOND);
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
