//! `import`: Flink SQL as a pipeline file. The file goes to standard output, what has no equivalent to standard error.

use std::path::{Path, PathBuf};

use super::exit::Failure;
use super::load;
use super::output::{Reply, Session};
use crate::config::diagnostic::Diagnostic;
use crate::config::filled::to_yaml;
use crate::import::{Options, import};
use crate::plan::{Conditions, plan};

/// Arguments of `import`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A file of Flink SQL statements; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Which of several queries, from 1
    #[arg(long, value_name = "N")]
    pub query: Option<usize>,
    /// Read this file in place of the source; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub from: Option<String>,
    /// Write this file in place of the sink; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub to: Option<String>,
    /// Write the rows of INSERT INTO .. VALUES to this file, in the form that `--from` reads
    #[arg(long, value_name = "FILE")]
    pub rows: Option<PathBuf>,
}

/// The verb.
pub fn main(args: &Args, session: &mut Session) -> Result<Reply, Failure> {
    let (name, sql) = load::text(session, &args.file)?;
    let options = Options { query: args.query, from: args.from.clone(), to: args.to.clone() };
    let mut imported = import(&sql, &options);
    for finding in &mut imported.findings {
        finding.file = Some(name.clone());
    }
    imported.findings.sort_by_key(|finding| finding.span.map_or((0, 0), |span| (span.line, span.column)));
    imported.findings.dedup();
    let refused = imported.findings.iter().any(Diagnostic::is_error);
    let Some(file) = imported.file.filter(|_| !refused) else {
        return Err(load::refused(&args.file, imported.findings));
    };
    if let Some(path) = &args.rows {
        std::fs::write(path, &imported.rows).map_err(|error| {
            Failure::environment(format!("cannot write {}: {}", path.display(), load::plain(&error)))
        })?;
    }
    let text = format!("# Imported from {}\n{}", args.file.display(), to_yaml(&file));
    let mut reply = Reply::new(text.clone(), serde_json::json!({ "file": file }));
    // The file is planned, so that what it would be refused for is said now.
    if let Err(findings) = planned(&text, session)? {
        reply.ok = false;
        imported.findings.extend(findings.into_iter().filter(Diagnostic::is_error));
    }
    reply.diagnostics = imported.findings;
    Ok(reply)
}

/// Plans what was made of the statements, its ends aside.
fn planned(text: &str, session: &mut Session) -> Result<Result<(), Vec<Diagnostic>>, Failure> {
    let library = load::library(session)?;
    let name: std::sync::Arc<Path> = std::sync::Arc::from(Path::new("<imported>"));
    session.sources.insert(name.clone(), text.into());
    let pipeline = match crate::config::read(text, Some(&name), &|_| None) {
        Ok(pipeline) => pipeline,
        Err((findings, _)) => return Ok(Err(findings)),
    };
    let conditions = Conditions { ends: false, ..Conditions::of(&pipeline, None) };
    Ok(plan(&pipeline, &library, &conditions).map(|_| ()))
}
