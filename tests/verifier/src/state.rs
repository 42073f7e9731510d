//! The state that a changelog holds, read again and compared with what was committed: the token beside the position, and
//! the input itself. Of a pipeline that keeps the first record of each key and forgets none the state is one mark a key.
//!
//! What is known of the host here is the layout of its changelog (docs say the same): a key that begins with 0 is a
//! marker, whose value has the token in it; with 1 a mark: length and id of the stage, space (8 bytes), hash (16), and the
//! value version (1), expiry (8), offset of its record (8), input (2), number (8), or nothing, or a single 2, if it was
//! taken away; with 3 a space that was dropped; with 4 a sheaf, many marks of space 0 that never end: length and id of the
//! stage, a number (16), and the value version (1), then for each hash (16), offset (8), input (2), number (8), or nothing
//! if it was taken away with its space; with 5 a space of which nothing counts that stands before.

use std::collections::{BTreeMap, BTreeSet};

use crate::hash::xxh3_128;

/// A record of a changelog: key, and value unless it is a tombstone.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// How the state of one partition differs from what was committed; nothing if it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(pub Vec<String>);

/// A mark: space and hash of its key; with where it is from, for the digest.
type Marks = BTreeMap<(i64, u128), [u8; 18]>;

/// Judges one partition: its changelog in the order of offsets, the committed token
/// (`version;sequence;nonce;watermark;entries;digest`), and the offsets of the first records of each key.
pub fn judge(changelog: &[Change], token: &str, firsts: &BTreeSet<i64>) -> Faults {
    let mut faults = Vec::new();
    let marks = match read(changelog, token) {
        Ok(marks) => marks,
        Err(why) => return Faults(vec![why]),
    };
    let part = |at: usize| token.split(';').nth(at).unwrap_or_default();
    if part(4).parse() != Ok(marks.len()) {
        faults.push(format!("{} marks in the changelog, {} in the token", marks.len(), part(4)));
    }
    let digest = marks.iter().fold(0u128, |sum, (key, mark)| sum.wrapping_add(digest(*key, mark)));
    if u128::from_str_radix(part(5), 16) != Ok(digest) {
        faults.push(format!("the digest of the changelog is {digest:032x}, that of the token {}", part(5)));
    }
    let offset = |mark: &[u8; 18]| mark[8..16].iter().rev().fold(0i64, |n, &byte| n << 8 | i64::from(byte));
    let known: BTreeSet<i64> = marks.values().map(offset).collect();
    if known != *firsts || known.len() != marks.len() {
        let differ = known.symmetric_difference(firsts).count();
        faults.push(format!("{differ} marks are not of the first record of a key, or are missing"));
    }
    Faults(faults)
}

/// The marks as of the commit with this token, which must be the last.
fn read(changelog: &[Change], token: &str) -> Result<Marks, String> {
    let mut marks = Marks::new();
    let (mut last, mut behind) = (None, 0);
    for (key, value) in changelog {
        let cut = || format!("a record of the changelog is cut off: {key:02x?}");
        match (key.first(), value) {
            (Some(0), Some(value)) => (last, behind) = (Some(value), 0),
            (Some(1), value) => {
                behind += 1;
                let id = usize::from(*key.get(1).ok_or_else(cut)?);
                let rest = key.get(2 + id..).filter(|rest| rest.len() == 24).ok_or_else(cut)?;
                let number = |bytes: &[u8]| bytes.iter().fold(0u128, |n, &byte| n << 8 | u128::from(byte));
                let place = (number(&rest[..8]) as u64 as i64, number(&rest[8..]));
                match value {
                    Some(value) if value.len() == 27 => {
                        let mut mark = [0; 18];
                        mark.copy_from_slice(&value[1..19]);
                        marks.insert(place, mark);
                    }
                    Some(value) if value[..] != [2] => return Err(cut()),
                    _ => drop(marks.remove(&place)),
                }
            }
            (Some(4), Some(value)) => {
                behind += 1;
                let id = usize::from(*key.get(1).ok_or_else(cut)?);
                let sheaf = value.strip_prefix(&[1]).filter(|sheaf| !sheaf.is_empty() && sheaf.len() % 34 == 0);
                let sheaf = sheaf.filter(|_| key.len() == 2 + id + 16).ok_or_else(cut)?;
                for one in sheaf.chunks(34) {
                    let hash = one[..16].iter().rev().fold(0u128, |n, &byte| n << 8 | u128::from(byte));
                    let mut mark = [0; 18];
                    mark[..8].copy_from_slice(&i64::MAX.to_le_bytes());
                    mark[8..].copy_from_slice(&one[16..26]);
                    marks.insert((0, hash), mark);
                }
            }
            // It was of a space that was dropped.
            (Some(4), None) => behind += 1,
            (Some(3 | 5), Some(_)) => {
                behind += 1;
                let space = key.get(key.len().saturating_sub(8)..).filter(|space| space.len() == 8).ok_or_else(cut)?;
                let space = space.iter().fold(0u64, |n, &byte| n << 8 | u64::from(byte)) as i64;
                marks.retain(|(of, _), _| *of != space);
            }
            // Nothing of a space that was dropped is left.
            (Some(3), None) => behind += 1,
            // Entries of windows and updates are not what this witness is for.
            _ => return Err(format!("a record that no pipeline of marks writes: {key:02x?}")),
        }
    }
    match last {
        None if changelog.is_empty() => Ok(marks),
        None => Err("there is no marker in the changelog".to_owned()),
        Some(_) if behind > 0 => Err(format!("{behind} changes stand behind the last marker")),
        Some(value) if !holds(value, token.as_bytes()) => {
            Err("the last marker is not of the committed token".to_owned())
        }
        Some(_) => Ok(marks),
    }
}

