//! Puts a pipeline on Kafka together, and runs it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::attempts::Attempts;
use super::checkpoints::Checkpoints;
use super::client::{Clients, ends};
use super::committer::{Committer, Setup};
use super::grown::grown;
use super::inbox::{Judge, KafkaInbox, Settings, Tokens};
use super::member::Member;
use super::needs;
use super::outbox::{KafkaOutbox, Target, Targets, kafka_sink};
use super::raw::keep_freed_memory;
use super::restore::Job;
use super::topics::{Topics, Wanted};
use crate::chain::Chain;
use crate::config::kafka::KafkaSink;
use crate::config::pipeline::Pipeline;
use crate::files::Trouble;
use crate::files::place::StateDir;
use crate::files::sink::Counts;
use crate::ops::Seat;
use crate::plan::Plan;
use crate::stage::Counters;
use crate::task::Task;
use crate::worker::{Ended, Pace, Worker};

/// What a pipeline on Kafka runs with: everything was looked at, nothing is joined yet.
pub struct Means {
    clients: Clients,
    /// Topics of the targets by number, changelogs behind them.
    topics: Vec<String>,
    targets: Targets,
    changelogs: BTreeMap<Arc<str>, usize>,
    partitions: BTreeMap<Arc<str>, u32>,
    exactly_once: bool,
    /// State that is gone is taken for empty.
    accept_loss: bool,
    /// Name of this process, and the directory that holds it while it lives.
    instance: String,
    dir: StateDir,
}

/// What a run did.
pub struct Did {
    /// How it ended.
    pub ended: Ended,
    /// Records that were read and committed.
    pub records: u64,
    /// Duplicates among them, of the tasks that were here at the end.
    pub duplicates: u64,
    /// Records that stages without key dropped, of the same tasks.
    pub filtered: u64,
    /// What left.
    pub counts: Counts,
    /// Commits.
    pub commits: u64,
    /// Counters of the tasks that were here at the end, of all runs: stage, name, count.
    pub stages: BTreeMap<String, BTreeMap<String, u64>>,
}

/// Partitions of the source, if it is one topic.
pub fn partitions(pipeline: &Pipeline, topics: &Topics) -> Result<Option<u32>, Trouble> {
    let (source, _) = ends(pipeline)?;
    let mut found = Vec::new();
    for topic in &source.topics {
        let count = topics.partitions(topic)?.ok_or_else(|| {
            Trouble::new(
                format!("there is no topic {topic} at {}", topics.brokers()),
                "check `source.kafka.topics`, and whether this user may describe it",
            )
        })?;
        found.push(count);
    }
    Ok(match found.as_slice() {
        [one] => u32::try_from(*one).ok(),
        _ => None,
    })
}

impl Means {
    /// The folder that is this process's as long as it runs.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Lets the run begin with empty state where state is gone.
    pub fn accept_loss(&mut self) {
        self.accept_loss = true;
    }

