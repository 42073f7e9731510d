//! Exact numbers: decimal text of any length and magnitude, compared without going through floats (K5, O2).
//!
//! The bytes made here are canonical and ordered at once: two numbers give equal bytes when they are mathematically
//! equal (`1`, `1.0`, `1e0`, `-0` and `0`), and bytes that compare as the numbers do when they are not. No encoding is a
//! prefix of another, so they may stand inside longer keys.
//!
//! Layout, of a number written as 0.d1d2d3.. x 10^E with d1 not 0 and no zeros at the end:
//!
//! | part | bytes |
//! |---|---|
//! | class | 1 minus infinity, 2 negative, 3 zero, 4 positive, 5 infinity, 6 not a number; 1, 3, 5 and 6 are whole |
//! | E | one byte 0x80 + E for -96 to 96; else 0xff (above) or 0x00 (below), the number of its digits (u32, big-endian), the digits |
//! | digits | two a byte, as their number + 1, the last filled up with a zero |
//! | end | 0 |
//!
//! Below zero, E and all bytes after the class are complemented; so are the bytes of an E below -96, its sign apart.

use std::cmp::Ordering;

const MINUS_INFINITY: u8 = 1;
const NEGATIVE: u8 = 2;
const ZERO: u8 = 3;
const POSITIVE: u8 = 4;
const INFINITY: u8 = 5;
const NOT_A_NUMBER: u8 = 6;

/// Exponents of this size take one byte.
const SMALL: i64 = 96;

/// The canonical bytes of a number in JSON syntax: equal if and only if the numbers are equal. `None`: not a number.
pub fn canonical(text: &[u8]) -> Option<Vec<u8>> {
    order_key(text)
}

/// Bytes that compare as the numbers do. `None`: not JSON number syntax.
pub fn order_key(text: &[u8]) -> Option<Vec<u8>> {
    let mut into = Vec::with_capacity(text.len() / 2 + 8);
    order_key_into(text, &mut into).then_some(into)
}

/// As `order_key`, added to `into`. False, and nothing added, if the text is not JSON number syntax.
pub fn order_key_into(text: &[u8], into: &mut Vec<u8>) -> bool {
    let Some(number) = Parts::of(text) else { return false };
    number.encode(into);
    true
}

/// As `order_key`, of an integer.
pub fn order_key_of_i64(number: i64, into: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    while rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let whole = digits.get(at..).unwrap_or_default();
    Parts { negative: number < 0, whole, fraction: &[], exponent: Exponent::ZERO }.encode(into);
}

/// As `order_key`, of the exact value of a float; infinities beyond all numbers, NaN above all.
pub fn order_key_of_f64(number: f64, into: &mut Vec<u8>) {
    if number.is_nan() {
        return into.push(NOT_A_NUMBER);
    }
    if number.is_infinite() {
        return into.push(if number > 0.0 { INFINITY } else { MINUS_INFINITY });
    }
    if number.fract() == 0.0 && number.abs() < 9e18 {
        return order_key_of_i64(number as i64, into);
    }
    // 767 digits are enough for every binary64; the printer of the standard library is exact.
    let text = format!("{number:.766e}");
    order_key_into(text.as_bytes(), into);
}

/// Compares two numbers in JSON syntax by exact value. `None` if one is not a number.
pub fn compare(a: &[u8], b: &[u8]) -> Option<Ordering> {
    if a == b {
        return is_number(a).then_some(Ordering::Equal);
    }
    Some(order_key(a)?.cmp(&order_key(b)?))
}

/// JSON number syntax: `-? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?`.
pub fn is_number(text: &[u8]) -> bool {
    number_length(text) == Some(text.len())
}

/// Length of the number at the start of `text`; `None` if there is none. What follows is the caller's to judge.
pub fn number_length(text: &[u8]) -> Option<usize> {
    let byte = |at: usize| text.get(at).copied().unwrap_or(0);
    let digits = |mut at: usize| {
        while byte(at).is_ascii_digit() {
            at += 1;
        }
        at
    };
    let mut at = usize::from(byte(0) == b'-');
    let from = at;
    at = digits(at);
    if at == from || (byte(from) == b'0' && at > from + 1) {
        return None;
    }
    if byte(at) == b'.' {
        let fraction = at + 1;
        at = digits(fraction);
        if at == fraction {
            return None;
        }
    }
    if matches!(byte(at), b'e' | b'E') {
        let exponent = at + 1 + usize::from(matches!(byte(at + 1), b'+' | b'-'));
        at = digits(exponent);
        if at == exponent {
            return None;
        }
    }
    Some(at)
}

/// The integer a number in JSON syntax is, if it is one that fits (`1.0` and `1e3` are).
pub fn to_i64(text: &[u8]) -> Option<i64> {
    let parts = Parts::of(text)?;
    let (digits, exponent) = parts.significant();
    if digits.is_empty() {
        return Some(0);
    }
    let Exponent::Small(exponent) = exponent else { return None };
    if exponent < digits.len() as i64 || exponent > 19 {
        return None;
    }
    let mut number: i64 = 0;
    for place in 0..exponent as usize {
        let digit = i64::from(digits.at(place).unwrap_or(b'0') - b'0');
        number = number.checked_mul(10)?;
        number = if parts.negative { number.checked_sub(digit)? } else { number.checked_add(digit)? };
    }
    Some(number)
}

/// The nearest float of a number in JSON syntax; an infinity beyond the largest. `None`: not a number.
pub fn to_f64(text: &[u8]) -> Option<f64> {
    if !is_number(text) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number as it is written.
struct Parts<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: Exponent,
}

