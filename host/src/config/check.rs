//! What was written against what may be written: names, types, legal values, all errors at once. What it passes,
//! `build.rs` turns into a `Pipeline`.

use super::diagnostic::Diagnostic;
use super::nearest;
use super::node::{Node, NodeKind, Span};
use super::path::Path;
use super::table::{Default, Kind, Member, Sign, Table};
use super::values::{self, ValueError};

/// Checks a node against a kind. `what`: the member's name, for sentences.
pub fn check(node: &Node, kind: &Kind, what: &str, findings: &mut Vec<Diagnostic>) {
    match kind {
        Kind::Free => {}
        Kind::FreeMap => {
            if node.as_map().is_none() {
                findings.push(wrong_type(node, what, "a mapping"));
            }
        }
        Kind::Text | Kind::Guest => check_text(node, what, findings),
        Kind::Name | Kind::Id => check_name(node, kind, what, findings),
        Kind::Topic => check_topic(node, what, findings),
        Kind::Bool => {
            if node.as_bool().is_none() {
                let finding = wrong_type(node, what, "`true` or `false`");
                let meant = node.as_text().and_then(|t| match t.to_lowercase().as_str() {
                    "yes" | "on" | "y" => Some("true"),
                    "no" | "off" | "n" => Some("false"),
                    "true" => Some("true"),
                    "false" => Some("false"),
                    _ => None,
                });
                findings.push(match meant {
                    Some(meant) => finding.help(format!("write `{meant}`, without quotes")),
                    None => finding,
                });
            }
        }
        Kind::Integer(least) => check_integer(node, *least, what, findings),
        Kind::Duration(sign) => {
            if let Some(value) =
                with_unit(node, what, "a duration like `5s`", values::no_unit, values::duration, findings)
            {
                check_sign(node, value, *sign, what, findings);
            }
        }
        Kind::Size { zero } => {
            let value = with_unit(node, what, "a size like `64MiB`", values::no_size_unit, values::size, findings);
            if value == Some(0) && !zero {
                findings.push(Diagnostic::error("P-VALUE", node.span, format!("`{what}` must be above zero")));
            }
        }
        Kind::Instant => match node.as_text() {
            Some(text) => {
                if let Err(error) = values::instant(text) {
                    findings.push(wrong_value(node.span, what, error));
                }
            }
            None => findings.push(wrong_type(node, what, "an instant like `2026-01-01T00:30:00Z`")),
        },
        Kind::Address => match node.as_text() {
            Some(text) => {
                if let Err(error) = values::address(text) {
                    findings.push(wrong_value(node.span, what, error));
                }
            }
            None => findings.push(wrong_type(node, what, "an address like `127.0.0.1:8484`")),
        },
        Kind::Path => check_path(node, what, findings),
        Kind::Choice(words) => check_choice(node, words, what, findings),
        Kind::Map(table) => check_map(node, table, what, findings),
        Kind::List(kind) => match node.as_list() {
            Some(items) => items.iter().for_each(|item| check(item, kind, what, findings)),
            None => findings.push(
                wrong_type(node, what, "a list")
                    .help(format!("put it in brackets, or on lines that begin with `- `: `{what}:` is a list")),
            ),
        },
        Kind::Many(kind) => match node.as_list() {
            Some(items) => items.iter().for_each(|item| check(item, kind, what, findings)),
            None => check(node, kind, what, findings),
        },
        Kind::OrNone(kind) => {
            if node.as_text() != Some("none") {
                check(node, kind, what, findings);
            }
        }
        Kind::Either(kinds) => check_either(node, kinds, what, findings),
        Kind::OneOf(members, bare) => {
            check_one_of(node, members, bare, what, findings);
        }
        Kind::Later(feature) => {
            findings.push(
                Diagnostic::error("P-LATER", node.span, format!("{feature} are defined, but not built yet"))
                    .help("leave it out; `tamis explain P-LATER` lists what is missing"),
            );
        }
    }
}

