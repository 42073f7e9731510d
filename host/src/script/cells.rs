//! Between contents and the forms that flow: cells, documents, and bytes that a codec reads.

use tamis_guest::document::{Builder, Doc, Node};

use super::content::Content;
use super::heard::Heard;
use crate::batch::{Column, Payload, kind};
use crate::guest::{Guest, Opening};
use crate::plan::{Coder, Plan};

/// Adds the cell that says this to `into`; answers its kind.
pub fn write(content: &Content, builder: &mut Builder, into: &mut Vec<u8>) -> u8 {
    builder.clear();
    build(content, builder);
    builder.finish_into(into)
}

fn build(content: &Content, builder: &mut Builder) {
    match content {
        Content::Null => builder.null(),
        Content::Boolean(b) => builder.boolean(*b),
        Content::Number(digits) => builder.bytes(kind::NUMBER, digits.as_bytes()),
        Content::Float(x) => builder.float(*x),
        Content::Text(text) => builder.text(text),
        Content::Bytes(bytes) => builder.bytes(kind::BYTES, bytes),
        Content::List(items) => {
            builder.open(kind::ARRAY);
            items.iter().for_each(|item| build(item, builder));
            builder.close();
        }
        Content::Map(members) => {
            builder.open(kind::MAP);
            for (name, value) in members {
                builder.name(name.as_bytes());
                build(value, builder);
            }
            builder.close();
        }
    }
}

/// What a cell says.
pub fn read(of: u8, bytes: &[u8]) -> Content {
    let eight = || bytes.try_into().map(i64::from_le_bytes).unwrap_or_default();
    match of {
        kind::BOOLEAN => Content::Boolean(bytes == [1]),
        0x20..=0x2f => Content::Number(eight().to_string()),
        0x30..=0x3f => float(f64::from_bits(eight() as u64)),
        kind::TEXT => Content::Text(String::from_utf8_lossy(bytes).into_owned()),
        kind::NUMBER => Content::Number(String::from_utf8_lossy(bytes).into_owned()),
        kind::BYTES => Content::Bytes(bytes.to_vec()),
        kind::ARRAY | kind::MAP | kind::STRUCT => match Doc::unchecked(bytes) {
            Ok(doc) => of_node(doc.root()),
            Err(_) => Content::Bytes(bytes.to_vec()),
        },
        _ => Content::Null,
    }
}

fn of_node(node: Node<'_>) -> Content {
    match node.kind() {
        kind::ARRAY => Content::List(node.children().map(of_node).collect()),
        kind::MAP | kind::STRUCT => {
            Content::Map(node.children().map(|child| (child.name().to_string(), of_node(child))).collect())
        }
        scalar => read(scalar, node.scalar().unwrap_or_default()),
    }
}

/// A float as the shortest decimal number that reads back to it.
fn float(x: f64) -> Content {
    if x.is_finite() { Content::Number(format!("{x:e}")) } else { Content::Float(x) }
}

/// Reads bytes as the pipeline's codecs do.
pub struct Reader {
    key: Guest,
    value: Guest,
}

impl Reader {
    /// The codecs of a plan.
    pub fn of(plan: &Plan) -> Reader {
        let limits = plan.pipeline.limits;
        let open = |coder: &Coder| {
            let params = plan.pipeline.secrets.reveal(&coder.params).to_string();
            coder.module.guest(Opening::Codec { params, paths: vec![String::new()] }, limits)
        };
        Reader { key: open(&plan.decode_key), value: open(&plan.decode_value) }
    }

    /// What a key says.
    pub fn key(&mut self, heard: &Heard, key: Payload) -> Content {
        content(heard, key, &mut self.key)
    }

    /// What a value says.
    pub fn value(&mut self, heard: &Heard, value: Payload) -> Content {
        content(heard, value, &mut self.value)
    }

    /// What bytes of a value say.
    pub fn decode_value(&mut self, bytes: &[u8]) -> Content {
        decode(bytes, &mut self.value)
    }
}

fn content(heard: &Heard, payload: Payload, codec: &mut Guest) -> Content {
    match payload {
        Payload::Null => Content::Null,
        Payload::Cell(of, span) => read(of, heard.bytes(span)),
        Payload::Bytes(span) => decode(heard.bytes(span), codec),
    }
}

/// What the codec reads in bytes; the bytes themselves if it cannot.
fn decode(bytes: &[u8], codec: &mut Guest) -> Content {
    let mut payloads = Column::default();
    payloads.push(kind::BYTES, bytes);
    let plain = || Content::Bytes(bytes.to_vec());
    let Ok(decoded) = codec.decode(&payloads) else { return plain() };
    let column = decoded.columns.first().filter(|_| decoded.failures.is_empty());
    let Some((&of, &[offset, length])) =
        column.and_then(|c| Some((c.kinds.first()?, c.spans.get(..2)?.first_chunk()?)))
    else {
        return plain();
    };
    // Offsets from the payloads' length on point into the heap.
    let (offset, length) = (offset as usize, length as usize);
    let cell = match offset.checked_sub(bytes.len()) {
        None => bytes.get(offset..offset + length),
        Some(in_heap) if !decoded.heap.is_empty() => decoded.heap.get(in_heap..in_heap + length),
        Some(_) => Some(Default::default()),
    };
    cell.map_or_else(plain, |cell| read(of, cell))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: Content) {
        let (mut builder, mut bytes) = (Builder::new(), Vec::new());
        let of = write(&content, &mut builder, &mut bytes);
        assert!(read(of, &bytes).same(&content), "{content} came back as {}", read(of, &bytes));
    }

    #[test]
    fn contents_come_back_from_cells() {
        check(Content::Null);
        check(Content::Boolean(true));
        check(Content::Number("1.50e3".into()));
        check(Content::Float(f64::NAN));
        check(Content::Text("ü".into()));
        check(Content::Map(vec![
            ("a".into(), Content::List(vec![Content::Number("1".into()), Content::Map(Vec::new())])),
            ("b".into(), Content::Null),
        ]));
    }

    #[test]
    fn integers_and_floats_read_as_numbers() {
        assert!(read(kind::INT64, &7i64.to_le_bytes()).same(&Content::Number("7.0".into())));
        assert!(read(kind::FLOAT64, &0.5f64.to_bits().to_le_bytes()).same(&Content::Number("5e-1".into())));
    }
}
