//! What a running process tells over HTTP, read over a plain socket.

use std::time::{Duration, Instant};

use serde_json::Value;
use tamis_tests::program::{Folder, root};
use tamis_tests::watched::Watched;

const PIPELINE: &str = "
version: 1
name: watched
source: { file: { path: in, follow: true } }
stages:
  - { uses: dedup, id: ids, key: value.id, with: { keep: first }, state: { unbounded: true } }
sink: { file: out }
errors: { dead_letter: { file: dead }, log: false }
run: { http: '127.0.0.1:0', commit: 10ms }
";

#[test]
fn a_running_pipeline_tells_its_health_its_counters_and_its_state() {
    let folder = Folder::new("operations");
    folder.write("p.yaml", PIPELINE);
    folder.write("in", "{\"id\":1}\n{\"id\":1}\n{\"id\":2}\nbroken\n");
    let mut watched = Watched::start(&folder);
    watched.wait_for("/readyz", "ok");
    assert_eq!(watched.get("/livez"), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
    assert_eq!(watched.get("/healthz").0, "HTTP/1.1 200 OK");
    assert_eq!(watched.get("/nowhere").0, "HTTP/1.1 404 Not Found");
    assert!(watched.get("/").1.contains("/metrics"));
    // The counters of a commit are there when the commit is, at most a moment later.
    let metrics = watched.wait_for("/metrics", "tamis_source_records_total{pipeline=\"watched\"} 4");
    for line in [
        "tamis_task_state{pipeline=\"watched\",state=\"running\"} 1",
        "tamis_stage_records_total{pipeline=\"watched\",stage=\"ids\",verdict=\"in\"} 3",
        "tamis_stage_records_total{pipeline=\"watched\",stage=\"ids\",verdict=\"duplicate\"} 1",
        "tamis_state_entries{pipeline=\"watched\",stage=\"ids\"} 2",
        "tamis_sink_records_total{pipeline=\"watched\",route=\"sink\"} 2",
        "tamis_dead_letter_records_total{pipeline=\"watched\",stage=\"decode.value\",code=\"json\"} 1",
        "tamis_commit_seconds_bucket{le=\"+Inf\",pipeline=\"watched\"}",
        "tamis_module_info{pipeline=\"watched\",stage=\"ids\",module=\"dedup\",version=",
        "tamis_source_bytes_total{pipeline=\"watched\"} 30",
        "tamis_stage_batch_seconds_count{pipeline=\"watched\",stage=\"ids\"}",
        "tamis_stage_batch_seconds_count{pipeline=\"watched\",stage=\"decode.value\"}",
        "tamis_state_ops_total{pipeline=\"watched\",stage=\"ids\",op=\"seen\"} 3",
        "tamis_state_expired_total{pipeline=\"watched\",stage=\"ids\"} 0",
        "tamis_sink_retries_total{pipeline=\"watched\"} 0",
        "tamis_guest_instances{pipeline=\"watched\",stage=\"ids\"} 1",
        "tamis_guest_memory_bytes{pipeline=\"watched\",stage=\"ids\"}",
        "# TYPE tamis_build_info gauge",
        "# EOF",
    ] {
        assert!(metrics.contains(line), "`{line}` is not in:\n{metrics}");
    }
    let moved = [
        "tamis_stage_bytes_copied_total{pipeline=\"watched\",stage=\"ids\",direction=\"in\"}",
        "tamis_stage_bytes_copied_total{pipeline=\"watched\",stage=\"ids\",direction=\"out\"}",
        "tamis_guest_compile_seconds{pipeline=\"watched\",stage=\"ids\",module=\"dedup\"}",
        "tamis_state_commit_seconds_count{pipeline=\"watched\"}",
        "tamis_state_commit_seconds_sum{pipeline=\"watched\"}",
        "tamis_sink_batch_seconds_count{pipeline=\"watched\"}",
        "tamis_sink_batch_seconds_sum{pipeline=\"watched\"}",
    ];
    let still = moved.iter().filter(|series| watched.value(series).is_none_or(|value| value <= 0.0));
    assert_eq!(still.collect::<Vec<_>>(), [&""; 0], "these have not moved:\n{metrics}");
    // Four values of thirty bytes, with their kinds and five offsets.
    let copied = "tamis_stage_bytes_copied_total{pipeline=\"watched\",stage=\"decode.value\",direction=\"in\"}";
    assert_eq!(watched.value(copied), Some(f64::from(30 + 4 + 5 * 4)), "{metrics}");
    let documented = std::fs::read_to_string(root().join("docs/operations.md")).expect("the page is there");
    for name in metrics.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()) {
        assert!(documented.contains(name), "{name} is not in docs/operations.md");
    }
    let (_, status) = watched.get("/status");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["ready"], true);
    let pipeline = &status["pipelines"][0];
    assert_eq!((&pipeline["pipeline"], &pipeline["state"]), (&"watched".into(), &"running".into()));
    assert_eq!(pipeline["stages"]["ids"]["duplicates_dropped"], 1);
    assert_eq!(pipeline["records_out"], 2);
    assert_eq!(pipeline["dead_lettered"], 1);
    assert_eq!(pipeline["inputs"][0]["topic"], "in");
    watched.terminate();
    assert_eq!(watched.wait().expect("it ends").code(), Some(0), "a drain in time ends well");
}

