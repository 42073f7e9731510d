//! `inspect`: what a module is, what it wants and what it costs.

use std::time::Instant;

use serde_json::{Value, json};

use super::exit::Failure;
use super::load;
use super::output::{Reply, Session, printable};
use crate::config::diagnostic::Diagnostic;
use crate::config::node::Span;
use crate::guest::{CALLS_PER_INSTANCE, Module, World};
use crate::plan::Guests;

/// Arguments of `inspect`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A guest by name, or a file: `dedup`, `./my.wasm`
    #[arg(value_name = "GUEST")]
    pub guest: String,
}

/// The verb.
pub fn main(args: &Args, session: &mut Session) -> Result<Reply, Failure> {
    let library = load::library(session)?;
    let begin = Instant::now();
    let module = library.find(&args.guest, Some(std::path::Path::new("pipeline.yaml"))).map_err(|missing| {
        let mut finding = Diagnostic::error(missing.code, Span::default(), missing.message.clone());
        finding.span = None;
        finding.help = missing.help;
        Failure { diagnostics: vec![finding], ..Failure::invalid(format!("`{}` cannot be inspected", args.guest)) }
    })?;
    let loading = begin.elapsed();
    let manifest = module.manifest();
    let (world, place) = world(&module);
    let imports = module.imports();
    let mut text = format!(
        "{} {}\n  {}\n\nworld    {world}: {place}\nimports  {}\ndigest   sha256:{}\nsize     {} KiB\nloaded   in {} ms (compiled code is cached)\n",
        manifest.name,
        manifest.version,
        manifest.about,
        if imports.is_empty() { "nothing".to_string() } else { imports.join(", ") },
        module.digest(),
        module.size().div_ceil(1024),
        loading.as_millis(),
    );
    text.push_str(
        "limits   1s a call and 1 ms a row, 64MiB memory, 8MiB output, 64KiB log (`limits` of the pipeline)\n",
    );
    text.push_str(&format!(
        "fresh    after a fault, when memory is nearly used up, after {CALLS_PER_INSTANCE} calls an instance is replaced\n"
    ));
    text.push_str(&parameters(&manifest.params));
    let result = json!({
        "name": manifest.name, "version": manifest.version, "about": manifest.about, "world": world, "imports": imports,
        "digest": format!("sha256:{}", module.digest()), "size": module.size(), "params": manifest.params,
    });
    Ok(Reply::new(printable(&text), result))
}

/// World and place in a pipeline.
fn world(module: &Module) -> (&'static str, &'static str) {
    match module.world() {
        World::Codec => ("codec-guest", "stands in `decode` and `encode`"),
        World::Transform => ("transform-guest", "stands in `stages`"),
        World::Keyed => ("keyed-guest", "stands in `stages`, with a `key`"),
        World::Key => ("key-guest", "stands in `key`"),
    }
}

/// The parameters of a schema, one a line.
fn parameters(schema: &Value) -> String {
    let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|p| !p.is_empty()) else {
        return "\nparameters: none\n".to_string();
    };
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let width = properties.keys().map(String::len).max().unwrap_or(0);
    let mut text = "\nparameters\n".to_string();
    for (name, property) in properties {
        let default = match property.get("default") {
            Some(Value::String(text)) => format!(" (default {text})"),
            Some(other) => format!(" (default {other})"),
            None if required.contains(&name.as_str()) => " (required)".to_string(),
            None => String::new(),
        };
        let about = property.get("description").and_then(Value::as_str).unwrap_or_default();
        text.push_str(&format!("  {name:<width$}  {}{default}\n  {:<width$}  {about}\n", forms(property), ""));
    }
    text
}

/// What may stand there, in a few words.
fn forms(schema: &Value) -> String {
    if let Some(choices) = ["oneOf", "anyOf"].iter().find_map(|k| schema.get(*k)).and_then(Value::as_array) {
        return choices.iter().map(forms).collect::<Vec<_>>().join(" | ");
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return words
            .iter()
            .map(|w| w.as_str().map_or_else(|| w.to_string(), str::to_string))
            .collect::<Vec<_>>()
            .join(" | ");
    }
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or("anything");
    match (kind, schema.get("format").and_then(Value::as_str)) {
        ("string", Some(format)) => format.to_string(),
        ("string", None) => "text".to_string(),
        ("array", _) => format!("list of {}", schema.get("items").map_or_else(|| "anything".to_string(), forms)),
        ("object", _) => {
            let names: Vec<&str> = schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(n, _)| n.as_str())
                .collect();
            format!("{{ {} }}", names.join(", "))
        }
        (kind, _) => kind.to_string(),
    }
}
