//! `run`: pipelines, until their input ends or somebody stops them.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::control;
use super::exit::Failure;
use super::load;
use super::operations;
use super::output::{Reply, Session};
use super::reload::{Again, Live};
use super::summary::{Summary, Totals, counters};
use crate::chain::Chain;
use crate::config::guests::Library;
use crate::config::pipeline::{self, Pipeline};
use crate::files::desk::{self, Desk};
use crate::files::journal::{Journal, Last};
use crate::files::ledger::Ledger;
use crate::files::place::{self, StateDir};
use crate::files::sink::Sinks;
use crate::files::source::{Codec, Settings, Source};
use crate::files::{Trouble, frame};
use crate::kafka;
use crate::ops::{Board, Phase, Seat};
use crate::plan::{self, Conditions, Plan};
use crate::task::Task;
use crate::telemetry::{self, Look};
use crate::worker::{Ended, Inbox, Pace, Worker};

/// How soon the wish to stop is noticed.
const ATTENTION: Duration = Duration::from_millis(50);

/// What a pipeline does by itself to keep to `run.stop` has this time to come to an end.
const GRACE: Duration = Duration::from_secs(1);

/// Runs pipelines until their input ends or SIGTERM comes; SIGHUP lets them read their files again.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Pipeline files; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Kafka: begin with empty state, this once, where the changelog is gone or another program's group is taken over
    #[arg(long)]
    pub accept_state_loss: bool,
}

/// The verb.
pub fn main(args: &Args, session: &mut Session) -> Result<Reply, Failure> {
    let library = Arc::new(load::library(session)?);
    let mut ready = Vec::new();
    for file in &args.files {
        let pipeline = load::pipeline(session, file, &library)?;
        let mut prepared = prepare(session, file, pipeline, &library)?;
        if let (Means::Kafka(means), true) = (&mut prepared.means, args.accept_state_loss) {
            means.accept_loss();
        }
        ready.push(prepared);
    }
    let hangup = desk::flag_on_hangup().map_err(failure)?;
    run(session, ready, &hangup)
}

/// Runs what was prepared; several pipelines at once, each in a thread of its own. `hangup` is set when their files are
/// to be read again.
pub fn run(session: &mut Session, ready: Vec<Ready>, hangup: &AtomicBool) -> Result<Reply, Failure> {
    if session.json && ready.iter().any(|r| matches!(r.plan.pipeline.sink, pipeline::Sink::Stdout { .. })) {
        return Err(Failure::invalid("`--json` and the sink `stdout` both want standard output")
            .help("write to a file, or leave `--json` out"));
    }
    let stop = desk::stop_on_signals().map_err(failure)?;
    let terminal = std::io::stderr().is_terminal();
    let talk = Talk { terminal, color: session.color_err, quiet: session.quiet, verbose: session.verbose };
    for ready in &ready {
        session.show(&ready.plan.findings);
    }
    let board = Board::new(Arc::clone(&stop));
    let pipelines: Vec<&Pipeline> = ready.iter().map(|ready| &ready.plan.pipeline).collect();
    let address = operations::serve(session, &board, &pipelines)?;
    let folders: Vec<PathBuf> = ready.iter().filter_map(|ready| ready.means.folder().map(Path::to_path_buf)).collect();
    let _controls = control::announce(address, &board.token, &folders).map_err(failure)?;
    let outcomes = all(session, ready, &stop, &board, talk, hangup)?;
    board.close();
    let mut summaries = Vec::new();
    let mut failed = None;
    for outcome in outcomes {
        match outcome {
            Ok(summary) => summaries.push(summary),
            Err(failure) => failed = failed.or(Some(failure)),
        }
    }
    if let Some(failure) = failed {
        for summary in &summaries {
            session.say(&summary.text());
        }
        return Err(failure);
    }
    let texts: Vec<String> = summaries.iter().map(Summary::text).collect();
    let results: Vec<Value> = summaries.iter().map(Summary::json).collect();
    Ok(Reply::new("", json!({ "pipelines": results })).summary(texts.join("\n")))
}

