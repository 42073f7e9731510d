//! From what was written to what is meant. Total: what `check.rs` has reported counts as left out here.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::check::{check, wrong_type};
use super::diagnostic::Diagnostic;
use super::ends;
use super::kafka;
use super::keys;
use super::node::Node;
use super::path::Root;
use super::pipeline::{
    Bounds, Codecs, Encoders, Errors, Format, InvalidTime, Limits, OnError, Overflow, Pipeline, Retention,
    RetentionClock, Run, Scope, Sink, Source, Stage, State, Time, Tolerance, Uses,
};
use super::secrets::Secrets;
use super::section::Section;
use super::table::Kind;
use super::tables;

/// Checks a file and says what it means; all findings at once. There is a pipeline unless the file is no mapping at all.
pub fn build(root: &Node, file: Option<&Arc<std::path::Path>>) -> (Option<Pipeline>, Vec<Diagnostic>) {
    let mut findings = Vec::new();
    if root.as_map().is_none() {
        findings.push(wrong_type(root, "the file", "a mapping").help("begin with `version: 1`"));
        return (None, findings);
    }
    check(root, &Kind::Map(&tables::FILE), "the file", &mut findings);
    let top = Section::new(Some(root), &tables::FILE);
    if let Some(version) = top.node("version").filter(|n| n.as_integer().is_some_and(|v| v > 1)) {
        findings.push(
            Diagnostic::error("P-VALUE", version.span, "this format is newer than this program")
                .help("it knows `version: 1`; get a newer tamis"),
        );
    }
    let decode = Codecs { key: codec(top.section("decode"), "key"), value: codec(top.section("decode"), "value") };
    let encode = top.section("encode");
    let encode = Encoders {
        key: encode.node("key").map(|_| codec(encode, "key")),
        value: encode.node("value").map(|_| codec(encode, "value")),
    };
    let source = source(top, &decode, &mut findings);
    if matches!(source, Source::Kafka(_)) && top.node("sink").is_none() {
        findings.push(
            Diagnostic::error("P-MISSING", top.span("source"), "a Kafka source needs a `sink`")
                .help("add `sink: { kafka: { topic: ... } }`, or `sink: stdout`"),
        );
    }
    let dead_letter = sink(top.section("errors"), "dead_letter", Format::Envelope, &mut findings);
    let pipeline = Pipeline {
        name: top.text("name").unwrap_or_else(|| name_of(file.map(|f| &**f))),
        description: top.text("description"),
        labels: top.node("labels").map_or_else(|| json!({}), Node::to_json),
        source,
        decode,
        time: time(top.node("time"), &mut findings),
        stages: stages(&top.many("stages"), &mut findings),
        encode,
        sink: sink(top, "sink", Format::Json, &mut findings).unwrap_or(Sink::Stdout { format: Format::Json }),
        late: sink(top.section("routes"), "late", Format::Envelope, &mut findings),
        duplicates: sink(top.section("routes"), "duplicates", Format::Envelope, &mut findings),
        errors: errors(top.section("errors"), dead_letter),
        limits: limits(top.section("limits")),
        state: state(top.section("state")),
        run: run(top.section("run")),
        secrets: Secrets::default(),
        tests: tests(&top.many("tests"), &mut findings),
        file: file.cloned(),
        root: root.clone(),
        findings: Vec::new(),
    };
    for finding in &mut findings {
        finding.file = file.cloned();
    }
    (Some(pipeline), findings)
}

fn name_of(file: Option<&std::path::Path>) -> String {
    let stem = file.and_then(|f| f.file_stem()).map(|s| s.to_string_lossy().to_lowercase()).unwrap_or_default();
    let legal = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c) { c } else { '-' };
    let name: String = stem.chars().map(legal).take(100).collect();
    let name = name.trim_matches(['.', '_', '-']);
    if name.is_empty() { "pipeline".to_string() } else { name.to_string() }
}

fn codec(section: Section<'_>, name: &str) -> Uses {
    match section.node(name) {
        Some(node) => uses(node),
        None => {
            Uses { name: section.text(name).unwrap_or_default(), with: json!({}), node: None, span: section.span(name) }
        }
    }
}

/// A guest and its parameters, as a name or a mapping.
pub fn uses(node: &Node) -> Uses {
    let section = Section::new(Some(node), &tables::USES);
    let with = section.node("with");
    let name = section.node("uses");
    Uses {
        name: section.text("uses").unwrap_or_default(),
        with: with.map_or_else(|| json!({}), Node::to_json),
        node: with.cloned(),
        span: name.map_or(node.span, |n| n.span),
    }
}

fn format(section: Section<'_>, default: Format) -> Format {
    match section.text("format").as_deref() {
        Some("lines") => Format::Lines,
        Some("json") => Format::Json,
        Some("csv") => Format::Csv,
        Some("envelope") => Format::Envelope,
        _ => default,
    }
}