/// A power of ten: most fit, the others are kept as digits without zeros in front.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Exponent {
    Small(i64),
    Large { negative: bool, digits: Vec<u8> },
}

/// Digits before and after the point, read as one row, zeros at both ends left out.
struct Digits<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
}

impl Digits<'_> {
    fn len(&self) -> usize {
        self.whole.len() + self.fraction.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn at(&self, place: usize) -> Option<u8> {
        match self.whole.get(place) {
            Some(&digit) => Some(digit),
            None => self.fraction.get(place - self.whole.len()).copied(),
        }
    }
}

impl<'a> Parts<'a> {
    fn of(text: &'a [u8]) -> Option<Parts<'a>> {
        if !is_number(text) {
            return None;
        }
        let (negative, text) = match text.split_first() {
            Some((b'-', rest)) => (true, rest),
            _ => (false, text),
        };
        let (mantissa, exponent) = match text.iter().position(|&b| b == b'e' || b == b'E') {
            Some(at) => (text.get(..at)?, Exponent::of(text.get(at + 1..)?)),
            None => (text, Exponent::ZERO),
        };
        let (whole, fraction) = match mantissa.iter().position(|&b| b == b'.') {
            Some(at) => (mantissa.get(..at)?, mantissa.get(at + 1..)?),
            None => (mantissa, &[][..]),
        };
        Some(Parts { negative, whole, fraction, exponent })
    }

    /// Digits without zeros at either end, and E; no digits: zero.
    fn significant(&self) -> (Digits<'a>, Exponent) {
        let mut whole = without_leading(self.whole);
        let mut fraction = self.fraction;
        let mut shift = whole.len() as i64;
        if whole.is_empty() {
            let stripped = without_leading(fraction);
            shift = -((fraction.len() - stripped.len()) as i64);
            fraction = stripped;
        }
        fraction = without_trailing(fraction);
        if fraction.is_empty() {
            whole = without_trailing(whole);
        }
        (Digits { whole, fraction }, self.exponent.plus(shift))
    }

    fn encode(&self, into: &mut Vec<u8>) {
        let (digits, exponent) = self.significant();
        if digits.is_empty() {
            return into.push(ZERO);
        }
        into.push(if self.negative { NEGATIVE } else { POSITIVE });
        let from = into.len();
        exponent.encode(into);
        let mut place = 0;
        while let Some(ten) = digits.at(place) {
            let one = digits.at(place + 1).unwrap_or(b'0');
            into.push((ten - b'0') * 10 + (one - b'0') + 1);
            place += 2;
        }
        into.push(0);
        if self.negative {
            into.iter_mut().skip(from).for_each(|byte| *byte = !*byte);
        }
    }
}

impl Exponent {
    const ZERO: Exponent = Exponent::Small(0);

    /// Of digits with a sign or without.
    fn of(text: &[u8]) -> Exponent {
        let (negative, digits) = match text.split_first() {
            Some((b'-', rest)) => (true, rest),
            Some((b'+', rest)) => (false, rest),
            _ => (false, text),
        };
        let digits = without_leading(digits);
        if digits.len() > 17 {
            return Exponent::Large { negative, digits: digits.to_vec() };
        }
        let size = digits.iter().fold(0i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        Exponent::Small(if negative { -size } else { size })
    }

    /// `shift` is a length of text, so far below 10^17.
    fn plus(&self, shift: i64) -> Exponent {
        match self {
            Exponent::Small(exponent) => Exponent::Small(exponent + shift),
            Exponent::Large { negative, digits } => {
                // |exponent| >= 10^17 > |shift|, so the sign stays.
                let grows = *negative == (shift < 0);
                let mut digits = digits.clone();
                add(&mut digits, shift.unsigned_abs(), grows);
                Exponent::Large { negative: *negative, digits: without_leading(&digits).to_vec() }
            }
        }
    }

    fn encode(&self, into: &mut Vec<u8>) {
        let mut text = [0u8; 20];
        let (negative, digits) = match self {
            Exponent::Small(exponent) if exponent.abs() <= SMALL => return into.push((0x80 + exponent) as u8),
            Exponent::Small(exponent) => {
                let mut at = text.len();
                let mut rest = exponent.unsigned_abs();
                while rest > 0 {
                    at -= 1;
                    text[at] = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
                (*exponent < 0, text.get(at..).unwrap_or_default())
            }
            Exponent::Large { negative, digits } => (*negative, digits.as_slice()),
        };
        into.push(if negative { 0x00 } else { 0xff });
        let from = into.len();
        into.extend_from_slice(&(digits.len() as u32).to_be_bytes());
        into.extend_from_slice(digits);
        if negative {
            into.iter_mut().skip(from).for_each(|byte| *byte = !*byte);
        }
    }
}

/// Adds to, or takes from, a decimal number of digits; the result does not fall below zero.
fn add(digits: &mut Vec<u8>, mut amount: u64, plus: bool) {
    let mut carry = 0i8;
    for digit in digits.iter_mut().rev() {
        let step = (amount % 10) as i8;
        amount /= 10;
        let mut value = (*digit - b'0') as i8 + carry + if plus { step } else { -step };
        carry = 0;
        if value > 9 {
            value -= 10;
            carry = 1;
        } else if value < 0 {
            value += 10;
            carry = -1;
        }
        *digit = b'0' + value as u8;
    }
    if carry > 0 {
        digits.insert(0, b'1');
    }
}

fn without_leading(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    digits.get(zeros..).unwrap_or_default()
}

fn without_trailing(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().rev().take_while(|&&digit| digit == b'0').count();
    digits.get(..digits.len() - zeros).unwrap_or_default()
}

#[cfg(test)]
#[path = "number_tests.rs"]
mod tests;