/// Runs each pipeline in a thread of its own, and waits for them: once they were asked to stop, no longer than
/// `run.stop` allows each. One that takes longer is left behind, and ends with the process: what it has not committed is
/// left to the next run.
fn all(
    session: &mut Session,
    ready: Vec<Ready>,
    stop: &Arc<AtomicBool>,
    board: &Board,
    talk: Talk,
    hangup: &AtomicBool,
) -> Result<Vec<Result<Summary, Failure>>, Failure> {
    let (tell, hear) = channel();
    let mut waiting: Vec<(String, Duration)> = Vec::new();
    let mut again = Again::default();
    for (at, ready) in ready.into_iter().enumerate() {
        let pipeline = &ready.plan.pipeline;
        waiting.push((pipeline.name.clone(), Duration::from_nanos(u64::try_from(pipeline.run.stop).unwrap_or(0))));
        let (stop, seat, tell) = (Arc::clone(stop), board.seat(&pipeline.name), tell.clone());
        again.live.push(Live {
            file: ready.file.clone(),
            plan: Arc::clone(&ready.plan),
            partitions: ready.partitions,
            seat: Arc::clone(&seat),
        });
        let thread = std::thread::Builder::new().name(pipeline.name.clone());
        let thread = thread.spawn(move || {
            let outcome = one(ready, &stop, &seat, talk);
            seat.orders.close();
            // Nobody hears it who was too late.
            let _ = tell.send((at, outcome));
        });
        thread.map_err(|error| Failure::environment(format!("a pipeline does not start: {error}")))?;
    }
    drop(tell);
    let mut outcomes: Vec<Option<Result<Summary, Failure>>> = waiting.iter().map(|_| None).collect();
    let mut asked = None;
    while outcomes.iter().any(Option::is_none) {
        match hear.recv_timeout(ATTENTION) {
            Ok((at, outcome)) => {
                if let Some(place) = outcomes.get_mut(at) {
                    *place = Some(outcome);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        again.turn(session, board, hangup);
        if stop.load(Ordering::Relaxed) {
            let asked = *asked.get_or_insert_with(Instant::now);
            for ((name, patience), outcome) in waiting.iter().zip(&mut outcomes) {
                if outcome.is_none() && asked.elapsed() > *patience + GRACE {
                    *outcome = Some(Err(not_drained(name, *patience)));
                }
            }
        }
    }
    let lost = || Failure::runtime("a pipeline ended by a defect of tamis").help("report it with the lines above");
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(lost()))).collect())
}

fn not_drained(name: &str, patience: Duration) -> Failure {
    Failure::runtime(format!("{name} had not come to an end {patience:?} after it was asked to stop (`run.stop`)"))
        .help("what it had committed holds; the next run goes on there")
        .help("a longer `run.stop`, a shorter `limits.call`")
}

/// A pipeline whose files, guests and state were found.
pub struct Ready {
    /// Its file.
    file: PathBuf,
    plan: Arc<Plan>,
    /// Partitions of its source, as far as they are known.
    partitions: Option<u32>,
    means: Means,
    library: Arc<Library>,
}

/// What a pipeline runs with.
enum Means {
    /// Files and standard streams.
    Files {
        /// Where relative paths start from.
        base: PathBuf,
        /// Files of the source.
        paths: Vec<PathBuf>,
        /// What lasts.
        journal: Option<(Journal, Option<Last>)>,
    },
    /// Kafka.
    Kafka(Box<kafka::run::Means>),
}

