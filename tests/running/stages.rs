//! Stages that go out of a file and come back, from one run to the next: what they knew goes with the first commit of a
//! run that has not got them, and what the others count stays with them.

use std::io::Write;
use std::sync::Arc;

use serde_json::Value;
use tamis::chain::Chain;
use tamis::format::{Change, StoredMark};
use tamis::plan::{Conditions, plan};
use tamis::task::{Sealed, Task};
use tamis_tests::program::{Folder, Ran};

use crate::faults::library;

const BY_ID: &str = "{ uses: dedup, id: d, key: value.id, state: { unbounded: true } }";
const BY_NUMBER: &str = "{ uses: dedup, id: e, key: value.n, state: { unbounded: true } }";
const ALL: &str = "{ uses: filter, id: f, with: { keep: 'value.n >= 0' } }";

struct Job {
    folder: Folder,
    /// Records so far: each has a number of its own.
    given: u32,
}

impl Job {
    fn new(name: &str) -> Job {
        Job { folder: Folder::new(name), given: 0 }
    }

    /// Gives records with these ids and runs with these stages to their end.
    fn run(&mut self, stages: &[&str], ids: impl IntoIterator<Item = u32>) -> Ran {
        let mut input = std::fs::File::options().create(true).append(true).open(self.folder.path("in")).unwrap();
        for id in ids {
            writeln!(input, "{{\"id\":{id},\"n\":{}}}", self.given).unwrap();
            self.given += 1;
        }
        let stages: String = stages.iter().map(|stage| format!("  - {stage}\n")).collect();
        let file = format!("version: 1\nname: p\nsource: {{ file: in }}\nstages:\n{stages}sink: {{ file: out }}\n");
        self.folder.write("p.yaml", file);
        self.folder.run(&["--json", "run", "p.yaml"])
    }

    /// The same; so many records leave.
    #[track_caller]
    fn check(&mut self, stages: &[&str], ids: impl IntoIterator<Item = u32>, out: u64) -> Ran {
        let ran = self.run(stages, ids).exits(0);
        assert_eq!(number(&ran, "records_out"), Some(out));
        ran
    }
}

/// A number of the summary.
fn number(ran: &Ran, path: &str) -> Option<u64> {
    let said: Value = serde_json::from_str(&ran.out()).unwrap_or_else(|error| panic!("{error}: {}", ran.out()));
    said.pointer(&format!("/result/pipelines/0/{path}")).and_then(Value::as_u64)
}

#[test]
fn a_stage_that_comes_back_knows_nothing_from_before() {
    for (name, others, without) in [("back", &[BY_NUMBER][..], BY_NUMBER), ("back-alone", &[], ALL)] {
        let mut job = Job::new(name);
        let with = [&[BY_ID], others].concat();
        job.check(&with, 0..10, 10);
        let ran = job.check(&[without], (0..3).chain(10..15), 8);
        ran.says(&["there is no stage `d` any more", "10 entries"]);
        job.check(&with, 0..15, 15);
        job.check(&with, 0..20, 5);
    }
}

#[test]
fn a_stage_that_comes_back_may_have_another_key_only_when_its_state_is_gone() {
    let mut job = Job::new("back-key");
    let other = BY_ID.replace("key: value.id", "key: [value.id, value.n]");
    job.check(&[BY_ID], 0..10, 10);
    let ran = job.run(&[&other], 0..10);
    assert_ne!(ran.code(), 0);
    assert!(ran.out().contains("D-KEY-CHANGED") || ran.err().contains("D-KEY-CHANGED"), "{}", ran.out());
    job.check(&[ALL], [], 10);
    job.check(&[&other], 0..10, 10);
}

#[test]
fn what_a_stage_counts_stays_with_it_when_another_is_put_before_it() {
    let mut job = Job::new("counted");
    let mut count = |stages: &[&str], ids: std::ops::Range<u32>, out: u64| {
        let ran = job.check(stages, ids, out);
        let of = |stage: &str, name: &str| number(&ran, &format!("stages/{stage}/{name}"));
        let duplicates = number(&ran, "duplicates");
        (of("d", "records_in"), of("d", "duplicates_dropped"), of("e", "records_in"), duplicates)
    };
    assert_eq!(count(&[BY_ID], 0..10, 10), (Some(10), Some(0), None, Some(0)));
    assert_eq!(count(&[BY_ID], 0..10, 0), (Some(20), Some(10), None, Some(10)));
    assert_eq!(count(&[BY_NUMBER, BY_ID], 0..5, 0), (Some(25), Some(15), Some(5), Some(5)));
    // One that comes back begins to count anew, as it begins to know.
    assert_eq!(count(&[BY_NUMBER], 0..5, 5), (None, None, Some(10), Some(0)));
    assert_eq!(count(&[BY_ID, BY_NUMBER], 0..5, 5), (Some(5), Some(0), Some(15), Some(0)));
}

#[test]
fn a_commit_that_fails_leaves_the_state_of_a_stage_that_is_gone_to_the_next() {
    let text = format!("version: 1\nname: p\nsource: {{ file: in }}\nstages:\n  - {BY_ID}\nsink: {{ file: out }}\n");
    let read = tamis::config::read(&text, None, &|_| None).map_err(|(findings, _)| findings).unwrap();
    let plan = Arc::new(plan(&read, library(), &Conditions::of(&read, Some(1))).unwrap());
    let mark = |hash| (hash, Some(StoredMark { expires: i64::MAX, ..StoredMark::default() }));
    let known = |stage: &str| {
        let changes = vec![Change::Marks { space: 0, marks: vec![mark(1), mark(2)] }];
        Sealed { stage: stage.to_owned(), identity: "{}".to_owned(), changes, ..Sealed::default() }
    };
    let mut task = Task::new(&Chain::open(&plan, true), Vec::new(), 1, 0);
    task.apply(&plan, known("d"));
    task.apply(&plan, known("gone"));
    let (digest, marker) = (task.digest(), task.marker().clone());
    assert_eq!(task.parts_with(), [("gone", 2)]);
    let taken_away = |task: &mut Task| {
        let dropped: usize = task.dropped(&plan).iter().map(|sealed| sealed.changes.len()).sum();
        let sealed = task.seal_pending(&plan).into_iter().find(|sealed| sealed.stage == "gone");
        (dropped, sealed.map(|sealed| sealed.changes.contains(&Change::Drop { space: 0 })))
    };
    for _ in 0..2 {
        // Both marks, and the drop of their space behind them.
        assert_eq!(taken_away(&mut task), (2, Some(true)));
        task.revert(marker.clone(), 0);
    }
    // Others commit, and this task has no part in it.
    task.settle();
    assert_eq!(taken_away(&mut task), (2, Some(true)));
    task.settle();
    assert_eq!(taken_away(&mut task), (0, None));
    assert_eq!((task.digest(), task.parts_with()), (digest, Vec::new()), "the other stage has its state");
}
