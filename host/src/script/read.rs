//! From the nodes of a file to tests (14.1, 14.3).

use super::moment::{instant, moment};
use super::record::{record, row, series, table_record, with_index};
use super::{Expected, Replace, Said, Step, Test};
use crate::config::diagnostic::Diagnostic;
use crate::config::nearest;
use crate::config::node::{Node, NodeKind, Span};

/// Members of a test.
const TEST: [&str; 22] = [
    "name",
    "why",
    "with",
    "key",
    "scope",
    "state",
    "time",
    "stage",
    "from",
    "to",
    "match",
    "partitions",
    "bounded",
    "delivery",
    "input",
    "output",
    "table",
    "counters",
    "refused",
    "warns",
    "stops",
    "needs",
];
/// Steps that are one word.
const WORDS: [&str; 5] = ["end", "commit", "restart", "crash", "batch"];
/// Steps that are a mapping with one member.
const STEPS: [&str; 13] = [
    "clock",
    "watermark",
    "end",
    "idle",
    "block",
    "unblock",
    "restart",
    "redeliver",
    "reload",
    "forget",
    "sink",
    "state",
    "series",
];

/// Reads one test; all that is wrong with it at once.
pub fn test(node: &Node) -> Result<Test, Vec<Diagnostic>> {
    let mut test = Test {
        name: String::new(),
        span: node.span,
        replace: Replace::default(),
        stage: None,
        from: None,
        to: None,
        contains: false,
        partitions: None,
        bounded: None,
        exactly_once: true,
        input: Vec::new(),
        has_input: false,
        output: Vec::new(),
        table: None,
        counters: Vec::new(),
        refused: None,
        warns: Vec::new(),
        stops: None,
        needs: Vec::new(),
    };
    let mut wrong = Vec::new();
    for (name, span, node) in members(node, "a test").map_err(|e| vec![e])? {
        if let Err(finding) = member(&mut test, name, *span, node, &mut wrong) {
            wrong.push(finding);
        }
    }
    if test.name.is_empty() {
        wrong.push(Diagnostic::error("P-MISSING", node.span, "a test needs a `name`").help("name: a sentence"));
    }
    if wrong.is_empty() { Ok(test) } else { Err(wrong) }
}

fn member(test: &mut Test, name: &str, span: Span, node: &Node, wrong: &mut Vec<Diagnostic>) -> Result<(), Diagnostic> {
    match name {
        "name" => test.name = text_of(node)?,
        "why" => drop(text_of(node)?),
        "with" | "key" | "scope" | "state" | "time" => replace(&mut test.replace, name, node),
        "stage" => test.stage = Some((text_of(node)?, node.span)),
        "from" => test.from = Some((text_of(node)?, node.span)),
        "to" => test.to = Some((text_of(node)?, node.span)),
        "match" => test.contains = one_of(node, &["exact", "contains"])? == "contains",
        "partitions" => test.partitions = Some(integer(node, 1)?),
        "bounded" => match &*node.kind {
            NodeKind::Bool(bounded) => test.bounded = Some(*bounded),
            _ => return Err(Diagnostic::error("P-VALUE", node.span, "`bounded` is true or false")),
        },
        "delivery" => test.exactly_once = one_of(node, &["exactly-once", "at-least-once"])? == "exactly-once",
        "input" => {
            test.has_input = true;
            collect(list(node)?, wrong, |node| Ok(Said { step: step(node)?, span: node.span }), &mut test.input);
        }
        "output" => collect(list(node)?, wrong, expected, &mut test.output),
        "table" => {
            let mut rows = Vec::new();
            collect(list(node)?, wrong, table_record, &mut rows);
            test.table = Some(rows);
        }
        "counters" => {
            for (name, _, node) in members(node, "`counters`")? {
                test.counters.push((name.clone(), integer(node, 0)?));
            }
        }
        "refused" => test.refused = Some(text_of(node)?),
        "warns" => test.warns = texts(node)?,
        "stops" => test.stops = Some(text_of(node)?),
        "needs" => test.needs = texts(node)?,
        _ => return Err(known(name, span, &TEST, "in a test")),
    }
    Ok(())
}

fn replace(replace: &mut Replace, name: &str, node: &Node) {
    let place = match name {
        "with" => &mut replace.with,
        "key" => &mut replace.key,
        "scope" => &mut replace.scope,
        "state" => &mut replace.state,
        _ => &mut replace.time,
    };
    *place = Some(node.clone());
}

/// Reads each element, keeping what is right of it.
fn collect<T>(
    nodes: &[Node],
    wrong: &mut Vec<Diagnostic>,
    read: impl Fn(&Node) -> Result<T, Diagnostic>,
    into: &mut Vec<T>,
) {
    for node in nodes {
        match read(node) {
            Ok(item) => into.push(item),
            Err(finding) => wrong.push(finding),
        }
    }
}

