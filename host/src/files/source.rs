//! Files and streams as a source: batches of records, the files in turn, a position for each.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Trouble;
use super::envelope;
use super::filling::{Filling, row};
use super::follow::Watch;
use super::frame::{Frame, LARGEST, Line};
use super::identity::Identity;
use super::reader::{Got, Reader};
use crate::batch::{Batch, Payload};
use crate::config::pipeline::Format;
use crate::task::Input;
use crate::time::NONE_YET;

/// How the source reads.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How bytes become records.
    pub format: Format,
    /// The end of a file is not the end.
    pub follow: bool,
    /// What `topic` says; none: the file's name.
    pub topic: Option<String>,
    /// Most rows of a batch.
    pub rows: usize,
    /// Most bytes of a batch; a larger record is a batch of its own.
    pub bytes: usize,
    /// How long a batch that is not full waits for more of a stream.
    pub wait: Duration,
    /// Longest record in bytes (`frame::LARGEST`; smaller in tests).
    pub largest: usize,
    /// A batch may hold rows of several inputs: they are those of one task.
    pub mixed: bool,
    /// Codec of record keys.
    pub key_codec: Codec,
    /// Codec of record values.
    pub value_codec: Codec,
}

/// What a document in an envelope must become for the codec to see the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// `json`: its text is what the codec reads.
    Json,
    /// `string`: text is itself, anything else a decoded cell.
    Text,
    /// Another: a decoded cell.
    Other,
}

impl Codec {
    /// Of a codec by the name in the pipeline file.
    pub fn named(name: &str) -> Codec {
        match name {
            "json" => Codec::Json,
            "string" => Codec::Text,
            _ => Codec::Other,
        }
    }
}

/// Where reading stands, as the journal keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The files, in the order of their partitions.
    pub files: Vec<FilePosition>,
    /// Whose turn it is: with it a run that goes on reads in the order in which it would have gone on.
    pub turn: u32,
    /// Next offset of every input.
    pub next: Vec<(Input, i64)>,
    /// Files that were read under a path that names another one now: a rotated one may be met again under its new name.
    pub gone: Vec<FilePosition>,
}

/// Where one file stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePosition {
    /// Its path.
    pub path: String,
    /// Which file it is.
    pub identity: Option<Identity>,
    /// Byte behind the last record that was taken.
    pub bytes: u64,
}

/// What a poll gives.
#[derive(Debug)]
pub enum Polled {
    /// Records of one file.
    Rows(Polling),
    /// A record that cannot be framed; the batch holds it alone, as far as it was kept.
    Broken(Polling, Broken),
    /// A file has ended, and with it these inputs.
    Finished(Vec<u16>),
    /// Nothing now.
    Nothing,
    /// All files have ended.
    End,
}

/// Records and how far they reach.
#[derive(Debug)]
pub struct Polling {
    /// The records; `origin.input` is the number of an input of the source.
    pub batch: Batch,
    /// Number of the file.
    pub file: usize,
    /// Where each record lies; the batch may be gone when this is still needed.
    pub rows: Vec<Place>,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of its input in the source.
    pub input: u16,
    /// Its offset there.
    pub offset: i64,
    /// Byte behind it in the file.
    pub end: u64,
}

impl Polling {
    /// Goes on without the first records.
    pub fn drop_first(&mut self, count: usize) {
        let rest: Vec<u32> = (count as u32..self.rows.len() as u32).collect();
        self.batch.keep(&rest);
        self.rows.drain(..count.min(self.rows.len()));
    }
}

/// Why a record cannot be framed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// `too_large`, `envelope`
    pub code: &'static str,
    /// For a person, with file and byte.
    pub text: String,
}

#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) path: String,
    /// None: an earlier run read it, and it is not named any more.
    pub(super) reader: Option<Reader>,
    pub(super) frame: Frame,
    pub(super) identity: Option<Identity>,
    topic: Arc<str>,
    partition: i32,
    /// Its inputs; an envelope may name others than the file's own.
    inputs: Vec<u16>,
    ended: bool,
    finished: bool,
    /// Byte behind the last record that was taken.
    pub(super) taken: u64,
    broken: Option<Polling>,
    reason: Option<Broken>,
}

