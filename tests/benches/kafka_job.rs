//! What the benchmarks on Kafka share: the clicks in a topic, the pipeline over them, and children whose CPU is counted.
//!
//! Both sides run as a child process of their own, started from this very program, so that both are built alike: ours
//! is the command line of tamis as `tamis run` has it, the other is `kafka_copy`. A child's CPU is what the kernel says
//! of the whole process with all threads of the client library, from its start to its end; neither the broker nor this
//! process is in it. How fast records went through is read from the output topic: the broker stamps records as it
//! appends them, and the time is that between the first and the last. Nothing is added to either side to be measured.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tamis_tests::kafka::broker::{Cluster, shared};
use tamis_tests::kafka::topics::unique;
use tamis_tests::program::Folder;

use crate::kafka_copy;
use crate::kafka_watch::{Watched, say};

/// First argument of a child.
const CHILD: &str = "--child";
/// The kernel counts CPU in this unit.
const TICK: Duration = Duration::from_millis(10);
/// Partitions of every topic here.
pub const PARTITIONS: i32 = 4;

/// What a child does; nothing if this process is none.
pub fn child() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, child, what, rest @ ..] = arguments.as_slice() else { return None };
    if child != CHILD {
        return None;
    }
    match what.as_str() {
        "copy" => {
            let [file, source, sink, how] = rest else { panic!("copy FILE SOURCE SINK end|follow") };
            kafka_copy::copy(file, source, sink, how == "follow");
            Some(ExitCode::SUCCESS)
        }
        _ => {
            let environment = std::env::vars().collect();
            let arguments = ["tamis".to_owned()].into_iter().chain(rest.iter().cloned());
            Some(ExitCode::from(tamis::cli::main(arguments.map(Into::into), environment)))
        }
    }
}

/// What a child took.
pub struct Took {
    /// CPU of all its threads.
    pub cpu: Duration,
    /// What it wrote to standard error.
    pub said: String,
}

/// A folder, topics and a name for runs over one input.
pub struct Bench {
    pub cluster: &'static Cluster,
    pub folder: Folder,
    /// The input.
    pub source: String,
    /// Records in it.
    pub records: u64,
}

/// One run: names that nobody else has.
pub struct Run<'a> {
    pub bench: &'a Bench,
    pub name: String,
    pub sink: String,
}

impl Bench {
    /// An input topic with so many clicks.
    pub fn new(area: &str, records: u64, value: impl Fn(u64) -> Vec<u8>) -> Bench {
        let cluster = shared();
        let source = unique(area);
        cluster.create(&source, PARTITIONS, &[("message.timestamp.type", "LogAppendTime")]);
        let bench = Bench { cluster, folder: Folder::new(&source), source, records };
        bench.fill(records, value);
        bench
    }

    /// A producer of input, which waits so many ms for more.
    pub fn producer(&self, linger: &str) -> BaseProducer {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.cluster.brokers()).set("enable.idempotence", "true");
        config.set("compression.type", "lz4").set("linger.ms", linger).set("delivery.report.only.error", "true");
        config.create().expect("a producer")
    }

    fn fill(&self, records: u64, value: impl Fn(u64) -> Vec<u8>) {
        let producer = self.producer("5");
        for number in 0..records {
            if number % 1_000_000 == 0 {
                say(&format!("{}: writing record {number} of {records}", self.source));
            }
            send(&producer, &self.source, key(repeated(number)).as_bytes(), &value(number));
        }
        producer.flush(Duration::from_secs(60)).expect("the input arrives");
    }

    /// A run with an output topic of its own, whose records the broker stamps.
    pub fn run(&self, area: &str) -> Run<'_> {
        let name = unique(area);
        let sink = format!("{name}-out");
        self.cluster.create(&sink, PARTITIONS, &[("message.timestamp.type", "LogAppendTime")]);
        Run { bench: self, name, sink }
    }
}

/// Hands a record over, waiting where the queue is full. Its partition is that of the key.
pub fn send(producer: &BaseProducer, topic: &str, key: &[u8], value: &[u8]) {
    let partition = tamis::kafka::partition::of_key(key, PARTITIONS);
    loop {
        match producer.send(BaseRecord::to(topic).partition(partition).key(key).payload(value)) {
            Ok(()) => return,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                producer.poll(Duration::from_millis(1));
            }
            Err((error, _)) => panic!("{topic}: {error}"),
        }
    }
}

/// The number of the click that this one repeats, or its own: one in four is a repeat.
pub fn repeated(number: u64) -> u64 {
    if number % 4 == 3 { number / 2 / 4 * 4 } else { number }
}

/// The key of a click's record.
pub fn key(number: u64) -> String {
    format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)
}

/// A click of 200 bytes with 9 fields, which does not compress better than clicks do: the key is (ip, url).
pub fn click(number: u64) -> Vec<u8> {
    let same = repeated(number);
    let mut text = format!(
        "{{\"ts\":{:013},\"ip\":\"{}\",\"method\":\"GET\",\"url\":\"https://example.com/item/{same:09}\",\"status\":200,\"bytes\":{},\"ua\":\"Mozilla/5.0 (X11)\",\"uid\":{},\"sid\":\"",
        1_700_000_000_000 + number,
        key(same),
        mixed(number) % 100_000,
        mixed(same) % 1_000_000,
    );
    let mut random = mixed(number);
    while text.len() < 198 {
        random = mixed(random);
        text.push(char::from(b"0123456789abcdef"[(random >> 60) as usize]));
    }
    text.truncate(198);
    text.push_str("\"}");
    text.into_bytes()
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 31).wrapping_add(0x9e37_79b9).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}

