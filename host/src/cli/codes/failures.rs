//! Failures of single records: what dead letters, logs and `stops` in tests say.

use super::Entry;

/// The codes of failures.
pub static ENTRIES: &[Entry] = &[
    Entry {
        code: "null_key",
        when: "every part of a record's key is null or missing",
        reason: "Such a record has no identity: nothing says of which other it could be a copy.",
        ways: &[
            "`key: { fields: [..], null_key: pass }`: let it through (append output)",
            "`null_key: drop`: count it; `null_key: group`: null is a key like any other",
        ],
        rules: &["K3"],
    },
    Entry {
        code: "invalid_time",
        when: "a record's event time is null, cannot be read, lies before `time.min` or beyond `time.max_future`",
        reason: "Windows and order go by it. A wrong time would close windows that are still open.",
        ways: &[
            "check `time.field` and `time.unit`: numbers are milliseconds unless it says otherwise",
            "`time: { invalid: timestamp }`: take the record's timestamp in its place",
        ],
        rules: &["T1", "T2"],
    },
    Entry {
        code: "late",
        when: "a record came after what it belongs to was final, and there is no route for late records",
        reason: "Its window has closed, or its key has been decided. What was sent is not taken back.",
        ways: &[
            "`time: { delay: 30s }`: wait longer for all",
            "`lateness: 1h`: keep windows open for corrections",
            "`routes: { late: { file: late.jsonl } }`, or `late: drop`",
        ],
        rules: &["L1", "L2", "L3"],
    },
    Entry {
        code: "max_entries",
        when: "the state of a stage is full, and `overflow` is `fail`",
        reason: "A bound was set, and a unique record is never dropped to keep it.",
        ways: &[
            "a higher `max_entries` or `max_bytes`",
            "`overflow: evict-oldest`, if copies of forgotten keys may pass",
        ],
        rules: &["X8"],
    },
    Entry {
        code: "state_error",
        when: "the state of a stage cannot be read or written, and `on_error` is `dlq` or `fail`",
        reason: "Without state nobody can tell whether a record is a copy.",
        ways: &["look at disk and memory", "`state: { on_error: pause }`, the default: wait for it"],
        rules: &["X12"],
    },
    Entry {
        code: "too_many_groups",
        when: "63 groups or sessions of one key are open at once",
        reason: "An entry is bounded. So many groups of one key side by side mean that the delay of time is far longer than the window, or that times are wrong.",
        ways: &["a shorter `time.delay`", "a longer session gap or horizon: fewer groups", "check `time.field`"],
        rules: &["T8", "X8"],
    },
    Entry {
        code: "key",
        when: "a key cannot be made of a record, such as a header that is no number with `as: int`",
        reason: "A key that is guessed would call different records the same.",
        ways: &["read the header as text: `{ field: headers.id, as: text }`", "correct what writes the header"],
        rules: &["K11"],
    },
    Entry {
        code: "json",
        when: "bytes that are decoded as JSON are none, or a document cannot be written as JSON",
        reason: "The codec reads JSON exactly as its standard has it.",
        ways: &["another codec in `decode`", "`errors: { dead_letter: .. }` keeps the original bytes"],
        rules: &[],
    },
    Entry {
        code: "utf8",
        when: "bytes that are decoded as text are no UTF-8",
        reason: "Text that is repaired is another text.",
        ways: &["`decode: { key: raw }`, or `value: raw`: take the bytes as they are"],
        rules: &[],
    },
    Entry {
        code: "double",
        when: "bytes that are decoded as a double are not eight, or a value that is encoded as one is no number",
        reason: "A number that is guessed is another number.",
        ways: &[
            "the codec that wrote the bytes, such as `decode: { value: json }`",
            "`raw`: take the bytes as they are",
        ],
        rules: &[],
    },
    Entry {
        code: "string",
        when: "a value that is encoded as text is none",
        reason: "The codec `string` writes text and nothing else.",
        ways: &["`encode: { value: json }`"],
        rules: &[],
    },
    Entry {
        code: "raw",
        when: "a value that is encoded as bytes is neither bytes nor text",
        reason: "The codec `raw` changes nothing, so it cannot write a document.",
        ways: &["`encode: { value: json }`"],
        rules: &[],
    },
    Entry {
        code: "expression",
        when: "the expression of a filter fails on a record, or is neither true nor false",
        reason: "A member that is missing, or a comparison of two types, has no answer.",
        ways: &["ask first: `has(value.user.id) && value.user.id > 2`"],
        rules: &[],
    },
    Entry {
        code: "not-text",
        when: "a header that becomes a member of the value is no text",
        reason: "JSON has no bytes.",
        ways: &["leave the header out of `fields`"],
        rules: &[],
    },
    Entry {
        code: "envelope",
        when: "a line that is read as an envelope is none",
        reason: "An envelope is one JSON object a line, with key, value, headers, timestamp, partition, topic, offset.",
        ways: &["`format: json`, if lines are values"],
        rules: &[],
    },
    Entry {
        code: "too_large",
        when: "a record is larger than one may be, on its way in or out",
        reason: "Memory is bounded, and a Kafka topic takes records up to a size.",
        ways: &[
            "look whether a line end is missing",
            "a larger `message.max.bytes` in `properties` and topic, for Kafka",
        ],
        rules: &[],
    },
    Entry {
        code: "newline",
        when: "a value with a line end in it is written as a line",
        reason: "It would be read back as two records.",
        ways: &["`format: envelope`"],
        rules: &[],
    },
    Entry {
        code: "poison",
        when: "a record ended the process each time it was read, and was sent aside",
        reason: "A process that dies at the same record at every start never gets past it.",
        ways: &[
            "look at the record in the dead letter, and at what the process said last",
            "a guest of another's: tell its author",
        ],
        rules: &[],
    },
    Entry {
        code: "fault",
        when: "a guest trapped, ran out of time or memory, or broke the contract on this record",
        reason: "The batch was tried again on a fresh instance, then cut down until one record was to blame; the rest went on.",
        ways: &["`tamis inspect` says whose module it is: tell its author", "`limits: { call: 5s, memory: 128MiB }`"],
        rules: &[],
    },
];
