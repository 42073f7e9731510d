//! `dedup`: a stream made unique without writing a pipeline file. It writes one, shows it, and runs it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use xxhash_rust::xxh3::xxh3_64;

use super::exit::Failure;
use super::load;
use super::output::{Reply, Session, printable};
use super::{plan, run};
use crate::config::kafka::is_secret;
use crate::config::pipeline::Pipeline;
use crate::kafka;

/// Makes a stream unique, without a pipeline file.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A file or a glob; `-` is standard input; with `--brokers` a topic
    #[arg(long, value_name = "FILE|TOPIC")]
    pub from: String,
    /// A file, which is appended to; `-` is standard output; with `--brokers` a topic
    #[arg(long, value_name = "FILE|TOPIC")]
    pub to: String,
    /// What makes records the same: fields of the value, or paths such as `key` and `headers.id`
    #[arg(long, value_name = "FIELD,..", value_delimiter = ',', required = true)]
    pub key: Vec<String>,
    /// Which one stays: first, last
    #[arg(long, value_name = "WHICH")]
    pub keep: Option<String>,
    /// Limits sameness in time: `tumbling: 1h`, `horizon: 15m`, ... as in the file
    #[arg(long, value_name = "WINDOW")]
    pub window: Option<String>,
    /// What first and last compare: time, arrival, or fields
    #[arg(long, value_name = "ORDER")]
    pub order: Option<String>,
    /// Kind of output: append (records as they came, under their own keys), upsert (a table: the output key is what
    /// `--key` names)
    #[arg(long, value_name = "KIND")]
    pub output: Option<String>,
    /// Among which records: global, partition
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<String>,
    /// Where event time is: a field of the value, a path, or a mapping as in the file
    #[arg(long, value_name = "FIELD")]
    pub time: Option<String>,
    /// Forget a key after this time; with `--brokers`, without `--until` and without a window, 7d unless this says
    /// otherwise: the state of an endless stream would grow for ever
    #[arg(long, value_name = "DURATION")]
    pub retention: Option<String>,
    /// Kafka: from topic to topic of this cluster
    #[arg(long, value_name = "HOST:PORT,..")]
    pub brokers: Option<String>,
    /// Kafka: a client setting such as `security.protocol=SASL_SSL`; for secrets `sasl.password={from_env: NAME}`
    #[arg(long = "property", value_name = "NAME=VALUE", requires = "brokers")]
    pub properties: Vec<String>,
    /// Kafka: stop at what is the end now, for a trial
    #[arg(long, value_name = "end", requires = "brokers")]
    pub until: Option<String>,
    /// Kafka: make the output topic like the input, and the topic for state, if they are missing
    #[arg(long, requires = "brokers")]
    pub create: bool,
    /// Show the pipeline file instead of running it
    #[arg(long)]
    pub print: bool,
}

/// The verb.
pub fn main(args: &Args, session: &mut Session) -> Result<Reply, Failure> {
    check_properties(args)?;
    let like = match args.create {
        true => {
            let pipeline = read(&file(args, None), session)?;
            let clients = kafka::client::Clients::of(&pipeline, &session.environment, Path::new(""));
            let like = clients.and_then(|clients| kafka::topics::like(&clients, &args.from));
            Some(like.map_err(run::failure)?)
        }
        false => None,
    };
    let text = file(args, like.as_ref());
    if args.print {
        return Ok(Reply::new(text.clone(), serde_json::json!({ "file": text })));
    }
    session.say(&format!("the pipeline this runs (`--print` prints it):\n\n{text}"));
    let library = Arc::new(load::library(session)?);
    let pipeline = read(&text, session)?;
    let ready =
        run::prepare(session, Path::new(NAME), pipeline, &library).map_err(|failure| in_words(args, failure))?;
    session.say(&printable(&plan::words(ready.plan())));
    // There is no file to read again: a hangup ends it, as it ends other programs.
    run::run(session, vec![ready], &AtomicBool::new(false))
}

/// Beside this name, which is in the folder of the caller, relative paths and modules are looked for.
const NAME: &str = "<dedup>";

fn read(text: &str, session: &mut Session) -> Result<Pipeline, Failure> {
    let name: Arc<Path> = Arc::from(Path::new(NAME));
    session.sources.insert(Arc::clone(&name), Arc::from(text));
    let environment = session.environment.clone();
    let pipeline = crate::config::read(text, Some(&name), &|variable| environment.get(variable).cloned())
        .map_err(|(findings, _)| load::refused(&name, findings))?;
    match kafka::settings::wrong(&pipeline, &environment) {
        wrong if wrong.is_empty() => Ok(pipeline),
        wrong => Err(load::refused(&name, wrong)),
    }
}

