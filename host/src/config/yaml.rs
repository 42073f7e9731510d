//! Text to nodes: YAML 1.2 with the core schema, JSON as a part of it; aliases followed, variables put in, duplicate
//! keys refused. Everything that is wrong is reported, but what is no YAML at all ends the reading.

// An error ends the reading of the file, so its size costs nothing.
#![allow(clippy::result_large_err)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::diagnostic::Diagnostic;
use super::node::{Node, NodeKind, Span};
use super::variables::{self, Environment};

/// Greatest depth of nesting.
const DEPTH: usize = 160;
/// Greatest number of nodes, aliases counted as what they stand for.
const NODES: usize = 4_000_000;
/// Greatest length of a file, bytes.
const BYTES: usize = 64 << 20;

/// Reads one document. On success also the warnings (W-QUOTED); else all errors, with the warnings among them.
pub fn parse(
    text: &str,
    file: Option<&Arc<Path>>,
    environment: Environment<'_>,
) -> Result<(Node, Vec<Diagnostic>), Vec<Diagnostic>> {
    let mut reader = Reader {
        events: Parser::new_from_str(text),
        places: Places::new(text),
        text,
        environment,
        findings: Vec::new(),
        anchors: HashMap::new(),
        nodes: 0,
    };
    let root = if text.len() > BYTES {
        Err(Diagnostic::error("P-SYNTAX", Span::default(), format!("this file is larger than {} MiB", BYTES >> 20)))
    } else {
        reader.document()
    };
    let mut findings = reader.findings;
    let root = root.map_err(|fatal| findings.push(fatal));
    for finding in &mut findings {
        finding.file = file.cloned();
    }
    match root {
        Ok(root) if !findings.iter().any(Diagnostic::is_error) => Ok((root, findings)),
        _ => Err(findings),
    }
}

/// Byte offsets of characters: the parser counts characters.
struct Places {
    bytes: Option<Vec<u32>>,
    length: usize,
}

impl Places {
    fn new(text: &str) -> Places {
        let bytes = (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at as u32).collect());
        Places { bytes, length: text.len() }
    }

    fn byte(&self, index: usize) -> usize {
        match &self.bytes {
            Some(bytes) => bytes.get(index).map_or(self.length, |b| *b as usize),
            None => index.min(self.length),
        }
    }

    fn span(&self, start: Marker, end: Marker) -> Span {
        let from = self.byte(start.index());
        Span {
            line: start.line() as u32,
            column: start.col() as u32 + 1,
            start: from,
            end: self.byte(end.index()).max(from),
        }
    }
}

