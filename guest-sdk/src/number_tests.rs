#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

/// Small numbers that repeat, the same for every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }

    fn number(&mut self) -> String {
        let mut text = String::new();
        if self.below(2) == 0 {
            text.push('-');
        }
        if self.below(4) == 0 {
            text.push('0');
        } else {
            text.push((b'1' + self.below(9) as u8) as char);
            for _ in 0..self.below(4) {
                text.push(['0', '0', '1', '9'][self.below(4) as usize]);
            }
        }
        if self.below(2) == 0 {
            text.push('.');
            for _ in 0..1 + self.below(4) {
                text.push(['0', '0', '1', '5'][self.below(4) as usize]);
            }
        }
        match self.below(4) {
            0 => text.push_str(&format!("e{}", self.below(7))),
            1 => text.push_str(&format!("E-{}", self.below(7))),
            2 => text.push_str(&format!("e+{}", 90 + self.below(20))),
            _ => {}
        }
        text
    }
}

/// A naive big decimal: sign, and 300 digits of which 150 stand after the point.
fn naive(text: &str) -> (bool, Vec<u8>) {
    let negative = text.starts_with('-');
    let text = text.trim_start_matches('-').to_lowercase();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i64 = exponent.trim_start_matches('+').parse().unwrap();
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = vec![0u8; 300];
    for (i, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let place = 150 + i as i64 - whole.len() as i64 - exponent;
        if digit != b'0' {
            digits[place as usize] = digit - b'0';
        }
    }
    let zero = digits.iter().all(|&d| d == 0);
    (negative && !zero, digits)
}

fn naive_order(a: &str, b: &str) -> Ordering {
    let ((a_negative, a), (b_negative, b)) = (naive(a), naive(b));
    match (a_negative, b_negative) {
        (false, false) => a.cmp(&b),
        (true, true) => b.cmp(&a),
        (a, b) => b.cmp(&a),
    }
}

fn key(text: &str) -> Vec<u8> {
    order_key(text.as_bytes()).unwrap_or_else(|| panic!("{text} is a number"))
}

fn check(ascending: &[&str]) {
    for pair in ascending.windows(2) {
        assert!(key(pair[0]) < key(pair[1]), "{} < {}", pair[0], pair[1]);
    }
}

#[test]
fn bytes_compare_as_a_naive_big_decimal_does() {
    let mut random = Random(7);
    for _ in 0..40_000 {
        let (a, b) = (random.number(), random.number());
        assert_eq!(key(&a).cmp(&key(&b)), naive_order(&a, &b), "{a} and {b}");
    }
}

#[test]
fn equal_numbers_have_equal_bytes() {
    for group in [
        &["1", "1.0", "1e0", "10e-1", "0.1e1", "0.01E+2", "1.000000000000000000000000"][..],
        &["0", "-0", "0.0", "-0.00e7", "0e999999999999999999999999"],
        &["1e100", "10e99", "0.1e101"],
        &["1e1000000000000000000000", "10e999999999999999999999", "0.001e1000000000000000000003"],
        &["1e-1000000000000000000000", "0.01e-999999999999999999998", "1000e-1000000000000000000003"],
    ] {
        for text in group {
            assert_eq!(key(text), key(group[0]), "{text}");
            assert_eq!(canonical(text.as_bytes()).unwrap(), key(group[0]));
        }
    }
}

#[test]
fn magnitude_has_no_bound() {
    check(&[
        "-1e1000000000000000000000000",
        "-1e999999999999999999",
        "-1e97",
        "-1e96",
        "-12.3",
        "-12",
        "-1e-95",
        "-1e-98",
        "-1e-1000000000000000000000000",
        "0",
        "1e-1000000000000000000000000",
        "1e-100000000000000000",
        "1e-101",
        "1e-98",
        "1e-97",
        "1e-95",
        "0.9999",
        "1",
        "1.01",
        "9007199254740992",
        "9007199254740993",
        "123456789012345678901234567890",
        "123456789012345678901234567891",
        "1e95",
        "1e96",
        "1e97",
        "1e99",
        "1e999999999999999999",
        "1e1000000000000000000000000",
    ]);
}

