//! The mappings of the pipeline file (pipeline-file sections 3, 5 to 7, 11, 12, 14.1); sources and sinks
//! stand in `ends.rs`.

use super::ends::{SINK_FORMS, SOURCES};
use super::table::Default::{Depends, Is, None as Nothing, Required};
use super::table::{Kind, Member, Sign, Table};

/// One line of a table.
pub const fn member(name: &'static str, kind: Kind, default: super::table::Default, doc: &'static str) -> Member {
    Member { name, kind, default, doc }
}

/// Codecs, predicates, stages without anything else.
pub static USES: Table = Table {
    name: "a codec",
    doc: "A guest and its parameters.",
    short: Some("uses"),
    members: &[
        member("uses", Kind::Guest, Required, "Name of a guest, `name@1.2`, or `./file.wasm`."),
        member("with", Kind::FreeMap, Is("{}"), "Its parameters."),
    ],
};

/// `decode`.
pub static DECODE: Table = Table {
    name: "`decode`",
    doc: "Bytes to documents; nothing is decoded that no stage and no encoder needs.",
    short: None,
    members: &[
        member("key", Kind::Map(&USES), Is("string"), "Codec of record keys."),
        member("value", Kind::Map(&USES), Is("json"), "Codec of record values."),
    ],
};

/// `encode`.
pub static ENCODE: Table = Table {
    name: "`encode`",
    doc: "Documents to bytes; a record that no stage changed leaves as it came.",
    short: None,
    members: &[
        member(
            "key",
            Kind::Map(&USES),
            Depends("as decoded; `json` for a key that a stage made"),
            "Codec of record keys.",
        ),
        member("value", Kind::Map(&USES), Depends("as decoded"), "Codec of record values."),
    ],
};

/// `time`.
pub static TIME: Table = Table {
    name: "`time`",
    doc: "Event time and watermarks; evaluated only if something uses it.",
    short: Some("field"),
    members: &[
        member("field", Kind::Path, Is("timestamp"), "Where event time is."),
        member("unit", Kind::Choice(&["s", "ms", "us", "ns"]), Is("ms"), "Unit of numbers."),
        member(
            "min",
            Kind::Instant,
            Depends("1970 for `timestamp`, none for other fields"),
            "Below it a time is invalid.",
        ),
        member(
            "max_future",
            Kind::Duration(Sign::Positive),
            Nothing,
            "Further ahead of processing time it is invalid.",
        ),
        member(
            "invalid",
            Kind::Choice(&["dlq", "fail", "timestamp"]),
            Is("dlq"),
            "What happens to an invalid time: dead letter, stop, or the record's timestamp instead.",
        ),
        member("delay", Kind::Duration(Sign::NotNegative), Is("0s"), "Greatest expected disorder."),
        member(
            "idle",
            Kind::Duration(Sign::Positive),
            Nothing,
            "Processing time after which a silent partition no longer holds the watermark.",
        ),
        member(
            "max_drift",
            Kind::Duration(Sign::Positive),
            Nothing,
            "Pause a partition that is further ahead of the slowest.",
        ),
        member("manual", Kind::Bool, Is("false"), "Tests only: watermarks come from `watermark:` steps alone."),
    ],
};

static PART: Table = Table {
    name: "a part of a key",
    doc: "One part of a key.",
    short: Some("field"),
    members: &[
        member("field", Kind::Path, Required, "What it names."),
        member("name", Kind::Text, Depends("the last step of the path"), "Its name in upsert keys."),
        member(
            "as",
            Kind::Choice(&["bytes", "text", "int", "decimal", "boolean"]),
            Is("bytes"),
            "How header bytes are read.",
        ),
    ],
};

