//! Flink SQL through the built program: the statements of four tutorials are imported, run on their data, and give the
//! tables that the tutorials show.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tamis_tests::program::{Folder, Ran, root};

fn sql(name: &str) -> String {
    root().join("tests/import/sql").join(name).to_string_lossy().into_owned()
}

/// Imports with these arguments and runs the pipeline; what was said of the import, and what came out.
fn import_and_run(folder: &Folder, name: &str, arguments: &[&str]) -> (Ran, Vec<Value>) {
    let file = sql(name);
    let imported = folder.run(&[&["import", &file], arguments].concat()).exits(0);
    folder.write("pipeline.yaml", imported.out());
    let ran = folder.run(&["run", "pipeline.yaml"]).exits(0);
    let rows = ran.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (imported, rows)
}

/// The table that upserts amount to: the last value of each key.
fn table(rows: &[Value]) -> BTreeMap<String, Value> {
    rows.iter().map(|row| (row["key"].to_string(), row["value"].clone())).collect()
}

/// Which codes were said.
fn codes(imported: &Ran) -> Vec<String> {
    let said = imported.err();
    let codes =
        said.lines().filter_map(|line| line.split_once('[')?.1.split_once("]:")).map(|(code, _)| code.to_string());
    codes.collect()
}

/// The five rows of the click example: the tutorial shows four, and the fifth leaves because a file ends.
fn clicks() -> Vec<Value> {
    let hours = |from: &str, to: &str| (format!("2023-07-09T{from}:00:00Z"), format!("2023-07-09T{to}:00:00Z"));
    [
        ("01", "02", "10.0.0.1", "https://acme.com/index.html"),
        ("01", "02", "10.0.0.12", "https://amazon.com/index.html"),
        ("01", "02", "10.0.0.13", "https://confluent/index.html"),
        ("02", "03", "10.0.0.1", "https://acme.com/index.html"),
        ("03", "04", "10.0.0.1", "https://acme.com/index.html"),
    ]
    .map(|(from, to, ip, url)| {
        let (start, end) = hours(from, to);
        json!({ "window_start": start, "window_end": end, "ip_address": ip, "url": url })
    })
    .to_vec()
}

#[test]
fn clicks_per_hour_give_the_rows_of_the_tutorial() {
    for name in ["clicks.sql", "clicks-cloud.sql"] {
        let folder = Folder::new(&format!("import-{name}"));
        let (_, rows) = import_and_run(&folder, name, &["--rows", "clicks.jsonl", "--from", "clicks.jsonl"]);
        assert_eq!(rows, clicks(), "{name}");
        // The columns come in the order of the query.
        let names: Vec<&String> = rows[0].as_object().unwrap().keys().collect();
        assert_eq!(names, ["window_start", "window_end", "ip_address", "url"]);
    }
}

#[test]
fn a_topic_of_thirteen_users_becomes_one_of_eight() {
    let folder = Folder::new("import-users");
    let arguments = ["--rows", "users.jsonl", "--from", "users.jsonl", "--to", "-"];
    let (_, rows) = import_and_run(&folder, "users.sql", &arguments);
    assert_eq!(folder.read("users.jsonl").lines().count(), 13);
    let keys: Vec<&str> = rows.iter().map(|row| row["key"].as_str().unwrap()).collect();
    let users = ["Thomas A. Anderson", "Trinity", "Morpheus", "Dozer", "Agent Smith", "Persephone", "Niobe", "Zee"];
    assert_eq!(keys, users);
    let zee = json!({ "user_id": "Zee", "registertime": 1677260922, "gender": "female", "regionid": "Region_5" });
    let mut last = table(&rows)["\"Zee\""].clone();
    last.as_object_mut().unwrap().remove("key");
    assert_eq!(last, zee);
    // With keys on the records, as the example of the same name has them, `key` is a column like any other.
    let source = root().join("examples/users/users.jsonl");
    let (_, rows) = import_and_run(
        &Folder::new("import-users-2"),
        "users.sql",
        &["--from", &source.to_string_lossy(), "--to", "-"],
    );
    assert_eq!(rows.len(), 8);
    assert_eq!(rows[0]["value"]["key"], "row-1");
    let names: Vec<&String> = rows[0]["value"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["user_id", "key", "registertime", "gender", "regionid"]);
}

#[test]
fn stock_movements_are_kept_once_and_corrected() {
    let source = root().join("examples/stock-movements/movements.jsonl");
    let folder = Folder::new("import-movements");
    let (imported, rows) =
        import_and_run(&folder, "movements.sql", &["--from", &source.to_string_lossy(), "--to", "-"]);
    assert!(imported.out().contains("name: stock-movements-deduplication"), "{}", imported.out());
    let expected = std::fs::read_to_string(root().join("examples/stock-movements/expected.jsonl")).unwrap();
    let expected: Vec<Value> = expected.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |rows: &[Value]| -> Vec<Value> {
        rows.iter().map(|row| json!([row["key"], row["value"], row["timestamp"]])).collect()
    };
    assert_eq!(of(&rows), of(&expected));
}

