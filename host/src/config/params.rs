//! Parameters of guests against their JSON Schema (draft-07, the part that parameters need), on what was written, so
//! that every finding has its place.
//!
//! Known: type, properties, required, additionalProperties, enum, const, items, minItems, maxItems, oneOf, anyOf, allOf,
//! minimum, maximum, exclusiveMinimum, exclusiveMaximum, minLength, maxLength, local `$ref`, and the formats duration,
//! size, path, instant. Other keywords are ignored.

use serde_json::Value;

use super::diagnostic::Diagnostic;
use super::nearest;
use super::node::{Node, NodeKind, Span};
use super::path::Path;
use super::secrets;
use super::values;

/// Checks the parameters of a guest. `node`: as written, `None` if left out; `span`: where to point then.
pub fn check(node: Option<&Node>, schema: &Value, guest: &str, span: Span) -> Vec<Diagnostic> {
    let empty = Node::new(span, NodeKind::Map(Vec::new()));
    let node = node.filter(|n| !n.is_null()).unwrap_or(&empty);
    let mut findings = Vec::new();
    Checker { root: schema, guest }.check(node, schema, "with", span, &mut findings);
    findings
}

/// The parameters as the guest gets them: what is null at the first level is left out.
pub fn given(with: &Value) -> Value {
    match with {
        Value::Object(members) => {
            Value::Object(members.iter().filter(|(_, v)| !v.is_null()).map(|(n, v)| (n.clone(), v.clone())).collect())
        }
        _ => Value::Object(serde_json::Map::new()),
    }
}

/// The parameters with the defaults of the schema filled in, as `plan` shows them.
pub fn filled(with: &Value, schema: &Value) -> Value {
    let mut filled = serde_json::Map::new();
    let members = with.as_object().cloned().unwrap_or_default();
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        match (members.get(name).filter(|v| !v.is_null()), property.get("default")) {
            (Some(value), _) => filled.insert(name.clone(), value.clone()),
            (None, Some(default)) => filled.insert(name.clone(), default.clone()),
            (None, None) => None,
        };
    }
    for (name, value) in members {
        if !value.is_null() {
            filled.entry(name).or_insert(value);
        }
    }
    Value::Object(filled)
}

struct Checker<'a> {
    root: &'a Value,
    guest: &'a str,
}

