//! What the host decides before the first record: what follows from key, scope, state, time, source, sink and the traits
//! of the stages (contract section 7; pipeline-file 8.4, 8.5). What a guest's own parameters forbid, the guest says.

use serde_json::Value;

use super::answer::Places;
use super::project::time_is_timestamp;
use super::{Clock, Conditions, OutputKind, Plan, Planned};
use crate::config::diagnostic::Diagnostic;
use crate::config::node::{Node, Span};
use crate::config::path::{Path, Root};
use crate::config::pipeline::{Format, KeyForm, NullKey, Pipeline, RetentionClock, Scope, Sink, Source, Stage};

/// Judges everything.
pub fn judge(plan: &Plan, conditions: &Conditions, findings: &mut Vec<Diagnostic>) {
    for (planned, stage) in pairs(plan) {
        judge_stage(planned, stage, conditions, findings);
        super::parts::computed(plan, planned, stage, findings);
    }
    chain(plan, findings);
    exchange(plan, conditions, findings);
    clocks(plan, conditions, findings);
    if conditions.ends {
        ends(plan, findings);
        own_input(&plan.pipeline, findings);
    }
}

/// A topic that a pipeline reads and writes would give it what it wrote, again and again.
fn own_input(pipeline: &Pipeline, findings: &mut Vec<Diagnostic>) {
    let Source::Kafka(source) = &pipeline.source else { return };
    let routes = [pipeline.late.as_ref(), pipeline.duplicates.as_ref(), pipeline.errors.dead_letter.as_ref()];
    for sink in std::iter::once(&pipeline.sink).chain(routes.into_iter().flatten()) {
        let Sink::Kafka(sink) = sink else { continue };
        let same_cluster = sink.brokers.is_none() || sink.brokers == source.brokers;
        if same_cluster && source.topics.contains(&sink.topic) {
            let span = sink.node.get("topic").map_or(sink.node.span, |topic| topic.span);
            let text = format!("`{}` is what the pipeline reads: it would read what it writes", sink.topic);
            findings.push(Diagnostic::error("P-VALUE", span, text).help("another topic"));
        }
    }
}

fn pairs(plan: &Plan) -> impl Iterator<Item = (&Planned, &Stage)> {
    plan.stages.iter().filter_map(|planned| Some((planned, plan.pipeline.stages.iter().find(|s| s.id == planned.id)?)))
}

/// A stage by itself.
pub fn judge_stage(planned: &Planned, stage: &Stage, conditions: &Conditions, findings: &mut Vec<Diagnostic>) {
    let Some(key) = &planned.key else { return };
    let at = |pointer: &str| stage.node.pointer(pointer);
    let uses = Places { stage: &stage.node, time: None }.stage_span();
    let empty = matches!(&key.key.form, KeyForm::Fields(parts) if parts.is_empty());
    if empty != (stage.scope == Scope::Stream) {
        let (span, help) = if empty {
            (at("/key"), ["name a key", "`scope: stream`"])
        } else {
            (at("/scope"), ["`key: []`", "another scope"])
        };
        let text = if empty {
            "without a key one record of the whole stream would remain"
        } else {
            "`scope: stream` keeps one record of the whole stream, so there is no key to tell records apart"
        };
        findings.push(Diagnostic::error("D-EMPTY-KEY", span, text).help(help[0]).help(help[1]));
    }
    if key.key.null_key == Some(NullKey::Pass) && planned.traits.output == OutputKind::Upsert {
        findings.push(
            Diagnostic::error("D-NULL-PASS", at("/key/null_key"), "an upsert without key cannot be written")
                .help("`null_key: dlq`")
                .help("`null_key: drop`")
                .help("`null_key: group`"),
        );
    }
    if planned.traits.output == OutputKind::Upsert {
        same_names(stage, &key.key.form, findings);
    }
    dependent_parts(stage, &key.key.form, findings);
    state(planned, stage, conditions, uses, findings);
    changed(planned, stage, conditions, uses, findings);
    if !stage.id_given {
        findings.push(
            Diagnostic::warning(
                "W-ID",
                uses,
                format!("state belongs to the id of its stage, and this one has only the default, `{}`", stage.id),
            )
            .help(format!("add `id: {}`: then stages can be added and moved without losing state", stage.id)),
        );
    }
}