/// `key` of a stage.
pub static KEY: Table = Table {
    name: "`key`",
    doc: "What the stage keeps its state by: exactly one of `fields`, `whole`, `uses`.",
    short: Some("fields"),
    members: &[
        member("fields", Kind::Many(&Kind::Map(&PART)), Nothing, "An ordered tuple."),
        member("whole", Kind::Choice(&["value", "key"]), Nothing, "The document."),
        member("except", Kind::Many(&Kind::Path), Nothing, "Paths left out of the document."),
        member("uses", Kind::Guest, Nothing, "A guest of world `key-guest`."),
        member("with", Kind::FreeMap, Nothing, "Its parameters."),
        member(
            "null_key",
            Kind::Choice(&["pass", "dlq", "group", "drop", "fail"]),
            Depends("`pass` for append, `dlq` for upsert and retract"),
            "Every part is null or missing: let it through without state; dead letter; treat as a key; count; stop.",
        ),
        member(
            "missing",
            Kind::Choice(&["as-null", "distinct"]),
            Is("as-null"),
            "A missing part equals null, or is a value of its own.",
        ),
        member("numbers", Kind::Choice(&["exact", "typed"]), Is("exact"), "Compare by value, or by type and value."),
        member("normalize", Kind::Choice(&["nfc", "nfkc"]), Nothing, "Unicode normalisation of the copy used as key."),
        member("casefold", Kind::Bool, Is("false"), "Full Unicode case folding of the copy used as key."),
    ],
};

static RETENTION: Table = Table {
    name: "`retention`",
    doc: "Forget a key after this time.",
    short: Some("for"),
    members: &[
        member("for", Kind::Duration(Sign::Any), Required, "How long; `0s` is never."),
        member(
            "clock",
            Kind::Choice(&["event", "processing"]),
            Depends("the stage's clock; ingestion counts as event"),
            "What ages it.",
        ),
        member(
            "refresh",
            Kind::Choice(&["create", "access"]),
            Is("create"),
            "Counted from the kept record, or from any record of the key.",
        ),
    ],
};

/// `state` of a stage.
pub static BOUNDS: Table = Table {
    name: "`state`",
    doc: "Retention and bounds of the stage's state.",
    short: None,
    members: &[
        member("retention", Kind::Map(&RETENTION), Nothing, "Forget a key after this time."),
        member("max_entries", Kind::Integer(1), Nothing, "Entries, per state partition."),
        member("max_bytes", Kind::Size { zero: false }, Nothing, "Bytes, per state partition."),
        member("overflow", Kind::Choice(&["pause", "fail", "evict-oldest"]), Is("pause"), "At a bound."),
        member("unbounded", Kind::Bool, Is("false"), "Accept state that grows for ever."),
        member("on_error", Kind::Choice(&["pause", "pass", "dlq", "fail"]), Is("pause"), "The state store fails."),
    ],
};

const PREDICATE: &str = "predicates (`when`, `unless`)";

/// A stage.
pub static STAGE: Table = Table {
    name: "a stage",
    doc: "One step of the pipeline.",
    short: None,
    members: &[
        member("uses", Kind::Guest, Required, "Name of a guest, `name@1.2`, or `./file.wasm`."),
        member(
            "id",
            Kind::Id,
            Depends("the guest's name, `-2`, `-3` ... if taken"),
            "Label in metrics, errors, state and tests.",
        ),
        member("key", Kind::Map(&KEY), Depends("required for keyed stages"), "What the stage keeps its state by."),
        member("scope", Kind::Choice(&["global", "partition", "stream"]), Is("global"), "Among which records."),
        member("state", Kind::Map(&BOUNDS), Nothing, "Retention and bounds."),
        member("with", Kind::FreeMap, Is("{}"), "Parameters of the guest."),
        member("when", Kind::Later(PREDICATE), Nothing, "The stage sees only records for which this is true."),
        member("unless", Kind::Later(PREDICATE), Nothing, "The stage sees only records for which this is false."),
    ],
};

static ROUTES: Table = Table {
    name: "`routes`",
    doc: "Where late records and duplicates go.",
    short: None,
    members: &[
        member("late", SINK_FORMS, Nothing, "Records that came after what they belong to was final."),
        member("duplicates", SINK_FORMS, Nothing, "Records that lost."),
    ],
};

static RETRY: Table = Table {
    name: "`retry`",
    doc: "For failures that may pass.",
    short: Some("for"),
    members: &[
        member("for", Kind::Duration(Sign::NotNegative), Is("5m"), "In all."),
        member("max_delay", Kind::Duration(Sign::Positive), Is("10s"), "Greatest pause between two tries."),
    ],
};

