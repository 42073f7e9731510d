//! Pipelines from topic to topic through the built program: what leaves, what goes on after a restart, what is refused.

use std::process::Child;
use std::time::{Duration, Instant};

use tamis_tests::kafka::broker::{Cluster, shared};
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::{Folder, Ran};

/// A pipeline with its topics and its folder.
struct Job {
    cluster: &'static Cluster,
    folder: Folder,
    name: String,
    source: String,
    sink: String,
    dead: String,
}

impl Job {
    fn new(area: &str, partitions: i32) -> Job {
        let cluster = shared();
        let name = unique(area);
        let (source, sink, dead) = (format!("{name}-in"), format!("{name}-out"), format!("{name}-dead"));
        cluster.create(&source, partitions, &[]);
        cluster.create(&sink, partitions, &[]);
        Job { cluster, folder: Folder::new(&name), name, source, sink, dead }
    }

    fn changelog(&self) -> String {
        format!("{}-{}-changelog", self.name, self.source)
    }

    /// Writes the pipeline file; `source` and `more` are added to it as they are.
    fn file(&self, source: &str, sink: &str, more: &str) {
        let Job { name, source: topic, sink: out, dead, .. } = self;
        let brokers = self.cluster.brokers();
        self.folder.write(
            "p.yaml",
            format!(
                "version: 1\nname: {name}\n\
                 source: {{ kafka: {{ topics: {topic}, brokers: \"{brokers}\"{source} }} }}\n\
                 stages:\n  - {{ uses: dedup, id: d, key: value.id, scope: partition, state: {{ unbounded: true }} }}\n\
                 sink: {{ kafka: {{ topic: {out}{sink} }} }}\n\
                 errors: {{ dead_letter: {{ kafka: {{ topic: {dead}, create: {{ partitions: 1 }} }} }} }}\n\
                 state: {{ changelog: {{ create: true, replication: 1 }} }}\n\
                 run: {{ commit: 100ms }}\n{more}"
            ),
        );
    }

    /// Writes records with these ids to a partition.
    fn give(&self, partition: i32, ids: impl IntoIterator<Item = u32>) {
        let records: Vec<Rec> = ids.into_iter().map(|id| record(id).at(partition)).collect();
        self.cluster.write(&self.source, &records);
    }

    /// Runs to the end of what is there now.
    #[track_caller]
    fn run(&self) -> Ran {
        self.folder.run(&["run", "p.yaml"])
    }

    /// Values of the output, sorted.
    #[track_caller]
    fn out(&self) -> Vec<String> {
        let mut values: Vec<String> = self.cluster.read(&self.sink).iter().map(Rec::text).collect();
        values.sort();
        values
    }
}

fn record(id: u32) -> Rec {
    Rec::new(&format!("k{id}"), &value(id)).timed(1_000 + i64::from(id))
}

fn value(id: u32) -> String {
    format!("{{\"id\":{}}}", 100_000 + id)
}

#[track_caller]
fn check(job: &Job, ids: impl IntoIterator<Item = u32>) {
    let mut expected: Vec<String> = ids.into_iter().map(value).collect();
    expected.sort();
    assert_eq!(job.out(), expected);
}

const END: &str = ", until: end";

#[test]
fn a_run_goes_on_where_the_last_one_stopped_and_knows_what_it_has_seen() {
    let job = Job::new("goes-on", 3);
    job.file(END, "", "");
    job.give(0, (0..50).chain(20..60));
    job.give(1, 100..110);
    job.run().exits(0).says(&["100 in, 70 out, 30 duplicates"]);
    check(&job, (0..60).chain(100..110));
    job.give(0, 50..70);
    job.run().exits(0).says(&["20 in, 10 out, 10 duplicates"]);
    check(&job, (0..70).chain(100..110));
    job.run().exits(0).says(&["0 in, 0 out"]);
    let one = &job.cluster.read(&job.sink)[0];
    assert_eq!(one.timestamp - 1_000, one.key_text()[1..].parse::<i64>().unwrap(), "the time of a record stays");
}

#[test]
fn records_go_where_the_java_client_would_send_them() {
    let job = Job::new("murmur", 5);
    job.file(END, "", "");
    job.cluster.write(&job.source, &[Rec::new("foobar", "{\"id\":1}"), Rec::new("21", "{\"id\":2}")]);
    job.run().exits(0);
    let found: Vec<(i32, String)> = job.cluster.read(&job.sink).iter().map(|r| (r.partition, r.key_text())).collect();
    // toPositive(murmur2) % 5 of the Java client: -790332482 and -973932308.
    let expected = |hash: i32| (hash & 0x7fff_ffff) % 5;
    let mut wanted = vec![(expected(-790_332_482), "foobar".to_owned()), (expected(-973_932_308), "21".to_owned())];
    wanted.sort();
    assert_eq!(found, wanted);
}

