//! State of a task while it is read, record by record: nothing is allocated for a mark.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::changelog::{self, Entry, Marker, What};
use super::token::Token;
use crate::keyed::{Change, Grave, Keyed, Layout, Settings};
use crate::task::{Outside, Sealed};

/// State as of one commit.
#[derive(Debug, Default)]
pub struct Restored {
    /// The token of the commit; none: there was no commit.
    pub token: Option<Token>,
    /// What the commit said.
    pub marker: Option<Marker>,
    /// State of the stages, by id.
    pub states: Vec<(String, Keyed)>,
    /// What else is in the changelog: what is left of spaces that were dropped, and the numbers of sheaves (buried.rs).
    pub outside: Outside,
    /// Whether the digests of the marker are those of this state: nothing came behind it.
    pub exact: bool,
    /// Records of the changelog that were read.
    pub records: u64,
    /// It began with a checkpoint.
    pub warm: bool,
}

/// A changelog while it is read.
#[derive(Debug)]
pub struct Reading {
    settings: Arc<BTreeMap<String, Settings>>,
    stages: Vec<Stage>,
    /// The stage of the last record: that of the next, mostly.
    last: usize,
    marker: Option<Box<Marker>>,
    /// The highest number of a commit whose marker was read.
    highest: u64,
    /// Without a marker, the token that is told.
    taken_for: Option<Token>,
    /// Changes came behind the last marker.
    torn: bool,
    records: u64,
    /// Where reading begins; none: at the beginning.
    start: Option<i64>,
}

#[derive(Debug)]
struct Stage {
    id: String,
    keyed: Keyed,
    /// What dropped spaces had, and nobody has taken away yet.
    grave: Grave,
    /// Spaces whose drop is told, and not that nothing is left of them.
    open: BTreeSet<i64>,
    /// Sheaves that stand, and those that were dropped and are still there.
    sheaves: BTreeSet<u128>,
    dead_sheaves: BTreeSet<u128>,
}

impl Reading {
    /// Nothing was read. `settings`: what the state of each stage keeps to.
    pub fn new(settings: Arc<BTreeMap<String, Settings>>) -> Reading {
        Reading {
            settings,
            stages: Vec::new(),
            last: 0,
            marker: None,
            highest: 0,
            taken_for: None,
            torn: false,
            records: 0,
            start: None,
        }
    }

    /// There is no state, and none is looked for: it is taken for that of this token.
    pub fn empty(token: Option<Token>) -> Reading {
        Reading { taken_for: token, ..Reading::new(Arc::default()) }
    }

    /// The token of the last marker.
    pub fn token(&self) -> Option<&str> {
        self.marker.as_ref().map(|marker| &*marker.token)
    }

    /// Whether the changelog has the commit of a token or a later one. Without transactions a process that was taken for
    /// dead may write behind others, so the last marker need not be the latest.
    pub fn has_come_to(&self, token: &Token) -> bool {
        self.marker.is_some() && self.highest >= token.sequence
    }

    /// Begins with what a checkpoint says of itself: where reading goes on, what the commit said, by stage the spaces of
    /// which something was left to be taken away, and the sheaves that stood. Its pieces follow by `apply`.
    pub fn begin(&mut self, offset: i64, marker: Marker, open: Vec<(String, i64)>, sheaves: Vec<(String, Vec<u128>)>) {
        self.heed(&marker);
        (self.start, self.marker) = (Some(offset), Some(Box::new(marker)));
        for (stage, space) in open {
            let at = self.stage(&stage);
            self.stages[at].open.insert(space);
        }
        for (stage, numbers) in sheaves.into_iter().filter(|(_, numbers)| !numbers.is_empty()) {
            let at = self.stage(&stage);
            self.stages[at].keyed.lay_out(Layout::Sheaves);
            self.stages[at].sheaves.extend(numbers);
        }
    }