/// A source of files or streams.
#[derive(Debug)]
pub struct Source {
    pub(super) files: Vec<SourceFile>,
    pub(super) gone: Vec<FilePosition>,
    /// Looks for files that appear.
    pub(super) watch: Option<Watch>,
    inputs: Vec<Input>,
    numbers: HashMap<Input, u16>,
    /// Offset of the next record read, per input.
    next: Vec<i64>,
    /// Offset of the next record to be taken, per input.
    taken: Vec<i64>,
    turn: usize,
    pub(super) settings: Settings,
    /// What is worth saying about how reading went on.
    pub notes: Vec<String>,
}

impl Source {
    /// Opens files, each one partition, going on where `from` says. Files that `from` knows keep their partition.
    pub fn open(paths: &[impl AsRef<Path>], settings: Settings, from: Option<&Position>) -> Result<Source, Trouble> {
        let mut source = Source::empty(settings);
        let known = from.map(|p| p.files.as_slice()).unwrap_or_default();
        // Any of them may have another name now.
        source.gone = from.map(|p| [p.gone.as_slice(), p.files.as_slice()].concat()).unwrap_or_default();
        for (input, next) in from.into_iter().flat_map(|p| &p.next) {
            source.input(input.clone(), *next);
        }
        let mut order: Vec<(String, Option<&FilePosition>)> = Vec::new();
        let paths: Vec<String> = paths.iter().map(|p| p.as_ref().display().to_string()).collect();
        for position in known {
            order.push((position.path.clone(), Some(position)));
        }
        for path in &paths {
            if !known.iter().any(|k| k.path == *path) {
                order.push((path.clone(), None));
            }
        }
        for (partition, (path, position)) in order.into_iter().enumerate() {
            if !paths.contains(&path) {
                // Its place is kept, so that the partitions of the others stay.
                let (identity, taken) = position.map_or((None, 0), |p| (p.identity.clone(), p.bytes));
                source.push(path, None, partition, identity, taken);
                continue;
            }
            let reader = Reader::open(Path::new(&path), source.settings.follow)?;
            source.add(path, reader, partition, position)?;
        }
        source.forget_those_at_hand();
        source.turn = from.map_or(0, |p| p.turn as usize);
        Ok(source)
    }

    /// Reads standard input.
    pub fn stdin(settings: Settings) -> Result<Source, Trouble> {
        let mut source = Source::empty(settings);
        source.add("stdin".into(), Reader::stdin(), 0, None)?;
        Ok(source)
    }

    fn empty(settings: Settings) -> Source {
        Source {
            files: Vec::new(),
            gone: Vec::new(),
            watch: None,
            inputs: Vec::new(),
            numbers: HashMap::new(),
            next: Vec::new(),
            taken: Vec::new(),
            turn: 0,
            settings,
            notes: Vec::new(),
        }
    }

    pub(super) fn add(
        &mut self,
        path: String,
        mut reader: Reader,
        partition: usize,
        position: Option<&FilePosition>,
    ) -> Result<(), Trouble> {
        let mut before = None;
        if let Some(FilePosition { identity: Some(identity), bytes, .. }) = position {
            if reader.is(identity, *bytes)? {
                before = position.cloned();
            } else {
                self.notes.push(format!("{path} is another file than at the last commit"));
            }
        }
        if before.is_none() {
            before = self.moved(&mut reader)?;
            if let Some(FilePosition { path: old, bytes, .. }) = &before {
                self.notes.push(format!("{path} was {old}: it is read on from byte {bytes}"));
            }
        }
        let start = before.map_or(0, |before| before.bytes);
        reader.seek(start)?;
        let identity = reader.identity()?;
        self.push(path, Some(reader), partition, identity, start);
        Ok(())
    }

    fn push(&mut self, path: String, reader: Option<Reader>, partition: usize, identity: Option<Identity>, taken: u64) {
        let (topic, partition) = (self.topic_of(&path), partition as i32);
        let input = self.input(Input { topic: topic.clone(), partition }, 0);
        self.files.push(SourceFile {
            frame: Frame::new(taken, self.settings.largest.min(LARGEST)),
            ended: reader.is_none(),
            finished: false,
            inputs: vec![input],
            broken: None,
            reason: None,
            path,
            reader,
            identity,
            topic,
            partition,
            taken,
        });
    }

