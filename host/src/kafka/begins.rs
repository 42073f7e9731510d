//! Where partitions begin: at their committed positions, or where the file says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, Consumer, DefaultConsumerContext};
use rdkafka::error::RDKafkaErrorCode;

use super::changelog::Marker;
use super::client::PATIENCE;
use super::group::{Place, list};
use super::raw::{self, PartitionQueue};
use super::reading::Restored;
use super::restore::{Fail, Job};
use super::token::Token;
use crate::config::kafka::{Start, Until};
use crate::files::Trouble;
use crate::task::Input;
use crate::worker::Became;

/// Where a partition begins.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The partition.
    pub place: Place,
    /// The first offset to read.
    pub offset: i64,
    /// With `until: end`, the offset behind its last record.
    pub end: Option<i64>,
    /// Records that were removed before they were read.
    pub lost: i64,
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

impl Job {
    /// Committed positions, for one who waits for them.
    pub fn ask_committed(&self, reader: &BaseConsumer<DefaultConsumerContext>) -> Result<Vec<Committed>, Trouble> {
        self.committed(reader).map_err(Fail::trouble)
    }

    /// The offset that `start` means for a partition, for one who waits for it.
    pub fn place_at_start(&self, reader: &BaseConsumer<DefaultConsumerContext>, place: &Place) -> Result<i64, Trouble> {
        let (low, high) = self.watermarks(reader, &place.0, place.1).map_err(Fail::trouble)?;
        self.first(reader, place, low, high).map_err(Fail::trouble)
    }

    /// Committed positions. While a transaction that will change them is open there is no answer, so ask again.
    pub(super) fn committed(&self, reader: &BaseConsumer<DefaultConsumerContext>) -> Result<Vec<Committed>, Fail> {
        if self.places.is_empty() {
            return Ok(Vec::new());
        }
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
            serve(reader);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What became of the last commit of a task that this process knows; none: it does not know the task, or somebody else
    /// has committed since.
    pub(super) fn became(&self, committed: &Committed) -> Option<Became> {
        let known = self.known.get(&committed.place)?;
        // A position without a token, that was not there before, is somebody else's.
        let is_ours = committed.token.is_some() || committed.offset.is_none_or(|offset| offset == known.begin);
        known.became(committed.token.as_ref()).filter(|_| is_ours)
    }

    /// Where a partition begins; with its state, if that had to be known for it. `kept`: its task is known.
    pub(super) fn begin(
        &self,
        reader: &Arc<BaseConsumer<DefaultConsumerContext>>,
        committed: &Committed,
        kept: bool,
    ) -> Result<(Begin, Option<Restored>), Fail> {
        let place = &committed.place;
        let (topic, partition) = place;
        let name = || format!("{topic}/{partition}");
        let (low, high) = self.watermarks(reader, topic, *partition)?;
        let mut restored = None;
        let offset = match (committed.offset, &committed.token) {
            (Some(offset), Some(_)) => Some(offset),
            (offset, _) if kept => offset.or(self.known.get(place).map(|known| known.begin)),
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
                            "another program uses this group, or did: name another `source.kafka.group`, or take this one over, with empty state, with `tamis run --accept-state-loss`",
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
        let removed = (low - offset).max(0);
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
        Ok((Begin { place: place.clone(), offset: begin, end, lost: removed }, restored))
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
            serve(reader);
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
}

impl Committed {
    fn of((topic, partition, offset, metadata): (String, i32, i64, Vec<u8>)) -> Committed {
        let (offset, token) = ((offset >= 0).then_some(offset), Token::parse(&metadata));
        Committed { place: (Arc::from(topic.as_str()), partition), token: token.filter(|_| offset.is_some()), offset }
    }
}

/// Takes what the client says of itself. While no broker is there that is much, and it would be kept for as long.
fn serve(reader: &BaseConsumer<DefaultConsumerContext>) {
    while reader.poll(Duration::ZERO).is_some() {}
}

fn next_of(marker: &Marker, (topic, partition): &Place) -> Option<i64> {
    let is = |input: &Input| input.topic == *topic && input.partition == *partition;
    marker.next.iter().find(|(input, _)| is(input)).map(|(_, next)| *next)
}