/// Finds what a pipeline needs, and plans it against the state that is kept.
pub fn prepare(session: &Session, file: &Path, pipeline: Pipeline, library: &Arc<Library>) -> Result<Ready, Failure> {
    let base = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let paths = match &pipeline.source {
        pipeline::Source::File { paths, follow: true, .. } => place::files_so_far(&base, paths),
        pipeline::Source::File { paths, .. } => place::files(&base, paths),
        _ => Ok(Vec::new()),
    };
    let found = match &paths {
        Ok(paths) if !paths.is_empty() => u32::try_from(paths.len()).ok(),
        _ => None,
    };
    let mut conditions = Conditions::of(&pipeline, found);
    let plan = |conditions: &Conditions| {
        plan::plan(&pipeline, &**library, conditions).map_err(|findings| load::refused(file, findings))
    };
    // What is wrong with the file is said before what is wrong around it.
    let mut made = plan(&conditions)?;
    if matches!(pipeline.source, pipeline::Source::Kafka(_)) {
        let clients = kafka::client::Clients::of(&pipeline, &session.environment, &base).map_err(failure)?;
        let topics = kafka::topics::Topics::new(&clients).map_err(failure)?;
        conditions.partitions = kafka::run::partitions(&pipeline, &topics).map_err(failure)?;
        made = plan(&conditions)?;
        let folder = state_folder(session, &pipeline, &base).map_err(failure)?;
        let means = kafka::run::Means::find(&made, clients, &topics, &folder).map_err(failure)?;
        made.findings.extend(kafka::outlook::warnings(&made, &topics));
        return Ok(ready(file, made, &conditions, Means::Kafka(Box::new(means)), library));
    }
    let paths = paths.map_err(failure)?;
    let journal = match lasts(&pipeline) {
        false => None,
        true => {
            let journal = open_journal(session, &pipeline, &base).map_err(failure)?;
            if let (_, Some(last)) = &journal {
                conditions.stored = identities(last);
                made = plan(&conditions)?;
                same_tasks(&made, last)?;
            }
            Some(journal)
        }
    };
    Ok(ready(file, made, &conditions, Means::Files { base, paths, journal }, library))
}

impl Ready {
    /// What would run.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

fn ready(file: &Path, plan: Plan, conditions: &Conditions, means: Means, library: &Arc<Library>) -> Ready {
    let (plan, library, partitions) = (Arc::new(plan), Arc::clone(library), conditions.partitions);
    Ready { file: file.to_path_buf(), plan, partitions, means, library }
}

impl Means {
    /// The folder that is this process's as long as it runs.
    fn folder(&self) -> Option<&Path> {
        match self {
            Means::Files { journal, .. } => journal.as_ref().map(|(journal, _)| journal.path()),
            Means::Kafka(means) => Some(means.folder()),
        }
    }
}

/// Whether anything is kept between runs: not with a standard stream at either end.
pub(super) fn lasts(pipeline: &Pipeline) -> bool {
    let source = matches!(pipeline.source, pipeline::Source::File { .. });
    let sink = matches!(pipeline.sink, pipeline::Sink::File { .. });
    pipeline.state.durable && source && sink
}

pub(super) fn open_journal(
    session: &Session,
    pipeline: &Pipeline,
    base: &Path,
) -> Result<(Journal, Option<Last>), Trouble> {
    Journal::open(StateDir::open(&state_folder(session, pipeline, base)?)?)
}

pub(super) fn state_folder(session: &Session, pipeline: &Pipeline, base: &Path) -> Result<PathBuf, Trouble> {
    match &pipeline.state.dir {
        Some(dir) => Ok(base.join(dir)),
        None => {
            let named = |name: &str| session.environment.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
            Ok(place::state_home(named("XDG_STATE_HOME"), named("HOME"))?.join(&pipeline.name))
        }
    }
}

/// What the kept state of each stage was made with.
pub(super) fn identities(last: &Last) -> BTreeMap<String, Value> {
    let mut identities = BTreeMap::new();
    for sealed in last.tasks.iter().flat_map(|(_, sealed)| sealed) {
        match serde_json::from_str(&sealed.identity) {
            Ok(identity) => identities.insert(sealed.stage.clone(), identity),
            // The stage was gone, and its state went with that commit (task/gone.rs).
            Err(_) => identities.remove(&sealed.stage),
        };
    }
    identities
}

/// State of one task for all files cannot become state for each of them, nor the reverse.
fn same_tasks(plan: &Plan, last: &Last) -> Result<(), Failure> {
    let several = last.tasks.iter().any(|(marker, _)| marker.inputs.len() > 1);
    if (plan.one_task && last.tasks.len() > 1) || (!plan.one_task && several) {
        let message = "the kept state was made under another `scope`: one state for all files, or one for each";
        return Err(Failure::invalid(message)
            .help("go back to the old scope")
            .help("give the pipeline another `name`"));
    }
    Ok(())
}

/// How to talk while running.
#[derive(Clone, Copy, Debug)]
struct Talk {
    terminal: bool,
    color: bool,
    quiet: bool,
    verbose: u8,
}

/// Runs one pipeline to its end.
fn one(ready: Ready, stop: &Arc<AtomicBool>, seat: &Arc<Seat>, talk: Talk) -> Result<Summary, Failure> {
    let name = ready.plan.pipeline.name.clone();
    let look = Look { terminal: talk.terminal, color: talk.color, verbose: talk.verbose };
    telemetry::with_log(&name.clone(), look, || {
        let began = Instant::now();
        let Ready { plan, means, library, .. } = ready;
        let done = match means {
            Means::Files { base, paths, journal } => work(plan, base, paths, journal, Arc::clone(stop), seat, talk),
            Means::Kafka(means) => on_kafka(plan, *means, &library, Arc::clone(stop), seat, talk),
        };
        match &done {
            Ok(Summary { failed: Some(failure), .. }) => seat.enter(Phase::Failed, &failure.message),
            Err(trouble) if !trouble.reader_gone => seat.enter(Phase::Failed, &trouble.what),
            _ => seat.enter(Phase::Ended, ""),
        }
        match done {
            Ok(mut summary) => {
                summary.took = began.elapsed();
                match summary.failed.take() {
                    Some(failure) => Err(failure),
                    None => Ok(summary),
                }
            }
            // Whoever read our output has seen enough.
            Err(trouble) if trouble.reader_gone => Ok(Summary { name, ..Summary::default() }),
            Err(trouble) => Err(failure(trouble)),
        }
    })
}

fn on_kafka(
    plan: Arc<Plan>,
    means: kafka::run::Means,
    library: &Library,
    stop: Arc<AtomicBool>,
    seat: &Arc<Seat>,
    talk: Talk,
) -> Result<Summary, Trouble> {
    seat.modules(&plan);
    seat.show_progress(talk.terminal && !talk.quiet);
    let did = kafka::run::work(&plan, means, judge(library), stop, seat);
    seat.end_progress();
    let did = did?;
    Ok(Summary {
        name: plan.pipeline.name.clone(),
        totals: Totals { records: did.records, duplicates: did.duplicates, filtered: did.filtered },
        counts: did.counts,
        commits: did.commits,
        asked: matches!(did.ended, Ended::Asked),
        stages: did.stages,
        took: Duration::ZERO,
        failed: stopped_by(&did.ended, "kafka: { topic: TOPIC, create: {} }"),
    })
}

/// Says whether kept state may be used: as at the start of a run on files, the plan is made against it.
pub(super) fn judge(library: &Library) -> kafka::inbox::Judge<'_> {
    Box::new(move |plan, stored| {
        let made_with: BTreeMap<String, Value> =
            plan.stages.iter().map(|stage| (stage.id.clone(), stage.identity.clone())).collect();
        if stored.iter().all(|(stage, identity)| made_with.get(stage).is_none_or(|own| own == identity)) {
            return Ok(());
        }
        let mut conditions = Conditions::of(&plan.pipeline, None);
        conditions.stored = stored.clone();
        plan::plan(&plan.pipeline, library, &conditions).map(drop).map_err(|findings| {
            let error = findings.into_iter().find(|f| f.is_error());
            let (text, help) =
                error.map_or((String::new(), Vec::new()), |f| (format!("{}: {}", f.code, f.message), f.help));
            Trouble::new(format!("the kept state cannot be used: {text}"), help.join("; "))
        })
    })
}

