//! The judgement: what should be in one partition of the output, and how what is there differs from it.

use std::collections::HashMap;

/// Key and value of a record.
pub type Pair = (Vec<u8>, Vec<u8>);

/// How output differs from what was promised; all zero if it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Records read.
    pub inputs: u64,
    /// Different keys among them.
    pub unique: u64,
    /// Records found.
    pub outputs: u64,
    /// Keys that are nowhere in the output.
    pub missing: u64,
    /// Keys of the output that were never in the input.
    pub foreign: u64,
    /// Records whose key had been written before.
    pub duplicates: u64,
    /// Records that are not, byte for byte, the first of their key.
    pub changed: u64,
    /// Records that come before one that should come before them.
    pub out_of_order: u64,
}

impl Verdict {
    /// Whether everything is as promised.
    pub fn holds(&self) -> bool {
        self.missing + self.foreign + self.duplicates + self.changed + self.out_of_order == 0
    }

    /// Both together.
    pub fn add(&mut self, other: &Verdict) {
        self.inputs += other.inputs;
        self.unique += other.unique;
        self.outputs += other.outputs;
        self.missing += other.missing;
        self.foreign += other.foreign;
        self.duplicates += other.duplicates;
        self.changed += other.changed;
        self.out_of_order += other.out_of_order;
    }
}

/// Judges one partition: both sides in the order of their offsets.
pub fn judge(input: &[Pair], output: &[Pair]) -> Verdict {
    // Key -> its place among the first ones, its value, whether it was found.
    let mut expected: HashMap<&[u8], (u64, &[u8], bool)> = HashMap::new();
    for (key, value) in input {
        let next = expected.len() as u64;
        expected.entry(key).or_insert((next, value, false));
    }
    let mut verdict = Verdict {
        inputs: input.len() as u64,
        unique: expected.len() as u64,
        outputs: output.len() as u64,
        ..Verdict::default()
    };
    let mut latest = None;
    for (key, value) in output {
        let Some((place, first, found)) = expected.get_mut(key.as_slice()) else {
            verdict.foreign += 1;
            continue;
        };
        if std::mem::replace(found, true) {
            verdict.duplicates += 1;
            continue;
        }
        verdict.changed += u64::from(value.as_slice() != *first);
        verdict.out_of_order += u64::from(latest.is_some_and(|latest| latest > *place));
        latest = latest.max(Some(*place));
    }
    verdict.missing = expected.values().filter(|(_, _, found)| !found).count() as u64;
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<Pair> {
        text.split_whitespace().map(|word| (word.as_bytes()[..1].to_vec(), word.as_bytes().to_vec())).collect()
    }

    #[track_caller]
    fn check(input: &str, output: &str, expected: Verdict) {
        let (input, output) = (pairs(input), pairs(output));
        let found = judge(&input, &output);
        let counts = Verdict { inputs: found.inputs, unique: found.unique, outputs: found.outputs, ..expected };
        assert_eq!(found, counts);
        assert_eq!(found.holds(), expected == Verdict::default());
        assert_eq!((found.inputs, found.outputs), (input.len() as u64, output.len() as u64));
    }

    #[test]
    fn the_first_of_each_key_in_its_order_is_as_promised() {
        check("a1 b1 a2 c1 b2", "a1 b1 c1", Verdict::default());
        check("", "", Verdict::default());
    }

    #[test]
    fn whatever_is_wrong_is_found() {
        check("a1 b1 a2", "a1", Verdict { missing: 1, ..Verdict::default() });
        check("a1 b1 a2", "a1 b1 a2", Verdict { duplicates: 1, ..Verdict::default() });
        check("a1 b1 a2", "b1 a1", Verdict { out_of_order: 1, ..Verdict::default() });
        check("a1 b1 a2", "a2 b1", Verdict { changed: 1, ..Verdict::default() });
        check("a1 b1 a2", "a1 b1 x1", Verdict { foreign: 1, ..Verdict::default() });
    }
}