/// `errors`.
pub static ERRORS: Table = Table {
    name: "`errors`",
    doc: "Tolerance, dead letters, retries.",
    short: None,
    members: &[
        member("dead_letter", SINK_FORMS, Nothing, "Where failed records go: original bytes, the reason in headers."),
        member(
            "tolerance",
            Kind::Choice(&["none", "all"]),
            Depends("`all` if there is a dead letter, else `none`"),
            "`none`: the first failed record stops the pipeline.",
        ),
        member("retry", Kind::Map(&RETRY), Is("{}"), "For failures that may pass."),
        member("log", Kind::Bool, Is("true"), "Log each failure, repeated ones with a count."),
        member("include_values", Kind::Bool, Is("false"), "Put values into logs."),
    ],
};

static BATCH: Table = Table {
    name: "`limits.batch`",
    doc: "One batch; never changes results.",
    short: None,
    members: &[
        member("rows", Kind::Integer(1), Is("1024"), "Rows."),
        member("bytes", Kind::Size { zero: false }, Is("256KiB"), "Bytes; a larger record is a batch of its own."),
        member("wait", Kind::Duration(Sign::NotNegative), Is("5ms"), "How long a partial batch waits."),
    ],
};

/// `limits`.
pub static LIMITS: Table = Table {
    name: "`limits`",
    doc: "What one call, one batch, one guest may use.",
    short: None,
    members: &[
        member("call", Kind::Duration(Sign::Positive), Is("1s"), "One guest call, plus 1 ms per row."),
        member("memory", Kind::Size { zero: false }, Is("64MiB"), "One guest instance."),
        member("output", Kind::Size { zero: false }, Is("8MiB"), "What one call may return."),
        member("log", Kind::Size { zero: true }, Is("64KiB"), "Log text of one call."),
        member("batch", Kind::Map(&BATCH), Is("{}"), "One batch."),
    ],
};

static CHANGELOG: Table = Table {
    name: "`state.changelog`",
    doc: "Kafka: changelog topics.",
    short: None,
    members: &[
        member("create", Kind::Bool, Is("false"), "Make them if they are missing."),
        member("replication", Kind::Integer(1), Is("3"), "Number of copies."),
    ],
};

/// `state`.
pub static STATE: Table = Table {
    name: "`state`",
    doc: "Where keyed state lives.",
    short: Some("store"),
    members: &[
        member(
            "store",
            Kind::Choice(&["durable", "memory"]),
            Is("durable"),
            "`memory`: lost on a crash, flushed as partial on a stop.",
        ),
        member(
            "dir",
            Kind::Text,
            Depends("the platform's state directory, below it the pipeline's name"),
            "Checkpoints and journal.",
        ),
        member("checkpoint", Kind::Duration(Sign::Positive), Is("1m"), "Time between checkpoints."),
        member("quota", Kind::Size { zero: false }, Is("4GiB"), "All stages together, on disk."),
        member("changelog", Kind::Map(&CHANGELOG), Is("{}"), "Kafka: changelog topics."),
        member("accept_loss", Kind::Bool, Is("false"), "Kafka: start with empty state where the changelog is gone."),
    ],
};

/// `run`.
pub static RUN: Table = Table {
    name: "`run`",
    doc: "Commit, stop, health.",
    short: None,
    members: &[
        member("commit", Kind::Duration(Sign::NotNegative), Is("200ms"), "Time between commits."),
        member("instance", Kind::Text, Depends("random, kept in `state.dir`"), "Name of this process."),
        member("stop", Kind::Duration(Sign::NotNegative), Is("25s"), "Time to drain after SIGTERM."),
        member("http", Kind::OrNone(&Kind::Address), Is("127.0.0.1:8484"), "Health, metrics, status."),
    ],
};