fn work(
    plan: Arc<Plan>,
    base: PathBuf,
    paths: Vec<PathBuf>,
    journal: Option<(Journal, Option<Last>)>,
    stop: Arc<AtomicBool>,
    seat: &Arc<Seat>,
    talk: Talk,
) -> Result<Summary, Trouble> {
    let (journal, last) = journal.map_or((None, None), |(journal, last)| (Some(journal), last));
    let commit = last.as_ref().map(|last| &last.commit);
    let mut source = match &plan.pipeline.source {
        pipeline::Source::Stdin { .. } => Source::stdin(settings(&plan))?,
        _ => Source::open(&paths, settings(&plan), commit.map(|c| &c.source))?,
    };
    if let pipeline::Source::File { paths: written, follow: true, .. } = &plan.pipeline.source {
        source.watch(&base, written);
    }
    let mut sinks = Sinks::open(&plan, &base)?;
    let cut = sinks.restore(commit.map(|c| c.sinks.as_slice()).unwrap_or_default(), commit.is_none_or(|c| c.clean))?;
    for note in source.notes.drain(..).chain(cut) {
        tracing::warn!("{note}");
    }
    let mut chain = Chain::open(&plan, true);
    chain.tell(&|place| seat.watch(place));
    let mut desk = Desk::new(source, stop);
    let mut ledger = Ledger::new(sinks, journal, &plan);
    ledger.show_progress(talk.terminal && !talk.quiet && !matches!(plan.pipeline.sink, pipeline::Sink::Stdout { .. }));
    let restored = restore(&plan, &chain, last, desk.now());
    for (stage, count) in restored.iter().flat_map(Task::parts_with) {
        tracing::warn!("{}", crate::worker::parted(&plan.pipeline.name, stage, count));
    }
    let before = Totals::of(&plan, restored.iter());
    desk.tell(Arc::clone(seat));
    ledger.tell(Arc::clone(seat));
    seat.modules(&plan);
    seat.adopt(&plan, restored.iter());
    seat.enter(Phase::Running, "");
    let run = &plan.pipeline.run;
    let pace =
        Pace { commit: run.commit, checkpoint: plan.pipeline.state.checkpoint, flush: !plan.pipeline.state.durable };
    let mut worker = Worker::new(&mut chain, &mut desk, &mut ledger, pace, salt(), restored);
    worker.obey(Arc::clone(seat));
    let ended = worker.run();
    let plan = worker.plan();
    let after = Totals::of(&plan, worker.tasks()).with(worker.gone());
    let stages = counters(&plan, worker.tasks());
    ledger.close_log();
    ledger.end_progress();
    let ended = ended?;
    Ok(Summary {
        name: plan.pipeline.name.clone(),
        totals: after.since(before),
        counts: ledger.counts(),
        commits: ledger.commits,
        asked: matches!(ended, Ended::Asked),
        stages,
        took: Duration::ZERO,
        failed: stopped_by(&ended, "file: dead.jsonl"),
    })
}

