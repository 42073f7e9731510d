//! What a command says: what was asked goes to stdout, talk to stderr; with `--json` one envelope to stdout.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::{Value, json};

use super::exit::{Exit, Failure};
use crate::config::diagnostic::{Diagnostic, Severity};

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[allow(missing_docs)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// What a verb answers when it did what was asked.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// One line, to stderr.
    pub summary: String,
    /// For `--json`.
    pub result: Value,
    /// For a person, to stdout; empty if the verb printed as it went.
    pub text: String,
    /// False: what was asked for was done, and the answer is no (tests failed): exit 2.
    pub ok: bool,
    /// Warnings and notes about files.
    pub diagnostics: Vec<Diagnostic>,
}

impl Reply {
    /// An answer.
    pub fn new(text: impl Into<String>, result: Value) -> Reply {
        Reply { text: text.into(), result, ok: true, ..Reply::default() }
    }

    /// Adds the summary line.
    #[must_use]
    pub fn summary(mut self, summary: impl Into<String>) -> Reply {
        self.summary = summary.into();
        self
    }
}

/// What every verb may use: how to talk, where modules are, the sources of files read so far.
#[derive(Debug)]
pub struct Session {
    /// One envelope instead of text.
    pub json: bool,
    /// Colour on stderr.
    pub color_err: bool,
    /// Colour on stdout.
    pub color_out: bool,
    /// No talk.
    pub quiet: bool,
    /// More talk.
    pub verbose: u8,
    /// `--modules`, then `TAMIS_MODULES`.
    pub modules: Vec<PathBuf>,
    /// The environment, as it was at the start.
    pub environment: BTreeMap<String, String>,
    /// Text of the pipeline files read, to show lines of.
    pub sources: BTreeMap<Arc<Path>, Arc<str>>,
}

impl Session {
    /// Talk, to stderr; nothing with `--quiet`. Nobody listening is no reason to stop.
    pub fn say(&self, text: &str) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }

    /// Says an error that does not end the command, with its ways out.
    pub fn complain(&self, message: &str, help: &[String]) {
        let group = Group::with_title(Level::ERROR.primary_title(printable(message)));
        let renderer = if self.color_err { Renderer::styled() } else { Renderer::plain() };
        let mut text = renderer.render(&[group]);
        for help in help {
            text.push_str(&format!("\n  help: {}", printable(help)));
        }
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Whether stderr is a terminal: progress may redraw itself.
    pub fn talks_to_terminal(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// Shows findings on stderr, each with its line of the file.
    pub fn show(&self, diagnostics: &[Diagnostic]) {
        for diagnostic in diagnostics {
            if self.quiet && !diagnostic.is_error() {
                continue;
            }
            let _ = writeln!(std::io::stderr().lock(), "{}\n", self.render(diagnostic));
        }
    }

    /// One finding as a person reads it.
    pub fn render(&self, diagnostic: &Diagnostic) -> String {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        let message = printable(&diagnostic.message);
        let code = printable(&diagnostic.code);
        let title = level.primary_title(message).id(code);
        let source = diagnostic.file.as_ref().and_then(|f| self.sources.get(f));
        let path = diagnostic.file.as_ref().map(|f| printable(&f.display().to_string()));
        let mut group = match (diagnostic.span, source) {
            (Some(span), Some(source)) => {
                let end = span.end.min(source.len());
                let start = span.start.min(end);
                // A span over several lines points at its first: what is wrong starts there.
                let end = source.get(start..end).and_then(|s| s.find('\n')).map_or(end, |n| start + n);
                let snippet = Snippet::source(source.as_ref())
                    .path(path)
                    .fold(true)
                    .annotation(AnnotationKind::Primary.span(start..end));
                title.element(snippet)
            }
            (Some(span), None) if path.is_some() => {
                let origin = annotate_snippets::Origin::path(path.unwrap_or_default());
                title.element(origin.line(span.line as usize).char_column(span.column as usize))
            }
            (None, _) if path.is_some() => title.element(annotate_snippets::Origin::path(path.unwrap_or_default())),
            _ => Group::with_title(title),
        };
        for help in &diagnostic.help {
            group = group.element(Level::HELP.message(printable(help)));
        }
        let renderer = if self.color_err { Renderer::styled() } else { Renderer::plain() };
        let decor = if self.color_err { DecorStyle::Unicode } else { DecorStyle::Ascii };
        renderer.decor_style(decor).render(&[group])
    }

    /// Says how the command ended, and gives the exit code.
    pub fn finish(&self, command: &str, outcome: Result<Reply, Failure>) -> u8 {
        let code = exit_of(&outcome);
        if self.json {
            return print_envelope(command, &outcome);
        }
        match outcome {
            Ok(reply) => {
                self.show(&reply.diagnostics);
                let code = print(&reply.text, code);
                if !reply.summary.is_empty() {
                    self.say(&reply.summary);
                }
                code
            }
            Err(failure) => {
                self.show(&failure.diagnostics);
                self.complain(&failure.message, &failure.help);
                code
            }
        }
    }
}

fn exit_of(outcome: &Result<Reply, Failure>) -> u8 {
    match outcome {
        Ok(reply) if reply.ok => Exit::Ok,
        Ok(_) => Exit::Invalid,
        Err(failure) => failure.exit,
    }
    .code()
}

/// The outcome as one JSON object on stdout, and the exit code.
pub fn print_envelope(command: &str, outcome: &Result<Reply, Failure>) -> u8 {
    print(&format!("{}\n", envelope(command, outcome)), exit_of(outcome))
}

/// Writes to stdout; a closed pipe is the reader's decision and ends quietly, any other error is said.
fn print(text: &str, code: u8) -> u8 {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => code,
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => 0,
        Err(e) => {
            let _ = writeln!(std::io::stderr().lock(), "error: cannot write to standard output: {e}");
            Exit::Environment.code()
        }
    }
}

