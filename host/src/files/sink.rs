//! Where rows leave: the sink, the routes and the dead letter, as files or standard output.
//!
//! What one push emits waits until the push has succeeded (`settle`), so that it can be undone; then it goes to the
//! writers, and with the next commit to the disk.

use std::path::Path;
use std::sync::Arc;

use super::Trouble;
use super::dead_letter::{self, Occasion};
use super::envelope::{self, Record, Style};
use super::json;
use super::writer::Writer;
use crate::batch::{Batch, Headers, Origin, Payload, Row};
use crate::chain::{Emit, Failure, Out, Route};
use crate::config::pipeline::{self, Format};
use crate::ops::Seat;
use crate::plan::{OutputKind, Plan};
use crate::retry::Gate;
use crate::task::Input;
use crate::telemetry::FailureLog;
use crate::time::NONE_YET;

/// Where the rows of one route go.
#[derive(Clone, Copy, Debug)]
struct Place {
    writer: usize,
    format: Format,
    key_style: Style,
    value_style: Style,
}

/// Records that left, by route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// To the sink.
    pub main: u64,
    /// Late ones, to their route, to the dead letter or to nowhere.
    pub late: u64,
    /// Late ones that went nowhere.
    pub late_lost: u64,
    /// Duplicates, to their route.
    pub duplicates: u64,
    /// Failed ones, to the dead letter.
    pub dead: u64,
    /// Failed ones that the tolerance let pass without a dead letter.
    pub failed_lost: u64,
}

/// A failure that holds a push up: the tolerance does not let it pass, or it may pass and the record is tried again.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Why the record failed.
    pub failure: Failure,
    /// Which record; `input` is of the task.
    pub origin: Origin,
    /// It may pass: the record is to be tried again.
    pub passing: bool,
}

/// How far a sink file got with a commit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SinkPosition {
    /// Its path.
    pub path: String,
    /// Its length in bytes.
    pub length: u64,
}

/// One emission of the push that is running.
#[derive(Debug)]
struct Emission {
    writer: Option<usize>,
    /// End of its bytes in `pending`.
    end: usize,
    count: fn(&mut Counts) -> &mut u64,
    failure: Option<Box<(Failure, Position)>>,
}

/// Where a record came from, for the log.
#[derive(Clone, Debug)]
pub struct Position {
    /// Its topic.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its value, if the pipeline lets values into logs.
    pub value: Option<String>,
}

/// All places where rows of a pipeline leave.
#[derive(Debug)]
pub struct Sinks {
    pipeline: String,
    writers: Vec<Writer>,
    main: Place,
    late: Option<Place>,
    duplicates: Option<Place>,
    dead: Option<Place>,
    log: FailureLog,
    include_values: bool,
    /// Bytes of the push that is running.
    pending: Vec<u8>,
    emissions: Vec<Emission>,
    refused: Option<(usize, Refused)>,
    /// Which failures hold a push up.
    pub gate: Gate,
    /// The task that is running: its number, its inputs, the rows it was given.
    task: usize,
    inputs: Arc<[Input]>,
    polled: Option<Batch>,
    now: i64,
    /// Rows are results of scopes that are not closed (R10).
    pub partial: bool,
    /// What has left.
    pub counts: Counts,
}