/// Tasks as the last commit left them.
pub(super) fn restore(plan: &Plan, chain: &Chain, last: Option<Last>, now: i64) -> Vec<Task> {
    let tasks = last.map(|last| last.tasks).unwrap_or_default();
    tasks
        .into_iter()
        .map(|(marker, changes)| {
            let mut task = Task::with(chain, marker, now);
            for sealed in changes {
                task.apply(plan, sealed);
            }
            task
        })
        .collect()
}

fn settings(plan: &Plan) -> Settings {
    let pipeline = &plan.pipeline;
    let (format, follow, topic) = match &pipeline.source {
        pipeline::Source::File { format, follow, topic, .. } => (*format, *follow, topic.clone()),
        pipeline::Source::Stdin { format, topic } => (*format, false, Some(topic.clone())),
        pipeline::Source::Kafka(_) => (pipeline::Format::Json, false, None),
    };
    Settings {
        format,
        follow,
        topic,
        rows: pipeline.limits.batch_rows,
        bytes: pipeline.limits.batch_bytes,
        wait: Duration::from_nanos(u64::try_from(pipeline.limits.batch_wait).unwrap_or(0)),
        largest: frame::LARGEST,
        mixed: plan.one_task,
        key_codec: Codec::named(&pipeline.decode.key.name),
        value_codec: Codec::named(&pipeline.decode.value.name),
    }
}

/// A number that nobody can guess: keys cannot be made to collide on purpose.
fn salt() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Trouble as a verb says it.
pub fn failure(trouble: Trouble) -> Failure {
    Failure::environment(trouble.what).help(trouble.way_out)
}

/// What stopped a run, and the ways out. `aside`: a place for dead letters, as in the file.
fn stopped_by(ended: &Ended, aside: &str) -> Option<Failure> {
    let Ended::Failed { failure, position } = ended else { return None };
    let at = position
        .as_ref()
        .map_or(String::new(), |(input, offset)| format!(" at {}/{}/{offset}", input.topic, input.partition));
    let message = format!("stopped{at}: {}: {}: {}", failure.stage, failure.code, failure.text);
    let mut failed = Failure::runtime(message);
    if position.is_some() {
        failed = failed
            .help(format!("send such records aside: `errors: {{ dead_letter: {{ {aside} }} }}`"))
            .help("or pass over them: `errors: { tolerance: all }`");
    }
    Some(failed.help("what came before it is committed; the next run goes on there"))
}
