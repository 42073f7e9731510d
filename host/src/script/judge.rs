//! Whether the rows that came out are the rows that must come out (14.4).

use super::cells::Reader;
use super::content::{Content, quoted};
use super::heard::{Heard, HeardRow};
use super::moment::MS;
use super::record::{self, Body, Record, Row, Tag};
use super::{Expected, Test};
use crate::batch::{self, Payload};
use crate::chain::Route;
use crate::plan::OutputKind;
use crate::time::NONE_YET;

/// Lines shown of one route.
const SHOWN: usize = 40;
/// Rows of each side that are lined up after the first difference.
const LINED_UP: usize = 200;

/// How one route differs from what was expected.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// `output`, `late`, `dlq`, `duplicates`, `table`.
    pub route: &'static str,
    /// What was expected and what came, lined up.
    pub lines: Vec<Line>,
}

/// A line of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Expected, and it came.
    Same(String),
    /// Expected, and it did not come.
    Missing(String),
    /// It came, and was not expected.
    Unexpected(String),
    /// A remark.
    Note(String),
}

/// Judges what came out of one run.
pub struct Judge<'a> {
    /// What came out.
    pub heard: &'a Heard,
    /// The test.
    pub test: &'a Test,
    /// What the chain writes.
    pub output: OutputKind,
    /// Partition and topic of the inputs, by number.
    pub inputs: &'a [(String, i32)],
    /// Reads bytes as the pipeline's codecs do.
    pub reader: Reader,
}