fn state(planned: &Planned, stage: &Stage, conditions: &Conditions, uses: Span, findings: &mut Vec<Diagnostic>) {
    let bounds = &stage.state;
    let span = if stage.node.get("state").is_some() { stage.node.pointer("/state") } else { uses };
    let retention_span = || stage.node.pointer("/state/retention");
    let windowed = planned.traits.bounded_state;
    if let Some(retention) = bounds.retention {
        if retention.length < 0 {
            findings.push(
                Diagnostic::error(
                    "D-RETENTION",
                    retention_span(),
                    "a negative retention would forget what is yet to come",
                )
                .help("a positive duration")
                .help("`0s` for never"),
            );
        } else if windowed {
            findings.push(
                Diagnostic::error("D-RETENTION", retention_span(), "windows and horizons purge themselves")
                    .help("leave retention out"),
            );
        }
    }
    if windowed || stage.scope == Scope::Stream {
        return;
    }
    let bounded =
        bounds.retention.is_some_and(|r| r.length > 0) || bounds.max_entries.is_some() || bounds.max_bytes.is_some();
    if !bounded && !conditions.bounded && !bounds.unbounded {
        findings.push(
            Diagnostic::error(
                "D-UNBOUNDED",
                span,
                "the input has no end, and nothing bounds the state: it would grow for ever",
            )
            .help("forget a key after a time: `state: { retention: 7d }`")
            .help("a window or horizon: `with: { window: { horizon: 1h } }`")
            .help("a bound: `state: { max_entries: 1000000 }`")
            .help("or accept it: `state: { unbounded: true }`"),
        );
    }
    let never = bounds.retention.is_some_and(|r| r.length == 0);
    if !bounded && (bounds.unbounded || never) {
        findings.push(
            Diagnostic::warning("W-UNBOUNDED", span, "state without a bound is accepted: it grows with every new key")
                .help("`state: { retention: 7d }`"),
        );
    }
}

/// Two parts of one name cannot both be members of an upsert key.
fn same_names(stage: &Stage, form: &KeyForm, findings: &mut Vec<Diagnostic>) {
    let KeyForm::Fields(parts) = form else { return };
    for (i, part) in parts.iter().enumerate() {
        if let Some(first) = parts[..i].iter().find(|p| p.name == part.name && p.path != part.path) {
            findings.push(
                Diagnostic::error(
                    "P-VALUE",
                    part_span(stage, i),
                    format!(
                        "`{}` and `{}` are both called `{}` in the key of upsert output",
                        first.path, part.path, part.name
                    ),
                )
                .help(format!("name one of them: `{{ field: {}, name: ... }}`", part.path)),
            );
        }
    }
}

fn dependent_parts(stage: &Stage, form: &KeyForm, findings: &mut Vec<Diagnostic>) {
    let KeyForm::Fields(parts) = form else { return };
    for (i, part) in parts.iter().enumerate() {
        let whole = |other: &Path| part.path.is_within(other) && (part.path != *other);
        let twice = parts[..i].iter().any(|p| p.path == part.path);
        let Some(other) = parts.iter().find(|p| whole(&p.path)).or_else(|| parts[..i].iter().find(|_| twice)) else {
            continue;
        };
        findings.push(
            Diagnostic::warning(
                "W-DEPENDENT-KEY",
                part_span(stage, i),
                format!("`{}` is decided by `{}`: it tells no more records apart", part.path, other.path),
            )
            .help("leave it out"),
        );
    }
}

pub(super) fn part_span(stage: &Stage, part: usize) -> Span {
    let key = stage.node.get("key");
    let fields = key.and_then(|k| k.get("fields")).or(key);
    fields
        .and_then(Node::as_list)
        .and_then(|parts| parts.get(part))
        .map_or_else(|| stage.node.pointer("/key"), |n| n.span)
}

