//! YAML with spans: what was written, before anybody asks what it means.

use std::sync::Arc;

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
    /// A plain number; its text is kept, so no digit is lost.
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
