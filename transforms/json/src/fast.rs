//! The fast way through a row: an object or array, hopping from quote to quote.
//!
//! It checks everything that JSON asks for, but explains nothing and knows only what rows usually look like. Where it
//! meets anything else it gives up, and the careful way decides: the two may differ in speed, never in what they accept.

use tamis_guest::{kind, number};

use crate::index::{Found, Index, MAX_ROW};
use crate::wanted::{Level, NOWHERE, ROOT, Taker, may_be_member};

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
    let mut scan = Scan { row: rest, strings: index.strings().iter(), depth: 0, found, taker };
    let end = match (rest.first(), found.escapes.1) {
        (Some(b'{'), 0) => scan.object::<false>(1, ROOT),
        (Some(b'{'), _) => scan.object::<true>(1, ROOT),
        (Some(b'['), _) => scan.array::<true>(1, ROOT),
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
    /// The strings to come: the quotes around each.
    strings: std::slice::Iter<'s, [u16; 2]>,
    /// Containers around the current one.
    depth: usize,
    /// Where text may have escapes.
    found: Found,
    taker: &'s mut Taker<'t>,
}

#[inline(always)]
fn byte(row: &[u8], at: usize) -> u8 {
    row.get(at).copied().unwrap_or(0)
}

impl<'s> Scan<'s, '_> {
    /// The members after a `{`; the place after the `}`. What most rows need stands here and stays in registers; the
    /// rest is in functions of its own. `ESCAPES`: the row may have some.
    fn object<const ESCAPES: bool>(&mut self, mut at: usize, level: Level) -> Option<usize> {
        let row = self.row;
        let bits = self.taker.bits(level);
        let mut strings = self.strings.clone();
        if byte(row, at) == b' ' {
            at = spaces(row, at);
        }
        if byte(row, at) == b'}' {
            return Some(at + 1);
        }
        loop {
            let &[open, close] = strings.next()?;
            if usize::from(open) != at {
                return None;
            }
            let (from, close) = (at + 1, usize::from(close));
            let mut inner = NOWHERE;
            if may_be_member(bits, close.wrapping_sub(from), first_two(row, from))
                || (ESCAPES && self.found.escaped(from, close))
            {
                inner = self.member::<ESCAPES>(level, from, close);
            }
            at = close + 1;
            if byte(row, at) != b':' {
                at = spaces(row, at);
                if byte(row, at) != b':' {
                    return None;
                }
            }
            at += 1;
            let mut first = byte(row, at);
            if first == b' ' {
                // Exactly one space is what many writers put here.
                at += 1;
                first = byte(row, at);
                if first == b' ' {
                    at = spaces(row, at);
                    first = byte(row, at);
                }
            }
            let mut after;
            if first == b'"' {
                let &[open, close] = strings.next()?;
                if usize::from(open) != at {
                    return None;
                }
                let close = usize::from(close);
                if inner != NOWHERE {
                    self.text::<ESCAPES>(inner, at + 1, close);
                }
                at = close + 1;
                after = byte(row, at);
            } else if first.wrapping_sub(b'0') < 10 {
                let from = at;
                at += digits(row, at);
                after = byte(row, at);
                // A point, an exponent, or something rare; whoever reads on would not take any of it.
                if (after != b',' && after != b'}') || (first == b'0' && at > from + 1) {
                    at = number_end(row, from);
                    after = byte(row, at);
                }
                if inner != NOWHERE {
                    self.taker.plain(inner, kind::NUMBER, from, at);
                }
            } else {
                self.strings = strings;
                at = self.other::<ESCAPES>(at, first, inner)?;
                strings = self.strings.clone();
                after = byte(row, at);
            }
            if after == b' ' {
                at = spaces(row, at);
                after = byte(row, at);
            }
            at += 1;
            if after != b',' {
                self.strings = strings;
                return (after == b'}').then_some(at);
            }
            if byte(row, at) == b' ' {
                at += 1;
                if byte(row, at) == b' ' {
                    at = spaces(row, at);
                }
            }
        }
    }

    /// The elements after a `[`; the place after the `]`.
    fn array<const ESCAPES: bool>(&mut self, mut at: usize, level: Level) -> Option<usize> {
        let row = self.row;
        at = spaces(row, at);
        if byte(row, at) == b']' {
            return Some(at + 1);
        }
        let mut number = 0;
        loop {
            if byte(row, at) == b' ' {
                at = spaces(row, at);
            }
            let inner = if level == NOWHERE { NOWHERE } else { self.taker.element(level, number) };
            number += 1;
            let first = byte(row, at);
            if first == b'"' {
                let &[open, close] = self.strings.next()?;
                if usize::from(open) != at {
                    return None;
                }
                if inner != NOWHERE {
                    self.text::<ESCAPES>(inner, at + 1, usize::from(close));
                }
                at = usize::from(close) + 1;
            } else {
                at = self.other::<ESCAPES>(at, first, inner)?;
            }
            if byte(row, at) == b' ' {
                at = spaces(row, at);
            }
            at += 1;
            match byte(row, at - 1) {
                b',' => {}
                b']' => return Some(at),
                _ => return None,
            }
        }
    }

    /// Where the member leads whose name stands between these places.
    #[inline(never)]
    fn member<const ESCAPES: bool>(&mut self, level: Level, from: usize, to: usize) -> Level {
        if ESCAPES
            && self.found.escaped(from, to)
            && let Some(name) = self.row.get(from..to).filter(|name| name.contains(&b'\\'))
        {
            return self.taker.escaped_member(level, name);
        }
        self.taker.member(level, self.row, from, to)
    }

    #[inline(always)]
    fn text<const ESCAPES: bool>(&mut self, level: Level, from: usize, to: usize) {
        if ESCAPES && self.found.escaped(from, to) {
            self.taker.text(level, self.row, from, to);
        } else {
            // A missing quote is beyond the row, which is found out in the end.
            self.taker.plain(level, kind::TEXT, from, to);
        }
    }

    /// A value that is neither text nor begins with a digit; in arrays, also that.
    #[inline(never)]
    fn other<const ESCAPES: bool>(&mut self, at: usize, first: u8, level: Level) -> Option<usize> {
        let rest = self.row.get(at..).unwrap_or_default();
        match first {
            b'-' | b'0'..=b'9' => {
                let end = number_end(self.row, at);
                self.taker.plain(level, kind::NUMBER, at, end);
                Some(end)
            }
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
                self.taker.begin(level);
                self.depth += 1;
                let end = if first == b'{' {
                    self.object::<ESCAPES>(at + 1, level)
                } else {
                    self.array::<ESCAPES>(at + 1, level)
                }?;
                self.depth -= 1;
                self.taker.container(level, at, end);
                Some(end)
            }
            _ => None,
        }
    }
}