    fn topic_of(&self, path: &str) -> Arc<str> {
        let name = || Path::new(path).file_name().map_or(path.into(), |n| n.to_string_lossy().into_owned());
        self.settings.topic.clone().unwrap_or_else(name).into()
    }

    /// The number of an input, which is new if it was not known.
    fn input(&mut self, input: Input, next: i64) -> u16 {
        if let Some(&number) = self.numbers.get(&input) {
            return number;
        }
        let number = self.inputs.len() as u16;
        self.numbers.insert(input.clone(), number);
        self.inputs.push(input);
        self.next.push(next);
        self.taken.push(next);
        number
    }

    /// The inputs so far; envelopes that name other partitions bring more.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Where reading stands: behind what was taken.
    pub fn position(&self) -> Position {
        let files = self.files.iter().map(|file| FilePosition {
            path: file.path.clone(),
            identity: file.identity.clone(),
            bytes: file.taken,
        });
        Position {
            files: files.collect(),
            turn: self.turn as u32,
            next: self.inputs.iter().cloned().zip(self.taken.iter().copied()).collect(),
            gone: self.gone.clone(),
        }
    }

    /// The first `count` records of a poll have been dealt with: positions go on.
    pub fn taken(&mut self, polled: &Polling, count: usize) {
        let Some(file) = self.files.get_mut(polled.file) else { return };
        for row in polled.rows.iter().take(count) {
            file.taken = row.end;
            if let Some(next) = self.taken.get_mut(usize::from(row.input)) {
                *next = row.offset.saturating_add(1);
            }
        }
    }

    /// Records of the next file whose turn it is, or what else there is to say. Waits for records at most this long.
    /// `may_read`: whether an input may be read now.
    pub fn poll(&mut self, wait: Duration, may_read: &dyn Fn(u16) -> bool) -> Result<Polled, Trouble> {
        self.look()?;
        let count = self.files.len();
        let until = Instant::now() + wait;
        for step in 0..count {
            let at = (self.turn + step) % count;
            // Only a single stream is waited for; with several files the next one gets its turn at once.
            let patience = if count == 1 { until } else { Instant::now() };
            let Some(polled) = self.poll_file(at, patience, may_read)? else { continue };
            self.turn = (at + 1) % count;
            return Ok(polled);
        }
        if self.watch.is_none() && self.files.iter().all(|file| file.finished) {
            return Ok(Polled::End);
        }
        let rest = until.saturating_duration_since(Instant::now());
        std::thread::sleep(rest.min(Duration::from_millis(20)));
        Ok(Polled::Nothing)
    }

    fn poll_file(
        &mut self,
        at: usize,
        until: Instant,
        may_read: &dyn Fn(u16) -> bool,
    ) -> Result<Option<Polled>, Trouble> {
        let Some(file) = self.files.get_mut(at) else { return Ok(None) };
        if let (Some(broken), Some(reason)) = (file.broken.take(), file.reason.take()) {
            return Ok(Some(Polled::Broken(broken, reason)));
        }
        if file.finished || !file.inputs.iter().all(|&input| may_read(input)) {
            return Ok(None);
        }
        let polling = self.read(at, until)?;
        let Some(file) = self.files.get_mut(at) else { return Ok(None) };
        if !polling.batch.rows.is_empty() {
            return Ok(Some(Polled::Rows(polling)));
        }
        if let (Some(broken), Some(reason)) = (file.broken.take(), file.reason.take()) {
            return Ok(Some(Polled::Broken(broken, reason)));
        }
        if file.ended {
            file.finished = true;
            return Ok(Some(Polled::Finished(file.inputs.clone())));
        }
        Ok(None)
    }