/// A step: a word, a mapping with one member that is a step, or a record.
fn step(node: &Node) -> Result<Step, Diagnostic> {
    let members = match &*node.kind {
        NodeKind::Text { text, .. } => return word(text, node.span),
        NodeKind::Map(members) => members,
        _ => {
            return Err(Diagnostic::error(
                "P-VALUE",
                node.span,
                "a step is a word, a record, or a mapping with one member",
            ));
        }
    };
    let [(name, _, inner)] = members.as_slice() else {
        return Ok(Step::Record(Box::new(record(node)?)));
    };
    Ok(match name.as_str() {
        "clock" => Step::Clock(moment(inner)?),
        "watermark" => Step::Watermark(instant(inner)?),
        "end" => Step::End(Some(integer(inner, 0)?)),
        "idle" => Step::Idle(integer(inner, 0)?),
        "block" => Step::Block(integer(inner, 0)?),
        "unblock" => Step::Unblock(integer(inner, 0)?),
        "restart" => Step::Restart(Box::new(settings(inner, "`restart`")?)),
        "redeliver" => Step::Redeliver(integer(inner, 1)?),
        "reload" => Step::Reload(Box::new(settings(inner, "`reload`")?)),
        "forget" => match &*inner.kind {
            NodeKind::Text { text, .. } if text == "all" => Step::Forget(None),
            NodeKind::Map(_) => Step::Forget(Some(Box::new(record(inner)?))),
            _ => {
                let finding =
                    Diagnostic::error("P-VALUE", inner.span, "`forget` takes `all`, or a record with the key");
                return Err(finding.help("forget: all").help("forget: { id: 1 }"));
            }
        },
        "sink" => Step::Sink(one_of(inner, &["ok", "fail"])? == "ok"),
        "state" => Step::State(one_of(inner, &["ok", "fail"])? == "ok"),
        "series" => {
            let series = series(inner)?;
            record(&with_index(&series.record, series.from))?;
            Step::Series(series)
        }
        _ => Step::Record(Box::new(record(node)?)),
    })
}

fn word(text: &str, span: Span) -> Result<Step, Diagnostic> {
    Ok(match text {
        "end" => Step::End(None),
        "commit" => Step::Commit,
        "restart" => Step::Restart(Box::default()),
        "crash" => Step::Crash,
        "batch" => Step::Batch,
        _ => {
            let steps: Vec<&str> = WORDS.iter().chain(&STEPS).copied().collect();
            return Err(known(text, span, &steps, "as a step"));
        }
    })
}

/// The settings of a `restart` or a `reload`.
fn settings(node: &Node, step: &str) -> Result<Replace, Diagnostic> {
    let mut settings = Replace::default();
    for (name, span, node) in members(node, step)? {
        match name.as_str() {
            "with" | "key" | "scope" | "state" | "time" => replace(&mut settings, name, node),
            _ => return Err(known(name, *span, &["with", "key", "scope", "state", "time"], &format!("in {step}"))),
        }
    }
    Ok(settings)
}

fn expected(node: &Node) -> Result<Expected, Diagnostic> {
    if let [(name, _, inner)] = members(node, "a row")?
        && name == "series"
    {
        let series = series(inner)?;
        row(&with_index(&series.record, series.from))?;
        return Ok(Expected::Series(series));
    }
    Ok(Expected::Row(Box::new(row(node)?)))
}

/// The members of a mapping, or P-VALUE.
pub fn members<'n>(node: &'n Node, what: &str) -> Result<&'n [(String, Span, Node)], Diagnostic> {
    match &*node.kind {
        NodeKind::Map(members) => Ok(members),
        _ => Err(Diagnostic::error("P-VALUE", node.span, format!("{what} is a mapping"))),
    }
}

fn list(node: &Node) -> Result<&[Node], Diagnostic> {
    match &*node.kind {
        NodeKind::List(items) => Ok(items),
        NodeKind::Null => Ok(&[]),
        _ => Err(Diagnostic::error("P-VALUE", node.span, "this is a list")),
    }
}

/// The text of a scalar, numbers and booleans as they are written.
pub fn text_of(node: &Node) -> Result<String, Diagnostic> {
    match &*node.kind {
        NodeKind::Text { text, .. } | NodeKind::Number(text) => Ok(text.clone()),
        NodeKind::Bool(b) => Ok(b.to_string()),
        _ => Err(Diagnostic::error("P-VALUE", node.span, "this is text")),
    }
}

/// One text, or a list of them.
fn texts(node: &Node) -> Result<Vec<String>, Diagnostic> {
    match &*node.kind {
        NodeKind::List(items) => items.iter().map(text_of).collect(),
        _ => Ok(vec![text_of(node)?]),
    }
}

/// An integer of at least `least`.
pub fn integer<T: TryFrom<i64>>(node: &Node, least: i64) -> Result<T, Diagnostic> {
    let number = match &*node.kind {
        NodeKind::Number(text) => text.parse::<i64>().ok().filter(|&n| n >= least).and_then(|n| T::try_from(n).ok()),
        _ => None,
    };
    number.ok_or_else(|| {
        let least = if least == i64::MIN { String::new() } else { format!(" of at least {least}") };
        Diagnostic::error("P-VALUE", node.span, format!("this is an integer{least}"))
    })
}

fn one_of<'w>(node: &Node, words: &[&'w str]) -> Result<&'w str, Diagnostic> {
    let text = text_of(node)?;
    words
        .iter()
        .find(|word| **word == text)
        .copied()
        .ok_or_else(|| Diagnostic::error("P-VALUE", node.span, format!("`{text}` is none of {}", words.join(", "))))
}

/// P-UNKNOWN for a name that may not stand here, with the nearest that may.
pub fn known(name: &str, span: Span, legal: &[&str], place: &str) -> Diagnostic {
    let finding = Diagnostic::error("P-UNKNOWN", span, format!("`{name}` is not known {place}"));
    match nearest(name, legal.iter().copied()) {
        Some(nearest) => finding.help(format!("did you mean `{nearest}`?")),
        None => finding.help(format!("one of {}", legal.join(", "))),
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