/// What is over is counted when it goes: a key that comes again after its time, and what was in a window.
fn check_expired(with: &str, later: &str, expired: f64) {
    let folder = Folder::new(&format!("operations-expired-{expired}"));
    let timed = PIPELINE.replace("stages:", "time: { field: value.t }\nstages:");
    folder.write("p.yaml", timed.replace("with: { keep: first }, state: { unbounded: true }", with));
    folder.write("in", "{\"id\":1,\"t\":0}\n{\"id\":2,\"t\":1}\n");
    let watched = Watched::start(&folder);
    watched.wait_for("/metrics", "tamis_source_records_total{pipeline=\"watched\"} 2");
    let series = "tamis_state_expired_total{pipeline=\"watched\",stage=\"ids\"}";
    assert_eq!(watched.value(series), Some(0.0), "{with}");
    folder.write("in", format!("{}{later}\n", folder.read("in")));
    watched.wait_for("/metrics", "tamis_source_records_total{pipeline=\"watched\"} 3");
    assert_eq!(watched.value(series), Some(expired), "{with}");
}

#[test]
fn state_whose_time_is_over_is_counted_when_it_goes() {
    check_expired("state: { retention: 1s }", "{\"id\":1,\"t\":9000}", 1.0);
    let window = "with: { window: { tumbling: 1s }, order: arrival, emit: immediate }";
    check_expired(window, "{\"id\":1,\"t\":9000}", 2.0);
}

#[test]
fn a_run_that_drains_is_not_ready_and_is_ended_when_its_time_is_over() {
    let folder = Folder::new("operations-drain");
    // Nobody reads its output: once the pipe is full it cannot go on.
    folder.write("p.yaml", PIPELINE.replace("{ file: out }", "stdout").replace("commit: 10ms", "stop: 3s"));
    let lines: String = (0..60_000).map(|n| format!("{{\"id\":{n}}}\n")).collect();
    folder.write("in", lines);
    let mut watched = Watched::start(&folder);
    watched.wait_for("/readyz", "ok");
    std::thread::sleep(Duration::from_millis(500));
    watched.terminate();
    let reason = watched.wait_for("/readyz", "draining");
    assert_eq!(reason, "draining: it was asked to stop\n");
    assert_eq!(watched.get("/readyz").0, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(watched.get("/livez").0, "HTTP/1.1 200 OK");
    assert!(watched.get("/metrics").1.contains("state=\"draining\"} 1"));
    let began = Instant::now();
    let status = watched.wait().expect("it ends");
    assert_eq!(status.code(), Some(1), "it did not come to an end");
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_taken_port_is_said_and_another_one_is_used() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it has an address").to_string();
    let folder = Folder::new("operations-taken");
    folder.write("p.yaml", PIPELINE.replace("127.0.0.1:0", &address));
    folder.write("in", "");
    let watched = Watched::start(&folder);
    assert_ne!(watched.address(), address);
    watched.wait_for("/readyz", "ok");
}

#[test]
fn an_address_that_is_none_is_refused() {
    let folder = Folder::new("operations-address");
    folder.write("p.yaml", PIPELINE.replace("127.0.0.1:0", "nowhere"));
    folder.write("in", "");
    folder.run(&["run", "p.yaml"]).exits(2).says(&["P-VALUE", "`nowhere` is no address", "`none` switches it off"]);
}

#[test]
fn every_series_that_pages_dashboard_and_rules_name_is_one_that_is_registered() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).expect("it is there");
    let registered = read("host/src/ops/metrics.rs");
    for page in ["docs/operations.md", "docs/grafana.json", "docs/alerts.yaml"] {
        let text = read(page);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names: Vec<&str> = words.filter(|word| word.starts_with("tamis_")).collect();
        assert!(names.len() > 9, "{page}");
        for name in names {
            // Counters and histograms put ends of their own to their names.
            let family = ["_total", "_bucket", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            let family = family.trim_start_matches("tamis_");
            assert!(registered.contains(&format!("\"{family}\"")), "{page}: there is no metric {name}");
        }
    }
}
