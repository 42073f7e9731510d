//! `forget`: what a pipeline knows of a key goes, or all it knows (X11). A run is asked; without one the state that is
//! kept is changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::exit::Failure;
use super::load;
use super::output::{Reply, Session};
use super::{reload, run};
use crate::chain::Chain;
use crate::config::guests::Library;
use crate::config::pipeline::{Pipeline, Source};
use crate::files::journal::Journal;
use crate::files::place::StateDir;
use crate::kafka::client::Clients;
use crate::kafka::reset::{self, Forget, Place};
use crate::kafka::topics::Topics;
use crate::plan::{self, Conditions};
use crate::task::Marker;
use crate::worker::orders;

/// Frees what a pipeline knows of a key, or all it knows: the next record of it is a first one. Nothing is emitted for
/// it, and candidates that wait go, too. It is durable when this ends.
///
/// Exit: 0 it is forgotten; 1 in some partitions it is not; 2 the file or the record is wrong; 3 the run or the state
/// cannot be reached.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Everything, of all stages
    #[arg(long, conflicts_with_all = ["value", "key", "header"])]
    pub all: bool,
    /// Value of a record with the key, as the source has it: '{"user_id": 7}'
    #[arg(long, value_name = "TEXT")]
    pub value: Option<String>,
    /// Its record key
    #[arg(long, value_name = "TEXT")]
    pub key: Option<String>,
    /// One of its headers; may be repeated
    #[arg(long, value_name = "NAME=TEXT")]
    pub header: Vec<String>,
}

/// The verb.
pub fn main(args: &Args, session: &mut Session) -> Result<Reply, Failure> {
    let record = record(args)?;
    let library = load::library(session)?;
    let pipeline = load::pipeline(session, &args.file, &library)?;
    let controls = reload::controls(session, &pipeline, &args.file)?;
    let mut tasks: Vec<(Vec<(String, i64)>, u64)> = Vec::new();
    for control in &controls {
        let body = match &record {
            None => json!({ "pipeline": pipeline.name, "all": true }),
            Some(record) => json!({ "pipeline": pipeline.name, "record": record }),
        };
        let (status, answer) = control.post("/forget", &body)?;
        let why = answer["error"].as_str().unwrap_or("it gives no reason");
        match status {
            200 => tasks.extend(answer["tasks"].as_array().into_iter().flatten().map(task)),
            400 => return Err(wrong(why)),
            _ => return Err(Failure::environment(format!("the run of {} did not forget: {why}", pipeline.name))),
        }
    }
    match &pipeline.source {
        Source::Kafka(_) if controls.is_empty() => {
            tasks = stopped_on_kafka(args, session, &pipeline, &library, record)?
        }
        Source::Kafka(_) => everywhere(args, session, &pipeline, &tasks)?,
        _ if controls.is_empty() => tasks = stopped(args, session, &pipeline, &library, record)?,
        _ => {}
    }
    let text: String = tasks.iter().map(|(inputs, forgotten)| line(inputs, *forgotten)).collect();
    let forgotten: u64 = tasks.iter().map(|(_, forgotten)| forgotten).sum();
    let places = |inputs: &[(String, i64)]| -> Vec<Value> {
        inputs.iter().map(|(topic, partition)| json!({ "topic": topic, "partition": partition })).collect()
    };
    let results: Vec<Value> =
        tasks.iter().map(|(inputs, count)| json!({ "inputs": places(inputs), "forgotten": count })).collect();
    let result = json!({ "pipeline": pipeline.name, "forgotten": forgotten, "tasks": results });
    Ok(Reply::new(text, result).summary(format!("{}: {} forgotten", pipeline.name, entries(forgotten))))
}

