//! What is asked of a pipeline on Kafka, running or not: to forget, and to go on under another file. Processes are killed
//! right behind the answer.

use std::process::Child;
use std::time::{Duration, Instant};

use tamis_tests::kafka::broker::{Cluster, shared};
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::{Folder, Ran};

struct Asked {
    cluster: &'static Cluster,
    folder: Folder,
    name: String,
    delivery: &'static str,
    running: Vec<Child>,
    last: u32,
}

const STAGE: &str = "  - { uses: dedup, id: d, key: value.id, scope: partition, state: { unbounded: true } }\n";

impl Asked {
    fn new(area: &str) -> Asked {
        Asked::with(area, "exactly-once")
    }

    fn with(area: &str, delivery: &'static str) -> Asked {
        let (cluster, name) = (shared(), unique(area));
        cluster.create(&format!("{name}-in"), 2, &[]);
        cluster.create(&format!("{name}-out"), 2, &[]);
        let asked = Asked { cluster, folder: Folder::new(&name), name, delivery, running: Vec::new(), last: 0 };
        asked.stages(STAGE);
        asked
    }

    fn stages(&self, stages: &str) {
        let (name, brokers, delivery) = (&self.name, self.cluster.brokers(), self.delivery);
        self.folder.write(
            "p.yaml",
            format!(
                "version: 1\nname: {name}\nsource: {{ kafka: {{ topics: {name}-in, brokers: \"{brokers}\", properties: {{ \
                 session.timeout.ms: 6000 }} }} }}\nstages:\n{stages}sink: {{ kafka: {{ topic: {name}-out, delivery: {delivery} }} }}\n\
                 state: {{ changelog: {{ create: true, replication: 1 }} }}\nrun: {{ commit: 100ms, http: '127.0.0.1:0' }}\n"
            ),
        );
    }

    fn start(&mut self) {
        self.running.push(self.folder.start(&["run", "p.yaml", "-q"]));
    }

