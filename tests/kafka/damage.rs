//! Checkpoints on disk that are damaged between two runs, in every way that a disk or a person can: never does a run
//! start with state that is not the committed one. Nothing here knows how checkpoints are laid out, only where.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tamis::script::source::Dice;
use tamis_tests::kafka::broker::{Cluster, shared};
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::Folder;

use super::many;

/// How many runs begin with a damaged checkpoint, for nights.
const RUNS: &str = "TAMIS_TEST_DAMAGE";
/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// A page of a disk.
const PAGE: u64 = 4096;
/// Records of the first run, so that there is something to damage; new ones of each run after it, and repeated ones.
const FIRST: u32 = 2_000;
const NEW: u32 = 100;
const AGAIN: u32 = 60;

/// What happens to a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The last bytes of a file are cut off.
    TailCut,
    /// A page in the middle of it is zeros.
    Hole,
    /// Half of it is gone.
    Truncated,
    /// Its first page is zeros.
    EmptyHead,
    /// The whole checkpoint is that of another pipeline, or of an earlier run.
    Foreign,
}

const WAYS: [Way; 5] = [Way::TailCut, Way::Hole, Way::Truncated, Way::EmptyHead, Way::Foreign];

/// A pipeline that runs again and again.
struct Job {
    cluster: &'static Cluster,
    folder: Folder,
    source: String,
    sink: String,
    /// Ids below it were given.
    given: u32,
    /// Runs that had a checkpoint and began without it.
    refused: u64,
}

impl Job {
    fn new() -> Job {
        let cluster = shared();
        let name = unique("store");
        let (source, sink) = (format!("{name}-in"), format!("{name}-out"));
        cluster.create(&source, 1, &[]);
        cluster.create(&sink, 1, &[]);
        let folder = Folder::new(&name);
        let brokers = cluster.brokers();
        folder.write(
            "p.yaml",
            format!(
                "version: 1\nname: {name}\n\
                 source: {{ kafka: {{ topics: {source}, brokers: '{brokers}', until: end }} }}\n\
                 stages:\n  - {{ uses: dedup, id: d, key: value.id, scope: partition, state: {{ unbounded: true }} }}\n\
                 sink: {{ kafka: {{ topic: {sink} }} }}\n\
                 state: {{ changelog: {{ create: true, replication: 1 }} }}\n\
                 run: {{ commit: 100ms, http: none }}\n"
            ),
        );
        Job { cluster, folder, source, sink, given: 0, refused: 0 }
    }

    /// Gives new records and some that were there, of all times, and runs: only the new ones may leave.
    fn run(&mut self, new: u32, again: u32, dice: &mut Dice) -> Result<(), String> {
        let mut ids: Vec<u32> = (self.given..self.given + new).collect();
        let old: Vec<u32> = (0..again).map(|_| dice.below(u64::from(self.given).max(1)) as u32).collect();
        old.into_iter().for_each(|id| ids.insert(dice.below(ids.len() as u64 + 1) as usize, id));
        self.given += new;
        let records: Vec<Rec> = ids.iter().map(|id| Rec::new("k", &format!("{{\"id\":{id}}}"))).collect();
        self.cluster.write(&self.source, &records);
        let ran = self.folder.run_within(PATIENCE, &["-v", "run", "p.yaml"]);
        self.refused += u64::from(ran.err().contains("\"from\":\"nothing\""));
        let expected = format!("{} in, {new} out", new + again);
        match ran.code() == 0 && ran.err().contains(&expected) {
            true => Ok(()),
            false => Err(format!("not `{expected}`, but {}: {}", ran.code(), ran.err())),
        }
    }

    /// Runs until there is a checkpoint that is used, where nobody damages it: a run that stops does not wait for it for
    /// long.
    fn used(&mut self, dice: &mut Dice) -> Result<PathBuf, String> {
        let before = self.refused;
        for _ in 0..5 {
            self.refused = 0;
            self.run(NEW, AGAIN, dice)?;
            if let (0, [checkpoint]) = (self.refused, self.checkpoints().as_slice()) {
                self.refused = before;
                return Ok(checkpoint.clone());
            }
        }
        Err("a checkpoint that nobody damaged is not used".to_owned())
    }

    /// Whether every id left once.
    fn check(&self) -> Result<(), String> {
        let mut found: Vec<String> = self.cluster.read(&self.sink).iter().map(Rec::text).collect();
        let mut expected: Vec<String> = (0..self.given).map(|id| format!("{{\"id\":{id}}}")).collect();
        (found.sort(), expected.sort());
        if found == expected { Ok(()) } else { Err(format!("{} records, not {}", found.len(), expected.len())) }
    }

