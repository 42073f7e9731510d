//! Writes documents: values in document order, containers opened and closed.

use super::{Change, Doc, HEADER, NODE, Node, Storage, is_container, kind, u32_at};

/// Writes one cell: a scalar, or a container with all below it.
///
/// `name` gives the next value its member name; a value without one is an element or the root. What cannot be written
/// as asked (a second root, too long a name) is a fault of the caller: it is counted in `faults` and left out, and the
/// document stays well-formed. The memory is kept between documents.
#[derive(Debug, Default)]
pub struct Builder {
    nodes: Vec<u8>,
    heap: Vec<u8>,
    open: Vec<u32>,
    name: Option<(u32, u16)>,
    faults: u32,
}

impl Builder {
    /// An empty one.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Starts again, keeping the memory.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.heap.clear();
        self.open.clear();
        self.name = None;
        self.faults = 0;
    }

    /// Values that could not be written as asked.
    pub fn faults(&self) -> u32 {
        self.faults
    }

    /// Names the next value, which is a member. Names over 65,535 bytes are refused: false.
    pub fn name(&mut self, name: &[u8]) -> bool {
        let Ok(length) = u16::try_from(name.len()) else {
            self.faults += 1;
            return false;
        };
        self.name = Some((self.heap.len() as u32, length));
        self.heap.extend_from_slice(name);
        true
    }

    /// Null.
    pub fn null(&mut self) {
        self.push(kind::NULL, 0, 0);
    }

    /// A boolean.
    pub fn boolean(&mut self, value: bool) {
        self.push(kind::BOOL, u32::from(value), 0);
    }

    /// A value of 8 bytes: an integer, time or float.
    pub fn eight(&mut self, kind: u8, bytes: [u8; 8]) {
        let value = u64::from_le_bytes(bytes);
        self.push(kind, value as u32, (value >> 32) as u32);
    }

    /// An int64.
    pub fn int(&mut self, value: i64) {
        self.eight(kind::INT64, value.to_le_bytes());
    }

    /// A float64.
    pub fn float(&mut self, value: f64) {
        self.eight(kind::FLOAT64, value.to_le_bytes());
    }

    /// Text, a number in JSON syntax, or bytes, by kind. The caller vouches for UTF-8 and syntax.
    pub fn bytes(&mut self, kind: u8, bytes: &[u8]) {
        let offset = self.heap.len() as u32;
        self.heap.extend_from_slice(bytes);
        self.push(kind, offset, bytes.len() as u32);
    }

    /// Text.
    pub fn text(&mut self, text: &str) {
        self.bytes(kind::TEXT, text.as_bytes());
    }

    /// Opens an array, map or struct.
    pub fn open(&mut self, kind: u8) {
        let index = (self.nodes.len() / NODE) as u32;
        self.push(kind, 0, 0);
        self.open.push(index);
    }

    /// Closes the container opened last. Of members with one name the last counts, in the place of the first.
    pub fn close(&mut self) {
        let Some(index) = self.open.pop() else {
            self.faults += 1;
            return;
        };
        let next = (self.nodes.len() / NODE) as u32;
        self.patch(index, 12, next);
        if self.nodes.get(index as usize * NODE) != Some(&kind::ARRAY) && self.has_repeated_names(index) {
            self.merge_repeated_names(index);
        }
    }

    /// A cell: scalars as they are, documents copied. Cells that a document cannot hold are faults.
    pub fn cell(&mut self, kind: u8, bytes: &[u8]) {
        match (Storage::of(kind), bytes) {
            (Some(Storage::Nothing), _) => self.null(),
            (Some(Storage::Boolean), &[byte]) => self.boolean(byte == 1),
            (Some(Storage::Eight), _) => match bytes.try_into() {
                Ok(eight) => self.eight(kind, eight),
                Err(_) => self.faults += 1,
            },
            (Some(Storage::Text | Storage::Number | Storage::Bytes), _) => self.bytes(kind, bytes),
            (Some(Storage::Array | Storage::Object), _) => match Doc::unchecked(bytes) {
                Ok(doc) => self.copy(doc.root()),
                Err(_) => self.faults += 1,
            },
            _ => self.faults += 1,
        }
    }

    /// A value of another document, with all below it. Its name there does not come with it.
    pub fn copy(&mut self, node: Node<'_>) {
        self.copy_with(node, &Change::Remove(u32::MAX));
    }

    /// As `copy`, with one change on the way.
    pub(crate) fn copy_with(&mut self, node: Node<'_>, change: &Change<'_>) {
        let mut end = node.next().min(node.doc.len());
        if !node.is_container() {
            end = node.index + 1;
        }
        // Ends of the containers open in the source, innermost last.
        let mut ends: Vec<(u32, u32)> = Vec::new();
        let mut index = node.index;
        loop {
            while let Some(&(container, stop)) = ends.last() {
                if index < stop {
                    break;
                }
                ends.pop();
                if let Change::Add(parent, name, (kind, bytes)) = change
                    && *parent == container
                {
                    self.name(name.as_bytes());
                    self.cell(*kind, bytes);
                }
                self.close();
            }
            if index >= end {
                return;
            }
            let source = Node { doc: node.doc, index };
            if matches!(change, Change::Remove(removed) if *removed == index) {
                index = source.next();
                continue;
            }
            if ends.last().is_some_and(|&(container, _)| !is_array(node.doc, container)) {
                self.name(source.name_bytes());
            }
            match (change, source.scalar()) {
                (Change::Replace(replaced, (kind, bytes)), _) if *replaced == index => {
                    self.cell(*kind, bytes);
                    index = source.next();
                    continue;
                }
                (_, Some(bytes)) => self.cell(source.kind(), bytes),
                (_, None) if source.is_container() => {
                    self.open(source.kind());
                    ends.push((index, source.next().min(end)));
                }
                (_, None) => self.null(),
            }
            index += 1;
        }
    }

    /// Adds the cell to `into` and says its kind: a scalar root as a scalar cell, a container as a document. Nothing
    /// written: missing. Containers still open are closed.
    pub fn finish_into(&mut self, into: &mut Vec<u8>) -> u8 {
        while !self.open.is_empty() {
            self.faults += 1;
            self.close();
        }
        let Some(&root) = self.nodes.first() else { return kind::MISSING };
        if is_container(root) {
            into.reserve(HEADER + self.nodes.len() + self.heap.len());
            into.extend_from_slice(&[1, 0, 0, 0]);
            into.extend_from_slice(&((self.nodes.len() / NODE) as u32).to_le_bytes());
            into.extend_from_slice(&self.nodes);
            into.extend_from_slice(&self.heap);
        } else {
            let doc = Doc { nodes: &self.nodes, heap: &self.heap };
            into.extend_from_slice(doc.root().scalar().unwrap_or_default());
        }
        root
    }

    /// The cell: its kind and bytes.
    pub fn finish(&mut self) -> (u8, Vec<u8>) {
        let mut bytes = Vec::new();
        let kind = self.finish_into(&mut bytes);
        (kind, bytes)
    }

    /// Writes a node and counts it with its parent.
    fn push(&mut self, kind: u8, low: u32, high: u32) {
        let (offset, length) = self.name.take().unwrap_or((0, 0));
        match self.open.last() {
            Some(&parent) => {
                let at = parent as usize * NODE + 8;
                let count = u32_at(&self.nodes, at) + 1;
                self.patch(parent, 8, count);
            }
            None if self.nodes.is_empty() => {}
            None => {
                self.faults += 1;
                return;
            }
        }
        let node = u64::from(kind) | u64::from(length) << 16 | u64::from(offset) << 32;
        let value = u64::from(low) | u64::from(high) << 32;
        let mut bytes = [0; NODE];
        bytes[..8].copy_from_slice(&node.to_le_bytes());
        bytes[8..].copy_from_slice(&value.to_le_bytes());
        self.nodes.extend_from_slice(&bytes);
    }

    fn patch(&mut self, index: u32, field: usize, value: u32) {
        let at = index as usize * NODE + field;
        if let Some(bytes) = self.nodes.get_mut(at..at + 4) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
    }

    fn has_repeated_names(&self, container: u32) -> bool {
        // Most objects are settled by a bit for each name; where two meet, the names are compared.
        let doc = Doc { nodes: &self.nodes, heap: &self.heap };
        let node = Node { doc, index: container };
        let mut bits = [0u64; 4];
        let mut meet = false;
        for child in node.children() {
            let name = child.name_bytes();
            let (first, last) = (name.first().copied().unwrap_or(0), name.last().copied().unwrap_or(0));
            let mix = usize::from(first) ^ (usize::from(last) << 3) ^ (name.len() * 37);
            let bit = 1u64 << (mix & 63);
            meet |= bits[(mix >> 6) & 3] & bit != 0;
            bits[(mix >> 6) & 3] |= bit;
        }
        if !meet {
            return false;
        }
        if node.len() <= 16 {
            return node
                .children()
                .enumerate()
                .any(|(at, child)| node.children().take(at).any(|other| other.name_bytes() == child.name_bytes()));
        }
        let mut names: Vec<&[u8]> = node.children().map(|child| child.name_bytes()).collect();
        names.sort_unstable();
        names.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Rewrites the last container so that each name stands once: the last value in the place of the first.
    fn merge_repeated_names(&mut self, container: u32) {
        let nodes = self.nodes.split_off((container as usize + 1) * NODE);
        let heap = std::mem::take(&mut self.heap);
        let shift = container + 1;
        let mut children: Vec<(&[u8], u32, u32)> = Vec::new();
        let mut places: std::collections::HashMap<&[u8], usize> = std::collections::HashMap::new();
        let mut at = 0;
        while at < nodes.len() {
            let offset = u32_at(&nodes, at + 4) as usize;
            let length = super::u16_at(&nodes, at + 2) as usize;
            let name = heap.get(offset..offset + length).unwrap_or_default();
            let end = match nodes.get(at) {
                Some(&kind) if is_container(kind) => (u32_at(&nodes, at + 12) - shift) as usize * NODE,
                _ => at + NODE,
            };
            match places.get(name) {
                Some(&place) => children[place] = (name, at as u32, end as u32),
                None => {
                    places.insert(name, children.len());
                    children.push((name, at as u32, end as u32));
                }
            }
            at = end;
        }
        for &(_, from, to) in &children {
            let first = (self.nodes.len() / NODE) as u32;
            let moved = first.wrapping_sub(from / NODE as u32 + shift);
            for node in nodes.get(from as usize..to as usize).unwrap_or_default().chunks_exact(NODE) {
                let start = self.nodes.len();
                self.nodes.extend_from_slice(node);
                if is_container(node[0]) {
                    let next = u32_at(node, 12).wrapping_add(moved);
                    self.patch((start / NODE) as u32, 12, next);
                }
            }
        }
        self.patch(container, 8, children.len() as u32);
        let next = (self.nodes.len() / NODE) as u32;
        self.patch(container, 12, next);
        drop(children);
        self.heap = heap;
    }
}

fn is_array(doc: Doc<'_>, index: u32) -> bool {
    Node { doc, index }.kind() == kind::ARRAY
}