fn entries(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

fn line(inputs: &[(String, i64)], forgotten: u64) -> String {
    let names: Vec<String> = inputs.iter().map(|(topic, partition)| format!("{topic}/{partition}")).collect();
    format!("{}: {forgotten}\n", names.join(", "))
}

fn task(answer: &Value) -> (Vec<(String, i64)>, u64) {
    let inputs = answer["inputs"].as_array().into_iter().flatten();
    let place = |input: &Value| Some((input["topic"].as_str()?.to_owned(), input["partition"].as_i64()?));
    (inputs.filter_map(place).collect(), answer["forgotten"].as_u64().unwrap_or(0))
}

/// The record that names the key, as an envelope; none for everything.
fn record(args: &Args) -> Result<Option<Value>, Failure> {
    if args.all {
        return Ok(None);
    }
    if args.value.is_none() && args.key.is_none() && args.header.is_empty() {
        return Err(Failure::invalid("nothing says what to forget")
            .help("a key, by a record that has it: `--value '{\"user_id\": 7}'`, `--key TEXT`, `--header NAME=TEXT`")
            .help("everything: `--all`"));
    }
    let bytes = |text: &str| json!({ "$bytes": STANDARD.encode(text) });
    let mut record = json!({});
    if let Some(value) = &args.value {
        record["value"] = bytes(value);
    }
    if let Some(key) = &args.key {
        record["key"] = bytes(key);
    }
    let mut headers = Vec::new();
    for header in &args.header {
        let (name, text) = header.split_once('=').ok_or_else(|| {
            Failure::invalid(format!("`{header}` is no header")).help("a name, `=` and its text: `--header id=7`")
        })?;
        headers.push(json!([name, text]));
    }
    if !headers.is_empty() {
        record["headers"] = Value::Array(headers);
    }
    Ok(Some(record))
}

fn wrong(why: &str) -> Failure {
    Failure::invalid(format!("the record has no key that could be forgotten: {why}"))
        .help("`--value`, `--key` and `--header` are what the source has, before anything is decoded")
}

/// Changes the state that a pipeline on files keeps while nobody runs it.
fn stopped(
    args: &Args,
    session: &Session,
    pipeline: &Pipeline,
    library: &Library,
    record: Option<Value>,
) -> Result<Vec<(Vec<(String, i64)>, u64)>, Failure> {
    let base = args.file.parent().unwrap_or(Path::new(""));
    let folder = run::state_folder(session, pipeline, base).map_err(run::failure)?;
    let refused = |findings| load::refused(&args.file, findings);
    // Where nothing is kept yet there is nothing to forget; a file that no run would take is refused all the same.
    let nothing = || {
        plan::plan(pipeline, library, &Conditions::of(pipeline, None)).map_err(refused)?;
        Ok(Vec::new())
    };
    if !folder.exists() {
        return nothing();
    }
    let journal = StateDir::open(&folder).and_then(Journal::open).map_err(run::failure)?;
    let (mut journal, Some(last)) = journal else { return nothing() };
    let mut conditions = Conditions::of(pipeline, u32::try_from(last.commit.source.next.len()).ok());
    // What goes as a whole need not fit what comes.
    if record.is_some() {
        conditions.stored = run::identities(&last);
    }
    let plan = Arc::new(plan::plan(pipeline, library, &conditions).map_err(refused)?);
    let commit = last.commit.clone();
    let mut chain = Chain::open(&plan, true);
    let mut tasks = run::restore(&plan, &chain, Some(last), 0);
    let record = record.map(|record| record.to_string());
    let freed = orders::forget(&plan, &mut chain, &mut tasks, record.as_deref()).map_err(|why| wrong(&why))?;
    let sealed: Vec<_> = tasks.iter_mut().map(|task| task.seal(&plan)).collect();
    let states: Vec<(&Marker, Vec<_>)> = tasks.iter().map(|task| task.marker()).zip(sealed).collect();
    journal.commit(commit.source, commit.sinks, &states, commit.clean).map_err(run::failure)?;
    let inputs = tasks.iter().map(|task| {
        task.marker().inputs.iter().map(|i| (i.topic.to_string(), i64::from(i.partition))).collect::<Vec<_>>()
    });
    Ok(inputs.zip(freed).collect())
}

/// Changes the state of a pipeline on Kafka while nobody runs it.
fn stopped_on_kafka(
    args: &Args,
    session: &Session,
    pipeline: &Pipeline,
    library: &Library,
    record: Option<Value>,
) -> Result<Vec<(Vec<(String, i64)>, u64)>, Failure> {
    let base = args.file.parent().unwrap_or(Path::new("."));
    let clients = Clients::of(pipeline, &session.environment, base).map_err(run::failure)?;
    let topics = Topics::new(&clients).map_err(run::failure)?;
    let mut conditions = Conditions::of(pipeline, None);
    conditions.partitions = crate::kafka::run::partitions(pipeline, &topics).map_err(run::failure)?;
    let plan = plan::plan(pipeline, library, &conditions).map_err(|f| load::refused(&args.file, f))?;
    let forget = record.map_or(Forget::All, |record| Forget::Key(record.to_string()));
    let judge = run::judge(library);
    let moved = reset::reset(&Arc::new(plan), &clients, &topics, Place::Same, &forget, &judge).map_err(run::failure)?;
    Ok(moved.iter().map(|m| (vec![(m.place.0.to_string(), i64::from(m.place.1))], m.forgotten)).collect())
}

/// Sees that every partition has been asked for: processes on other machines are out of reach.
fn everywhere(
    args: &Args,
    session: &Session,
    pipeline: &Pipeline,
    tasks: &[(Vec<(String, i64)>, u64)],
) -> Result<(), Failure> {
    let Source::Kafka(source) = &pipeline.source else { return Ok(()) };
    let base = args.file.parent().unwrap_or(Path::new("."));
    let clients = Clients::of(pipeline, &session.environment, base).map_err(run::failure)?;
    let topics = Topics::new(&clients).map_err(run::failure)?;
    let done: BTreeSet<&(String, i64)> = tasks.iter().flat_map(|(inputs, _)| inputs).collect();
    let mut missing = Vec::new();
    for topic in &source.topics {
        let count = topics.partitions(topic).map_err(run::failure)?.unwrap_or(0);
        let places = (0..i64::from(count)).map(|partition| (topic.clone(), partition));
        missing.extend(places.filter(|place| !done.contains(place)).map(|(topic, p)| format!("{topic}/{p}")));
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::runtime(format!(
        "forgotten in {} of {} partitions; not in {}",
        done.len(),
        done.len() + missing.len(),
        missing.join(", ")
    ))
    .help("they are being moved, or are with processes on other machines: run this again there, or a little later"))
}
