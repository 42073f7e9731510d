//! JSON text to a decoded cell and back: documents of envelopes under another codec than `json`, and records that
//! leave by a route as documents.

use serde_json::Value;
use tamis_guest::document::Builder;
use tamis_guest::document::{Doc, Node, cell_f64, cell_i64, is_container};

use crate::batch::kind;

/// The cell of a JSON text: kind and bytes, numbers with all their digits. None if it is not JSON.
pub fn cell(text: &[u8]) -> Option<(u8, Vec<u8>)> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let mut builder = Builder::new();
    build(&value, &mut builder);
    Some(builder.finish())
}

fn build(value: &Value, into: &mut Builder) {
    match value {
        Value::Null => into.null(),
        Value::Bool(b) => into.boolean(*b),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => into.int(integer),
            None => into.bytes(kind::NUMBER, number.to_string().as_bytes()),
        },
        Value::String(text) => into.text(text),
        Value::Array(items) => {
            into.open(kind::ARRAY);
            items.iter().for_each(|item| build(item, into));
            into.close();
        }
        Value::Object(members) => {
            into.open(kind::STRUCT);
            for (name, member) in members {
                into.name(name.as_bytes());
                build(member, into);
            }
            into.close();
        }
    }
}

/// A decoded cell as JSON text; none if JSON cannot say it (bytes, a float that is no number).
pub fn text(kind: u8, bytes: &[u8]) -> Option<Vec<u8>> {
    let value = if is_container(kind) { of_node(Doc::new(bytes).ok()?.root())? } else { of_scalar(kind, bytes)? };
    serde_json::to_vec(&value).ok()
}

fn of_node(node: Node<'_>) -> Option<Value> {
    match node.kind() {
        kind::ARRAY => node.children().map(of_node).collect::<Option<Vec<Value>>>().map(Value::Array),
        kind::MAP | kind::STRUCT => {
            let members = node.children().map(|child| Some((child.name().to_owned(), of_node(child)?)));
            members.collect::<Option<serde_json::Map<String, Value>>>().map(Value::Object)
        }
        kind => of_scalar(kind, node.scalar().unwrap_or_default()),
    }
}

fn of_scalar(kind: u8, bytes: &[u8]) -> Option<Value> {
    Some(match kind {
        kind::MISSING | kind::NULL => Value::Null,
        kind::BOOLEAN => Value::Bool(bytes.first() == Some(&1)),
        kind::TEXT => Value::String(std::str::from_utf8(bytes).ok()?.to_owned()),
        kind::NUMBER => serde_json::from_slice(bytes).ok()?,
        _ => match (cell_i64(kind, bytes), cell_f64(kind, bytes)) {
            (Some(integer), _) => Value::from(integer),
            (None, Some(float)) => Value::Number(serde_json::Number::from_f64(float)?),
            (None, None) => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn check(json: &str) {
        let (kind, bytes) = cell(json.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(text(kind, &bytes).unwrap()).unwrap(), json);
    }

    #[test]
    fn documents_come_back_as_they_were() {
        check("5");
        check("-1.50");
        check("123456789012345678901234567890");
        check("\"a\\nb\"");
        check("true");
        check("{\"b\":[1,{\"x\":null},[]],\"a\":\"\u{e9}\"}");
    }

    #[test]
    fn bytes_are_no_json() {
        assert_eq!(text(kind::BYTES, b"x"), None);
        assert_eq!(cell(b"{"), None);
    }
}
