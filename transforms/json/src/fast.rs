//! The fast way through a row: an object or array, hopping from quote to quote.
//!
//! It checks everything that JSON asks for, but explains nothing and knows only what rows usually look like. Where it
//! meets anything else it gives up, and the careful way decides: the two may differ in speed, never in what they accept.

use tamis_guest::number;

use crate::index::{Found, Index, MAX_ROW};
use crate::wanted::{Level, NOWHERE, ROOT, Taker};

/// Reads the row that is the first `length` bytes of `rest`; what follows belongs to later rows. False: not settled,
/// and what was found does not count.
#[inline]
pub fn row(rest: &[u8], length: usize, index: &mut Index, taker: &mut Taker<'_>) -> bool {
    if !(2..=MAX_ROW).contains(&length) {
        return false;
    }
    let found = index.read(rest, length);
    if found.wrong || (found.wide && !is_utf8(rest, length)) {
        return false;
    }
    let mut scan = Scan { row: rest, quotes: index.positions(), next: 0, depth: 0, found, taker };
    let end = match rest.first() {
        Some(b'{') => scan.object(1, ROOT),
        Some(b'[') => scan.array(1, ROOT),
        _ => return false,
    };
    // Positions only grow, so a scan that ends here has not looked beyond the row for anything it believed.
    if end != Some(length) {
        return false;
    }
    taker.container(ROOT, 0, length);
    true
}

#[inline(never)]
fn is_utf8(rest: &[u8], length: usize) -> bool {
    rest.get(..length).is_some_and(|row| std::str::from_utf8(row).is_ok())
}

struct Scan<'s, 't> {
    row: &'s [u8],
    quotes: &'s [u16],
    /// The quote to come.
    next: usize,
    /// Containers around the current one.
    depth: usize,
    /// Where text may have escapes.
    found: Found,
    taker: &'s mut Taker<'t>,
}