/// The member of a mapping that counts: what was written and is not null. A plain value is the short member.
pub fn member<'a>(node: &'a Node, table: &Table, name: &str) -> Option<&'a Node> {
    match (node.as_map(), table.short) {
        (Some(_), _) => node.get(name).filter(|n| !n.is_null()),
        (None, Some(short)) if short == name && !node.is_null() => Some(node),
        _ => None,
    }
}

fn check_map(node: &Node, table: &Table, what: &str, findings: &mut Vec<Diagnostic>) {
    let Some(members) = node.as_map() else {
        match table.short.and_then(|short| table.member(short)) {
            Some(short) if !node.is_null() => check(node, &short.kind, what, findings),
            _ if node.is_null() && table.members.iter().all(|m| !matches!(m.default, Default::Required)) => {}
            _ => {
                let names: Vec<&str> = table.members.iter().map(|m| m.name).collect();
                findings
                    .push(wrong_type(node, what, "a mapping").help(format!("its members are: {}", names.join(", "))));
            }
        }
        return;
    };
    for (name, span, value) in members {
        match table.member(name) {
            // Null stands for "left out".
            Some(_) if value.is_null() => {}
            Some(member) => check(value, &member.kind, name, findings),
            None => findings.push(unknown(name, *span, table)),
        }
    }
    for member in table.members {
        if matches!(member.default, Default::Required) && node.get(member.name).is_none_or(Node::is_null) {
            findings.push(
                Diagnostic::error("P-MISSING", first_of(node), format!("{} needs `{}`", table.name, member.name))
                    .help(format!("add `{}: ...`: {}", member.name, lower_first(member.doc))),
            );
        }
    }
}

/// A mapping as a place: its first name, so that one line is marked and not all of it.
fn first_of(node: &Node) -> Span {
    node.as_map().and_then(|m| m.first()).map_or(node.span, |(_, span, _)| *span)
}

fn unknown(name: &str, span: Span, table: &Table) -> Diagnostic {
    let finding = Diagnostic::error("P-UNKNOWN", span, format!("{} has no member `{name}`", table.name));
    if let Some(near) = nearest(name, table.members.iter().map(|m| m.name)) {
        return finding.help(format!("perhaps `{near}`"));
    }
    // What stands one level off is the most common mistake after misspelling.
    let elsewhere = match (table.name, name) {
        (
            "a stage",
            "keep" | "window" | "order" | "output" | "emit" | "clock" | "lateness" | "late" | "audit" | "bounds"
            | "heartbeat" | "content",
        ) => Some(format!("a parameter of the guest stands in `with`: `with: {{ {name}: ... }}`")),
        ("a stage", "retention" | "max_entries" | "max_bytes" | "overflow" | "unbounded") => {
            Some(format!("it stands in `state`: `state: {{ {name}: ... }}`"))
        }
        ("a stage", "time" | "delay" | "idle") => {
            Some("event time is declared once, at the top level: `time: ...`".to_string())
        }
        ("a pipeline file", "input" | "from") => Some("where records come from is `source`".to_string()),
        ("a pipeline file", "output" | "to") => Some("where the output goes is `sink`".to_string()),
        ("a pipeline file", "transforms" | "steps" | "pipeline" | "processors") => {
            Some("the steps are `stages`".to_string())
        }
        ("a pipeline file", "dead_letter" | "tolerance") => {
            Some(format!("it stands in `errors`: `errors: {{ {name}: ... }}`"))
        }
        ("a pipeline file", "late" | "duplicates") => {
            Some(format!("it stands in `routes`: `routes: {{ {name}: ... }}`"))
        }
        _ => None,
    };
    let names: Vec<&str> = table.members.iter().map(|m| m.name).collect();
    finding.help(elsewhere.unwrap_or_else(|| format!("its members are: {}", names.join(", "))))
}

/// `P-VALUE`: something of another type stands there.
pub fn wrong_type(node: &Node, what: &str, wanted: &str) -> Diagnostic {
    Diagnostic::error("P-VALUE", node.span, format!("`{what}` is {}, wanted is {wanted}", node.describe()))
}