#[test]
fn headers_leave_as_they_came_whatever_the_value_and_however_the_batch_is_packed() {
    let one = Some(b"1".to_vec());
    let headers: [&[(&str, Option<Vec<u8>>)]; 5] = [
        &[],
        &[("a", one.clone())],
        &[("", one.clone()), ("b", None)],
        &[("a", one.clone()), ("a", Some(Vec::new())), ("c", Some(vec![0; 300]))],
        &[],
    ];
    let values =
        [Some("a value".to_owned()), Some("v".repeat(70_000)), Some(String::new()), None, Some("\0".to_owned())];
    for packed in ["uncompressed", "lz4", "gzip", "snappy", "zstd"] {
        let cluster = shared();
        let name = unique("headers");
        let (source, sink) = (format!("{name}-in"), format!("{name}-out"));
        cluster.create(&source, 1, &[("compression.type", packed)]);
        cluster.create(&sink, 1, &[]);
        let folder = Folder::new(&name);
        let brokers = cluster.brokers();
        folder.write(
            "p.yaml",
            format!(
                "version: 1\nname: {name}\n\
                 source: {{ kafka: {{ topics: {source}, brokers: \"{brokers}\", until: end }} }}\n\
                 decode: {{ value: string }}\n\
                 sink: {{ kafka: {{ topic: {sink} }} }}\n"
            ),
        );
        let mut records = Vec::new();
        for (n, headers) in headers.iter().cycle().take(75).enumerate() {
            let value = values[n / headers.len().max(1) % values.len()].clone();
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            let key = Some(format!("k{n}").into_bytes());
            records.push(Rec { key, value: value.map(String::into_bytes), headers, ..Rec::default() }.timed(5));
        }
        cluster.write(&source, &records);
        folder.run(&["run", "p.yaml"]).exits(0);
        let out: Vec<Rec> = cluster.read(&sink).into_iter().map(|rec| Rec { offset: 0, ..rec }).collect();
        for (found, given) in out.iter().zip(&records) {
            assert_eq!((found.key_text(), &found.headers), (given.key_text(), &given.headers), "{packed}");
            assert!(found.value == given.value, "{packed}: the value of {} differs", given.key_text());
        }
        assert_eq!(out.len(), records.len(), "{packed}");
    }
}

#[test]
fn a_failed_record_leaves_as_it_came_with_the_headers_that_tools_read() {
    let job = Job::new("dead", 1);
    job.file(END, "", "");
    let bad = Rec::new("key", "no json").timed(77).with("own", "header");
    job.cluster.write(&job.source, &[record(1), bad, record(2)]);
    job.run().exits(0).says(&["1 dead-lettered"]);
    check(&job, [1, 2]);
    let dead = job.cluster.read(&job.dead);
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].key_text().as_str(), dead[0].text().as_str(), dead[0].timestamp), ("key", "no json", 77));
    for (name, value) in [
        ("own", "header"),
        ("__connect.errors.topic", &job.source),
        ("__connect.errors.partition", "0"),
        ("__connect.errors.offset", "1"),
        ("__connect.errors.connector.name", &job.name),
        ("__connect.errors.stage", "decode.value"),
        ("tamis.error.code", "json"),
    ] {
        assert_eq!(dead[0].header(name).as_deref(), Some(value), "{name}");
    }
}

#[test]
fn a_record_that_is_not_tolerated_stops_the_run_behind_what_came_before() {
    let job = Job::new("stops", 1);
    job.file(END, "", "");
    let file = job.folder.read("p.yaml").replace("errors: {", "errors: { tolerance: none,");
    job.folder.write("p.yaml", file);
    job.cluster.write(&job.source, &[record(1), Rec::new("k", "no json"), record(2)]);
    job.run().exits(1).says(&["/0/1: decode.value: json"]);
    check(&job, [1]);
    job.run().exits(1);
    check(&job, [1]);
}

#[test]
fn a_damaged_checkpoint_costs_time_and_nothing_else() {
    let job = Job::new("damage", 1);
    job.file(END, "", "");
    job.give(0, 0..2_000);
    job.run().exits(0).says(&["2000 in, 2000 out"]);
    let state = job.folder.path("state");
    let mut damaged = 0;
    let mut folders = vec![state];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.components().any(|c| c.as_os_str() == "checkpoints") {
                let mut bytes = std::fs::read(&entry).unwrap();
                let middle = bytes.len() / 2;
                bytes.iter_mut().skip(middle).take(4_096).for_each(|b| *b = 0);
                std::fs::write(&entry, bytes).unwrap();
                damaged += 1;
            }
        }
    }
    assert!(damaged > 0, "there is no checkpoint");
    job.give(0, 1_000..3_000);
    job.run().exits(0).says(&["2000 in, 1000 out"]);
    check(&job, 0..3_000);
}

