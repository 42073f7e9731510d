//! The envelope: a record with all it has, as one JSON object on a line (pipeline-file sections 4.2 and 10).
//!
//! `{"key", "value", "headers", "timestamp", "partition", "topic", "offset"}`, all optional on the way in. Other
//! members are refused: a file of plain documents read as envelopes would otherwise be a file of tombstones.

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::IgnoredAny;

use crate::batch::Headers;

/// Standard alphabet; padding is written, and may be missing.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Key or value of an envelope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part<'a> {
    /// No key; a tombstone.
    #[default]
    Null,
    /// JSON text: it is decoded already.
    Document(&'a [u8]),
    /// Bytes, which go through `decode`.
    Bytes(Vec<u8>),
}

/// A record as an envelope gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Its key.
    pub key: Part<'a>,
    /// Its value.
    pub value: Part<'a>,
    /// Its headers.
    pub headers: Headers,
    /// Milliseconds since 1970.
    pub timestamp: Option<i64>,
    /// Partition, if it is not the file's.
    pub partition: Option<i32>,
    /// Topic, if it is not the source's.
    pub topic: Option<String>,
    /// Offset, if it is not the next.
    pub offset: Option<i64>,
}

/// Reads one line; the error is a sentence for a person.
pub fn read(line: &[u8]) -> Result<Envelope<'_>, String> {
    serde_json::from_slice::<IgnoredAny>(line)
        .map_err(|e| format!("the envelope is not JSON: {}", without_line(&e)))?;
    let members = members(line).ok_or("the envelope is not a JSON object")?;
    let mut envelope = Envelope::default();
    for (name, raw) in members {
        match name.as_str() {
            "key" => envelope.key = part(raw)?,
            "value" => envelope.value = part(raw)?,
            "headers" => envelope.headers = headers(raw)?,
            "timestamp" => envelope.timestamp = timestamp(raw)?,
            "partition" => envelope.partition = optional(raw, "partition", "a 32-bit integer")?,
            "topic" => envelope.topic = optional(raw, "topic", "text")?,
            "offset" => envelope.offset = optional(raw, "offset", "a 64-bit integer")?,
            other => {
                return Err(format!(
                    "an envelope has no member `{other}` (only key, value, headers, timestamp, partition, topic, offset)"
                ));
            }
        }
    }
    Ok(envelope)
}

/// Serde's message without its line, which is always 1.
fn without_line(error: &serde_json::Error) -> String {
    error.to_string().replace("line 1 ", "")
}

/// The members of a JSON object that is known to be valid; none if it is no object.
fn members(object: &[u8]) -> Option<Vec<(String, &[u8])>> {
    let mut at = space(object, 0);
    if object.get(at) != Some(&b'{') {
        return None;
    }
    let mut found = Vec::new();
    at = space(object, at + 1);
    while object.get(at) == Some(&b'"') {
        let end = value_end(object, at);
        let name = serde_json::from_slice(object.get(at..end)?).ok()?;
        let colon = space(object, end);
        let from = space(object, colon + 1);
        let to = value_end(object, from);
        found.push((name, object.get(from..to)?));
        at = space(object, to);
        if object.get(at) == Some(&b',') {
            at = space(object, at + 1);
        }
    }
    Some(found)
}

/// First byte from `at` on that is no white space.
fn space(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// Where the valid value ends that begins at `at`.
fn value_end(text: &[u8], at: usize) -> usize {
    let (mut depth, mut quoted, mut i) = (0usize, false, at);
    while let Some(&byte) = text.get(i) {
        match byte {
            b'\\' if quoted => i += 1,
            b'"' => {
                quoted = !quoted;
                if !quoted && depth == 0 {
                    return i + 1;
                }
            }
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => return if depth == 1 { i + 1 } else { i },
            b'}' | b']' => depth -= 1,
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return i,
            _ => {}
        }
        i += 1;
    }
    text.len()
}

fn part(raw: &[u8]) -> Result<Part<'_>, String> {
    if raw == b"null" {
        return Ok(Part::Null);
    }
    Ok(match bytes(raw)? {
        Some(bytes) => Part::Bytes(bytes),
        None => Part::Document(raw),
    })
}

/// The bytes of `{"$bytes": "..."}`; none if it is something else.
fn bytes(raw: &[u8]) -> Result<Option<Vec<u8>>, String> {
    if raw.first() != Some(&b'{') {
        return Ok(None);
    }
    let members = members(raw).unwrap_or_default();
    let [(name, value)] = members.as_slice() else { return Ok(None) };
    if name != "$bytes" {
        return Ok(None);
    }
    let text: String = serde_json::from_slice(value).map_err(|_| "`$bytes` is not text".to_string())?;
    match BASE64.decode(text) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => Err(format!("`$bytes` is not base64: {error}")),
    }
}

fn optional<T: serde::de::DeserializeOwned>(raw: &[u8], name: &str, what: &str) -> Result<Option<T>, String> {
    serde_json::from_slice(raw).map_err(|_| format!("`{name}` of the envelope is not {what}"))
}

fn timestamp(raw: &[u8]) -> Result<Option<i64>, String> {
    if raw == b"null" {
        return Ok(None);
    }
    if let Ok(number) = serde_json::from_slice::<i64>(raw) {
        return Ok(Some(number));
    }
    let text: Result<String, _> = serde_json::from_slice(raw);
    let instant = text.ok().and_then(|t| t.parse::<jiff::Timestamp>().ok());
    match instant {
        Some(instant) => Ok(Some(instant.as_nanosecond().div_euclid(1_000_000) as i64)),
        None => Err("`timestamp` of the envelope is neither whole milliseconds nor RFC 3339 text".into()),
    }
}