/// State that was kept by another key is refused (R8). Order and window the guest compares; what it overlooks is found here.
fn changed(planned: &Planned, stage: &Stage, conditions: &Conditions, uses: Span, findings: &mut Vec<Diagnostic>) {
    let Some(stored) = conditions.stored.get(&stage.id) else { return };
    let ways = |finding: Diagnostic| {
        finding
            .help("a new stage `id`: state begins anew")
            .help("the old setting")
            .help("`tamis forget --all`, or on Kafka `tamis reset --forget`: throw the kept state away")
    };
    if stored.get("uses") != planned.identity.get("uses") {
        let old = stored.get("uses").and_then(Value::as_str).unwrap_or_default();
        findings.push(ways(Diagnostic::error(
            "D-KEY-CHANGED",
            uses,
            format!("the state kept under this id is that of `{old}`"),
        )));
        return;
    }
    if stored.get("key") != planned.identity.get("key") {
        let text =
            "the state kept under this id was made with another key: entries would be compared that do not compare";
        findings.push(ways(Diagnostic::error("D-KEY-CHANGED", stage.node.pointer("/key"), text)));
    }
    let none = serde_json::Map::new();
    let members =
        |identity: &Value| identity.get("guest").and_then(Value::as_object).cloned().unwrap_or_else(|| none.clone());
    let (old, new) = (members(stored), members(&planned.identity));
    for name in old.keys().chain(new.keys().filter(|n| !old.contains_key(*n))) {
        let code = if name == "window" { "D-WINDOW-CHANGED" } else { "D-ORDER-CHANGED" };
        if old.get(name) != new.get(name) && !findings.iter().any(|f| f.code == code) {
            let text = format!(
                "the state kept under this id was made with another `{name}`: entries would be compared that do not compare"
            );
            findings.push(ways(Diagnostic::error(code, stage.node.pointer(&format!("/with/{name}")), text)));
        }
    }
}

/// Only stages that keep rows as they are may stand behind one that updates.
fn chain(plan: &Plan, findings: &mut Vec<Diagnostic>) {
    let mut updating: Option<&Planned> = None;
    for (planned, stage) in pairs(plan) {
        if let (Some(before), false) = (updating, planned.traits.row_preserving) {
            let kind = if before.traits.output == OutputKind::Upsert { "upsert" } else { "retract" };
            findings.push(
                Diagnostic::error(
                    "P-CHAIN",
                    Places { stage: &stage.node, time: None }.stage_span(),
                    format!(
                        "`{}` may change or drop rows, and stands behind `{}`, whose output is `{kind}`",
                        planned.id, before.id
                    ),
                )
                .help(format!("put it in front of `{}`", before.id))
                .help(format!("or let `{}` append: `output: append`", before.id)),
            );
        }
        if planned.traits.output != OutputKind::Append {
            updating = Some(planned);
        }
    }
}

/// Stages that see one partition and stages that see all cannot share a task.
fn exchange(plan: &Plan, conditions: &Conditions, findings: &mut Vec<Diagnostic>) {
    if conditions.partitions == Some(1) {
        return;
    }
    let keyed = || pairs(plan).filter(|(planned, _)| planned.key.is_some());
    if let Source::Kafka(source) = &plan.pipeline.source {
        super::exchange::on_kafka(source, keyed(), conditions, findings);
    }
    let narrow = keyed().find(|(planned, _)| planned.scope == Scope::Partition);
    let wide = keyed().find(|(planned, _)| planned.scope != Scope::Partition);
    if let (Some((narrow, stage)), Some((wide, _))) = (narrow, wide) {
        findings.push(
            Diagnostic::error(
                "P-EXCHANGE",
                stage.node.pointer("/scope"),
                format!("`{}` sees one partition and `{}` all of them: between them records would be exchanged, which is not built yet", narrow.id, wide.id),
            )
            .help("give both the same `scope`")
            .help("or make two pipelines of it"),
        );
    }
    for (planned, stage) in keyed().filter(|(planned, _)| planned.scope == Scope::Partition) {
        if !planned.key.as_ref().is_some_and(|k| super::exchange::decides_partition(&k.key)) {
            findings.push(
                Diagnostic::warning(
                    "W-SCOPE",
                    stage.node.pointer("/scope"),
                    "copies in different partitions do not meet: the key does not decide the partition",
                )
                .help("`scope: global`")
                .help("a key with `key`, `partition` or `position` in it"),
            );
        }
    }
}

