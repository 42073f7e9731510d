//! Moves a pipeline to another place in its input, with the state it has or without: positions, markers and what is
//! taken away change in one transaction, while nobody runs it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;

use rdkafka::consumer::{BaseConsumer, Consumer, DefaultConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::changelog::{self, MARKER_KEY, Marker};
use super::client::{Clients, PATIENCE, ends};
use super::committer::{hand_over, nonce, stages};
use super::group::Place as Partition;
use super::grown::grown;
use super::inbox::Judge;
use super::raw::{Fault, GroupMetadata, Producer, Record};
use super::reading::Restored;
use super::restore::Job;
use super::run::changelog_topic;
use super::token::Token;
use super::topics::Topics;
use crate::chain::Chain;
use crate::config::kafka::Start;
use crate::files::Trouble;
use crate::keyed::{Change, Layout};
use crate::plan::Plan;
use crate::task::{Input, Sealed, Task};
use crate::worker::orders;

/// How long the transaction of a reset may take, ms: all state may be in it.
const PATIENCE_MS: i64 = 300_000;

const KEY: &str = "`--value`, `--key` and `--header` are what the source has, before anything is decoded";

/// What became of one partition.
#[derive(Clone, Debug)]
pub struct Moved {
    /// The partition.
    pub place: Partition,
    /// Its position before; none: it had none.
    pub from: Option<i64>,
    /// Its position now.
    pub to: i64,
    /// Entries and marks that are kept.
    pub entries: u64,
    /// Entries and marks that are gone.
    pub forgotten: u64,
}

/// Where a pipeline is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// There.
    To(Start),
    /// Where it stands; partitions that it has not begun with are left out.
    Same,
}

/// What of its state is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forget {
    /// Nothing.
    Nothing,
    /// Everything.
    All,
    /// What is known of the keys of this record, an envelope.
    Key(String),
}