impl<'a> Checker<'a> {
    fn check(&self, node: &Node, schema: &'a Value, what: &str, at: Span, findings: &mut Vec<Diagnostic>) {
        let schema = self.resolve(schema);
        // What a secret says is for the guest to judge.
        if secrets::is_secret(node) {
            return;
        }
        if schema.as_bool() == Some(false) {
            findings
                .push(Diagnostic::error("P-VALUE", at, format!("`{what}` may not stand here")).help("leave it out"));
            return;
        }
        if let Some(all) = schema.get("allOf").and_then(Value::as_array) {
            all.iter().for_each(|part| self.check(node, part, what, at, findings));
        }
        if let Some(choices) = ["oneOf", "anyOf"].iter().find_map(|k| schema.get(*k)).and_then(Value::as_array) {
            self.check_choices(node, choices, what, at, findings);
        }
        if !self.has_type(node, schema, what, findings) {
            return;
        }
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            self.check_words(node, words, what, findings);
        }
        if let Some(constant) = schema.get("const") {
            self.check_words(node, std::slice::from_ref(constant), what, findings);
        }
        match &*node.kind {
            NodeKind::Map(members) => self.check_members(node, members, schema, at, findings),
            NodeKind::List(items) => {
                if let Some(schema) = schema.get("items") {
                    items.iter().for_each(|item| self.check(item, schema, what, item.span, findings));
                }
                let count = items.len() as u64;
                let (least, most) =
                    (schema.get("minItems").and_then(Value::as_u64), schema.get("maxItems").and_then(Value::as_u64));
                if least.is_some_and(|n| count < n) || most.is_some_and(|n| count > n) {
                    let wanted = range(least.map(|n| n.to_string()), most.map(|n| n.to_string()));
                    findings.push(Diagnostic::error(
                        "P-VALUE",
                        node.span,
                        format!("`{what}` has {count} elements, wanted are {wanted}"),
                    ));
                }
            }
            NodeKind::Text { text, .. } => self.check_text(node, text, schema, what, findings),
            NodeKind::Number(digits) => check_number(node, digits, schema, what, findings),
            NodeKind::Null | NodeKind::Bool(_) => {}
        }
    }

    fn resolve(&self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        // A reference to a reference to ... ends: a schema is finite, a circle is not followed for ever.
        for _ in 0..16 {
            match schema.get("$ref").and_then(Value::as_str).and_then(|r| self.root.pointer(r.strip_prefix('#')?)) {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }

    fn has_type(&self, node: &Node, schema: &Value, what: &str, findings: &mut Vec<Diagnostic>) -> bool {
        let types = types_of(schema);
        if types.is_empty() || types.iter().any(|t| fits(node, t)) {
            return true;
        }
        let format = schema.get("format").and_then(Value::as_str);
        let finding = match (format, node.as_number()) {
            (Some("duration"), Some(digits)) => {
                Diagnostic::error("P-UNIT", node.span, format!("`{what}`: `{digits}` has no unit"))
                    .help(values::no_unit(digits))
            }
            (Some("size"), Some(digits)) => {
                Diagnostic::error("P-UNIT", node.span, format!("`{what}`: `{digits}` has no unit"))
                    .help(values::no_size_unit(digits))
            }
            _ => {
                let wanted: Vec<&str> = types.iter().map(|t| type_word(t, format)).collect();
                let message = format!("`{what}` is {}, wanted is {}", node.describe(), wanted.join(" or "));
                let finding = Diagnostic::error("P-VALUE", node.span, message);
                match (types.as_slice(), &*node.kind) {
                    (["string"], NodeKind::Number(_) | NodeKind::Bool(_)) => finding.help("put it in quotes"),
                    (["boolean"], NodeKind::Text { .. }) => finding.help("write `true` or `false`, without quotes"),
                    (["integer" | "number"], NodeKind::Text { quoted: true, .. }) => {
                        finding.help("take the quotes away")
                    }
                    _ => match schema.get("description").and_then(Value::as_str) {
                        Some(description) => finding.help(format!("`{what}`: {description}")),
                        None => finding,
                    },
                }
            }
        };
        findings.push(finding);
        false
    }

    fn check_words(&self, node: &Node, words: &[Value], what: &str, findings: &mut Vec<Diagnostic>) {
        let value = node.to_json();
        if words.contains(&value) {
            return;
        }
        let texts: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        let shown =
            node.as_text().or(node.as_number()).map_or_else(|| node.describe().to_string(), |t| format!("`{t}`"));
        let finding = Diagnostic::error("P-VALUE", node.span, format!("{shown} is no legal value of `{what}`"));
        let near = node.as_text().and_then(|text| nearest(text, texts.iter().copied()));
        findings.push(match near {
            Some(near) => finding.help(format!("perhaps `{near}`")),
            None => {
                let all: Vec<String> =
                    words.iter().map(|w| w.as_str().map_or_else(|| w.to_string(), str::to_string)).collect();
                finding.help(format!("legal are: {}", all.join(", ")))
            }
        });
    }

    /// Of several forms the one that is meant is judged: the only one of the right type, or the one with the fewest
    /// complaints.
    fn check_choices(&self, node: &Node, choices: &'a [Value], what: &str, at: Span, findings: &mut Vec<Diagnostic>) {
        let mut best: Option<Vec<Diagnostic>> = None;
        let right: Vec<&Value> = choices.iter().filter(|c| self.may_be(node, c)).collect();
        for choice in &right {
            let mut tried = Vec::new();
            self.check(node, choice, what, at, &mut tried);
            if tried.is_empty() {
                return;
            }
            if best.as_ref().is_none_or(|b| tried.len() < b.len()) {
                best = Some(tried);
            }
        }
        if let (Some(best), true) = (best, right.len() == 1 || node.as_map().is_some()) {
            findings.extend(best);
            return;
        }
        // Wrong whichever form is meant: name them all.
        let mut wanted: Vec<String> = Vec::new();
        let mut number_without_unit = false;
        for choice in choices.iter().map(|c| self.resolve(c)) {
            let format = choice.get("format").and_then(Value::as_str);
            number_without_unit |= format == Some("duration") && node.as_number().is_some();
            match choice.get("enum").and_then(Value::as_array) {
                Some(words) => {
                    wanted.extend(words.iter().map(|w| w.as_str().map_or_else(|| w.to_string(), |t| format!("`{t}`"))))
                }
                None => wanted.extend(types_of(choice).iter().map(|t| type_word(t, format).to_string())),
            }
        }
        let digits = node.as_number().unwrap_or_default();
        findings.push(if number_without_unit {
            Diagnostic::error("P-UNIT", node.span, format!("`{what}`: `{digits}` has no unit"))
                .help(values::no_unit(digits))
        } else {
            let shown = node.as_text().map_or_else(|| node.describe().to_string(), |t| format!("`{t}`"));
            let finding = Diagnostic::error("P-VALUE", node.span, format!("{shown} is no legal value of `{what}`"));
            let words: Vec<&str> = wanted.iter().map(|w| w.trim_matches('`')).collect();
            match node.as_text().and_then(|text| nearest(text, words.into_iter())) {
                Some(near) => finding.help(format!("perhaps `{near}`")),
                None => finding.help(format!("legal are: {}", wanted.join(", "))),
            }
        });
    }

    fn may_be(&self, node: &Node, schema: &'a Value) -> bool {
        let schema = self.resolve(schema);
        let types = types_of(schema);
        if !types.is_empty() && !types.iter().any(|t| fits(node, t)) {
            return false;
        }
        match (schema.get("enum").and_then(Value::as_array), node.as_text()) {
            (Some(words), Some(text)) if types == ["string"] => {
                words.iter().any(|w| w.as_str() == Some(text)) || words.len() > 1
            }
            _ => true,
        }
    }

    fn check_members(
        &self,
        node: &Node,
        members: &[(String, Span, Node)],
        schema: &'a Value,
        at: Span,
        findings: &mut Vec<Diagnostic>,
    ) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let more = schema.get("additionalProperties");
        for (name, span, value) in members {
            match (properties.and_then(|p| p.get(name)), more) {
                (Some(_), _) if value.is_null() => {}
                (Some(property), _) => self.check(value, property, name, value.span, findings),
                (None, Some(Value::Bool(false))) => findings.push(self.unknown(name, *span, properties)),
                (None, Some(schema @ Value::Object(_))) => self.check(value, schema, name, value.span, findings),
                (None, _) => {}
            }
        }
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if node.get(name).is_none_or(Node::is_null) {
                let place = members.first().map_or(at, |(_, span, _)| *span);
                let finding =
                    Diagnostic::error("P-MISSING", place, format!("{} needs the parameter `{name}`", self.guest));
                let description =
                    properties.and_then(|p| p.get(name)).and_then(|p| p.get("description")).and_then(Value::as_str);
                // The first sentence says what it is; `inspect` has the rest.
                let first = description.map(|text| text.split_inclusive(". ").next().unwrap_or(text).trim_end());
                findings.push(match first {
                    Some(description) => finding.help(format!("add `{name}: ...`: {description}")),
                    None => finding.help(format!("add `{name}: ...`")),
                });
            }
        }
    }

    fn unknown(&self, name: &str, span: Span, properties: Option<&serde_json::Map<String, Value>>) -> Diagnostic {
        let names: Vec<&str> = properties.into_iter().flatten().map(|(n, _)| n.as_str()).collect();
        let finding = Diagnostic::error("P-UNKNOWN", span, format!("{} has no parameter `{name}`", self.guest));
        let beside = matches!(name, "key" | "scope" | "state" | "when" | "unless" | "id");
        match nearest(name, names.iter().copied()) {
            Some(near) => finding.help(format!("perhaps `{near}`")),
            None if beside => finding.help(format!("`{name}` stands beside `with`, not in it")),
            None if matches!(name, "retention" | "ttl" | "max_entries") => {
                finding.help("how long a key is remembered stands beside `with`: `state: { retention: 1h }`; within what time: `window: { horizon: 1h }`")
            }
            None if names.is_empty() => finding.help("it takes no parameters"),
            None => finding.help(format!("legal are: {}", names.join(", "))),
        }
    }

    fn check_text(&self, node: &Node, text: &str, schema: &Value, what: &str, findings: &mut Vec<Diagnostic>) {
        let error = match schema.get("format").and_then(Value::as_str) {
            Some("duration") => values::duration(text).err(),
            Some("size") => values::size(text).err(),
            Some("instant") => values::instant(text).err(),
            Some("path") => {
                if let Err(error) = Path::parse(text) {
                    findings.push(Diagnostic::error("P-PATH", node.span, error.message).help(error.help));
                }
                None
            }
            _ => None,
        };
        if let Some(error) = error {
            findings.push(
                Diagnostic::error(error.code, node.span, format!("`{what}`: {}", error.message)).help(error.help),
            );
        }
        let count = text.chars().count() as u64;
        let (least, most) =
            (schema.get("minLength").and_then(Value::as_u64), schema.get("maxLength").and_then(Value::as_u64));
        if least.is_some_and(|n| count < n) || most.is_some_and(|n| count > n) {
            let wanted = range(least.map(|n| n.to_string()), most.map(|n| n.to_string()));
            findings.push(Diagnostic::error(
                "P-VALUE",
                node.span,
                format!("`{what}` has {count} characters, wanted are {wanted}"),
            ));
        }
    }
}

