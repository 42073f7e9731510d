//! Records and rows of a script (14.2, 14.4).

use std::sync::Arc;

use super::content::Content;
use super::moment::{MS, instant};
use super::read::{integer, known, members, text_of};
use crate::batch::Headers;
use crate::config::diagnostic::Diagnostic;
use crate::config::node::{Node, NodeKind, Span};

/// A record as a script writes it; what is not written is `None`.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Its timestamp, ms since 1970.
    pub t: Option<i64>,
    /// Processing time of its arrival, ns.
    pub at: Option<i64>,
    /// Its partition.
    pub p: Option<i32>,
    /// Its offset.
    pub o: Option<i64>,
    /// Its topic.
    pub topic: Option<String>,
    /// Its leader epoch.
    pub epoch: Option<i32>,
    /// The window it stands for, ns; rows only.
    pub w: Option<(i64, i64)>,
    /// Partition and offset of the winner; rows only.
    pub of: Option<(i32, i64)>,
    /// Its key.
    pub key: Option<Content>,
    /// Its value.
    pub value: Body,
    /// Its headers.
    pub headers: Headers,
}

/// The value of a record.
#[derive(Clone, Debug, Default)]
pub enum Body {
    /// A tombstone.
    #[default]
    Null,
    /// A document.
    Document(Content),
    /// Bytes, which the codec has yet to read.
    Bytes(Vec<u8>),
}

/// What a row is tagged with: its route, and what it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// An append record, or a retract insert.
    Insert,
    /// `-U`
    Old,
    /// `+U`
    New,
    /// `-D`
    Delete,
    /// `PUT`
    Put,
    /// `TOMB`
    Tomb,
    /// `late`
    Late,
    /// `duplicate`
    Duplicate,
    /// `dlq:CODE`
    DeadLetter(String),
}

impl Tag {
    /// As a script writes it; an insert is written without.
    pub fn word(&self) -> String {
        match self {
            Tag::Insert => String::new(),
            Tag::Old => "-U".into(),
            Tag::New => "+U".into(),
            Tag::Delete => "-D".into(),
            Tag::Put => "PUT".into(),
            Tag::Tomb => "TOMB".into(),
            Tag::Late => "late".into(),
            Tag::Duplicate => "duplicate".into(),
            Tag::DeadLetter(code) => format!("dlq:{code}"),
        }
    }

    fn of(word: &str) -> Option<Tag> {
        Some(match word {
            "+I" => Tag::Insert,
            "-U" => Tag::Old,
            "+U" => Tag::New,
            "-D" => Tag::Delete,
            "PUT" => Tag::Put,
            "TOMB" => Tag::Tomb,
            "late" => Tag::Late,
            "duplicate" => Tag::Duplicate,
            _ => Tag::DeadLetter(word.strip_prefix("dlq:")?.to_string()),
        })
    }
}

/// A row that must come out.
#[derive(Clone, Debug)]
pub struct Row {
    /// Route and kind.
    pub tag: Tag,
    /// What is compared.
    pub record: Record,
}

/// Marks of records that come in.
const MARKS: [&str; 6] = ["t", "at", "p", "o", "topic", "epoch"];
/// Marks of rows that come out.
const ROW_MARKS: [&str; 8] = ["t", "at", "p", "o", "topic", "epoch", "w", "of"];
/// Members that make a mapping the long form.
const LONG: [&str; 6] = ["key", "value", "headers", "json", "text", "hex"];

/// Reads a row: a record, or one tag with a record.
pub fn row(node: &Node) -> Result<Row, Diagnostic> {
    if let [(word, span, inner)] = members(node, "a row")?
        && let Some(tag) = Tag::of(word)
    {
        if !matches!(&*inner.kind, NodeKind::Map(_)) {
            return Err(Diagnostic::error("P-VALUE", *span, format!("`{word}` takes a record"))
                .help("use the long form for values whose members are called like a tag: { value: { .. } }"));
        }
        return Ok(Row { tag, record: read(inner, &ROW_MARKS)? });
    }
    Ok(Row { tag: Tag::Insert, record: read(node, &ROW_MARKS)? })
}

/// Reads a record that comes in.
pub fn record(node: &Node) -> Result<Record, Diagnostic> {
    read(node, &MARKS)
}

/// Reads a record of a table.
pub fn table_record(node: &Node) -> Result<Record, Diagnostic> {
    read(node, &ROW_MARKS)
}

