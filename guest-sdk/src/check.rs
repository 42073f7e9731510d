//! What a stage answers while a pipeline is planned; the JSON shapes of `wit/README.md`.

use serde::Serialize;
use serde_json::Value;

/// The answer of `check`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Check {
    /// What is wrong or worth knowing.
    pub findings: Vec<Finding>,
    /// Columns wanted, in the order in which rows give them.
    pub reads: Vec<String>,
    /// Columns that output rows may change, in the order of `Out::write`.
    pub writes: Vec<String>,
    /// Names of the outputs beside the main one.
    pub routes: Vec<String>,
    /// Names of the counters, in the order of `Out::count`.
    pub counters: Vec<String>,
    /// What the host needs to know about the stage.
    pub traits: Traits,
    /// The parameters with every default filled in, also those that depend on others; `None`: as the schema has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Value>,
    /// What `plan` says of the stage; `None`: what the manifest says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub says: Option<Says>,
}

/// What a stage says of itself to the person who plans a pipeline: one sentence each, without a full stop.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Says {
    /// What it will do, and when a row leaves.
    pub does: String,
    /// What of its output it may change later, and what becomes of late records.
    pub changes: String,
    /// What its state costs.
    pub costs: String,
}

impl Check {
    /// A check that finds nothing and reads and writes these columns.
    pub fn of(reads: &[&str], writes: &[&str]) -> Check {
        let own = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        Check { reads: own(reads), writes: own(writes), ..Check::default() }
    }

    /// Adds a finding.
    pub fn find(&mut self, severity: Severity, code: &str, at: &str, text: impl Into<String>) -> &mut Finding {
        let at = at.to_string();
        self.findings.push(Finding { severity, code: code.to_string(), at, text: text.into(), help: Vec::new() });
        let last = self.findings.len() - 1;
        &mut self.findings[last]
    }

    /// Adds an error.
    pub fn error(&mut self, code: &str, at: &str, text: impl Into<String>) -> &mut Finding {
        self.find(Severity::Error, code, at, text)
    }

    /// Adds a warning.
    pub fn warning(&mut self, code: &str, at: &str, text: impl Into<String>) -> &mut Finding {
        self.find(Severity::Warning, code, at, text)
    }

    /// Adds a note.
    pub fn note(&mut self, code: &str, at: &str, text: impl Into<String>) -> &mut Finding {
        self.find(Severity::Note, code, at, text)
    }

    /// Is one of the findings an error?
    pub fn is_refused(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

/// One thing that is wrong or worth knowing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Its code, as the pipeline file's specification names it.
    pub code: String,
    /// A JSON pointer into the stage (`/with/window`), or `/time/..`.
    pub at: String,
    /// For a person.
    pub text: String,
    /// What to do instead.
    pub help: Vec<String>,
}

impl Finding {
    /// Adds a way out.
    pub fn help(&mut self, text: impl Into<String>) -> &mut Finding {
        self.help.push(text.into());
        self
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The pipeline is refused.
    Error,
    /// It runs, and may not do what was meant.
    Warning,
    /// Worth knowing.
    Note,
}

/// The traits table of `wit/README.md`; what is `None` or false is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the table of wit/README.md says it once for every language")]
pub struct Traits {
    #[serde(skip_serializing_if = "not")]
    pub keyed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    #[serde(skip_serializing_if = "not")]
    pub wants_time: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    #[serde(skip_serializing_if = "not")]
    pub window_in_key: bool,
    #[serde(skip_serializing_if = "not")]
    pub window_start_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds_format: Option<String>,
    #[serde(skip_serializing_if = "not")]
    pub row_preserving: bool,
    #[serde(skip_serializing_if = "not")]
    pub bounded_state: bool,
    #[serde(skip_serializing_if = "not")]
    pub waits: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space_after: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    #[serde(skip_serializing_if = "not")]
    pub audit: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub computed: Vec<Computed>,
}

/// A column that a stage writes as a function of others.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Computed {
    /// Its name.
    pub column: String,
    /// The columns that decide it.
    pub from: Vec<String>,
    /// Of a time, and the same again and again: the name of the function (`hour`, `weekday`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cyclic: Option<String>,
}

fn not(value: &bool) -> bool {
    !*value
}