impl Judge<'_> {
    /// All differences, route by route.
    pub fn judge(&mut self) -> Vec<Difference> {
        let mut found = Vec::new();
        for (route, name) in [
            (Route::Main, "output"),
            (Route::Late, "late"),
            (Route::DeadLetter, "dlq"),
            (Route::Duplicates, "duplicates"),
        ] {
            let expected: Vec<&Expected> = self.test.output.iter().filter(|e| route_of(e) == route).collect();
            if route == Route::Duplicates && expected.is_empty() {
                continue;
            }
            let came: Vec<&HeardRow> = self.heard.rows.iter().filter(|row| row.route == route).collect();
            let lines = if self.test.contains {
                self.contained(&expected, &came)
            } else if !self.test.exactly_once {
                self.at_least_once(&expected, &came)
            } else {
                self.exact(&expected, &came)
            };
            if !lines.is_empty() {
                found.push(Difference { route: name, lines });
            }
        }
        if let Some(table) = &self.test.table
            && let Some(lines) = self.table(table)
        {
            found.push(Difference { route: "table", lines });
        }
        found
    }

    fn exact(&mut self, expected: &[&Expected], came: &[&HeardRow]) -> Vec<Line> {
        let mut rows = rows(expected).peekable();
        let mut at = 0;
        let mut before = None;
        while let (Some(row), Some(heard)) = (rows.peek(), came.get(at)) {
            if !self.matches(row, heard) {
                break;
            }
            before = rows.next();
            at += 1;
        }
        if rows.peek().is_none() && at == came.len() {
            return Vec::new();
        }
        let missing: Vec<Row> = rows.by_ref().take(LINED_UP).collect();
        let extra: Vec<&HeardRow> = came[at..].iter().take(LINED_UP).copied().collect();
        let mut lines: Vec<Line> = before.iter().map(|row| Line::Same(show(row))).collect();
        if at > 1 {
            lines.insert(0, Line::Note(format!("{} rows as expected", at - 1)));
        }
        self.line_up(&missing, &extra, &mut lines);
        let unseen = rows.count() + (came.len() - at).saturating_sub(LINED_UP);
        if lines.len() > SHOWN {
            let more = lines.len() - SHOWN + unseen;
            lines.truncate(SHOWN);
            lines.push(Line::Note(format!("{more} more")));
        }
        lines
    }

    /// A longest common subsequence of what was expected and what came.
    fn line_up(&mut self, expected: &[Row], came: &[&HeardRow], lines: &mut Vec<Line>) {
        let width = came.len() + 1;
        let mut same = vec![false; (expected.len() + 1) * width];
        let mut length = vec![0u32; (expected.len() + 1) * width];
        for i in (0..expected.len()).rev() {
            for j in (0..came.len()).rev() {
                let at = i * width + j;
                same[at] = self.matches(&expected[i], came[j]);
                length[at] = if same[at] { length[at + width + 1] + 1 } else { length[at + width].max(length[at + 1]) };
            }
        }
        let (mut i, mut j) = (0, 0);
        while i < expected.len() || j < came.len() {
            let at = i * width + j;
            if i < expected.len() && j < came.len() && same[at] {
                lines.push(Line::Same(show(&expected[i])));
                (i, j) = (i + 1, j + 1);
            } else if i < expected.len() && (j == came.len() || length[at + width] >= length[at + 1]) {
                lines.push(Line::Missing(show(&expected[i])));
                i += 1;
            } else {
                let line = self.show_heard(came[j]);
                lines.push(Line::Unexpected(line));
                j += 1;
            }
        }
    }

    /// `match: contains`: the rows in this order, others between.
    fn contained(&mut self, expected: &[&Expected], came: &[&HeardRow]) -> Vec<Line> {
        let mut at = 0;
        for row in rows(expected) {
            match came[at..].iter().position(|heard| self.matches(&row, heard)) {
                Some(found) => at += found + 1,
                None => {
                    let mut lines = vec![Line::Missing(show(&row))];
                    lines.extend(came[at..].iter().take(SHOWN).map(|heard| Line::Unexpected(self.show_heard(heard))));
                    return lines;
                }
            }
        }
        Vec::new()
    }

    /// Every row at least once, first occurrences in this order, nothing else.
    fn at_least_once(&mut self, expected: &[&Expected], came: &[&HeardRow]) -> Vec<Line> {
        let expected: Vec<Row> = rows(expected).collect();
        let mut next = 0;
        let mut lines = Vec::new();
        for heard in came {
            if expected.get(next).is_some_and(|row| self.matches(row, heard)) {
                lines.push(Line::Same(self.show_heard(heard)));
                next += 1;
            } else if expected[..next].iter().any(|row| self.matches(row, heard)) {
                lines.push(Line::Same(self.show_heard(heard)));
            } else {
                lines.push(Line::Unexpected(self.show_heard(heard)));
            }
        }
        lines.extend(expected[next..].iter().map(|row| Line::Missing(show(row))));
        if lines.iter().all(|line| matches!(line, Line::Same(_))) { Vec::new() } else { lines }
    }

    /// The table that applied all output rows, against the one expected; any order.
    fn table(&mut self, expected: &[Record]) -> Option<Vec<Line>> {
        let mut table: Vec<&HeardRow> = Vec::new();
        let main: Vec<&HeardRow> = self.heard.rows.iter().filter(|row| row.route == Route::Main).collect();
        for heard in main {
            let removes =
                self.tag(heard) == Tag::Tomb || matches!(heard.row.kind, batch::Kind::Old | batch::Kind::Delete);
            match self.output {
                OutputKind::Upsert => table.retain(|row| !self.same_key(row, heard)),
                OutputKind::Append if removes => table.retain(|row| !self.same_key(row, heard)),
                OutputKind::Retract if removes => {
                    if let Some(at) =
                        table.iter().position(|row| self.same_key(row, heard) && self.same_value(row, heard))
                    {
                        table.remove(at);
                    }
                }
                _ => {}
            }
            if !removes {
                table.push(heard);
            }
        }
        let mut lines = Vec::new();
        for record in expected {
            match table.iter().position(|heard| self.matches_record(record, heard)) {
                Some(at) => {
                    table.remove(at);
                    lines.push(Line::Same(show_record(record)));
                }
                None => lines.push(Line::Missing(show_record(record))),
            }
        }
        lines.extend(table.iter().map(|heard| Line::Unexpected(self.show_heard(heard))));
        lines.iter().any(|line| !matches!(line, Line::Same(_))).then_some(lines)
    }

    fn same_key(&mut self, a: &HeardRow, b: &HeardRow) -> bool {
        let heard = self.heard;
        self.reader.key(heard, a.row.key).same(&self.reader.key(heard, b.row.key))
    }

    fn same_value(&mut self, a: &HeardRow, b: &HeardRow) -> bool {
        let heard = self.heard;
        self.reader.value(heard, a.row.value).same(&self.reader.value(heard, b.row.value))
    }

    /// What the row is, as a script writes it.
    fn tag(&self, heard: &HeardRow) -> Tag {
        use batch::Kind;
        let null = heard.row.value == Payload::Null;
        match (heard.route, self.output, heard.row.kind) {
            (Route::Late, ..) => Tag::Late,
            (Route::Duplicates, ..) => Tag::Duplicate,
            (Route::DeadLetter, ..) => Tag::DeadLetter(match heard.code.as_str() {
                "null_key" => "key".into(),
                "invalid_time" => "time".into(),
                "state_error" => "state".into(),
                code => code.into(),
            }),
            (Route::Main, OutputKind::Append, _) if null => Tag::Tomb,
            (Route::Main, OutputKind::Append, _) => Tag::Insert,
            (Route::Main, OutputKind::Upsert, kind) if null || kind == Kind::Delete => Tag::Tomb,
            (Route::Main, OutputKind::Upsert, _) => Tag::Put,
            (Route::Main, OutputKind::Retract, Kind::Insert) => Tag::Insert,
            (Route::Main, OutputKind::Retract, Kind::Old) => Tag::Old,
            (Route::Main, OutputKind::Retract, Kind::New) => Tag::New,
            (Route::Main, OutputKind::Retract, Kind::Delete) => Tag::Delete,
        }
    }

    /// Whether a row that came is the one that a line of `output` stands for.
    pub fn is_same(&mut self, expected: &Expected, heard: &HeardRow) -> bool {
        matches!(expected, Expected::Row(row) if self.matches(row, heard))
    }

    fn matches(&mut self, row: &Row, heard: &HeardRow) -> bool {
        let tag = self.tag(heard);
        // An append record with a null value may be written either way.
        let either = self.output == OutputKind::Append && tag == Tag::Tomb && row.tag == Tag::Insert;
        (row.tag == tag || either) && self.matches_record(&row.record, heard)
    }

    fn matches_record(&mut self, record: &Record, heard: &HeardRow) -> bool {
        let row = &heard.row;
        let unknown = (String::new(), 0);
        let (topic, partition) = self.inputs.get(usize::from(row.origin.input)).unwrap_or(&unknown);
        let marks = record.t.is_none_or(|t| t == row.timestamp)
            && record.p.is_none_or(|p| p == *partition)
            && record.o.is_none_or(|o| o == row.origin.offset)
            && record.epoch.is_none_or(|epoch| epoch == row.origin.epoch)
            && record.topic.as_ref().is_none_or(|t| t == topic)
            && record.w.is_none_or(|w| w == row.window)
            && record.of.is_none_or(|of| self.winner(heard) == Some(of));
        if !marks {
            return false;
        }
        let came = self.heard.headers(heard);
        if !record.headers.iter().all(|header| came.contains(header)) {
            return false;
        }
        self.same_body(&record.value, heard)
            && record.key.as_ref().is_none_or(|key| key.same(&self.reader.key(self.heard, row.key)))
    }

    fn same_body(&mut self, body: &Body, heard: &HeardRow) -> bool {
        let deleted = self.output == OutputKind::Upsert && heard.row.kind == batch::Kind::Delete;
        let value = if deleted { Payload::Null } else { heard.row.value };
        match (body, value) {
            (Body::Null, _) => value == Payload::Null,
            (_, Payload::Null) => false,
            (Body::Bytes(bytes), Payload::Bytes(span)) if self.heard.bytes(span) == bytes.as_slice() => true,
            (Body::Bytes(bytes), _) => {
                let expected = self.reader.decode_value(bytes);
                expected.same(&self.reader.value(self.heard, value))
            }
            (Body::Document(document), _) => document.same(&self.reader.value(self.heard, value)),
        }
    }

    /// Partition and offset of what a duplicate lost to.
    fn winner(&self, heard: &HeardRow) -> Option<(i32, i64)> {
        let mut parts = self.heard.header(heard, "tamis.duplicate_of")?.rsplit('/');
        let offset = parts.next()?.parse().ok()?;
        Some((parts.next()?.parse().ok()?, offset))
    }

    /// A row that came, as a script would write it.
    pub fn show_heard(&mut self, heard: &HeardRow) -> String {
        let row = &heard.row;
        let tag = self.tag(heard);
        let value = if tag == Tag::Tomb { Content::Null } else { self.reader.value(self.heard, row.value) };
        let partition = self.inputs.get(usize::from(row.origin.input)).map_or(0, |(_, p)| *p);
        let record = Record {
            t: (row.timestamp != NONE_YET).then_some(row.timestamp),
            p: (partition != 0).then_some(partition),
            o: Some(row.origin.offset),
            w: (row.window != batch::Row::NO_WINDOW).then_some(row.window),
            of: self.winner(heard),
            key: (row.key != Payload::Null).then(|| self.reader.key(self.heard, row.key)),
            value: match value {
                Content::Null => Body::Null,
                Content::Bytes(bytes) => Body::Bytes(bytes),
                document => Body::Document(document),
            },
            headers: self.heard.headers(heard).iter().filter(|(name, _)| shown_header(name)).cloned().collect(),
            ..Record::default()
        };
        show(&Row { tag, record })
    }
}

