//! The one classifier of how a command ended.

use crate::config::diagnostic::Diagnostic;

/// Exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0
    Ok,
    /// 1: it ran, and failed.
    Runtime,
    /// 2: arguments, a file or a guest are wrong; tests failed.
    Invalid,
    /// 3: disk, permission, port, a missing file of data.
    Environment,
}

impl Exit {
    /// The number a shell sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Runtime => 1,
            Exit::Invalid => 2,
            Exit::Environment => 3,
        }
    }
}

/// Why a command did not do what was asked.
#[derive(Clone, Debug)]
pub struct Failure {
    /// How to exit.
    pub exit: Exit,
    /// One sentence.
    pub message: String,
    /// Ways out.
    pub help: Vec<String>,
    /// What is wrong with files, if that is the reason; shown before the message.
    pub diagnostics: Vec<Diagnostic>,
}

impl Failure {
    /// It ran, and failed.
    pub fn runtime(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Runtime, message)
    }

    /// What was given is wrong.
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Invalid, message)
    }

    /// The surroundings do not allow it.
    pub fn environment(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Environment, message)
    }

    /// Any.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), help: Vec::new(), diagnostics: Vec::new() }
    }

    /// Adds a way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Failure {
        self.help.push(help.into());
        self
    }
}

impl From<Vec<Diagnostic>> for Failure {
    /// Refused: exit 2, with a count for a message.
    fn from(diagnostics: Vec<Diagnostic>) -> Failure {
        let errors = diagnostics.iter().filter(|d| d.is_error()).count();
        let message = if errors == 1 { "1 error".to_string() } else { format!("{errors} errors") };
        Failure { exit: Exit::Invalid, message, help: Vec::new(), diagnostics }
    }
}
