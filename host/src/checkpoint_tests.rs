//! A checkpoint is right or absent, whatever was done to its files.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use std::fs;

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("tamis-checkpoint-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The parts of round n: sizes from nothing to more than one value of the store.
fn parts(n: u64) -> Vec<Vec<u8>> {
    let part = |i: u64| {
        let mut random = n * 1000 + i + 1;
        let byte = move |_| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 56) as u8
        };
        (0..(i * 7919 + n) % 70_000).map(byte).collect()
    };
    (0..5 + n).map(part).collect()
}

fn token(n: u64) -> Vec<u8> {
    format!("round {n}").into_bytes()
}

#[test]
fn a_round_that_ended_is_read_and_one_that_did_not_is_not() {
    let dir = Dir::new("rounds");
    let store = dir.0.join("store");
    let mut checkpoint = Checkpoint::open(&store, 7);
    assert_eq!(checkpoint.read(), None);
    for n in 1..4 {
        assert!(checkpoint.write(&token(n), parts(n)));
        assert_eq!(checkpoint.read(), Some((token(n), parts(n))));
    }
    checkpoint.begin(&token(4));
    checkpoint.put(parts(4)[3].clone());
    drop(checkpoint);
    let mut checkpoint = Checkpoint::open(&store, 7);
    assert_eq!(checkpoint.read(), Some((token(3), parts(3))));
    assert!(checkpoint.write(&token(5), parts(5)));
    assert_eq!(checkpoint.read(), Some((token(5), parts(5))));
    assert!(checkpoint.write(&token(6), Vec::new()));
    assert_eq!(checkpoint.read(), Some((token(6), Vec::new())));
    assert_eq!(checkpoint.troubles(), [""; 0]);
}

#[test]
fn the_checkpoint_of_another_run_is_none() {
    let dir = Dir::new("foreign");
    let store = dir.0.join("store");
    assert!(Checkpoint::open(&store, 7).write(&token(1), parts(1)));
    let mut other = Checkpoint::open(&store, 8);
    assert_eq!(other.read(), None);
    assert!(other.troubles()[0].contains("another run"), "{:?}", other.troubles());
    assert!(other.write(&token(2), parts(2)));
    assert_eq!(other.read(), Some((token(2), parts(2))));
}

#[test]
fn without_a_directory_there_are_no_checkpoints_and_no_fault() {
    let dir = Dir::new("nowhere");
    fs::write(dir.0.join("file"), b"not a directory").unwrap();
    let mut checkpoint = Checkpoint::open(&dir.0.join("file/store"), 7);
    assert!(!checkpoint.write(&token(1), parts(1)));
    assert_eq!(checkpoint.read(), None);
    assert!(!checkpoint.troubles().is_empty());
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

fn files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else if fs::metadata(&path).unwrap().len() > 0 {
            into.push(path);
        }
    }
}

#[test]
fn a_damaged_store_never_gives_a_wrong_state() {
    let dir = Dir::new("damage");
    // Two stores, so that a directory may hold files of another one, of the same run.
    for (name, rounds) in [("good", 1..6), ("other", 6..9)] {
        let mut checkpoint = Checkpoint::open(&dir.0.join(name), 7);
        for n in rounds {
            assert!(checkpoint.write(&token(n), parts(n)));
        }
    }
    let (mut right, mut random) = (0, 42u64);
    let mut below = |n: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % n.max(1)
    };
    for run in 0..200 {
        let store = dir.0.join("store");
        let _ = fs::remove_dir_all(&store);
        copy(&dir.0.join("good"), &store);
        let mut all = Vec::new();
        files(&store, &mut all);
        all.sort();
        let path = all[below(all.len() as u64) as usize].clone();
        let mut bytes = fs::read(&path).unwrap();
        let len = bytes.len() as u64;
        match run % 6 {
            // The tail cut off.
            0 => bytes.truncate((len - below(len / 4 + 1)) as usize),
            // A hole of zeros.
            1 => {
                let from = below(len);
                let to = (from + 1 + below(8192)).min(len);
                bytes[from as usize..to as usize].fill(0);
            }
            // Nothing left.
            2 => bytes.clear(),
            // The beginning empty.
            3 => bytes[..(len.min(1 + below(4096))) as usize].fill(0),
            // A few bits elsewhere.
            4 => (0..8).for_each(|_| bytes[below(len) as usize] ^= 1 << below(8)),
            // A file of another store.
            _ => {
                let other = dir.0.join("other").join(path.strip_prefix(&store).unwrap());
                bytes = fs::read(other).unwrap_or_default();
            }
        }
        fs::write(&path, bytes).unwrap();
        let mut checkpoint = Checkpoint::with(&store, 7, Duration::from_secs(5));
        if let Some((token_read, parts_read)) = checkpoint.read() {
            let n = (1..9).find(|n| token(*n) == token_read).expect("a token that was written");
            assert_eq!(parts_read, parts(n), "run {run}");
            right += 1;
        }
        // Whatever it was, the next round works.
        assert!(checkpoint.write(&token(5), parts(5)), "run {run}: {:?}", checkpoint.troubles());
        assert_eq!(checkpoint.read(), Some((token(5), parts(5))), "run {run}");
    }
    assert!(right > 0 && right < 200, "{right} of 200 were right");
}
