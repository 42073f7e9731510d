//! Where a partition goes on: its committed position with the token, and the state that belongs to exactly that
//! commit, read from the changelog. Runs on a thread of its own; the group is not kept waiting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::Thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer, DefaultConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::changelog::{self, Entry, Marker};
use super::checkpoints::Checkpoints;
use super::client::{Clients, PATIENCE, TRANSACTION_MS};
use super::group::{Place, list};
use super::raw::{self, PartitionQueue};
use super::token::Token;
use crate::config::kafka::{Start, Until};
use crate::files::Trouble;
use crate::keyed::Change;
use crate::task::{Input, Sealed};

/// What is asked for.
#[derive(Clone)]
pub struct Job {
    /// How to reach the cluster.
    pub clients: Clients,
    /// The changelog topic of each source topic; empty: there is no state to restore.
    pub changelogs: BTreeMap<Arc<str>, String>,
    /// Partitions of each source topic when the run began.
    pub partitions: BTreeMap<Arc<str>, u32>,
    /// Where checkpoints are; none: they are not used.
    pub checkpoints: Option<Checkpoints>,
    /// Partitions whose checkpoint was wrong.
    pub distrusted: Vec<Place>,
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
    /// It cannot be.
    Failed(Trouble),
}

/// Where a partition begins.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The partition.
    pub place: Place,
    /// The first offset to read.
    pub offset: i64,
    /// With `until: end`, the offset behind its last record.
    pub end: Option<i64>,
}

/// State as of one commit.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// The token of the commit; none: there was no commit.
    pub token: Option<Token>,
    /// What the commit said.
    pub marker: Option<Marker>,
    /// State of the stages.
    pub states: Vec<Sealed>,
    /// Whether the digests of the marker are those of this state.
    pub exact: bool,
    /// Records that were read.
    pub records: u64,
    /// It began with a checkpoint.
    pub from_checkpoint: bool,
}

/// A partition with its committed position.
pub struct Committed {
    /// The partition.
    pub place: Place,
    /// Its position; none: there is none.
    pub offset: Option<i64>,
    /// The token beside it.
    pub token: Option<Token>,
}

enum Fail {
    Cancelled,
    Trouble(Trouble),
}

