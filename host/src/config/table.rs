//! How mappings of the pipeline file are described: one table each, which feeds the check, the suggestions, the JSON
//! Schema and the file with every default filled in.

/// The members of one mapping.
#[derive(Debug)]
pub struct Table {
    /// What the mapping is called in a sentence: "`time`".
    pub name: &'static str,
    /// One sentence.
    pub doc: &'static str,
    /// The member that a plain value stands for.
    pub short: Option<&'static str>,
    /// Its members, in the order in which they are printed.
    pub members: &'static [Member],
}

/// A member of a mapping.
#[derive(Debug)]
pub struct Member {
    /// As it is written.
    pub name: &'static str,
    /// What may stand there.
    pub kind: Kind,
    /// What counts if it is left out.
    pub default: Default,
    /// One sentence.
    pub doc: &'static str,
}

/// What counts if a member is left out.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// It may not be left out.
    Required,
    /// Nothing.
    None,
    /// This, as it would be written.
    Is(&'static str),
    /// Something that depends on the rest; the words say on what.
    Depends(&'static str),
}

/// Legal signs of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Sign {
    Any,
    NotNegative,
    Positive,
}

/// What may stand somewhere.
#[derive(Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// `[a-z0-9][a-z0-9._-]*`, at most 100 characters.
    Name,
    /// `[a-z0-9][a-z0-9-]*`.
    Id,
    /// What Kafka takes for the name of a topic.
    Topic,
    /// `true` or `false`.
    Bool,
    /// A whole number, at least this.
    Integer(i64),
    /// A duration.
    Duration(Sign),
    /// A size; whether `0B` is legal.
    Size {
        /// Whether it may be zero.
        zero: bool,
    },
    /// RFC 3339.
    Instant,
    /// IP address and port of this machine.
    Address,
    /// A field path.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// The name of a guest.
    Guest,
    /// Anything; somebody else looks at it.
    Free,
    /// Any mapping; somebody else looks at it.
    FreeMap,
    /// A mapping, or what its short member takes.
    Map(&'static Table),
    /// A list.
    List(&'static Kind),
    /// One, or a list of them.
    Many(&'static Kind),
    /// `none`, or this.
    OrNone(&'static Kind),
    /// Any of these; the first that has the right shape is meant.
    Either(&'static [Kind]),
    /// A mapping with exactly one of these members; the names in the second list may also stand alone.
    OneOf(&'static [Member], &'static [&'static str]),
    /// Legal, and not built yet; this is what is missing.
    Later(&'static str),
}

impl Table {
    /// A member by name.
    pub fn member(&self, name: &str) -> Option<&'static Member> {
        self.members.iter().find(|m| m.name == name)
    }
}
