//! Ways to harm a process, and chance that can be repeated.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Ended at once.
    Kill,
    /// Frozen for a while: what it does next it does too late.
    Freeze,
    /// Ended at once, and its state directory is gone.
    Wipe,
    /// Ended at once, and a file of its state is damaged.
    Damage,
}

/// How often each was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    kills: usize,
    freezes: usize,
    wipes: usize,
    damages: usize,
}

impl Tally {
    /// One more.
    pub fn add(&mut self, harm: Harm) {
        match harm {
            Harm::Kill => self.kills += 1,
            Harm::Freeze => self.freezes += 1,
            Harm::Wipe => self.wipes += 1,
            Harm::Damage => self.damages += 1,
        }
    }

    /// How many were frozen.
    pub fn freezes(&self) -> usize {
        self.freezes
    }

    /// All together.
    pub fn all(&self) -> usize {
        self.kills + self.freezes + self.wipes + self.damages
    }

    /// For the report.
    pub fn count(&self) -> Value {
        json!({
            "all": self.all(), "kill": self.kills, "freeze": self.freezes, "wipe": self.wipes, "damage": self.damages,
        })
    }
}

/// Of ten harms two freeze, one wipes, one damages, six do nothing but kill; in an order of chance.
pub fn plan(count: usize, random: &mut Random) -> Vec<Harm> {
    let ten = |i: usize| match i % 10 {
        0 | 5 => Harm::Freeze,
        2 => Harm::Wipe,
        7 => Harm::Damage,
        _ => Harm::Kill,
    };
    let mut plan: Vec<Harm> = (0..count).map(ten).collect();
    for i in (1..plan.len()).rev() {
        plan.swap(i, random.below(i as u64 + 1) as usize);
    }
    plan
}

/// A number from the last one.
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below a bound; 0 if there is none.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound.max(1)
    }

    /// A number between half of a mean and one and a half of it.
    pub fn around(&mut self, mean: u64) -> u64 {
        mean / 2 + self.below(mean + 1)
    }
}

/// Damages one file below a folder in one of five ways. False: there is none that has anything in it, or nothing to put
/// in its place.
pub fn damage(state: &Path, others: &[PathBuf], random: &mut Random) -> Result<bool> {
    let mut files = files_below(state);
    files.retain(|file| fs::metadata(file).is_ok_and(|file| file.len() > 0));
    files.sort();
    let Some(file) = files.get(random.below(files.len() as u64) as usize) else { return Ok(false) };
    let length = fs::metadata(file)?.len();
    match random.below(5) {
        // The tail is cut.
        0 => OpenOptions::new().write(true).open(file)?.set_len(length.saturating_sub(1 + random.below(64)))?,
        // A hole of one page.
        1 => zeros(file, random.below(length), length)?,
        // Half of it is gone.
        2 => OpenOptions::new().write(true).open(file)?.set_len(length / 2)?,
        // Its head is empty.
        3 => zeros(file, 0, length)?,
        // It is another process's.
        _ => {
            let Some(other) = others.get(random.below(others.len() as u64) as usize) else { return Ok(false) };
            if files_below(other).is_empty() {
                return Ok(false);
            }
            let _ = fs::remove_dir_all(state);
            copy_tree(other, state)?;
        }
    }
    Ok(true)
}

/// Writes zeros over a page, no further than the end.
fn zeros(file: &Path, from: u64, length: u64) -> Result<()> {
    let mut open = OpenOptions::new().write(true).open(file)?;
    open.seek(SeekFrom::Start(from))?;
    open.write_all(&vec![0; 4096.min(length.saturating_sub(from)) as usize])?;
    Ok(())
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

/// Copies what is there; what goes away meanwhile is left out.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    for entry in entries.flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_tree(&from, &to)?;
        } else {
            let _ = fs::copy(from, to);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_its_share_of_every_harm() {
        let mut tally = Tally::default();
        plan(50, &mut Random(1)).into_iter().for_each(|harm| tally.add(harm));
        assert_eq!((tally.kills, tally.freezes, tally.wipes, tally.damages), (30, 10, 5, 5));
        assert_ne!(plan(50, &mut Random(1)), plan(50, &mut Random(2)));
        assert_eq!(plan(50, &mut Random(1)), plan(50, &mut Random(1)));
    }
}
