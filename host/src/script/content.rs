//! What a key or a value says, whatever its form: a test writes YAML, a record carries bytes or documents.
//!
//! Two contents are the same if they say the same: numbers by exact value, members in any order.

use std::fmt;

use tamis_guest::number;

use crate::config::node::{Node, NodeKind};

/// A document without its form.
#[derive(Clone, Debug)]
pub enum Content {
    /// Null.
    Null,
    /// True or false.
    Boolean(bool),
    /// A number in JSON syntax, with its digits.
    Number(String),
    /// A float that JSON cannot write: not a number, or infinite.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<Content>),
    /// Members in the order written.
    Map(Vec<(String, Content)>),
}

impl Content {
    /// What a node of the file says.
    pub fn of(node: &Node) -> Content {
        match &*node.kind {
            NodeKind::Null => Content::Null,
            NodeKind::Bool(b) => Content::Boolean(*b),
            NodeKind::Number(text) => number_content(text),
            NodeKind::Text { text, .. } => Content::Text(text.clone()),
            NodeKind::List(items) => Content::List(items.iter().map(Content::of).collect()),
            NodeKind::Map(members) => {
                Content::Map(members.iter().map(|(name, _, value)| (name.clone(), Content::of(value))).collect())
            }
        }
    }

    /// Whether both say the same.
    pub fn same(&self, other: &Content) -> bool {
        match (self, other) {
            (Content::Null, Content::Null) => true,
            (Content::Boolean(a), Content::Boolean(b)) => a == b,
            (Content::Number(a), Content::Number(b)) => {
                a == b || number::canonical(a.as_bytes()) == number::canonical(b.as_bytes())
            }
            (Content::Float(a), Content::Float(b)) => a == b || (a.is_nan() && b.is_nan()),
            (Content::Text(a), Content::Text(b)) => a == b,
            (Content::Bytes(a), Content::Bytes(b)) => a == b,
            (Content::List(a), Content::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.same(y)),
            (Content::Map(a), Content::Map(b)) => {
                let member = |name: &String| b.iter().find(|(n, _)| n == name).map(|(_, v)| v);
                a.len() == b.len() && a.iter().all(|(name, x)| member(name).is_some_and(|y| x.same(y)))
            }
            _ => false,
        }
    }
}

/// A number of the file as JSON writes it: YAML also knows `0x1F`, `0o17`, `+1`, `.5`, `1.`, `.inf` and `.nan`.
fn number_content(text: &str) -> Content {
    let (sign, rest) = match text.as_bytes().first() {
        Some(b'-') => ("-", &text[1..]),
        Some(b'+') => ("", &text[1..]),
        _ => ("", text),
    };
    match rest {
        ".inf" | ".Inf" | ".INF" => {
            return Content::Float(if sign.is_empty() { f64::INFINITY } else { f64::NEG_INFINITY });
        }
        ".nan" | ".NaN" | ".NAN" => return Content::Float(f64::NAN),
        _ => {}
    }
    let radix = |digits: &str, radix| u128::from_str_radix(digits, radix).ok().map(|n| format!("{sign}{n}"));
    let whole = match (rest.strip_prefix("0x"), rest.strip_prefix("0o")) {
        (Some(hex), _) => radix(hex, 16),
        (_, Some(octal)) => radix(octal, 8),
        _ => None,
    };
    if let Some(n) = whole {
        return Content::Number(n);
    }
    let (mantissa, exponent) = rest.split_at(rest.find(['e', 'E']).unwrap_or(rest.len()));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let integer = integer.trim_start_matches('0');
    let integer = if integer.is_empty() { "0" } else { integer };
    let dot = if fraction.is_empty() { "" } else { "." };
    Content::Number(format!("{sign}{integer}{dot}{fraction}{exponent}"))
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Null => f.write_str("null"),
            Content::Boolean(b) => write!(f, "{b}"),
            Content::Number(n) => f.write_str(n),
            Content::Float(x) if x.is_nan() => f.write_str(".nan"),
            Content::Float(x) => f.write_str(if *x > 0.0 { ".inf" } else { "-.inf" }),
            Content::Text(text) => f.write_str(&quoted(text)),
            Content::Bytes(bytes) => {
                f.write_str("hex ")?;
                bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
            Content::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Content::Map(members) if members.is_empty() => f.write_str("{}"),
            Content::Map(members) => {
                f.write_str("{ ")?;
                for (i, (name, value)) in members.iter().enumerate() {
                    write!(f, "{}{}: {value}", if i > 0 { ", " } else { "" }, quoted(name))?;
                }
                f.write_str(" }")
            }
        }
    }
}

/// Text as a flow mapping of YAML takes it: bare if it cannot be taken for anything else, else as a JSON string. Control
/// characters are always escaped, so that no record can move the cursor of a terminal.
pub fn quoted(text: &str) -> String {
    let bare = text.chars().all(|c| c.is_alphanumeric() || "_./+ -".contains(c))
        && text.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && !text.ends_with(' ')
        && !matches!(text.to_ascii_lowercase().as_str(), "true" | "false" | "null");
    if bare {
        return text.to_string();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(yaml: &str, json: &str) {
        assert_eq!(number_content(yaml).to_string(), json, "{yaml}");
    }

    #[test]
    fn numbers_of_yaml_become_numbers_of_json() {
        check("1", "1");
        check("+12", "12");
        check("-0", "-0");
        check("007", "7");
        check(".5", "0.5");
        check("-1.", "-1");
        check("1.50e+3", "1.50e+3");
        check("0x1F", "31");
        check("-.inf", "-.inf");
        check(".nan", ".nan");
    }

    #[test]
    fn numbers_are_the_same_by_exact_value() {
        assert!(number_content("1.0").same(&number_content("1e0")));
        assert!(!number_content("9007199254740993").same(&number_content("9007199254740992")));
    }

    #[test]
    fn text_that_could_be_something_else_is_quoted() {
        assert_eq!(quoted("true"), "\"true\"");
        assert_eq!(quoted("1"), "\"1\"");
        assert_eq!(quoted("a b"), "a b");
        assert_eq!(quoted("\u{1b}[2J"), "\"\\u001b[2J\"");
    }
}