fn check_number(node: &Node, digits: &str, schema: &Value, what: &str, findings: &mut Vec<Diagnostic>) {
    let Ok(number) = digits.parse::<f64>() else { return };
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    let too_small =
        bound("minimum").is_some_and(|n| number < n) || bound("exclusiveMinimum").is_some_and(|n| number <= n);
    let too_large =
        bound("maximum").is_some_and(|n| number > n) || bound("exclusiveMaximum").is_some_and(|n| number >= n);
    if too_small || too_large {
        let shown = |names: [&str; 2]| names.iter().find_map(|n| schema.get(*n)).map(Value::to_string);
        let wanted = range(shown(["minimum", "exclusiveMinimum"]), shown(["maximum", "exclusiveMaximum"]));
        findings.push(Diagnostic::error("P-VALUE", node.span, format!("`{what}` is {digits}, wanted is {wanted}")));
    }
}

fn range(least: Option<String>, most: Option<String>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) => "another number".to_string(),
    }
}

fn types_of(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn fits(node: &Node, wanted: &str) -> bool {
    match (&*node.kind, wanted) {
        (NodeKind::Null, "null") | (NodeKind::Bool(_), "boolean") | (NodeKind::Text { .. }, "string") => true,
        (NodeKind::List(_), "array") | (NodeKind::Map(_), "object") => true,
        (NodeKind::Number(digits), "number") => !digits.contains(".inf") && !digits.contains(".nan"),
        (NodeKind::Number(digits), "integer") => digits.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()),
        _ => false,
    }
}

fn type_word<'s>(wanted: &'s str, format: Option<&str>) -> &'s str {
    match (wanted, format) {
        ("string", Some("duration")) => "a duration like `5s`",
        ("string", Some("size")) => "a size like `64MiB`",
        ("string", Some("path")) => "a path like `value.id`",
        ("string", Some("instant")) => "an instant like `2026-01-01T00:30:00Z`",
        ("string", _) => "text",
        ("array", _) => "a list",
        ("object", _) => "a mapping",
        ("integer", _) => "a whole number",
        ("number", _) => "a number",
        ("boolean", _) => "`true` or `false`",
        (other, _) => other,
    }
}

#[cfg(test)]
#[path = "params_tests.rs"]
mod tests;
