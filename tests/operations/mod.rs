//! What a running process tells over HTTP, read over a plain socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;
use tamis_tests::program::{Folder, root};

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

/// A run that lasts, and the address it says it serves at. It ends with this value.
struct Watched {
    child: Child,
    address: String,
}

impl Watched {
    fn start(folder: &Folder) -> Watched {
        let mut child = folder.start(&["run", "p.yaml"]);
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is ours")).lines();
        let said = lines.find_map(|line| {
            let line = line.expect("text");
            line.split_once("are at http://").map(|(_, address)| address.trim().to_string())
        });
        // Whatever it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Watched { child, address: said.expect("it says where it serves") }
    }

    /// Status line and body.
    fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
        (head.lines().next().unwrap_or_default().to_string(), body.to_string())
    }

    fn wait_for(&self, path: &str, what: &str) -> String {
        let began = Instant::now();
        loop {
            let (_, body) = self.get(path);
            if body.contains(what) {
                return body;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "`{what}` does not come at {path}:\n{body}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn terminate(&self) {
        let killed = Command::new("kill").args(["-s", "TERM", &self.child.id().to_string()]).status();
        assert!(killed.expect("kill runs").success());
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
        "tamis_guest_instances{pipeline=\"watched\",stage=\"ids\"} 1",
        "tamis_guest_memory_bytes{pipeline=\"watched\",stage=\"ids\"}",
        "# TYPE tamis_build_info gauge",
        "# EOF",
    ] {
        assert!(metrics.contains(line), "`{line}` is not in:\n{metrics}");
    }
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
    assert_eq!(watched.child.wait().expect("it ends").code(), Some(0), "a drain in time ends well");
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
    let status = watched.child.wait().expect("it ends");
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
    assert_ne!(watched.address, address);
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