impl Scan<'_, '_> {
    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        self.row.get(at).copied().unwrap_or(0)
    }

    /// Hops over the string that must start at `at`; its last quote. A failing hop leads beyond the row.
    #[inline(always)]
    fn string(&mut self, at: usize) -> Option<usize> {
        let &[open, close] = self.quotes.get(self.next..)?.first_chunk::<2>()?;
        self.next += 2;
        (usize::from(open) == at).then_some(usize::from(close))
    }

    /// The members after a `{`; the place after the `}`.
    fn object(&mut self, mut at: usize, level: Level) -> Option<usize> {
        if self.byte(at) == b' ' {
            at = self.spaces(at);
        }
        if self.byte(at) == b'}' {
            return Some(at + 1);
        }
        loop {
            let close = self.string(at)?;
            let mut inner = NOWHERE;
            if level != NOWHERE {
                inner = self.member(level, at + 1, close);
            }
            at = close + 1;
            if self.byte(at) != b':' {
                at = self.spaces(at);
                if self.byte(at) != b':' {
                    return None;
                }
            }
            at = self.value(at + 1, inner)?;
            match self.byte(at) {
                b',' => at += 1,
                b'}' => return Some(at + 1),
                _ => {
                    at = self.spaces(at);
                    match self.byte(at) {
                        b',' => at += 1,
                        b'}' => return Some(at + 1),
                        _ => return None,
                    }
                }
            }
            // Exactly one space is what many writers put here.
            if self.byte(at) == b' ' {
                at += 1;
                if self.byte(at) == b' ' {
                    at = self.spaces(at);
                }
            }
        }
    }

    /// The elements after a `[`; the place after the `]`.
    fn array(&mut self, mut at: usize, level: Level) -> Option<usize> {
        at = self.spaces(at);
        if self.byte(at) == b']' {
            return Some(at + 1);
        }
        let mut number = 0;
        loop {
            let inner = if level == NOWHERE { NOWHERE } else { self.taker.element(level, number) };
            at = self.value(at, inner)?;
            number += 1;
            if self.byte(at) == b' ' {
                at = self.spaces(at);
            }
            match self.byte(at) {
                b',' => at += 1,
                b']' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    #[inline(always)]
    fn member(&mut self, level: Level, from: usize, to: usize) -> Level {
        let rest = self.row.get(from..).unwrap_or_default();
        let length = to.wrapping_sub(from);
        if self.found.escaped(from, to)
            && let Some(name) = rest.get(..length).filter(|name| name.contains(&b'\\'))
        {
            return self.taker.escaped_member(level, name);
        }
        self.taker.member(level, rest, length)
    }

    /// A value and the spaces before it; the place after it.
    #[inline(always)]
    fn value(&mut self, mut at: usize, level: Level) -> Option<usize> {
        let mut byte = self.byte(at);
        if byte == b' ' {
            at += 1;
            byte = self.byte(at);
            if byte == b' ' {
                at = self.spaces(at);
                byte = self.byte(at);
            }
        }
        if level != NOWHERE {
            self.taker.begin(level);
        }
        if byte == b'"' {
            let close = self.string(at)?;
            if level != NOWHERE {
                self.taker.text(level, self.row, at + 1, close, self.found.escaped(at + 1, close));
            }
            return Some(close + 1);
        }
        if byte.is_ascii_digit() || byte == b'-' {
            let end = self.number(at)?;
            if level != NOWHERE {
                self.taker.number(level, at, end);
            }
            return Some(end);
        }
        self.other(at, byte, level)
    }

    #[inline(never)]
    fn other(&mut self, at: usize, byte: u8, level: Level) -> Option<usize> {
        let rest = self.row.get(at..).unwrap_or_default();
        match byte {
            b't' if rest.starts_with(b"true") => {
                self.taker.boolean(level, true);
                Some(at + 4)
            }
            b'f' if rest.starts_with(b"false") => {
                self.taker.boolean(level, false);
                Some(at + 5)
            }
            b'n' if rest.starts_with(b"null") => {
                self.taker.null(level);
                Some(at + 4)
            }
            // The root is one of the 128.
            b'{' | b'[' if self.depth < 127 => {
                self.depth += 1;
                let end = if byte == b'{' { self.object(at + 1, level) } else { self.array(at + 1, level) }?;
                self.depth -= 1;
                self.taker.container(level, at, end);
                Some(end)
            }
            _ => None,
        }
    }

    /// A number; the place after it. What follows is checked by whoever reads on.
    #[inline(always)]
    fn number(&self, at: usize) -> Option<usize> {
        let from = at + usize::from(self.byte(at) == b'-');
        let count = self.digits(from);
        let end = from + count;
        let follows = self.byte(end);
        if count == 0
            || count == 16
            || (count > 1 && self.byte(from) == b'0')
            || follows == b'.'
            || follows | 0x20 == b'e'
        {
            return self.long_number(at);
        }
        Some(end)
    }

    /// Fractions, exponents, many digits, and what is not a number.
    #[inline(never)]
    fn long_number(&self, at: usize) -> Option<usize> {
        number::number_length(self.row.get(at..).unwrap_or_default()).map(|length| at + length)
    }

    /// How many digits stand here, up to 16. Near the end of the column: 0, though there may be some.
    #[inline(always)]
    fn digits(&self, at: usize) -> usize {
        let Some(words) = self.row.get(at..).and_then(|rest| rest.first_chunk::<16>()) else { return 0 };
        let (low, high) = (u128::from_le_bytes(*words) as u64, (u128::from_le_bytes(*words) >> 64) as u64);
        match leading_digits(low) {
            8 => 8 + leading_digits(high),
            count => count,
        }
    }

    /// The place after the spaces; other white space is for the careful way.
    #[inline(never)]
    fn spaces(&self, mut at: usize) -> usize {
        while self.byte(at) == b' ' {
            at += 1;
        }
        at
    }
}

/// How many of the eight bytes, from the lowest on, are digits.
#[inline(always)]
fn leading_digits(word: u64) -> usize {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let digits = word ^ 0x3030_3030_3030_3030;
    let others = ((digits & !HIGH) + 0x7676_7676_7676_7676 | digits) & HIGH;
    (others.trailing_zeros() / 8) as usize
}
