//! Field paths (pipeline-file section 6).

use std::fmt;

pub use tamis_guest::path::Step;

/// Where a path starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Root {
    Value,
    Key,
    Header(String),
    Timestamp,
    Topic,
    Partition,
    Offset,
    Epoch,
    Position,
}

/// A path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Where it starts.
    pub root: Root,
    /// Steps; only below `value` and `key`.
    pub steps: Vec<Step>,
}

/// Why something is no path, and what might have been meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl Path {
    /// The whole of `value` or `key`.
    pub fn whole(root: Root) -> Path {
        Path { root, steps: Vec::new() }
    }

    /// Reads a path.
    pub fn parse(text: &str) -> Result<Path, PathError> {
        let end = text.find(['.', '[']).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        let root = match word {
            "value" => Root::Value,
            "key" => Root::Key,
            "headers" => return header(rest),
            "timestamp" => Root::Timestamp,
            "topic" => Root::Topic,
            "partition" => Root::Partition,
            "offset" => Root::Offset,
            "epoch" => Root::Epoch,
            "position" => Root::Position,
            _ => return Err(without_root(text, word)),
        };
        let steps = steps(rest)?;
        if !steps.is_empty() && !matches!(root, Root::Value | Root::Key) {
            return Err(PathError {
                message: format!("nothing stands below `{word}`"),
                help: format!("write `{word}`, or `value.{word}{rest}` for a member of the value"),
            });
        }
        Ok(Path { root, steps })
    }

    /// The steps as codecs get them: without the root, "" for the whole document.
    pub fn below(&self) -> String {
        let mut out = String::new();
        for step in &self.steps {
            write_step(&mut out, step, true);
        }
        out
    }

    /// Name of the last step, for the part of an upsert key (`value.user.id`: `id`); of a path without steps, the root's.
    pub fn last_name(&self) -> String {
        match (self.steps.last(), &self.root) {
            (Some(Step::Member(name)), _) => name.clone(),
            (Some(Step::Element(i)), _) => i.to_string(),
            (None, Root::Header(name)) => name.clone(),
            (None, _) => self.to_string(),
        }
    }

    /// Whether this is the other path or something inside it.
    pub fn is_within(&self, other: &Path) -> bool {
        self.root == other.root && self.steps.starts_with(&other.steps)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = match &self.root {
            Root::Value => "value".to_string(),
            Root::Key => "key".to_string(),
            Root::Header(_) => "headers".to_string(),
            Root::Timestamp => "timestamp".to_string(),
            Root::Topic => "topic".to_string(),
            Root::Partition => "partition".to_string(),
            Root::Offset => "offset".to_string(),
            Root::Epoch => "epoch".to_string(),
            Root::Position => "position".to_string(),
        };
        if let Root::Header(name) = &self.root {
            write_step(&mut out, &Step::Member(name.clone()), false);
        }
        for step in &self.steps {
            write_step(&mut out, step, false);
        }
        f.write_str(&out)
    }
}

fn write_step(out: &mut String, step: &Step, may_start: bool) {
    match step {
        Step::Member(name) if is_identifier(name) => {
            if !(may_start && out.is_empty()) {
                out.push('.');
            }
            out.push_str(name);
        }
        Step::Member(name) => out.push_str(&format!("[{}]", serde_json::Value::String(name.clone()))),
        Step::Element(i) => out.push_str(&format!("[{i}]")),
    }
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic())
        && chars.all(|c| c == '_' || c.is_ascii_alphanumeric())
}

fn header(rest: &str) -> Result<Path, PathError> {
    match steps(rest)?.as_slice() {
        [Step::Member(name)] => Ok(Path { root: Root::Header(name.clone()), steps: Vec::new() }),
        [] => Err(PathError {
            message: "`headers` alone names no header".to_string(),
            help: "write `headers.NAME`, or `headers[\"Any-Name\"]`".to_string(),
        }),
        _ => Err(PathError {
            message: "a header is bytes: nothing stands below it".to_string(),
            help: format!(
                "a name with dots is quoted: `headers[{}]`",
                serde_json::Value::String(rest.trim_start_matches('.').to_string())
            ),
        }),
    }
}

