//! Queries in many forms, and the stages that they become.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use super::*;

const TABLE: &str = "CREATE TABLE t (id STRING, v BIGINT, ts TIMESTAMP(3), `x y` STRING, nested ROW<a INT, b ARRAY<STRING>>, \
    p AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'kafka', 'topic' = 'topic.t', \
    'properties.bootstrap.servers' = 'k:9092', 'format' = 'json');\n";

fn read(sql: &str) -> Imported {
    import(&format!("{TABLE}{sql}"), &Options::default())
}

/// What a query becomes; panics if it is refused.
fn file(sql: &str) -> Value {
    let imported = read(sql);
    imported.file.unwrap_or_else(|| panic!("{sql}: {:#?}", imported.findings))
}

/// The query `SELECT * FROM (SELECT *, ROW_NUMBER() OVER (..) AS n FROM t) WHERE n = 1`.
fn numbered(over: &str) -> String {
    format!("SELECT * FROM (SELECT *, ROW_NUMBER() OVER ({over}) AS n FROM t) WHERE n = 1")
}

/// Compares the parameters of the dedup stage, and its key.
#[track_caller]
fn check(sql: &str, key: Value, with: Value) {
    let file = file(sql);
    let stage = file["stages"].as_array().unwrap().iter().find(|stage| stage["uses"] == "dedup").unwrap();
    assert_eq!((&stage["key"], &stage["with"]), (&key, &with), "{sql}");
}

#[track_caller]
fn refused(sql: &str, text: &str) {
    let imported = read(sql);
    let said: Vec<&str> = imported.findings.iter().filter(|f| f.is_error()).map(|f| f.message.as_str()).collect();
    assert!(imported.file.is_none() && said.iter().any(|said| said.contains(text)), "{sql}: {said:?}");
    let first = imported.findings.iter().find(|f| f.is_error()).unwrap();
    assert!(first.code == "P-SQL" && !first.help.is_empty(), "{first:?}");
}

/// The part of the SQL that a warning with this code points at.
#[track_caller]
fn warned(sql: &str, code: &str, at: &str) {
    let whole = format!("{TABLE}{sql}");
    let findings = read(sql).findings;
    let found = findings.iter().filter(|f| f.code == code).map(|f| &whole[f.span.unwrap().start..f.span.unwrap().end]);
    let found: Vec<&str> = found.collect();
    assert!(found.iter().any(|part| part.starts_with(at)), "{sql}: {found:?}");
}

#[test]
fn the_order_decides_what_is_compared_and_when_a_row_leaves() {
    check(&numbered("PARTITION BY id ORDER BY p"), json!("value.id"), json!({ "order": "arrival" }));
    check(
        &numbered("PARTITION BY id ORDER BY p DESC"),
        json!("value.id"),
        json!({ "keep": "last", "order": "arrival", "output": "upsert", "emit": "change" }),
    );
    check(&numbered("PARTITION BY id ORDER BY ts ASC"), json!("value.id"), json!({ "order": "time", "emit": "close" }));
    check(
        &numbered("PARTITION BY id, `x y` ORDER BY ts DESC"),
        json!(["value.id", "value[\"x y\"]"]),
        json!({ "keep": "last", "order": "time", "output": "upsert" }),
    );
    check(
        &numbered("PARTITION BY nested.a ORDER BY v, id"),
        json!("value.nested.a"),
        json!({ "order": ["value.v", "value.id"], "output": "upsert" }),
    );
    check(
        &numbered("PARTITION BY id ORDER BY $rowtime"),
        json!("value.id"),
        json!({ "order": "time", "emit": "close" }),
    );
}