/// Moves every partition of a pipeline's source to `to`, and takes away what is to be forgotten. `judge` says whether
/// what is kept fits the plan.
pub fn reset(
    plan: &Arc<Plan>,
    clients: &Clients,
    topics: &Topics,
    to: Place,
    forget: &Forget,
    judge: &Judge<'_>,
) -> Result<Vec<Moved>, Trouble> {
    let pipeline = &plan.pipeline;
    let (source, _) = ends(pipeline)?;
    let reader: BaseConsumer<DefaultConsumerContext> = clients.reader().create().map_err(|error| {
        Trouble::new(
            format!("the Kafka client cannot be made: {}", super::settings::plain(&error)),
            "check `source.kafka.properties`",
        )
    })?;
    let reader = Arc::new(reader);
    nobody_runs(&reader, clients)?;
    let stateful = pipeline.state.durable && plan.stages.iter().any(|stage| stage.key.is_some());
    let (mut places, mut changelogs): (Vec<Partition>, BTreeMap<Arc<str>, String>) = Default::default();
    let mut counts: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    for topic in &source.topics {
        let name: Arc<str> = Arc::from(topic.as_str());
        let missing = || Trouble::new(format!("there is no topic {topic}"), "check `source.kafka.topics`");
        let count = topics.partitions(topic)?.ok_or_else(missing)?;
        places.extend((0..count).map(|partition| (Arc::clone(&name), partition)));
        let changelog = changelog_topic(&pipeline.name, topic);
        if let (true, Some(known)) = (stateful, topics.partitions(&changelog)?) {
            if known < count {
                return Err(grown(topic, known.unsigned_abs(), count, &changelog, clients.brokers()));
            }
            changelogs.insert(Arc::clone(&name), changelog);
        }
        counts.insert(name, u32::try_from(count).unwrap_or(0));
    }
    let mut chain = Chain::open(plan, true);
    let (answers, _unheard) = channel();
    let job = Job {
        clients: clients.clone(),
        changelogs: changelogs.clone(),
        partitions: counts.clone(),
        checkpoints: None,
        settings: Arc::new(Task::settings(&chain)),
        start: if let Place::To(start) = to { start } else { source.start },
        until: None,
        exactly_once: false,
        accept_loss: true,
        skip_lost: true,
        pipeline: pipeline.name.clone(),
        places: places.clone(),
        known: HashMap::new(),
        epoch: 0,
        cancelled: Arc::new(AtomicBool::new(false)),
        answers,
        worker: std::thread::current(),
    };
    let names: Vec<String> = changelogs.values().cloned().collect();
    let mut config = clients.producer(Some(&format!("{}.reset", pipeline.name)));
    config.set("transaction.timeout.ms", PATIENCE_MS.to_string());
    let mut producer = Producer::new(&config, &names).map_err(trouble)?;
    until_done(&mut producer, |producer| producer.init_transactions(500))?;
    producer.begin().map_err(trouble)?;
    let mut offsets = TopicPartitionList::new();
    let mut moved = Vec::new();
    for committed in job.ask_committed(&reader)? {
        let place = committed.place;
        let offset = match (to, committed.offset) {
            (Place::To(_), _) => job.place_at_start(&reader, &place)?,
            (Place::Same, Some(offset)) => offset,
            (Place::Same, None) => continue,
        };
        let restored = job.restore_all(&reader, &place)?;
        let made_with = restored.marker.iter().flat_map(|marker| &marker.stages);
        let made_with = made_with.filter_map(|s| Some((s.stage.clone(), serde_json::from_str(&s.identity).ok()?)));
        if *forget != Forget::All {
            judge(plan, &made_with.collect())?;
        }
        let number = changelogs.get(&place.0).and_then(|name| names.iter().position(|n| n == name));
        let partitions = counts.get(&place.0).copied().unwrap_or(0);
        let keeps_time = to == Place::Same;
        let mut next = Next { plan, place: &place, offset, partitions, changelog: number, keeps_time };
        let (token, entries, forgotten) = next.write(&mut producer, &mut chain, restored, forget)?;
        let mut element = offsets.add_partition(&place.0, place.1);
        element.set_offset(Offset::Offset(offset)).map_err(|error| {
            Trouble::new(format!("the offset {offset} cannot be set: {error}"), "name another place with `--to`")
        })?;
        element.set_metadata(token.to_string());
        moved.push(Moved { place, from: committed.offset, to: offset, entries, forgotten });
    }
    if moved.is_empty() {
        // Dropping the producer ends the transaction, in which there is nothing.
        return Ok(moved);
    }
    while !producer.flush(100) {
        if let Some(fault) = producer.failed() {
            return Err(trouble(fault.clone()));
        }
    }
    let group = GroupMetadata::outside(&clients.group)
        .ok_or_else(|| Trouble::new("the group has no name", "set `source.kafka.group`"))?;
    until_done(&mut producer, |producer| producer.send_offsets(&offsets, &group, 1000))?;
    until_done(&mut producer, |producer| producer.commit(20))?;
    Ok(moved)
}

/// What a partition goes on with.
struct Next<'a> {
    plan: &'a Plan,
    place: &'a Partition,
    offset: i64,
    partitions: u32,
    changelog: Option<usize>,
    /// Its positions and watermarks go on, whatever is forgotten.
    keeps_time: bool,
}

