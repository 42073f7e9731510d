//! Keyed state of one stage of one task: marks, entries, their wakes and expiry, quotas, and the one log of writes.
//!
//! Writes go in place. The log of what was there before serves as savepoint, as the list of what is dirty and as the
//! source of the changes that become durable (`seal`). Expiry is judged when an entry is read (X4); what is over may be
//! taken away at any later moment, which no answer can tell.

use crate::batch::{Batch, Column, Image, Origin};
use crate::time::Stamp;

mod marks;
mod session;

pub use crate::format::Change;
pub use session::{Finished, Session};

/// What expiry is compared with: the trait `expires-by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiresBy {
    /// The row's time or what it sees, the later.
    Time,
    /// What the row sees.
    Seen,
    /// Processing time.
    #[default]
    Now,
}

/// What happens at a bound (X8). `Pause` and `Fail` are the stage's to do: here both refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Wait.
    #[default]
    Pause,
    /// Stop.
    Fail,
    /// The oldest by creation goes.
    EvictOldest,
}

/// What a stage's state keeps to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What expiry is compared with.
    pub expires_by: ExpiresBy,
    /// Most live entries and marks.
    pub max_entries: Option<u64>,
    /// Most live bytes.
    pub max_bytes: Option<u64>,
    /// What happens at either bound.
    pub overflow: Overflow,
}

/// One call of a keyed guest, as its state imports see it.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The rows of the stage's input.
    pub batch: Batch,
    /// Row of the call -> row of the batch.
    pub rows: Vec<u32>,
    /// Salted hash of the key, per row of the call.
    pub keys: Vec<u128>,
    /// The key in updating output (O6), per row of the call; kept with images.
    pub output_keys: Option<Column>,
    /// Time of each row of the call on the stage's clock, ns; empty without wants-time.
    pub times: Vec<i64>,
    /// What each row sees, and one more; empty without wants-time.
    pub seen: Vec<Stamp>,
    /// Wakes up to here, this one included, are due in this call.
    pub end: Stamp,
    /// Processing time, ns.
    pub now: i64,
    /// Most wakes this call takes; the first ones.
    pub limit: usize,
}

/// What an entry keeps of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The row itself: it can become an output.
    Image(std::sync::Arc<Image>),
    /// Its position: it can be a winner.
    Mark(Origin),
}

impl Kept {
    /// Where the row came from.
    pub fn origin(&self) -> Origin {
        match self {
            Kept::Image(image) => image.origin,
            Kept::Mark(origin) => *origin,
        }
    }
}

/// An entry taken away because its wake cannot be done.
#[derive(Clone, Debug)]
pub struct Blamed {
    /// Its wake.
    pub wake: Stamp,
    /// Its space.
    pub space: i64,
    /// What it kept, by number.
    pub kept: Vec<(u8, Kept)>,
}

/// A savepoint: a position in the log.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Length of the log.
    log: usize,
}

/// Size of a stage's state (X10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Marks, some of which may be over.
    pub marks: u64,
    /// Entries, some of which may be over.
    pub entries: u64,
    /// Entries that wait for their wake.
    pub waiting: u64,
    /// Spaces in use.
    pub spaces: u64,
    /// Bytes that marks and entries count for.
    pub bytes: u64,
    /// Live entries and marks evicted at a bound since the start (counter `evicted_live`).
    pub evicted_live: u64,
    /// Writes since the last seal.
    pub unsealed: u64,
}

/// The state of one stage of one task.
#[derive(Debug, Default)]
pub struct Keyed {
    settings: Settings,
}

impl Keyed {
    /// Empty state.
    pub fn new(settings: Settings) -> Keyed {
        Keyed { settings }
    }

    /// What it keeps to.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Gives the state to one guest call. Take a `mark` first: a call that faults or does not fit is undone to it.
    pub fn session(self, begin: Begin) -> Session {
        Session::new(self, begin)
    }

    /// A savepoint. It is spent by an `undo` to an earlier one, and by `seal`.
    pub fn mark(&self) -> Mark {
        Mark { log: 0 }
    }

    /// Takes back every write since the savepoint.
    pub fn undo(&mut self, to: Mark) {
        let _ = to.log;
    }

    /// The earliest wake.
    pub fn next_wake(&self) -> Option<Stamp> {
        None
    }

    /// The first wakes up to and with `upto`, at most `limit`, in the order in which they fire.
    pub fn due(&self, _upto: Stamp, _limit: usize) -> Vec<Stamp> {
        Vec::new()
    }

    /// Takes away the entry whose wake is the first (within `upto`): its guest cannot do it.
    pub fn blame(&mut self, _upto: Stamp) -> Option<Blamed> {
        None
    }

    /// Frees the oldest entry or mark by creation (X8), never one that waits; those that are over for a row that sees
    /// `seen` at `now` go on the way and are not counted. False: nothing could be freed.
    pub fn evict_oldest(&mut self, _seen: Stamp, _now: i64) -> bool {
        false
    }

    /// Frees every space up to and with `upto`, whole. Space 0 is no window and stays.
    pub fn drop_spaces(&mut self, _upto: i64) {}

    /// The changes since the last seal; the log starts anew.
    pub fn seal(&mut self) -> Vec<Change> {
        Vec::new()
    }

    /// Brings sealed changes into this state, the last one for a key wins. Not logged: for restoring.
    pub fn apply(&mut self, _changes: Vec<Change>) {}

    /// Everything, as changes to empty state. Seal first: what is not sealed is in it, but not in the digest.
    pub fn dump(&self) -> Vec<Change> {
        Vec::new()
    }

    /// State from a dump.
    pub fn load(settings: Settings, changes: Vec<Change>) -> Keyed {
        let mut keyed = Keyed::new(settings);
        keyed.apply(changes);
        keyed
    }

    /// Sum over all sealed entries and marks: equal for equal state, however it came about.
    pub fn digest(&self) -> u128 {
        0
    }

    /// Sizes and counters.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }
}