fn headers(raw: &[u8]) -> Result<Headers, String> {
    if raw == b"null" {
        return Ok(Headers::new());
    }
    if let Some(members) = members(raw) {
        return members.into_iter().map(|(name, value)| Ok((name, header(value)?))).collect();
    }
    let wrong = || "`headers` of the envelope is neither an object nor a list of [name, value]".to_string();
    let items = elements(raw).ok_or_else(wrong)?;
    items
        .into_iter()
        .map(|item| match elements(item).as_deref() {
            Some([name, value]) => {
                let name = serde_json::from_slice(name).map_err(|_| "the name of a header is not text".to_string())?;
                Ok((name, header(value)?))
            }
            _ => Err(wrong()),
        })
        .collect()
}

fn header(raw: &[u8]) -> Result<Option<Vec<u8>>, String> {
    if raw == b"null" {
        return Ok(None);
    }
    if let Some(bytes) = bytes(raw)? {
        return Ok(Some(bytes));
    }
    match serde_json::from_slice::<String>(raw) {
        Ok(text) => Ok(Some(text.into_bytes())),
        Err(_) => Err("the value of a header is not text, bytes or null".into()),
    }
}

/// The elements of a JSON array that is known to be valid; none if it is no array.
fn elements(array: &[u8]) -> Option<Vec<&[u8]>> {
    let mut at = space(array, 0);
    if array.get(at) != Some(&b'[') {
        return None;
    }
    let mut found = Vec::new();
    at = space(array, at + 1);
    while !matches!(array.get(at), None | Some(b']')) {
        let to = value_end(array, at);
        found.push(array.get(at..to)?);
        at = space(array, to);
        if array.get(at) == Some(&b',') {
            at = space(array, at + 1);
        }
    }
    Some(found)
}

/// How bytes of a key or a value are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As a document if they are JSON text, else as `$bytes`.
    Json,
    /// As text if they are UTF-8, else as `$bytes`: keys that a string codec made.
    Text,
    /// As `$bytes`: dead letters, byte for byte what came.
    Bytes,
}

/// What is written of a record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// How the key is written.
    pub key_style: Style,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// How the value is written.
    pub value_style: Style,
    /// Its own headers.
    pub headers: &'a [(String, Option<Vec<u8>>)],
    /// Headers that the pipeline adds.
    pub added: &'a [(String, Option<Vec<u8>>)],
    /// Milliseconds since 1970.
    pub timestamp: Option<i64>,
    /// Partition it came from.
    pub partition: i32,
    /// Topic it came from.
    pub topic: &'a str,
    /// Its offset there.
    pub offset: i64,
}

/// Writes one line.
pub fn write(record: &Record<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"key\":");
    cell(record.key, record.key_style, out);
    out.extend_from_slice(b",\"value\":");
    cell(record.value, record.value_style, out);
    write_headers(record, out);
    if let Some(timestamp) = record.timestamp {
        out.extend_from_slice(format!(",\"timestamp\":{timestamp}").as_bytes());
    }
    out.extend_from_slice(format!(",\"partition\":{},\"topic\":", record.partition).as_bytes());
    text(record.topic, out);
    out.extend_from_slice(format!(",\"offset\":{}}}\n", record.offset).as_bytes());
}

fn cell(bytes: Option<&[u8]>, style: Style, out: &mut Vec<u8>) {
    let Some(bytes) = bytes else {
        out.extend_from_slice(b"null");
        return;
    };
    match style {
        // A document that looks like bytes would be read as bytes.
        Style::Json if is_json(bytes) && !looks_like_bytes(bytes) => one_line(bytes, out),
        Style::Text => match std::str::from_utf8(bytes) {
            Ok(string) => text(string, out),
            Err(_) => encoded(bytes, out),
        },
        _ => encoded(bytes, out),
    }
}

/// Whether bytes are one JSON text.
pub fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

/// `null` would be read as no value, `{"$bytes": ..}` as bytes.
fn looks_like_bytes(json: &[u8]) -> bool {
    let from = space(json, 0);
    let trimmed = json.get(from..).unwrap_or_default();
    trimmed.starts_with(b"null")
        || (trimmed.first() == Some(&b'{') && members(trimmed).is_some_and(|m| m.len() == 1 && m[0].0 == "$bytes"))
}

/// JSON text without line ends: outside of strings they are white space, inside they cannot be.
pub fn one_line(json: &[u8], out: &mut Vec<u8>) {
    out.extend(json.iter().map(|&b| if matches!(b, b'\n' | b'\r') { b' ' } else { b }));
}

fn encoded(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"$bytes\":\"");
    out.extend_from_slice(BASE64.encode(bytes).as_bytes());
    out.extend_from_slice(b"\"}");
}

fn text(string: &str, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(out, string);
}

/// An object, or a list of pairs if a name repeats.
fn write_headers(record: &Record<'_>, out: &mut Vec<u8>) {
    let all = || record.headers.iter().chain(record.added);
    if all().next().is_none() {
        return;
    }
    let repeats = all().enumerate().any(|(i, (name, _))| all().take(i).any(|(n, _)| n == name));
    out.extend_from_slice(if repeats { b",\"headers\":[" } else { b",\"headers\":{" });
    for (i, (name, value)) in all().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        if repeats {
            out.push(b'[');
        }
        text(name, out);
        out.push(if repeats { b',' } else { b':' });
        cell(value.as_deref(), Style::Text, out);
        if repeats {
            out.push(b']');
        }
    }
    out.push(if repeats { b']' } else { b'}' });
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;