#[test]
fn the_sink_decides_the_output() {
    let into = |options: &str| {
        format!(
            "CREATE TABLE s (id STRING, v BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ({options});\nINSERT INTO s {}",
            numbered("PARTITION BY id ORDER BY ts").replacen('*', "id, v", 1)
        )
    };
    let upsert = json!({ "order": "time", "output": "upsert" });
    check(&into("'connector' = 'upsert-kafka', 'topic' = 's'"), json!("value.id"), upsert.clone());
    check(&into("'changelog.mode' = 'upsert'"), json!("value.id"), upsert);
    check(&into("'changelog.mode' = 'retract'"), json!("value.id"), json!({ "order": "time", "output": "retract" }));
    check(&into("'connector' = 'kafka'"), json!("value.id"), json!({ "order": "time", "emit": "close" }));
}

#[test]
fn windowing_functions_become_windows() {
    let over = |function: &str| {
        format!(
            "SELECT id, window_start FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, id ORDER BY ts DESC) AS n FROM {function}) WHERE n < 2"
        )
    };
    let with = |window: Value| json!({ "keep": "last", "window": window, "order": "time", "bounds": { "to": "value", "format": "rfc3339" } });
    for (function, window) in [
        ("TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES))", json!({ "tumbling": "10m" })),
        (
            "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '8' HOUR)",
            json!({ "tumbling": "1d", "offset": "8h" }),
        ),
        (
            "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '1' HOUR))",
            json!({ "hopping": "1h", "every": "5m" }),
        ),
        (
            "TABLE(HOP(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' HOUR, SLIDE => INTERVAL '5' MINUTE))",
            json!({ "hopping": "1h", "every": "5m" }),
        ),
        (
            "TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY))",
            json!({ "cumulative": "1d", "step": "1h" }),
        ),
        (
            "TABLE(SESSION(TABLE t PARTITION BY id, DESCRIPTOR(ts), INTERVAL '1.5' SECOND))",
            json!({ "session": "1s500ms" }),
        ),
    ] {
        check(&over(function), json!("value.id"), with(window));
    }
    let file = file(&over("TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))"));
    assert_eq!(file["time"], json!({ "field": "value.ts", "delay": "5s" }));
    assert_eq!(file["stages"][1]["with"], json!({ "fields": ["value.id", "value.window_start"] }));
}

#[test]
fn dates_that_are_cut_become_windows() {
    let hourly =
        |with: &str| json!({ "window": { "tumbling": with }, "order": "time", "emit": "close", "bounds": "none" });
    for (cut, size) in [
        ("DATE_FORMAT(ts, 'yyyy-MM-dd HH')", "1h"),
        ("DATE_FORMAT(ts, 'yyyyMMdd')", "1d"),
        ("DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm')", "1m"),
        ("FLOOR(ts TO HOUR)", "1h"),
        ("CAST(ts AS DATE)", "1d"),
        ("CAST(ts AS DATE), HOUR(ts)", "1h"),
    ] {
        let sql = numbered(&format!("PARTITION BY id, {cut} ORDER BY ts"));
        check(&sql, json!("value.id"), hourly(size));
        assert!(read(&sql).findings.iter().all(|f| f.code != "W-CYCLIC-KEY"), "{cut}");
    }
    let arrival = json!({ "window": { "tumbling": "1h" }, "clock": "processing", "order": "arrival", "emit": "immediate", "bounds": "none" });
    check(&numbered("PARTITION BY id, DATE_FORMAT(p, 'yyyy-MM-dd HH') ORDER BY p"), json!("value.id"), arrival.clone());
    check(
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id, h ORDER BY p) AS n FROM (SELECT *, HOUR(p) AS h FROM t)) WHERE n = 1",
        json!("value.id"),
        arrival,
    );
}