    /// Sees to it that the topics are there and right. `folder`: where processes of this pipeline keep what is theirs.
    pub fn find(plan: &Plan, clients: Clients, topics: &Topics, folder: &Path) -> Result<Means, Trouble> {
        let pipeline = &plan.pipeline;
        let (source, sink) = ends(pipeline)?;
        same_cluster(sink, clients.brokers())?;
        let mut partitions: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        for topic in &source.topics {
            let count = topics.partitions(topic)?.unwrap_or(0);
            partitions.insert(Arc::from(topic.as_str()), u32::try_from(count).unwrap_or(0));
        }
        for (_, sink) in needs::sinks(plan) {
            same_cluster(sink, clients.brokers())?;
        }
        let needs = needs::of(plan, &partitions);
        needs::refuse_missing(&needs, topics)?;
        let mut found: BTreeMap<&str, i32> = BTreeMap::new();
        for need in &needs {
            found.insert(&need.wanted.topic, topics.ensure(&need.wanted)?);
        }
        let mut names: Vec<String> = Vec::new();
        let mut target = |sink: &KafkaSink| -> Result<Target, Trouble> {
            let partitions = found.get(sink.topic.as_str()).copied().unwrap_or(1);
            let topic = names.iter().position(|name| *name == sink.topic).unwrap_or_else(|| {
                names.push(sink.topic.clone());
                names.len() - 1
            });
            Ok(Target { topic, partitions, event_timestamp: sink.event_timestamp })
        };
        let mut route =
            |sink: Option<&crate::config::pipeline::Sink>| sink.map(|sink| target(kafka_sink(sink)?)).transpose();
        let late = route(pipeline.late.as_ref())?;
        let duplicates = route(pipeline.duplicates.as_ref())?;
        let dead = route(pipeline.errors.dead_letter.as_ref())?;
        let main = target(sink)?;
        let (mut changelogs, mut known) = (BTreeMap::new(), partitions.clone());
        for (topic, count) in &partitions {
            let (name, count) = (changelog_topic(&pipeline.name, topic), i32::try_from(*count).unwrap_or(0));
            let needed = found.get(name.as_str()).copied();
            // State of stages that are gone is taken away; one that cannot be taken on is refused when they come back.
            let found = match needed {
                None if pipeline.state.durable => topics.partitions(&name)?.filter(|found| *found >= count),
                needed => needed,
            };
            let Some(found) = found else { continue };
            let wanted = Wanted::changelog(name.clone(), count, pipeline.state.changelog_replication);
            topics.verify_changelog(&wanted, found)?;
            if found < count && source.until.is_some() {
                return Err(grown(topic, u32::try_from(found).unwrap_or(0), count, &name, topics.brokers()));
            }
            known.insert(Arc::clone(topic), u32::try_from(found).unwrap_or(0));
            changelogs.insert(Arc::clone(topic), names.len());
            names.push(name);
        }
        // Of partitions that came later there is no state.
        let partitions = known;
        let given = pipeline.run.instance.as_deref().or(clients.static_id());
        let (instance, dir) = instance(given, folder)?;
        let (targets, exactly_once) = (Targets { main, late, duplicates, dead }, sink.exactly_once);
        let accept_loss = pipeline.state.accept_loss;
        Ok(Means { clients, topics: names, targets, changelogs, partitions, exactly_once, accept_loss, instance, dir })
    }
}

/// Name of the changelog topic of a pipeline for one source topic.
pub fn changelog_topic(pipeline: &str, source: &str) -> String {
    format!("{pipeline}-{source}-changelog")
}

fn same_cluster(sink: &KafkaSink, brokers: &str) -> Result<(), Trouble> {
    match &sink.brokers {
        Some(other) if other != brokers => Err(Trouble::new(
            format!(
                "{} is on another cluster ({other}) than the source ({brokers}): that is not built yet",
                sink.topic
            ),
            "write to a topic of the source's cluster, and leave `brokers` of the sink out",
        )),
        _ => Ok(()),
    }
}

/// The name of this process in transactions. One that is not given is random and kept: after a restart it ends at once
/// what it left open. Two processes on one machine get two.
fn instance(given: Option<&str>, folder: &Path) -> Result<(String, StateDir), Trouble> {
    if let Some(name) = given {
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(legal) {
            return Err(Trouble::new(
                format!("`{name}` is no name of a process"),
                "letters, digits, `_`, `-` and `.` in `run.instance` or `group.instance.id`",
            ));
        }
        let dir = StateDir::open(&folder.join(name)).map_err(|mut trouble| {
            trouble.way_out = format!("a process here has the name {name} already: stop it, or give each its own `run.instance` or `group.instance.id`");
            trouble
        })?;
        return Ok((name.to_owned(), dir));
    }
    let mut last = None;
    for member in 0..64 {
        match StateDir::open(&folder.join(format!("member-{member}"))) {
            Ok(dir) => {
                let file = dir.path().join("instance");
                if let Ok(name) = std::fs::read_to_string(&file)
                    && name.len() == 16
                    && name.bytes().all(|byte| byte.is_ascii_hexdigit())
                {
                    return Ok((name, dir));
                }
                let name = format!("{:016x}", salt());
                std::fs::write(&file, &name).map_err(|error| Trouble::io("write", &file, &error))?;
                return Ok((name, dir));
            }
            Err(trouble) => last = Some(trouble),
        }
    }
    Err(last.unwrap_or_else(|| Trouble::new("there is no state directory", "set `state: { dir: PATH }`")))
}

