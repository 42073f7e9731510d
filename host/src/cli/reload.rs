//! `reload`, and what SIGHUP does: the file of a running pipeline is read again, and the pipeline goes on under it. What
//! is wrong with the file, or cannot change while it runs, leaves the pipeline as it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use serde_json::{Value, json};

use super::control::{self, Control};
use super::exit::{Exit, Failure};
use super::load;
use super::output::{Reply, Session, finding};
use super::run;
use crate::config::diagnostic::{Diagnostic, Severity};
use crate::config::node::Span;
use crate::config::pipeline::{Pipeline, Sink, Source, Uses};
use crate::ops::orders::{Answer, Order, Refusal};
use crate::ops::{Board, Seat};
use crate::plan::{self, Conditions, OutputKind, Plan};

/// Lets a running pipeline go on under its file as it is now; SIGHUP does the same.
///
/// Exit: 0 it goes on under the new file; 2 the file is refused, and the old one holds; 3 nothing runs that can be asked.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// The verb.
pub fn main(args: &Args, session: &mut Session) -> Result<Reply, Failure> {
    let library = load::library(session)?;
    let pipeline = load::pipeline(session, &args.file, &library)?;
    let controls = controls(session, &pipeline, &args.file)?;
    if controls.is_empty() {
        return Err(Failure::environment(format!("{} does not run here", pipeline.name))
            .help("a run reads its file when it starts: `tamis run` is enough"));
    }
    let mut results = Vec::new();
    let mut failed: Option<Failure> = None;
    for control in controls {
        let (_, answer) = control.post("/reload", &json!({}))?;
        let all = answer["pipelines"].as_array().cloned().unwrap_or_default();
        let own = all.into_iter().find(|one| one["pipeline"] == pipeline.name.as_str());
        let own = own.unwrap_or_else(|| json!({ "ok": false, "error": answer["error"] }));
        if own["ok"] != true {
            failed = failed.or(Some(refused(&own, session)));
        }
        results.push(own);
    }
    match failed {
        Some(failure) => Err(failure),
        None => Ok(Reply::new("", json!({ "pipeline": pipeline.name, "processes": results })).summary(format!(
            "{} goes on under {}",
            pipeline.name,
            args.file.display()
        ))),
    }
}

/// What a run said that keeps to its old file.
fn refused(answer: &Value, session: &Session) -> Failure {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let exit = if answer["exit"] == Exit::Environment.code() { Exit::Environment } else { Exit::Invalid };
    let mut failure = Failure::new(exit, text(&answer["error"]));
    failure.help = answer["help"].as_array().into_iter().flatten().map(text).collect();
    for found in answer["findings"].as_array().into_iter().flatten() {
        let severity = match found["severity"].as_str() {
            Some("error") => Severity::Error,
            Some("note") => Severity::Note,
            _ => Severity::Warning,
        };
        let mut diagnostic =
            Diagnostic::new(severity, &text(&found["code"]), span(&found["span"]), text(&found["message"]));
        let file: Option<Arc<Path>> = found["path"].as_str().map(|path| Arc::from(Path::new(path)));
        // The same text, if this process has read the same file.
        let known =
            |file: &Arc<Path>| session.sources.keys().find(|known| known.ends_with(file) || file.ends_with(known));
        diagnostic.file = file.as_ref().and_then(known).cloned().or(file);
        diagnostic.help = found["help"].as_array().into_iter().flatten().map(text).collect();
        failure.diagnostics.push(diagnostic);
    }
    failure
}

fn span(value: &Value) -> Option<Span> {
    let number = |name: &str| value[name].as_u64();
    let (line, column) = (u32::try_from(number("line")?).ok()?, u32::try_from(number("column")?).ok()?);
    Some(Span { start: number("start")? as usize, end: number("end")? as usize, line, column })
}

/// The processes on this machine that run a pipeline.
pub fn controls(session: &Session, pipeline: &Pipeline, file: &Path) -> Result<Vec<Control>, Failure> {
    let base = file.parent().unwrap_or(Path::new(""));
    let folder = run::state_folder(session, pipeline, base).map_err(run::failure)?;
    let folders = match &pipeline.source {
        // Every process has its own.
        Source::Kafka(_) => {
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
            folders.sort();
            folders
        }
        _ if !run::lasts(pipeline) => {
            return Err(Failure::invalid(format!(
                "{} keeps nothing between runs, so there is no place by which its run could be found",
                pipeline.name
            ))
            .help("`kill -HUP PID` lets it read its file again")
            .help("what it knows goes when it stops"));
        }
        _ => vec![folder],
    };
    let mut controls: Vec<Control> = Vec::new();
    for folder in folders {
        controls.extend(control::holder(&folder)?.filter(|control| !controls.contains(control)));
    }
    Ok(controls)
}

