//! Flink SQL with its connector options, imported and run against a real broker: the topics hold the tutorials' tables.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tamis_tests::kafka::broker::shared;
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::{Folder, root};

fn lines(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(root().join("examples").join(path)).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Imports the SQL as it stands, its topics and brokers exchanged for those of the test; gives the table of the sink.
#[track_caller]
fn table(name: &str, edit: &dyn Fn(String) -> String, topics: [&str; 2], input: &[Rec]) -> BTreeMap<String, Value> {
    let cluster = shared();
    let folder = Folder::new(&format!("kafka-import-{name}"));
    let (from, to) = (cluster.topic("import-in", 1), cluster.topic("import-out", 1));
    let sql = edit(std::fs::read_to_string(root().join("tests/import/sql").join(name)).unwrap());
    folder.write("flink.sql", sql);
    let imported = folder.run(&["import", "flink.sql"]).exits(0).out();
    let pipeline = imported
        .replace(&format!("topics: {}", topics[0]), &format!("topics: {from}"))
        .replace(&format!("topic: {}", topics[1]), &format!("topic: {to}"))
        .replace("brokers: ", &format!("until: end\n    brokers: {} # ", cluster.brokers()))
        .replace("{ create: true }", "{ create: true, replication: 1 }");
    let named = pipeline.lines().find(|line| line.starts_with("name: ")).unwrap().to_string();
    let pipeline = block(&pipeline.replace(&named, &format!("name: {}", unique("import"))));
    folder.write("p.yaml", &pipeline);
    cluster.write(&from, input);
    let ran = folder.run(&["run", "p.yaml"]);
    assert_eq!(ran.code(), 0, "{pipeline}\n{}", ran.err());
    let mut table = BTreeMap::new();
    for record in cluster.read(&to) {
        table.insert(record.key_text(), serde_json::from_str(&record.text()).unwrap());
    }
    table
}

/// The source as a block, so that the lines above may stand in it.
fn block(pipeline: &str) -> String {
    let inner = |line: &str| -> Option<String> {
        let inner = line.strip_prefix("  kafka: { topics: ")?;
        let (topics, rest) = inner.split_once(", ")?;
        Some(format!("  kafka:\n    topics: {topics}\n    {rest}"))
    };
    let lines: Vec<String> = pipeline.lines().map(|line| inner(line).unwrap_or_else(|| line.to_string())).collect();
    lines.join("\n") + "\n"
}

#[test]
fn users_made_unique() {
    let input: Vec<Rec> = lines("users/users.jsonl")
        .iter()
        .map(|line| {
            let key = line["key"].as_str().unwrap();
            Rec::new(key, &line["value"].to_string()).timed(line["timestamp"].as_i64().unwrap())
        })
        .collect();
    let table = table("users.sql", &|sql| sql, ["users", "users_deduplicate"], &input);
    assert_eq!(table.len(), 8, "{table:?}");
    assert_eq!(
        table["\"Niobe\""],
        json!({ "user_id": "Niobe", "key": "row-10", "registertime": 1677260921, "gender": "female", "regionid": "Region_3" })
    );
}

#[test]
fn stock_movements_kept_once() {
    let input: Vec<Rec> = lines("stock-movements/movements.jsonl")
        .iter()
        .map(|line| {
            let key = line["key"].as_str().unwrap();
            Rec::new(key, &line["value"].to_string()).timed(line["timestamp"].as_i64().unwrap())
        })
        .collect();
    // The broker of the test asks for no password.
    let open = |sql: String| -> String {
        sql.lines().filter(|line| !line.contains("properties.s")).map(|line| format!("{line}\n")).collect()
    };
    let table = table("movements.sql", &open, ["STOCK.MOVEMENT", "STOCK.MOVEMENT.UNIQUE"], &input);
    let mut expected = BTreeMap::new();
    for line in lines("stock-movements/expected.jsonl") {
        expected.insert(line["key"].as_str().unwrap().to_string(), line["value"].clone());
    }
    assert_eq!(table, expected);
}

#[test]
fn the_latest_log_line_of_each_request() {
    let text = std::fs::read_to_string(root().join("examples/logs/raw_logs.jsonl")).unwrap();
    let input: Vec<Rec> = text.lines().map(|line| Rec { key: None, ..Rec::new("", line) }).collect();
    // The first query alone.
    let first =
        |sql: String| -> String { sql.split("WHERE row_num = 1;").next().unwrap().to_string() + "WHERE row_num = 1;" };
    let table = table("logs.sql", &first, ["raw_logs", "dedup_logs"], &input);
    let mut expected = BTreeMap::new();
    for line in lines("logs/expected-latest.jsonl") {
        let value = &line["value"];
        let row = json!({ "reqid": value["reqid"], "log_time": value["log_time"], "service": value["service"], "message": value["message"] });
        expected.insert(line["key"].to_string(), row);
    }
    assert_eq!(table, expected);
}

#[test]
fn the_first_click_per_hour() {
    let input: Vec<Rec> = lines("clicks/clicks.jsonl")
        .iter()
        .map(|line| {
            let value = json!({ "url": line["url"], "ts": line["ts"] });
            Rec::new(line["ip_address"].as_str().unwrap(), &value.to_string())
        })
        .collect();
    // The tutorial shows the rows; here a topic takes them.
    let into = |sql: String| {
        let sink = "CREATE TABLE unique_clicks WITH ('connector' = 'kafka', 'topic' = 'unique_clicks', 'properties.bootstrap.servers' = 'broker:9092');\n\
            INSERT INTO unique_clicks SELECT window_start, window_end, ip_address, url";
        sql.replacen("SELECT window_start, window_end, ip_address, url", sink, 1)
    };
    let table = table("clicks.sql", &into, ["clicks", "unique_clicks"], &input);
    // By record key the last row of each address remains; the rows themselves are compared on files.
    let addresses: Vec<&String> = table.keys().collect();
    assert_eq!(addresses, ["10.0.0.1", "10.0.0.12", "10.0.0.13"]);
    assert_eq!(
        table["10.0.0.1"],
        json!({ "window_start": "2023-07-09T03:00:00Z", "window_end": "2023-07-09T04:00:00Z", "ip_address": "10.0.0.1", "url": "https://acme.com/index.html" })
    );
}