    /// What counts of a marker even if it is not the last.
    fn heed(&mut self, marker: &Marker) {
        self.highest = self.highest.max(number_of(marker));
        for said in marker.stages.iter().filter(|said| said.layout != Layout::Single) {
            let at = self.stage(&said.stage);
            self.stages[at].keyed.lay_out(said.layout);
        }
    }

    /// Where reading begins; none: at the beginning.
    pub fn start(&self) -> Option<i64> {
        self.start
    }

    /// Takes a piece of a checkpoint.
    pub fn apply(&mut self, stage: &str, changes: Vec<Change>) {
        let at = self.stage(stage);
        self.stages[at].keyed.apply(changes);
    }

    /// Whether the last marker is the one with this token.
    pub fn is_at(&self, token: &str) -> bool {
        self.marker.as_ref().is_some_and(|marker| marker.token == token)
    }

    /// Takes a record; true: it is a marker. The error says why it is none of ours.
    pub fn take(&mut self, key: Option<&[u8]>, value: Option<&[u8]>) -> Result<bool, String> {
        self.records += 1;
        let (stage, space, what) = match changelog::read(key, value).map_err(|foreign| foreign.0)? {
            Entry::Marker(marker) => {
                self.heed(&marker);
                (self.marker, self.torn) = (Some(marker), false);
                return Ok(true);
            }
            Entry::State { stage, space, what } => (stage, space, what),
        };
        self.torn = true;
        let at = self.stage(stage);
        let Stage { keyed, grave, open, sheaves, dead_sheaves, .. } = &mut self.stages[at];
        match what {
            What::Mark(hash, mark) => {
                keyed.set_mark(space, hash, mark);
                if mark.is_none() && !grave.is_empty() {
                    grave.forget_mark(space, hash);
                }
            }
            What::Gone(hash) => {
                keyed.lay_out(Layout::Mixed);
                keyed.set_mark(space, hash, None);
                grave.forget_mark(space, hash);
            }
            What::Sheaf(number, Some(sheaf)) => {
                keyed.lay_out(Layout::Sheaves);
                sheaf.marks().for_each(|(hash, mark)| keyed.set_mark(space, hash, Some(mark)));
                // A checkpoint may have named it that was begun behind a drop, and is read on from before it.
                dead_sheaves.remove(&number);
                sheaves.insert(number);
            }
            What::Sheaf(number, None) => {
                sheaves.remove(&number);
                dead_sheaves.remove(&number);
            }
            What::Entry(key, payload) => {
                keyed.set_entry(space, key, payload).map_err(|why| format!("an entry is {why}"))?;
                if payload.is_none() {
                    grave.forget_entry(space, key);
                }
            }
            What::Drop => {
                keyed.bury_space(space, grave);
                if space == 0 {
                    dead_sheaves.append(sheaves);
                }
                open.insert(space);
            }
            What::Floor => {
                // Its keys went before the record of their drop did; that still stands if they did not.
                keyed.raise_floor(space);
                dead_sheaves.append(sheaves);
            }
            What::Buried => {
                grave.close(space);
                open.remove(&space);
            }
        }
        Ok(false)
    }

    /// The number of a stage in `stages`.
    fn stage(&mut self, id: &str) -> usize {
        if self.stages.get(self.last).is_some_and(|stage| stage.id == id) {
            return self.last;
        }
        self.last = self.stages.iter().position(|stage| stage.id == id).unwrap_or_else(|| {
            let settings = self.settings.get(id).copied().unwrap_or_default();
            let (keyed, grave, open) = (Keyed::new(settings), Grave::default(), BTreeSet::new());
            let (sheaves, dead_sheaves) = Default::default();
            self.stages.push(Stage { id: id.to_owned(), keyed, grave, open, sheaves, dead_sheaves });
            self.stages.len() - 1
        });
        self.last
    }