fn steps(mut rest: &str) -> Result<Vec<Step>, PathError> {
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let name = &after[..end];
            if !is_identifier(name) {
                let message = if name.is_empty() {
                    "a name is missing after a dot".to_string()
                } else {
                    format!("`{name}` is no plain name")
                };
                let help = if name.is_empty() {
                    "take the dot away".to_string()
                } else if name.bytes().all(|b| b.is_ascii_digit()) {
                    format!("an element of an array is written `[{name}]`")
                } else {
                    format!("other names are quoted: `[{}]`", serde_json::Value::String(name.to_string()))
                };
                return Err(PathError { message, help });
            }
            steps.push(Step::Member(name.to_string()));
            rest = &after[end..];
        } else {
            let (step, length) = bracket(rest)?;
            steps.push(step);
            rest = &rest[length..];
        }
    }
    Ok(steps)
}

/// `["text"]` or `[0]`, and its length.
fn bracket(rest: &str) -> Result<(Step, usize), PathError> {
    let wrong = |message: &str| PathError {
        message: message.to_string(),
        help: "in brackets stands a name in double quotes, or the number of an element: `[\"a.b\"]`, `[0]`".to_string(),
    };
    let inside = rest.strip_prefix('[').ok_or_else(|| wrong("a step begins with `.` or `[`"))?;
    if inside.starts_with('"') {
        let mut values = serde_json::Deserializer::from_str(inside).into_iter::<String>();
        let name = values.next().and_then(Result::ok).ok_or_else(|| wrong("this is no text in double quotes"))?;
        let used = values.byte_offset();
        if !inside[used..].starts_with(']') {
            return Err(wrong("a `]` is missing"));
        }
        return Ok((Step::Member(name), used + 2));
    }
    let end = inside.find(']').ok_or_else(|| wrong("a `]` is missing"))?;
    let digits = &inside[..end];
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong(&format!("`[{digits}]` is no step")));
    }
    let element = digits.parse().map_err(|_| wrong("that is beyond the end of any array"))?;
    Ok((Step::Element(element), end + 2))
}

fn without_root(text: &str, word: &str) -> PathError {
    const ROOTS: [&str; 9] =
        ["value", "key", "headers", "timestamp", "topic", "partition", "offset", "epoch", "position"];
    let bare = text.trim_start_matches("$.").trim_start_matches('.');
    let help = match super::nearest(word, ROOTS.iter().copied()).filter(|_| word != text || word.len() > 3) {
        Some(root) => format!("perhaps `{root}{}`, or `value.{bare}`", &text[word.len()..]),
        None if Path::parse(&format!("value.{bare}")).is_ok() => {
            format!("for a member of the value write `value.{bare}`")
        }
        None => format!("for a member of the value write `value[{}]`", serde_json::Value::String(bare.to_string())),
    };
    PathError { message: format!("`{text}` does not start with one of the roots: {}", ROOTS.join(", ")), help }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn check(text: &str, printed: &str) {
        let path = Path::parse(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        assert_eq!(path.to_string(), printed);
        assert_eq!(Path::parse(printed).unwrap(), path);
    }

    fn check_error(text: &str, help: &str) {
        let error = Path::parse(text).expect_err(text);
        assert!(error.help.contains(help), "{text}: {error:?}");
    }

    #[test]
    fn paths_are_printed_as_they_are_read() {
        for text in [
            "value",
            "key.id",
            "value.a.b",
            "value[\"a.b\"].c",
            "value.tags[0]",
            "headers.id",
            "headers[\"Msg-Id\"]",
            "position",
        ] {
            check(text, text);
        }
        check("value[\"plain\"]", "value.plain");
        check("value[\"\\u00e9\"]", "value[\"é\"]");
    }

    #[test]
    fn codecs_get_steps_without_root() {
        let below = |text: &str| Path::parse(text).unwrap().below();
        assert_eq!(below("value.user.id"), "user.id");
        assert_eq!(below("value[\"a.b\"][0].c"), "[\"a.b\"][0].c");
        assert_eq!(below("value"), "");
    }

    #[test]
    fn what_was_meant_is_guessed() {
        check_error("id", "value.id");
        check_error("user.id", "value.user.id");
        check_error("valeu.id", "value.id");
        check_error("$.id", "value.id");
        check_error("value.a-b", "[\"a-b\"]");
        check_error("value.0", "[0]");
        check_error("value.", "take the dot away");
        check_error("value[a]", "[\"a.b\"]");
        check_error("headers", "headers.NAME");
        check_error("topic.x", "write `topic`");
        check_error("headers.a.b", "headers[\"a.b\"]");
    }

    #[test]
    fn names_of_parts_are_the_last_step() {
        let name = |text: &str| Path::parse(text).unwrap().last_name();
        assert_eq!(name("value.user.id"), "id");
        assert_eq!(name("headers[\"Msg-Id\"]"), "Msg-Id");
        assert_eq!(name("offset"), "offset");
        assert_eq!(name("value.tags[0]"), "0");
    }
}
