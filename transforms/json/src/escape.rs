//! Escapes in JSON text.

/// Length of the escape that starts at the backslash `text[at]`: 2, 6, or 12 for a surrogate pair. The error says what
/// is wrong with it.
pub fn length(text: &[u8], at: usize) -> Result<usize, &'static str> {
    match text.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(2),
        Some(b'u') => {
            let Some(unit) = unit(text, at) else { return Err("\\u needs four hexadecimal digits") };
            match unit {
                0xd800..=0xdbff => match text.get(at + 6..at + 8).and_then(|_| self::unit(text, at + 6)) {
                    Some(0xdc00..=0xdfff) => Ok(12),
                    _ => Err("a high surrogate without its low one"),
                },
                0xdc00..=0xdfff => Err("a low surrogate without its high one"),
                _ => Ok(6),
            }
        }
        _ => Err("an escape that JSON does not have"),
    }
}

/// Adds `text` to `into` with its escapes, which are valid, resolved.
pub fn resolve(text: &[u8], into: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        let (plain, escape) = rest.split_at(at);
        into.extend_from_slice(plain);
        let length = length(escape, 0).unwrap_or(2);
        let character = match escape.get(1).copied().unwrap_or(0) {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => character(escape),
            other => other as char,
        };
        into.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = escape.get(length..).unwrap_or_default();
    }
    into.extend_from_slice(rest);
}

/// The character of a `\u` escape, or of two that are a pair.
fn character(escape: &[u8]) -> char {
    let high = u32::from(unit(escape, 0).unwrap_or(0xfffd));
    let code = match (high, unit(escape, 6)) {
        (0xd800..=0xdbff, Some(low)) => 0x1_0000 + ((high - 0xd800) << 10) + (u32::from(low) & 0x3ff),
        _ => high,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The number in `\uXXXX` at `at`.
fn unit(text: &[u8], at: usize) -> Option<u16> {
    if text.get(at..at + 2)? != b"\\u" {
        return None;
    }
    text.get(at + 2..at + 6)?
        .iter()
        .try_fold(0u16, |unit, &digit| Some(unit << 4 | (digit as char).to_digit(16)? as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Is every escape valid?
    fn all_valid(text: &[u8]) -> bool {
        let mut at = 0;
        while let Some(found) = text[at..].iter().position(|&byte| byte == b'\\') {
            match length(text, at + found) {
                Ok(length) => at += found + length,
                Err(_) => return false,
            }
        }
        true
    }

    fn check(text: &str, resolved: &str) {
        assert!(all_valid(text.as_bytes()), "{text}");
        let mut into = Vec::new();
        resolve(text.as_bytes(), &mut into);
        assert_eq!(into, resolved.as_bytes(), "{text}");
    }

    #[test]
    fn escapes_are_resolved() {
        check(r"a\nb", "a\nb");
        check(r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t");
        check(r"\u00e9\u20AC", "é€");
        check(r"\ud83d\ude00!", "😀!");
        check(r"\\u0041", "\\u0041");
        check(r"\u0000", "\0");
    }

    #[test]
    fn what_is_no_escape_is_refused() {
        for text in [
            r"\x",
            r"\",
            r"\u",
            r"\u12",
            r"\u12g4",
            r"\ud800",
            r"\ud800x",
            r"\ud800\n",
            r"\ud800\u0041",
            r"\udc00",
            r"\U0041",
        ] {
            assert!(!all_valid(text.as_bytes()), "{text}");
        }
    }
}
