//! Secrets: `{ from_env: NAME }` or `{ from_file: PATH }` in place of a parameter of a guest (pipeline-file section 2).
//! What was written stays what is shown; the guest alone gets the value.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::diagnostic::Diagnostic;
use super::node::Node;
use super::pipeline::{KeyForm, Pipeline, Uses};
use super::variables::Environment;

/// The values, by where they come from and by name. They are never printed: there is no way to but `reveal`.
#[derive(Clone, Default)]
pub struct Secrets(Arc<BTreeMap<(String, String), String>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl Secrets {
    /// Finds the values of all secrets that the parameters of a pipeline name. Files are looked for from the folder of
    /// the pipeline file; a line end at their end is no part of the value.
    pub fn read(pipeline: &Pipeline, environment: Environment<'_>, findings: &mut Vec<Diagnostic>) -> Secrets {
        let folder = pipeline.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let mut values = BTreeMap::new();
        for node in guests(pipeline).filter_map(|uses| uses.node.as_ref()) {
            walk(node, &mut |node, from, name| {
                let value = match from {
                    "from_env" => environment(name).ok_or_else(|| {
                        Diagnostic::error("P-VARIABLE", node.span, format!("variable {name} is not set"))
                            .help(format!("set it: `{name}=... tamis ...`"))
                    }),
                    _ => std::fs::read_to_string(folder.join(name)).map_err(|error| {
                        let text = error.to_string();
                        let why = text.split(" (os error").next().unwrap_or_default().to_lowercase();
                        Diagnostic::error("P-VALUE", node.span, format!("cannot read the secret in {name}: {why}"))
                            .help("a path is relative to the pipeline file; the file holds text, and nothing else")
                    }),
                };
                match value {
                    Ok(value) => {
                        let value = value.strip_suffix('\n').unwrap_or(&value);
                        let value = value.strip_suffix('\r').unwrap_or(value).to_owned();
                        values.insert((from.to_owned(), name.to_owned()), value);
                    }
                    Err(finding) => findings.push(finding),
                }
            });
        }
        Secrets(Arc::new(values))
    }

    /// Parameters as the guest gets them. One that names a secret which was not read stays as it is written.
    pub fn reveal(&self, params: &Value) -> Value {
        let named = named(params).and_then(|(from, name)| self.0.get(&(from.to_owned(), name.to_owned())));
        match (named, params) {
            (Some(value), _) => Value::String(value.clone()),
            (None, Value::Object(members)) => {
                members.iter().map(|(name, value)| (name.clone(), self.reveal(value))).collect()
            }
            (None, Value::Array(items)) => items.iter().map(|item| self.reveal(item)).collect(),
            (None, other) => other.clone(),
        }
    }
}

/// Whether this names a secret.
pub fn is_secret(node: &Node) -> bool {
    secret(node).is_some()
}

/// `from_env` or `from_file`, and the name.
fn secret(node: &Node) -> Option<(&str, &str)> {
    match node.as_map()? {
        [(from, _, name)] if from == "from_env" || from == "from_file" => Some((from, name.as_text()?)),
        _ => None,
    }
}

/// The same of JSON.
fn named(value: &Value) -> Option<(&str, &str)> {
    let members = value.as_object().filter(|members| members.len() == 1)?;
    let (from, name) = members.iter().next()?;
    (from == "from_env" || from == "from_file").then_some((from.as_str(), name.as_str()?))
}

fn walk(node: &Node, found: &mut dyn FnMut(&Node, &str, &str)) {
    if let Some((from, name)) = secret(node) {
        return found(node, from, name);
    }
    for (_, _, member) in node.as_map().unwrap_or_default() {
        walk(member, found);
    }
    for item in node.as_list().unwrap_or_default() {
        walk(item, found);
    }
}

fn guests(pipeline: &Pipeline) -> impl Iterator<Item = &Uses> {
    let Pipeline { decode, encode, stages, .. } = pipeline;
    let keys = stages.iter().filter_map(|stage| match &stage.key.as_ref()?.form {
        KeyForm::Guest(uses) => Some(uses),
        _ => None,
    });
    let codecs = [&decode.key, &decode.value].into_iter().chain(&encode.key).chain(&encode.value);
    codecs.chain(stages.iter().map(|stage| &stage.uses)).chain(keys)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn read(with: &str) -> Result<Pipeline, Vec<Diagnostic>> {
        let text = format!("version: 1\nname: p\nstages:\n  - {{ uses: mask, with: {with} }}\n");
        let environment = |name: &str| (name == "SALT").then(|| "pepper\n".to_string());
        crate::config::read(&text, None, &environment).map_err(|(findings, _)| findings)
    }

    #[test]
    fn a_guest_gets_the_value_and_nobody_else_sees_it() {
        let pipeline =
            read("{ fields: [value.a], text: { from_env: SALT }, n: [{ from_env: SALT }, { from_env: 1 }] }");
        let pipeline = pipeline.unwrap();
        let with = &pipeline.stages[0].uses.with;
        let given = pipeline.secrets.reveal(with);
        assert_eq!(given["text"], "pepper");
        assert_eq!(given["n"], serde_json::json!(["pepper", { "from_env": 1 }]));
        assert_eq!(with["text"], serde_json::json!({ "from_env": "SALT" }));
        assert!(!format!("{pipeline:?}").contains("pepper"));
    }

    #[test]
    fn a_secret_that_is_not_there_is_an_error_at_its_place() {
        let findings = read("{ text: { from_env: NONE }, a: { from_file: no-such-file } }").unwrap_err();
        let said: Vec<(&str, u32)> = findings.iter().map(|f| (f.code.as_str(), f.span.unwrap().line)).collect();
        assert_eq!(said, [("P-VARIABLE", 4), ("P-VALUE", 4)]);
        assert!(findings.iter().all(|f| !f.help.is_empty()));
    }
}