/// A pipeline that runs here.
pub struct Live {
    /// Its file.
    pub file: PathBuf,
    /// What it runs.
    pub plan: Arc<Plan>,
    /// Partitions of its source, as far as they are known.
    pub partitions: Option<u32>,
    /// Where it is asked.
    pub seat: Arc<Seat>,
}

/// Reads files again when that is asked for, and hears what becomes of it.
#[derive(Default)]
pub struct Again {
    /// Everything that runs here.
    pub live: Vec<Live>,
    /// Those who wait for the answer to what is going on.
    asked: Vec<Sender<Value>>,
    /// Pipelines that have been given a new plan.
    under_way: Vec<(usize, Arc<Plan>, Receiver<Answer>)>,
    /// What is to be answered so far.
    said: Vec<Value>,
}

impl Again {
    /// One look at whether something is to be done, or is done.
    pub fn turn(&mut self, session: &mut Session, board: &Board, hangup: &AtomicBool) {
        self.hear(session);
        if self.under_way.is_empty() {
            let asked = board.take_reloads();
            if hangup.swap(false, Ordering::Relaxed) || !asked.is_empty() {
                self.asked = asked;
                self.read_all(session);
                self.hear(session);
            }
        }
    }

    fn read_all(&mut self, session: &mut Session) {
        for at in 0..self.live.len() {
            let Some(live) = self.live.get(at) else { continue };
            match live.read(session) {
                Ok(plan) => {
                    session.show(&plan.findings);
                    let heard = live.seat.orders.ask(Order::Reload(Arc::clone(&plan)));
                    self.under_way.push((at, plan, heard));
                }
                Err(failure) => self.keeps(at, session, failure),
            }
        }
    }

    /// Hears what became of pipelines, and answers when that is known of all.
    fn hear(&mut self, session: &mut Session) {
        for (at, plan, heard) in std::mem::take(&mut self.under_way) {
            match heard.try_recv() {
                Err(TryRecvError::Empty) => self.under_way.push((at, plan, heard)),
                Err(TryRecvError::Disconnected) => {
                    self.keeps(at, session, Failure::environment("it has ended"));
                }
                Ok(Err(Refusal::Wrong(why) | Refusal::NotNow(why))) => {
                    self.keeps(at, session, Failure::environment(why));
                }
                Ok(Ok(_)) => {
                    let Some(live) = self.live.get_mut(at) else { continue };
                    live.plan = plan;
                    session.say(&format!(
                        "{} goes on under {} as it is now",
                        live.seat.pipeline(),
                        live.file.display()
                    ));
                    self.said.push(json!({ "pipeline": live.seat.pipeline(), "ok": true }));
                }
            }
        }
        if self.under_way.is_empty() && !self.said.is_empty() {
            let answer = json!({ "pipelines": std::mem::take(&mut self.said) });
            self.asked.drain(..).for_each(|asked| drop(asked.send(answer.clone())));
        }
    }

    /// A pipeline goes on as before: says why, to the operator and to whoever asked.
    fn keeps(&mut self, at: usize, session: &Session, failure: Failure) {
        let Some(live) = self.live.get(at) else { return };
        let name = live.seat.pipeline();
        let error = format!("{name} goes on as before: {}", failure.message);
        session.show(&failure.diagnostics);
        session.complain(&error, &failure.help);
        self.said.push(json!({
            "pipeline": name,
            "ok": false,
            "error": error,
            "exit": failure.exit.code(),
            "help": failure.help,
            "findings": failure.diagnostics.iter().map(finding).collect::<Vec<Value>>(),
        }));
    }
}