impl Run<'_> {
    /// The pipeline: keep the first click of an address and page, in the partition.
    pub fn pipeline(&self, delivery: &str, until_end: bool, more: &str) -> PathBuf {
        let Run { bench, name, sink } = self;
        let (brokers, source) = (bench.cluster.brokers(), &bench.source);
        let until = if until_end { ", until: end" } else { "" };
        let file = format!("{name}.yaml");
        bench.folder.write(
            &file,
            format!(
                "version: 1\nname: {name}\n\
                 source: {{ kafka: {{ topics: {source}, brokers: \"{brokers}\"{until} }} }}\n\
                 stages:\n  - {{ uses: dedup, id: one, key: [value.ip, value.url], scope: partition, state: {{ unbounded: true }} }}\n\
                 sink: {{ kafka: {{ topic: {sink}, delivery: {delivery} }} }}\n\
                 errors: {{ dead_letter: {{ kafka: {{ topic: {name}-dead, create: {{ partitions: 1 }} }} }} }}\n\
                 state: {{ changelog: {{ create: true, replication: 1 }} }}\n\
                 run: {{ commit: 200ms }}\n{more}"
            ),
        );
        bench.folder.path(&file)
    }

    /// The command of tamis, in a child of this program.
    pub fn tamis(&self, arguments: &[&str]) -> Command {
        let mut command = this(&["tamis"]);
        command.args(arguments).current_dir(self.bench.folder.path("."));
        command
            .env("XDG_STATE_HOME", self.bench.folder.path("state"))
            .env("XDG_CACHE_HOME", std::env::temp_dir().join("tamis-test-cache"))
            .env_remove("TAMIS_MODULES");
        command
    }

    /// Where children of this run say what they say.
    pub fn log(&self) -> PathBuf {
        self.bench.folder.path(&format!("{}.log", self.name))
    }

    /// The baseline; `how`: to the `end` of what is there, or `follow`.
    pub fn copy(&self, how: &str) -> Command {
        let file = self.pipeline("at-least-once", true, "");
        this(&["copy", &file.to_string_lossy(), &self.bench.source, &self.sink, how])
    }

    /// Time between the first and the last record in the output, as the broker appended them.
    pub fn span(&self) -> Duration {
        let client = self.client();
        let stamps = |from: fn(i64, i64) -> i64, last: bool| {
            (0..PARTITIONS).filter_map(|p| stamp(&client, &self.sink, p, from, last)).collect::<Vec<i64>>()
        };
        let first = stamps(|low, _| low, false).into_iter().min().expect("there is output");
        // Behind the last record there may be the end of a transaction.
        let last = stamps(|low, high| (high - 8).max(low), true).into_iter().max().expect("there is output");
        Duration::from_millis((last - first).max(1) as u64)
    }

    /// A consumer of no group.
    pub fn client(&self) -> BaseConsumer {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.bench.cluster.brokers()).set("group.id", "unused");
        config.set("enable.partition.eof", "true").set("enable.auto.commit", "false");
        // Else a question waits behind one that waits for records.
        config.set("fetch.wait.max.ms", "10");
        config.create().expect("a consumer")
    }
}

/// Timestamp of the first or the last record from an offset on.
pub fn stamp(
    client: &BaseConsumer,
    topic: &str,
    partition: i32,
    from: impl Fn(i64, i64) -> i64,
    last: bool,
) -> Option<i64> {
    let (low, high) = client.fetch_watermarks(topic, partition, Duration::from_secs(20)).expect("offsets");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(from(low, high))).expect("an offset");
    client.assign(&list).expect("assigned");
    let mut found = None;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        match client.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                found = message.timestamp().to_millis();
                if !last {
                    return found;
                }
            }
            Some(Err(KafkaError::PartitionEOF(_))) => return found,
            _ => {}
        }
    }
    found
}

fn this(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.arg(CHILD).args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Longest time that a child may take which reads what is there.
const LONGEST: Duration = Duration::from_secs(300);

/// Runs a child to its end, which must come. No other child of this process may end meanwhile.
pub fn measured(run: &Run<'_>, what: &str, command: Command) -> Took {
    let before = cpu("self", 13);
    let said = Watched::start(command, what, &run.log()).end(LONGEST);
    let cpu = cpu("self", 13) - before;
    say(&format!("{what}: done"));
    Took { cpu, said }
}

/// Milliseconds since 1970, as the broker on this machine counts them.
pub fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").as_millis() as i64
}

/// CPU of a process: with 11 its own so far, with 13 that of its children that have ended and were waited for.
pub fn cpu(process: &str, at: usize) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("this is Linux");
    let behind_name = text.rsplit_once(')').expect("a name in brackets").1;
    let number = |at: usize| behind_name.split_ascii_whitespace().nth(at).and_then(|n| n.parse::<u32>().ok());
    TICK * (number(at).expect("user") + number(at + 1).expect("system"))
}
