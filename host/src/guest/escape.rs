//! Text that others wrote, made safe to show.

use std::fmt::Write;

/// Escapes what could move a cursor, start a line or turn the direction of writing: control characters, line and
/// paragraph separators, direction marks. Everything else stays as it is.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || turns_direction(c) => {
                // Writing into a String cannot fail.
                let _ = write!(out, "\\u{{{:x}}}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

fn turns_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn what_a_terminal_would_obey_is_spelled_out() {
        assert_eq!(escape("a\u{1b}[31mb\nc\u{202e}d\u{9b}"), "a\\u{1b}[31mb\\nc\\u{202e}d\\u{9b}");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        assert_eq!(escape("Grüße, \u{1f980} \\ \"x\""), "Grüße, \u{1f980} \\ \"x\"");
    }
}
