//! Reading what is there, to its true end: read-committed up to the high watermark of everybody, so that a transaction
//! that is still open shows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::json;

use crate::judge::{Pair, Verdict, judge};
use crate::state::{self, Change};
use crate::{Arguments, Failure, number, text};

const PATIENCE: Duration = Duration::from_secs(30);

/// Judges a run; false: something is not as promised. It waits until the group has read everything, and until no
/// transaction is open.
pub fn check(arguments: &Arguments) -> Result<bool, Failure> {
    let brokers = text(arguments, "brokers")?;
    let (from, to, group) = (text(arguments, "from")?, text(arguments, "to")?, text(arguments, "group")?);
    let changelog = text(arguments, "changelog")?;
    let within = Duration::from_secs(number(arguments, "within", 120)?);
    let began = Instant::now();
    let ends = ends(brokers, from, "read_uncommitted")?;
    // Exactly the end: a position beyond it is as wrong as one before it.
    let behind = loop {
        let committed = committed(brokers, group, from, ends.len())?;
        let behind: i64 = ends.iter().zip(&committed).map(|(end, (done, _))| (end - done.max(&0)).abs()).sum();
        if behind == 0 || began.elapsed() > within {
            break behind;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    let mut open = 0;
    for topic in [to, changelog] {
        open += loop {
            let all = self::ends(brokers, topic, "read_uncommitted")?;
            let stable = self::ends(brokers, topic, "read_committed")?;
            let open = all.iter().zip(&stable).filter(|(all, stable)| all != stable).count();
            if open == 0 || began.elapsed() > within {
                break open;
            }
            std::thread::sleep(Duration::from_millis(200));
        };
    }
    let (input, output, changes) = (read(brokers, from)?, read(brokers, to)?, read(brokers, changelog)?);
    let tokens = committed(brokers, group, from, ends.len())?;
    let mut verdict = Verdict::default();
    let mut state = Vec::new();
    for partition in 0..ends.len().max(output.len()) {
        let (input, output) = (side(&input, partition), side(&output, partition));
        verdict.add(&judge(&pairs(input), &pairs(output)));
        let changes: Vec<Change> = side(&changes, partition).iter().map(|r| (r.key.clone(), r.value.clone())).collect();
        let token = tokens.get(partition).map_or("", |(_, token)| token);
        let faults = state::judge(&changes, token, &firsts(input));
        state.extend(faults.0.into_iter().map(|fault| format!("partition {partition}: {fault}")));
    }
    let records = number(arguments, "records", verdict.inputs)?;
    let hidden = self::ends(brokers, to, "read_uncommitted")?.iter().sum::<i64>() - verdict.outputs as i64;
    let whole = verdict.inputs == records;
    let holds = verdict.holds() && behind == 0 && open == 0 && whole && state.is_empty();
    let is_sheaf = |record: &&Record| record.key.first() == Some(&4);
    let sheaves = changes.values().flatten().filter(is_sheaf).count();
    let report = json!({
        "holds": holds,
        "inputs": verdict.inputs,
        "inputs_expected": records,
        "unique": verdict.unique,
        "outputs": verdict.outputs,
        "missing": verdict.missing,
        "foreign": verdict.foreign,
        "duplicates": verdict.duplicates,
        "changed": verdict.changed,
        "out_of_order": verdict.out_of_order,
        "partitions_with_open_transactions": open,
        "records_not_committed": behind,
        "changelog_records": changes.values().map(Vec::len).sum::<usize>(),
        "changelog_sheaves": sheaves,
        "state_not_as_committed": state,
        "hidden_offsets": hidden,
        "seconds": began.elapsed().as_secs_f64(),
    });
    println!("{report}");
    Ok(holds)
}

/// A record that was read.
struct Record {
    offset: i64,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

fn side(of: &BTreeMap<i32, Vec<Record>>, partition: usize) -> &[Record] {
    of.get(&(partition as i32)).map_or(&[], Vec::as_slice)
}

fn pairs(records: &[Record]) -> Vec<Pair> {
    records.iter().map(|r| (r.key.clone(), r.value.clone().unwrap_or_default())).collect()
}

/// Offsets of the first record of each key.
fn firsts(records: &[Record]) -> BTreeSet<i64> {
    let mut seen = BTreeSet::new();
    records.iter().filter(|r| seen.insert(&r.key)).map(|r| r.offset).collect()
}

fn client(brokers: &str, isolation: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("isolation.level", isolation).set("client.id", "verifier");
    config.set("group.id", "verifier-reads-only").set("enable.auto.commit", "false");
    config
}

fn consumer(config: &ClientConfig) -> Result<BaseConsumer, Failure> {
    config.create().map_err(|error| error.to_string())
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Result<i32, Failure> {
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).map_err(|error| error.to_string())?;
    let found = metadata.topics().iter().find(|t| t.name() == topic).map_or(0, |t| t.partitions().len());
    if found == 0 { Err(format!("there is no topic {topic}")) } else { Ok(found as i32) }
}

/// End of each partition under an isolation level.
fn ends(brokers: &str, topic: &str, isolation: &str) -> Result<Vec<i64>, Failure> {
    let consumer = consumer(&client(brokers, isolation))?;
    (0..partitions(&consumer, topic)?)
        .map(|p| consumer.fetch_watermarks(topic, p, PATIENCE).map(|(_, end)| end).map_err(|error| error.to_string()))
        .collect()
}

/// What a group has committed: offset (-1: nothing) and metadata of each partition.
fn committed(brokers: &str, group: &str, topic: &str, partitions: usize) -> Result<Vec<(i64, String)>, Failure> {
    let consumer = consumer(client(brokers, "read_committed").set("group.id", group))?;
    let began = Instant::now();
    loop {
        let mut list = TopicPartitionList::new();
        list.add_partition_range(topic, 0, partitions as i32 - 1);
        match consumer.committed_offsets(list, PATIENCE) {
            Ok(list) => {
                let elements = list.elements_for_topic(topic);
                return Ok(elements
                    .iter()
                    .map(|e| (e.offset().to_raw().unwrap_or(-1).max(-1), e.metadata().to_owned()))
                    .collect());
            }
            // An answer waits while offsets are pending in an open transaction.
            Err(error) if began.elapsed() > PATIENCE * 3 => return Err(error.to_string()),
            Err(_) => {}
        }
    }
}

/// Every committed record by partition.
fn read(brokers: &str, topic: &str) -> Result<BTreeMap<i32, Vec<Record>>, Failure> {
    let mut config = client(brokers, "read_committed");
    let consumer = consumer(config.set("enable.partition.eof", "true").set("check.crcs", "true"))?;
    let count = partitions(&consumer, topic)?;
    let mut list = TopicPartitionList::new();
    for partition in 0..count {
        list.add_partition_offset(topic, partition, Offset::Beginning).map_err(|error| error.to_string())?;
    }
    consumer.assign(&list).map_err(|error| error.to_string())?;
    let mut found: BTreeMap<i32, Vec<Record>> = (0..count).map(|p| (p, Vec::new())).collect();
    let mut at_end = BTreeSet::new();
    let mut heard = Instant::now();
    while at_end.len() < count as usize {
        match consumer.poll(Duration::from_millis(200)) {
            None if heard.elapsed() > PATIENCE => return Err(format!("{topic}: nothing comes any more")),
            None => continue,
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                at_end.insert(partition);
            }
            Some(Err(error)) => return Err(error.to_string()),
            Some(Ok(message)) => {
                found.entry(message.partition()).or_default().push(Record {
                    offset: message.offset(),
                    key: message.key().unwrap_or_default().to_vec(),
                    value: message.payload().map(<[u8]>::to_vec),
                });
            }
        }
        heard = Instant::now();
    }
    Ok(found)
}