/// Imports one query of the logs, runs it on the log lines, and compares with the file of an example, column by column.
#[track_caller]
fn check_logs(query: &str, expected: &str, said: &[&str]) {
    let source = root().join("examples/logs/raw_logs.jsonl");
    let source = source.to_string_lossy();
    let folder = Folder::new(&format!("import-logs-{query}"));
    let (imported, rows) = import_and_run(&folder, "logs.sql", &["--query", query, "--from", &source, "--to", "-"]);
    let expected = std::fs::read_to_string(root().join("examples/logs").join(expected)).unwrap();
    let columns = |value: &Value| json!([value["reqid"], value["log_time"], value["service"], value["message"]]);
    let rows_of = |rows: &[Value]| -> Vec<Value> { rows.iter().map(columns).collect() };
    let expected: Vec<Value> = expected.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    if expected[0].get("value").is_some() {
        // Upserts: how often a row is written again is not what a table shows.
        let table_of = |rows: &[Value]| -> Vec<(String, Value)> {
            table(rows).into_iter().map(|(key, value)| (key, columns(&value))).collect()
        };
        assert_eq!(table_of(&rows), table_of(&expected), "{}", imported.out());
    } else {
        assert_eq!(rows_of(&rows), rows_of(&expected), "{}", imported.out());
    }
    for code in said {
        assert!(codes(&imported).contains(&code.to_string()), "{code} is not in {:?}", codes(&imported));
    }
    // Only the columns of the query remain.
    let first = rows[0].get("value").unwrap_or(&rows[0]);
    let names: Vec<&String> = first.as_object().unwrap().keys().collect();
    assert_eq!(names, ["reqid", "log_time", "service", "message"]);
}

#[test]
fn logs_by_arrival_by_service_and_by_event_time() {
    check_logs("1", "expected-latest.jsonl", &["W-SQL"]);
    check_logs("2", "expected-by-service.jsonl", &["W-SQL"]);
    check_logs("4", "expected-event-time.jsonl", &["W-SQL"]);
}

#[test]
fn a_prefix_of_the_key_is_said_to_do_nothing_and_left_out() {
    check_logs("5", "expected-latest.jsonl", &["W-DEPENDENT-KEY"]);
}

#[test]
fn an_hour_with_its_date_is_a_window() {
    check_logs("6", "expected-hourly.jsonl", &[]);
}

#[test]
fn an_hour_of_the_day_is_warned_about_and_imported_as_a_window() {
    let source = root().join("examples/logs/raw_logs.jsonl");
    let folder = Folder::new("import-logs-hour");
    let hour = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 3600;
    // By the wall clock all lines are of one hour, unless it ends meanwhile.
    let (imported, rows) = loop {
        let before = hour();
        let arguments = ["--query", "3", "--from", &source.to_string_lossy(), "--to", "-"];
        let all = import_and_run(&folder, "logs.sql", &arguments);
        if hour() == before {
            break all;
        }
    };
    assert!(codes(&imported).contains(&"W-CYCLIC-KEY".to_string()), "{}", imported.err());
    assert!(imported.out().contains("tumbling: 1h") && imported.out().contains("clock: processing"));
    let reqids: Vec<&str> = rows.iter().map(|row| row["reqid"].as_str().unwrap()).collect();
    assert_eq!(reqids, ["r-1", "r-2", "r-3"]);
}

#[test]
fn several_queries_are_listed_and_one_is_asked_for() {
    let folder = Folder::new("import-several");
    folder.run(&["import", &sql("logs.sql")]).exits(2).says(&["6 queries", "--query 1", "query 4", "dedup_event_time"]);
    folder.run(&["import", &sql("logs.sql"), "--query", "7"]).exits(2).says(&["there is no query 7"]);
}

#[test]
fn what_cannot_be_read_is_shown_with_its_place() {
    let folder = Folder::new("import-broken");
    folder.write("broken.sql", "SELECT a\nFROM t\nWHERE ((b = ;\n");
    folder.run(&["import", "broken.sql"]).exits(2).says(&["P-SQL", "broken.sql:3:", "WHERE"]);
    folder.write("joined.sql", "SELECT * FROM a JOIN b ON a.id = b.id;");
    folder.run(&["import", "joined.sql"]).exits(2).says(&["P-SQL", "joins have no equivalent"]);
    folder.run(&["import", "missing.sql"]).exits(2).says(&["missing.sql"]);
}

/// Against Kafka the same statements name topics and brokers, and no password is copied.
#[test]
fn connector_options_become_source_and_sink() {
    let folder = Folder::new("import-kafka");
    let imported = folder.run(&["import", &sql("movements.sql")]).exits(0);
    let text = imported.out();
    for part in [
        "topics: STOCK.MOVEMENT",
        "brokers: event-manager:443",
        "start: earliest",
        "sasl.username: kafka-demo-apps",
        "from_env: KAFKA_PASSWORD",
        "topic: STOCK.MOVEMENT.UNIQUE",
        "time: { field: timestamp, delay: 1m }",
        "output: upsert",
        "encode: { key: string }",
    ] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    assert!(!text.contains("swordfish") && !imported.err().contains("\nswordfish"), "{text}");
}
