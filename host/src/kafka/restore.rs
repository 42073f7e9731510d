//! Where a partition goes on: its committed position with the token, and the state that belongs to exactly that
//! commit, read from the changelog. Runs on a thread of its own; the group is not kept waiting.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer, DefaultConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

pub use super::begins::Begin;
use super::checkpoints::Checkpoints;
use super::client::{Clients, PATIENCE, TRANSACTION_MS};
use super::group::Place;
use super::raw::{self, PartitionQueue};
use super::reading::{Reading, Restored};
use super::token::{Known, Token};
use crate::config::kafka::{Start, Until};
use crate::files::Trouble;
use crate::keyed::Settings;
use crate::worker::Became;

/// Partitions that are restored at once, at most: each reader holds records that it has fetched.
const AT_ONCE: usize = 4;

/// What is asked for.
#[derive(Clone)]
pub struct Job {
    /// How to reach the cluster.
    pub clients: Clients,
    /// The changelog topic of each source topic; empty: there is no state to restore.
    pub changelogs: BTreeMap<Arc<str>, String>,
    /// Partitions of each source topic that there may be state for; of one without state, those when the run began.
    pub partitions: BTreeMap<Arc<str>, u32>,
    /// Where checkpoints are; none: they are not used.
    pub checkpoints: Option<Checkpoints>,
    /// What the state of each stage keeps to.
    pub settings: Arc<BTreeMap<String, Settings>>,
    /// Where to begin without a committed position.
    pub start: Start,
    /// Where the input ends.
    pub until: Option<Until>,
    /// Positions are in the transaction of the state; else the changelog may be ahead of them.
    pub exactly_once: bool,
    /// A changelog that is gone means empty state.
    pub accept_loss: bool,
    /// What retention removed is passed over.
    pub skip_lost: bool,
    /// Name of the pipeline, for ways out.
    pub pipeline: String,
    /// The partitions.
    pub places: Vec<Place>,
    /// What this process knows of the commits of some.
    pub known: HashMap<Place, Known>,
    /// Number of the request; answers carry it.
    pub epoch: u64,
    /// Nobody waits for the answer any more.
    pub cancelled: Arc<AtomicBool>,
    /// Where the answers go.
    pub answers: Sender<Answer>,
    /// Woken with each of them.
    pub worker: Thread,
}

/// An answer, with the number of its request.
pub struct Answer(pub u64, pub Found);

/// What was found.
pub enum Found {
    /// Where each partition begins.
    Begins(Vec<Begin>),
    /// The state of one of them.
    State(Place, Box<Restored>),
    /// The state that this process has of one of them is the right one, after what became of its last commit; and the token
    /// of it.
    Kept(Place, Became, Token),
    /// State of a partition is being read: so many records were, and about so many are left.
    Progress(Place, u64, i64),
    /// Partitions that are new, with keys that were elsewhere before; and what can be done about it.
    Grown(Vec<Place>, Trouble),
    /// It cannot be.
    Failed(Trouble),
}

/// Why there is no answer.
pub(super) enum Fail {
    /// Nobody waits for it.
    Cancelled,
    /// It cannot be.
    Trouble(Trouble),
}

impl Fail {
    /// For one who waits.
    pub(super) fn trouble(self) -> Trouble {
        match self {
            Fail::Trouble(trouble) => trouble,
            Fail::Cancelled => Trouble::new("it was cancelled", "run it again"),
        }
    }
}

impl From<Trouble> for Fail {
    fn from(trouble: Trouble) -> Fail {
        Fail::Trouble(trouble)
    }
}

impl Job {
    /// Does it.
    pub fn run(mut self) {
        if !self.set_grown_aside() {
            return;
        }
        if let Err(Fail::Trouble(trouble)) = self.find() {
            self.answer(Found::Failed(trouble));
        }
    }

    /// State of a partition up to the end of its changelog, for one who waits for it.
    pub fn restore_all(
        &self,
        reader: &Arc<BaseConsumer<DefaultConsumerContext>>,
        place: &Place,
    ) -> Result<Restored, Trouble> {
        self.restore(reader, place, None).map_err(Fail::trouble)
    }

    pub(super) fn answer(&self, found: Found) {
        // A worker that has gone needs no answer.
        let _ = self.answers.send(Answer(self.epoch, found));
        self.worker.unpark();
    }

