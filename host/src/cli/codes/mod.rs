//! What every code means: the reason, the nearest legal settings, the rules behind it.

mod failures;
mod file;
mod refusals;
mod warnings;

/// One code.
#[derive(Debug)]
pub struct Entry {
    /// `P-UNIT`, `D-NO1`, `W-IDLE`, `null_key`, ...
    pub code: &'static str,
    /// When it is said.
    pub when: &'static str,
    /// Why.
    pub reason: &'static str,
    /// Ways out, nearest first.
    pub ways: &'static [&'static str],
    /// Rules of the dedup semantics, if any.
    pub rules: &'static [&'static str],
}

/// All of them: the file itself (P-), refusals (D-), warnings (W-).
pub fn all() -> impl Iterator<Item = &'static Entry> {
    file::ENTRIES.iter().chain(refusals::ENTRIES).chain(warnings::ENTRIES)
}

/// Failures of single records, which stand in dead letters.
pub fn failures() -> impl Iterator<Item = &'static Entry> {
    failures::ENTRIES.iter()
}

/// One of either.
pub fn find(code: &str) -> Option<&'static Entry> {
    all().chain(failures()).find(|entry| entry.code.eq_ignore_ascii_case(code))
}
