//! Stages that go out of a file and come back, from one run to the next: what they knew goes with the first commit of a
//! run that has not got them, and what the others count stays with them.

use std::collections::HashMap;

use serde_json::Value;
use tamis_tests::kafka::broker::{Cluster, shared};
use tamis_tests::kafka::topics::{Rec, unique, wait_until};
use tamis_tests::program::{Folder, Ran};

use super::faults::Process;

struct Job {
    cluster: &'static Cluster,
    folder: Folder,
    name: String,
    delivery: &'static str,
    /// Records so far: each has a number of its own.
    given: u32,
}

const BY_ID: &str = "{ uses: dedup, id: d, key: value.id, scope: partition, state: { unbounded: true } }";
const BY_NUMBER: &str = "{ uses: dedup, id: e, key: value.n, scope: partition, state: { unbounded: true } }";
const ALL: &str = "{ uses: filter, id: f, with: { keep: 'value.n >= 0' } }";

impl Job {
    fn new(area: &str, delivery: &'static str) -> Job {
        let (cluster, name) = (shared(), unique(area));
        cluster.create(&format!("{name}-in"), 1, &[]);
        cluster.create(&format!("{name}-out"), 1, &[]);
        Job { cluster, folder: Folder::new(&name), name, delivery, given: 0 }
    }

    /// Gives records with these ids and runs with these stages to their end.
    #[track_caller]
    fn run(&mut self, stages: &[&str], ids: impl IntoIterator<Item = u32>) -> Ran {
        self.prepare(stages, ids);
        self.folder.run(&["-v", "run", "p.yaml"])
    }

    fn prepare(&mut self, stages: &[&str], ids: impl IntoIterator<Item = u32>) {
        let mut records = Vec::new();
        for id in ids {
            records.push(Rec::new("k", &format!("{{\"id\":{id},\"n\":{}}}", self.given)));
            self.given += 1;
        }
        self.cluster.write(&format!("{}-in", self.name), &records);
        let (name, brokers, delivery) = (&self.name, self.cluster.brokers(), self.delivery);
        let stages: String = stages.iter().map(|stage| format!("  - {stage}\n")).collect();
        self.folder.write(
            "p.yaml",
            format!(
                "version: 1\nname: {name}\n\
                 source: {{ kafka: {{ topics: {name}-in, brokers: '{brokers}', until: end, properties: {{ \
                 session.timeout.ms: 6000 }} }} }}\nstages:\n{stages}sink: {{ kafka: {{ topic: {name}-out, delivery: {delivery} }} }}\n\
                 state: {{ changelog: {{ create: true, replication: 1 }} }}\nrun: {{ commit: 20ms, http: none }}\n"
            ),
        );
    }

    /// The checkpoints are lost: the next run reads the changelog alone.
    fn lose_disk(&self) {
        std::fs::remove_dir_all(self.folder.path("state")).expect("there was a state directory");
    }

    /// Marks of a stage in the changelog that are not taken away.
    fn marks(&self, stage: &str) -> usize {
        let mut state = HashMap::new();
        for record in self.cluster.read(&format!("{0}-{0}-in-changelog", self.name)) {
            let key = record.key.expect("every record of a changelog has a key");
            match record.value {
                Some(value) => drop(state.insert(key, value)),
                None => drop(state.remove(&key)),
            }
        }
        let of_stage = state.iter().filter(|(key, _)| key[2..].starts_with(stage.as_bytes()));
        let marks = |(key, value): (&Vec<u8>, &Vec<u8>)| match key[0] {
            1 => 1,
            // Many that never end, in one record.
            4 => value.len() / 34,
            _ => 0,
        };
        of_stage.map(marks).sum()
    }
}

/// A stage goes, its pipeline reads on without it, and it comes back: the first record of every key passes, as the stage
/// missed some.
fn check(area: &str, delivery: &'static str, others: &[&str], without: &[&str]) {
    let mut job = Job::new(area, delivery);
    let with = [&[BY_ID], others].concat();
    job.run(&with, 0..10).exits(0).says(&["10 in, 10 out"]);
    let ran = job.run(without, (0..3).chain(10..15)).exits(0);
    ran.says(&["8 in, 8 out", "there is no stage `d` any more", "10 entries"]);
    assert_eq!(job.marks("d"), 0, "what it knew is taken away");
    job.run(&with, 0..15).exits(0).says(&["15 in, 15 out"]);
    assert_eq!(job.marks("d"), 15);
    // What it knows since then lasts, with checkpoints and without.
    job.run(&with, 0..20).exits(0).says(&["20 in, 5 out"]);
    job.lose_disk();
    job.run(&with, 0..25).exits(0).says(&["25 in, 5 out"]);
}

