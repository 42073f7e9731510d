//! Paths below a root, as codecs get them and documents are searched by (`wit/README.md`, "Paths").

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Member of a map or struct.
    Member(String),
    /// Element of an array, from 0.
    Element(u32),
}

/// Reads `a.b`, `["a.b"]` and `[0]` after any step; empty text is the whole document. The error says where and what.
pub fn parse(text: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = text.len() - rest.len();
        let wrong = |what: &str| format!("path `{text}`, at {at}: {what}");
        if let Some(inner) = rest.strip_prefix('[') {
            if inner.starts_with('"') {
                let length = quoted_length(inner).ok_or_else(|| wrong("the quote does not end"))?;
                let (quoted, after) = inner.split_at(length);
                let name = serde_json::from_str(quoted).map_err(|_| wrong("not JSON text"))?;
                rest = after.strip_prefix(']').ok_or_else(|| wrong("`]` is missing"))?;
                steps.push(Step::Member(name));
            } else {
                let (digits, after) = inner.split_once(']').ok_or_else(|| wrong("`]` is missing"))?;
                let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                let number = digits.parse().ok().filter(|_| plain);
                steps.push(Step::Element(number.ok_or_else(|| wrong("an element is a number from 0"))?));
                rest = after;
            }
            continue;
        }
        if at > 0 {
            rest = rest.strip_prefix('.').ok_or_else(|| wrong("`.` or `[` is missing"))?;
        }
        let name: &str = rest.split(['.', '[']).next().unwrap_or_default();
        if !is_identifier(name) {
            return Err(wrong("a name that is not [A-Za-z_][A-Za-z0-9_]* stands as [\"name\"]"));
        }
        steps.push(Step::Member(name.to_owned()));
        rest = rest.get(name.len()..).unwrap_or_default();
    }
    Ok(steps)
}

/// Writes steps as `parse` reads them.
pub fn format(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            Step::Member(name) if is_identifier(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Member(name) => {
                text.push('[');
                text.push_str(&serde_json::Value::from(name.as_str()).to_string());
                text.push(']');
            }
            Step::Element(number) => text.push_str(&format!("[{number}]")),
        }
    }
    text
}

/// `[A-Za-z_][A-Za-z0-9_]*`
pub fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Length of the JSON text at the start, quotes included.
fn quoted_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn member(name: &str) -> Step {
        Step::Member(name.to_owned())
    }

    fn check(text: &str, steps: &[Step]) {
        assert_eq!(parse(text).unwrap(), steps, "{text}");
        assert_eq!(format(steps), text);
    }

    #[test]
    fn paths_are_read_and_written() {
        check("", &[]);
        check("id", &[member("id")]);
        check("user.id", &[member("user"), member("id")]);
        check("[\"a.b\"]", &[member("a.b")]);
        check("a[\"x y\"].b[0][12]", &[member("a"), member("x y"), member("b"), Step::Element(0), Step::Element(12)]);
        check("[0].id", &[Step::Element(0), member("id")]);
        check("[\"\\\"]\"]", &[member("\"]")]);
        check("[\"\"]", &[member("")]);
    }

    #[test]
    fn what_is_not_a_path_is_refused() {
        for text in [
            ".",
            "a.",
            ".a",
            "a..b",
            "a[",
            "a[]",
            "a[-1]",
            "a[+1]",
            "a[x]",
            "a[\"x\"",
            "a[\"x]",
            "a b",
            "1a",
            "a[99999999999]",
            "a[0]b",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
