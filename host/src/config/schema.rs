//! JSON Schema (draft-07) of the pipeline file, made of the tables, for editors.

use serde_json::{Map, Value, json};

use super::table::{Default, Kind, Member, Sign, Table};
use super::tables;

/// What a guest adds: its name and the schema of its parameters.
#[derive(Clone, Debug)]
pub struct GuestParams {
    /// As `uses` names it.
    pub name: String,
    /// Its schema.
    pub params: Value,
}

/// The schema; with guests, `with` is checked by the guest that `uses` names.
pub fn schema(guests: &[GuestParams]) -> Value {
    let mut root = mapping(&tables::FILE);
    if let Some(stage) = root.pointer_mut("/properties/stages/items").and_then(Value::as_object_mut) {
        let conditions: Vec<Value> = guests.iter().map(condition).collect();
        if !conditions.is_empty() {
            stage.insert("allOf".to_string(), Value::Array(conditions));
        }
    }
    let mut schema = Map::new();
    schema.insert("$schema".to_string(), json!("http://json-schema.org/draft-07/schema#"));
    schema.insert("title".to_string(), json!("tamis pipeline"));
    if let Value::Object(root) = root {
        schema.extend(root);
    }
    Value::Object(schema)
}

fn condition(guest: &GuestParams) -> Value {
    let escaped: String = guest
        .name
        .chars()
        .flat_map(|c| if c.is_alphanumeric() || c == '_' { vec![c] } else { vec!['\\', c] })
        .collect();
    let mut params = guest.params.clone();
    if let Some(members) = params.as_object_mut() {
        members.remove("$schema");
    }
    json!({
        "if": { "properties": { "uses": { "pattern": format!("^{escaped}(@|$)") } }, "required": ["uses"] },
        "then": { "properties": { "with": params } },
    })
}

fn mapping(table: &Table) -> Value {
    let mut properties = Map::new();
    for member in table.members {
        properties.insert(member.name.to_string(), property(member));
    }
    let required: Vec<&str> =
        table.members.iter().filter(|m| matches!(m.default, Default::Required)).map(|m| m.name).collect();
    let mut schema =
        json!({ "description": table.doc, "type": "object", "additionalProperties": false, "properties": properties });
    if let (false, Some(members)) = (required.is_empty(), schema.as_object_mut()) {
        members.insert("required".to_string(), json!(required));
    }
    schema
}

fn property(member: &Member) -> Value {
    let mut schema = kind(&member.kind);
    if let Some(members) = schema.as_object_mut() {
        let doc = match member.default {
            Default::Depends(words) => format!("{} Default: {words}.", member.doc),
            _ => member.doc.to_string(),
        };
        members.insert("description".to_string(), json!(doc));
        if let Default::Is(text) = member.default {
            members.insert("default".to_string(), super::build::default_json(text));
        }
        if !matches!(member.default, Default::Required) {
            return nullable(schema);
        }
    }
    schema
}

/// What is left out may be written as null: an empty line after a name.
fn nullable(mut schema: Value) -> Value {
    if let Some(one) = schema.get("type").and_then(Value::as_str).map(str::to_string) {
        if let Some(members) = schema.as_object_mut() {
            members.insert("type".to_string(), json!([one, "null"]));
        }
    } else if let Some(choices) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        choices.push(json!({ "type": "null" }));
    }
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
    }
    schema
}

const DURATION: &str = "(\\d+(\\.\\d+)?(ns|us|ms|s|m|h|d|w))+$";

fn kind(of: &Kind) -> Value {
    match of {
        Kind::Text => json!({ "type": "string" }),
        Kind::Guest => json!({ "type": "string", "minLength": 1 }),
        Kind::Name => json!({ "type": "string", "pattern": "^[a-z0-9][a-z0-9._-]*$", "maxLength": 100 }),
        Kind::Topic => json!({ "type": "string", "pattern": "^[A-Za-z0-9._-]+$", "maxLength": 249 }),
        Kind::Id => json!({ "type": "string", "pattern": "^[a-z0-9][a-z0-9-]*$", "maxLength": 100 }),
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Integer(least) => json!({ "type": "integer", "minimum": least }),
        Kind::Duration(Sign::Any) => json!({ "type": "string", "pattern": format!("^[+-]?{DURATION}") }),
        Kind::Duration(Sign::NotNegative | Sign::Positive) => {
            json!({ "type": "string", "pattern": format!("^\\+?{DURATION}") })
        }
        Kind::Size { .. } => json!({ "type": "string", "pattern": "^\\d+(\\.\\d+)?(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$" }),
        Kind::Instant => json!({ "type": "string", "pattern": "^\\d{4}-\\d\\d-\\d\\d[Tt ]\\d\\d:\\d\\d.*$" }),
        Kind::Address => {
            json!({ "type": "string", "pattern": "^(\\d+\\.\\d+\\.\\d+\\.\\d+|\\[[0-9A-Fa-f:.]+\\]):\\d+$" })
        }
        Kind::Path => json!({
            "type": "string",
            "pattern": "^(value|key)([.\\[].*)?$|^headers[.\\[].*$|^(timestamp|topic|partition|offset|epoch|position)$",
        }),
        Kind::Choice(words) => json!({ "type": "string", "enum": words }),
        Kind::Free => json!({}),
        Kind::FreeMap => json!({ "type": "object" }),
        Kind::Map(table) => match table.short.and_then(|short| table.member(short)) {
            Some(short) => either(vec![kind(&short.kind), mapping(table)]),
            None => mapping(table),
        },
        Kind::List(item) => json!({ "type": "array", "items": kind(item) }),
        Kind::Many(item) => either(vec![kind(item), json!({ "type": "array", "items": kind(item) })]),
        Kind::OrNone(inner) => either(vec![json!({ "type": "string", "enum": ["none"] }), kind(inner)]),
        Kind::Either(kinds) => either(kinds.iter().map(kind).collect()),
        Kind::OneOf(members, bare) => {
            let properties: Map<String, Value> =
                members.iter().map(|m| (m.name.to_string(), property_of_form(m))).collect();
            let form = json!({ "type": "object", "additionalProperties": false, "properties": properties, "minProperties": 1, "maxProperties": 1 });
            either(vec![json!({ "type": "string", "enum": bare }), form])
        }
        Kind::Later(feature) => json!({ "not": {}, "description": format!("{feature}: not built yet") }),
    }
}

fn property_of_form(member: &Member) -> Value {
    let mut schema = kind(&member.kind);
    if let Some(members) = schema.as_object_mut() {
        members.insert("description".to_string(), json!(member.doc));
    }
    schema
}

/// `anyOf`, with those of the choices taken in.
fn either(choices: Vec<Value>) -> Value {
    let mut all = Vec::new();
    for choice in choices {
        match choice.get("anyOf").and_then(Value::as_array) {
            Some(inner) => all.extend(inner.iter().cloned()),
            None => all.push(choice),
        }
    }
    json!({ "anyOf": all })
}