impl Sinks {
    /// Opens all sinks of a plan; relative paths start from `base`.
    pub fn open(plan: &Plan, base: &Path) -> Result<Sinks, Trouble> {
        let pipeline = &plan.pipeline;
        // Keys that a stage makes are encoded by another codec than those that came in.
        let made = plan.stages.iter().any(|stage| stage.traits.output == OutputKind::Upsert);
        let codec = pipeline.encode.key.as_ref().unwrap_or(&pipeline.decode.key);
        let key_style = if codec.name == "string" && !made { Style::Text } else { Style::Json };
        let mut writers = Vec::new();
        let mut place = |sink: &pipeline::Sink, value_style: Style| -> Result<Place, Trouble> {
            let (writer, format) = match sink {
                pipeline::Sink::File { path, format } => (Some(base.join(path)), *format),
                pipeline::Sink::Stdout { format } => (None, *format),
                pipeline::Sink::Kafka(_) => {
                    return Err(Trouble::new("a Kafka sink is not built yet", "write to a file or to standard output"));
                }
            };
            if format == Format::Csv {
                return Err(Trouble::new("the format csv is not built yet", "use json, lines or envelope"));
            }
            let number = match writer {
                Some(path) => of_path(&mut writers, &path)?,
                None => stdout(&mut writers),
            };
            let key_style = if value_style == Style::Bytes { Style::Bytes } else { key_style };
            Ok(Place { writer: number, format, key_style, value_style })
        };
        let main = place(&pipeline.sink, Style::Json)?;
        let late = pipeline.late.as_ref().map(|s| place(s, Style::Json)).transpose()?;
        let duplicates = pipeline.duplicates.as_ref().map(|s| place(s, Style::Json)).transpose()?;
        let dead = pipeline.errors.dead_letter.as_ref().map(|s| place(s, Style::Bytes)).transpose()?;
        Ok(Sinks {
            pipeline: pipeline.name.clone(),
            main,
            late,
            duplicates,
            dead,
            writers,
            log: FailureLog::new(pipeline.errors.log),
            include_values: pipeline.errors.include_values,
            pending: Vec::new(),
            emissions: Vec::new(),
            refused: None,
            gate: Gate::of(plan),
            task: 0,
            inputs: Arc::from([]),
            polled: None,
            now: 0,
            partial: false,
            counts: Counts::default(),
        })
    }

    /// Cuts files back to where the last commit left them, and ends lines that others left open. `clean`: the last run
    /// came to its end, so what stands behind its last commit is somebody else's and stays. Gives what is worth saying.
    pub fn restore(&mut self, last: &[SinkPosition], clean: bool) -> Result<Vec<String>, Trouble> {
        let mut notes = Vec::new();
        for writer in self.writers.iter_mut().filter(|w| w.is_file()) {
            let path = writer.path().display().to_string();
            if let Some(position) = last.iter().find(|p| p.path == path) {
                let found = writer.length();
                if found < position.length {
                    notes.push(format!(
                        "{path} has {found} bytes, {} at the last commit: what is missing is not written again",
                        position.length
                    ));
                } else if !clean && found > position.length {
                    writer.cut(position.length)?;
                }
            }
            writer.begin_on_a_line()?;
        }
        Ok(notes)
    }

    /// Takes over from another plan of the same pipeline which failures hold up a push, and what of them is logged.
    pub fn reload(&mut self, plan: &Plan) {
        let errors = &plan.pipeline.errors;
        self.gate = Gate::of(plan);
        self.log.turn(errors.log);
        self.include_values = errors.include_values;
    }

    /// How far each file has got; call after `sync`.
    pub fn positions(&self) -> Vec<SinkPosition> {
        let files = self.writers.iter().filter(|w| w.is_file());
        files.map(|w| SinkPosition { path: w.path().display().to_string(), length: w.length() }).collect()
    }

    /// Makes durable what has left.
    pub fn sync(&mut self) -> Result<(), Trouble> {
        self.writers.iter_mut().try_for_each(Writer::sync)
    }

    /// Cuts files back to these lengths.
    pub fn cut(&mut self, to: &[SinkPosition]) -> Result<(), Trouble> {
        for writer in self.writers.iter_mut().filter(|w| w.is_file()) {
            if let Some(position) = to.iter().find(|p| p.path == writer.path().display().to_string()) {
                writer.cut(position.length)?;
            }
        }
        Ok(())
    }

    /// Hands to the system what has left, without waiting for the disk.
    pub fn flush(&mut self) -> Result<(), Trouble> {
        self.writers.iter_mut().try_for_each(Writer::flush)
    }

    /// Which task runs now, and with which rows: dead letters carry the bytes that came, whatever a stage made of them.
    pub fn enter(&mut self, task: usize, inputs: Arc<[Input]>, polled: Option<Batch>, now: i64) {
        (self.task, self.inputs, self.polled, self.now) = (task, inputs, polled, now);
    }