impl Fail {
    fn trouble(self) -> Trouble {
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
    pub fn run(self) {
        if let Err(Fail::Trouble(trouble)) = self.find() {
            self.answer(Found::Failed(trouble));
        }
    }

    /// Committed positions, for one who waits for them.
    pub fn ask_committed(&self, reader: &BaseConsumer<DefaultConsumerContext>) -> Result<Vec<Committed>, Trouble> {
        self.committed(reader).map_err(Fail::trouble)
    }

    /// State of a partition up to the end of its changelog, for one who waits for it.
    pub fn restore_all(
        &self,
        reader: &Arc<BaseConsumer<DefaultConsumerContext>>,
        place: &Place,
    ) -> Result<Restored, Trouble> {
        self.restore(reader, place, None).map_err(Fail::trouble)
    }

    /// The offset that `start` means for a partition, for one who waits for it.
    pub fn place_at_start(&self, reader: &BaseConsumer<DefaultConsumerContext>, place: &Place) -> Result<i64, Trouble> {
        let (low, high) = self.watermarks(reader, &place.0, place.1).map_err(Fail::trouble)?;
        self.first(reader, place, low, high).map_err(Fail::trouble)
    }

    fn answer(&self, found: Found) {
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
        let (mut begins, mut later) = (Vec::new(), Vec::new());
        for committed in committed {
            let (begin, restored) = self.begin(&reader, &committed)?;
            begins.push(begin);
            match restored {
                Some(restored) => later.push((committed.place, Some(restored), None)),
                None => later.push((committed.place, None, committed.token)),
            }
        }
        self.answer(Found::Begins(begins));
        for (place, restored, token) in later {
            let restored = match restored {
                Some(restored) => restored,
                None => self.restore(&reader, &place, token.as_ref())?,
            };
            self.answer(Found::State(place, Box::new(restored)));
        }
        Ok(())
    }

    /// Committed positions. While a transaction that will change them is open there is no answer, so ask again.
    fn committed(&self, reader: &BaseConsumer<DefaultConsumerContext>) -> Result<Vec<Committed>, Fail> {
        let began = Instant::now();
        let mut warned = false;
        loop {
            self.go_on()?;
            let ask = list(self.places.iter().map(|place| (place, None)));
            let error = match reader.committed_offsets(ask, Duration::from_secs(1)) {
                Ok(found) if found.elements().iter().all(|e| e.error().is_ok()) => {
                    return Ok(raw::committed(&found).into_iter().map(Committed::of).collect());
                }
                Ok(_) => "no answer for some partitions".to_owned(),
                Err(error) => error.to_string(),
            };
            if !warned && began.elapsed() > Duration::from_secs(10) {
                warned = true;
                tracing::warn!("waiting for the committed positions: {error}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn go_on(&self) -> Result<(), Fail> {
        if self.cancelled.load(Ordering::Relaxed) { Err(Fail::Cancelled) } else { Ok(()) }
    }

    /// Where a partition begins; with its state, if that had to be known for it.
    fn begin(
        &self,
        reader: &Arc<BaseConsumer<DefaultConsumerContext>>,
        committed: &Committed,
    ) -> Result<(Begin, Option<Restored>), Fail> {
        let place = &committed.place;
        let (topic, partition) = place;
        let name = || format!("{topic}/{partition}");
        if let Some(&count) = self.partitions.get(topic)
            && u32::try_from(*partition).is_ok_and(|partition| partition >= count)
            && !self.changelogs.is_empty()
        {
            return Err(Trouble::new(
                format!("partition_count_changed: {topic} had {count} partitions, and now there is {}", name()),
                "keys are in other partitions now: give the stage a new `id` or the pipeline a new `name`, which begins with empty state",
            )
            .into());
        }
        let (low, high) = self.watermarks(reader, topic, *partition)?;
        let mut restored = None;
        let offset = match (committed.offset, &committed.token) {
            (Some(offset), Some(_)) => Some(offset),
            (Some(offset), None) if self.changelogs.is_empty() => Some(offset),
            (offset, _) => {
                let found = self.restore(reader, place, None)?;
                let own = found.marker.as_ref().and_then(|m| next_of(m, place));
                restored = Some(found);
                match (offset, own) {
                    (Some(offset), Some(own)) if offset != own => {
                        return Err(Trouble::new(
                            format!(
                                "offset_tampered: the committed position of {} is {offset}, the state is of {own}",
                                name()
                            ),
                            format!(
                                "decide where to go on: tamis reset {} --to earliest|latest|TIME [--forget]",
                                self.pipeline
                            ),
                        )
                        .into());
                    }
                    (Some(offset), None) if !self.accept_loss => {
                        return Err(Trouble::new(
                            format!("the group has a position in {} ({offset}) that tamis did not commit, and there is no state for it", name()),
                            "use another `source.kafka.group`, or take it over with empty state: `state: { accept_loss: true }`",
                        )
                        .into());
                    }
                    (offset, own) => offset.or(own),
                }
            }
        };
        let offset = match offset {
            Some(offset) => offset,
            None => self.first(reader, place, low, high)?,
        };
        let begin = if offset < low {
            let lost = format!("{} records of {} were removed before they were read", low - offset, name());
            if !self.skip_lost {
                return Err(Trouble::new(
                    format!("{lost} ({offset} to {})", low - 1),
                    "accept it with `source: { kafka: { lost: skip } }`, or read on elsewhere with `tamis reset`",
                )
                .into());
            }
            tracing::warn!(topic = &**topic, partition, from = offset, to = low - 1, "lost: {lost}");
            low
        } else {
            offset
        };
        let end = match self.until {
            Some(Until::End) => Some(self.end(reader, place, begin, high)?),
            _ => None,
        };
        Ok((Begin { place: place.clone(), offset: begin, end }, restored))
    }

    /// The offset behind the last record below `high`; `from`, if there is none from there on. The ends of transactions
    /// take offsets too, and nothing says when a member of a group has passed them.
    fn end(
        &self,
        reader: &Arc<BaseConsumer<DefaultConsumerContext>>,
        place: &Place,
        from: i64,
        high: i64,
    ) -> Result<i64, Fail> {
        let mut back = 16;
        let mut start = high;
        while start > from {
            start = high.saturating_sub(back).max(from);
            back *= 16;
            let last = self.last_record(reader, place, start, high)?;
            if let Some(last) = last {
                return Ok(last + 1);
            }
        }
        Ok(from)
    }

    /// The offset of the last record from `start` to before `high`.
    fn last_record(
        &self,
        reader: &Arc<BaseConsumer<DefaultConsumerContext>>,
        place: &Place,
        start: i64,
        high: i64,
    ) -> Result<Option<i64>, Fail> {
        let waker = Some(std::thread::current());
        let Some(mut queue) = PartitionQueue::open(reader, &place.0, place.1, waker) else { return Ok(None) };
        let trouble =
            |error| Trouble::new(format!("the topic {} cannot be read: {error}", place.0), "check that it is there");
        reader.assign(&list([(place, Some(start))])).map_err(trouble)?;
        let mut last = None;
        loop {
            self.go_on()?;
            let Some(message) = queue.peek(1000) else {
                let _ = reader.poll(Duration::ZERO);
                std::thread::park_timeout(Duration::from_millis(20));
                continue;
            };
            let offset = message.offset();
            match message.error() {
                RDKafkaErrorCode::NoError if offset < high => last = Some(offset),
                RDKafkaErrorCode::NoError => return Ok(last),
                RDKafkaErrorCode::PartitionEOF if offset >= high => return Ok(last),
                // The last of it was removed meanwhile.
                RDKafkaErrorCode::AutoOffsetReset => return Ok(last),
                _ => {}
            }
            queue.pass();
        }
    }

    /// The least offset and the one behind the last record that can be read.
    fn watermarks(
        &self,
        reader: &BaseConsumer<DefaultConsumerContext>,
        topic: &str,
        partition: i32,
    ) -> Result<(i64, i64), Fail> {
        loop {
            self.go_on()?;
            match reader.fetch_watermarks(topic, partition, Duration::from_secs(2)) {
                Ok(found) => return Ok(found),
                Err(error) => tracing::debug!("the offsets of {topic}/{partition}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Where to begin without a committed position.
    fn first(
        &self,
        reader: &BaseConsumer<DefaultConsumerContext>,
        place: &Place,
        low: i64,
        high: i64,
    ) -> Result<i64, Fail> {
        let at = match self.start {
            Start::Earliest => return Ok(low),
            Start::Latest => return Ok(high),
            Start::At(at) => at.div_euclid(1_000_000) + i64::from(at.rem_euclid(1_000_000) > 0),
        };
        let found = reader.offsets_for_times(list([(place, Some(at))]), PATIENCE).map_err(|error| {
            Trouble::new(format!("no offset for the time in `start`: {error}"), "check the instant, and run again")
        })?;
        let offset = found.elements().first().map(|e| e.offset());
        Ok(match offset {
            Some(Offset::Offset(offset)) => offset,
            // Nothing is that late.
            _ => high,
        })
    }

    /// Reads the changelog of a partition up to a token; without one, to its end.
    fn restore(
        &self,
        reader: &Arc<BaseConsumer<DefaultConsumerContext>>,
        place: &Place,
        token: Option<&Token>,
    ) -> Result<Restored, Fail> {
        let Some(changelog) = self.changelogs.get(&place.0) else {
            return Ok(Restored { token: token.cloned(), exact: true, ..Restored::default() });
        };
        let wanted = token.filter(|_| self.exactly_once && self.clients.guards.token).map(ToString::to_string);
        let partition = place.1;
        let Some(mut queue) = PartitionQueue::open(reader, changelog, partition, Some(std::thread::current())) else {
            return Err(
                Trouble::new(format!("`{changelog}` is no topic name"), "give the pipeline another `name`").into()
            );
        };
        let mut reading = self.begin_reading(reader, changelog, place);
        if wanted.is_some() && reading.marker.as_ref().map(|m| &m.token) == wanted.as_ref() {
            // The checkpoint is of the last commit.
            return Ok(reading.done());
        }
        let mut from = TopicPartitionList::new();
        let start = reading.start.map_or(Offset::Beginning, Offset::Offset);
        // Offsets that are numbers or words can always be set.
        let _ = from.add_partition_offset(changelog, partition, start);
        reader.assign(&from).map_err(|error| {
            Trouble::new(format!("the changelog {changelog} cannot be read: {error}"), "check that it is there")
        })?;
        let mut deadline = None;
        let done = loop {
            self.go_on()?;
            let Some(message) = queue.peek(1000) else {
                let _ = reader.poll(Duration::ZERO);
                if deadline.is_some_and(|at| Instant::now() > at) {
                    break false;
                }
                std::thread::park_timeout(Duration::from_millis(20));
                continue;
            };
            match message.error() {
                RDKafkaErrorCode::NoError => {
                    let read = reading.take(message.key(), message.value());
                    read.map_err(|why| {
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
            queue.pass();
            if wanted.is_some() && reading.marker.as_ref().map(|m| &m.token) == wanted.as_ref() {
                break true;
            }
        };
        drop(queue);
        let restored = reading.done();
        if done {
            return Ok(restored);
        }
        match &restored.marker {
            None if self.accept_loss => {
                tracing::warn!("the changelog {changelog}/{partition} has no state: it begins empty, as `accept_loss` says");
                Ok(Restored { token: token.cloned(), exact: true, ..Restored::default() })
            }
            None => Err(Trouble::new(
                format!("state_mismatch: {}/{partition} has a committed position, and its changelog {changelog} has no state", place.0),
                "the changelog was deleted: put it back, begin anew with `tamis reset`, or accept empty state with `state: { accept_loss: true }`",
            )
            .into()),
            Some(marker) => Err(Trouble::new(
                format!(
                    "state_mismatch: the position of {}/{partition} was committed with {}, the changelog {changelog} ends with {}",
                    place.0,
                    wanted.unwrap_or_default(),
                    marker.token
                ),
                "the changelog lost records: put them back, or begin anew with `tamis reset`",
            )
            .into()),
        }
    }

    /// What a checkpoint knows, if there is one that may be used.
    fn begin_reading(&self, reader: &BaseConsumer<DefaultConsumerContext>, changelog: &str, place: &Place) -> Reading {
        let checkpoints = self.checkpoints.as_ref().filter(|_| !self.distrusted.contains(place));
        let Some(found) = checkpoints.and_then(|checkpoints| checkpoints.read(changelog, place)) else {
            return Reading::default();
        };
        let range = reader.fetch_watermarks(changelog, place.1, PATIENCE);
        if !range.is_ok_and(|(low, high)| (low..=high).contains(&found.offset)) {
            // The changelog is not the one it was made from.
            return Reading::default();
        }
        Reading {
            marker: Some(Box::new(found.marker)),
            states: found.states.into_iter().map(|sealed| (sealed.stage, sealed.changes)).collect(),
            start: Some(found.offset),
            ..Reading::default()
        }
    }

    /// Whether nothing stands behind this offset, of open transactions neither.
    fn is_all(&self, topic: &str, partition: i32, end: i64) -> bool {
        let client = self.clients.uncommitted_reader().create::<BaseConsumer<DefaultConsumerContext>>();
        let high = client.and_then(|client| client.fetch_watermarks(topic, partition, Duration::from_secs(5)));
        high.is_ok_and(|(_, high)| high <= end)
    }
}

/// A changelog while it is read.
#[derive(Default)]
struct Reading {
    marker: Option<Box<Marker>>,
    states: BTreeMap<String, Vec<Change>>,
    /// Changes came behind the last marker.
    torn: bool,
    records: u64,
    /// Where reading begins; none: at the beginning.
    start: Option<i64>,
}

impl Reading {
    fn take(&mut self, key: Option<&[u8]>, value: Option<&[u8]>) -> Result<(), String> {
        self.records += 1;
        match changelog::read(key, value).map_err(|foreign| foreign.0)? {
            Entry::Marker(marker) => {
                self.marker = Some(marker);
                self.torn = false;
            }
            Entry::Change { stage, change } => {
                self.torn = true;
                match self.states.get_mut(stage) {
                    Some(changes) => changelog::collect(changes, change),
                    None => drop(self.states.insert(stage.to_owned(), vec![change])),
                }
            }
        }
        Ok(())
    }

    fn done(mut self) -> Restored {
        let marker = self.marker.map(|marker| *marker);
        let mut states = Vec::new();
        for stage in marker.iter().flat_map(|marker| &marker.stages) {
            let (born, set) = stage.numbers;
            let mut changes = vec![Change::Numbers { born, set }];
            changes.extend(self.states.remove(&stage.stage).unwrap_or_default());
            states.push(Sealed { stage: stage.stage.clone(), identity: stage.identity.clone(), changes });
        }
        Restored {
            token: marker.as_ref().and_then(|marker| Token::parse(marker.token.as_bytes())),
            marker,
            states,
            exact: !self.torn,
            records: self.records,
            from_checkpoint: self.start.is_some(),
        }
    }
}

fn no_client(error: rdkafka::error::KafkaError) -> Trouble {
    let why = super::settings::plain(&error);
    Trouble::new(format!("the Kafka client cannot be made: {why}"), "check `source.kafka.properties`")
}

impl Committed {
    fn of((topic, partition, offset, metadata): (String, i32, i64, Vec<u8>)) -> Committed {
        let (offset, token) = ((offset >= 0).then_some(offset), Token::parse(&metadata));
        Committed { place: (Arc::from(topic.as_str()), partition), token: token.filter(|_| offset.is_some()), offset }
    }
}

fn next_of(marker: &Marker, (topic, partition): &Place) -> Option<i64> {
    let is = |input: &Input| input.topic == *topic && input.partition == *partition;
    marker.next.iter().find(|(input, _)| is(input)).map(|(_, next)| *next)
}