    /// Whether what was read is the state of the commit, beyond doubt, and nothing is missing: what begins with a
    /// checkpoint must be that, or the changelog is read from its beginning.
    pub fn is_proved(&self) -> bool {
        let Some(marker) = self.marker.as_ref().filter(|_| !self.torn) else { return false };
        // What was dropped and not taken away stands before the checkpoint, where its keys were not seen.
        let whole = self.start.is_none() || self.stages.iter().all(|stage| stage.open.is_empty());
        let digest = |id: &str| self.stages.iter().find(|stage| stage.id == id).map_or(0, |stage| stage.keyed.digest());
        whole && marker.stages.iter().all(|said| said.digest == digest(&said.stage))
    }

    /// What was read.
    pub fn done(mut self) -> Restored {
        let marker = self.marker.take().map(|marker| *marker);
        for said in marker.iter().flat_map(|marker| &marker.stages) {
            let (born, set) = said.numbers;
            let at = self.stage(&said.stage);
            self.stages[at].keyed.set_numbers(born, set);
        }
        let dead = |stage: &Stage| {
            // Also of spaces of which nothing is left: that is not told yet.
            let mut changes = stage.grave.changes();
            let told =
                |space: &i64| changes.iter().any(|change| matches!(change, Change::Drop { space: s } if s == space));
            let empty: Vec<i64> = stage.open.iter().filter(|space| !told(space)).copied().collect();
            changes.extend(empty.into_iter().map(|space| Change::Drop { space }));
            let sheaves = stage.dead_sheaves.iter().copied().collect();
            Sealed { stage: stage.id.clone(), changes, sheaves, ..Sealed::default() }
        };
        let is_left = |dead: &Sealed| !dead.changes.is_empty() || !dead.sheaves.is_empty();
        let sheaves = self.stages.iter().filter(|stage| !stage.sheaves.is_empty());
        let sheaves = sheaves.map(|stage| (stage.id.clone(), stage.sheaves.iter().copied().collect())).collect();
        let dead = self.stages.iter().map(dead).filter(is_left).collect();
        Restored {
            token: marker.as_ref().and_then(|marker| Token::parse(marker.token.as_bytes())).or(self.taken_for),
            marker,
            outside: Outside { dead, sheaves },
            states: self.stages.into_iter().map(|stage| (stage.id, stage.keyed)).collect(),
            exact: !self.torn,
            records: self.records,
            warm: self.start.is_some(),
        }
    }
}