    /// The first failure that holds the running push up.
    pub fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref().map(|(_, refused)| refused)
    }

    /// The push has succeeded: what it emitted leaves.
    pub fn settle(&mut self) -> Result<(), Trouble> {
        let mut start = 0;
        for emission in &self.emissions {
            if let Some(writer) = emission.writer.and_then(|w| self.writers.get_mut(w)) {
                writer.append(self.pending.get(start..emission.end).unwrap_or_default())?;
            }
            start = emission.end;
            *(emission.count)(&mut self.counts) += 1;
            if let Some(failure) = &emission.failure {
                self.log.failed(&failure.0, &failure.1);
            }
        }
        self.pending.clear();
        self.emissions.clear();
        self.refused = None;
        Ok(())
    }

    /// Counts failures at this seat.
    pub fn tell(&mut self, seat: Arc<Seat>) {
        self.log.tell(seat);
    }

    /// Says how often each failure was repeated without being logged.
    pub fn close_log(&mut self) {
        self.log.close();
    }

    fn dead_letter(&mut self, batch: &Batch, row: &Row, added: &Headers, failure: &Failure) {
        let input = self.input(row);
        let value = self.include_values.then(|| match payload(batch, row.value) {
            Some(bytes) => String::from_utf8_lossy(bytes.get(..bytes.len().min(1024)).unwrap_or(&bytes)).into_owned(),
            None => "null".to_owned(),
        });
        let note =
            Position { topic: input.topic.clone(), partition: input.partition, offset: row.origin.offset, value };
        let note = Some(Box::new((failure.clone(), note)));
        if self.refused.is_none() {
            self.refused = self.gate.refuse(failure, row.origin).map(|refused| (self.emissions.len(), refused));
        }
        let Some(place) = self.dead else {
            let end = self.pending.len();
            self.emissions.push(Emission { writer: None, end, count: |c| &mut c.failed_lost, failure: note });
            return;
        };
        let occasion = Occasion {
            pipeline: &self.pipeline,
            task: self.task,
            topic: &input.topic,
            partition: input.partition,
            offset: row.origin.offset,
            now: self.now.div_euclid(1_000_000),
            tried: self.gate.tried(row.origin),
        };
        let mut headers = added.clone();
        headers.extend(dead_letter::headers(failure, &occasion));
        let original = self.polled.take();
        let came = original.as_ref().and_then(|polled| {
            let same = |r: &&Row| (r.origin.input, r.origin.offset) == (row.origin.input, row.origin.offset);
            polled.rows.iter().find(same).map(|row| (polled, *row))
        });
        let (from, came) = came.unwrap_or((batch, *row));
        self.write(place, from, &came, &headers);
        self.polled = original;
        let count: fn(&mut Counts) -> &mut u64 = if failure.code == "late" { |c| &mut c.late } else { |c| &mut c.dead };
        let end = self.pending.len();
        self.emissions.push(Emission { writer: Some(place.writer), end, count, failure: note });
    }

    fn input(&self, row: &Row) -> Input {
        let unknown = || Input { topic: "".into(), partition: 0 };
        self.inputs.get(usize::from(row.origin.input)).cloned().unwrap_or_else(unknown)
    }

    /// Writes a record behind what is pending.
    fn write(&mut self, place: Place, batch: &Batch, row: &Row, added: &[(String, Option<Vec<u8>>)]) {
        let value = payload(batch, row.value);
        if place.format != Format::Envelope {
            line(place.format, value.as_deref(), &mut self.pending);
            return;
        }
        let key = payload(batch, row.key);
        let input = self.input(row);
        let record = Record {
            key: key.as_deref(),
            key_style: place.key_style,
            value: value.as_deref(),
            value_style: place.value_style,
            headers: batch.headers_of(row),
            added,
            timestamp: (row.timestamp != NONE_YET).then_some(row.timestamp),
            partition: input.partition,
            topic: &input.topic,
            offset: row.origin.offset,
        };
        envelope::write(&record, &mut self.pending);
    }
}