/// A test; its steps and rows are read by `tamis test`.
pub static TEST: Table = Table {
    name: "a test",
    doc: "A script of records and steps, and the rows that must come out.",
    short: None,
    members: &[
        member("name", Kind::Text, Required, "A sentence, unique in the file."),
        member("why", Kind::Text, Nothing, "The reason."),
        member("with", Kind::FreeMap, Nothing, "Replaces parameters of the stage, member by member; null removes one."),
        member("key", Kind::Free, Nothing, "Replaces the stage's; null removes it."),
        member("scope", Kind::Free, Nothing, "Replaces the stage's; null removes it."),
        member("state", Kind::Free, Nothing, "Replaces the stage's; null removes it."),
        member("time", Kind::Free, Nothing, "Replaces members of the file's `time`; null removes one."),
        member(
            "stage",
            Kind::Id,
            Depends("the first `dedup` stage, else the only stage"),
            "Which stage the members above and `counters` speak of.",
        ),
        member("from", Kind::Id, Depends("the first stage"), "Run only from this stage."),
        member("to", Kind::Id, Depends("the last stage"), "Run only to this stage."),
        member("match", Kind::Choice(&["exact", "contains"]), Is("exact"), "`contains`: others may come between."),
        member("partitions", Kind::Integer(1), Depends("1 + the greatest `p` in the script"), "Source partitions."),
        member("bounded", Kind::Bool, Depends("as the source is"), "For D-NO3 and D-UNBOUNDED."),
        member("delivery", Kind::Choice(&["exactly-once", "at-least-once"]), Is("exactly-once"), "What `crash` does."),
        member("input", Kind::List(&Kind::Free), Is("[]"), "Records and steps."),
        member("output", Kind::List(&Kind::Free), Is("[]"), "Rows, in the order of emission."),
        member("table", Kind::List(&Kind::Free), Nothing, "Content of a table that applied all output rows."),
        member("counters", Kind::FreeMap, Nothing, "Counters at the end."),
        member("refused", Kind::Text, Nothing, "The plan is refused, with this code among its reasons."),
        member("warns", Kind::List(&Kind::Text), Nothing, "Warnings that must be among those of the plan."),
        member("stops", Kind::Text, Nothing, "The pipeline stops with this failure after these rows."),
        member(
            "needs",
            Kind::Many(&Kind::Text),
            Nothing,
            "Cannot be shown offline; skipped unless the harness has it.",
        ),
    ],
};

/// The file.
pub static FILE: Table = Table {
    name: "a pipeline file",
    doc: "A tamis pipeline: one file, one pipeline.",
    short: None,
    members: &[
        member("version", Kind::Integer(1), Required, "Format of this file: 1."),
        member(
            "name",
            Kind::Name,
            Depends("the file's name without extension"),
            "Names consumer group, state, metrics.",
        ),
        member("description", Kind::Text, Nothing, "Free text."),
        member("labels", Kind::FreeMap, Is("{}"), "Free; never interpreted."),
        member("source", Kind::OneOf(&SOURCES, &["stdin"]), Is("stdin"), "Where records come from."),
        member("decode", Kind::Map(&DECODE), Is("{}"), "Bytes to documents."),
        member("time", Kind::Map(&TIME), Is("timestamp"), "Event time and watermarks."),
        member("stages", Kind::List(&Kind::Map(&STAGE)), Is("[]"), "The stages, in order."),
        member("encode", Kind::Map(&ENCODE), Nothing, "Documents to bytes."),
        member("sink", SINK_FORMS, Depends("`stdout`; required for a Kafka source"), "Where the output goes."),
        member("routes", Kind::Map(&ROUTES), Nothing, "Where late records and duplicates go."),
        member("errors", Kind::Map(&ERRORS), Is("{}"), "Tolerance, dead letters, retries."),
        member("limits", Kind::Map(&LIMITS), Is("{}"), "What one call, one batch, one guest may use."),
        member("state", Kind::Map(&STATE), Is("durable"), "Where keyed state lives."),
        member("run", Kind::Map(&RUN), Is("{}"), "Commit, stop, health."),
        member("tests", Kind::List(&Kind::Map(&TEST)), Nothing, "Scripts of records and the rows that must come out."),
    ],
};