fn source(top: Section<'_>, decode: &Codecs, findings: &mut Vec<Diagnostic>) -> Source {
    let (form, node) = top.form("source").unwrap_or(("stdin", None));
    let section = Section::new(node, if form == "file" { &ends::FILE_SOURCE } else { &ends::STDIN });
    if let Some(written) =
        section.node("format").filter(|n| form != "kafka" && n.as_text() == Some("json") && decode.value.name != "json")
    {
        findings.push(
            Diagnostic::error(
                "P-VALUE",
                written.span,
                format!("`format: json` and `decode.value: {}` contradict each other", decode.value.name),
            )
            .help("write `format: lines`: one record a line, read by `decode.value`")
            .help("or leave `decode.value` out"),
        );
    }
    match (form, node) {
        ("kafka", Some(node)) => Source::Kafka(Box::new(kafka::source(node, findings))),
        ("file", Some(_)) => {
            let paths: Vec<String> =
                section.many("path").iter().filter_map(|n| n.as_text().map(str::to_string)).collect();
            if let (true, Some(empty)) = (paths.is_empty(), section.node("path")) {
                findings.push(Diagnostic::error("P-VALUE", empty.span, "no file is named").help("name at least one"));
            }
            Source::File {
                paths,
                format: format(section, Format::Json),
                follow: section.truth("follow"),
                topic: section.text("topic"),
            }
        }
        _ => Source::Stdin { format: format(section, Format::Json), topic: section.text("topic").unwrap_or_default() },
    }
}

fn sink(section: Section<'_>, name: &str, default: Format, findings: &mut Vec<Diagnostic>) -> Option<Sink> {
    let (form, node) = section.form(name)?;
    match (form, node) {
        ("kafka", Some(node)) => kafka::sink(node, findings).map(|sink| Sink::Kafka(Box::new(sink))),
        ("file", node) => {
            let section = Section::new(node, &ends::FILE_SINK);
            Some(Sink::File { path: PathBuf::from(section.text("path")?), format: format(section, default) })
        }
        (_, node) => Some(Sink::Stdout { format: format(Section::new(node, &ends::STDOUT), default) }),
    }
}

/// `time`, as written; the file's and a test's.
pub fn time(node: Option<&Node>, findings: &mut Vec<Diagnostic>) -> Time {
    let section = Section::new(node, &tables::TIME);
    let field = section.path("field").unwrap_or_else(|| super::path::Path::whole(Root::Timestamp));
    let min = section.instant("min").or((field.root == Root::Timestamp).then_some(0));
    if let (Root::Position | Root::Topic, Some(node)) = (&field.root, section.node("field")) {
        findings.push(
            Diagnostic::error("P-VALUE", node.span, format!("`{field}` is no time"))
                .help("name a member of the value, a header, or `timestamp`"),
        );
    }
    Time {
        field,
        unit: match section.text("unit").as_deref() {
            Some("s") => 1_000_000_000,
            Some("us") => 1_000,
            Some("ns") => 1,
            _ => 1_000_000,
        },
        min,
        max_future: section.duration("max_future"),
        invalid: match section.text("invalid").as_deref() {
            Some("fail") => InvalidTime::Fail,
            Some("timestamp") => InvalidTime::Timestamp,
            _ => InvalidTime::Dlq,
        },
        delay: section.duration_or_zero("delay"),
        idle: section.duration("idle"),
        max_drift: section.duration("max_drift"),
        manual: section.truth("manual"),
        node: node.cloned(),
    }
}

fn stages(nodes: &[&Node], findings: &mut Vec<Diagnostic>) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    for node in nodes.iter().filter(|n| n.as_map().is_some()) {
        let stage = stage(node, findings);
        if let Some(taken) = stages.iter().find(|s| stage.id_given && s.id_given && s.id == stage.id) {
            let span = node.get("id").map_or(node.span, |n| n.span);
            let line = taken.node.get("id").map_or(0, |n| n.span.line);
            findings.push(
                Diagnostic::error(
                    "P-VALUE",
                    span,
                    format!("the id `{}` is taken by the stage in line {line}", stage.id),
                )
                .help("give it another one"),
            );
        }
        stages.push(stage);
    }
    // Ids that were left out go round those that were given.
    for i in 0..stages.len() {
        if stages[i].id_given {
            continue;
        }
        let base = stages[i].id.clone();
        let taken = |id: &str| stages.iter().enumerate().any(|(j, s)| s.id == id && (s.id_given || j < i));
        let free = (1..).map(|n| if n == 1 { base.clone() } else { format!("{base}-{n}") }).find(|id| !taken(id));
        stages[i].id = free.unwrap_or(base);
    }
    stages
}