#[test]
fn integers_and_floats_meet_the_text_of_the_same_value() {
    let from_i64 = |n: i64| {
        let mut into = Vec::new();
        order_key_of_i64(n, &mut into);
        into
    };
    let from_f64 = |n: f64| {
        let mut into = Vec::new();
        order_key_of_f64(n, &mut into);
        into
    };
    for n in [0, 1, -1, 10, -10, 100, 12345, i64::MAX, i64::MIN, i64::MIN + 1] {
        assert_eq!(from_i64(n), key(&n.to_string()));
    }
    for (float, text) in [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (0.5, "0.5"),
        (-2.75, "-2.75"),
        (
            1e300,
            "1000000000000000052504760255204420248704468581108159154915854115111802457988908195786371375080447854045104383280800000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
        ),
        (0.1, "0.1000000000000000055511151231257827021181583404541015625"),
        (1e19, "10000000000000000000"),
    ] {
        if text.len() < 100 {
            assert_eq!(from_f64(float), key(text), "{float}");
        }
    }
    assert!(from_f64(0.1) > key("0.1"), "the float is a little more than a tenth");
    assert!(from_f64(f64::MIN_POSITIVE) > key("0"));
    assert!(from_f64(f64::NEG_INFINITY) < key("-1e999999999999"));
    assert!(from_f64(f64::INFINITY) > key("1e999999999999"));
    assert!(from_f64(f64::NAN) > from_f64(f64::INFINITY));
    assert_eq!(from_f64(f64::NAN), from_f64(-f64::NAN));
}

#[test]
fn no_encoding_is_a_prefix_of_another() {
    let mut random = Random(3);
    let keys: Vec<Vec<u8>> = (0..400).map(|_| key(&random.number())).collect();
    for a in &keys {
        for b in &keys {
            assert!(a == b || !b.starts_with(a));
        }
    }
}

#[test]
fn what_is_not_a_json_number_is_refused() {
    for text in [
        "", "-", "+1", "01", "-01", "1.", ".5", "1e", "1e+", "1.e3", "0x1", "NaN", "Infinity", " 1", "1 ", "1,", "--1",
        "1e1.5", "00",
    ] {
        assert_eq!(order_key(text.as_bytes()), None, "{text:?}");
    }
    assert_eq!(number_length(b"12.5e3,"), Some(6));
    assert_eq!(number_length(b"0,"), Some(1));
    assert_eq!(number_length(b"01"), None);
}

#[test]
fn conversion_to_integers_is_exact_or_nothing() {
    for (text, number) in [
        ("0", Some(0)),
        ("-0.0", Some(0)),
        ("1.0", Some(1)),
        ("12e2", Some(1200)),
        ("1200e-2", Some(12)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("1.5", None),
        ("1e19", None),
        ("1e99999999999999999999", None),
        ("0.1e1", Some(1)),
    ] {
        assert_eq!(to_i64(text.as_bytes()), number, "{text}");
    }
    assert_eq!(to_f64(b"1e400"), Some(f64::INFINITY));
    assert_eq!(to_f64(b"0.1"), Some(0.1));
    assert_eq!(to_f64(b"x"), None);
}

#[test]
fn the_bytes_are_those_of_the_table() {
    assert_eq!(key("0"), [3]);
    assert_eq!(key("1"), [4, 0x81, 11, 0]);
    assert_eq!(key("-1"), [2, !0x81, !11, 255]);
    assert_eq!(key("123"), [4, 0x83, 13, 31, 0]);
    assert_eq!(key("1e200"), [4, 0xff, 0, 0, 0, 3, b'2', b'0', b'1', 11, 0]);
}
