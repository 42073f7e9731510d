//! What lasts of keyed state on Kafka, through the built program: checkpoints that make a restart short, changelogs that
//! keep nothing dead, commits that fail.

use std::collections::HashMap;
use std::process::Child;
use std::time::Duration;

use tamis_tests::kafka::broker::{Cluster, behind_proxy, shared};
use tamis_tests::kafka::proxy::{Fault, api};
use tamis_tests::kafka::topics::{Rec, unique, wait_until};
use tamis_tests::program::{Folder, Ran};

/// A pipeline with its topics and its folder.
struct Job {
    cluster: &'static Cluster,
    folder: Folder,
    name: String,
    source: String,
    sink: String,
    /// `with` of the stage, and sections of the file that are added as they are.
    with: &'static str,
    more: &'static str,
}

impl Job {
    fn new(area: &str, with: &'static str, more: &'static str) -> Job {
        let cluster = shared();
        let name = unique(area);
        let (source, sink) = (format!("{name}-in"), format!("{name}-out"));
        cluster.create(&source, 1, &[]);
        cluster.create(&sink, 1, &[]);
        Job { cluster, folder: Folder::new(&name), name, source, sink, with, more }
    }

    /// The file of a run to the end of what is there, or without an end.
    fn file(&self, until: &str) {
        let Job { name, source, sink, with, more, .. } = self;
        let brokers = self.cluster.brokers();
        self.folder.write(
            "p.yaml",
            format!(
                "version: 1\nname: {name}\n\
                 source: {{ kafka: {{ topics: {source}, brokers: '{brokers}'{until} }} }}\n\
                 time: {{ field: value.t, unit: ms }}\n\
                 stages:\n  - {{ uses: dedup, id: d, key: value.id, scope: partition, {with} }}\n\
                 sink: {{ kafka: {{ topic: {sink} }} }}\n{more}"
            ),
        );
    }

    fn start(&self) -> Running {
        self.file("");
        Running(self.folder.start(&["run", "p.yaml", "-q"]))
    }

    /// Runs to the end of what is there now.
    #[track_caller]
    fn run(&self) -> Ran {
        self.file(", until: end");
        self.folder.run(&["-v", "run", "p.yaml"])
    }

    /// Writes records with these ids, of this event time in ms.
    fn give(&self, time: i64, ids: impl IntoIterator<Item = u32>) {
        let record = |id| Rec::new("k", &format!("{{\"id\":{id},\"t\":{time}}}")).at(0).timed(time);
        self.cluster.write(&self.source, &ids.into_iter().map(record).collect::<Vec<_>>());
    }

    /// Records that left, as any reader sees them now.
    fn out(&self) -> usize {
        self.cluster.read_as(&self.sink, "read_committed").len()
    }

    /// The changelog as compaction would leave it: keys with their values, without those that were taken away.
    fn state(&self) -> HashMap<Vec<u8>, Vec<u8>> {
        let mut state = HashMap::new();
        for record in self.cluster.read_as(&format!("{}-{}-changelog", self.name, self.source), "read_committed") {
            let key = record.key.expect("every record of a changelog has a key");
            match record.value {
                Some(value) => drop(state.insert(key, value)),
                None => drop(state.remove(&key)),
            }
        }
        state
    }
}

/// A process that is killed when the test ends early.
struct Running(Child);

