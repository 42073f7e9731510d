//! Field paths (pipeline-file section 6).

/// Where a path starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Root {
    Value,
    Key,
    Header(String),
    Timestamp,
    Topic,
    Partition,
    Offset,
    Epoch,
    Position,
}

/// One step below `value` or `key`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Member of an object.
    Member(String),
    /// Element of an array, from 0.
    Element(u32),
}

/// A path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Where it starts.
    pub root: Root,
    /// Steps; only below `value` and `key`.
    pub steps: Vec<Step>,
}
