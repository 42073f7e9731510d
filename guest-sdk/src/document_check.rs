//! Is it a document? Reads every node once, in order.

use super::{Doc, HEADER, MAX_DEPTH, Malformed, NODE, Node, Storage, kind, u16_at, u32_at};
use crate::number;

/// A container whose children are being read.
#[derive(Clone, Copy, Default)]
struct Open {
    end: u32,
    left: u32,
    object: bool,
}

/// Checks all that `Doc::new` promises.
pub(super) fn document(doc: Doc<'_>) -> Result<(), Malformed> {
    let count = doc.len();
    let texts = Texts::of(doc.heap);
    let mut open = [Open::default(); MAX_DEPTH];
    let mut depth = 0usize;
    let header = Malformed { node: None, what: "" };
    if doc.heap.len() > u32::MAX as usize - HEADER {
        return Err(Malformed { what: "larger than 4 GiB", ..header });
    }
    for index in 0..count {
        let wrong = |what| Err(Malformed { node: Some(index), what });
        let node = Node { doc, index };
        let bytes = node.bytes();
        let (kind, length, offset) = (bytes[0], u16_at(bytes, 2) as usize, u32_at(bytes, 4) as usize);
        if bytes[1] != 0 {
            return wrong("byte 1 is not zero");
        }
        // Close what ended before this node, then count it with its parent.
        while depth > 0 && open[depth - 1].end == index {
            if open[depth - 1].left > 0 {
                return wrong("comes after a container that has fewer children than it says");
            }
            depth -= 1;
        }
        if depth == 0 && index > 0 {
            return wrong("stands after the end of the root");
        }
        let mut named = false;
        let mut limit = count;
        if let Some(parent) = depth.checked_sub(1).and_then(|at| open.get_mut(at)) {
            if parent.left == 0 {
                return wrong("is one child more than its container says");
            }
            parent.left -= 1;
            named = parent.object;
            limit = parent.end;
        }
        if named {
            if !texts.is_text(offset, length) {
                return wrong("the name is not UTF-8 within the heap");
            }
        } else if length != 0 || offset != 0 {
            return wrong("has a name, but is no member");
        }
        let (low, high) = (u32_at(bytes, 8), u32_at(bytes, 12));
        let span = (low as usize, high as usize);
        match Storage::of(kind) {
            None => return wrong("its kind is none that a document may hold"),
            Some(Storage::Nothing) if low != 0 || high != 0 => return wrong("null is not zero"),
            Some(Storage::Boolean) if low > 1 || high != 0 => return wrong("a boolean is neither 0 nor 1"),
            Some(Storage::Nothing | Storage::Boolean | Storage::Eight) => {}
            Some(Storage::Text) if !texts.is_text(span.0, span.1) => {
                return wrong("the text is not UTF-8 within the heap");
            }
            Some(Storage::Text) => {}
            Some(storage @ (Storage::Number | Storage::Bytes)) => {
                let Some(bytes) = span.0.checked_add(span.1).and_then(|end| doc.heap.get(span.0..end)) else {
                    return wrong("the bytes are not within the heap");
                };
                if storage == Storage::Number && !number::is_number(bytes) {
                    return wrong("the number is not in JSON syntax");
                }
            }
            Some(storage @ (Storage::Array | Storage::Object)) => {
                if high <= index || high > limit || (index == 0 && high != count) {
                    return wrong("a container ends where it cannot");
                }
                if depth == MAX_DEPTH {
                    return wrong("deeper than 128");
                }
                open[depth] = Open { end: high, left: low, object: storage == Storage::Object };
                depth += 1;
            }
        }
        if index == 0 && depth == 0 {
            return wrong("the root is not a container");
        }
    }
    if open.iter().take(depth).any(|container| container.left > 0 || container.end != count) {
        return Err(Malformed { what: "a container has fewer children than it says", ..header });
    }
    unique_names(doc)
}

/// No name twice in one container. Names are compared by their bytes only where their lengths and ends are equal.
fn unique_names(doc: Doc<'_>) -> Result<(), Malformed> {
    let mut many: Vec<&[u8]> = Vec::new();
    for index in 0..doc.len() {
        let node = Node { doc, index };
        if Storage::of(node.kind()) != Some(Storage::Object) {
            continue;
        }
        let twice = if node.len() <= 16 {
            let mut seen: [&[u8]; 16] = [&[]; 16];
            let mut twice = false;
            for (at, child) in node.children().take(16).enumerate() {
                let name = child.name_bytes();
                twice |= seen.iter().take(at).any(|&other| other == name);
                seen[at] = name;
            }
            twice
        } else {
            many.clear();
            many.extend(node.children().map(|child| child.name_bytes()));
            many.sort_unstable_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
            many.windows(2).any(|pair| pair[0] == pair[1])
        };
        if twice {
            return Err(Malformed { node: Some(index), what: "a name stands twice in it" });
        }
    }
    Ok(())
}

/// Which spans of a heap are UTF-8, after reading it once: names and texts may share bytes, and reading the same bytes
/// for each of them would make a small hostile document expensive.
struct Texts<'a> {
    heap: &'a [u8],
    /// Start and end of what is not UTF-8, in order.
    invalid: Vec<(usize, usize)>,
}

impl<'a> Texts<'a> {
    fn of(heap: &'a [u8]) -> Texts<'a> {
        let mut invalid = Vec::new();
        if std::str::from_utf8(heap).is_err() {
            let mut at = 0;
            for chunk in heap.utf8_chunks() {
                at += chunk.valid().len();
                let end = at + chunk.invalid().len();
                if end > at {
                    invalid.push((at, end));
                }
                at = end;
            }
        }
        Texts { heap, invalid }
    }

    fn is_text(&self, offset: usize, length: usize) -> bool {
        let Some(end) = offset.checked_add(length).filter(|&end| end <= self.heap.len()) else { return false };
        if length == 0 {
            return true;
        }
        let next = self.invalid.partition_point(|&(_, invalid_end)| invalid_end <= offset);
        let clean = self.invalid.get(next).is_none_or(|&(start, _)| start >= end);
        clean && !self.splits_a_character(offset) && !self.splits_a_character(end)
    }

    /// Does a character that is whole go on at this byte?
    fn splits_a_character(&self, at: usize) -> bool {
        let Some(&byte) = self.heap.get(at) else { return false };
        let invalid = self.invalid.partition_point(|&(_, end)| end <= at);
        (byte & 0xc0) == 0x80 && self.invalid.get(invalid).is_none_or(|&(start, _)| start > at)
    }
}

const _: () = assert!(NODE == 16 && kind::MISSING == 0);