/// Runs a pipeline until its input ends or somebody stops it.
pub fn work(
    plan: &Arc<Plan>,
    means: Means,
    judge: Judge<'_>,
    stop: Arc<AtomicBool>,
    seat: &Arc<Seat>,
) -> Result<Did, Trouble> {
    keep_freed_memory();
    let (source, _) = ends(&plan.pipeline)?;
    let Means { clients, topics, targets, changelogs, partitions, exactly_once, accept_loss, instance, dir } = means;
    let worker = std::thread::current();
    let member = Member::join(&clients, &source.topics)?;
    let tokens: Tokens = Rc::new(RefCell::new(HashMap::new()));
    let run = &plan.pipeline.run;
    let checkpoints = Checkpoints::below(dir.path());
    let mut committer = Committer::new(Setup {
        clients: clients.clone(),
        transactional: exactly_once.then(|| format!("{}.{instance}.0", plan.pipeline.name)),
        changelogs: changelogs.clone(),
        partitions: partitions.clone(),
        consumer: member.consumer(),
        tokens: Rc::clone(&tokens),
        stop: Arc::clone(&stop),
        checkpoints: Some(checkpoints.clone()),
        patience: Duration::from_nanos(u64::try_from(run.stop).unwrap_or(0)),
        topics: topics.clone(),
    });
    committer.open()?;
    let mut chain = Chain::open(plan, true);
    chain.tell(&|place| seat.watch(place));
    let names = changelogs.iter().filter_map(|(topic, at)| Some((Arc::clone(topic), topics.get(*at)?.clone())));
    let names: BTreeMap<Arc<str>, String> = names.collect();
    let job = |answers| Job {
        clients: clients.clone(),
        changelogs: names,
        partitions,
        checkpoints: Some(checkpoints),
        settings: Arc::new(Task::settings(&chain)),
        start: source.start,
        until: source.until,
        exactly_once,
        accept_loss,
        skip_lost: source.skip_lost,
        pipeline: plan.pipeline.name.clone(),
        places: Vec::new(),
        known: HashMap::new(),
        epoch: 0,
        cancelled: Arc::new(AtomicBool::new(false)),
        answers,
        worker,
    };
    let limits = &plan.pipeline.limits;
    let settings = Settings { rows: limits.batch_rows, bytes: limits.batch_bytes, until: source.until };
    let attempts = Attempts::below(dir.path());
    let mut inbox = KafkaInbox::new(member, settings, attempts, job, tokens, judge, Arc::clone(plan), stop);
    let mut outbox = KafkaOutbox::new(committer, targets, &clients, plan);
    inbox.tell(Arc::clone(seat));
    outbox.tell(Arc::clone(seat));
    let durable = plan.pipeline.state.durable;
    let pace = Pace { commit: run.commit, checkpoint: plan.pipeline.state.checkpoint, flush: !durable };
    let mut worker = Worker::new(&mut chain, &mut inbox, &mut outbox, pace, salt(), Vec::new());
    worker.obey(Arc::clone(seat));
    let ended = worker.run();
    let plan = &worker.plan();
    let mut stages: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let (mut duplicates, mut filtered) = lost(worker.gone().iter());
    for task in worker.tasks() {
        for (stage, counters) in task.counters(plan) {
            let sums = stages.entry(stage).or_default();
            for (name, count) in counters {
                *sums.entry(name).or_default() += count;
            }
        }
        let lost = lost(task.marker().counters.iter());
        (duplicates, filtered) = (duplicates + lost.0, filtered + lost.1);
    }
    let before = inbox.lost_before();
    let (duplicates, filtered) = (duplicates.saturating_sub(before.0), filtered.saturating_sub(before.1));
    inbox.end_well();
    outbox.close_log();
    let did = ended.map(|ended| Did {
        ended,
        records: outbox.records(),
        duplicates,
        filtered,
        counts: outbox.counts(),
        commits: outbox.commits,
        stages,
    });
    // The producer and the member go before the directory that holds their names.
    drop((outbox, inbox));
    drop(dir);
    did
}

/// What stages have dropped: duplicates, and what those without key let fall.
pub fn lost<'a>(counters: impl Iterator<Item = &'a Counters> + Clone) -> (u64, u64) {
    let sum = |name: &str| counters.clone().filter_map(|c| c.0.get(name)).sum();
    (sum("duplicates_dropped"), sum("filtered"))
}

/// A number that nobody can guess.
fn salt() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
