//! Faults on the wire while the built program runs: every kind of request, every kind of fault, early, midway and late.
//! Whatever happens, each record leaves once, in its order, and the run ends by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Child;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tamis::script::source::Dice;
use tamis_tests::kafka::broker::{Cluster, behind_proxy};
use tamis_tests::kafka::proxy::{Fault, Planned, Proxy, api};
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::Folder;

use super::many;

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
/// A variable: `all` plays every case, for nights; a part of a request's name plays those, for whoever looks for the
/// cause of one.
const ONLY: &str = "TAMIS_TEST_FAULTS";
/// Without it one case in so many is played: each request, each fault and each place, but not each with each.
const ONE_IN: usize = 3;
/// How many seeds the late copies of commits are tried with, for nights.
const SEEDS: &str = "TAMIS_TEST_SEEDS";
const PARTITIONS: i32 = 2;
/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A pipeline through the proxy, with topics of its own.
pub struct Job {
    pub cluster: &'static Cluster,
    pub folder: Folder,
    pub name: String,
    pub source: String,
    pub sink: String,
}

/// What should leave, by partition.
pub type Expected = BTreeMap<i32, Vec<String>>;

impl Job {
    pub fn new(source: &str, until: &str) -> Job {
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

    pub fn proxy(&self) -> &Proxy {
        &self.cluster.proxies()[0]
    }

    /// What is not as promised; nothing if all is.
    pub fn wrong(&self, expected: &Expected) -> Option<String> {
        let mut found: Expected = (0..PARTITIONS).map(|p| (p, Vec::new())).collect();
        for record in self.cluster.read(&self.sink) {
            found.entry(record.partition).or_default().push(record.text());
        }
        if found != *expected {
            let sizes = |of: &Expected| of.values().map(Vec::len).collect::<Vec<_>>();
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
pub fn input(cluster: &Cluster, count: u32) -> (String, Expected) {
    let topic = cluster.topic("faults-in", PARTITIONS);
    // These keys hash to 0 and 1 of two partitions.
    let keys = ["foobar", "abc"];
    let partition = |key: &str| if key == "foobar" { 0 } else { 1 };
    let mut records = Vec::new();
    let mut expected: Expected = (0..PARTITIONS).map(|p| (p, Vec::new())).collect();
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
pub fn run(job: &Job, planned: Option<&Planned>) -> Result<(), String> {
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
    let only = std::env::var(ONLY).ok();
    let word = only.as_deref().filter(|only| *only != "all").unwrap_or_default();
    for (request, word) in REQUESTS.into_iter().filter(|(_, name)| name.contains(word)) {
        let count = calm.proxy().seen(&calm.name, request);
        assert!(count > 0, "a run makes no {word}");
        let places: BTreeSet<u64> = [1, count / 2 + 1, count].into_iter().collect();
        for nth in places {
            cases.extend(FAULTS.map(|fault| (request, word, nth, fault)));
        }
    }
    if only.is_none() {
        // The faults of a request begin at another place with each of its places.
        let keeps = |at: usize| (at + at / FAULTS.len()).is_multiple_of(ONE_IN);
        cases = cases.into_iter().enumerate().filter(|(at, _)| keeps(*at)).map(|(_, case)| case).collect();
    }
    let planned = cases.len();
    let longest = Mutex::new((Duration::ZERO, String::new()));
    let failed = many::each(cases, |(request, word, nth, fault)| {
        let named = format!("{word} {nth}, {fault:?}");
        let took = case(&source, &expected, request, nth, fault).map_err(|why| format!("{named}: {why}"))?;
        let mut longest = longest.lock().unwrap();
        *longest = std::mem::take(&mut *longest).max((took, named));
        Ok(())
    });
    let (time, which) = longest.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {planned} cases:\n{}", failed.len(), failed.join("\n"));
    println!("{planned} cases, each record once in all of them; the longest took {time:.1?} ({which})");
}

/// One case, and how long its run took. How many requests a run makes depends on chance: if the fault did not come it
/// comes earlier next time, for a case without its fault is none.
fn case(source: &str, expected: &Expected, request: i16, nth: u64, fault: Fault) -> Result<Duration, String> {
    let mut nth = nth;
    for _ in 0..5 {
        let job = Job::new(source, "    until: end");
        let planned = job.proxy().plan(&job.name, request, nth, fault);
        let began = Instant::now();
        run(&job, Some(&planned))?;
        let took = began.elapsed();
        if let Some(wrong) = job.wrong(expected) {
            return Err(wrong);
        }
        if planned.fired() > 0 {
            return Ok(took);
        }
        nth = (nth * 2 / 3).max(1);
    }
    Err("the fault never came".to_owned())
}

/// KAFKA-17754 through the whole program: a commit is held and sent again by the client; the copy arrives while a later
/// transaction is on its way, at a request that the seed chooses; then the process is killed, or goes on. The error says
/// what is wrong with what the next run leaves behind.
pub fn late_commit(without: &str, seed: u64) -> Result<(), String> {
    let mut dice = Dice::of(&format!("late commit {seed}"));
    let cluster = behind_proxy();
    let (source, mut expected) = input(cluster, 10 + dice.below(30) as u32);
    let job = Job::new(&source, "");
    let mut more = |count: u64| {
        let id = |n: u64| 1_000 + n + expected.values().map(Vec::len).sum::<usize>() as u64;
        let records: Vec<Rec> =
            (0..count).map(|n| Rec::new("foobar", &format!("{{\"id\":{},\"n\":0}}", id(n)))).collect();
        expected.entry(0).or_default().extend(records.iter().map(Rec::text));
        cluster.write(&source, &records);
        expected.values().map(Vec::len).sum::<usize>()
    };
    let arrived = |all: usize| {
        let began = Instant::now();
        while cluster.read_as(&job.sink, "read_committed").len() < all {
            assert!(began.elapsed() < Duration::from_secs(60), "the client sends its commit again");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let mut command = job.folder.command(&["-v", "run", "p.yaml"]);
    let log = std::fs::File::create(job.folder.path("log")).unwrap();
    let mut child = Process(command.env("TAMIS_TEST_WITHOUT", without).stderr(log).spawn().unwrap());
    // Sometimes other transactions went before it.
    if dice.below(2) == 0 {
        arrived(more(0));
    }
    let held = job.proxy().plan(&job.name, api::END_TXN, 1, Fault::Hold);
    let all = more(1 + dice.below(8));
    assert!(held.wait(Duration::from_secs(60)), "a commit comes");
    arrived(all);
    // At the last of them outputs and state are in the transaction, but no positions: there the copy does harm.
    let at = [api::ADD_PARTITIONS_TO_TXN, api::PRODUCE, api::TXN_OFFSET_COMMIT, api::ADD_OFFSETS_TO_TXN];
    let at = at[(dice.below(6) as usize).min(3)];
    let slow = job.proxy().plan(&job.name, at, 1, Fault::Delay(Duration::from_secs(3)));
    more(1 + dice.below(30));
    assert!(slow.wait(Duration::from_secs(60)), "another transaction comes");
    std::thread::sleep(Duration::from_millis(dice.below(300)));
    held.release();
    if dice.below(3) == 0 {
        // It hears what became of its transaction, and goes on.
        std::thread::sleep(Duration::from_secs(4));
    }
    child.kill();
    drop((held, slow));
    let again =
        std::fs::read_to_string(job.folder.path("p.yaml")).unwrap().replace("stages:", "    until: end\nstages:");
    job.folder.write("p.yaml", again.replace("\n\n    until", "\n    until"));
    run(&job, None)?;
    job.wrong(&expected).map_or(Ok(()), Err)
}

/// A process that goes with its test.
pub struct Process(pub Child);

impl Process {
    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn a_late_copy_of_a_commit_does_no_harm() {
    let seeds: Vec<u64> = (1..=many::number(SEEDS, 6)).collect();
    let count = seeds.len();
    let failed = many::each(seeds, |seed| late_commit("", seed).map_err(|why| format!("seed {seed}: {why}")));
    assert!(failed.is_empty(), "{} of {count} seeds:\n{}", failed.len(), failed.join("\n"));
    println!("{count} seeds, nothing lost and nothing twice");
}

#[test]
fn without_the_rule_of_taint_a_late_copy_of_a_commit_is_noticed() {
    // The test above means something only if this one finds harm.
    let seeds: Vec<u64> = (1..=many::number(SEEDS, 6)).collect();
    let count = seeds.len();
    let found = many::each(seeds, |seed| late_commit("taint", seed));
    assert!(!found.is_empty(), "the guard was off with {count} seeds, and nothing happened");
    println!("with the guard off {} of {count} seeds do harm", found.len());
}