/// The number of the commit that a marker stands for.
fn number_of(marker: &Marker) -> u64 {
    Token::parse(marker.token.as_bytes()).map_or(0, |token| token.sequence)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::changelog::StageMarker;
    use super::*;
    use crate::format::StoredMark;
    use crate::task;

    type Record = (Vec<u8>, Option<Vec<u8>>);

    /// The records of changes of a stage; the number of its sheaves.
    fn records(layout: Layout, number: u128, changes: Vec<Change>) -> Vec<Record> {
        let sealed = Sealed { stage: "d".into(), changes, layout, ..Sealed::default() };
        let mut all = Vec::new();
        changelog::records(
            &sealed,
            1,
            || Some(number),
            |key, value| all.push((key.to_vec(), value.map(<[u8]>::to_vec))),
        );
        all
    }

    /// A sheaf of ten marks, from this hash on.
    fn sheaf(number: u128, first: u128) -> Vec<Record> {
        let mark = StoredMark { expires: i64::MAX, ..StoredMark::default() };
        let marks = (first..first + 10).map(|hash| (hash, Some(mark))).collect();
        records(Layout::Sheaves, number, vec![Change::Marks { space: 0, marks }])
    }

    fn gone(hash: u128) -> Vec<Record> {
        records(Layout::Mixed, 0, vec![Change::Marks { space: 0, marks: vec![(hash, None)] }])
    }

    /// The records of a drop of all of space 0, and those that take sheaves away.
    fn dropped(sheaves: &[u128]) -> Vec<Record> {
        let mut all = records(Layout::Sheaves, 0, vec![Change::Drop { space: 0 }]);
        let dead = Sealed { stage: "d".into(), sheaves: sheaves.to_vec(), ..Sealed::default() };
        changelog::burials(&dead, |key, value| all.push((key.to_vec(), value.map(<[u8]>::to_vec))));
        all
    }

    fn marker(layout: Layout) -> Marker {
        let stage = StageMarker { stage: "d".into(), identity: "{}".into(), digest: 0, numbers: (0, 0), layout };
        Marker { token: "t".into(), next: Vec::new(), partitions: 1, task: task::Marker::blank(), stages: vec![stage] }
    }

    fn marked(layout: Layout) -> Vec<Record> {
        vec![(changelog::MARKER_KEY.to_vec(), Some(changelog::write_marker(&marker(layout)).unwrap()))]
    }

    /// What is found behind these records: marks, layout, sheaves that stand, and those that are dead.
    #[track_caller]
    fn check(mut reading: Reading, all: &[Vec<Record>], expected: (u64, Layout, &[u128], &[u128])) {
        for (key, value) in all.iter().flatten() {
            reading.take(Some(key), value.as_deref()).unwrap();
        }
        let Restored { states, outside, .. } = reading.done();
        let found = states.first().map_or((0, Layout::Single), |(_, keyed)| (keyed.stats().marks, keyed.layout()));
        let standing = outside.sheaves.first().map(|(_, numbers)| numbers.clone()).unwrap_or_default();
        let dead = outside.dead.first().map(|dead| dead.sheaves.clone()).unwrap_or_default();
        assert_eq!((found.0, found.1, &*standing, &*dead), expected);
    }

    fn fresh() -> Reading {
        Reading::new(Arc::default())
    }

    #[test]
    fn what_stands_behind_a_sheaf_wins_over_what_it_says() {
        check(fresh(), &[sheaf(7, 1), sheaf(8, 6)], (15, Layout::Sheaves, &[7, 8], &[]));
        check(fresh(), &[sheaf(7, 1), gone(3)], (9, Layout::Mixed, &[7], &[]));
        check(fresh(), &[gone(3), sheaf(7, 1)], (10, Layout::Mixed, &[7], &[]));
    }

    #[test]
    fn the_layout_is_the_worst_that_any_marker_or_record_tells() {
        check(fresh(), &[sheaf(7, 1), marked(Layout::Single)], (10, Layout::Sheaves, &[7], &[]));
        check(fresh(), &[marked(Layout::Mixed), sheaf(7, 1), marked(Layout::Sheaves)], (10, Layout::Mixed, &[7], &[]));
        let mut from_checkpoint = fresh();
        from_checkpoint.begin(5, marker(Layout::Single), Vec::new(), vec![("d".into(), vec![3, 4])]);
        check(from_checkpoint, &[], (0, Layout::Sheaves, &[3, 4], &[]));
    }

    #[test]
    fn what_is_below_a_floor_does_not_count_and_its_sheaves_are_dead_until_they_are_taken_away() {
        check(fresh(), &[sheaf(7, 1), sheaf(8, 20), dropped(&[8]), sheaf(9, 5)], (10, Layout::Sheaves, &[9], &[7]));
        // The record of the drop was taken away and is compacted: the floor stands.
        let floor: Vec<Record> = dropped(&[]).split_off(1);
        check(fresh(), &[sheaf(7, 1), gone(3), floor.clone()], (0, Layout::Single, &[], &[7]));
        // A checkpoint that was begun behind a drop, and is read on from before it, has named what stands.
        let mut from_checkpoint = fresh();
        from_checkpoint.begin(5, marker(Layout::Sheaves), Vec::new(), vec![("d".into(), vec![9])]);
        check(from_checkpoint, &[floor, sheaf(9, 5)], (10, Layout::Sheaves, &[9], &[]));
    }
}