/// One stage; its id may still be that of another.
pub fn stage(node: &Node, findings: &mut Vec<Diagnostic>) -> Stage {
    let section = Section::new(Some(node), &tables::STAGE);
    let uses = uses(node);
    let id = section.text("id");
    Stage {
        id_given: id.is_some(),
        id: id.unwrap_or_else(|| id_of(&uses.name)),
        key: section.node("key").and_then(|n| keys::key(n, findings)),
        scope: match section.text("scope").as_deref() {
            Some("partition") => Scope::Partition,
            Some("stream") => Scope::Stream,
            _ => Scope::Global,
        },
        state: bounds(section.section("state"), section.node("state")),
        uses,
        node: node.clone(),
    }
}

/// `./my_key.wasm` is `my-key`, `name@1.2` is `name`.
fn id_of(uses: &str) -> String {
    let file = uses.rsplit('/').next().unwrap_or(uses);
    let stem = file.strip_suffix(".wasm").unwrap_or(file);
    let name = stem.split('@').next().unwrap_or(stem).to_lowercase();
    let id: String = name.chars().map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }).collect();
    let id = id.trim_matches('-');
    if id.is_empty() { "stage".to_string() } else { id.to_string() }
}

fn bounds(section: Section<'_>, node: Option<&Node>) -> Bounds {
    let retention = section.section("retention");
    Bounds {
        retention: retention.duration("for").map(|length| Retention {
            length,
            clock: match retention.text("clock").as_deref() {
                Some("event") => Some(RetentionClock::Event),
                Some("processing") => Some(RetentionClock::Processing),
                _ => None,
            },
            on_access: retention.text("refresh").as_deref() == Some("access"),
        }),
        max_entries: section.integer("max_entries").and_then(|n| u64::try_from(n).ok()),
        max_bytes: section.size("max_bytes"),
        overflow: match section.text("overflow").as_deref() {
            Some("fail") => Overflow::Fail,
            Some("evict-oldest") => Overflow::EvictOldest,
            _ => Overflow::Pause,
        },
        unbounded: section.truth("unbounded"),
        on_error: match section.text("on_error").as_deref() {
            Some("pass") => OnError::Pass,
            Some("dlq") => OnError::Dlq,
            Some("fail") => OnError::Fail,
            _ => OnError::Pause,
        },
        node: node.cloned(),
    }
}

fn errors(section: Section<'_>, dead_letter: Option<Sink>) -> Errors {
    let retry = section.section("retry");
    Errors {
        tolerance: match (section.text("tolerance").as_deref(), &dead_letter) {
            (Some("all"), _) | (None, Some(_)) => Tolerance::All,
            _ => Tolerance::None,
        },
        dead_letter,
        retry_for: retry.duration_or_zero("for"),
        retry_max_delay: retry.duration_or_zero("max_delay"),
        log: section.truth("log"),
        include_values: section.truth("include_values"),
    }
}

fn limits(section: Section<'_>) -> Limits {
    let batch = section.section("batch");
    let number = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
    Limits {
        call: section.duration_or_zero("call"),
        memory: section.size("memory").unwrap_or_default(),
        output: section.size("output").unwrap_or_default(),
        log: section.size("log").unwrap_or_default(),
        batch_rows: number(batch.integer("rows").and_then(|n| u64::try_from(n).ok())),
        batch_bytes: number(batch.size("bytes")),
        batch_wait: batch.duration_or_zero("wait"),
    }
}

fn state(section: Section<'_>) -> State {
    State {
        durable: section.text("store").as_deref() != Some("memory"),
        dir: section.text("dir").map(PathBuf::from),
        checkpoint: section.duration_or_zero("checkpoint"),
        quota: section.size("quota").unwrap_or_default(),
        create_changelog: section.section("changelog").truth("create"),
        changelog_replication: section
            .section("changelog")
            .integer("replication")
            .and_then(|n| i32::try_from(n).ok())
            .unwrap_or(1),
        accept_loss: section.truth("accept_loss"),
    }
}

fn run(section: Section<'_>) -> Run {
    Run {
        commit: section.duration_or_zero("commit"),
        instance: section.text("instance"),
        stop: section.duration_or_zero("stop"),
        http: section.text("http").filter(|a| a != "none"),
    }
}

fn tests(nodes: &[&Node], findings: &mut Vec<Diagnostic>) -> Vec<Node> {
    let mut names: std::collections::HashMap<&str, u32> = std::collections::HashMap::new();
    for node in nodes {
        let Some(name) = node.get("name") else { continue };
        let Some(text) = name.as_text() else { continue };
        if let Some(first) = names.get(text) {
            findings.push(
                Diagnostic::error("P-VALUE", name.span, format!("a test of this name stands in line {first}"))
                    .help("give each test a name of its own"),
            );
        }
        names.entry(text).or_insert(name.span.line);
    }
    nodes.iter().map(|n| (*n).clone()).collect()
}

/// The value as JSON with the text of a default in its place.
pub fn default_json(text: &str) -> Value {
    super::yaml::parse(text, None, &|_| None).map_or(Value::Null, |(node, _)| node.to_json())
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod build_tests;
