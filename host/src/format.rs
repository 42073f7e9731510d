//! Everything that is written to disk, versioned, and the only user of bincode.
//!
//! Whatever lasts stands in an envelope: magic, version, kind, length, xxh3-128 of the payload, payload. The payload is
//! bincode with fixed integers and a limit. What a version wrote is pinned by golden bytes in the tests.

use serde::{Deserialize, Serialize};

/// A change of keyed state: absolute, so that applying it twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A space is gone, with all that was in it before.
    Drop {
        /// Its number.
        space: i64,
    },
    /// Marks of one space, set or taken away, in order.
    Marks {
        /// Its number.
        space: i64,
        /// Hash of the key, and what stands there now.
        marks: Vec<(u128, Option<StoredMark>)>,
    },
    /// An entry, set or taken away.
    Entry {
        /// Its space.
        space: i64,
        /// Hash of its key.
        key: u128,
        /// The entry in its encoded form.
        entry: Option<Vec<u8>>,
    },
}

/// A mark: where the first record of a key came from, and until when it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMark {
    /// Until when, ns.
    pub expires: i64,
    /// Offset of the record.
    pub offset: i64,
    /// Input of the task.
    pub input: u16,
    /// Number of its creation; 0 where nothing is evicted.
    pub born: u64,
}
#[allow(missing_docs)] pub fn write_snapshot(_: &crate::task::Marker, _: &[crate::task::Sealed]) -> anyhow::Result<Vec<u8>> { todo!() }
#[allow(missing_docs)] pub fn read_snapshot(_: &[u8]) -> anyhow::Result<(crate::task::Marker, Vec<crate::task::Sealed>)> { todo!() }
