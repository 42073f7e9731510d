//! Brokers that go away: all of them for a while, and one of three after the other.

use std::collections::BTreeSet;
use std::process::Child;
use std::time::{Duration, Instant};

use tamis_tests::kafka::broker::Cluster;
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::Folder;

const PARTITIONS: i32 = 3;

/// A pipeline that runs on a cluster of its own while nodes go and come.
struct Running {
    cluster: Cluster,
    folder: Folder,
    source: String,
    sink: String,
    child: Child,
    given: u32,
}

impl Running {
    fn start(area: &str, nodes: usize) -> Running {
        let cluster = Cluster::start(nodes).unwrap_or_else(|error| panic!("{error}"));
        let name = unique(area);
        let (source, sink) = (format!("{name}-in"), format!("{name}-out"));
        cluster.create(&source, PARTITIONS, &[]);
        cluster.create(&sink, PARTITIONS, &[]);
        let folder = Folder::new(&name);
        folder.write(
            "p.yaml",
            format!(
                "version: 1
name: {name}
source: {{ kafka: {{ topics: {source}, brokers: '{}', properties: {{ session.timeout.ms: '10000' }} }} }}
stages:
  - {{ uses: dedup, id: d, key: value.id, scope: partition, state: {{ unbounded: true }} }}
sink: {{ kafka: {{ topic: {sink} }} }}
state: {{ changelog: {{ create: true, replication: {nodes} }} }}
run: {{ commit: 100ms, http: none }}
",
                cluster.brokers()
            ),
        );
        let log = std::fs::File::create(folder.path("log")).unwrap();
        let child = folder.command(&["-v", "run", "p.yaml"]).stderr(log).spawn().unwrap();
        Running { cluster, folder, source, sink, child, given: 0 }
    }

    /// Writes a hundred records more, and twenty that were there before.
    fn give(&mut self) {
        let ids = (self.given..self.given + 100).chain(self.given.saturating_sub(20)..self.given);
        let records: Vec<Rec> = ids.map(|id| Rec::new("k", &format!("{{\"id\":{id}}}")).at(id as i32 % 3)).collect();
        self.cluster.write(&self.source, &records);
        self.given += 100;
    }

    /// Waits until every record given so far has left, each once.
    #[track_caller]
    fn check(&mut self) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("it ended by itself ({status}):\n{}", self.folder.read("log"));
            }
            let found: Vec<String> = self.cluster.read(&self.sink).iter().map(Rec::text).collect();
            let different: BTreeSet<&String> = found.iter().collect();
            assert_eq!(found.len(), different.len(), "some left twice:\n{}", self.folder.read("log"));
            if found.len() == self.given as usize {
                return;
            }
            assert!(
                began.elapsed() < Duration::from_secs(180),
                "{} of {} have left:\n{}",
                found.len(),
                self.given,
                self.folder.read("log")
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_run_outlasts_its_only_broker() {
    let mut running = Running::start("outage", 1);
    running.give();
    running.check();
    for verb in ["kill", "stop"] {
        running.cluster.node(verb, 1);
        std::thread::sleep(Duration::from_secs(20));
        running.cluster.node("start", 1);
        running.give();
        running.check();
    }
}

#[test]
fn a_run_goes_on_while_each_of_three_brokers_is_killed_in_turn() {
    let mut running = Running::start("three", 3);
    running.give();
    running.check();
    for node in 1..=3 {
        running.cluster.node("kill", node);
        running.give();
        running.check();
        running.cluster.node("start", node);
        running.give();
        running.check();
    }
}