/// How many digits stand here, up to 16. Near the end of the column: 0, though there may be some.
#[inline(always)]
fn digits(row: &[u8], at: usize) -> usize {
    let Some(chunk) = row.get(at..).and_then(|rest| rest.first_chunk::<16>()) else { return 0 };
    let [low, high] = chunk.as_chunks::<8>().0 else { return 0 };
    match leading_digits(u64::from_le_bytes(*low)) {
        8 => 8 + leading_digits(u64::from_le_bytes(*high)),
        count => count,
    }
}

/// The place after the number that starts here, whatever its form; what follows is checked by whoever reads on. A place
/// beyond the row if there is no number.
#[inline(never)]
fn number_end(row: &[u8], at: usize) -> usize {
    number::number_length(row.get(at..).unwrap_or_default()).map_or(row.len() + 1, |length| at + length)
}

/// The two bytes that stand here: of a name that is shorter, its quote and more.
#[inline(always)]
fn first_two(row: &[u8], at: usize) -> u16 {
    row.get(at..).and_then(|rest| rest.first_chunk::<2>()).map_or(0, |two| u16::from_le_bytes(*two))
}

/// The place after the spaces; other white space is for the careful way.
#[inline(never)]
fn spaces(row: &[u8], mut at: usize) -> usize {
    while byte(row, at) == b' ' {
        at += 1;
    }
    at
}

/// How many of the eight bytes, from the lowest on, are digits.
#[inline(always)]
fn leading_digits(word: u64) -> usize {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let digits = word ^ 0x3030_3030_3030_3030;
    let others = (((digits & !HIGH) + 0x7676_7676_7676_7676) | digits) & HIGH;
    (others.trailing_zeros() / 8) as usize
}