impl Next<'_> {
    /// Writes what is taken away and the marker; gives the token, how much is kept and how much is gone.
    fn write(
        &mut self,
        producer: &mut Producer,
        chain: &mut Chain,
        restored: Restored,
        forget: &Forget,
    ) -> Result<(Token, u64, u64), Trouble> {
        let input = Input { topic: Arc::clone(&self.place.0), partition: self.place.1 };
        let sequence = restored.token.map_or(0, |token| token.sequence) + 1;
        let fresh = |chain: &mut Chain| Task::new(chain, vec![input.clone()], nonce(), 0);
        let mut task = match restored.marker {
            Some(marker) if *forget != Forget::All => Task::with(chain, marker.task, 0),
            // Where reading goes on and how far time has got stays; only state goes.
            Some(marker) if self.keeps_time => Task::with(chain, marker.task, 0),
            _ => fresh(chain),
        };
        let (mut gone, mut forgotten) = (Vec::new(), 0);
        for (stage, keyed) in restored.states {
            if *forget == Forget::All {
                forgotten += keyed.stats().marks + keyed.stats().entries;
                let changes = keyed.dump().into_iter().filter_map(taken_away).collect();
                gone.push(Sealed { stage, changes, layout: keyed.layout(), ..Sealed::default() });
            } else {
                task.adopt(self.plan, &stage, keyed);
            }
        }
        if *forget == Forget::All {
            // Of spaces that were dropped, too; else the next run takes that away.
            gone.extend(restored.outside.dead);
            let sheaves = restored.outside.sheaves.into_iter();
            gone.extend(sheaves.map(|(stage, sheaves)| Sealed { stage, sheaves, ..Sealed::default() }));
        }
        if let Forget::Key(record) = forget {
            let freed = orders::forget(self.plan, chain, std::slice::from_mut(&mut task), Some(record));
            forgotten = freed.map_err(|why| Trouble::new(format!("the record has no key: {why}"), KEY))?.iter().sum();
        }
        let dumped = task.seal(self.plan);
        let token = Token {
            sequence,
            nonce: nonce(),
            watermark: task.marker().event.now().time,
            entries: task.entries(),
            digest: task.digest(),
        };
        let Some(topic) = self.changelog else { return Ok((token, 0, 0)) };
        let marker = Marker {
            token: token.to_string(),
            next: vec![(input, self.offset)],
            partitions: self.partitions,
            task: task.marker().clone(),
            stages: stages(&dumped, &task.sums(self.plan)),
        };
        let marker = changelog::write_marker(&marker)
            .map_err(|error| Trouble::new(format!("the marker cannot be written: {error}"), "report this"))?;
        let mut failed = None;
        let mut put = |key: &[u8], value: Option<&[u8]>| {
            let (key, timestamp, headers) = (Some(key), 0, &[][..]);
            let record = Record { topic, partition: self.place.1, key, value, lent: None, timestamp, headers };
            failed = failed.take().or_else(|| hand_over(producer, &record).err());
        };
        for sealed in &gone {
            // A sheaf that nobody knows of must not come back.
            if sealed.layout != Layout::Single {
                changelog::floor(&sealed.stage, sequence, &mut put);
            }
            changelog::burials(sealed, &mut put);
        }
        dumped.iter().for_each(|sealed| changelog::records(sealed, sequence, || None, &mut put));
        put(MARKER_KEY, Some(&marker));
        match failed {
            Some(fault) => Err(trouble(fault)),
            None => Ok((token, task.entries(), forgotten)),
        }
    }
}

/// The change that takes away what another put there.
fn taken_away(change: Change) -> Option<Change> {
    match change {
        Change::Marks { space, marks } => {
            Some(Change::Marks { space, marks: marks.into_iter().map(|(hash, _)| (hash, None)).collect() })
        }
        Change::Entry { space, key, .. } => Some(Change::Entry { space, key, entry: None }),
        Change::Drop { .. } | Change::Numbers { .. } => None,
    }
}

/// Positions of a group that somebody is a member of are his.
fn nobody_runs(reader: &BaseConsumer<DefaultConsumerContext>, clients: &Clients) -> Result<(), Trouble> {
    let list = reader.fetch_group_list(Some(&clients.group), PATIENCE).map_err(|error| {
        Trouble::new(
            format!("the group {} cannot be asked for: {error}", clients.group),
            "check `source.kafka.brokers`",
        )
    })?;
    let members: usize = list.groups().iter().map(|group| group.members().len()).sum();
    match members {
        0 => Ok(()),
        _ => Err(Trouble::new(
            format!("the group {} has {members} members", clients.group),
            "stop every process that runs the pipeline; one that was killed counts until its session ends",
        )),
    }
}

/// Calls again while the answer is that it may be done later.
fn until_done(
    producer: &mut Producer,
    mut call: impl FnMut(&mut Producer) -> Result<(), Fault>,
) -> Result<(), Trouble> {
    loop {
        producer.serve(0);
        match call(producer) {
            Err(fault) if fault.retriable => std::thread::sleep(std::time::Duration::from_millis(10)),
            Err(fault) => return Err(trouble(fault)),
            Ok(()) => return Ok(()),
        }
    }
}

fn trouble(fault: Fault) -> Trouble {
    let way_out = match fault.code {
        RDKafkaErrorCode::UnknownMemberId | RDKafkaErrorCode::IllegalGeneration => {
            "stop every process that runs the pipeline"
        }
        _ => "nothing was changed: put the cause right, and run it again",
    };
    Trouble::new(format!("Kafka did not take the reset: {fault}"), way_out)
}