impl Live {
    /// The file as it is now, as a plan that fits what runs and the state it has.
    fn read(&self, session: &mut Session) -> Result<Arc<Plan>, Failure> {
        if self.file == Path::new("-") {
            return Err(Failure::invalid("it was read from standard input, which cannot be read again")
                .help("write it to a file, and run that"));
        }
        // Guests are looked for again, too: a module may have changed.
        let library = load::library(session)?;
        let pipeline = load::pipeline(session, &self.file, &library)?;
        let mut conditions = Conditions::of(&pipeline, self.partitions);
        let keyed = self.plan.stages.iter().filter(|stage| stage.key.is_some());
        conditions.stored = keyed.map(|stage| (stage.id.clone(), stage.identity.clone())).collect();
        let plan = plan::plan(&pipeline, &library, &conditions).map_err(|found| load::refused(&self.file, found))?;
        let fixed = fixed(&self.plan, &plan);
        if fixed.is_empty() { Ok(Arc::new(plan)) } else { Err(load::refused(&self.file, fixed)) }
    }
}

/// What has changed that cannot change while a pipeline runs.
fn fixed(old: &Plan, new: &Plan) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut refuse = |pointer: &str, what: &str| {
        let span = new.pipeline.root.pointer(pointer);
        let text = format!("{what} cannot change while the pipeline runs");
        let mut finding = Diagnostic::error("P-RESTART", span, text)
            .help("stop the run and start it again: it goes on where it stopped")
            .help("the old setting");
        finding.file = new.pipeline.file.clone();
        found.push(finding);
    };
    for ((pointer, was), (_, is)) in settings(&old.pipeline).iter().zip(settings(&new.pipeline)) {
        if *was != is {
            refuse(pointer, &format!("`{}`", pointer.trim_start_matches('/').replace('/', ".")));
        }
    }
    if old.one_task != new.one_task {
        refuse("/stages", "whether there is one state for all partitions or one for each (`scope`)");
    }
    let upserts = |plan: &Plan| plan.stages.iter().any(|stage| stage.traits.output == OutputKind::Upsert);
    if upserts(old) != upserts(new) {
        refuse("/stages", "between upsert output and another, the kind");
    }
    let keeps = |plan: &Plan| plan.stages.iter().any(|stage| stage.key.is_some());
    if matches!(new.pipeline.source, Source::Kafka(_)) && keeps(new) && !keeps(old) {
        refuse("/stages", "a pipeline without keyed state has no changelog: that");
    }
    found
}

/// Settings that are fixed for a run: where they stand, and what they mean as text.
fn settings(pipeline: &Pipeline) -> Vec<(&'static str, String)> {
    let (state, limits) = (&pipeline.state, &pipeline.limits);
    let sink = |sink: &Option<Sink>| sink.as_ref().map_or(String::new(), meaning);
    let uses = |uses: &Option<Uses>| uses.as_ref().map_or(String::new(), named);
    vec![
        ("/name", pipeline.name.clone()),
        ("/source", origin(&pipeline.source)),
        ("/decode", format!("{} {}", named(&pipeline.decode.key), named(&pipeline.decode.value))),
        ("/encode", format!("{} {}", uses(&pipeline.encode.key), uses(&pipeline.encode.value))),
        ("/sink", meaning(&pipeline.sink)),
        ("/routes/late", sink(&pipeline.late)),
        ("/routes/duplicates", sink(&pipeline.duplicates)),
        ("/errors/dead_letter", sink(&pipeline.errors.dead_letter)),
        ("/limits/batch", format!("{:?}", (limits.batch_rows, limits.batch_bytes, limits.batch_wait))),
        ("/state/store", format!("{:?}", state.durable)),
        ("/state/dir", format!("{:?}", state.dir)),
        ("/state/changelog", format!("{:?}", (state.create_changelog, state.changelog_replication))),
        ("/state/accept_loss", format!("{:?}", state.accept_loss)),
        ("/run/instance", format!("{:?}", pipeline.run.instance)),
        ("/run/stop", format!("{:?}", pipeline.run.stop)),
        ("/run/http", format!("{:?}", pipeline.run.http)),
    ]
}

fn named(uses: &Uses) -> String {
    format!("{} {}", uses.name, uses.with)
}

fn origin(source: &Source) -> String {
    match source {
        Source::Kafka(k) => format!(
            "{:?}",
            (&k.topics, &k.brokers, &k.group, k.start, k.until, k.committed_only, k.skip_lost, &k.properties)
        ),
        other => format!("{other:?}"),
    }
}

fn meaning(sink: &Sink) -> String {
    match sink {
        Sink::Kafka(k) => {
            format!("{:?}", (&k.topic, &k.brokers, k.exactly_once, &k.create, k.event_timestamp, &k.properties))
        }
        other => format!("{other:?}"),
    }
}