impl Out for Sinks {
    fn emit(&mut self, emit: Emit<'_>) {
        let (place, count): (Option<Place>, fn(&mut Counts) -> &mut u64) = match emit.route {
            Route::Main => (Some(self.main), |c| &mut c.main),
            Route::Late => (self.late, |c| &mut c.late),
            Route::Duplicates => (self.duplicates, |c| &mut c.duplicates),
            Route::DeadLetter => (None, |c| &mut c.dead),
        };
        let mut added = emit.added.to_vec();
        match (emit.route, place, emit.failure) {
            (Route::DeadLetter, _, Some(failure)) => return self.dead_letter(emit.batch, emit.row, &added, failure),
            (Route::Late, None, failure) if self.dead.is_some() => {
                let failure = failure.cloned().unwrap_or_else(|| Failure::of_sink("late", "late".to_owned()));
                return self.dead_letter(emit.batch, emit.row, &added, &failure);
            }
            (Route::Late, None, _) => {
                let end = self.pending.len();
                self.emissions.push(Emission { writer: None, end, count: |c| &mut c.late, failure: None });
                self.emissions.push(Emission { writer: None, end, count: |c| &mut c.late_lost, failure: None });
                return;
            }
            _ => {}
        }
        let Some(place) = place else { return };
        if place.format != Format::Envelope && !fits_a_line(emit.batch, emit.row) {
            let why = "the value has a line end and is not JSON: it is no line; use the format envelope";
            let failure = Failure::of_sink("newline", why.to_owned());
            return self.dead_letter(emit.batch, emit.row, &added, &failure);
        }
        if self.partial && emit.route == Route::Main {
            added.push(("tamis.partial".to_owned(), Some(b"true".to_vec())));
        }
        self.write(place, emit.batch, emit.row, &added);
        self.emissions.push(Emission { writer: Some(place.writer), end: self.pending.len(), count, failure: None });
    }

    fn mark(&mut self) -> usize {
        self.emissions.len()
    }

    fn undo(&mut self, to: usize) {
        self.emissions.truncate(to);
        self.pending.truncate(self.emissions.last().map_or(0, |e| e.end));
        if self.refused.as_ref().is_some_and(|(at, _)| *at >= to) {
            self.refused = None;
        }
    }
}

fn of_path(writers: &mut Vec<Writer>, path: &Path) -> Result<usize, Trouble> {
    match writers.iter().position(|w| w.path() == path) {
        Some(number) => Ok(number),
        None => {
            writers.push(Writer::open(path)?);
            Ok(writers.len() - 1)
        }
    }
}

fn stdout(writers: &mut Vec<Writer>) -> usize {
    let standard = Writer::stdout();
    let found = writers.iter().position(|w| w.path() == standard.path() && !w.is_file());
    found.unwrap_or_else(|| {
        writers.push(standard);
        writers.len() - 1
    })
}

/// The bytes of a key or a value; a document that leaves by a route, undecided by any codec, leaves as JSON text.
fn payload(batch: &Batch, payload: Payload) -> Option<std::borrow::Cow<'_, [u8]>> {
    match payload {
        Payload::Null => None,
        Payload::Bytes(span) => Some(batch.bytes(span).into()),
        Payload::Cell(kind, span) => match json::text(kind, batch.bytes(span)) {
            Some(text) => Some(text.into()),
            None => Some(batch.bytes(span).into()),
        },
    }
}

/// The value on a line of its own.
fn line(format: Format, value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        Some(bytes) if memchr::memchr2(b'\n', b'\r', bytes).is_none() => out.extend_from_slice(bytes),
        // Here line ends are white space: see `fits_a_line`.
        Some(json) => envelope::one_line(json, out),
        None if format == Format::Json => out.extend_from_slice(b"null"),
        None => {}
    }
    out.push(b'\n');
}

/// Whether a value can be a line: it has no line end, or only such as are white space in JSON.
fn fits_a_line(batch: &Batch, row: &Row) -> bool {
    match row.value {
        Payload::Bytes(span) => {
            let bytes = batch.bytes(span);
            memchr::memchr2(b'\n', b'\r', bytes).is_none() || envelope::is_json(bytes)
        }
        Payload::Null | Payload::Cell(..) => true,
    }
}