impl Running {
    fn kill(mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records of the changelog that a run read, and what it began with.
#[track_caller]
fn restored(ran: &Ran) -> (u64, bool) {
    let said = ran.err();
    let line = said.lines().find(|line| line.contains("state restored")).unwrap_or_else(|| panic!("{said}"));
    let records = line.split("records").nth(1).map(|rest| rest.trim_start_matches(|c: char| !c.is_ascii_digit()));
    let digits = records.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    (digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{line}")), line.contains("checkpoint"))
}

const QUICK: &str =
    "state: { checkpoint: 200ms, changelog: { create: true, replication: 1 } }\nrun: { commit: 20ms }\n";

#[test]
fn a_checkpoint_that_was_written_between_commits_makes_the_restart_of_a_killed_process_short() {
    let job = Job::new("warm", "state: { retention: 365d }", QUICK);
    let running = job.start();
    job.give(1, 0..5_000);
    wait_until("all have left", || job.out() == 5_000);
    // Slices are written with commits, which need something to commit.
    for round in 0..60u32 {
        job.give(1, 5_000 + 10 * round..5_010 + 10 * round);
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_until("those too", || job.out() == 5_600);
    running.kill();
    job.give(1, 0..5_700);
    let ran = job.run().exits(0).says(&["5700 in, 100 out"]);
    let (records, warm) = restored(&ran);
    assert!(warm && records < 1_000, "{records} of more than 5600 records were read, from a checkpoint: {warm}");
    // The last checkpoint of a run that ends has it all.
    let (records, warm) = restored(&job.run().exits(0).says(&["0 in, 0 out"]));
    assert!(warm && records <= 1, "{records} records were read, from a checkpoint: {warm}");
}

#[test]
fn keys_of_a_window_that_was_dropped_just_before_a_kill_are_taken_away_by_the_next_process() {
    let more = "state: { changelog: { create: true, replication: 1 } }\nrun: { commit: 1500ms }\n";
    let job = Job::new("dead", "with: { window: { tumbling: 10s }, order: arrival, emit: immediate }", more);
    let running = job.start();
    // More than is taken away with one commit.
    job.give(1_000, 0..10_000);
    wait_until("the window is full", || job.out() == 10_000);
    job.give(50_000, [1]);
    wait_until("the window is dropped", || job.state().keys().any(|key| key[0] == 3));
    running.kill();
    let left = job.state().len();
    assert!(left > 5_000, "{left}: the process had already taken most of it away");
    job.give(50_000, 0..400);
    job.file(", until: end");
    // Many commits, for it takes some.
    let quick = job.folder.read("p.yaml").replace("1500ms", "1ms") + "limits: { batch: { rows: 20 } }\n";
    job.folder.write("p.yaml", quick);
    job.folder.run(&["run", "p.yaml"]).exits(0).says(&["399 out"]);
    let state = job.state();
    let kinds = |kind: u8| state.keys().filter(|key| key[0] == kind).count();
    assert_eq!((kinds(3), state.len()), (0, 401), "what is alive, and the marker");
}

const SLOW: &str = "state: { changelog: { create: true, replication: 1 } }\nrun: { commit: 50ms }\n";

#[test]
fn a_group_that_was_deleted_goes_on_where_its_state_is() {
    let job = Job::new("no-group", "state: { unbounded: true }", SLOW);
    job.give(1, 0..10);
    job.run().exits(0).says(&["10 in, 10 out"]);
    job.cluster.delete_group(&job.name);
    job.give(1, 5..15);
    job.run().exits(0).says(&["10 in, 5 out"]);
}

#[test]
fn a_lost_disk_costs_time_and_nothing_else() {
    let job = Job::new("no-disk", "state: { retention: 365d }", QUICK);
    job.give(1, 0..2_000);
    job.run().exits(0).says(&["2000 in, 2000 out"]);
    std::fs::remove_dir_all(job.folder.path("state")).expect("there was a state directory");
    job.give(1, 1_000..3_000);
    let ran = job.run().exits(0).says(&["2000 in, 1000 out"]);
    let (records, warm) = restored(&ran);
    assert!(!warm && records > 2_000, "{records} records were read, from a checkpoint: {warm}");
}

#[test]
fn marks_that_never_end_stand_many_in_one_record_and_stay_taken_away_one_by_one_or_all() {
    let job = Job::new("sheaves", "state: { unbounded: true }", QUICK);
    let lose_disk = || std::fs::remove_dir_all(job.folder.path("state")).expect("there was a state directory");
    let count = |kind: u8| job.state().keys().filter(|key| key[0] == kind).count();
    job.give(1, 0..20_000);
    job.run().exits(0).says(&["20000 in, 20000 out"]);
    // All of its keys are in few records, and are known from those alone.
    let few = job.state().len();
    assert!(few < 1_000 && count(4) >= 20, "{few} records, {} sheaves", count(4));
    lose_disk();
    job.give(1, 10_000..30_000);
    let ran = job.run().exits(0).says(&["20000 in, 10000 out"]);
    let (records, warm) = restored(&ran);
    assert!(!warm && records < 2_000, "{records} records were read, from a checkpoint: {warm}");
    // One is taken away, which its sheaf does not know.
    let forget = |what: &[&str]| job.folder.run(&[&["forget", "p.yaml"][..], what].concat()).exits(0);
    forget(&["--value", "{\"id\": 5, \"t\": 1}"]).says(&["1 entry forgotten"]);
    assert_eq!(job.state().values().filter(|value| value[..] == [2]).count(), 1, "it is told for ever");
    lose_disk();
    job.give(1, 0..100);
    job.run().exits(0).says(&["100 in, 1 out"]);
    job.give(1, 0..100);
    job.run().exits(0).says(&["100 in, 0 out"]);
    // No more sheaves from now on; with all that was known those that stand go, too, and what comes then begins anew.
    let sheaves = count(4);
    job.give(1, 30_000..30_100);
    job.run().exits(0).says(&["100 in, 100 out"]);
    assert_eq!(count(4), sheaves);
    forget(&["--all"]).says(&["30100 entries forgotten"]);
    assert_eq!((count(1), count(4), count(5)), (0, 0, 1));
    lose_disk();
    job.give(1, 0..10_000);
    job.run().exits(0).says(&["10000 in, 10000 out"]);
    assert!(count(4) >= 10, "{} sheaves", count(4));
    lose_disk();
    job.give(1, 0..10_100);
    job.run().exits(0).says(&["10100 in, 100 out"]);
}

#[test]
fn state_of_another_pipeline_under_the_same_name_is_refused() {
    let job = Job::new("other-key", "state: { unbounded: true }", SLOW);
    job.give(1, 0..10);
    job.run().exits(0).says(&["10 in, 10 out"]);
    job.give(1, 0..10);
    job.file(", until: end");
    let file = job.folder.read("p.yaml").replace("key: value.id", "key: [value.id, value.t]");
    job.folder.write("p.yaml", file);
    let ran = job.folder.run(&["run", "p.yaml"]);
    assert_ne!(ran.code(), 0, "{}", ran.err());
    ran.says(&["D-KEY-CHANGED", "a new stage `id`"]);
    // As it was, it goes on.
    job.run().exits(0).says(&["10 in, 0 out"]);
}

#[test]
fn the_group_of_another_program_is_taken_over_only_when_that_is_asked_for() {
    let job = Job::new("adopt", "state: { unbounded: true }", SLOW);
    job.give(1, 0..10);
    job.cluster.commit(&job.name, &job.source, 0, 3);
    job.run().exits(3).says(&["a position in", "(3) that tamis did not commit", "--accept-state-loss"]);
    job.folder.run(&["run", "p.yaml", "--accept-state-loss"]).exits(0).says(&["7 in, 7 out"]);
    job.give(1, 5..12);
    job.run().exits(0).says(&["7 in, 2 out"]);
}

#[test]
fn state_that_is_gone_is_accepted_once_and_no_longer() {
    let job = Job::new("gone-once", "state: { unbounded: true }", SLOW);
    let lose = || {
        job.cluster.delete(&format!("{}-{}-changelog", job.name, job.source));
        let _ = std::fs::remove_dir_all(job.folder.path("state"));
    };
    job.give(1, 0..10);
    job.run().exits(0).says(&["10 in, 10 out"]);
    lose();
    job.give(1, 0..10);
    job.run().exits(3).says(&["state_mismatch", "--accept-state-loss"]);
    job.folder.run(&["run", "p.yaml", "--accept-state-loss"]).exits(0).says(&["10 in, 10 out"]);
    job.give(1, 0..12);
    job.run().exits(0).says(&["12 in, 2 out"]);
    lose();
    job.give(1, 0..1);
    job.run().exits(3).says(&["state_mismatch"]);
}

#[test]
fn a_position_without_token_counts_only_where_it_is_that_of_the_state() {
    let job = Job::new("tokenless", "state: { unbounded: true }", SLOW);
    job.give(1, 0..10);
    job.run().exits(0).says(&["10 in, 10 out"]);
    // The same position, but somebody else's: tokens are gone, state is not.
    let end = job.cluster.committed(&job.name, &job.source)[0].clone().expect("a position").0;
    job.cluster.commit(&job.name, &job.source, 0, end);
    job.give(1, 5..15);
    job.run().exits(0).says(&["10 in, 5 out"]);
    job.cluster.commit(&job.name, &job.source, 0, 2);
    job.run().exits(3).says(&["offset_tampered", "is 2, the state is of", "tamis reset"]);
}

#[test]
fn a_partition_that_cannot_be_committed_holds_up_no_other_and_costs_no_state() {
    let cluster = shared();
    let name = unique("alone");
    let (source, sink) = (format!("{name}-in"), format!("{name}-out"));
    cluster.create(&source, 2, &[]);
    // The broker refuses what is larger; the program does not know.
    cluster.create(&sink, 2, &[("max.message.bytes", "3000")]);
    let brokers = cluster.brokers();
    let folder = Folder::new(&name);
    folder.write(
        "p.yaml",
        format!(
            "version: 1\nname: {name}\n\
             source: {{ kafka: {{ topics: {source}, brokers: '{brokers}' }} }}\n\
             stages:\n  - {{ uses: dedup, id: d, key: value.id, scope: partition, state: {{ unbounded: true }} }}\n\
             sink: {{ kafka: {{ topic: {sink}, properties: {{ compression.type: none }} }} }}\n\
             state: {{ changelog: {{ create: true, replication: 1 }} }}\nrun: {{ commit: 20ms, http: none }}\n"
        ),
    );
    let good = |ids: std::ops::Range<u32>| -> Vec<Rec> {
        ids.map(|id| Rec { key: None, ..Rec::new("", &format!("{{\"id\":{id}}}")).at(1) }).collect()
    };
    cluster.write(&source, &good(0..10));
    let log = std::fs::File::create(folder.path("log")).expect("a file");
    let running = Running(folder.command(&["-v", "run", "p.yaml"]).stderr(log).spawn().expect("tamis starts"));
    let left = || cluster.read_as(&sink, "read_committed").len();
    wait_until("the first have left", || left() == 10);
    let large = format!("{{\"id\":1,\"text\":\"{}\"}}", "x".repeat(5_000));
    cluster.write(&source, &[Rec { key: None, ..Rec::new("", &large).at(0) }]);
    wait_until("it was tried", || folder.read("log").contains("one at a time"));
    cluster.write(&source, &good(5..30));
    wait_until("the others have left", || left() == 30);
    running.kill();
    let said = folder.read("log");
    assert!(said.contains("state kept"), "{said}");
    let before = said.split("one at a time").next().unwrap_or_default();
    assert_eq!(said.matches("state restored").count(), before.matches("state restored").count(), "{said}");
    assert_eq!(left(), 30, "each once");
}

#[test]
fn partitions_that_move_while_commits_fail_leave_nobody_waiting_for_them() {
    let cluster = shared();
    let name = unique("alone-moves");
    let (source, sink) = (format!("{name}-in"), format!("{name}-out"));
    cluster.create(&source, 6, &[]);
    cluster.create(&sink, 6, &[("max.message.bytes", "3000")]);
    let brokers = cluster.brokers();
    let start = |who: &str| {
        let folder = Folder::new(&format!("{name}-{who}"));
        folder.write(
            "p.yaml",
            format!(
                "version: 1\nname: {name}\n\
                 source:\n  kafka:\n    topics: {source}\n    brokers: '{brokers}'\n    \
                 properties: {{ session.timeout.ms: '6000', heartbeat.interval.ms: '200' }}\n\
                 stages:\n  - {{ uses: dedup, id: d, key: value.id, scope: partition, state: {{ unbounded: true }} }}\n\
                 sink: {{ kafka: {{ topic: {sink}, properties: {{ compression.type: none }} }} }}\n\
                 state: {{ changelog: {{ create: true, replication: 1 }} }}\nrun: {{ commit: 20ms, http: none }}\n"
            ),
        );
        let log = std::fs::File::create(folder.path("log")).expect("a file");
        let child = folder.command(&["-v", "run", "p.yaml"]).stderr(log).spawn().expect("tamis starts");
        (folder, Running(child))
    };
    let left = || cluster.read_as(&sink, "read_committed").len();
    let (first, _one) = start("one");
    wait_until("it reads", || first.read("log").contains("assigned: "));
    let large = format!("{{\"id\":1,\"text\":\"{}\"}}", "x".repeat(5_000));
    cluster.write(&source, &[Rec { key: None, ..Rec::new("", &large).at(0) }]);
    wait_until("it was tried", || first.read("log").contains("one at a time"));
    for round in 0..4u32 {
        // Whoever has the partition that fails when the group changes, the others go on.
        let (second, two) = start(&format!("two-{round}"));
        wait_until("it has a share", || second.read("log").contains("assigned: "));
        let good = |id: u32| Rec { key: None, ..Rec::new("", &format!("{{\"id\":{id}}}")).at(1 + (id % 5) as i32) };
        cluster.write(&source, &(20 * round..20 * round + 10).map(good).collect::<Vec<_>>());
        wait_until("the others left while two share", || left() == 20 * round as usize + 10);
        two.kill();
        cluster.write(&source, &(20 * round + 10..20 * round + 20).map(good).collect::<Vec<_>>());
        wait_until("the others left from one again", || left() == 20 * round as usize + 20);
    }
}

#[test]
fn a_commit_that_takes_too_long_does_not_hold_up_the_group() {
    let cluster = behind_proxy();
    let name = unique("revoke");
    let (source, sink) = (format!("{name}-in"), format!("{name}-out"));
    cluster.create(&source, 2, &[]);
    cluster.create(&sink, 2, &[]);
    let start = |who: &str, brokers: &str| {
        let folder = Folder::new(&format!("{name}-{who}"));
        folder.write(
            "p.yaml",
            format!(
                "version: 1\nname: {name}\nsource:\n  kafka:\n    topics: {source}\n    brokers: '{brokers}'\n    \
                 properties: {{ client.id: {name}-{who}, session.timeout.ms: '20000', heartbeat.interval.ms: '300' }}\n\
                 stages:\n  - {{ uses: dedup, id: d, key: value.id, scope: partition, state: {{ unbounded: true }} }}\n\
                 sink: {{ kafka: {{ topic: {sink} }} }}\n\
                 state: {{ changelog: {{ create: true, replication: 1 }} }}\nrun: {{ commit: 20ms, http: none }}\n"
            ),
        );
        let log = std::fs::File::create(folder.path("log")).expect("a file");
        let child = folder.command(&["-v", "run", "p.yaml"]).stderr(log).spawn().expect("tamis starts");
        (folder, Running(child))
    };
    let give = |ids: std::ops::Range<u32>| {
        let record = |id: u32| Rec { key: None, ..Rec::new("", &format!("{{\"id\":{id}}}")).at((id % 2) as i32) };
        cluster.write(&source, &ids.map(record).collect::<Vec<_>>());
    };
    let left = || cluster.read_as(&sink, "read_committed").len();
    let (first, _one) = start("one", &cluster.proxied());
    give(0..10);
    wait_until("the first have left", || left() == 10);
    // However often it asks, the end of its next transaction does not arrive.
    let client = format!("{name}-one");
    let held = cluster.proxies()[0].plan_many(&client, api::END_TXN, 1, 1_000, Fault::Hold);
    give(5..20);
    assert!(held.wait(Duration::from_secs(60)), "the commit comes");
    let (second, _two) = start("two", cluster.brokers());
    wait_until("the group was given what it waited for", || first.read("log").contains("the group waits"));
    drop(held.release());
    drop(held);
    wait_until("the second has a partition", || second.read("log").contains(&format!("assigned: {source}")));
    give(15..30);
    wait_until("all have left", || left() >= 30);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(left(), 30, "each once");
}