/// `{command, ok, summary, result, error}`; `error` is null unless the command failed. Tests that did not pass are an
/// answer: not ok, without error.
pub fn envelope(command: &str, outcome: &Result<Reply, Failure>) -> Value {
    match outcome {
        Ok(reply) => {
            let findings: Vec<Value> = reply.diagnostics.iter().map(finding).collect();
            let mut result = reply.result.clone();
            if let (Value::Object(members), false) = (&mut result, findings.is_empty()) {
                members.insert("findings".to_string(), Value::Array(findings));
            }
            json!({"command": command, "ok": reply.ok, "summary": reply.summary, "result": result, "error": null})
        }
        Err(failure) => {
            let findings: Vec<Value> = failure.diagnostics.iter().map(finding).collect();
            let error = json!({
                "message": failure.message, "help": failure.help, "exit": failure.exit.code(), "findings": findings,
            });
            json!({"command": command, "ok": false, "summary": failure.message, "result": null, "error": error})
        }
    }
}

/// A finding in `--json`.
pub fn finding(diagnostic: &Diagnostic) -> Value {
    let span = diagnostic.span.map(|s| json!({"line": s.line, "column": s.column, "start": s.start, "end": s.end}));
    json!({
        "severity": diagnostic.severity.word(),
        "code": diagnostic.code,
        "message": diagnostic.message,
        "path": diagnostic.file.as_ref().map(|f| f.display().to_string()),
        "span": span,
        "help": diagnostic.help,
    })
}

/// Text from files and guests, safe for a terminal: control characters are shown, not obeyed.
pub fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| -> Vec<char> {
            let keep = c == '\n'
                || !(c.is_control()
                    || ('\u{202a}'..='\u{202e}').contains(&c)
                    || ('\u{2066}'..='\u{2069}').contains(&c));
            if keep { vec![c] } else { c.escape_unicode().collect() }
        })
        .collect()
}
