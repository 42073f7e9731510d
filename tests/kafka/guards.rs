//! Every guard of the invariants I3 to I6, switched off in the built program, does harm that a test finds; with all of
//! them nothing happens in the same scenes. A scene is two processes of one group, or several runs after one another.

use std::time::{Duration, Instant};

use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use tamis::kafka::txn::Guards;
use tamis_tests::kafka::proxy::{Fault, api};
use tamis_tests::kafka::topics::Rec;
use tamis_tests::program::Folder;

use super::faults::{Expected, Job, Process, input, late_commit, run};
use super::many;

/// How a run without a guard is called, and what finds its absence: an error says what is wrong.
type Scene = fn(without: &str) -> Result<(), String>;

/// Where the absence of each guard is noticed on a real broker.
const SCENES: [(&str, Scene); 7] = [
    ("taint", copies),
    ("positions", pending),
    ("generation", frozen),
    ("undo", undelivered),
    ("stable", pending),
    ("token", pinned),
    ("digest", tampered),
];

/// Guards whose absence does no harm on a real broker, for another covers them; the simulator of the transaction core
/// finds it (host/src/kafka/txn_tests.rs). Whatever leaves the client in doubt about a commit taints its producer too.
const SIMULATED: [&str; 1] = ["doubt"];

/// Harm depends on who is faster; once in so many tries it must show.
const TRIES: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn every_guard_has_a_scene_that_needs_it() {
    for word in Guards::WORDS {
        let found = SCENES.iter().any(|(of, _)| *of == word) || SIMULATED.contains(&word);
        assert!(found, "nothing notices that the guard `{word}` is missing");
    }
}

