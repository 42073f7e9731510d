//! Changelogs that were cut short: at their head, beyond what compaction takes away, or at their tail, as by an election of
//! a broker that lagged behind. A run refuses to start on what is left, unless a checkpoint has what is missing.

use tamis_tests::kafka::broker::{Cluster, shared};
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::{Folder, Ran};

struct Job {
    cluster: &'static Cluster,
    folder: Folder,
    name: String,
    kind: Kind,
}

/// How marks stand in the changelog.
#[derive(Clone, Copy)]
struct Kind {
    state: &'static str,
    /// Records that are lost with half of the first run, or with some of it; and those of a commit of the second.
    head: usize,
    midst: usize,
}

const KINDS: [Kind; 2] = [ONE_BY_ONE, SHEAVES];
const ONE_BY_ONE: Kind = Kind { state: "{ retention: 365d }", head: FIRST as usize / 2, midst: 50 };
const SHEAVES: Kind = Kind { state: "{ unbounded: true }", head: 1, midst: 1 };

/// Ids of the first run, and of the second.
const FIRST: u32 = 300;
const SECOND: u32 = 500;

impl Job {
    /// A pipeline that has run twice.
    fn new(area: &str, kind: Kind, delivery: &str) -> Job {
        let (cluster, name) = (shared(), unique(area));
        cluster.create(&format!("{name}-in"), 1, &[]);
        cluster.create(&format!("{name}-out"), 1, &[]);
        let folder = Folder::new(&name);
        let (brokers, state) = (cluster.brokers(), kind.state);
        folder.write(
            "p.yaml",
            format!(
                "version: 1\nname: {name}\n\
                 source: {{ kafka: {{ topics: {name}-in, brokers: '{brokers}', until: end }} }}\n\
                 stages:\n  - {{ uses: dedup, id: d, key: value.id, scope: partition, state: {state} }}\n\
                 sink: {{ kafka: {{ topic: {name}-out, delivery: {delivery} }} }}\n\
                 state: {{ changelog: {{ create: true, replication: 1 }} }}\nrun: {{ commit: 20ms, http: none }}\n"
            ),
        );
        let job = Job { cluster, folder, name, kind };
        job.give(0..FIRST);
        job.run().exits(0).says(&["300 in, 300 out"]);
        job.keep("state", "state-of-the-first");
        job.give(FIRST..SECOND);
        job.run().exits(0).says(&["200 in, 200 out"]);
        job
    }

    fn give(&self, ids: std::ops::Range<u32>) {
        let records: Vec<Rec> = ids.map(|id| Rec::new("k", &format!("{{\"id\":{id}}}"))).collect();
        self.cluster.write(&format!("{}-in", self.name), &records);
    }

    fn run(&self) -> Ran {
        self.folder.run(&["-v", "run", "p.yaml"])
    }

    fn changelog(&self) -> String {
        format!("{0}-{0}-in-changelog", self.name)
    }

    /// Puts a copy of a folder in the place of another.
    fn keep(&self, from: &str, to: &str) {
        let (from, to) = (self.folder.path(from), self.folder.path(to));
        let _ = std::fs::remove_dir_all(&to);
        let copied = std::process::Command::new("cp").arg("-r").args([from, to]).status().expect("cp runs");
        assert!(copied.success());
    }

    fn lose_disk(&self) {
        std::fs::remove_dir_all(self.folder.path("state")).expect("there was a state directory");
    }

    /// Records before an offset are removed, which Kafka does where a person has changed the policy.
    fn behead(&self, before: i64) {
        self.cluster.configure(&self.changelog(), "cleanup.policy", "compact,delete");
        self.cluster.truncate(&self.changelog(), 0, before);
        self.cluster.configure(&self.changelog(), "cleanup.policy", "compact");
    }

    /// Some of what the first run wrote is removed; gives how many marks that had.
    fn lose_head(&self) -> usize {
        let lost = self.cluster.read(&self.changelog())[..self.kind.head].iter().map(marks).sum();
        self.behead(i64::try_from(self.kind.head).expect("a small number"));
        lost
    }

    /// The changelog is made anew with these records, as an election of a broker that has no more leaves it.
    fn remake(&self, records: &[Rec]) {
        self.cluster.delete(&self.changelog());
        self.cluster.create(&self.changelog(), 1, &[("cleanup.policy", "compact")]);
        self.cluster.write(&self.changelog(), records);
    }