    /// Fills a batch from one file.
    fn read(&mut self, at: usize, until: Instant) -> Result<Polling, Trouble> {
        let mut filling = Filling::new(at, self.settings.bytes);
        let mut until = until;
        loop {
            let Some(file) = self.files.get_mut(at) else { break };
            let position = file.frame.position();
            match file.frame.line() {
                Some(Line::Record { bytes, .. }) => {
                    let full = filling.values.len() + bytes.len() > self.settings.bytes;
                    if (full && !filling.rows.is_empty()) || filling.rows.len() == self.settings.rows {
                        file.frame.put_back();
                        break;
                    }
                    if self.settings.format == Format::Envelope {
                        let line = bytes.to_vec();
                        let end = file.frame.position();
                        if !self.envelope(at, &line, position, end, &mut filling) {
                            break;
                        }
                    } else {
                        let input = file.inputs.first().copied().unwrap_or(0);
                        let value = filling.value(bytes);
                        let end = file.frame.position();
                        filling.push(row(input, next(&mut self.next, input), Payload::Null, value), end);
                    }
                }
                Some(Line::TooLarge { head, at: from, length }) => {
                    let text = format!(
                        "{}: the record at byte {from} has {length} bytes, more than the {} a record may have",
                        file.path, self.settings.largest
                    );
                    self.broken(at, &head, Broken { code: "too_large", text });
                    break;
                }
                None if file.ended => break,
                None => {
                    // A batch with rows waits a little for more, one without as long as the caller wants.
                    let wait = until.saturating_duration_since(Instant::now());
                    let Some(reader) = &mut file.reader else { break };
                    match reader.fill(&mut file.frame, wait)? {
                        Got::Bytes if filling.rows.is_empty() => until = Instant::now() + self.settings.wait,
                        Got::Bytes => {}
                        Got::End => {
                            file.frame.end();
                            file.ended = true;
                        }
                        Got::Nothing => {
                            if filling.rows.is_empty() {
                                self.rotate(at)?;
                            }
                            break;
                        }
                    }
                }
            }
        }
        Ok(filling.done())
    }

    /// Puts a record that cannot be framed aside, as the next thing to be polled.
    fn broken(&mut self, at: usize, bytes: &[u8], reason: Broken) {
        let Some(file) = self.files.get_mut(at) else { return };
        let input = file.inputs.first().copied().unwrap_or(0);
        let mut filling = Filling::new(at, bytes.len());
        let value = filling.value(bytes);
        filling.push(row(input, next(&mut self.next, input), Payload::Null, value), file.frame.position());
        file.broken = Some(filling.done());
        file.reason = Some(reason);
    }

    /// Adds the record of an envelope. False: the batch ends before it.
    fn envelope(&mut self, at: usize, line: &[u8], from: u64, end: u64, filling: &mut Filling) -> bool {
        let envelope = match envelope::read(line) {
            Ok(envelope) => envelope,
            Err(why) => {
                let path = self.files.get(at).map_or("", |f| f.path.as_str());
                self.broken(at, line, Broken { code: "envelope", text: format!("{path}, byte {from}: {why}") });
                return false;
            }
        };
        let Some(file) = self.files.get_mut(at) else { return false };
        let mut input = file.inputs.first().copied().unwrap_or(0);
        if envelope.topic.is_some() || envelope.partition.is_some() {
            let topic = envelope.topic.as_deref().map_or_else(|| file.topic.clone(), Into::into);
            let partition = envelope.partition.unwrap_or(file.partition);
            input = self.input(Input { topic, partition }, 0);
        }
        let Some(file) = self.files.get_mut(at) else { return false };
        let other = filling.rows.last().is_some_and(|row| row.origin.input != input);
        if other && !self.settings.mixed {
            file.frame.put_back();
            return false;
        }
        if !file.inputs.contains(&input) {
            file.inputs.push(input);
        }
        if let (Some(offset), Some(next)) = (envelope.offset, self.next.get_mut(usize::from(input))) {
            *next = offset;
        }
        let key = filling.part(envelope.key, self.settings.key_codec, false);
        let value = filling.part(envelope.value, self.settings.value_codec, true);
        let mut record = row(input, next(&mut self.next, input), key, value);
        record.timestamp = envelope.timestamp.unwrap_or(NONE_YET);
        if !envelope.headers.is_empty() {
            record.headers = filling.headers.len() as u32;
            filling.headers.push(envelope.headers);
        }
        filling.push(record, end);
        true
    }
}

/// The offset of the next record of an input.
fn next(next: &mut [i64], input: u16) -> i64 {
    let Some(next) = next.get_mut(usize::from(input)) else { return 0 };
    let offset = *next;
    *next = offset.saturating_add(1);
    offset
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