/// What follows from `time`.
fn clocks(plan: &Plan, conditions: &Conditions, findings: &mut Vec<Diagnostic>) {
    let time = &plan.pipeline.time;
    for (planned, stage) in pairs(plan) {
        let timed = planned.traits.wants_time;
        if timed
            && planned.traits.clock == Clock::Ingestion
            && time.delay > 0
            && !findings.iter().any(|f| f.code == "D-DELAY")
        {
            let span = time.node.as_ref().map_or(stage.node.span, |n| n.pointer("/delay"));
            findings.push(
                Diagnostic::error("D-DELAY", span, "append time does not run backwards: nothing would ever come late")
                    .help("`delay: 0s`"),
            );
        }
        let waits = planned.traits.waits && planned.traits.clock == Clock::Event;
        if waits && conditions.partitions != Some(1) && time.idle.is_none() && !time.manual {
            let span = time.node.as_ref().map_or(Places { stage: &stage.node, time: None }.stage_span(), |n| n.span);
            if !findings.iter().any(|f| f.code == "W-IDLE") {
                findings.push(
                    Diagnostic::warning(
                        "W-IDLE",
                        span,
                        format!("a partition that falls silent holds the watermark, and `{}` waits for it", planned.id),
                    )
                    .help("`time: { idle: 1m }`: after a minute without records it no longer counts"),
                );
            }
        }
    }
}

/// What is defined for sources and sinks, and not built yet: each once.
pub fn later(pipeline: &Pipeline, findings: &mut Vec<Diagnostic>) {
    let root = &pipeline.root;
    let mut said: Vec<&str> = Vec::new();
    let mut say = |feature: &'static str, pointer: &str, help: &str| {
        if !said.contains(&feature) {
            said.push(feature);
            findings.push(
                Diagnostic::error("P-LATER", root.pointer(pointer), format!("{feature} is defined, but not built yet"))
                    .help(help),
            );
        }
    };
    const FILES: &str =
        "files and standard streams work: `source: { file: input.jsonl }`, `sink: { file: output.jsonl }`";
    const CSV: &str = "use `json`, `lines` or `envelope`";
    let is_csv = |format: &Format| *format == Format::Csv;
    let kafka = matches!(pipeline.source, Source::Kafka(_));
    if kafka != matches!(pipeline.sink, Sink::Kafka(_)) {
        let pointer = if kafka { "/source/kafka" } else { "/sink/kafka" };
        say("Kafka at one end and something else at the other", pointer, "name Kafka topics at both ends, or files");
    }
    match &pipeline.source {
        Source::File { format, .. } if is_csv(format) => say("the format `csv`", "/source/file/format", CSV),
        Source::Stdin { format, .. } if is_csv(format) => say("the format `csv`", "/source/stdin/format", CSV),
        Source::File { .. } | Source::Stdin { .. } | Source::Kafka(_) => {}
    }
    let sinks = [
        (Some(&pipeline.sink), "/sink"),
        (pipeline.late.as_ref(), "/routes/late"),
        (pipeline.duplicates.as_ref(), "/routes/duplicates"),
        (pipeline.errors.dead_letter.as_ref(), "/errors/dead_letter"),
    ];
    for (sink, pointer) in sinks {
        match sink {
            Some(Sink::Kafka(_)) if !kafka && pointer != "/sink" => {
                say("a topic as route of a pipeline on files", pointer, FILES);
            }
            Some(Sink::File { .. } | Sink::Stdout { .. }) if kafka && pointer != "/sink" => {
                say("a file as route of a pipeline on Kafka", pointer, "name a topic: `{ kafka: TOPIC }`");
            }
            Some(Sink::File { format, .. } | Sink::Stdout { format }) if is_csv(format) => {
                say("the format `csv`", pointer, CSV)
            }
            _ => {}
        }
    }
}

