//! Members of groups: static ones that come back, ones that are fenced, topics that get more partitions meanwhile, and
//! the newer protocol.

use std::process::Child;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use tamis_tests::kafka::broker::{Cluster, shared};
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::Folder;

/// A pipeline with its topics. What was given so far is in `given`.
struct Job {
    cluster: &'static Cluster,
    folder: Folder,
    name: String,
    source: String,
    sink: String,
    given: u32,
}

/// A process of it, and the file with what it says. It ends with this value.
struct Running {
    child: Child,
    log: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Asks it to stop, and waits until it has: it says goodbye to the group.
    #[track_caller]
    fn stop(mut self) {
        let asked = std::process::Command::new("kill").args(["-s", "TERM", &self.child.id().to_string()]).status();
        assert!(asked.unwrap().success() && self.child.wait().unwrap().success());
    }
}

impl Job {
    fn new(area: &str, partitions: i32, properties: &str) -> Job {
        let (cluster, name) = (shared(), unique(area));
        let (source, sink) = (format!("{name}-in"), format!("{name}-out"));
        cluster.create(&source, partitions, &[]);
        cluster.create(&sink, partitions, &[]);
        let folder = Folder::new(&name);
        folder.write(
            "p.yaml",
            format!(
                "version: 1
name: {name}
source: {{ kafka: {{ topics: {source}, brokers: '{}', properties: {{ {properties} }} }} }}
stages:
  - {{ uses: dedup, id: d, key: value.id, scope: partition, state: {{ unbounded: true }} }}
sink: {{ kafka: {{ topic: {sink} }} }}
state: {{ changelog: {{ create: true, replication: 1 }} }}
run: {{ commit: 100ms, http: none }}
",
                cluster.brokers()
            ),
        );
        Job { cluster, folder, name, source, sink, given: 0 }
    }

    /// Starts a process that is called `id`, with a state directory of its own.
    fn start(&self, id: &str, log: &str) -> Running {
        let file = std::fs::File::create(self.folder.path(log)).unwrap();
        let mut command = self.folder.command(&["-v", "run", "p.yaml"]);
        command.env("ID", id).env("XDG_STATE_HOME", self.folder.path(&format!("state-{log}"))).stderr(file);
        Running { child: command.spawn().unwrap(), log: log.to_owned() }
    }

    /// As `start`, with the state directory that another left.
    fn start_after(&self, id: &str, log: &str, other: &str) -> Running {
        let state = |log: &str| self.folder.path(&format!("state-{log}"));
        std::fs::rename(state(other), state(log)).unwrap();
        self.start(id, log)
    }

    /// Writes a hundred records that are new to each of the first partitions, and ten that were there before.
    fn give(&mut self, partitions: i32) {
        let ids = (self.given..self.given + 100).chain(self.given.saturating_sub(10)..self.given);
        let ids: Vec<u32> = ids.collect();
        for partition in 0..partitions {
            let value = |id: &u32| format!("{{\"id\":\"{partition}-{id}\"}}");
            let records: Vec<Rec> = ids.iter().map(|id| Rec::new("k", &value(id)).at(partition)).collect();
            self.cluster.write(&self.source, &records);
        }
        self.given += 100;
    }

    /// Waits until so many have left, and sees that each did so once.
    #[track_caller]
    fn wait_for(&self, count: usize) {
        let committed = || self.cluster.read_as(&self.sink, "read_committed");
        self.wait(&format!("{count} have left"), || committed().len() >= count);
        let mut found: Vec<String> = committed().iter().map(Rec::text).collect();
        found.sort();
        found.dedup();
        assert_eq!((found.len(), committed().len()), (count, count), "some left twice, or too many");
    }

