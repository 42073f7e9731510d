//! What is wrong with a pipeline file, where, and what to do about it.

use std::path::Path;
use std::sync::Arc;

use super::node::Span;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing runs.
    Error,
    /// It runs, and may not do what was meant.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// As it stands in `--json` and in guests' findings.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// A finding in a pipeline file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// `P-UNKNOWN`, `D-NO1`, `W-IDLE`, ...: what `tamis explain` knows.
    pub code: String,
    /// What is wrong, one sentence.
    pub message: String,
    /// Where; `None` if it concerns the file as a whole.
    pub span: Option<Span>,
    /// The file it stands in; `None` where that goes without saying (tests of single functions).
    pub file: Option<Arc<Path>>,
    /// Ways out, nearest first.
    pub help: Vec<String>,
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(code: &str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Severity::Error, code, Some(span), message)
    }

    /// A warning at a place.
    pub fn warning(code: &str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Severity::Warning, code, Some(span), message)
    }

    /// Any finding.
    pub fn new(severity: Severity, code: &str, span: Option<Span>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity, code: code.to_string(), message: message.into(), span, file: None, help: Vec::new() }
    }

    /// Adds a way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help.push(help.into());
        self
    }

    /// Whether it keeps the pipeline from running.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}
