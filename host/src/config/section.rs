//! A mapping that was checked, read member by member with its table's defaults.

use super::check::{member, one_of};
use super::node::{Node, NodeKind, Span};
use super::path::Path;
use super::table::{Default, Kind, Table};
use super::values;

/// A mapping and its table. Reads never fail: what is wrong has been reported, and counts as not written.
#[derive(Clone, Copy)]
pub struct Section<'a> {
    node: Option<&'a Node>,
    table: &'static Table,
}

impl<'a> Section<'a> {
    /// `None`: the mapping is left out.
    pub fn new(node: Option<&'a Node>, table: &'static Table) -> Section<'a> {
        Section { node: node.filter(|n| !n.is_null()), table }
    }

    /// What was written for a member.
    pub fn node(&self, name: &str) -> Option<&'a Node> {
        member(self.node?, self.table, name)
    }

    /// Where a member's name stands, or its value, or the mapping.
    pub fn span(&self, name: &str) -> Span {
        let node = self.node.map(|n| n.key_span(name).unwrap_or(n.span));
        node.unwrap_or_default()
    }

    /// A mapping inside.
    pub fn section(&self, name: &str) -> Section<'a> {
        match self.table.member(name).map(|m| &m.kind) {
            Some(Kind::Map(table)) => Section::new(self.node(name), table),
            _ => Section::new(None, self.table),
        }
    }

    /// The form chosen where exactly one of several may stand.
    pub fn form(&self, name: &str) -> Option<(&'static str, Option<&'a Node>)> {
        match self.table.member(name).map(|m| &m.kind) {
            Some(Kind::OneOf(members, bare)) => one_of(self.node(name)?, members, bare),
            _ => None,
        }
    }

    fn default(&self, name: &str) -> Option<&'static str> {
        match self.table.member(name).map(|m| m.default) {
            Some(Default::Is(text)) => Some(text),
            _ => None,
        }
    }

    /// Text, a word, or whatever is written as text.
    pub fn text(&self, name: &str) -> Option<String> {
        let written = self.node(name).and_then(Node::as_text);
        written.or_else(|| self.default(name)).map(str::to_string)
    }

    /// True or false; without default, false.
    pub fn truth(&self, name: &str) -> bool {
        self.node(name).and_then(Node::as_bool).unwrap_or(self.default(name) == Some("true"))
    }

    /// A whole number.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.node(name).and_then(Node::as_integer).or_else(|| self.default(name)?.parse().ok())
    }

    /// Nanoseconds.
    pub fn duration(&self, name: &str) -> Option<i64> {
        values::duration(&self.text(name)?).ok()
    }

    /// Nanoseconds, of a member that always has a default.
    pub fn duration_or_zero(&self, name: &str) -> i64 {
        self.duration(name).unwrap_or_default()
    }

    /// Bytes.
    pub fn size(&self, name: &str) -> Option<u64> {
        values::size(&self.text(name)?).ok()
    }

    /// Nanoseconds since 1970.
    pub fn instant(&self, name: &str) -> Option<i64> {
        values::instant(&self.text(name)?).ok()
    }

    /// A path.
    pub fn path(&self, name: &str) -> Option<Path> {
        Path::parse(&self.text(name)?).ok()
    }

    /// One or several nodes.
    pub fn many(&self, name: &str) -> Vec<&'a Node> {
        match self.node(name) {
            None => Vec::new(),
            Some(node) => match &*node.kind {
                NodeKind::List(items) => items.iter().collect(),
                _ => vec![node],
            },
        }
    }
}
