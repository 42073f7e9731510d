//! Commits that did land while their answer did not: the end of a transaction reaches the broker, which does what it asks,
//! and nobody hears of it. Kafka is asked what became of it; nothing leaves twice and nothing is lost.

use std::time::Duration;

use tamis_tests::kafka::proxy::{Fault, Planned, api};
use tamis_tests::kafka::topics::{Rec, wait_until};
use tamis_tests::program::Folder;

use super::faults::{Expected, Job, Process, input, run};

/// What the log says when a producer is not believed any more.
const ANEW: &str = "the producer is made anew";

/// A run without an end that has committed once, and one more commit of it that is without an answer.
struct Landed {
    job: Job,
    child: Process,
    expected: Expected,
    lost: Planned,
}

impl Landed {
    /// `times`: so many answers are lost, one after the other. The commit is of one partition alone, or of `both`.
    fn new(fault: Fault, times: u64, both: bool) -> Landed {
        let cluster = tamis_tests::kafka::broker::behind_proxy();
        let (source, mut expected) = input(cluster, 20);
        let job = Job::new(&source, "");
        // What is given right behind a commit, to both partitions, is in one transaction then.
        let slow = job.folder.read("p.yaml").replace("commit: 5ms", "commit: 3s");
        if both {
            job.folder.write("p.yaml", slow);
        }
        let log = std::fs::File::create(job.folder.path("log")).expect("a file");
        let mut command = job.folder.command(&["-v", "run", "p.yaml"]);
        let child = Process(command.stderr(log).spawn().expect("tamis starts"));
        let landed = |expected: &Expected| {
            let all = expected.values().map(Vec::len).sum::<usize>();
            wait_until("it is committed", || job.cluster.read_as(&job.sink, "read_committed").len() >= all);
        };
        landed(&expected);
        let lost = job.proxy().plan_many(&job.name, api::END_TXN, 1, times, fault);
        give(&job, &mut expected, (1_000..1_020).step_by(if both { 1 } else { 2 }));
        assert!(lost.wait(Duration::from_secs(60)), "a commit comes");
        landed(&expected);
        Landed { job, child, expected, lost }
    }

    /// Waits until the log says something.
    fn hears(&self, text: &str) {
        wait_until(text, || self.job.folder.read("log").contains(text));
    }

    /// It goes on, each record left once, and the log says how it was resolved.
    #[track_caller]
    fn check(mut self, says: &[&str]) {
        drop(self.lost);
        // Some that were there before, which its state must know, and new ones.
        give(&self.job, &mut self.expected, 1_010..1_030);
        let all = self.expected.values().map(Vec::len).sum::<usize>();
        let left = || self.job.cluster.read_as(&self.job.sink, "read_committed").len();
        wait_until("it goes on", || left() >= all);
        std::thread::sleep(Duration::from_millis(300));
        self.child.kill();
        let said = self.job.folder.read("log");
        wait_until("its positions are committed", || self.job.wrong(&self.expected).is_none());
        for part in says {
            assert!(said.contains(part), "`{part}` is not in:\n{said}");
        }
    }
}

/// Gives records with these ids; those that are new should leave.
fn give(job: &Job, expected: &mut Expected, ids: impl Iterator<Item = u32>) {
    let mut records = Vec::new();
    for id in ids {
        // The keys of the partitions, as `input` has them.
        let (key, partition) = if id % 2 == 0 { ("foobar", 0) } else { ("abc", 1) };
        let value = format!("{{\"id\":{id},\"n\":{id}}}");
        records.push(Rec::new(key, &value).at(partition));
        let known = expected.entry(partition).or_default();
        if !known.contains(&value) {
            known.push(value);
        }
    }
    job.cluster.write(&job.source, &records);
}

#[test]
fn a_commit_whose_answer_is_lost_with_its_connection_is_taken_for_done() {
    Landed::new(Fault::CutAfter, 1, false).check(&[ANEW]);
}

#[test]
fn a_commit_whose_answer_does_not_come_in_time_is_taken_for_done() {
    Landed::new(Fault::DropReply, 1, false).check(&[ANEW]);
}

#[test]
fn a_commit_of_which_no_answer_ever_comes_is_taken_for_done_when_its_token_is_found() {
    let landed = Landed::new(Fault::DropReply, 1_000, true);
    // The client asks again and again, and the program waits, until others wait for it: then it gives the producer up, and
    // asks for its positions. The token beside them is that of the commit.
    let job = &landed.job;
    let folder = Folder::new(&format!("{}-two", job.name));
    let client = format!("client.id: {}", job.name);
    folder.write("p.yaml", job.folder.read("p.yaml").replace(&client, &format!("client.id: two-{}", job.name)));
    let _two = Process(folder.start(&["run", "p.yaml", "-q"]));
    landed.hears("Commit takes too long, and the group waits");
    landed.hears("\"last_commit\":\"Durable\"");
    landed.check(&[ANEW]);
}

#[test]
fn a_process_that_dies_behind_a_commit_without_an_answer_has_committed() {
    for fault in [Fault::DropReply, Fault::CutAfter] {
        let Landed { job, mut child, mut expected, lost } = Landed::new(fault, 1_000, false);
        child.kill();
        drop(lost);
        give(&job, &mut expected, 1_010..1_030);
        let file = job.folder.read("p.yaml").replace("\n\nstages", "\n    until: end\nstages");
        job.folder.write("p.yaml", file);
        run(&job, None).unwrap();
        assert_eq!(job.wrong(&expected), None);
    }
}