#[test]
fn a_reset_keeps_what_was_seen_or_forgets_it() {
    let job = Job::new("reset", 2);
    job.file(END, "", "");
    job.give(0, 0..10);
    job.give(1, 10..20);
    job.run().exits(0);
    job.folder.run(&["reset", "p.yaml", "--to", "earliest"]).exits(0);
    job.run().exits(0).says(&["20 in, 0 out"]);
    job.folder.run(&["reset", "p.yaml", "--to", "earliest", "--forget"]).exits(0);
    job.run().exits(0).says(&["20 in, 20 out"]);
    job.give(0, 20..30);
    job.folder.run(&["reset", "p.yaml", "--to", "latest"]).exits(0);
    job.run().exits(0).says(&["0 in, 0 out"]);
    job.give(0, 5..25);
    job.run().exits(0).says(&["20 in, 15 out"]);
}

#[test]
fn what_retention_removed_unread_stops_the_run_or_is_passed_over() {
    let job = Job::new("lost", 1);
    job.file(END, "", "");
    job.give(0, 0..10);
    job.run().exits(0);
    job.give(0, 10..20);
    job.cluster.truncate(&job.source, 0, 15);
    job.run().exits(3).says(&["5 records of", "were removed before they were read"]);
    job.file(", until: end, lost: skip", "", "");
    job.run().exits(0).says(&["5 in, 5 out"]);
    check(&job, (0..10).chain(15..20));
}

#[test]
fn without_its_changelog_a_pipeline_does_not_start_on_a_guess() {
    let job = Job::new("gone", 1);
    job.file(END, "", "");
    job.give(0, 0..10);
    job.run().exits(0);
    job.cluster.delete(&job.changelog());
    let _ = std::fs::remove_dir_all(job.folder.path("state"));
    job.give(0, 5..15);
    job.run().exits(3).says(&["state_mismatch", "accept_loss"]);
    let file = job.folder.read("p.yaml").replace("\nstate: {", "\nstate: { accept_loss: true,");
    job.folder.write("p.yaml", file);
    job.run().exits(0).says(&["10 in, 10 out"]);
}

#[test]
fn a_changelog_that_loses_state_is_refused() {
    let job = Job::new("policy", 1);
    job.file(END, "", "");
    job.cluster.create(&job.changelog(), 1, &[("cleanup.policy", "delete")]);
    job.run().exits(3).says(&["cleanup.policy=delete", "--add-config cleanup.policy=compact"]);
    let other = Job::new("count", 2);
    other.file(END, "", "");
    other.cluster.create(&other.changelog(), 1, &[("cleanup.policy", "compact")]);
    other.run().exits(3).says(&["partition_count_changed"]);
}

#[test]
fn a_position_that_somebody_else_committed_is_refused() {
    let job = Job::new("foreign", 1);
    job.file(END, "", "");
    job.give(0, 0..10);
    job.run().exits(0);
    job.cluster.commit(&job.name, &job.source, 0, 3);
    job.run().exits(3).says(&["offset_tampered", "tamis reset"]);
    job.folder.run(&["reset", "p.yaml", "--to", "earliest"]).exits(0);
    job.run().exits(0).says(&["10 in, 0 out"]);
}

#[test]
fn missing_topics_are_made_only_when_that_is_asked_for() {
    let job = Job::new("topics", 2);
    job.file(END, "", "");
    let other = format!("{}-elsewhere", job.sink);
    job.folder.write(
        "p.yaml",
        job.folder.read("p.yaml").replace(&format!("topic: {} ", job.sink), &format!("topic: {other} ")),
    );
    job.run().exits(3).says(&["there is no topic", "kafka-topics.sh", &format!("--topic {other} --partitions 2")]);
    assert_eq!(job.cluster.partitions(&other), 0);
    let file =
        job.folder.read("p.yaml").replace(&format!("topic: {other} "), &format!("topic: {other}, create: {{}} "));
    job.folder.write("p.yaml", file);
    job.run().exits(0);
    assert_eq!(job.cluster.partitions(&other), 2);
}

#[test]
fn state_over_several_partitions_needs_the_exchange() {
    let job = Job::new("exchange", 2);
    job.file(END, "", "");
    job.folder.write("p.yaml", job.folder.read("p.yaml").replace("scope: partition", "scope: global"));
    job.run().exits(2).says(&["P-EXCHANGE", "the topic has 2 partitions", "scope: partition"]);
    // Where the key decides the partition nothing need be exchanged.
    job.folder.write("p.yaml", job.folder.read("p.yaml").replace("key: value.id", "key: [key, value.id]"));
    job.give(0, [1, 1, 2]);
    job.run().exits(0).says(&["3 in, 2 out"]);
}

