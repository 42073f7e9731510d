//! Why a row could not be done.

pub use crate::bindings::types::Failure as RowFailure;

/// Why a row could not be done; the host's error policy of the stage decides what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// 1 transient (try again), 2 permanent (the data), 3 bug.
    pub category: u8,
    /// A short name for metrics and rules, `[a-z0-9_-]+`.
    pub code: String,
    /// For a person.
    pub text: String,
}

impl Failure {
    /// The data is at fault; trying again gives the same.
    pub fn permanent(code: impl Into<String>, text: impl Into<String>) -> Failure {
        Failure { category: 2, code: code.into(), text: text.into() }
    }

    /// Trying again may help.
    pub fn transient(code: impl Into<String>, text: impl Into<String>) -> Failure {
        Failure { category: 1, code: code.into(), text: text.into() }
    }

    /// The guest is at fault.
    pub fn bug(code: impl Into<String>, text: impl Into<String>) -> Failure {
        Failure { category: 3, code: code.into(), text: text.into() }
    }

    /// As it crosses, for this row.
    pub fn at(self, row: u32) -> RowFailure {
        RowFailure { row, category: self.category, code: self.code, text: self.text }
    }
}
