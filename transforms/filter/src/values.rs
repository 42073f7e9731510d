//! Cells as values of the expression language.

use std::collections::HashMap;
use std::sync::Arc;

use cel::Value;
use cel::objects::{Key, Map};
use tamis_guest::document::{Doc, Node, Storage};
use tamis_guest::{Cell, kind, number};

/// The value of a cell; missing: none.
pub fn of_cell(cell: Cell<'_>) -> Option<Value> {
    match Storage::of(cell.kind)? {
        Storage::Array | Storage::Object => Doc::unchecked(cell.bytes).ok().map(|doc| of_node(doc.root())),
        _ => Some(scalar(cell.kind, cell.bytes)),
    }
}

/// As `of_cell`, for the value of a header: text if it is UTF-8.
pub fn of_header(cell: Cell<'_>) -> Option<Value> {
    match (cell.kind, std::str::from_utf8(cell.bytes)) {
        (kind::BYTES, Ok(text)) => Some(Value::String(Arc::new(text.to_owned()))),
        _ => of_cell(cell),
    }
}

fn of_node(node: Node<'_>) -> Value {
    if let Some(bytes) = node.scalar() {
        return scalar(node.kind(), bytes);
    }
    if node.kind() == kind::ARRAY {
        return Value::List(Arc::new(node.children().map(of_node).collect()));
    }
    map(node.children().map(|child| (Key::from(child.name()), of_node(child))).collect())
}

/// A map of these members.
pub fn map(members: HashMap<Key, Value>) -> Value {
    Value::Map(Map { map: Arc::new(members) })
}

fn scalar(kind: u8, bytes: &[u8]) -> Value {
    let eight = || <[u8; 8]>::try_from(bytes).unwrap_or_default();
    match Storage::of(kind) {
        Some(Storage::Boolean) => Value::Bool(bytes == [1]),
        Some(Storage::Eight) if matches!(kind, kind::FLOAT64 | kind::FLOAT32) => {
            Value::Float(f64::from_le_bytes(eight()))
        }
        Some(Storage::Eight) => Value::Int(i64::from_le_bytes(eight())),
        Some(Storage::Number) => of_number(bytes),
        Some(Storage::Text) => Value::String(Arc::new(String::from_utf8_lossy(bytes).into_owned())),
        Some(Storage::Bytes) => Value::Bytes(Arc::new(bytes.to_vec())),
        _ => Value::Null,
    }
}

/// Written as an integer that fits: int. Else double.
fn of_number(digits: &[u8]) -> Value {
    let integer = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    match integer {
        Some(integer) => Value::Int(integer),
        None => Value::Float(number::to_f64(digits).unwrap_or(f64::NAN)),
    }
}
