//! Errors in the file itself.

use super::Entry;

/// The P- codes.
pub static ENTRIES: &[Entry] = &[
    Entry {
        code: "P-SYNTAX",
        when: "the file is not YAML, or more of it than is allowed",
        reason: "Nothing can be said of a file that cannot be read. Files are YAML 1.2 with the core schema, one document each; JSON is a part of that. Nesting, the number of values (aliases counted as what they stand for) and the length are bounded.",
        ways: &[
            "check indentation and brackets at the place shown",
            "quote text that begins with one of { [ * & ! | > % @",
            "put a second document into a file of its own",
        ],
        rules: &[],
    },
    Entry {
        code: "P-UNKNOWN",
        when: "a member is not known where it stands, or stands there twice",
        reason: "A misspelt setting that is silently ignored runs with its default for months. So nothing is ignored, and of two members of one name neither wins.",
        ways: &[
            "take the name that is suggested",
            "look whether it belongs one level up or down: parameters of a guest stand in `with`, key, scope and state beside it, time at the top",
            "`tamis schema` for an editor that completes names",
        ],
        rules: &[],
    },
    Entry {
        code: "P-MISSING",
        when: "a member that is required is not there",
        reason: "There is no default that could be right.",
        ways: &["add it; the message says what it is for"],
        rules: &[],
    },
    Entry {
        code: "P-VALUE",
        when: "a value has another type than is wanted, or is not legal",
        reason: "Types are not guessed: `yes` is text, `1` is a number, and text where a list is wanted is a mistake more often than a shorthand. Short forms are listed, never inferred.",
        ways: &[
            "take what is suggested",
            "quote a number or a boolean where text is wanted",
            "`tamis inspect GUEST` lists the parameters of a guest",
        ],
        rules: &[],
    },
    Entry {
        code: "P-UNIT",
        when: "a duration or a size has no unit, or none that is known",
        reason: "`60` is a minute to one reader and 60 ms to the next.",
        ways: &[
            "durations: ns us ms s m h d w, largest first: `250ms`, `1d12h`, `1.5s`; zero is `0s`",
            "sizes: B KB MB GB TB (powers of 1000), KiB MiB GiB TiB (1024); zero is `0B`",
        ],
        rules: &["X6"],
    },
    Entry {
        code: "P-PATH",
        when: "a field path cannot be read, or does not start with a root",
        reason: "A bare name could mean a member of the value, of the key, or a header. A dot means nesting, so a name with a dot in it must be quoted.",
        ways: &[
            "begin with value, key, headers, timestamp, topic, partition, offset, epoch or position: `value.id`",
            "other names are quoted: `value[\"a.b\"]`",
            "elements of arrays count from 0: `value.tags[0]`",
        ],
        rules: &["K9"],
    },
    Entry {
        code: "P-VARIABLE",
        when: "a variable is not set, or its form is not known",
        reason: "A missing variable is a mistake, not an empty text.",
        ways: &["set it", "give a default: `${NAME:-default}`", "`$${NAME}` for the characters themselves"],
        rules: &[],
    },
    Entry {
        code: "P-OWNED",
        when: "a client setting is given that tamis sets itself",
        reason: "Exactly-once depends on these settings; another value would break it without a word.",
        ways: &["leave it out", "`group`, `start` and `isolation` of the source stand for three of them"],
        rules: &["R2"],
    },
    Entry {
        code: "P-TIMESTAMP",
        when: "something needs event time, `time` names the record timestamp, and the records have none",
        reason: "Lines of a file carry no timestamp. Every record would be invalid.",
        ways: &[
            "say where event time is: `time: value.created_at`",
            "read envelopes, which carry a timestamp: `format: envelope`",
            "use a mode without event time: `clock: processing`, or `order: arrival` without a window",
        ],
        rules: &["T1"],
    },
    Entry {
        code: "P-GUEST",
        when: "there is no such guest, it is of another world than its place wants, or it cannot be used",
        reason: "A codec is no stage, a stage no key. A module that does not fit this host is refused before anything runs.",
        ways: &[
            "`tamis list` shows what is there",
            "name a file by its path, relative to the pipeline file: `./my.wasm`",
            "put modules that go by name into `modules/` beside the pipeline file, or name a folder with --modules or TAMIS_MODULES",
            "`tamis inspect GUEST` says what a module is; of two of one name and version take one away",
        ],
        rules: &[],
    },
    Entry {
        code: "P-CHAIN",
        when: "a stage that may change or drop rows stands behind one with upsert or retract output",
        reason: "An update takes back what was written before. A stage that drops or changes one of the two images leaves the table behind it wrong.",
        ways: &["put the stage in front", "let the stage before it append: `output: append`"],
        rules: &["O5"],
    },
    Entry {
        code: "P-EXCHANGE",
        when: "records would have to be exchanged by key between two stages, and cannot",
        reason: "A stage with `scope: partition` lives in one partition; one with `scope: global` sees them all. Between the two stands the exchange by key.",
        ways: &["give both stages the same scope", "make two pipelines of it, with a topic or file between them"],
        rules: &["R6"],
    },
    Entry {
        code: "P-SQL",
        when: "a statement given to `tamis import` cannot be read, or no pipeline would mean the same",
        reason: "A pipeline reads one stream and keeps records; it does not join, aggregate, sort or compute. An import that nearly means the same is worse than none.",
        ways: &[
            "change the query as the message suggests",
            "`--query N` for one of several queries",
            "write the pipeline file by hand: docs/other-words.md says SQL in its words",
        ],
        rules: &[],
    },
    Entry {
        code: "P-RESTART",
        when: "the file of a running pipeline was read again, and something has changed that cannot change while it runs",
        reason: "Where records come from and go to, what lasts and what they are decoded by stays for as long as a run. What can change: `time`, `stages` (R8), what `errors` says but for the dead letter, `limits` but for `batch`, `state.checkpoint`, `state.quota`, `run.commit`.",
        ways: &["stop the run and start it again: it goes on where it stopped", "the old setting"],
        rules: &["R8"],
    },
    Entry {
        code: "P-LATER",
        when: "the file uses something that is defined, but not built yet",
        reason: "This version reads and writes files, standard streams and Kafka topics, Kafka at both ends. Not built yet: records exchanged by key between partitions, csv, predicates (`when`, `unless`), the codecs csv, long, int, boolean and none, modules from registries; in dedup micro-batches and changelog input.",
        ways: &["take what the message suggests in its place"],
        rules: &[],
    },
];
