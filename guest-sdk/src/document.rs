//! Documents: the flat trees in cells of kind 0x60, 0x61 and 0x62 (`wit/README.md`, "Documents").
//!
//! `Doc` reads one: `Doc::new` checks every byte that a reader relies on, and no reader panics, whatever the bytes are.
//! `Builder` writes one. `set` and `remove` make a new document with one value changed.

use crate::number;
use crate::path::Step;

pub use crate::cells::kind;
pub use builder::Builder;

#[path = "document_builder.rs"]
mod builder;
#[path = "document_check.rs"]
mod check;

/// Containers within containers, the root included.
pub const MAX_DEPTH: usize = 128;
/// Bytes of a member name.
pub const MAX_NAME: usize = u16::MAX as usize;

const HEADER: usize = 8;
const NODE: usize = 16;

/// How a value of some kind is stored: the high half of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// No bytes: null.
    Nothing,
    /// One byte, 0 or 1.
    Boolean,
    /// 8 bytes.
    Eight,
    /// UTF-8.
    Text,
    /// A number in JSON syntax.
    Number,
    /// Any bytes.
    Bytes,
    /// Elements.
    Array,
    /// Members.
    Object,
}

impl Storage {
    /// Of a kind that a document may hold; `None` for missing, unchanged and reserved kinds.
    pub fn of(kind: u8) -> Option<Storage> {
        Some(match kind {
            kind::NULL => Storage::Nothing,
            kind::BOOL => Storage::Boolean,
            kind::INT64..=kind::INT8 | kind::TIMESTAMP..=kind::TIME_OF_DAY | kind::FLOAT64 | kind::FLOAT32 => {
                Storage::Eight
            }
            kind::TEXT => Storage::Text,
            kind::NUMBER => Storage::Number,
            kind::BYTES => Storage::Bytes,
            kind::ARRAY => Storage::Array,
            kind::MAP | kind::STRUCT => Storage::Object,
            _ => return None,
        })
    }
}

/// A map, struct or array.
pub fn is_container(kind: u8) -> bool {
    matches!(Storage::of(kind), Some(Storage::Array | Storage::Object))
}

/// Are these the bytes that a cell of this kind may have? Checks documents whole. `unchanged` and reserved kinds: no.
pub fn is_cell(kind: u8, bytes: &[u8]) -> bool {
    match Storage::of(kind) {
        None => kind == kind::MISSING && bytes.is_empty(),
        Some(Storage::Nothing) => bytes.is_empty(),
        Some(Storage::Boolean) => matches!(bytes, [0 | 1]),
        Some(Storage::Eight) => bytes.len() == 8,
        Some(Storage::Text) => std::str::from_utf8(bytes).is_ok(),
        Some(Storage::Number) => number::is_number(bytes),
        Some(Storage::Bytes) => true,
        Some(Storage::Array | Storage::Object) => Doc::new(bytes).is_ok_and(|doc| doc.root().kind() == kind),
    }
}

/// Why bytes are not a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Number of the node that is wrong; `None`: the header.
    pub node: Option<u32>,
    /// What is wrong.
    pub what: &'static str,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.node {
            Some(node) => write!(f, "not a document: node {node}: {}", self.what),
            None => write!(f, "not a document: {}", self.what),
        }
    }
}

impl std::error::Error for Malformed {}

/// A document to read.
#[derive(Clone, Copy, Debug)]
pub struct Doc<'a> {
    nodes: &'a [u8],
    heap: &'a [u8],
}