fn read(node: &Node, marks: &[&str]) -> Result<Record, Diagnostic> {
    let members = members(node, "a record")?;
    let long = members.iter().any(|(name, _, _)| LONG.contains(&name.as_str()));
    let mut record = Record::default();
    let mut rest = Vec::new();
    let mut value = None;
    for (name, span, node) in members {
        let body = match name.as_str() {
            mark if marks.contains(&mark) => {
                read_mark(&mut record, mark, node)?;
                continue;
            }
            "key" => {
                record.key = Some(Content::of(node));
                continue;
            }
            "headers" => {
                record.headers = headers(node)?;
                continue;
            }
            "value" => match Content::of(node) {
                Content::Null => Body::Null,
                document => Body::Document(document),
            },
            "json" | "text" => Body::Bytes(text_of(node)?.into_bytes()),
            "hex" => Body::Bytes(hex(node)?),
            _ if long => {
                let legal: Vec<&str> = LONG.iter().chain(marks).copied().collect();
                return Err(known(name, *span, &legal, "in the long form of a record"));
            }
            _ => {
                rest.push((name.clone(), Content::of(node)));
                continue;
            }
        };
        if value.replace(body).is_some() {
            return Err(Diagnostic::error("P-VALUE", *span, "a record has one of `value`, `json`, `text`, `hex`"));
        }
    }
    record.value = if long { value.unwrap_or_default() } else { Body::Document(Content::Map(rest)) };
    Ok(record)
}

fn read_mark(record: &mut Record, mark: &str, node: &Node) -> Result<(), Diagnostic> {
    if matches!(&*node.kind, NodeKind::Null) {
        return Ok(());
    }
    match mark {
        "t" => record.t = Some(instant(node)?.div_euclid(MS)),
        "at" => record.at = Some(instant(node)?),
        "p" => record.p = Some(integer(node, 0)?),
        "o" => record.o = Some(integer(node, 0)?),
        "topic" => record.topic = Some(text_of(node)?),
        "epoch" => record.epoch = Some(integer(node, 0)?),
        "w" => match &*node.kind {
            NodeKind::List(bounds) if bounds.len() == 2 => {
                record.w = Some((instant(&bounds[0])?, instant(&bounds[1])?))
            }
            _ => return Err(Diagnostic::error("P-VALUE", node.span, "a window is `[start, end]`")),
        },
        _ => match &*node.kind {
            NodeKind::List(winner) if winner.len() == 2 => {
                record.of = Some((integer(&winner[0], 0)?, integer(&winner[1], 0)?));
            }
            _ => return Err(Diagnostic::error("P-VALUE", node.span, "a winner is `[partition, offset]`")),
        },
    }
    Ok(())
}

/// A mapping, or a list of `[name, text]`.
fn headers(node: &Node) -> Result<Headers, Diagnostic> {
    let value = |node: &Node| match &*node.kind {
        NodeKind::Null => Ok(None),
        _ => text_of(node).map(|text| Some(text.into_bytes())),
    };
    match &*node.kind {
        NodeKind::Map(members) => members.iter().map(|(name, _, node)| Ok((name.clone(), value(node)?))).collect(),
        NodeKind::List(pairs) => pairs
            .iter()
            .map(|pair| match &*pair.kind {
                NodeKind::List(two) if two.len() == 2 => Ok((text_of(&two[0])?, value(&two[1])?)),
                _ => Err(Diagnostic::error("P-VALUE", pair.span, "a header is `[name, text]`")),
            })
            .collect(),
        _ => Err(Diagnostic::error("P-VALUE", node.span, "headers are a mapping, or a list of `[name, text]`")),
    }
}

fn hex(node: &Node) -> Result<Vec<u8>, Diagnostic> {
    let text: String = text_of(node)?.split_whitespace().collect();
    let byte = |i: usize| text.get(i..i + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    bytes.ok_or_else(|| Diagnostic::error("P-VALUE", node.span, "`hex` is pairs of hexadecimal digits"))
}

/// The node with the text `$i` replaced by an integer: alone it becomes a number, within other text its digits.
pub fn with_index(node: &Node, i: i64) -> Node {
    let kind = match &*node.kind {
        NodeKind::Text { text, .. } if text == "$i" => NodeKind::Number(i.to_string()),
        NodeKind::Text { text, quoted } if text.contains("$i") => {
            NodeKind::Text { text: text.replace("$i", &i.to_string()), quoted: *quoted }
        }
        NodeKind::List(items) => NodeKind::List(items.iter().map(|item| with_index(item, i)).collect()),
        NodeKind::Map(members) => NodeKind::Map(
            members
                .iter()
                .map(|(name, at, node)| (name.replace("$i", &i.to_string()), *at, with_index(node, i)))
                .collect(),
        ),
        _ => return node.clone(),
    };
    Node { span: node.span, kind: Arc::new(kind) }
}

/// Where `series` stands in a file.
pub fn series(node: &Node) -> Result<super::Series, Diagnostic> {
    let (mut from, mut to, mut record) = (None, None, None);
    for (name, span, node) in members(node, "`series`")? {
        match name.as_str() {
            "from" => from = Some(integer::<i64>(node, i64::MIN)?),
            "to" => to = Some(integer::<i64>(node, i64::MIN)?),
            "record" => record = Some(node.clone()),
            _ => return Err(known(name, *span, &["from", "to", "record"], "in `series`")),
        }
    }
    let missing = |name: &str, span: Span| {
        Diagnostic::error("P-MISSING", span, format!("`series` needs `{name}`"))
            .help("{ from: 1, to: 9, record: { .. } }")
    };
    Ok(super::Series {
        from: from.ok_or_else(|| missing("from", node.span))?,
        to: to.ok_or_else(|| missing("to", node.span))?,
        record: record.ok_or_else(|| missing("record", node.span))?,
    })
}