    fn find(&self) -> Result<(), Fail> {
        let reader: BaseConsumer<DefaultConsumerContext> = self.clients.reader().create().map_err(no_client)?;
        let reader = Arc::new(reader);
        // Knowing the topics before the first fetch saves half a second.
        for (topic, changelog) in &self.changelogs {
            let _ = reader.fetch_metadata(Some(topic), PATIENCE);
            let _ = reader.fetch_metadata(Some(changelog), PATIENCE);
        }
        let committed = match self.clients.guards.stable {
            true => self.committed(&reader)?,
            // Such a reader is told positions that a transaction is about to change.
            false => self.committed(&self.clients.uncommitted_reader().create().map_err(no_client)?)?,
        };
        let (mut begins, mut kept, mut later) = (Vec::new(), Vec::new(), Vec::new());
        for committed in committed {
            let became = self.became(&committed);
            let (begin, restored) = self.begin(&reader, &committed, became.is_some())?;
            begins.push(begin);
            match (became, restored) {
                (Some(became), _) => kept.push((committed.place, became, committed.token.unwrap_or_default())),
                (None, Some(restored)) => later.push((committed.place, Some(restored), None)),
                (None, None) => later.push((committed.place, None, committed.token)),
            }
        }
        self.answer(Found::Begins(begins));
        for (place, became, token) in kept {
            self.answer(Found::Kept(place, became, token));
        }
        self.restore_each(&reader, later)
    }