    /// The next run, which is given every id again, refuses to start, and nothing has left it.
    #[track_caller]
    fn check_refused(&self, why: &str) {
        self.give(0..SECOND);
        let ran = self.run().exits(3);
        ran.says(&["state_mismatch", why, "tamis reset"]);
        assert_eq!(self.cluster.read(&format!("{}-out", self.name)).len(), SECOND as usize, "nothing left");
    }
}

const OTHER_STATE: &str = "is not the one that was committed";

#[test]
fn a_changelog_that_lost_its_head_is_refused() {
    for (delivery, kind) in ["exactly-once", "at-least-once"].into_iter().flat_map(|d| KINDS.map(|kind| (d, kind))) {
        let job = Job::new("head", kind, delivery);
        let lost = job.lose_head();
        assert!(lost > 0, "marks are lost");
        job.lose_disk();
        job.check_refused(OTHER_STATE);
        // It is the digest that says so: without it what was lost is not known.
        let mut blind = job.folder.command(&["run", "p.yaml"]);
        let ran = Ran(blind.env("TAMIS_TEST_WITHOUT", "digest").output().expect("it runs"));
        ran.exits(0).says(&[&*format!("500 in, {lost} out")]);
    }
}

#[test]
fn a_checkpoint_has_what_the_head_of_a_changelog_lost_as_long_as_that_begins_before_it() {
    let job = Job::new("head-covered", ONE_BY_ONE, "exactly-once");
    let end = job.cluster.ends(&job.changelog(), true)[0];
    // The checkpoint of the first run is good for the second's part of the changelog.
    job.keep("state-of-the-first", "state");
    job.lose_head();
    job.give(0..SECOND + 10);
    job.run().exits(0).says(&["510 in, 10 out", "a checkpoint"]);
    // It is not when some of that is gone.
    let job = Job::new("head-behind", ONE_BY_ONE, "exactly-once");
    job.keep("state-of-the-first", "state");
    job.behead(end - 50);
    job.check_refused(OTHER_STATE);
}

/// How many marks a record of a changelog has.
fn marks(record: &Rec) -> usize {
    match (record.key.as_ref().map(|key| key[0]), &record.value) {
        (Some(1), Some(_)) => 1,
        (Some(4), Some(sheaf)) => sheaf.len() / 34,
        _ => 0,
    }
}

/// Every record of the changelog of a job, and how many of them the first run wrote.
fn records(job: &Job) -> (Vec<Rec>, usize) {
    let whole = job.cluster.read(&job.changelog());
    let is_marker = |record: &Rec| record.key.as_deref() == Some(b"\0txn");
    let state = |records: &[Rec]| records.iter().map(marks).sum::<usize>();
    let at = (0..whole.len()).find(|&at| is_marker(&whole[at]) && state(&whole[..at]) == FIRST as usize);
    let first = at.expect("a marker behind the first run") + 1;
    (whole, first)
}

#[test]
fn a_changelog_that_lost_its_tail_is_refused_until_it_is_put_back() {
    for kind in KINDS {
        let job = Job::new("tail", kind, "exactly-once");
        let (whole, first) = records(&job);
        // In the midst of a commit, which a checkpoint from before it does not help against.
        job.keep("state-of-the-first", "state");
        job.remake(&whole[..first + kind.midst]);
        job.check_refused("the changelog");
        job.lose_disk();
        // Everything.
        job.remake(&[]);
        job.check_refused("has no state");
        job.remake(&whole);
        job.run().exits(0).says(&["1000 in, 0 out"]);
    }
}

#[test]
fn a_changelog_that_lost_its_tail_is_refused_at_least_once_too() {
    for kind in KINDS {
        let job = Job::new("tail-alo", kind, "at-least-once");
        let (whole, first) = records(&job);
        job.lose_disk();
        // Behind the marker of a commit: nothing is torn.
        job.remake(&whole[..first]);
        job.check_refused("the changelog");
        job.remake(&[]);
        job.check_refused("has no state");
        job.remake(&whole);
        job.run().exits(0).says(&["1000 in, 0 out"]);
    }
}