    /// The folders of checkpoints, one for each task.
    fn checkpoints(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.path("state")];
        while let Some(folder) = folders.pop() {
            let inside: Vec<PathBuf> = fs::read_dir(&folder)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.is_dir())
                .collect();
            match folder.ends_with("checkpoints") {
                true => found.extend(inside),
                false => folders.extend(inside),
            }
        }
        found.sort();
        found
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => found.extend(files(&entry)),
            false => found.push(entry),
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let to = to.join(entry.file_name().unwrap());
        match entry.is_dir() {
            true => copy(&entry, &to),
            false => drop(fs::copy(&entry, to).unwrap()),
        }
    }
}

/// Damages one file of a checkpoint that has something in it; `others`: checkpoints to put in its place. Says what it did.
fn damage(way: Way, checkpoint: &Path, others: &[PathBuf], dice: &mut Dice) -> String {
    let mut pick = |count: usize| dice.below(count as u64) as usize;
    if way == Way::Foreign {
        let other = &others[pick(others.len())];
        fs::remove_dir_all(checkpoint).unwrap();
        copy(other, checkpoint);
        return format!("{} in its place", other.display());
    }
    let files: Vec<PathBuf> = files(checkpoint).into_iter().filter(|f| fs::metadata(f).unwrap().len() > 0).collect();
    assert!(!files.is_empty(), "the checkpoint {} is empty", checkpoint.display());
    let file = &files[pick(files.len())];
    // Files are made larger than what is in them: there is nothing to damage behind it.
    let bytes = fs::read(file).unwrap();
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(bytes.len(), |last| last + 1) as u64;
    let mut open = OpenOptions::new().write(true).open(file).unwrap();
    let mut zeros = |from: u64| {
        open.seek(SeekFrom::Start(from)).unwrap();
        open.write_all(&vec![0; PAGE.min(length - from) as usize]).unwrap();
    };
    let at = dice.below(length);
    match way {
        Way::TailCut => open.set_len(length.saturating_sub(1 + at % 64)).unwrap(),
        Way::Hole => zeros(at),
        Way::Truncated => open.set_len(length / 2).unwrap(),
        Way::EmptyHead => zeros(0),
        Way::Foreign => {}
    }
    format!("{way:?} of {} at {at} of {length}", file.display())
}

/// Runs with damage of one way, one after the other; how many of them began without their checkpoint.
fn line(way: Way, number: u64, runs: u64) -> Result<u64, String> {
    let mut dice = Dice::of(&format!("{way:?} {number}"));
    let (mut job, mut other) = (Job::new(), Job::new());
    job.run(FIRST, 0, &mut dice)?;
    let checkpoint = job.used(&mut dice)?;
    let kept = Folder::new(&format!("{}-kept", job.source));
    let mut others = Vec::new();
    if way == Way::Foreign {
        other.run(FIRST + NEW, 0, &mut dice)?;
        others.push(other.used(&mut dice)?);
    }
    for run in 0..runs {
        if !checkpoint.exists() {
            // The last run stopped before it had written another one.
            job.used(&mut dice)?;
        }
        // Now and then a checkpoint is kept, to come back later.
        if way == Way::Foreign && run % 4 == 0 {
            let place = kept.path(&run.to_string());
            copy(&checkpoint, &place);
            others.push(place);
        }
        let done = damage(way, &checkpoint, &others, &mut dice);
        job.run(NEW, AGAIN, &mut dice).map_err(|why| format!("run {run} ({done}): {why}"))?;
    }
    job.check()?;
    Ok(job.refused)
}

#[test]
fn a_checkpoint_that_is_damaged_in_any_way_never_leads_to_a_start_on_wrong_state() {
    let runs = many::number(RUNS, 10);
    // Runs of one line come one after the other; long ones are split.
    let lines = if runs < 50 { 1 } else { 2 };
    let share = runs.div_ceil(WAYS.len() as u64 * lines);
    let all: Vec<(Way, u64)> = (0..lines).flat_map(|line| WAYS.map(|way| (way, line))).collect();
    let count = share * all.len() as u64;
    let refused = AtomicU64::new(0);
    let failed = many::each(all, |(way, n)| {
        let without = line(way, n, share).map_err(|why| format!("{way:?}: {why}"))?;
        refused.fetch_add(without, Ordering::Relaxed);
        Ok(())
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let refused = refused.into_inner();
    assert!(refused > 0, "no damage was met in {count} runs");
    println!("{count} runs with a damaged checkpoint, each with the right state; {refused} began without it");
}