impl<'a> Doc<'a> {
    /// Checks everything: layout, tree, names, text, numbers, depth.
    pub fn new(bytes: &'a [u8]) -> Result<Doc<'a>, Malformed> {
        let doc = Doc::unchecked(bytes)?;
        check::document(doc)?;
        Ok(doc)
    }

    /// Checks the header only: for bytes that `new` or a `Builder` has seen. Readers of other bytes find nonsense, but
    /// end and do not panic.
    pub fn unchecked(bytes: &'a [u8]) -> Result<Doc<'a>, Malformed> {
        let wrong = |what| Malformed { node: None, what };
        let header = bytes.get(..HEADER).ok_or(wrong("shorter than its header"))?;
        if header.get(..4) != Some(&[1, 0, 0, 0]) {
            return Err(wrong("layout is not 1"));
        }
        let count = u32_at(header, 4) as usize;
        if count == 0 {
            return Err(wrong("no nodes"));
        }
        let end = count.checked_mul(NODE).and_then(|n| n.checked_add(HEADER)).ok_or(wrong("too many nodes"))?;
        let nodes = bytes.get(HEADER..end).ok_or(wrong("shorter than its nodes"))?;
        let heap = bytes.get(end..).unwrap_or_default();
        Ok(Doc { nodes, heap })
    }

    /// The whole.
    pub fn root(&self) -> Node<'a> {
        Node { doc: *self, index: 0 }
    }

    /// Number of nodes.
    pub fn len(&self) -> u32 {
        (self.nodes.len() / NODE) as u32
    }

    /// Never: a document has at least one node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node with this number, in document order.
    pub fn node(&self, index: u32) -> Option<Node<'a>> {
        (index < self.len()).then_some(Node { doc: *self, index })
    }

    /// The value at a path; `None`: missing.
    pub fn find(&self, path: &[Step]) -> Option<Node<'a>> {
        path.iter().try_fold(self.root(), |node, step| node.step(step))
    }

    fn heap_at(&self, offset: usize, length: usize) -> &'a [u8] {
        self.heap.get(offset..offset.saturating_add(length)).unwrap_or_default()
    }
}

/// A value in a document.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    doc: Doc<'a>,
    index: u32,
}

impl<'a> Node<'a> {
    fn bytes(&self) -> &'a [u8] {
        let at = self.index as usize * NODE;
        self.doc.nodes.get(at..at + NODE).unwrap_or(&[0; NODE])
    }

    /// Its number in the document.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its kind.
    pub fn kind(&self) -> u8 {
        self.bytes().first().copied().unwrap_or(0)
    }

    /// A map, struct or array.
    pub fn is_container(&self) -> bool {
        is_container(self.kind())
    }

    /// The bytes of its member name; empty for the root and for elements.
    pub fn name_bytes(&self) -> &'a [u8] {
        let node = self.bytes();
        self.doc.heap_at(u32_at(node, 4) as usize, u16_at(node, 2) as usize)
    }

    /// Its member name; empty for the root and for elements.
    pub fn name(&self) -> &'a str {
        std::str::from_utf8(self.name_bytes()).unwrap_or_default()
    }

    /// Number of children; 0 for scalars.
    pub fn len(&self) -> usize {
        if self.is_container() { u32_at(self.bytes(), 8) as usize } else { 0 }
    }

    /// Has no children.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of the node after this one and all below it.
    pub fn next(&self) -> u32 {
        if self.is_container() { u32_at(self.bytes(), 12).max(self.index + 1) } else { self.index + 1 }
    }

    /// Its children in order; none for scalars.
    pub fn children(&self) -> Children<'a> {
        Children { doc: self.doc, at: self.index + 1, end: self.next().min(self.doc.len()) }
    }

    /// The member of this name.
    pub fn member(&self, name: &str) -> Option<Node<'a>> {
        if Storage::of(self.kind()) != Some(Storage::Object) {
            return None;
        }
        self.children().find(|child| child.name_bytes() == name.as_bytes())
    }

    /// The element of this number, from 0.
    pub fn element(&self, number: usize) -> Option<Node<'a>> {
        if self.kind() != kind::ARRAY {
            return None;
        }
        self.children().nth(number)
    }

    /// One step down.
    pub fn step(&self, step: &Step) -> Option<Node<'a>> {
        match step {
            Step::Member(name) => self.member(name),
            Step::Element(number) => self.element(*number as usize),
        }
    }

    /// The cell bytes of a scalar; `None` for containers, whose cell is a document of its own (`cell_into`).
    pub fn scalar(&self) -> Option<&'a [u8]> {
        let node = self.bytes();
        match Storage::of(self.kind())? {
            Storage::Nothing => Some(&[]),
            Storage::Boolean => node.get(8..9),
            Storage::Eight => node.get(8..16),
            Storage::Text | Storage::Number | Storage::Bytes => {
                Some(self.doc.heap_at(u32_at(node, 8) as usize, u32_at(node, 12) as usize))
            }
            Storage::Array | Storage::Object => None,
        }
    }

    /// Adds the bytes of this value as a cell to `into` and says its kind; a container becomes a document.
    pub fn cell_into(&self, into: &mut Vec<u8>) -> u8 {
        match self.scalar() {
            Some(bytes) => into.extend_from_slice(bytes),
            None => {
                let mut builder = Builder::new();
                builder.copy(*self);
                builder.finish_into(into);
            }
        }
        self.kind()
    }

    /// A boolean.
    pub fn as_bool(&self) -> Option<bool> {
        (self.kind() == kind::BOOL).then(|| self.bytes().get(8) == Some(&1))
    }

    /// An integer, date or time as its 8 bytes; a number in digits if it is an integer that fits.
    pub fn as_i64(&self) -> Option<i64> {
        cell_i64(self.kind(), self.scalar()?)
    }

    /// Any number, to the nearest float.
    pub fn as_f64(&self) -> Option<f64> {
        cell_f64(self.kind(), self.scalar()?)
    }

    /// Text; numbers are not.
    pub fn as_text(&self) -> Option<&'a str> {
        if self.kind() != kind::TEXT {
            return None;
        }
        std::str::from_utf8(self.scalar()?).ok()
    }
}