struct Reader<'a> {
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    places: Places,
    text: &'a str,
    environment: Environment<'a>,
    findings: Vec<Diagnostic>,
    /// Anchors by number: the node and how many nodes it is.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Diagnostic> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, self.places.span(span.start, span.end))),
            Some(Err(error)) => {
                let at = *error.marker();
                let mut span = self.places.span(at, at);
                span.end = self.text[span.start..].chars().next().map_or(span.start, |c| span.start + c.len_utf8());
                let finding = Diagnostic::error("P-SYNTAX", span, format!("this is not YAML: {}", error.info()));
                let mut finding = finding.help("look at brackets, quotes and indentation up to here");
                if self.text.lines().nth(span.line.saturating_sub(1) as usize).is_some_and(|l| l.contains("${")) {
                    finding = finding.help("between `{` and `}` a variable cannot stand without quotes: write the mapping over several lines");
                }
                Err(finding)
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> Result<Node, Diagnostic> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(Diagnostic::error("P-SYNTAX", span, "a second document begins here")
                        .help("one file holds one pipeline: put the second into a file of its own"));
                }
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
                event => root = Some(self.node(event, span, 0)?),
            }
        }
        Ok(root.unwrap_or_else(|| Node::new(Span { line: 1, column: 1, start: 0, end: 0 }, NodeKind::Null)))
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Diagnostic> {
        if depth > DEPTH {
            return Err(Diagnostic::error("P-SYNTAX", span, format!("nested deeper than {DEPTH}")));
        }
        let before = self.nodes;
        self.count(1, span)?;
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => (self.scalar(&text, style, tag.as_deref(), span), anchor),
            Event::SequenceStart(anchor, tag) => {
                self.container_tag(tag.as_deref(), "seq", span);
                (self.list(span, depth)?, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                self.container_tag(tag.as_deref(), "map", span);
                (self.map(span, depth)?, anchor)
            }
            Event::Alias(anchor) => {
                let (node, size) = match self.anchors.get(&anchor) {
                    Some((node, size)) => (Node { span, kind: node.kind.clone() }, *size),
                    None => return Err(Diagnostic::error("P-SYNTAX", span, "this alias stands inside what it names")),
                };
                self.count(size, span)?;
                (node, 0)
            }
            _ => return Err(Diagnostic::error("P-SYNTAX", span, "a value was expected here")),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - before));
        }
        Ok(node)
    }

    fn count(&mut self, nodes: usize, span: Span) -> Result<(), Diagnostic> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > NODES {
            return Err(Diagnostic::error(
                "P-SYNTAX",
                span,
                format!("more than {NODES} values, aliases counted as what they stand for"),
            ));
        }
        Ok(())
    }

    fn list(&mut self, mut span: Span, depth: usize) -> Result<Node, Diagnostic> {
        let mut items = Vec::new();
        loop {
            let (event, at) = self.next()?;
            if event == Event::SequenceEnd {
                span.end = self.end_of(span, at, items.last());
                return Ok(Node::new(span, NodeKind::List(items)));
            }
            items.push(self.node(event, at, depth + 1)?);
        }
    }

    fn map(&mut self, mut span: Span, depth: usize) -> Result<Node, Diagnostic> {
        let mut members: Vec<(String, Span, Node)> = Vec::new();
        // Long mappings are looked through by hash, short ones need none.
        let mut names: HashMap<String, Span> = HashMap::new();
        loop {
            let (event, at) = self.next()?;
            let name = match event {
                Event::MappingEnd => {
                    span.end = self.end_of(span, at, members.last().map(|(_, _, node)| node));
                    return Ok(Node::new(span, NodeKind::Map(members)));
                }
                Event::Scalar(text, _, _, _) => Some(text.into_owned()),
                other => {
                    self.findings.push(
                        Diagnostic::error("P-SYNTAX", at, "a name must be text, not a list or a mapping")
                            .help("quote it if it begins with one of `{ [ * &`"),
                    );
                    self.node(other, at, depth + 1)?;
                    None
                }
            };
            let (event, value_at) = self.next()?;
            let value = self.node(event, value_at, depth + 1)?;
            let Some(name) = name else { continue };
            if let Some(first) = names.get(&name) {
                let line = first.line;
                self.findings.push(
                    Diagnostic::error(
                        "P-UNKNOWN",
                        at,
                        format!("`{name}` stands here a second time; the first is in line {line}"),
                    )
                    .help("keep one of the two"),
                );
                continue;
            }
            if members.is_empty() && name == "<<" {
                self.findings.push(
                    Diagnostic::error("P-UNKNOWN", at, "`<<` is not a part of YAML 1.2: mappings are not merged")
                        .help("repeat the members, or use an alias for the whole mapping"),
                );
                continue;
            }
            names.insert(name.clone(), at);
            members.push((name, at, value));
        }
    }

    /// Where a container ends: at its closing bracket, else with its last part (a block ends where the next begins).
    fn end_of(&self, span: Span, end: Span, last: Option<&Node>) -> usize {
        let flow = self.text[span.start.min(self.text.len())..].starts_with(['{', '[']);
        match last {
            Some(last) if !flow => last.span.end.max(span.end),
            _ => end.end.max(span.end),
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Node {
        let plain = style == ScalarStyle::Plain;
        if !plain && variables::mentions(text) {
            self.findings.push(
                Diagnostic::warning("W-QUOTED", span, "in quotes `${...}` is not a variable, but these characters")
                    .help("take the quotes away; or write it as it is and ignore this"),
            );
        }
        let mut text = text.to_string();
        if plain && text.contains("${") {
            match variables::resolve(&text, self.environment) {
                Ok(resolved) => text = resolved,
                Err((message, help)) => {
                    self.findings.push(Diagnostic::error("P-VARIABLE", span, message).help(help));
                    return Node::new(span, NodeKind::Null);
                }
            }
        }
        let kind = match tag {
            None if plain => plain_kind(&text),
            None => NodeKind::Text { text, quoted: true },
            Some(tag) if tag.handle.is_empty() && tag.suffix == "!" => NodeKind::Text { text, quoted: true },
            Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => NodeKind::Text { text, quoted: true },
            Some(tag) if tag.is_yaml_core_schema() => {
                let kind = plain_kind(&text);
                let fits = matches!(
                    (tag.suffix.as_str(), &kind),
                    ("null", NodeKind::Null) | ("bool", NodeKind::Bool(_)) | ("int" | "float", NodeKind::Number(_))
                );
                if !fits {
                    self.findings.push(Diagnostic::error("P-SYNTAX", span, format!("`{text}` is no !!{}", tag.suffix)));
                }
                kind
            }
            Some(tag) => {
                self.findings.push(unknown_tag(tag, span));
                NodeKind::Null
            }
        };
        Node::new(span, kind)
    }

    fn container_tag(&mut self, tag: Option<&Tag>, wanted: &str, span: Span) {
        if let Some(tag) = tag.filter(|t| !(t.is_yaml_core_schema() && t.suffix == wanted)) {
            self.findings.push(unknown_tag(tag, span));
        }
    }
}

fn unknown_tag(tag: &Tag, span: Span) -> Diagnostic {
    Diagnostic::error("P-SYNTAX", span, format!("tag `{}{}` is not known", tag.handle, tag.suffix)).help("leave it out")
}

/// The core schema for plain scalars.
fn plain_kind(text: &str) -> NodeKind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return NodeKind::Null,
        "true" | "True" | "TRUE" => return NodeKind::Bool(true),
        "false" | "False" | "FALSE" => return NodeKind::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return NodeKind::Number(".inf".to_string()),
        "-.inf" | "-.Inf" | "-.INF" => return NodeKind::Number("-.inf".to_string()),
        ".nan" | ".NaN" | ".NAN" => return NodeKind::Number(".nan".to_string()),
        _ => {}
    }
    match number(text) {
        Some(number) => NodeKind::Number(number),
        None => NodeKind::Text { text: text.to_string(), quoted: false },
    }
}

/// A number in JSON syntax, its digits kept: `+5` is `5`, `.5` is `0.5`, `5.` is `5.0`, `0x1F` is `31`.
fn number(text: &str) -> Option<String> {
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit())) {
            return u128::from_str_radix(digits, radix).ok().map(|n| n.to_string());
        }
    }
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !fraction.is_none_or(digits) || (whole.is_empty() && fraction.is_none_or(str::is_empty)) {
        return None;
    }
    if let Some(exponent) = exponent {
        let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if unsigned.is_empty() || !digits(unsigned) {
            return None;
        }
    }
    let trimmed = whole.trim_start_matches('0');
    let mut out = format!("{sign}{}", if trimmed.is_empty() { "0" } else { trimmed });
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(if fraction.is_empty() { "0" } else { fraction });
    }
    if let Some(exponent) = exponent {
        out.push('e');
        out.push_str(exponent);
    }
    Some(out)
}

#[cfg(test)]
#[path = "yaml_tests.rs"]
mod tests;