#[test]
fn a_stage_that_comes_back_beside_another_knows_nothing_from_before() {
    check("back", "exactly-once", &[BY_NUMBER], &[BY_NUMBER]);
}

#[test]
fn a_stage_that_comes_back_where_none_had_state_knows_nothing_from_before() {
    check("back-alone", "exactly-once", &[], &[ALL]);
}

#[test]
fn a_stage_that_comes_back_at_least_once_knows_nothing_from_before() {
    check("back-alo", "at-least-once", &[BY_NUMBER], &[BY_NUMBER]);
    check("back-alo-alone", "at-least-once", &[], &[ALL]);
}

#[test]
fn what_a_stage_knew_is_dead_with_the_first_commit_however_soon_the_process_dies() {
    let mut job = Job::new("back-killed", "exactly-once");
    job.run(&[BY_ID, BY_NUMBER], 0..10).exits(0).says(&["10 in, 10 out"]);
    job.prepare(&[BY_NUMBER], 0..1);
    // Nothing is taken away key by key: that comes with later commits, and this one has no other.
    let file = job.folder.read("p.yaml").replace(", until: end", "");
    job.folder.write("p.yaml", file);
    let mut running = Process(job.folder.start(&["run", "p.yaml", "-q"]));
    wait_until("it has committed", || job.cluster.read_as(&format!("{}-out", job.name), "read_committed").len() == 11);
    running.kill();
    assert_eq!(job.marks("d"), 10, "they are still there");
    job.run(&[BY_ID, BY_NUMBER], 0..10).exits(0).says(&["10 in, 10 out"]);
    job.lose_disk();
    job.run(&[BY_ID, BY_NUMBER], 0..12).exits(0).says(&["12 in, 2 out"]);
}

#[test]
fn a_stage_that_comes_back_may_have_another_key_only_when_its_state_is_gone() {
    let mut job = Job::new("back-key", "exactly-once");
    let other = BY_ID.replace("key: value.id", "key: [value.id, value.n]");
    job.run(&[BY_ID], 0..10).exits(0).says(&["10 in, 10 out"]);
    let ran = job.run(&[&other], 0..10);
    assert_ne!(ran.code(), 0, "{}", ran.err());
    ran.says(&["D-KEY-CHANGED"]);
    job.run(&[ALL], []).exits(0).says(&["10 in, 10 out"]);
    job.run(&[&other], 0..10).exits(0).says(&["10 in, 10 out"]);
    assert_eq!(job.marks("d"), 10, "those of the other key are taken away");
}

#[test]
fn a_reset_under_a_file_without_a_stage_takes_its_state_away() {
    let mut job = Job::new("back-reset", "exactly-once");
    job.run(&[BY_ID, BY_NUMBER], 0..10).exits(0).says(&["10 in, 10 out"]);
    // The file has it no more, but that run is refused: the input that it asks for is there, its state does not fit.
    let file = job.folder.read("p.yaml").replace(&format!("  - {BY_ID}\n"), "");
    job.folder.write("p.yaml", file);
    job.folder.run(&["reset", "p.yaml", "--to", "latest"]).exits(0);
    job.run(&[BY_ID, BY_NUMBER], 0..10).exits(0).says(&["10 in, 10 out"]);
    job.lose_disk();
    job.run(&[BY_ID, BY_NUMBER], 0..12).exits(0).says(&["12 in, 2 out"]);
}

#[test]
fn what_a_stage_counts_stays_with_it_when_another_is_put_before_it() {
    let mut job = Job::new("counted", "exactly-once");
    let mut count = |stages: &[&str], ids: std::ops::Range<u32>| {
        job.prepare(stages, ids);
        let ran = job.folder.run(&["--json", "run", "p.yaml"]).exits(0);
        let said: Value = serde_json::from_str(&ran.out()).unwrap_or_else(|error| panic!("{error}: {}", ran.out()));
        let of = |stage: &str, name: &str| {
            said.pointer(&format!("/result/pipelines/0/stages/{stage}/{name}")).and_then(Value::as_u64)
        };
        let dropped = of("d", "duplicates_dropped");
        (of("d", "records_in"), dropped, of("e", "records_in"), of("e", "duplicates_dropped"))
    };
    assert_eq!(count(&[BY_ID], 0..10), (Some(10), Some(0), None, None));
    assert_eq!(count(&[BY_ID], 0..10), (Some(20), Some(10), None, None));
    assert_eq!(count(&[BY_NUMBER, BY_ID], 0..5), (Some(25), Some(15), Some(5), Some(0)));
    // One that comes back begins to count anew, as it begins to know.
    assert_eq!(count(&[BY_NUMBER], 0..5), (None, None, Some(10), Some(0)));
    assert_eq!(count(&[BY_ID, BY_NUMBER], 0..5), (Some(5), Some(0), Some(15), Some(0)));
}