/// The integer in a cell: integers, times, and numbers in digits that are integers and fit.
pub fn cell_i64(kind: u8, bytes: &[u8]) -> Option<i64> {
    match kind {
        kind::INT64..=kind::INT8 | kind::TIMESTAMP..=kind::TIME_OF_DAY => {
            Some(i64::from_le_bytes(bytes.try_into().ok()?))
        }
        kind::NUMBER => number::to_i64(bytes),
        _ => None,
    }
}

/// The number in a cell, to the nearest float.
pub fn cell_f64(kind: u8, bytes: &[u8]) -> Option<f64> {
    match kind {
        kind::FLOAT64 | kind::FLOAT32 => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
        kind::NUMBER => number::to_f64(bytes),
        _ => cell_i64(kind, bytes).map(|number| number as f64),
    }
}

/// Children of a container, in order.
#[derive(Clone, Debug)]
pub struct Children<'a> {
    doc: Doc<'a>,
    at: u32,
    end: u32,
}

impl<'a> Iterator for Children<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        if self.at >= self.end {
            return None;
        }
        let node = Node { doc: self.doc, index: self.at };
        self.at = node.next();
        Some(node)
    }
}

/// Makes a document of `doc` with the value at `path` replaced by a cell and adds it to `into`; says the kind of the
/// cell that stands there now. If only the last step is missing and it is a member of an object, the member is added at
/// the end. The empty path replaces the whole. `None`, and nothing added: there is no such place, or the cell is not
/// one that a document can hold (missing removes nothing: see `remove`).
pub fn set(doc: Doc<'_>, path: &[Step], cell: (u8, &[u8]), into: &mut Vec<u8>) -> Option<u8> {
    if Storage::of(cell.0).is_none() || !is_cell(cell.0, cell.1) {
        return None;
    }
    let Some((last, before)) = path.split_last() else {
        into.extend_from_slice(cell.1);
        return Some(cell.0);
    };
    let parent = doc.find(before)?;
    let place = parent.step(last);
    if place.is_some_and(|node| splice(node, cell, into)) {
        return Some(doc.root().kind());
    }
    let mut builder = Builder::new();
    match (place, last) {
        (Some(node), _) => builder.copy_with(doc.root(), &Change::Replace(node.index, cell)),
        (None, Step::Member(name)) if Storage::of(parent.kind()) == Some(Storage::Object) && name.len() <= MAX_NAME => {
            builder.copy_with(doc.root(), &Change::Add(parent.index, name, cell));
        }
        _ => return None,
    }
    Some(builder.finish_into(into))
}

