//! `validate`: is it right, without running it?

use std::path::PathBuf;

use serde_json::{Value, json};

use super::exit::{Exit, Failure};
use super::load::{self, count};
use super::output::{Reply, Session};

/// Arguments of `validate`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Pipeline files, or folders with them; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Count warnings as errors
    #[arg(long)]
    pub strict: bool,
}

/// The verb.
pub fn main(args: &Args, session: &mut Session) -> Result<Reply, Failure> {
    let library = load::library(session)?;
    let files = load::expand(&args.files);
    if files.is_empty() {
        return Err(Failure::invalid("there is no pipeline file there")
            .help("a pipeline file ends in .yaml and has a `version`"));
    }
    let (mut text, mut results, mut findings, mut refused) = (String::new(), Vec::new(), Vec::new(), 0);
    let mut exit = Exit::Invalid;
    let mut first = None;
    for file in &files {
        let outcome =
            load::plan(session, file, &library).and_then(|plan| match plan.findings.is_empty() || !args.strict {
                true => Ok(plan),
                false => Err(load::refused(file, plan.findings)),
            });
        match outcome {
            Ok(plan) => {
                let stages = count(plan.stages.len(), "stage");
                text.push_str(&format!("ok  {}: {}, {stages}\n", file.display(), plan.pipeline.name));
                results.push(json!({ "file": file.display().to_string(), "name": plan.pipeline.name, "stages": plan.stages.len() }));
                findings.extend(plan.findings);
            }
            Err(failure) => {
                refused += 1;
                exit = if failure.diagnostics.is_empty() { failure.exit } else { exit };
                findings.extend(failure.diagnostics.iter().cloned());
                first.get_or_insert(failure);
            }
        }
    }
    if let Some(first) = first {
        if files.len() == 1 {
            return Err(Failure { diagnostics: findings, ..first });
        }
        let message = format!("{refused} of {} are refused", count(files.len(), "file"));
        let help = if first.diagnostics.is_empty() { vec![first.message] } else { Vec::new() };
        return Err(Failure { exit, message, help, diagnostics: findings });
    }
    let warnings = findings.iter().filter(|f| f.severity == crate::config::diagnostic::Severity::Warning).count();
    let summary = format!(
        "{} valid, {}",
        if files.len() == 1 { "it is".to_string() } else { format!("{} are", count(files.len(), "file")) },
        count(warnings, "warning")
    );
    let mut reply = Reply::new(text, json!({ "files": Value::Array(results) })).summary(summary);
    reply.diagnostics = findings;
    Ok(reply)
}