/// Everybody on a machine sees the arguments of its processes.
fn check_properties(args: &Args) -> Result<(), Failure> {
    for property in &args.properties {
        let Some((name, value)) = property.split_once('=') else {
            return Err(Failure::invalid(format!("`--property {property}` is not NAME=VALUE"))
                .help("`--property security.protocol=SASL_SSL`"));
        };
        if is_secret(name) && !value.trim_start().starts_with('{') {
            return Err(Failure::invalid(format!("`{name}` is a secret: arguments are seen by everybody on this machine"))
                .help(format!("put it into a variable or a file: `--property '{name}={{from_env: NAME}}'`, `--property '{name}={{from_file: PATH}}'`")));
        }
    }
    Ok(())
}

/// Ways out in terms of the arguments: there is no file to edit.
fn in_words(args: &Args, mut failure: Failure) -> Failure {
    if ["there is no topic", "there are no topics"].iter().any(|words| failure.message.contains(words)) {
        let source = failure.message.contains(&format!("topic {} at ", args.from));
        failure.help = match source {
            true => vec!["check `--from`, and whether this user may describe it".to_owned()],
            false => {
                let command = failure.help.iter().find_map(|help| Some(help.split_once(" or: ")?.1.to_owned()));
                let mut help = vec!["`--create` makes what is missing, the output like the input".to_owned()];
                help.extend(command.map(|command| format!("or make it yourself: {command}")));
                help
            }
        };
    }
    for finding in &mut failure.diagnostics {
        let argument = match finding.code.as_str() {
            "P-EXCHANGE" => "with this command: `--scope partition`, or `key` as the first of `--key`",
            "D-UNBOUNDED" if args.brokers.is_some() => {
                "with this command: `--retention 7d`, a `--window`, or `--until end` for a trial"
            }
            _ => continue,
        };
        finding.help.insert(0, argument.to_owned());
    }
    failure
}

/// The pipeline file that the arguments stand for.
fn file(args: &Args, like: Option<&kafka::topics::Like>) -> String {
    let mut text = format!("version: 1\nname: {}\n", name(args));
    match args.from.as_str() {
        topic if args.brokers.is_some() => {
            let brokers = text_in_quotes(args.brokers.as_deref().unwrap_or_default());
            let until = args.until.as_ref().map_or(String::new(), |until| format!(", until: {}", quoted(until)));
            text.push_str(&format!(
                "source: {{ kafka: {{ topics: {}, brokers: {brokers}{until}{} }} }}\n",
                quoted(topic),
                properties(&args.properties)
            ));
        }
        "-" => text.push_str("source: stdin\n"),
        path => text.push_str(&format!("source: {{ file: {} }}\n", quoted(path))),
    }
    if let Some(time) = &args.time {
        text.push_str(&format!("time: {}\n", as_path_or_mapping(time)));
    }
    let keys: Vec<String> = args.key.iter().map(|key| quoted_path(key)).collect();
    text.push_str(&format!("stages:\n  - uses: dedup\n    id: dedup\n    key: [{}]\n", keys.join(", ")));
    if let Some(scope) = &args.scope {
        text.push_str(&format!("    scope: {}\n", quoted(scope)));
    }
    if let Some(retention) = &args.retention {
        text.push_str(&format!("    state: {{ retention: {} }}\n", quoted(retention)));
    } else if is_endless(args) && args.window.as_deref().is_none_or(|window| window.trim() == "none") {
        text.push_str(&format!("    state: {{ retention: {RETENTION} }}  # unless `--retention` says otherwise\n"));
    }
    let mut with: Vec<String> = Vec::new();
    if let Some(keep) = &args.keep {
        with.push(format!("keep: {}", quoted(keep)));
    }
    if let Some(window) = &args.window {
        with.push(format!("window: {}", as_mapping(window)));
    }
    if let Some(order) = &args.order {
        with.push(format!("order: {}", as_order(order)));
    }
    if let Some(output) = &args.output {
        with.push(format!("output: {}", quoted(output)));
    }
    if !with.is_empty() {
        text.push_str(&format!("    with: {{ {} }}\n", with.join(", ")));
    }
    match args.to.as_str() {
        topic if args.brokers.is_some() => {
            let create = like.map_or(String::new(), |like| {
                let config: Vec<String> =
                    like.config.iter().map(|(name, value)| format!("{name}: {}", text_in_quotes(value))).collect();
                let config = match config.is_empty() {
                    true => String::new(),
                    false => format!(", config: {{ {} }}", config.join(", ")),
                };
                format!(", create: {{ partitions: {}{config} }}", like.partitions)
            });
            text.push_str(&format!("sink: {{ kafka: {{ topic: {}{create} }} }}\n", quoted(topic)));
            if let Some(like) = like {
                let copies = like.brokers.clamp(1, 3);
                text.push_str(&format!("state: {{ changelog: {{ create: true, replication: {copies} }} }}\n"));
            }
        }
        "-" => text.push_str("sink: stdout\n"),
        path => text.push_str(&format!("sink: {{ file: {} }}\n", quoted(path))),
    }
    text
}