/// Adds the document of `node` with a scalar in the place of this scalar: all but one node and one stretch of the heap
/// stay as they are. False, and nothing added: one of them is a container, or the stretch is not this node's alone.
fn splice(node: Node<'_>, (kind, bytes): (u8, &[u8]), into: &mut Vec<u8>) -> bool {
    let in_heap = |kind| matches!(Storage::of(kind), Some(Storage::Text | Storage::Number | Storage::Bytes));
    let (Some(_), Some(new)) = (node.scalar(), Storage::of(kind).filter(|_| !is_container(kind))) else { return false };
    let (doc, old) = (node.doc, node.bytes());
    let (from, to) = if in_heap(node.kind()) {
        (u32_at(old, 8), u32_at(old, 8).saturating_add(u32_at(old, 12)))
    } else {
        let behind_name = u32_at(old, 4).saturating_add(u32::from(u16_at(old, 2)));
        (behind_name, behind_name)
    };
    let content = if in_heap(kind) { bytes } else { &[] };
    let (Some(before), Some(behind)) = (doc.heap.get(..from as usize), doc.heap.get(to as usize..)) else {
        return false;
    };
    let mut value = [0; 8];
    match new {
        Storage::Text | Storage::Number | Storage::Bytes => {
            value[..4].copy_from_slice(&from.to_le_bytes());
            value[4..].copy_from_slice(&(content.len() as u32).to_le_bytes());
        }
        _ => value.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from),
    }
    let start = into.len();
    into.extend_from_slice(&[1, 0, 0, 0]);
    into.extend_from_slice(&doc.len().to_le_bytes());
    into.extend_from_slice(doc.nodes);
    // Where a stretch of another value or name begins now.
    let moved = |at: u32, length: u32| match (at.saturating_add(length) <= from, at >= to) {
        (true, _) => Some(at),
        (false, true) => Some(at - to + from + content.len() as u32),
        (false, false) => None,
    };
    let mut nodes = into.get_mut(start + HEADER..).unwrap_or_default().chunks_exact_mut(NODE).enumerate();
    let is_alone = nodes.all(|(index, bytes)| {
        let (name, length) = (u32_at(bytes, 4), u32::from(u16_at(bytes, 2)));
        let Some(name) = (if length == 0 { Some(name) } else { moved(name, length) }) else { return false };
        bytes[4..8].copy_from_slice(&name.to_le_bytes());
        if index == node.index as usize {
            bytes[0] = kind;
            bytes[8..].copy_from_slice(&value);
        } else if in_heap(bytes[0]) {
            let Some(at) = moved(u32_at(bytes, 8), u32_at(bytes, 12)) else { return false };
            bytes[8..12].copy_from_slice(&at.to_le_bytes());
        }
        true
    });
    if !is_alone {
        into.truncate(start);
        return false;
    }
    into.extend_from_slice(before);
    into.extend_from_slice(content);
    into.extend_from_slice(behind);
    true
}

/// Makes a document of `doc` without the value at `path` (later elements of an array move up) and adds it to `into`.
/// `None`, and nothing added: it is missing already, or the path is empty.
pub fn remove(doc: Doc<'_>, path: &[Step], into: &mut Vec<u8>) -> Option<u8> {
    if path.is_empty() {
        return None;
    }
    let node = doc.find(path)?;
    let mut builder = Builder::new();
    builder.copy_with(doc.root(), &Change::Remove(node.index));
    Some(builder.finish_into(into))
}

/// What `Builder::copy_with` does differently from a plain copy.
pub(crate) enum Change<'c> {
    /// Another value in the place of this node.
    Replace(u32, (u8, &'c [u8])),
    /// One more member at the end of this node.
    Add(u32, &'c str, (u8, &'c [u8])),
    /// Not this node.
    Remove(u32),
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