fn wrong_value(span: Span, what: &str, error: ValueError) -> Diagnostic {
    Diagnostic::error(error.code, span, format!("`{what}`: {}", error.message)).help(error.help)
}

fn check_text(node: &Node, what: &str, findings: &mut Vec<Diagnostic>) {
    match &*node.kind {
        NodeKind::Text { .. } => {}
        NodeKind::Number(_) | NodeKind::Bool(_) => {
            findings.push(wrong_type(node, what, "text").help("put it in quotes"))
        }
        _ => findings.push(wrong_type(node, what, "text")),
    }
}

fn check_name(node: &Node, kind: &Kind, what: &str, findings: &mut Vec<Diagnostic>) {
    let Some(text) = node.as_text() else { return check_text(node, what, findings) };
    let extra = if matches!(kind, Kind::Name) { "._-" } else { "-" };
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = text.starts_with(legal) && text.chars().all(|c| legal(c) || extra.contains(c)) && text.len() <= 100;
    if !fits {
        let signs = if matches!(kind, Kind::Name) { "`.`, `_` and `-`" } else { "and `-`" };
        findings.push(
            Diagnostic::error("P-VALUE", node.span, format!("`{text}` may not be a name here"))
                .help(format!("small letters, digits {signs}; a letter or digit first; at most 100")),
        );
    }
}

fn check_topic(node: &Node, what: &str, findings: &mut Vec<Diagnostic>) {
    let Some(text) = node.as_text() else { return check_text(node, what, findings) };
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.is_empty() || text.len() > 249 || !text.chars().all(legal) || text == "." || text == ".." {
        findings.push(
            Diagnostic::error("P-VALUE", node.span, format!("`{text}` cannot be the name of a topic"))
                .help("letters, digits, `.`, `_` and `-`; at most 249"),
        );
    }
}

fn check_integer(node: &Node, least: i64, what: &str, findings: &mut Vec<Diagnostic>) {
    match (node.as_integer(), node.as_number()) {
        (Some(n), _) if n >= least => {}
        (Some(n), _) => findings.push(Diagnostic::error(
            "P-VALUE",
            node.span,
            format!("`{what}` is {n}, at least {least} is wanted"),
        )),
        (None, Some(digits)) => {
            findings.push(Diagnostic::error(
                "P-VALUE",
                node.span,
                format!("`{what}` is {digits}, wanted is a whole number"),
            ));
        }
        (None, None) => findings.push(wrong_type(node, what, "a whole number")),
    }
}

fn with_unit<T>(
    node: &Node,
    what: &str,
    wanted: &str,
    no_unit: fn(&str) -> String,
    read: fn(&str) -> Result<T, ValueError>,
    findings: &mut Vec<Diagnostic>,
) -> Option<T> {
    let finding = match (node.as_text(), node.as_number()) {
        (Some(text), _) => match read(text) {
            Ok(value) => return Some(value),
            Err(error) => wrong_value(node.span, what, error),
        },
        (None, Some(digits)) => {
            Diagnostic::error("P-UNIT", node.span, format!("`{what}`: `{digits}` has no unit")).help(no_unit(digits))
        }
        (None, None) => wrong_type(node, what, wanted),
    };
    findings.push(finding);
    None
}

fn check_sign(node: &Node, value: i64, sign: Sign, what: &str, findings: &mut Vec<Diagnostic>) {
    let wanted = match sign {
        Sign::Positive if value <= 0 => "must be above zero",
        Sign::NotNegative if value < 0 => "may not be negative",
        _ => return,
    };
    findings.push(
        Diagnostic::error("P-VALUE", node.span, format!("`{what}` {wanted}")).help("leave it out for the default"),
    );
}

fn check_path(node: &Node, what: &str, findings: &mut Vec<Diagnostic>) {
    match node.as_text() {
        Some(text) => {
            if let Err(error) = Path::parse(text) {
                findings.push(Diagnostic::error("P-PATH", node.span, error.message).help(error.help));
            }
        }
        None => findings.push(wrong_type(node, what, "a path like `value.id`")),
    }
}