    #[track_caller]
    fn wait(&self, what: &str, mut is: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is() {
            assert!(began.elapsed() < Duration::from_secs(150), "waited in vain: {what}{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn logs(&self) -> String {
        let tail = |name: &str| {
            let text = self.folder.read(name);
            let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('{')).collect();
            format!("\n{name}:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
        };
        ["a", "b", "c"].map(tail).concat()
    }

    #[track_caller]
    fn wait_until_said(&self, running: &Running, text: &str) {
        self.wait(text, || self.folder.read(&running.log).contains(text));
    }

    fn says(&self, running: &Running, text: &str) -> usize {
        self.folder.read(&running.log).matches(text).count()
    }
}

const STATIC: &str = "group.instance.id: { from_env: ID }, session.timeout.ms: '20000', heartbeat.interval.ms: '500'";

#[test]
fn a_static_member_that_is_killed_comes_back_to_its_partitions_and_nobody_else_notices() {
    let mut job = Job::new("static", 4, STATIC);
    let (mut a, b) = (job.start("a", "a"), job.start("b", "b"));
    job.give(4);
    job.wait_for(400);
    job.wait("both have partitions", || [&a, &b].iter().all(|p| job.says(p, "assigned: ") > 0));
    job.give(4);
    job.wait_for(800);
    let before = (job.says(&b, "assigned: "), job.says(&b, "revoked: "));
    a.child.kill().unwrap();
    a.child.wait().unwrap();
    job.give(4);
    let began = Instant::now();
    let again = job.start_after("a", "c", "a");
    job.wait_for(1_200);
    assert!(began.elapsed() < Duration::from_secs(15), "that was the session's end: {:?}", began.elapsed());
    assert_eq!((job.says(&b, "assigned: "), job.says(&b, "revoked: ")), before, "{}", job.logs());
    assert_eq!(job.says(&again, "assigned: "), 1);
}

#[test]
fn two_holders_of_one_static_id_are_told_so() {
    let mut job = Job::new("holders", 1, STATIC);
    let mut a = job.start("same", "a");
    job.give(1);
    job.wait_for(100);
    let mut here = job.folder.command(&["run", "p.yaml"]);
    here.env("ID", "same").env("XDG_STATE_HOME", job.folder.path("state-a"));
    let here = tamis_tests::program::Ran(here.output().unwrap());
    here.exits(3).says(&["another run holds the state directory", "`group.instance.id`"]);
    let mut b = job.start("same", "b");
    let mut ended = None;
    job.wait("one gives up", || {
        ended = [&mut a, &mut b].into_iter().find_map(|p| Some((p.child.try_wait().unwrap()?, p.log.clone())));
        ended.is_some()
    });
    let (status, log) = ended.unwrap();
    assert_eq!(status.code(), Some(3));
    let said = job.folder.read(&log);
    for text in ["could not go on 3 times in a minute", "`group.instance.id`, same", "give each its own"] {
        assert!(said.contains(text), "`{text}` is not in:{}", job.logs());
    }
    drop((a, b));
    // Whoever comes next goes on.
    job.give(1);
    let _next = job.start("same", "c");
    job.wait_for(200);
}

#[test]
fn a_member_that_is_fenced_once_is_followed_by_another() {
    let mut job = Job::new("fenced", 2, STATIC);
    let mut a = job.start("same", "a");
    job.give(2);
    job.wait_for(200);
    let rival: BaseConsumer = job
        .cluster
        .client()
        .set("group.id", &job.name)
        .set("group.instance.id", "same")
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("enable.auto.commit", "false")
        .create()
        .unwrap();
    rival.subscribe(&[&job.source]).unwrap();
    job.wait("the rival has partitions", || {
        let _ = rival.poll(Duration::from_millis(100));
        rival.assignment().is_ok_and(|all| all.count() > 0)
    });
    job.wait_until_said(&a, "another process took over its `group.instance.id`, same; another joins in");
    drop(rival);
    job.give(2);
    job.wait_for(400);
    assert!(a.child.try_wait().unwrap().is_none(), "it is the same process:{}", job.logs());
}

#[test]
fn new_partitions_are_set_aside_while_old_ones_go_on() {
    let mut job = Job::new("grown", 2, "heartbeat.interval.ms: '500'");
    let a = job.start("a", "a");
    job.give(2);
    job.wait_for(200);
    job.cluster.grow(&job.source, 4);
    job.wait_until_said(&a, "partition_count_changed");
    let changelog = format!("{}-{}-changelog", job.name, job.source);
    assert_eq!(job.says(&a, &format!("--alter --topic {changelog} --partitions 4")), 1, "{}", job.logs());
    job.give(4);
    job.wait_for(400);
    a.stop();
    // The same at a start.
    let b = job.start_after("a", "b", "a");
    job.wait_until_said(&b, "partition_count_changed");
    job.give(2);
    job.wait_for(600);
    b.stop();
    let bounded = job.folder.read("p.yaml").replace(", properties:", ", until: end, properties:");
    job.folder.write("bounded.yaml", bounded);
    job.folder.run(&["run", "bounded.yaml"]).exits(3).says(&["partition_count_changed", "--partitions 4"]);
    job.folder.run(&["reset", "p.yaml", "--to", "earliest"]).exits(3).says(&["partition_count_changed"]);
    job.cluster.grow(&changelog, 4);
    let _c = job.start_after("a", "c", "b");
    // What came to the new ones is read from its beginning: a hundred each, and ten that only the old ones had seen.
    job.wait_for(820);
}

#[test]
fn members_of_the_newer_protocol_share_and_take_over() {
    let mut job = Job::new("newer", 4, "group.protocol: consumer");
    let a = job.start("a", "a");
    job.give(4);
    job.wait_for(400);
    let b = job.start("b", "b");
    job.wait_until_said(&b, "assigned: ");
    job.wait("the first gives some back", || job.says(&a, "revoked: ") > 0);
    job.give(4);
    job.wait_for(800);
    // Killed, its partitions would wait for the end of its session, which the broker sets.
    a.stop();
    job.give(4);
    job.wait_for(1_200);
}