/// Headers that repeat what the line says anyway, or are long, are left out.
fn shown_header(name: &str) -> bool {
    !matches!(name, "tamis.window_start" | "tamis.window_end" | "tamis.kind" | "tamis.duplicate_of" | "tamis.watermark")
        && !name.starts_with("tamis.error")
}

/// Where an expected row should go.
pub fn route_of(expected: &Expected) -> Route {
    let tag = match expected {
        Expected::Row(row) => row.tag.clone(),
        // The tag of a series does not depend on its integer.
        Expected::Series(series) => {
            record::row(&record::with_index(&series.record, series.from)).map_or(Tag::Insert, |row| row.tag)
        }
    };
    match tag {
        Tag::Late => Route::Late,
        Tag::Duplicate => Route::Duplicates,
        Tag::DeadLetter(_) => Route::DeadLetter,
        _ => Route::Main,
    }
}

/// The rows of some lines of `output`, series written out.
fn rows<'e>(expected: &'e [&'e Expected]) -> impl Iterator<Item = Row> + 'e {
    expected.iter().flat_map(|expected| -> Box<dyn Iterator<Item = Row>> {
        match expected {
            Expected::Row(row) => Box::new(std::iter::once((**row).clone())),
            Expected::Series(series) => Box::new(
                (series.from..=series.to).filter_map(|i| record::row(&record::with_index(&series.record, i)).ok()),
            ),
        }
    })
}

/// A row as a script writes it.
fn show(row: &Row) -> String {
    let word = row.tag.word();
    let record = show_record(&row.record);
    if word.is_empty() { record } else { format!("{word}: {record}") }
}

fn show_record(record: &Record) -> String {
    let mut members = Vec::new();
    let long = record.key.is_some()
        || !record.headers.is_empty()
        || !matches!(&record.value, Body::Document(Content::Map(members)) if members.iter().all(|(name, _)| plain(name)));
    if let Some(key) = &record.key {
        members.push(format!("key: {key}"));
    }
    match &record.value {
        // Without any of the words of the long form it would be an object without members.
        Body::Null if record.key.is_none() && record.headers.is_empty() => members.push("value: null".to_owned()),
        Body::Null => {}
        Body::Document(Content::Map(inner)) if !long => {
            members.extend(inner.iter().map(|(name, value)| format!("{}: {value}", quoted(name))));
        }
        Body::Document(document) => members.push(format!("value: {document}")),
        Body::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => members.push(format!("text: {}", quoted(text))),
            Err(_) => {
                members.push(format!("hex: {}", Content::Bytes(bytes.clone()).to_string().trim_start_matches("hex ")))
            }
        },
    }
    if !record.headers.is_empty() {
        let header = |(name, value): &(String, Option<Vec<u8>>)| {
            let value = value.as_ref().map_or("null".into(), |v| quoted(&String::from_utf8_lossy(v)));
            format!("{}: {value}", quoted(name))
        };
        members.push(format!("headers: {{ {} }}", record.headers.iter().map(header).collect::<Vec<_>>().join(", ")));
    }
    members.extend(record.t.map(|t| format!("t: {t}")));
    members.extend(record.p.map(|p| format!("p: {p}")));
    members.extend(record.o.map(|o| format!("o: {o}")));
    members.extend(record.w.map(|(start, end)| format!("w: [{}, {}]", ms(start), ms(end))));
    members.extend(record.of.map(|(p, o)| format!("of: [{p}, {o}]")));
    format!("{{ {} }}", members.join(", "))
}

/// Names that the shorthand can say.
fn plain(name: &str) -> bool {
    !["t", "at", "p", "o", "topic", "epoch", "w", "of", "key", "value", "headers", "json", "text", "hex"]
        .contains(&name)
}

/// Nanoseconds as milliseconds, with a fraction where there is one.
fn ms(ns: i64) -> String {
    if ns % MS == 0 { (ns / MS).to_string() } else { format!("{}", ns as f64 / MS as f64) }
}
