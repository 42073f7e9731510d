//! The source that a script stands for: its inputs; and chance, always the same.

use std::collections::BTreeSet;

use super::record::{self, Record};
use super::{Step, Test};
use crate::config::node::{Node, NodeKind};

/// The inputs of a script, sorted: one per topic and partition that occurs; a partition without records is one of the
/// topic `test`.
pub fn inputs(test: &Test) -> Vec<(String, i32)> {
    let mut found = BTreeSet::new();
    let mut named = BTreeSet::new();
    let mut add = |record: &Record| {
        found.insert((record.topic.clone().unwrap_or_else(|| "test".into()), record.p.unwrap_or(0)));
    };
    for said in &test.input {
        match &said.step {
            Step::Record(record) => add(record),
            Step::Series(series) => {
                let last = if varies(&series.record) { series.to } else { series.from };
                (series.from..=last).filter_map(|i| indexed(&series.record, i)).for_each(|record| add(&record));
            }
            Step::End(Some(p)) | Step::Idle(p) | Step::Block(p) | Step::Unblock(p) => drop(named.insert(*p)),
            _ => {}
        }
    }
    let greatest = found.iter().map(|(_, p)| *p).chain(named).max().unwrap_or(0);
    let partitions = test.partitions.map_or(greatest + 1, |n| i32::try_from(n).unwrap_or(i32::MAX));
    for p in 0..partitions {
        if !found.iter().any(|(_, of)| *of == p) {
            found.insert(("test".into(), p));
        }
    }
    found.into_iter().collect()
}

/// Whether the position of a series depends on its integer.
fn varies(record: &Node) -> bool {
    let NodeKind::Map(members) = &*record.kind else { return false };
    members.iter().any(|(name, _, node)| {
        ["p", "topic"].contains(&name.as_str())
            && matches!(&*node.kind, NodeKind::Text { text, .. } if text.contains("$i"))
    })
}

/// The record of a series for one integer.
pub fn indexed(record: &Node, i: i64) -> Option<Record> {
    record::record(&record::with_index(record, i)).ok()
}

/// Numbers from a seed, the same for ever.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Seeded by a text.
    pub fn of(text: &str) -> Dice {
        Dice(text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)))
    }

    /// The next number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}