/// How long a key is known in an endless stream.
const RETENTION: &str = "7d";

fn is_endless(args: &Args) -> bool {
    args.brokers.is_some() && args.until.is_none()
}

/// Client settings as a member of the source: texts in quotes, mappings as they are.
fn properties(written: &[String]) -> String {
    let one = |property: &String| {
        let (name, value) = property.split_once('=').unwrap_or((property, ""));
        let value = if value.trim_start().starts_with('{') { value.to_owned() } else { text_in_quotes(value) };
        format!("{}: {value}", quoted(name))
    };
    match written {
        [] => String::new(),
        written => format!(", properties: {{ {} }}", written.iter().map(one).collect::<Vec<_>>().join(", ")),
    }
}

/// The same arguments go on where they stopped; others are another pipeline, with a state of its own.
fn name(args: &Args) -> String {
    let stem = Path::new(&args.from).file_stem().map_or("stdin".into(), |s| s.to_string_lossy().to_lowercase());
    let stem: String = stem.chars().filter(|c| c.is_ascii_alphanumeric()).take(40).collect();
    let stem = if stem.is_empty() { "stdin".to_owned() } else { stem };
    let here = match &args.brokers {
        // A topic is the same from everywhere.
        Some(brokers) => brokers.clone(),
        None => std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_default(),
    };
    let all = format!(
        "{here}\0{}\0{}\0{:?}\0{:?}\0{:?}\0{:?}\0{:?}\0{:?}\0{:?}",
        args.from, args.to, args.key, args.keep, args.window, args.order, args.output, args.scope, args.time
    );
    format!("dedup-{stem}-{:08x}", xxh3_64(all.as_bytes()) as u32)
}

/// A bare name means a field of the value.
fn path(text: &str) -> String {
    let text = text.trim();
    let root: String = text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let known = ["value", "key", "headers", "timestamp", "topic", "partition", "offset", "epoch", "position"];
    if known.contains(&root.as_str()) { text.to_owned() } else { format!("value.{text}") }
}

fn quoted_path(text: &str) -> String {
    quoted(&path(text))
}

/// Text as YAML: as it is where that is safe, else in quotes.
fn quoted(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let plain = text.chars().all(safe)
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '.')
        && !["true", "false", "null", "."].contains(&text);
    if plain { text.to_owned() } else { text_in_quotes(text) }
}

fn text_in_quotes(text: &str) -> String {
    format!("\"{}\"", text.escape_default().to_string().replace("\\'", "'"))
}

/// `{ .. }` and words as they are, `tumbling: 1h` in braces.
fn as_mapping(text: &str) -> String {
    let text = text.trim();
    if text.starts_with('{') || !text.contains(':') { text.to_owned() } else { format!("{{ {text} }}") }
}

fn as_path_or_mapping(text: &str) -> String {
    let text = text.trim();
    if text.starts_with('{') {
        text.to_owned()
    } else if text.contains(": ") {
        format!("{{ {text} }}")
    } else {
        quoted_path(text)
    }
}

