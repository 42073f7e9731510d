//! YAML with spans: what was written, before anybody asks what it means. `yaml.rs` makes it.

use std::sync::Arc;

use serde_json::{Map, Value};

/// Where something stands: 1-based line and column (in characters), and the byte range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Span {
    pub line: u32,
    pub column: u32,
    pub start: usize,
    pub end: usize,
}

/// A node of the file; anchors are already resolved, variables already put in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: Arc<NodeKind>,
}

/// What a node is (YAML 1.2 core schema; nothing else is guessed).
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// `null`, `~`, or nothing.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A plain number in JSON syntax, or `.inf`, `-.inf`, `.nan`; its digits are kept, so none is lost.
    Number(String),
    /// Text. `quoted`: it stood in quotes or in a block.
    Text {
        /// The text.
        text: String,
        /// It stood in quotes or in a block.
        quoted: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A mapping in the order written: key, where the key stands, value.
    Map(Vec<(String, Span, Node)>),
}

impl Node {
    /// A node.
    pub fn new(span: Span, kind: NodeKind) -> Node {
        Node { span, kind: Arc::new(kind) }
    }

    /// Whether it is null.
    pub fn is_null(&self) -> bool {
        matches!(*self.kind, NodeKind::Null)
    }

    /// Its text, if it is text.
    pub fn as_text(&self) -> Option<&str> {
        match &*self.kind {
            NodeKind::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Its truth, if it is a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match &*self.kind {
            NodeKind::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// Its digits, if it is a number.
    pub fn as_number(&self) -> Option<&str> {
        match &*self.kind {
            NodeKind::Number(digits) => Some(digits),
            _ => None,
        }
    }

    /// The number, if it is a whole one that fits.
    pub fn as_integer(&self) -> Option<i64> {
        self.as_number()?.parse().ok()
    }

    /// Its elements, if it is a list.
    pub fn as_list(&self) -> Option<&[Node]> {
        match &*self.kind {
            NodeKind::List(items) => Some(items),
            _ => None,
        }
    }

    /// Its members, if it is a mapping.
    pub fn as_map(&self) -> Option<&[(String, Span, Node)]> {
        match &*self.kind {
            NodeKind::Map(members) => Some(members),
            _ => None,
        }
    }

    /// A member of a mapping.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.as_map()?.iter().find(|(n, _, _)| n == name).map(|(_, _, node)| node)
    }

    /// Where the name of a member stands.
    pub fn key_span(&self, name: &str) -> Option<Span> {
        self.as_map()?.iter().find(|(n, _, _)| n == name).map(|(_, span, _)| *span)
    }

    /// What it is, for a sentence: "a list".
    pub fn describe(&self) -> &'static str {
        match &*self.kind {
            NodeKind::Null => "null",
            NodeKind::Bool(_) => "a boolean",
            NodeKind::Number(_) => "a number",
            NodeKind::Text { .. } => "text",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a mapping",
        }
    }

    /// As JSON; numbers keep their digits, infinities and NaN (which JSON does not know) become text.
    pub fn to_json(&self) -> Value {
        match &*self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool(b) => Value::Bool(*b),
            NodeKind::Number(digits) => match digits.parse() {
                Ok(number) => Value::Number(number),
                Err(_) => Value::String(digits.clone()),
            },
            NodeKind::Text { text, .. } => Value::String(text.clone()),
            NodeKind::List(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            NodeKind::Map(members) => {
                Value::Object(members.iter().map(|(n, _, v)| (n.clone(), v.to_json())).collect::<Map<_, _>>())
            }
        }
    }

    /// The span of what a JSON pointer names, or of the deepest part of it that is there. The key's span where the
    /// pointer ends at a member whose value is a mapping or a list, so that one line is marked.
    pub fn pointer(&self, pointer: &str) -> Span {
        let mut node = self;
        let mut span = self.span;
        for step in pointer.split('/').skip(1) {
            let step = step.replace("~1", "/").replace("~0", "~");
            let (key, next) = match &*node.kind {
                NodeKind::Map(members) => match members.iter().find(|(n, _, _)| *n == step) {
                    Some((_, key, next)) => (Some(*key), next),
                    None => return span,
                },
                NodeKind::List(items) => match step.parse::<usize>().ok().and_then(|i| items.get(i)) {
                    Some(next) => (None, next),
                    None => return span,
                },
                _ => return span,
            };
            span = match (&*next.kind, key) {
                (NodeKind::Map(_) | NodeKind::List(_), Some(key)) => key,
                _ => next.span,
            };
            node = next;
        }
        span
    }

    /// The mapping with a member set (in its place, or at the end) or, with `None`, taken away. What is no mapping
    /// counts as an empty one.
    #[must_use]
    pub fn with_member(&self, name: &str, key_span: Span, value: Option<Node>) -> Node {
        let mut members = self.as_map().map(<[_]>::to_vec).unwrap_or_default();
        let place = members.iter().position(|(n, _, _)| n == name);
        match (place, value) {
            (Some(i), Some(value)) => members[i] = (name.to_string(), key_span, value),
            (Some(i), None) => {
                members.remove(i);
            }
            (None, Some(value)) => members.push((name.to_string(), key_span, value)),
            (None, None) => {}
        }
        Node::new(self.span, NodeKind::Map(members))
    }

    /// Merges member by member at the first level; null removes one (pipeline-file 14.1).
    #[must_use]
    pub fn merged(&self, over: &Node) -> Node {
        let mut merged = self.clone();
        for (name, span, value) in over.as_map().unwrap_or_default() {
            merged = merged.with_member(name, *span, (!value.is_null()).then(|| value.clone()));
        }
        merged
    }
}