/// What follows from source, sink and routes.
fn ends(plan: &Plan, findings: &mut Vec<Diagnostic>) {
    let pipeline = &plan.pipeline;
    let stamped = match &pipeline.source {
        Source::File { format, .. } | Source::Stdin { format, .. } => *format == Format::Envelope,
        Source::Kafka(_) => true,
    };
    let replayed = !matches!(pipeline.source, Source::Stdin { .. });
    let dead_letter = pipeline.errors.dead_letter.is_some();
    for (planned, stage) in pairs(plan) {
        let uses = Places { stage: &stage.node, time: None }.stage_span();
        let traits = &planned.traits;
        if !stamped
            && planned.wants_event_time
            && time_is_timestamp(pipeline)
            && !findings.iter().any(|f| f.code == "P-TIMESTAMP")
        {
            let span = pipeline.time.node.as_ref().map_or(uses, |n| n.span);
            findings.push(
                Diagnostic::error(
                    "P-TIMESTAMP",
                    span,
                    format!("`{}` needs event time, and records of this source have no timestamp", planned.id),
                )
                .help("say where it is: `time: value.FIELD`")
                .help("or read envelopes, which carry one: `format: envelope`"),
            );
        }
        if !stamped && traits.wants_time && traits.clock == Clock::Ingestion {
            findings.push(
                Diagnostic::error(
                    "P-TIMESTAMP",
                    uses,
                    format!("`{}` lives by ingestion time, and records of this source have no timestamp", planned.id),
                )
                .help("`clock: event` with `time: value.FIELD`")
                .help("or read envelopes, which carry one: `format: envelope`"),
            );
        }
        let ages = stage.state.retention.is_some_and(|r| {
            r.length > 0
                && (r.clock == Some(RetentionClock::Processing)
                    || (r.clock.is_none() && traits.clock == Clock::Processing))
        });
        if replayed && ((traits.bounded_state && traits.clock == Clock::Processing) || ages) {
            findings.push(
                Diagnostic::warning(
                    "W-WALL-CLOCK",
                    uses,
                    format!("`{}` goes by the wall clock: the same input read again gives other output", planned.id),
                )
                .help("`clock: event`"),
            );
        }
        // A stage that drops late records or lets them pass needs no route for them.
        let routed = !matches!(planned.params.get("late").and_then(Value::as_str), Some("drop" | "pass"));
        let may_be_late = (traits.waits || traits.bounded_state) && traits.clock != Clock::Processing && routed;
        if may_be_late && pipeline.late.is_none() && !dead_letter && !findings.iter().any(|f| f.code == "W-LATE") {
            findings.push(
                Diagnostic::warning(
                    "W-LATE",
                    uses,
                    "late records are only counted: there is neither a route for them nor a dead letter",
                )
                .help("`routes: { late: { file: late.jsonl } }`"),
            );
        }
        let Some(key) = &planned.key else { continue };
        if key.null_key == NullKey::Dlq && !dead_letter && may_be_null(&key.key.form) {
            findings.push(
                Diagnostic::warning(
                    "W-NULL",
                    stage.node.pointer("/key"),
                    "a record without key will stop the pipeline: there is no dead letter",
                )
                .help("`errors: { dead_letter: { file: dead.jsonl } }`")
                .help("`null_key: drop`: they are counted"),
            );
        }
    }
}

fn may_be_null(form: &KeyForm) -> bool {
    let always = |path: &Path| matches!(path.root, Root::Topic | Root::Partition | Root::Offset | Root::Position);
    !matches!(form, KeyForm::Fields(parts) if parts.is_empty() || parts.iter().any(|p| always(&p.path)))
}