    /// Restores partitions, some at once: what one of them waits for, its changelog or memory, leaves the others time. Each
    /// answer leaves when it is there.
    fn restore_each(
        &self,
        reader: &Arc<BaseConsumer<DefaultConsumerContext>>,
        all: Vec<(Place, Option<Restored>, Option<Token>)>,
    ) -> Result<(), Fail> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let others = all.iter().filter(|(_, restored, _)| restored.is_none()).count().min(cores).min(AT_ONCE);
        let (left, stop) = (Mutex::new(all.into_iter()), AtomicBool::new(false));
        let work = |reader: &Arc<BaseConsumer<DefaultConsumerContext>>| -> Result<(), Fail> {
            while !stop.load(Ordering::Relaxed) {
                let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((place, restored, token)) = next else { break };
                let restored = match restored {
                    Some(restored) => Ok(restored),
                    None => self.restore(reader, &place, token.as_ref()),
                };
                let restored = restored.inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
                self.answer(Found::State(place, Box::new(restored)));
            }
            Ok(())
        };
        let log = tracing::dispatcher::get_default(Clone::clone);
        std::thread::scope(|scope| {
            let other = || {
                let reader = Arc::new(self.clients.reader().create().map_err(no_client)?);
                tracing::dispatcher::with_default(&log, || work(&reader))
            };
            let name = || std::thread::Builder::new().name("restore".to_owned());
            // Without a thread more it takes longer.
            let threads: Vec<_> = (1..others).filter_map(|_| name().spawn_scoped(scope, other).ok()).collect();
            let first = work(reader);
            let ended = threads.into_iter().filter_map(|thread| thread.join().ok());
            ended.fold(first, Result::and)
        })
    }

    /// Whether somebody still waits.
    pub(super) fn go_on(&self) -> Result<(), Fail> {
        if self.cancelled.load(Ordering::Relaxed) { Err(Fail::Cancelled) } else { Ok(()) }
    }

    /// The state of a partition up to a token; without one, to the end of its changelog. A checkpoint shortens that; what
    /// comes of one and cannot be proved is thrown away with it.
    pub(super) fn restore(
        &self,
        reader: &Arc<BaseConsumer<DefaultConsumerContext>>,
        place: &Place,
        token: Option<&Token>,
    ) -> Result<Restored, Fail> {
        let Some(changelog) = self.changelogs.get(&place.0) else {
            return Ok(Restored { token: token.cloned(), exact: true, ..Restored::default() });
        };
        let Some(checkpoints) = &self.checkpoints else {
            return self
                .read(reader, changelog, place, token, Reading::new(Arc::clone(&self.settings)))
                .map(Reading::done);
        };
        let mut reading = Reading::new(Arc::clone(&self.settings));
        let range = reader.fetch_watermarks(changelog, place.1, PATIENCE);
        let is_in = |offset: i64| range.as_ref().is_ok_and(|(low, high)| (*low..=*high).contains(&offset));
        if checkpoints.read(changelog, place, is_in, &mut reading) {
            match self.read(reader, changelog, place, token, reading) {
                Ok(reading) if reading.is_proved() || !self.clients.guards.digest => return Ok(reading.done()),
                Ok(_) => tracing::warn!(
                    "the checkpoint of {}/{} does not do: its changelog is read from the beginning",
                    place.0,
                    place.1
                ),
                Err(Fail::Cancelled) => return Err(Fail::Cancelled),
                Err(Fail::Trouble(why)) => tracing::warn!("the checkpoint of {}/{} is wrong: {why}", place.0, place.1),
            }
            checkpoints.delete(place);
        }
        self.read(reader, changelog, place, token, Reading::new(Arc::clone(&self.settings))).map(Reading::done)
    }

    /// Reads a changelog on, up to a token; without one, to its end.
    fn read(
        &self,
        reader: &Arc<BaseConsumer<DefaultConsumerContext>>,
        changelog: &str,
        place: &Place,
        token: Option<&Token>,
        mut reading: Reading,
    ) -> Result<Reading, Fail> {
        let wanted = token.filter(|_| self.exactly_once && self.clients.guards.token).map(ToString::to_string);
        let partition = place.1;
        let Some(mut queue) = PartitionQueue::open(reader, changelog, partition, Some(std::thread::current())) else {
            return Err(
                Trouble::new(format!("`{changelog}` is no topic name"), "give the pipeline another `name`").into()
            );
        };
        let reached = |reading: &Reading| wanted.as_ref().is_some_and(|wanted| reading.is_at(wanted));
        if reached(&reading) {
            // The checkpoint is of the last commit.
            return Ok(reading);
        }
        let mut from = TopicPartitionList::new();
        let start = reading.start().map_or(Offset::Beginning, Offset::Offset);
        // Offsets that are numbers or words can always be set.
        let _ = from.add_partition_offset(changelog, partition, start);
        reader.assign(&from).map_err(|error| {
            Trouble::new(format!("the changelog {changelog} cannot be read: {error}"), "check that it is there")
        })?;
        let mut deadline = None;
        let (mut count, mut told) = (0u64, Instant::now());
        let done = loop {
            let Some(message) = queue.peek(1000) else {
                self.go_on()?;
                let _ = reader.poll(Duration::ZERO);
                if deadline.is_some_and(|at| Instant::now() > at) {
                    break false;
                }
                std::thread::park_timeout(Duration::from_millis(20));
                continue;
            };
            let mut is_marker = false;
            match message.error() {
                RDKafkaErrorCode::NoError => {
                    let read = reading.take(message.key(), message.value());
                    is_marker = read.map_err(|why| {
                        Trouble::new(
                            format!(
                                "the record {} of {changelog}/{partition} is not of a changelog: {why}",
                                message.offset()
                            ),
                            "somebody else wrote there: give the pipeline another `name`",
                        )
                    })?;
                }
                RDKafkaErrorCode::PartitionEOF => {
                    let end = message.offset();
                    if wanted.is_none() || self.is_all(changelog, partition, end) {
                        break wanted.is_none();
                    }
                    // Something is still open: a commit whose end has not been written to this partition yet.
                    deadline = Some(Instant::now() + Duration::from_millis(TRANSACTION_MS as u64 + 15_000));
                }
                code => tracing::debug!("the changelog {changelog}/{partition}: {code}"),
            }
            count += 1;
            // Ends of transactions take offsets, too: about as many are left.
            if count.is_multiple_of(4_096) && told.elapsed() > Duration::from_secs(1) {
                told = Instant::now();
                let end = raw::high_watermark(reader, changelog, partition).unwrap_or_default();
                self.answer(Found::Progress(place.clone(), count, end - message.offset()));
            }
            queue.pass();
            if is_marker {
                self.go_on()?;
                if reached(&reading) {
                    break true;
                }
            }
        };
        // Without transactions the changelog may be ahead of the position, and never behind it: state is written first.
        let behind = |token: &Token| !self.exactly_once && !reading.has_come_to(token);
        if done && !token.is_some_and(behind) {
            return Ok(reading);
        }
        match reading.token() {
            None if self.accept_loss => {
                tracing::warn!("the changelog {changelog}/{partition} has no state: it begins empty, as was accepted");
                Ok(Reading::empty(token.cloned()))
            }
            None => Err(Trouble::new(
                format!("state_mismatch: {}/{partition} has a committed position, and its changelog {changelog} has no state", place.0),
                "the changelog was deleted: put it back, begin anew with `tamis reset`, or accept empty state this once with `tamis run --accept-state-loss` (`state: { accept_loss: true }` accepts it always); where no stage had state before, nothing is lost by that",
            )
            .into()),
            Some(last) => Err(Trouble::new(
                format!(
                    "state_mismatch: the position of {}/{partition} was committed with {}, the changelog {changelog} ends with {last}",
                    place.0,
                    token.map(ToString::to_string).unwrap_or_default(),
                ),
                "the changelog lost records: put them back, or begin anew with `tamis reset`",
            )
            .into()),
        }
    }

    /// Whether nothing stands behind this offset, of open transactions neither.
    fn is_all(&self, topic: &str, partition: i32, end: i64) -> bool {
        let client = self.clients.uncommitted_reader().create::<BaseConsumer<DefaultConsumerContext>>();
        let high = client.and_then(|client| client.fetch_watermarks(topic, partition, Duration::from_secs(5)));
        high.is_ok_and(|(_, high)| high <= end)
    }
}

fn no_client(error: rdkafka::error::KafkaError) -> Trouble {
    let why = super::settings::plain(&error);
    Trouble::new(format!("the Kafka client cannot be made: {why}"), "check `source.kafka.properties`")
}