fn holds(value: &[u8], token: &[u8]) -> bool {
    !token.is_empty() && value.windows(token.len()).any(|window| window == token)
}

fn digest((space, hash): (i64, u128), mark: &[u8; 18]) -> u128 {
    let mut bytes = Vec::with_capacity(42);
    bytes.extend_from_slice(&space.to_le_bytes());
    bytes.extend_from_slice(&hash.to_le_bytes());
    bytes.extend_from_slice(mark);
    xxh3_128(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(hash: u8, offset: u8) -> Change {
        let key = [&[1, 1, b'd'][..], &[0; 8], &[0; 15], &[hash]].concat();
        let value = [&[1][..], &i64::MAX.to_le_bytes(), &[offset], &[0; 7], &[0; 10]].concat();
        (key, Some(value))
    }

    /// These marks, by hash and offset, in one record.
    fn sheaf(number: u8, marks: &[(u8, u8)]) -> Change {
        let key = [&[4, 1, b'd'][..], &[0; 15], &[number]].concat();
        let one = |&(hash, offset): &(u8, u8)| [&[hash][..], &[0; 15], &[offset], &[0; 7], &[0; 10]].concat();
        (key, Some([vec![1], marks.iter().flat_map(one).collect()].concat()))
    }

    fn marker(token: &str) -> Change {
        (b"\0txn".to_vec(), Some([b"head", token.as_bytes(), b"tail"].concat()))
    }

    fn gone(mut change: Change) -> Change {
        change.1 = None;
        change
    }

    /// The token of three marks, of offsets 0, 1 and 4.
    fn token() -> String {
        let changes = [mark(1, 0), mark(2, 1), mark(3, 4), marker("none")];
        let sum = read(&changes, "none").unwrap().iter().fold(0u128, |n, (k, m)| n.wrapping_add(digest(*k, m)));
        format!("1;7;00000000000000aa;5;3;{sum:032x}")
    }

    #[track_caller]
    fn check(changes: &[Change], expected: &[&str]) {
        let faults = judge(changes, &token(), &BTreeSet::from([0, 1, 4])).0;
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        for (fault, part) in faults.iter().zip(expected) {
            assert!(fault.contains(part), "`{fault}` is not about `{part}`");
        }
    }

    #[test]
    fn a_changelog_that_is_as_committed_has_no_faults() {
        check(&[mark(1, 0), marker("old"), mark(2, 1), mark(3, 4), marker(&token())], &[]);
        check(&[mark(9, 9), mark(1, 0), mark(2, 1), gone(mark(9, 9)), mark(3, 4), marker(&token())], &[]);
    }

    #[test]
    fn marks_count_wherever_they_stand() {
        check(&[sheaf(1, &[(1, 0), (2, 1)]), marker("old"), mark(3, 4), marker(&token())], &[]);
        check(&[sheaf(1, &[(1, 0), (2, 1), (3, 4)]), marker(&token())], &[]);
        // What stands behind it wins, and a value takes away as nothing does.
        let told = |mut change: Change, value: u8| {
            change.1 = Some(vec![value]);
            change
        };
        let first = sheaf(1, &[(1, 9), (2, 1), (3, 4), (9, 9)]);
        check(&[first.clone(), mark(1, 0), told(mark(9, 9), 2), marker(&token())], &[]);
        check(&[first.clone(), mark(1, 0), told(mark(9, 9), 3), marker(&token())], &["cut off"]);
        check(&[told(mark(9, 9), 2), first, mark(1, 0), marker(&token())], &["4 marks", "the digest", "1 marks are"]);
        // What is below a floor does not count.
        let floor = ([&[5, 1, b'd'][..], &[0; 8]].concat(), Some(vec![1; 9]));
        let rest = [sheaf(2, &[(1, 0), (2, 1), (3, 4)]), gone(sheaf(1, &[(9, 9)])), marker(&token())];
        check(&[&[sheaf(1, &[(9, 9)]), floor][..], &rest].concat(), &[]);
        check(&[sheaf(2, &[(1, 0), (2, 1), (3, 4)]), marker(&token()), sheaf(1, &[(9, 9)])], &["1 changes"]);
        let mut short = sheaf(1, &[(1, 0)]);
        short.1.as_mut().unwrap().pop();
        check(&[short, marker(&token())], &["cut off"]);
    }

    #[test]
    fn whatever_is_wrong_with_it_is_found() {
        let good = [mark(1, 0), mark(2, 1), mark(3, 4), marker(&token())];
        check(&good[1..], &["2 marks", "the digest", "1 marks are not"]);
        check(&[&[mark(9, 9)][..], &good].concat(), &["4 marks", "the digest", "1 marks are not"]);
        check(&[&good[..2], &[mark(3, 5)], &good[3..]].concat(), &["the digest", "2 marks are not"]);
        check(&[&good[..2], &[mark(4, 4)], &good[3..]].concat(), &["the digest"]);
        check(&[&good[..], &[mark(9, 9)]].concat(), &["1 changes stand behind"]);
        check(&good[..3], &["no marker"]);
        check(&[&good[..3], &[marker("another")]].concat(), &["not of the committed token"]);
        check(&[&[(vec![2, 1, b'd'], Some(vec![1]))][..], &good].concat(), &["no pipeline of marks"]);
        check(&[&[(vec![1, 1, b'd'], None)][..], &good].concat(), &["cut off"]);
    }
}