fn as_order(text: &str) -> String {
    match text.trim() {
        word @ ("time" | "arrival") => word.to_owned(),
        list if list.starts_with('[') => list.to_owned(),
        fields => {
            let fields: Vec<String> = fields.split(',').map(quoted_path).collect();
            format!("[{}]", fields.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn args(list: &[&str]) -> Args {
        use clap::Parser;
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            args: Args,
        }
        Only::try_parse_from(std::iter::once("dedup").chain(list.iter().copied())).unwrap().args
    }

    /// The file without its first two lines (version and name).
    fn check(list: &[&str], expected: &str) {
        let text = file(&args(list), None);
        let rest: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rest.join("\n"), expected, "{list:?}");
    }

    #[test]
    fn bare_names_are_fields_of_the_value() {
        check(
            &["--from", "clicks.jsonl", "--to", "unique.jsonl", "--key", "ip_address,url,headers.id,key"],
            "source: { file: clicks.jsonl }\nstages:\n  - uses: dedup\n    id: dedup\n    \
             key: [value.ip_address, value.url, headers.id, key]\nsink: { file: unique.jsonl }",
        );
    }

    #[test]
    fn settings_are_written_as_in_the_file() {
        check(
            &[
                "--from",
                "-",
                "--to",
                "-",
                "--key",
                "id",
                "--keep",
                "last",
                "--window",
                "tumbling: 1h",
                "--order",
                "a,b",
                "--output",
                "upsert",
                "--scope",
                "partition",
                "--time",
                "ts",
            ],
            "source: stdin\ntime: value.ts\nstages:\n  - uses: dedup\n    id: dedup\n    key: [value.id]\n    \
             scope: partition\n    with: { keep: last, window: { tumbling: 1h }, order: [value.a, value.b], output: upsert }\n\
             sink: stdout",
        );
    }

    #[test]
    fn brokers_make_topics_of_both_ends() {
        check(
            &["--from", "users", "--to", "users.unique", "--key", "user_id", "--brokers", "a:9092", "--until", "end"],
            "source: { kafka: { topics: users, brokers: \"a:9092\", until: end } }\nstages:\n  - uses: dedup\n    \
             id: dedup\n    key: [value.user_id]\nsink: { kafka: { topic: users.unique } }",
        );
    }

    #[test]
    fn state_of_an_endless_stream_is_bounded_unless_something_bounds_it() {
        let has = |more: &[&str], words: &str| {
            let all = [&["--from", "a", "--to", "b", "--key", "id"], more].concat();
            let text = file(&args(&all), None);
            assert_eq!(text.contains("retention"), !words.is_empty(), "{more:?}");
            assert!(text.contains(words), "{more:?}: {text}");
        };
        has(&[], "");
        has(&["--brokers", "c:1"], "state: { retention: 7d }");
        has(&["--brokers", "c:1", "--window", "none"], "state: { retention: 7d }");
        has(&["--brokers", "c:1", "--retention", "1h"], "state: { retention: \"1h\" }");
        has(&["--brokers", "c:1", "--until", "end"], "");
        has(&["--brokers", "c:1", "--window", "horizon: 15m"], "");
    }

    #[test]
    fn the_output_topic_is_made_like_the_input() {
        let args = args(&["--from", "a", "--to", "b", "--key", "id", "--brokers", "c:1", "--create"]);
        let settings = |list: &[(&str, &str)]| list.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        for (config, sink) in [
            (settings(&[]), "topic: b, create: { partitions: 3 } } }"),
            (
                settings(&[("retention.ms", "-1")]),
                "topic: b, create: { partitions: 3, config: { retention.ms: \"-1\" } } } }",
            ),
        ] {
            let like = kafka::topics::Like { partitions: 3, config, brokers: 5 };
            let text = file(&args, Some(&like));
            assert!(text.contains(sink), "{text}");
            assert!(text.ends_with("state: { changelog: { create: true, replication: 3 } }\n"), "{text}");
        }
    }

    #[test]
    fn client_settings_are_those_of_the_source() {
        let secret = "sasl.password={from_env: PW}";
        let list = [
            "--from",
            "a",
            "--to",
            "b",
            "--key",
            "id",
            "--brokers",
            "c:1",
            "--property",
            "linger.ms=5",
            "--property",
            secret,
        ];
        assert!(check_properties(&args(&list)).is_ok());
        check(
            &list,
            "source: { kafka: { topics: a, brokers: \"c:1\", properties: { linger.ms: \"5\", sasl.password: {from_env: PW} } } }\n\
             stages:\n  - uses: dedup\n    id: dedup\n    key: [value.id]\n    \
             state: { retention: 7d }  # unless `--retention` says otherwise\nsink: { kafka: { topic: b } }",
        );
        let told = check_properties(&args(&[&list[..9], &["sasl.password=hidden"]].concat())).unwrap_err();
        assert!(!format!("{told:?}").contains("hidden"), "{told:?}");
    }

    #[test]
    fn odd_names_are_quoted() {
        check(
            &["--from", "a b*.jsonl", "--to", "x#y", "--key", "it's"],
            "source: { file: \"a b*.jsonl\" }\nstages:\n  - uses: dedup\n    id: dedup\n    key: [\"value.it's\"]\n\
             sink: { file: \"x#y\" }",
        );
    }

    #[test]
    fn the_name_is_that_of_the_arguments() {
        let of = |list: &[&str]| name(&args(list));
        let same = ["--from", "Clicks.JSONL", "--to", "b", "--key", "id"];
        assert_eq!(of(&same), of(&same));
        assert!(of(&same).starts_with("dedup-clicks-"));
        assert!(of(&["--from", "-", "--to", "-", "--key", "id"]).starts_with("dedup-stdin-"));
        assert_ne!(of(&same), of(&["--from", "Clicks.JSONL", "--to", "b", "--key", "id2"]));
    }
}
