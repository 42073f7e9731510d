#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

use crate::keyed::Change;
use crate::time::Clock;

fn marker(arrivals: u64) -> Marker {
    Marker {
        inputs: Vec::new(),
        salt: 1,
        activity: Vec::new(),
        event: Clock::new(0, 0),
        ingestion: Clock::new(0, 0),
        positions: Vec::new(),
        arrivals,
        invalid_time: 0,
        stages: std::sync::Arc::default(),
        counters: Vec::new(),
    }
}

fn sealed(space: i64) -> Vec<Sealed> {
    vec![Sealed {
        stage: "d".into(),
        identity: "{}".into(),
        changes: vec![Change::Drop { space }],
        ..Sealed::default()
    }]
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tamis-journal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    fn open(&self) -> Result<(Journal, Option<Last>), Trouble> {
        Journal::open(StateDir::open(&self.0).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn sinks(length: u64) -> Vec<SinkPosition> {
    vec![SinkPosition { path: "out".into(), length }]
}

fn commit(journal: &mut Journal, n: u64) {
    journal.commit(Position::default(), sinks(n), &[(&marker(n), sealed(n as i64))], false).unwrap();
}

/// A journal with a checkpoint and two commits after it.
fn journal(folder: &Folder) {
    let (mut journal, last) = folder.open().unwrap();
    assert!(last.is_none());
    journal.begin(Position::default(), sinks(0), &[(&marker(0), sealed(0))], false).unwrap();
    commit(&mut journal, 1);
    commit(&mut journal, 2);
}

/// What a reopened journal says: number of the last commit, length of the sink, spaces of the changes.
fn found(folder: &Folder) -> (u64, u64, Vec<i64>) {
    let (_, last) = folder.open().unwrap();
    let last = last.unwrap();
    let spaces = last.tasks[0].1.iter().map(|sealed| match sealed.changes[0] {
        Change::Drop { space } => space,
        _ => panic!(),
    });
    (last.commit.number, last.commit.sinks[0].length, spaces.collect())
}

/// A copy of one piece, after the commit of this number of arrivals.
fn copy(journal: &mut Journal, n: u64, space: i64) {
    journal.begin_copy();
    piece(journal, n, space);
    journal.end_copy().unwrap();
}

fn piece(journal: &mut Journal, n: u64, space: i64) {
    let last = (Position::default(), sinks(n), false);
    journal.copy(last, &[&marker(n)], 0, sealed(space).remove(0));
}

#[test]
fn the_next_segment_is_written_in_pieces_between_commits_and_counts_when_it_is_complete() {
    let folder = Folder::new("pieces");
    journal(&folder);
    let (mut journal, _) = folder.open().unwrap();
    journal.length = SMALL + 1;
    journal.base = 1;
    journal.begin_copy();
    piece(&mut journal, 2, 70);
    journal.length = journal.file.as_ref().unwrap().metadata().unwrap().len();
    commit(&mut journal, 3);
    piece(&mut journal, 3, 71);
    journal.sync_copy();
    assert_eq!(segments(&folder.0).unwrap(), [1]);
    // A kill here leaves a part of it, which is none.
    std::fs::copy(folder.0.join("journal-1"), folder.0.join("as-it-was")).unwrap();
    commit(&mut journal, 4);
    journal.end_copy().unwrap();
    commit(&mut journal, 5);
    drop(journal);
    assert_eq!(found(&folder), (6, 5, vec![70, 3, 71, 4, 5]));
    let (journal, _) = folder.open().unwrap();
    assert!(journal.base > 0 && journal.base < journal.length, "{} {}", journal.base, journal.length);
    drop(journal);
    std::fs::remove_file(folder.0.join("journal-2")).unwrap();
    assert_eq!(found(&folder), (5, 4, vec![0, 1, 2, 3, 4]));
    std::fs::rename(folder.0.join("as-it-was"), folder.0.join("journal-1")).unwrap();
    assert_eq!(found(&folder), (4, 3, vec![0, 1, 2, 3]));
}

#[test]
fn a_journal_tells_the_last_commit_and_the_changes_in_order() {
    let folder = Folder::new("order");
    journal(&folder);
    assert_eq!(found(&folder), (3, 2, vec![0, 1, 2]));
    let (mut journal, _) = folder.open().unwrap();
    commit(&mut journal, 5);
    drop(journal);
    assert_eq!(found(&folder), (4, 5, vec![0, 1, 2, 5]));
}

#[test]
fn wherever_the_last_commit_was_cut_off_the_one_before_holds() {
    let folder = Folder::new("cut");
    journal(&folder);
    let path = folder.0.join("journal-1");
    let whole = std::fs::read(&path).unwrap();
    let second = follow(&whole[..whole.len() - 1], Start::default()).unwrap().length;
    for end in second as usize..whole.len() {
        std::fs::write(&path, &whole[..end]).unwrap();
        assert_eq!(found(&folder), (2, 1, vec![0, 1]), "cut at {end}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), second);
        // The length was on the disk, the bytes were not.
        let mut zeros = whole[..end].to_vec();
        zeros.resize(whole.len(), 0);
        if zeros == whole {
            continue;
        }
        std::fs::write(&path, &zeros).unwrap();
        assert_eq!(found(&folder).0, 2, "zeros from {end}");
    }
}

#[test]
fn damage_before_the_last_commit_is_not_passed_over() {
    let folder = Folder::new("damage");
    journal(&folder);
    let path = folder.0.join("journal-1");
    let whole = std::fs::read(&path).unwrap();
    for at in [format::HEADER + 1, whole.len() / 2] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let trouble = folder.open().unwrap_err();
        assert!(trouble.what.contains("damaged"), "{}", trouble.what);
        assert!(trouble.way_out.contains("remove"), "{}", trouble.way_out);
    }
}

#[test]
fn the_segment_before_the_last_one_stays_as_a_reserve() {
    let folder = Folder::new("segments");
    journal(&folder);
    let (mut journal, _) = folder.open().unwrap();
    journal.begin(Position::default(), sinks(9), &[(&marker(9), sealed(9))], true).unwrap();
    assert_eq!(segments(&folder.0).unwrap().len(), 2);
    journal.begin(Position::default(), sinks(10), &[(&marker(9), sealed(10))], true).unwrap();
    let mut kept = segments(&folder.0).unwrap();
    kept.sort_unstable();
    assert_eq!(kept, [2, 3]);
    drop(journal);
    assert_eq!(found(&folder), (5, 10, vec![10]));
}

#[test]
fn a_half_written_segment_is_none() {
    let folder = Folder::new("half");
    journal(&folder);
    std::fs::write(folder.0.join("journal-2.new"), b"TMIS").unwrap();
    assert_eq!(found(&folder).0, 3);
}

#[test]
fn a_checkpoint_spares_reading_what_came_before_it_and_can_be_done_without() {
    let folder = Folder::new("checkpoint");
    journal(&folder);
    let (mut journal, _) = folder.open().unwrap();
    // What a whole state would be: the checkpoint says 7 where the journal would say 0, 1, 2.
    copy(&mut journal, 2, 7);
    commit(&mut journal, 3);
    drop(journal);
    assert_eq!(found(&folder), (4, 3, vec![7, 2, 3]));
    std::fs::remove_dir_all(folder.0.join("checkpoint")).unwrap();
    assert_eq!(found(&folder), (4, 3, vec![0, 1, 2, 3]));
}

#[test]
fn a_checkpoint_of_another_journal_is_none() {
    let folder = Folder::new("foreign");
    journal(&folder);
    let (mut journal, _) = folder.open().unwrap();
    copy(&mut journal, 2, 7);
    drop(journal);
    std::fs::remove_file(folder.0.join("journal-1")).unwrap();
    super::tests::journal(&folder);
    assert_eq!(found(&folder), (3, 2, vec![0, 1, 2]));
}
