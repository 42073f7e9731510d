//! What a failed record is told on its way to the dead letter: the headers that tools for Kafka Connect already read,
//! and our own (conventions, section 6). Key and value are the original bytes.

use crate::batch::Headers;
use crate::chain::Failure;

/// Where and when a record failed.
#[derive(Clone, Copy, Debug)]
pub struct Occasion<'a> {
    /// Name of the pipeline.
    pub pipeline: &'a str,
    /// Number of the task.
    pub task: usize,
    /// Topic of the record.
    pub topic: &'a str,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Processing time, ms since 1970.
    pub now: i64,
    /// How often the record was tried.
    pub tried: u32,
}

/// The headers, in a fixed order.
pub fn headers(failure: &Failure, occasion: &Occasion<'_>) -> Headers {
    let module = failure.module.clone().unwrap_or_else(|| "tamis".to_owned());
    let mut headers: Headers = Vec::with_capacity(14);
    let mut add = |name: &str, value: String| headers.push((name.to_owned(), Some(value.into_bytes())));
    add("__connect.errors.topic", occasion.topic.to_owned());
    add("__connect.errors.partition", occasion.partition.to_string());
    add("__connect.errors.offset", occasion.offset.to_string());
    add("__connect.errors.connector.name", occasion.pipeline.to_owned());
    add("__connect.errors.task.id", occasion.task.to_string());
    add("__connect.errors.stage", failure.stage.clone());
    add("__connect.errors.class.name", module);
    add("__connect.errors.exception.class.name", format!("tamis.{}", failure.code));
    add("__connect.errors.exception.message", printable(&failure.text));
    // There is none: a guest gives a text, and a trap's is in the message.
    headers.push(("__connect.errors.exception.stacktrace".to_owned(), None));
    let mut add = |name: &str, value: String| headers.push((name.to_owned(), Some(value.into_bytes())));
    add("tamis.error.code", failure.code.clone());
    if let Some(digest) = &failure.digest {
        add("tamis.error.module.digest", digest.clone());
    }
    // A batch that faults is tried once more before a row is blamed.
    add("tamis.error.attempts", if failure.category == 3 { 2 } else { occasion.tried }.to_string());
    add("tamis.error.first_seen", occasion.now.to_string());
    headers
}

/// Texts come from guests and records: control characters are escaped, and there is an end to them.
fn printable(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars().take(4096) {
        if character.is_control() {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_failure_carries_the_names_that_tools_read() {
        let failure = Failure {
            stage: "decode".into(),
            code: "json".into(),
            text: "bad \u{1b}[31m text".into(),
            category: 2,
            module: Some("json@0.1.0".into()),
            digest: Some("ab".into()),
        };
        let occasion = Occasion { pipeline: "p", task: 1, topic: "t", partition: 2, offset: 3, now: 4, tried: 1 };
        let headers = headers(&failure, &occasion);
        let value = |name: &str| {
            let found = headers.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}"));
            String::from_utf8(found.1.clone().unwrap_or_default()).unwrap()
        };
        for (name, expected) in [
            ("__connect.errors.topic", "t"),
            ("__connect.errors.partition", "2"),
            ("__connect.errors.offset", "3"),
            ("__connect.errors.connector.name", "p"),
            ("__connect.errors.task.id", "1"),
            ("__connect.errors.stage", "decode"),
            ("__connect.errors.class.name", "json@0.1.0"),
            ("__connect.errors.exception.class.name", "tamis.json"),
            ("__connect.errors.exception.message", "bad \\u{1b}[31m text"),
            ("__connect.errors.exception.stacktrace", ""),
            ("tamis.error.code", "json"),
            ("tamis.error.module.digest", "ab"),
            ("tamis.error.attempts", "1"),
            ("tamis.error.first_seen", "4"),
        ] {
            assert_eq!(value(name), expected, "{name}");
        }
    }
}