#[test]
fn a_plan_asks_the_cluster_when_it_is_asked_to() {
    let job = Job::new("env", 2);
    job.file(END, ", timestamp: event", "");
    let narrow = job.folder.read("p.yaml");
    job.folder.write("p.yaml", narrow.replace("scope: partition", "scope: global"));
    job.folder.run(&["plan", "p.yaml"]).exits(0).says(&["if the topic has more than one partition"]);
    job.folder.run(&["plan", "p.yaml", "--env"]).exits(2).says(&["P-EXCHANGE", "the topic has 2 partitions"]);
    job.folder.write("p.yaml", narrow);
    let planned = job.folder.run(&["plan", "p.yaml", "--env"]).exits(0);
    assert!(!planned.err().contains("W-RETENTION"), "this broker keeps everything: {}", planned.err());
    for line in [
        format!("source {}: 2 partitions", job.source),
        format!("changelog {}: missing, is made", job.changelog()),
        format!("sink {}: 2 partitions", job.sink),
        format!("dead letters {}: missing, is made", job.dead),
    ] {
        assert!(planned.out().contains(&line), "`{line}` is not in:\n{}", planned.out());
    }
    // Time is counted from the event, so what is old is gone at once.
    job.folder.write("p.yaml", job.folder.read("p.yaml").replace(&job.sink, &format!("{}-week", job.sink)));
    job.cluster.create(&format!("{}-week", job.sink), 2, &[("retention.ms", "604800000")]);
    for arguments in [&["plan", "p.yaml", "--env"][..], &["run", "p.yaml"]] {
        job.folder.run(arguments).exits(0).says(&["W-RETENTION", "keeps records for 7d", "timestamp: event"]);
    }
}

#[test]
fn at_least_once_loses_nothing_and_knows_what_it_has_seen() {
    let job = Job::new("alo", 2);
    job.file(END, ", delivery: at-least-once", "");
    job.give(0, (0..100).chain(50..150));
    job.run().exits(0).says(&["200 in, 150 out"]);
    job.give(1, 0..10);
    job.give(0, 100..200);
    job.run().exits(0).says(&["110 in, 60 out"]);
}

#[test]
fn one_command_makes_a_topic_unique() {
    let job = Job::new("verb", 2);
    job.give(0, [1, 2, 1]);
    let to = format!("{}-unique", job.source);
    let brokers = job.cluster.brokers();
    let call = ["dedup", "--from", &job.source, "--to", &to, "--key", "key,id", "--brokers", brokers, "--until", "end"];
    // Both that are missing, with the command for each, in terms of the arguments.
    let command = format!("--create --topic {to} --partitions 2\n");
    job.folder.run(&call).exits(3).says(&[
        "there are no topics dedup-",
        &to,
        "`--create` makes",
        "-changelog",
        &command,
    ]);
    job.folder.run(&[&call[..], &["--create"]].concat()).exits(0).says(&["3 in, 2 out, 1 duplicates"]);
    assert_eq!(job.cluster.partitions(&to), 2, "as the input");
    let keys = |topic: &str| {
        let mut keys: Vec<String> = job.cluster.read(topic).iter().map(Rec::key_text).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&to), ["k1", "k2"], "records leave as they came, under their own keys");
    let table = format!("{}-table", job.source);
    let mut call = [&call[..], &["--create", "--output", "upsert"]].concat();
    call[4] = &table;
    job.folder.run(&call).exits(0).says(&["3 in, 2 out, 1 duplicates"]);
    let written = [1, 2].map(|id| format!("{{\"key\":\"k{id}\",\"id\":{}}}", 100_000 + id));
    assert_eq!(keys(&table), written, "a table: the key is what `--key` names");
}

/// A process that is killed when the test ends early.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(folder: &Folder, file: &str) -> Running {
        Running(folder.start(&["run", file, "-q"]))
    }
}

#[track_caller]
fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(120), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn processes_of_one_group_share_the_partitions_and_survive_each_other() {
    let job = Job::new("group", 4);
    job.file(", properties: { session.timeout.ms: 6000 }", "", "");
    let committed = |count: usize| job.cluster.read_as(&job.sink, "read_committed").len() >= count;
    let mut first = Running::start(&job.folder, "p.yaml");
    (0..4).for_each(|p| job.give(p, p as u32 * 1_000..p as u32 * 1_000 + 100));
    wait_for("the first process", || committed(400));
    let _second = Running::start(&job.folder, "p.yaml");
    (0..4).for_each(|p| job.give(p, p as u32 * 1_000 + 50..p as u32 * 1_000 + 200));
    wait_for("both", || committed(800));
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    (0..4).for_each(|p| job.give(p, p as u32 * 1_000 + 100..p as u32 * 1_000 + 300));
    wait_for("the second alone", || committed(1_200));
    std::thread::sleep(Duration::from_secs(1));
    check(&job, (0..4).flat_map(|p| p * 1_000..p * 1_000 + 300));
}