    fn kill(&mut self) {
        for mut child in self.running.drain(..) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn stop(&mut self) {
        for child in self.running.drain(..) {
            std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
            Ran(child.wait_with_output().unwrap()).exits(0);
        }
    }

    /// Gives ids to both partitions, an unknown one behind them, and waits for that one: what left by then is all.
    #[track_caller]
    fn check(&mut self, ids: &[u32], expected: &[u32]) {
        self.last += 1;
        let before = self.out();
        for partition in 0..2 {
            let last = 1_000_000 + self.last;
            let ids = ids.iter().copied().chain([last]);
            let records: Vec<Rec> =
                ids.map(|id| Rec::new(&format!("{partition}"), &format!("{{\"id\":{id}}}")).at(partition)).collect();
            self.cluster.write(&format!("{}-in", self.name), &records);
        }
        let last = format!("{{\"id\":{}}}", 1_000_000 + self.last);
        let began = Instant::now();
        while self.out().iter().filter(|value| **value == last).count() < 2 {
            assert!(began.elapsed() < Duration::from_secs(120), "waited in vain for {last}");
            std::thread::sleep(Duration::from_millis(200));
        }
        let mut new = self.out();
        for known in before {
            let at = new.iter().position(|value| *value == known).unwrap();
            new.remove(at);
        }
        new.retain(|value| *value != last);
        // Each once from either partition.
        let twice = expected.iter().flat_map(|id| [id, id]);
        let mut wanted: Vec<String> = twice.map(|id| format!("{{\"id\":{id}}}")).collect();
        wanted.sort();
        new.sort();
        assert_eq!(new, wanted);
    }

    fn out(&self) -> Vec<String> {
        self.cluster.read_as(&format!("{}-out", self.name), "read_committed").iter().map(Rec::text).collect()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn what_was_forgotten_on_kafka_stays_forgotten_after_a_kill() {
    let mut asked = Asked::new("forget");
    asked.start();
    asked.check(&[1, 2, 3, 1], &[1, 2, 3]);
    let ran = asked.folder.run(&["forget", "p.yaml", "--value", r#"{"id": 2}"#]);
    asked.kill();
    ran.exits(0).says(&["2 entries forgotten"]);
    // Neither what the process knew nor its checkpoints: all comes from the changelog.
    std::fs::remove_dir_all(asked.folder.path("state")).unwrap();
    asked.start();
    asked.check(&[1, 2, 3], &[2]);
    let ran = asked.folder.run(&["forget", "p.yaml", "--all"]);
    asked.kill();
    ran.exits(0);
    std::fs::remove_dir_all(asked.folder.path("state")).unwrap();
    asked.start();
    asked.check(&[1, 2], &[1, 2]);
    asked.check(&[1, 2, 3], &[3]);
    // What came back after all was forgotten is there after a kill, too.
    asked.kill();
    asked.start();
    asked.check(&[1, 2, 3, 4], &[4]);
}

#[test]
fn a_pipeline_on_kafka_that_does_not_run_forgets_and_goes_on_where_it_stopped() {
    let mut asked = Asked::new("forget-stopped");
    asked.start();
    asked.check(&[1, 2], &[1, 2]);
    asked.stop();
    asked.folder.run(&["forget", "p.yaml", "--value", r#"{"id": 2}"#]).exits(0).says(&["2 entries forgotten"]);
    asked.start();
    asked.check(&[1, 2], &[2]);
    asked.stop();
    asked.stages(&STAGE.replace("value.id", "value.other"));
    asked.folder.run(&["forget", "p.yaml", "--value", r#"{"other": 2}"#]).exits(3).says(&["D-KEY-CHANGED"]);
    asked.stages(STAGE);
    asked.folder.run(&["forget", "p.yaml", "--all"]).exits(0);
    asked.start();
    asked.check(&[1, 2], &[1, 2]);
}

#[test]
fn every_process_of_a_group_forgets_and_reads_its_file_again() {
    let mut asked = Asked::new("forget-group");
    asked.start();
    asked.check(&[1], &[1]);
    asked.start();
    // Both have a partition as soon as two answer.
    let began = Instant::now();
    let answered = loop {
        let ran = asked.folder.run(&["--json", "forget", "p.yaml", "--value", r#"{"id": 1}"#]);
        let folders = std::fs::read_dir(asked.folder.path(&format!("state/tamis/{}", asked.name))).unwrap().count();
        if ran.code() == 0 && folders == 2 {
            break ran;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{}{}", ran.out(), ran.err());
        std::thread::sleep(Duration::from_millis(500));
    };
    let answer: serde_json::Value = serde_json::from_str(&answered.out()).unwrap();
    assert_eq!(answer["result"]["tasks"].as_array().map(Vec::len), Some(2), "{answer}");
    asked.check(&[1], &[1]);
    let filter = "  - { uses: filter, id: f, with: { keep: 'value.id != 5' } }\n";
    asked.stages(&format!("{filter}{STAGE}"));
    asked.folder.run(&["reload", "p.yaml"]).exits(0);
    asked.kill();
    asked.start();
    asked.check(&[1, 5, 6], &[6]);
    asked.stages(&STAGE.replace("value.id", "value.other"));
    asked.folder.run(&["reload", "p.yaml"]).exits(2).says(&["D-KEY-CHANGED", "goes on as before"]);
    asked.check(&[6, 5, 7], &[7]);
    // A stage that goes takes its state along; it does not come back with the stage.
    asked.stages(&STAGE.replace("id: d,", "id: other,"));
    asked.folder.run(&["reload", "p.yaml"]).exits(0);
    asked.check(&[1], &[1]);
    asked.stages(STAGE);
    asked.folder.run(&["reload", "p.yaml"]).exits(0);
    asked.kill();
    std::fs::remove_dir_all(asked.folder.path("state")).unwrap();
    asked.start();
    asked.check(&[1, 1], &[1]);
}

#[test]
fn what_was_forgotten_stays_forgotten_without_transactions_too() {
    let mut asked = Asked::with("forget-alo", "at-least-once");
    asked.start();
    asked.check(&[1, 2], &[1, 2]);
    let ran = asked.folder.run(&["forget", "p.yaml", "--value", r#"{"id": 2}"#]);
    asked.kill();
    ran.exits(0).says(&["2 entries forgotten"]);
    std::fs::remove_dir_all(asked.folder.path("state")).unwrap();
    asked.start();
    asked.check(&[1, 2], &[2]);
}
