//! A small JSON Schema validator, for the keywords that the schema of pipeline files uses; patterns are matched by a
//! matcher of their few forms. Written apart from the check of the host, so that the two can disagree.

use serde_json::Value;

/// Checks a value; the error names the place.
pub fn check(value: &Value, schema: &Value) -> Result<(), String> {
    at(value, schema, "")
}

fn at(value: &Value, schema: &Value, place: &str) -> Result<(), String> {
    let fail = |why: &str| Err(format!("{place}: {why}: {value}"));
    let Some(schema) = schema.as_object() else { return Ok(()) };
    for (keyword, wanted) in schema {
        let fits = match keyword.as_str() {
            "type" => match wanted {
                Value::Array(types) => types.iter().any(|t| is(value, t.as_str().unwrap())),
                one => is(value, one.as_str().unwrap()),
            },
            "enum" => wanted.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|n| n >= wanted.as_f64().unwrap()),
            "minLength" => value.as_str().is_none_or(|t| t.len() as u64 >= wanted.as_u64().unwrap()),
            "maxLength" => value.as_str().is_none_or(|t| t.len() as u64 <= wanted.as_u64().unwrap()),
            "minProperties" => value.as_object().is_none_or(|m| m.len() as u64 >= wanted.as_u64().unwrap()),
            "maxProperties" => value.as_object().is_none_or(|m| m.len() as u64 <= wanted.as_u64().unwrap()),
            "minItems" => value.as_array().is_none_or(|m| m.len() as u64 >= wanted.as_u64().unwrap()),
            "pattern" => value.as_str().is_none_or(|t| matches(t, wanted.as_str().unwrap())),
            "required" => {
                let names = wanted.as_array().unwrap();
                value.as_object().is_none_or(|m| names.iter().all(|n| m.contains_key(n.as_str().unwrap())))
            }
            "not" => at(value, wanted, place).is_err(),
            "anyOf" => wanted.as_array().unwrap().iter().any(|s| at(value, s, place).is_ok()),
            "oneOf" => wanted.as_array().unwrap().iter().filter(|s| at(value, s, place).is_ok()).count() == 1,
            "allOf" => {
                for part in wanted.as_array().unwrap() {
                    at(value, part, place)?;
                }
                true
            }
            "if" => {
                if at(value, wanted, place).is_ok() {
                    at(value, schema.get("then").unwrap_or(&Value::Null), place)?;
                }
                true
            }
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    at(item, wanted, &format!("{place}/{i}"))?;
                }
                true
            }
            "properties" => {
                for (name, property) in wanted.as_object().unwrap() {
                    if let Some(member) = value.get(name) {
                        at(member, property, &format!("{place}/{name}"))?;
                    }
                }
                true
            }
            "additionalProperties" => match (wanted, value.as_object()) {
                (Value::Bool(false), Some(members)) => {
                    let known = schema.get("properties").and_then(Value::as_object);
                    members.keys().all(|n| known.is_some_and(|k| k.contains_key(n)))
                }
                _ => true,
            },
            "description" | "title" | "uniqueItems" | "examples" | "default" | "then" | "format" | "$schema" => true,
            other => panic!("the validator does not know `{other}`"),
        };
        if !fits {
            return fail(keyword);
        }
    }
    Ok(())
}

fn is(value: &Value, wanted: &str) -> bool {
    match wanted {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type `{other}`"),
    }
}

/// The patterns of the schema by what is special in them.
fn matches(text: &str, pattern: &str) -> bool {
    let digit = |c: char| c.is_ascii_digit();
    if let Some(name) = pattern.strip_prefix('^').and_then(|p| p.strip_suffix("(@|$)")) {
        return text == name || text.starts_with(&format!("{name}@"));
    }
    if pattern.contains("(ns|us|ms|s|m|h|d|w)") {
        return tamis::config::values::duration(text).is_ok() && (pattern.contains("+-") || !text.starts_with('-'));
    }
    if pattern.contains("KiB") {
        return tamis::config::values::size(text).is_ok();
    }
    if pattern.starts_with("^\\d{4}") {
        return text.len() > 16 && text.starts_with(digit);
    }
    if pattern.contains("headers") {
        return tamis::config::path::Path::parse(text).is_ok();
    }
    if pattern.starts_with("^[a-z0-9]") {
        return text.starts_with(|c: char| digit(c) || c.is_ascii_lowercase()) && !text.contains(' ');
    }
    panic!("the matcher does not know `{pattern}`")
}
