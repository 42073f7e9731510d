//! `key` of a stage (pipeline-file 7.1).

use super::build::uses;
use super::diagnostic::Diagnostic;
use super::node::Node;
use super::path::{Path, Root};
use super::pipeline::{Key, KeyForm, Normalize, NullKey, Part, ReadAs};
use super::section::Section;
use super::table::Kind;
use super::tables;

/// A key as written; what the table cannot say is checked here.
pub fn key(node: &Node, findings: &mut Vec<Diagnostic>) -> Option<Key> {
    let section = Section::new(Some(node), &tables::KEY);
    let form = form(node, section, findings)?;
    Some(Key {
        form,
        null_key: section.node("null_key").and_then(|_| null_key(&section.text("null_key")?)),
        missing_distinct: section.text("missing").as_deref() == Some("distinct"),
        typed_numbers: section.text("numbers").as_deref() == Some("typed"),
        normalize: match section.text("normalize").as_deref() {
            Some("nfc") => Some(Normalize::Nfc),
            Some("nfkc") => Some(Normalize::Nfkc),
            _ => None,
        },
        casefold: section.truth("casefold"),
        node: node.clone(),
    })
}

fn form(node: &Node, section: Section<'_>, findings: &mut Vec<Diagnostic>) -> Option<KeyForm> {
    let written: Vec<&str> =
        ["fields", "whole", "uses"].into_iter().filter(|name| section.node(name).is_some()).collect();
    let form = match written.as_slice() {
        [form] => *form,
        [] => {
            findings.push(
                Diagnostic::error("P-MISSING", node.span, "`key` needs one of `fields`, `whole`, `uses`")
                    .help("write the paths: `key: value.id`, `key: [value.a, value.b]`"),
            );
            return None;
        }
        [_, second, ..] => {
            findings.push(
                Diagnostic::error("P-VALUE", section.span(second), "`key` is exactly one of `fields`, `whole`, `uses`")
                    .help("keep one of them"),
            );
            return None;
        }
    };
    for (name, owner) in [("except", "whole"), ("with", "uses")] {
        if form != owner && section.node(name).is_some() {
            findings.push(
                Diagnostic::error(
                    "P-VALUE",
                    section.span(name),
                    format!("`{name}` belongs to `{owner}`, and has no effect with `{form}`"),
                )
                .help("leave it out"),
            );
        }
    }
    Some(match form {
        "whole" => {
            let root =
                Path::whole(if section.text("whole").as_deref() == Some("key") { Root::Key } else { Root::Value });
            let mut except = Vec::new();
            for item in section.many("except") {
                let Some(path) = item.as_text().and_then(|t| Path::parse(t).ok()) else { continue };
                if path.root != root.root || path.steps.is_empty() {
                    findings.push(
                        Diagnostic::error("P-PATH", item.span, format!("`{path}` is not inside `{root}`"))
                            .help(format!("name a member: `{root}.NAME`")),
                    );
                    continue;
                }
                except.push(path);
            }
            KeyForm::Whole { root, except }
        }
        "uses" => KeyForm::Guest(uses_of(node)),
        _ => KeyForm::Fields(section.many("fields").into_iter().filter_map(|n| part(n, findings)).collect()),
    })
}

/// The guest of a key: `uses` and `with` stand beside its options.
fn uses_of(node: &Node) -> super::pipeline::Uses {
    uses(node)
}

fn part(node: &Node, findings: &mut Vec<Diagnostic>) -> Option<Part> {
    let Some(Kind::Many(Kind::Map(table))) = tables::KEY.member("fields").map(|m| &m.kind) else { return None };
    let section = Section::new(Some(node), table);
    let path = section.path("field")?;
    let read_as = match section.text("as").as_deref() {
        Some("text") => ReadAs::Text,
        Some("int") => ReadAs::Int,
        Some("decimal") => ReadAs::Decimal,
        Some("boolean") => ReadAs::Boolean,
        _ => ReadAs::Bytes,
    };
    if section.node("as").is_some() && !matches!(path.root, Root::Header(_)) {
        findings.push(
            Diagnostic::error("P-VALUE", section.span("as"), format!("`as` reads header bytes; `{path}` is no header"))
                .help("leave it out; types of documents come from the codec"),
        );
    }
    Some(Part { name: section.text("name").unwrap_or_else(|| path.last_name()), path, read_as })
}

fn null_key(word: &str) -> Option<NullKey> {
    Some(match word {
        "pass" => NullKey::Pass,
        "dlq" => NullKey::Dlq,
        "group" => NullKey::Group,
        "drop" => NullKey::Drop,
        "fail" => NullKey::Fail,
        _ => return None,
    })
}