#[test]
fn parts_of_a_key_that_do_not_what_was_meant_are_warned_about() {
    for cyclic in ["HOUR(p)", "DATE_FORMAT(p, 'HH')", "DAYOFWEEK(p)", "MINUTE(p)"] {
        warned(
            &numbered(&format!("PARTITION BY id, {cyclic} ORDER BY p")),
            "W-CYCLIC-KEY",
            cyclic.split('(').next().unwrap(),
        );
    }
    // The parser places only what the hour is taken of.
    warned(&numbered("PARTITION BY id, EXTRACT(HOUR FROM p) ORDER BY p"), "W-CYCLIC-KEY", "p");
    for (dependent, at) in [
        ("SUBSTRING(id, 1, 4)", "id"),
        ("UPPER(id)", "UPPER"),
        ("CONCAT(id, '-', id)", "CONCAT"),
        ("MD5(SUBSTRING(id, 1, 2))", "MD5"),
    ] {
        let sql = numbered(&format!("PARTITION BY {dependent}, id ORDER BY p"));
        warned(&sql, "W-DEPENDENT-KEY", at);
        check(&sql, json!("value.id"), json!({ "order": "arrival" }));
    }
    refused(&numbered("PARTITION BY SUBSTRING(id, 1, 4) ORDER BY p"), "is computed");
    refused(&numbered("PARTITION BY id, MONTH(ts) ORDER BY p"), "has no fixed length");
}

#[test]
fn what_no_pipeline_means_is_refused() {
    refused(&numbered("PARTITION BY id ORDER BY ts, v DESC"), "one direction");
    refused(&numbered("PARTITION BY id"), "without `ORDER BY`");
    refused(&numbered("PARTITION BY id ORDER BY ts").replace("n = 1", "n <= 3"), "more than one row");
    refused("SELECT id, COUNT(*) FROM t GROUP BY id", "does not aggregate");
    refused("SELECT * FROM t UNION ALL SELECT * FROM t", "UNION");
    refused("SELECT * FROM t ORDER BY ts", "no end to sort");
    refused("SELECT * FROM t, u", "one stream");
    refused("", "no query");
    refused("SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY p) AS n FROM t", "nothing is left out");
    refused("SELECT * FROM (SELECT *, RANK() OVER (PARTITION BY id ORDER BY p) AS n FROM t) WHERE n = 1", "RANK");
}

#[test]
fn conditions_ask_whether_fields_are_there() {
    let keep =
        |condition: &str| file(&format!("SELECT * FROM t WHERE {condition}"))["stages"][0]["with"]["keep"].clone();
    let id = "has(value.id) && value.id != null";
    for (sql, cel) in [
        ("id = 'a'", format!("{id} && value.id == \"a\"")),
        ("id IS NOT NULL", id.to_string()),
        ("NOT (id <> 'a')", format!("{id} && value.id == \"a\"")),
        ("id IN ('a', 'b')", format!("{id} && (value.id in [\"a\", \"b\"])")),
        ("id LIKE 'a%'", format!("{id} && value.id.startsWith(\"a\")")),
        ("id = 'a' OR id IS NULL", format!("({id} && value.id == \"a\" || !({id}))")),
    ] {
        assert_eq!(keep(sql), json!(cel), "{sql}");
    }
    assert_eq!(
        keep("5 < v AND v <= -1"),
        json!("has(value.v) && value.v != null && value.v > 5 && has(value.v) && value.v != null && value.v <= -1")
    );
    refused("SELECT * FROM t WHERE CHAR_LENGTH(id) > 3", "no equivalent in a condition");
    let both = numbered("PARTITION BY id ORDER BY ts")
        .replace("FROM t)", "FROM t WHERE v > 1)")
        .replace("n = 1", "n = 1 AND id = 'a'");
    let stages = file(&both)["stages"].as_array().unwrap().iter().map(|s| s["id"].clone()).collect::<Vec<_>>();
    assert_eq!(stages, ["before", "dedup", "after"]);
    refused(&both.replace("ORDER BY ts", "ORDER BY ts DESC"), "would stay in the sink");
}

#[test]
fn settings_become_settings() {
    let with = |set: &str| file(&format!("{set}\n{}", numbered("PARTITION BY id ORDER BY p DESC")));
    let ttl = with("SET 'table.exec.state.ttl' = '1 d'; SET 'pipeline.name' = 'My Job!';");
    assert_eq!(ttl["stages"][0]["state"], json!({ "retention": { "for": "1d", "clock": "processing" } }));
    assert_eq!((&ttl["name"], &ttl["stages"][0]["with"]["emit"]), (&json!("my-job"), &Value::Null));
    assert_eq!(with("")["stages"][0]["state"], json!({ "unbounded": true }));
    let zoned = file(&format!(
        "SET 'table.local-time-zone' = 'Europe/Paris';\n{}",
        numbered("PARTITION BY id, CAST(ts AS DATE) ORDER BY ts")
    ));
    assert_eq!(zoned["stages"][0]["with"]["window"], json!({ "tumbling": "1d", "zone": "Europe/Paris" }));
}

