//! Write guests for tamis: keys, transforms, keyed operators, codecs.
//!
//! A guest is a crate with one type that implements [`Key`], [`Transform`], [`Keyed`] or [`Codec`], a `manifest.json`
//! beside its `Cargo.toml`, and one line that exports it:
//!
//! ```ignore
//! tamis_guest::transform!(Mask, include_str!("../manifest.json"));
//! ```
//!
//! Everything builds natively too: the macros then export nothing, the host's imports cannot be reached, and
//! [`kit`] runs a keyed guest against a state in memory. The contract itself is `wit/guest.wit`, its bytes are in
//! `wit/README.md`.

pub mod bindings;
pub mod cells;
pub mod check;
pub mod codec;
pub mod document;
mod driver;
mod export;
pub mod failure;
pub mod key;
pub mod keyed;
#[cfg(not(target_arch = "wasm32"))]
#[allow(clippy::expect_used, reason = "a test kit fails by panicking")]
pub mod kit;
pub mod number;
pub mod out;
pub mod path;
pub mod row;
pub mod transform;

pub use cells::{Cell, Column, kind};
pub use check::{Check, Finding, Says, Severity, Traits};
pub use codec::{Codec, Decoded, DecodedColumn};
pub use export::__private;
pub use failure::Failure;
pub use key::{Key, KeyCell};
pub use keyed::{Dues, Entries, ExpiresBy, Keyed, Outcome, Output, Slot, Stamps, StateCalls, View};
pub use out::{Kind, Out, Verdict, Window};
pub use row::{Batch, END, NEVER, NONE_YET, Row, Stamp};
pub use serde_json::Value;
pub use transform::Transform;

/// Writes a line to the host's log. Natively: nothing.
pub fn log(level: Level, text: &str) {
    #[cfg(target_arch = "wasm32")]
    bindings::log::log(level as u8, text);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = (level, text);
}

/// From here on a panic writes its text to the log. A panic is a trap, and its text would be lost. The macros do it; only
/// guests that use the bindings directly need it.
pub fn log_panics() {
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(|info| log(Level::Error, &info.to_string())));
}

/// How loud a line of the log is; the host caps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something is wrong.
    Error = 1,
    /// Something may be wrong.
    Warn = 2,
    /// Worth knowing.
    Info = 3,
    /// For the author.
    Debug = 4,
}
