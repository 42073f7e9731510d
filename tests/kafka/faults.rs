//! Faults on the wire while the built program runs: every kind of request, every kind of fault, early, midway and late.
//! Whatever happens, each record leaves once, in its order, and the run ends by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Child;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tamis_tests::kafka::broker::{Cluster, behind_proxy};
use tamis_tests::kafka::proxy::{Fault, Planned, Proxy, api};
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::Folder;

/// Kinds of requests that a run makes, and what a reader calls them.
const REQUESTS: [(i16, &str); 10] = [
    (api::PRODUCE, "Produce"),
    (api::FETCH, "Fetch"),
    (api::METADATA, "Metadata"),
    (api::FIND_COORDINATOR, "FindCoordinator"),
    (api::JOIN_GROUP, "JoinGroup"),
    (api::INIT_PRODUCER_ID, "InitProducerId"),
    (api::ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn"),
    (api::ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn"),
    (api::TXN_OFFSET_COMMIT, "TxnOffsetCommit"),
    (api::END_TXN, "EndTxn"),
];
const FAULTS: [Fault; 6] = [
    Fault::Delay(Duration::from_millis(700)),
    Fault::DropRequest,
    Fault::DropReply,
    Fault::CutBefore,
    Fault::CutAfter,
    Fault::Hold,
];
/// A variable that picks requests by a part of their name, for whoever looks for the cause of one.
const ONLY: &str = "TAMIS_TEST_FAULTS";
const PARTITIONS: i32 = 2;
/// Cases that run at once.
const AT_ONCE: usize = 6;
/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A pipeline through the proxy, with topics of its own.
struct Job {
    cluster: &'static Cluster,
    folder: Folder,
    name: String,
    source: String,
    sink: String,
}

impl Job {
    fn new(source: &str, until: &str) -> Job {
        let cluster = behind_proxy();
        let name = unique("faults");
        let (brokers, sink) = (cluster.proxied(), format!("{name}-out"));
        cluster.create(&sink, PARTITIONS, &[]);
        let folder = Folder::new(&name);
        folder.write(
            "p.yaml",
            format!(
                "version: 1
name: {name}
source:
  kafka:
    topics: {source}
    brokers: '{brokers}'
    properties:
      client.id: {name}
      socket.timeout.ms: '2000'
      session.timeout.ms: '3000'
      heartbeat.interval.ms: '300'
      max.poll.interval.ms: '6000' # a member waits for this long until it asks again to join
{until}
stages:
  - {{ uses: dedup, id: d, key: value.id, scope: partition, state: {{ unbounded: true }} }}
sink: {{ kafka: {{ topic: {sink} }} }}
limits: {{ batch: {{ rows: 20 }} }}
state: {{ changelog: {{ create: true, replication: 1 }} }}
run: {{ commit: 5ms, http: none }}
"
            ),
        );
        Job { cluster, folder, name, source: source.to_owned(), sink }
    }

    fn proxy(&self) -> &Proxy {
        &self.cluster.proxies()[0]
    }

    /// What is not as promised; nothing if all is.
    fn wrong(&self, expected: &BTreeMap<i32, Vec<String>>) -> Option<String> {
        let mut found: BTreeMap<i32, Vec<String>> = (0..PARTITIONS).map(|p| (p, Vec::new())).collect();
        for record in self.cluster.read(&self.sink) {
            found.entry(record.partition).or_default().push(record.text());
        }
        if found != *expected {
            let sizes = |of: &BTreeMap<i32, Vec<String>>| of.values().map(Vec::len).collect::<Vec<_>>();
            return Some(format!("{:?} records by partition, not {:?}", sizes(&found), sizes(expected)));
        }
        let ends = self.cluster.ends(&self.source, true);
        let committed = self.cluster.committed(&self.name, &self.source);
        let committed: Vec<i64> = committed.iter().map(|c| c.as_ref().map_or(-1, |(offset, _)| *offset)).collect();
        (committed != ends).then(|| format!("committed up to {committed:?}, not {ends:?}"))
    }
}

/// Records of which some are copies, as they are written, and what should leave, by partition. Keys lead to the same
/// partition on both sides, as the Java client places them.
fn input(cluster: &Cluster, count: u32) -> (String, BTreeMap<i32, Vec<String>>) {
    let topic = cluster.topic("faults-in", PARTITIONS);
    // These keys hash to 0 and 1 of two partitions.
    let keys = ["foobar", "abc"];
    let partition = |key: &str| if key == "foobar" { 0 } else { 1 };
    let mut records = Vec::new();
    let mut expected: BTreeMap<i32, Vec<String>> = (0..PARTITIONS).map(|p| (p, Vec::new())).collect();
    for n in 0..count {
        let key = keys[n as usize % 2];
        let id = if n % 5 == 4 { n - 4 + n % 2 } else { n };
        let value = format!("{{\"id\":{id},\"n\":{n}}}");
        let at = partition(key);
        if !records.iter().any(|r: &Rec| r.partition == at && r.text().starts_with(&format!("{{\"id\":{id},"))) {
            expected.entry(at).or_default().push(value.clone());
        }
        records.push(Rec::new(key, &value).at(at));
    }
    cluster.write(&topic, &records);
    (topic, expected)
}

/// Runs to the end; a held request is let go a little after it came. The error says what went wrong.
fn run(job: &Job, planned: Option<&Planned>) -> Result<(), String> {
    let mut child = job.folder.start(&["run", "p.yaml", "-q"]);
    let began = Instant::now();
    let mut released = false;
    loop {
        if child.try_wait().map_err(|e| e.to_string())?.is_some() {
            break;
        }
        if let Some(planned) = planned
            && planned.fired() > 0
            && !released
        {
            std::thread::sleep(Duration::from_millis(150));
            planned.release();
            released = true;
        }
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            return Err(format!("it hangs: {}", said(child)));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    match output.status.code() {
        Some(0) => Ok(()),
        code => Err(format!("it ended with {code:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn said(child: Child) -> String {
    child.wait_with_output().map_or(String::new(), |output| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn every_fault_at_every_request_leaves_each_record_once() {
    let cluster = behind_proxy();
    let (source, expected) = input(cluster, 240);
    // How many requests of each kind an undisturbed run makes.
    let calm = Job::new(&source, "    until: end");
    run(&calm, None).unwrap();
    assert_eq!(calm.wrong(&expected), None);
    let mut cases = Vec::new();
    let only = std::env::var(ONLY).unwrap_or_default();
    for (request, word) in REQUESTS.into_iter().filter(|(_, word)| word.contains(&only)) {
        let count = calm.proxy().seen(&calm.name, request);
        assert!(count > 0, "a run makes no {word}");
        let places: BTreeSet<u64> = [1, count / 2 + 1, count].into_iter().collect();
        for nth in places {
            cases.extend(FAULTS.map(|fault| (request, word, nth, fault)));
        }
    }
    let planned = cases.len();
    let (queue, failed) = (Mutex::new(cases), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((request, word, nth, fault)) = queue.lock().unwrap().pop() else { return };
                    if let Err(why) = case(&source, &expected, request, nth, fault) {
                        failed.lock().unwrap().push(format!("{word} {nth}, {fault:?}: {why}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {planned} cases:\n{}", failed.len(), failed.join("\n"));
    println!("{planned} cases, each record once in all of them");
}

/// One case. How many requests a run makes depends on chance: if the fault did not come it comes earlier next time, for
/// a case without its fault is none.
fn case(
    source: &str,
    expected: &BTreeMap<i32, Vec<String>>,
    request: i16,
    nth: u64,
    fault: Fault,
) -> Result<(), String> {
    let mut nth = nth;
    for _ in 0..5 {
        let job = Job::new(source, "    until: end");
        let planned = job.proxy().plan(&job.name, request, nth, fault);
        run(&job, Some(&planned))?;
        if let Some(wrong) = job.wrong(expected) {
            return Err(wrong);
        }
        if planned.fired() > 0 {
            return Ok(());
        }
        nth = (nth * 2 / 3).max(1);
    }
    Err("the fault never came".to_owned())
}

/// KAFKA-17754 through the whole program: the commit of the first transaction is held and sent again by the client; the
/// copy arrives while the second transaction has its output but not its positions; then the process is killed. What
/// the next run leaves behind is returned.
fn late_commit(without: &str) -> Result<(), String> {
    let cluster = behind_proxy();
    let (source, mut expected) = input(cluster, 20);
    let job = Job::new(&source, "");
    let held = job.proxy().plan(&job.name, api::END_TXN, 1, Fault::Hold);
    let mut command = job.folder.command(&["-v", "run", "p.yaml"]);
    let log = std::fs::File::create(job.folder.path("log")).unwrap();
    let mut child = command.env("TAMIS_TEST_WITHOUT", without).stderr(log).spawn().unwrap();
    assert!(held.wait(Duration::from_secs(60)), "the first commit comes");
    let began = Instant::now();
    let all: usize = expected.values().map(Vec::len).sum();
    while cluster.read_as(&job.sink, "read_committed").len() < all {
        assert!(began.elapsed() < Duration::from_secs(60), "the client sends its commit again");
        std::thread::sleep(Duration::from_millis(50));
    }
    let slow = job.proxy().plan(&job.name, api::ADD_OFFSETS_TO_TXN, 1, Fault::Delay(Duration::from_secs(5)));
    let second: Vec<Rec> = (0..10).map(|n| Rec::new("foobar", &format!("{{\"id\":{},\"n\":0}}", 1_000 + n))).collect();
    expected.entry(0).or_default().extend(second.iter().map(Rec::text));
    cluster.write(&source, &second);
    assert!(slow.wait(Duration::from_secs(60)), "the second transaction comes");
    held.release();
    child.kill().unwrap();
    child.wait().unwrap();
    drop((held, slow));
    let again =
        std::fs::read_to_string(job.folder.path("p.yaml")).unwrap().replace("stages:", "    until: end\nstages:");
    job.folder.write("p.yaml", again.replace("\n\n    until", "\n    until"));
    run(&job, None)?;
    job.wrong(&expected).map_or(Ok(()), Err)
}

#[test]
fn a_late_copy_of_a_commit_does_no_harm() {
    for _ in 0..3 {
        late_commit("").unwrap();
    }
}

#[test]
fn without_the_rule_of_taint_a_late_copy_of_a_commit_is_noticed() {
    // The test above means something only if this one finds harm.
    let found = late_commit("taint");
    assert!(found.is_err(), "the guard was off, and nothing happened");
}