#[test]
fn names_of_the_sink_and_of_views_are_followed() {
    let sql = format!(
        "CREATE TABLE s (a STRING, b BIGINT) WITH ('connector' = 'kafka');\nCREATE VIEW w AS {};\nINSERT INTO s SELECT id, amount FROM w",
        numbered("PARTITION BY id ORDER BY p").replacen('*', "id, v AS amount", 1)
    );
    let columns = &file(&sql)["stages"][1]["with"]["fields"];
    assert_eq!(columns, &json!([{ "field": "value.id", "name": "a" }, { "field": "value.v", "name": "b" }]));
    let distinct = file("CREATE TABLE d WITH ('connector' = 'kafka') AS SELECT DISTINCT id, v FROM t");
    assert_eq!(distinct["stages"][0]["key"], json!(["value.id", "value.v"]));
    assert_eq!(distinct["sink"]["kafka"]["topic"], json!("d"));
}

#[test]
fn numbers_that_are_times_say_their_unit() {
    let sql = "CREATE TABLE e (id STRING, at BIGINT, ts AS TO_TIMESTAMP_LTZ(at, 0), WATERMARK FOR ts AS ts) WITH ('connector' = 'kafka');\n\
        SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts) AS n FROM e) WHERE n = 1";
    assert_eq!(file(sql)["time"], json!({ "field": "value.at", "unit": "s" }));
}

#[test]
fn looking_at_tables_is_left_out() {
    let sql = format!("SELECT * FROM t;\nINSERT INTO s {};\nSELECT * FROM s;", numbered("PARTITION BY id ORDER BY p"));
    check(&sql, json!("value.id"), json!({ "order": "arrival" }));
    assert_eq!(file("SELECT * FROM t")["stages"], json!([]));
}

/// What a tool shows: a view, and the table that its rows go to.
#[test]
fn a_view_and_a_sink_are_enough() {
    let sql = "SET 'pipeline.name' = 'x'; CREATE TEMPORARY VIEW `one each` AS SELECT id, v, at FROM (SELECT *, ROW_NUMBER() OVER \
        (PARTITION BY id ORDER BY at ASC) AS n FROM `The source`) WHERE n = 1;\n\
        CREATE TABLE sink (id STRING, v BIGINT, at TIMESTAMP(6) METADATA FROM 'timestamp', PRIMARY KEY (id) NOT ENFORCED) WITH (\
        'connector' = 'upsert-kafka', 'topic' = 'OUT', 'properties.bootstrap.servers' = 'b:1', 'key.format' = 'raw');";
    let file = import(sql, &Options::default()).file.unwrap();
    assert_eq!(file["time"], json!("timestamp"));
    assert_eq!(file["stages"][0]["with"], json!({ "order": "time", "output": "upsert" }));
    assert_eq!(file["source"]["kafka"]["brokers"], json!("b:1"));
    assert_eq!(file["sink"]["kafka"]["topic"], json!("OUT"));
    assert_eq!(file["stages"].as_array().unwrap().len(), 1);
}

/// Whatever is given, an import ends and says something.
#[test]
fn broken_statements_are_findings() {
    for sql in [
        "SELECT",
        "CREATE TABLE",
        "CREATE TABLE x (a",
        "SET",
        "INSERT INTO",
        "SELECT 'a",
        "((((",
        ";;;",
        "SELECT * FROM TABLE(TUMBLE())",
        "é`",
    ] {
        let imported = import(sql, &Options::default());
        assert!(imported.file.is_none() && imported.findings.iter().any(Diagnostic::is_error), "{sql}");
    }
}
