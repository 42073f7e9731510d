//! The examples on Kafka give what they give on files.

use std::collections::BTreeMap;

use serde_json::Value;
use tamis_tests::kafka::broker::shared;
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::{Folder, root};

/// What one key had written under it, in order: value and, where it is compared, timestamp.
type Written = BTreeMap<String, Vec<(Value, Option<i64>)>>;

fn lines(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("examples").join(path)).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A line of an envelope file as a record.
fn record(line: &str) -> Rec {
    let line = json(line);
    Rec::new(&text(&line["key"]), &line["value"].to_string()).timed(line["timestamp"].as_i64().unwrap_or(0))
}

/// What an envelope file says was written.
fn expected(path: &str, with_time: bool) -> Written {
    let mut written = Written::new();
    for line in lines(path) {
        let line = json(&line);
        let time = with_time.then(|| line["timestamp"].as_i64()).flatten();
        written.entry(text(&line["key"])).or_default().push((line["value"].clone(), time));
    }
    written
}

/// Runs an example with topics of its own, twice: the second run finds nothing to do.
#[track_caller]
fn check(example: &str, topics: [&str; 2], partitions: i32, input: &[Rec], expected: &Written) {
    let cluster = shared();
    let folder = Folder::new(&format!("kafka-example-{example}"));
    let (from, to) = (cluster.topic("example-in", partitions), unique("example-out"));
    let text = std::fs::read_to_string(root().join(format!("examples/kafka/{example}.yaml"))).unwrap();
    let name = text.lines().find(|line| line.starts_with("name: ")).unwrap();
    let text = text
        .replace(&format!("topics: {}", topics[0]), &format!("topics: {from}"))
        .replace(&format!("topic: {}", topics[1]), &format!("topic: {to}"))
        .replace(name, &format!("name: {}", unique("example")));
    folder.write("p.yaml", text);
    cluster.write(&from, input);
    let with_time = expected.values().flatten().any(|(_, time)| time.is_some());
    for run in 1..=2 {
        let ran = folder.command(&["run", "p.yaml"]).env("TAMIS_BROKERS", cluster.brokers()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(0), "run {run}: {said}");
        assert_eq!(cluster.partitions(&to), partitions, "as many as the source has");
        let mut written = Written::new();
        for record in cluster.read(&to) {
            let time = with_time.then_some(record.timestamp);
            let value = record.value.as_deref().map_or(Value::Null, |v| json(&String::from_utf8_lossy(v)));
            written.entry(record.key_text()).or_default().push((value, time));
        }
        assert_eq!(&written, expected, "run {run}: {said}");
    }
}

#[test]
fn users() {
    let input: Vec<Rec> = lines("users/users.jsonl").iter().map(|line| record(line)).collect();
    check("users", ["users", "users.unique"], 1, &input, &expected("users/expected.jsonl", true));
}

#[test]
fn clicks_whose_address_is_the_key() {
    let without = |line: &str| {
        let mut value = json(line);
        let address = value.as_object_mut().unwrap().remove("ip_address").unwrap();
        (text(&address), value)
    };
    let input: Vec<Rec> = lines("clicks/clicks.jsonl")
        .iter()
        .map(|line| {
            let (address, value) = without(line);
            Rec::new(&address, &value.to_string())
        })
        .collect();
    let mut wanted = Written::new();
    for line in lines("clicks/expected.jsonl") {
        let (address, value) = without(&line);
        wanted.entry(address).or_default().push((value, None));
    }
    check("clicks", ["clicks", "clicks.unique"], 1, &input, &wanted);
}

#[test]
fn stock_movements_in_three_partitions() {
    // Copies have the warehouse of the first as their key, so they are in its partition.
    let mut warehouses: Vec<String> = Vec::new();
    let mut input = Vec::new();
    for line in lines("stock-movements/movements.jsonl") {
        let record = record(&line);
        let warehouse = record.key_text();
        let number = warehouses.iter().position(|w| *w == warehouse).unwrap_or_else(|| {
            warehouses.push(warehouse);
            warehouses.len() - 1
        });
        input.push(record.at(number as i32 % 3));
    }
    let wanted = expected("stock-movements/expected.jsonl", true);
    check("stock-movements", ["STOCK.MOVEMENT", "STOCK.MOVEMENT.UNIQUE"], 3, &input, &wanted);
}

#[test]
fn logs() {
    let input: Vec<Rec> =
        lines("logs/raw_logs.jsonl").iter().map(|line| Rec { key: None, ..Rec::new("", line) }).collect();
    check("logs", ["raw_logs", "dedup_logs"], 1, &input, &expected("logs/expected-latest.jsonl", false));
}
