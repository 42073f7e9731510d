//! `plan`: what would run, before it runs.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::exit::Failure;
use super::load;
use super::output::{Reply, Session, printable};
use super::run::failure;
use crate::config::filled::{Found, filled, flow, to_yaml};
use crate::config::pipeline::{Sink, Source, Stage};
use crate::config::values;
use crate::guest::Module;
use crate::kafka::client::Clients;
use crate::kafka::topics::Topics;
use crate::kafka::{self, outlook};
use crate::plan::{self, Conditions};
use crate::plan::{Clock, OutputKind, Plan, Planned};

/// Arguments of `plan`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A pipeline file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Ask the cluster as well: which topics there are, how many partitions decide what can run, what topics keep
    #[arg(long)]
    pub env: bool,
}

/// The verb.
pub fn main(args: &Args, session: &mut Session) -> Result<Reply, Failure> {
    let library = load::library(session)?;
    let mut plan = load::plan(session, &args.file, &library)?;
    let mut cluster = String::new();
    if let (true, Source::Kafka(_)) = (args.env, &plan.pipeline.source) {
        let base = args.file.parent().unwrap_or(Path::new(""));
        let clients = Clients::of(&plan.pipeline, &session.environment, base).map_err(failure)?;
        let topics = Topics::new(&clients).map_err(failure)?;
        let mut conditions = Conditions::of(&plan.pipeline, None);
        conditions.partitions = kafka::run::partitions(&plan.pipeline, &topics).map_err(failure)?;
        plan = plan::plan(&plan.pipeline, &library, &conditions).map_err(|f| load::refused(&args.file, f))?;
        plan.findings.extend(outlook::warnings(&plan, &topics));
        let lines = outlook::topics(&plan, &topics).map_err(failure)?;
        cluster = format!("\n# cluster {}\n", topics.brokers());
        lines.iter().for_each(|line| cluster.push_str(&format!("# {line}\n")));
    }
    let mut reply = Reply::new(printable(&(text(&plan) + &cluster)), json(&plan));
    reply.diagnostics = plan.findings.clone();
    Ok(reply)
}

/// The plan for a person: the file with every default, then what each stage does and costs.
pub fn text(plan: &Plan) -> String {
    let mut text = format!("{}\n{}\n# modules\n", to_yaml(&file(plan)), words(plan));
    for (role, module) in modules(plan) {
        let version = format!("{}@{}", module.name(), module.version());
        text.push_str(&format!(
            "# {version:<16} sha256:{}  {:>4} KiB  {role}\n",
            module.digest(),
            module.size().div_ceil(1024)
        ));
    }
    text
}

/// What each stage does and costs, and what the whole promises, as comments.
pub fn words(plan: &Plan) -> String {
    let mut text = "# stages\n".to_owned();
    for (i, planned) in plan.stages.iter().enumerate() {
        text.push_str(&format!("# {}. {}: {}\n", i + 1, planned.id, does(planned)));
        for (what, words) in [("changes later", changes(planned)), ("state", costs(plan, planned))] {
            if let Some(words) = words {
                text.push_str(&format!("#    {what}: {words}\n"));
            }
        }
    }
    if plan.stages.is_empty() {
        text.push_str("# none: records leave as they came\n");
    }
    text.push_str(&format!("# decoded: {}\n", decoded(plan)));
    if let Some(promise) = delivery(plan) {
        text.push_str(&format!("\n# delivery\n{promise}"));
    }
    text
}

/// The plan for a program.
pub fn json(plan: &Plan) -> Value {
    let stages: Vec<Value> = plan
        .stages
        .iter()
        .map(|planned| {
            json!({
                "id": planned.id, "does": does(planned), "changes": changes(planned), "costs": costs(plan, planned),
                "counters": planned.counters,
                "module": { "name": planned.module.name(), "version": planned.module.version(), "digest": planned.module.digest() },
            })
        })
        .collect();
    let modules: Vec<Value> = modules(plan)
        .iter()
        .map(|(role, m)| {
            json!({ "name": m.name(), "version": m.version(), "digest": m.digest(), "size": m.size(), "imports": m.imports(), "role": role })
        })
        .collect();
    let pipeline = &plan.pipeline;
    let promise = delivery(plan).unwrap_or_default();
    let promise: Vec<&str> = promise.lines().map(|line| line.trim_start_matches("# ")).collect();
    json!({
        "name": pipeline.name, "description": pipeline.description, "labels": pipeline.labels, "file": file(plan), "stages": stages,
        "modules": modules, "delivery": promise, "event_time": plan.event_time, "one_task": plan.one_task,
    })
}

fn file(plan: &Plan) -> Value {
    let found = Found {
        schemas: plan.stages.iter().map(|s| s.module.manifest().params.clone()).collect(),
        settings: plan.stages.iter().map(|s| s.settings.clone()).collect(),
        null_keys: plan.stages.iter().map(|s| s.key.as_ref().map(|k| k.null_key)).collect(),
        ageing: plan.stages.iter().map(|s| s.key.as_ref().map(|_| ageing(s.traits.clock))).collect(),
    };
    filled(&plan.pipeline, &found)
}

/// What ages state under a stage's clock, where the file does not say it: ingestion counts as event (7.2).
fn ageing(clock: Clock) -> &'static str {
    if clock == Clock::Processing { "processing" } else { "event" }
}