#[test]
fn with_every_guard_the_scenes_do_no_harm() {
    let scenes: Vec<(&str, Scene)> =
        SCENES.into_iter().filter(|(word, _)| !["taint", "positions"].contains(word)).collect();
    let failed = many::each(scenes, |(word, scene)| scene("").map_err(|why| format!("the scene of {word}: {why}")));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_guard_that_is_off_is_noticed() {
    let failed = many::each(SCENES.to_vec(), |(word, scene)| {
        for _ in 0..TRIES {
            if let Err(why) = scene(word) {
                println!("without {word}: {why}");
                return Ok(());
            }
        }
        Err(format!("the guard `{word}` was off, and nothing happened"))
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_guard_that_does_not_exist_cannot_be_off() {
    let job = Job::new("nowhere", "");
    let mut command = job.folder.command(&["run", "p.yaml"]);
    let output = command.env("TAMIS_TEST_WITHOUT", "tolken").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no guard `tolken`"));
}

/// Two processes of one group: the first, and one whose state and `client.id` are its own.
struct Pair {
    job: Job,
    expected: Expected,
    other: Folder,
    without: String,
}

impl Pair {
    fn new(without: &str) -> Pair {
        let (source, expected) = input(tamis_tests::kafka::broker::behind_proxy(), 20);
        let job = Job::new(&source, "");
        let other = Folder::new(&format!("{}-other", job.name));
        let file = job.folder.read("p.yaml");
        other.write("p.yaml", file.replace("client.id: ", "client.id: other-"));
        Pair { job, expected, other, without: without.to_owned() }
    }

    fn start(&self, folder: &Folder) -> Process {
        let log = std::fs::File::create(folder.path("log")).unwrap();
        let mut command = folder.command(&["-v", "run", "p.yaml"]);
        Process(command.env("TAMIS_TEST_WITHOUT", &self.without).stderr(log).spawn().unwrap())
    }

    /// Records that were written to the output, whether they will be committed or not.
    fn produced(&self) -> i64 {
        self.job.cluster.ends(&self.job.sink, false).iter().sum()
    }

    /// Whether the group has committed all positions.
    fn is_through(&self) -> bool {
        let Job { cluster, name, source, .. } = &self.job;
        let committed = cluster.committed(name, source).into_iter().map(|c| c.map_or(0, |(offset, _)| offset));
        committed.eq(cluster.ends(source, true))
    }

    /// What is wrong, once all of it has ended.
    fn judge(&self, mut processes: Vec<Process>) -> Result<(), String> {
        processes.iter_mut().for_each(Process::kill);
        // A last run ends what the first process left open.
        let file = self.job.folder.read("p.yaml");
        self.job.folder.write("p.yaml", file.replace("\nstages:", "    until: end\nstages:"));
        run(&self.job, None)?;
        self.job.wrong(&self.expected).map_or(Ok(()), Err)
    }
}

/// Waits until something is so, at most so long.
fn within(time: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if began.elapsed() > time {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn signal(word: &str, process: &Process) {
    let status = std::process::Command::new("kill").args([&format!("-{word}"), &process.0.id().to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill -{word}");
}

/// The first process dies when its commit is on the wire. It arrives when the second one has the partitions: whoever was
/// told the old positions meanwhile writes everything again.
fn pending(without: &str) -> Result<(), String> {
    let pair = Pair::new(without);
    let held = pair.job.proxy().plan_many(&pair.job.name, api::END_TXN, 1, 1_000, Fault::Hold);
    let mut first = pair.start(&pair.job.folder);
    assert!(held.wait(PATIENCE), "a commit comes");
    first.kill();
    let before = pair.produced();
    let second = pair.start(&pair.other);
    // With the guard nothing comes: the second one waits for the end of the transaction.
    within(Duration::from_secs(if without.is_empty() { 5 } else { 12 }), || pair.produced() > before);
    held.release();
    drop(held);
    let patience = if without.is_empty() { PATIENCE } else { Duration::from_secs(10) };
    if !within(patience, || pair.is_through()) && without.is_empty() {
        return Err(format!("the second process does not come to the end:\n{}", pair.other.read("log")));
    }
    pair.judge(vec![second])
}

/// The first process stands still between its output and its positions, until the second one has done the same.
fn frozen(without: &str) -> Result<(), String> {
    let pair = Pair::new(without);
    let slow = pair.job.proxy().plan(&pair.job.name, api::ADD_OFFSETS_TO_TXN, 1, Fault::Delay(Duration::from_secs(2)));
    let first = pair.start(&pair.job.folder);
    assert!(slow.wait(PATIENCE), "positions come");
    signal("STOP", &first);
    let second = pair.start(&pair.other);
    assert!(within(PATIENCE, || pair.is_through()), "the second process: {}", pair.other.read("log"));
    signal("CONT", &first);
    // It aborts its transaction, or commits it.
    let sink = &pair.job.sink;
    assert!(within(PATIENCE, || pair.job.cluster.ends(sink, true) == pair.job.cluster.ends(sink, false)));
    pair.judge(vec![first, second])
}

/// Output is not delivered in time, so that its transaction is aborted; state must go with it.
fn undelivered(without: &str) -> Result<(), String> {
    let (source, expected) = input(tamis_tests::kafka::broker::behind_proxy(), 20);
    let job = Job::new(&source, "    until: end");
    let file = job
        .folder
        .read("p.yaml")
        .replace("sink: { kafka: {", "sink: { kafka: { properties: { message.timeout.ms: '2000' },");
    job.folder.write("p.yaml", file);
    let slow = job.proxy().plan(&job.name, api::PRODUCE, 1, Fault::Delay(Duration::from_secs(6)));
    let log = std::fs::File::create(job.folder.path("log")).unwrap();
    let mut command = job.folder.command(&["-v", "run", "p.yaml"]);
    let mut process = Process(command.env("TAMIS_TEST_WITHOUT", without).stderr(log).spawn().unwrap());
    assert!(within(PATIENCE, || process.0.try_wait().unwrap().is_some()), "it hangs: {}", job.folder.read("log"));
    assert_eq!(slow.fired(), 1);
    assert!(
        job.folder.read("log").contains("Abort") || job.folder.read("log").contains("Flush"),
        "nothing was aborted"
    );
    job.wrong(&expected).map_or(Ok(()), Err)
}

/// Somebody's open transaction hides the end of the changelog: whoever reads only to where it can be read starts with
/// too little.
fn pinned(without: &str) -> Result<(), String> {
    let (source, mut expected) = input(tamis_tests::kafka::broker::behind_proxy(), 20);
    let job = Job::new(&source, "    until: end");
    run(&job, None)?;
    let pin: BaseProducer = job.cluster.client().set("transactional.id", &job.name).create().unwrap();
    pin.init_transactions(PATIENCE).unwrap();
    pin.begin_transaction().unwrap();
    let changelog = format!("{}-{source}-changelog", job.name);
    for partition in 0..job.cluster.partitions(&changelog) {
        pin.send(BaseRecord::<str, str>::to(&changelog).partition(partition).key("k").payload("v")).unwrap();
    }
    pin.flush(PATIENCE).unwrap();
    let more: Vec<Rec> = (0..10).map(|n| Rec::new("foobar", &format!("{{\"id\":{},\"n\":0}}", 1_000 + n))).collect();
    expected.entry(0).or_default().extend(more.iter().map(Rec::text));
    job.cluster.write(&source, &more);
    run(&job, None)?;
    std::fs::remove_dir_all(job.folder.path("state")).unwrap();
    job.cluster.write(&source, &more);
    let mut command = job.folder.command(&["run", "p.yaml", "-q"]);
    let mut process = Process(command.env("TAMIS_TEST_WITHOUT", without).spawn().unwrap());
    // With the guard it waits until the transaction has ended.
    let patience = Duration::from_secs(if without.is_empty() { 4 } else { 30 });
    within(patience, || process.0.try_wait().unwrap().is_some());
    pin.abort_transaction(PATIENCE).unwrap();
    assert!(within(PATIENCE, || process.0.try_wait().unwrap().is_some()), "it hangs");
    job.wrong(&expected).map_or(Ok(()), Err)
}

/// The record of a mark, or of the first one in a sheaf if it stood alone.
fn mark(record: Rec) -> Option<Rec> {
    let (key, value) = (record.key.as_ref()?, record.value.as_ref()?);
    match key[0] {
        1 => Some(record),
        4 => {
            let stage = &key[1..2 + usize::from(key[1])];
            let hash: Vec<u8> = value[1..17].iter().rev().copied().collect();
            let key = Some([&[1], stage, &[0; 8], &hash].concat());
            Some(Rec { key, ..record })
        }
        _ => None,
    }
}

/// Somebody deletes a mark in the changelog. What is restored is not what was committed, and must not be started with.
fn tampered(without: &str) -> Result<(), String> {
    let (source, expected) = input(tamis_tests::kafka::broker::behind_proxy(), 20);
    let job = Job::new(&source, "    until: end");
    run(&job, None)?;
    let changelog = format!("{}-{source}-changelog", job.name);
    let mark = job.cluster.read(&changelog).into_iter().find_map(mark).unwrap();
    job.cluster.write(&changelog, &[Rec { value: None, timestamp: 0, ..mark }]);
    // A commit behind it, of a process that has its state and does not look there.
    let first = job.cluster.read(&source);
    job.cluster.write(&source, &first);
    run(&job, None)?;
    std::fs::remove_dir_all(job.folder.path("state")).unwrap();
    job.cluster.write(&source, &first);
    let mut command = job.folder.command(&["run", "p.yaml"]);
    let output = command.env("TAMIS_TEST_WITHOUT", without).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(3) if said.contains("state_mismatch") => Ok(()),
        code => {
            Err(job.wrong(&expected).unwrap_or(format!("it started on another state and ended with {code:?}: {said}")))
        }
    }
}

/// The copy of a commit arrives in a later transaction (faults.rs).
fn copies(without: &str) -> Result<(), String> {
    (1..=4).try_for_each(|seed| late_commit(without, seed))
}