fn check_choice(node: &Node, words: &[&str], what: &str, findings: &mut Vec<Diagnostic>) {
    let Some(text) = node.as_text() else {
        findings.push(wrong_type(node, what, &format!("one of: {}", words.join(", "))));
        return;
    };
    if words.contains(&text) {
        return;
    }
    let finding = Diagnostic::error("P-VALUE", node.span, format!("`{text}` is no legal value of `{what}`"));
    findings.push(match nearest(text, words.iter().copied()) {
        Some(near) => finding.help(format!("perhaps `{near}`")),
        None => finding.help(format!("legal are: {}", words.join(", "))),
    });
}

fn check_either(node: &Node, kinds: &[Kind], what: &str, findings: &mut Vec<Diagnostic>) {
    let mut last = Vec::new();
    for kind in kinds {
        let mut tried = Vec::new();
        check(node, kind, what, &mut tried);
        if tried.is_empty() {
            return;
        }
        last = tried;
    }
    let words: Vec<String> = kinds
        .iter()
        .map(|kind| match kind {
            Kind::Choice(words) => words.join(", "),
            Kind::Instant => "an instant like `2026-01-01T00:30:00Z`".to_string(),
            _ => "another form".to_string(),
        })
        .collect();
    for finding in last {
        findings.push(Diagnostic { help: vec![format!("legal are: {}", words.join(", "))], ..finding });
    }
}

/// The one member of a mapping that may have exactly one: its name and what stands there (`None` for a bare name).
pub fn one_of<'a>(
    node: &'a Node,
    members: &'static [Member],
    bare: &[&str],
) -> Option<(&'static str, Option<&'a Node>)> {
    if let Some(text) = node.as_text() {
        let member = members.iter().find(|m| m.name == text && bare.contains(&text))?;
        return Some((member.name, None));
    }
    let [(name, _, value)] = node.as_map()? else { return None };
    let member = members.iter().find(|m| m.name == name)?;
    Some((member.name, Some(value)))
}

fn check_one_of(node: &Node, members: &'static [Member], bare: &[&str], what: &str, findings: &mut Vec<Diagnostic>) {
    let names: Vec<&str> = members.iter().map(|m| m.name).collect();
    if let Some((name, value)) = one_of(node, members, bare) {
        if let (Some(value), Some(member)) = (value, members.iter().find(|m| m.name == name)) {
            check(value, &member.kind, name, findings);
        }
        return;
    }
    let finding = match (node.as_map(), node.as_text()) {
        (Some([(name, span, _)]), _) => {
            let finding = Diagnostic::error("P-UNKNOWN", *span, format!("`{what}` has no form `{name}`"));
            match nearest(name, names.iter().copied()) {
                Some(near) => finding.help(format!("perhaps `{near}`")),
                None => finding.help(format!("legal are: {}", names.join(", "))),
            }
        }
        (Some(several), _) => {
            let span = several.get(1).map_or(node.span, |(_, span, _)| *span);
            Diagnostic::error("P-VALUE", span, format!("`{what}` is exactly one of: {}", names.join(", ")))
                .help("keep one of them")
        }
        (None, Some(text)) => {
            let finding = Diagnostic::error("P-VALUE", node.span, format!("`{text}` is no legal value of `{what}`"));
            match members.iter().find(|m| m.name == text) {
                Some(member) => finding.help(format!("say where: `{what}: {{ {}: ... }}`", member.name)),
                None => finding
                    .help(format!("for a file write `{what}: {{ file: {text} }}`; legal are: {}", names.join(", "))),
            }
        }
        (None, None) => wrong_type(node, what, &format!("a mapping with one of: {}", names.join(", "))),
    };
    findings.push(finding);
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| {
        c.to_lowercase().chain(chars).collect::<String>().trim_end_matches('.').to_string()
    })
}
