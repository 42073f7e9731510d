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
use crate::{Arguments, Failure, number, text};

const PATIENCE: Duration = Duration::from_secs(30);

/// Judges a run; false: something is not as promised. It waits until the group has read everything, and until no
/// transaction is open.
pub fn check(arguments: &Arguments) -> Result<bool, Failure> {
    let brokers = text(arguments, "brokers")?;
    let (from, to, group) = (text(arguments, "from")?, text(arguments, "to")?, text(arguments, "group")?);
    let within = Duration::from_secs(number(arguments, "within", 120)?);
    let began = Instant::now();
    let ends = ends(brokers, from, "read_committed")?;
    let behind = loop {
        let committed = committed(brokers, group, from, ends.len())?;
        let behind: i64 = ends.iter().zip(&committed).map(|(end, (done, _))| end - done.max(&0)).sum();
        if behind == 0 || began.elapsed() > within {
            break behind;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    let open = loop {
        let all = self::ends(brokers, to, "read_uncommitted")?;
        let stable = self::ends(brokers, to, "read_committed")?;
        let open = all.iter().zip(&stable).filter(|(all, stable)| all != stable).count();
        if open == 0 || began.elapsed() > within {
            break open;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    let (input, output) = (read(brokers, from)?, read(brokers, to)?);
    let mut verdict = Verdict::default();
    let empty = Vec::new();
    for partition in input.keys().chain(output.keys()).collect::<BTreeSet<_>>() {
        let side = |of: &BTreeMap<i32, Vec<Pair>>| of.get(partition).cloned().unwrap_or_else(|| empty.clone());
        verdict.add(&judge(&side(&input), &side(&output)));
    }
    // Keys that the state holds, as the committed tokens tell (`version;sequence;nonce;watermark;entries;digest`).
    let tokens = committed(brokers, group, from, ends.len())?;
    let kept: Vec<u64> =
        tokens.iter().filter_map(|(_, token)| token.split(';').nth(4).and_then(|n| n.parse().ok())).collect();
    let records = number(arguments, "records", verdict.inputs)?;
    let hidden = self::ends(brokers, to, "read_uncommitted")?.iter().sum::<i64>() - verdict.outputs as i64;
    let whole = verdict.inputs == records;
    let holds = verdict.holds() && behind == 0 && open == 0 && whole;
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
        "kept_by_state": (kept.len() == tokens.len()).then(|| kept.iter().sum::<u64>()),
        "hidden_offsets": hidden,
        "seconds": began.elapsed().as_secs_f64(),
    });
    println!("{report}");
    Ok(holds)
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
fn read(brokers: &str, topic: &str) -> Result<BTreeMap<i32, Vec<Pair>>, Failure> {
    let mut config = client(brokers, "read_committed");
    let consumer = consumer(config.set("enable.partition.eof", "true").set("check.crcs", "true"))?;
    let count = partitions(&consumer, topic)?;
    let mut list = TopicPartitionList::new();
    for partition in 0..count {
        list.add_partition_offset(topic, partition, Offset::Beginning).map_err(|error| error.to_string())?;
    }
    consumer.assign(&list).map_err(|error| error.to_string())?;
    let mut found: BTreeMap<i32, Vec<Pair>> = BTreeMap::new();
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
                let pair = (message.key().unwrap_or_default().to_vec(), message.payload().unwrap_or_default().to_vec());
                found.entry(message.partition()).or_default().push(pair);
            }
        }
        heard = Instant::now();
    }
    Ok(found)
}