/// What a stage does, in one sentence: the guest's own, else what its manifest says and how it is set here.
fn does(planned: &Planned) -> String {
    if let Some(says) = &planned.says {
        return says.does.clone();
    }
    let about = planned.module.manifest().about.trim_end_matches('.').to_string();
    let set = planned.params.as_object().into_iter().flatten();
    let set: Vec<String> = set.map(|(name, value)| format!("{name}: {}", flow(value))).collect();
    if set.is_empty() { about } else { format!("{about}; {}", set.join(", ")) }
}

/// What of its output it may change later; `None`: it keeps no state, so nothing.
fn changes(planned: &Planned) -> Option<String> {
    planned.key.as_ref()?;
    let words = || match planned.traits.output {
        OutputKind::Append => "nothing: it appends",
        OutputKind::Upsert => "rows may be written again under their key",
        OutputKind::Retract => "rows may be taken back and sent anew",
    };
    Some(planned.says.as_ref().map_or_else(|| words().to_string(), |says| says.changes.clone()))
}

/// What its state costs, and what bounds it.
fn costs(plan: &Plan, planned: &Planned) -> Option<String> {
    planned.key.as_ref()?;
    if let Some(says) = &planned.says {
        return Some(says.costs.clone());
    }
    let stage = plan.pipeline.stages.iter().find(|s| s.id == planned.id)?;
    Some(format!("an entry per key; {}", bound(stage, planned.traits.bounded_state)))
}

/// What a pipeline on Kafka promises, and what that costs.
fn delivery(plan: &Plan) -> Option<String> {
    let pipeline = &plan.pipeline;
    let (Source::Kafka(source), Sink::Kafka(sink)) = (&pipeline.source, &pipeline.sink) else { return None };
    let every = values::print_duration(pipeline.run.commit);
    let promise = match sink.exactly_once {
        true => format!(
            "exactly once: output, state and positions become visible together, every {every}; readers need `isolation.level=read_committed`"
        ),
        false => format!(
            "at least once: nothing is lost; after a crash what left in the last {every} leaves again; readers see output at once"
        ),
    };
    let mut text = format!("# {promise}\n# group: {}\n", source.group.as_ref().unwrap_or(&pipeline.name));
    let stateful = plan.stages.iter().any(|stage| stage.key.is_some());
    // Whether marks stand many in one record.
    let is_open = |stage: &Stage| stage.state.unbounded && stage.state.max_entries.or(stage.state.max_bytes).is_none();
    let less = match pipeline.stages.iter().any(is_open) {
        true => " (35 where its mark never ends and many come at a time)",
        false => "",
    };
    for topic in source.topics.iter().filter(|_| stateful && pipeline.state.durable) {
        text.push_str(&format!(
            "# changelog: {}; for each new key about 70 bytes before compression{less}, for each kept record its size more, and about 400 bytes a commit and partition\n",
            crate::kafka::run::changelog_topic(&pipeline.name, topic)
        ));
    }
    if stateful && !pipeline.state.durable {
        text.push_str("# state: in memory; a crash loses it, a stop lets open results leave\n");
    }
    Some(text)
}

fn bound(stage: &Stage, windowed: bool) -> String {
    let bounds = &stage.state;
    let mut words = Vec::new();
    if windowed {
        words.push("gone when its window is over".to_string());
    }
    if let Some(retention) = bounds.retention.filter(|r| r.length > 0) {
        words.push(format!("forgotten after {}", values::print_duration(retention.length)));
    }
    if let Some(entries) = bounds.max_entries {
        words.push(format!("at most {entries} keys"));
    }
    if let Some(bytes) = bounds.max_bytes {
        words.push(format!("at most {}", values::print_size(bytes)));
    }
    if words.is_empty() { "kept for as long as the pipeline runs".to_string() } else { words.join(", ") }
}

fn decoded(plan: &Plan) -> String {
    let paths: Vec<String> = plan.value_paths.iter().chain(&plan.key_paths).map(ToString::to_string).collect();
    if paths.is_empty() { "nothing".to_string() } else { paths.join(", ") }
}

/// Each module once, and what it is here for.
fn modules(plan: &Plan) -> Vec<(String, &Module)> {
    let mut all: Vec<(String, &Module)> = Vec::new();
    let mut add = |role: String, module| {
        let module: &Module = module;
        match all.iter_mut().find(|(_, m)| m.digest() == module.digest()) {
            Some((roles, _)) if !roles.split(", ").any(|r| r == role) => *roles = format!("{roles}, {role}"),
            Some(_) => {}
            None => all.push((role, module)),
        }
    };
    if !plan.value_paths.is_empty() {
        add("decode.value".to_string(), &plan.decode_value.module);
    }
    if !plan.key_paths.is_empty() {
        add("decode.key".to_string(), &plan.decode_key.module);
    }
    for planned in &plan.stages {
        add(format!("stage {}", planned.id), &planned.module);
        if let Some(guest) = planned.key.as_ref().and_then(|k| k.guest.as_ref()) {
            add(format!("key of {}", planned.id), &guest.module);
        }
    }
    if plan.stages.iter().any(|s| s.traits.output == OutputKind::Upsert) {
        add("encode.key".to_string(), &plan.encode_made_key.module);
    }
    if plan.reencode_value {
        add("encode.value".to_string(), &plan.encode_value.module);
    }
    all
}
