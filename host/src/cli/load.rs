//! From a file name to a pipeline or a plan, for every verb alike.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::exit::{Exit, Failure};
use super::output::Session;
use crate::config::diagnostic::Diagnostic;
use crate::config::guests::Library;
use crate::config::pipeline::{Pipeline, Source};
use crate::guest::Engine;
use crate::plan::{self, Conditions, Plan};

/// The guests that this process can find. Compiled code is cached in the user's cache folder, if there is one.
pub fn library(session: &Session) -> Result<Library, Failure> {
    let cache = cache_folder(&session.environment);
    let engine = cache
        .as_deref()
        .and_then(|folder| Engine::new(Some(folder)).ok())
        // A cache that cannot be used costs time, nothing else.
        .map_or_else(|| Engine::new(None), Ok)
        .map_err(|error| Failure::environment(format!("the WebAssembly engine does not start: {error:#}")))?;
    Ok(Library::new(engine, crate::bundled::all(), session.modules.clone()))
}

fn cache_folder(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let named = |name: &str| environment.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = named("XDG_CACHE_HOME").filter(|p| p.is_absolute()).or_else(|| {
        named("HOME")
            .map(|home| if cfg!(target_os = "macos") { home.join("Library/Caches") } else { home.join(".cache") })
    });
    base.map(|base| base.join("tamis").join("modules"))
}

/// The text of a file; `-` is standard input. Remembered, so that findings can show its lines.
pub fn text(session: &mut Session, file: &Path) -> Result<(Arc<Path>, Arc<str>), Failure> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| ())
    } else {
        std::fs::read(file).map(|all| bytes = all)
    };
    if let Err(error) = read {
        let (exit, help) = match error.kind() {
            ErrorKind::NotFound => (Exit::Invalid, "check the name, and the folder you are in"),
            ErrorKind::IsADirectory => (Exit::Invalid, "name a file in it"),
            _ => (Exit::Environment, "check its permissions"),
        };
        return Err(Failure::new(exit, format!("cannot read {}: {}", file.display(), plain(&error))).help(help));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::invalid(format!("{} is not UTF-8: byte {at} begins no character", file.display()))
            .help("a pipeline file is text")
    })?;
    let name: Arc<Path> = if file == Path::new("-") { Arc::from(Path::new("<stdin>")) } else { Arc::from(file) };
    let text: Arc<str> = Arc::from(text.strip_prefix('\u{feff}').unwrap_or(&text));
    session.sources.insert(Arc::clone(&name), Arc::clone(&text));
    Ok((name, text))
}

/// An error of the system in a few words, without its number.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    let mut chars = text[..end].chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// A pipeline as it is meant; or everything that is wrong with it, parameters of its guests included.
pub fn pipeline(session: &mut Session, file: &Path, library: &Library) -> Result<Pipeline, Failure> {
    let (name, text) = text(session, file)?;
    let environment = session.environment.clone();
    match crate::config::read(&text, Some(&name), &|variable| environment.get(variable).cloned()) {
        Ok(pipeline) => match crate::kafka::settings::wrong(&pipeline, &environment) {
            wrong if wrong.is_empty() => Ok(pipeline),
            wrong => Err(refused(file, wrong)),
        },
        Err((mut findings, partly)) => {
            if let Some(partly) = partly {
                findings.extend(plan::check_parameters(&partly, library));
            }
            Err(refused(file, findings))
        }
    }
}

/// A plan of a file, to look at.
pub fn plan(session: &mut Session, file: &Path, library: &Library) -> Result<Plan, Failure> {
    let pipeline = pipeline(session, file, library)?;
    let mut conditions = Conditions::of(&pipeline, partitions(&pipeline));
    // A file of tests alone has no source to judge.
    let written = |name: &str| pipeline.root.get(name).is_some();
    conditions.ends = written("source") || written("sink") || pipeline.tests.is_empty();
    plan::plan(&pipeline, library, &conditions).map_err(|findings| refused(file, findings))
}

/// How many files the source names now, relative to the pipeline file; not known if one is missing, which is no mistake of the file.
fn partitions(pipeline: &Pipeline) -> Option<u32> {
    let Source::File { paths, .. } = &pipeline.source else { return None };
    let base = pipeline.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let files = crate::files::place::files(base, paths).ok()?;
    u32::try_from(files.len()).ok()
}

/// Findings as a failure, in the order of the file.
pub fn refused(file: &Path, mut findings: Vec<Diagnostic>) -> Failure {
    findings.sort_by_key(|f| (f.span.map_or((0, 0), |s| (s.line, s.column)), f.severity));
    findings.dedup();
    let errors = findings.iter().filter(|d| d.is_error()).count();
    let mut failure = Failure::from(findings);
    failure.message = format!("{} is refused: {}", file.display(), count(errors, "error"));
    failure
}

/// "1 error", "2 errors".
pub fn count(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

/// Files as named; a folder stands for the pipeline files in it and below (`*.yaml`, `*.yml` with a `version`), in the
/// order of names.
pub fn expand(files: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for file in files {
        if file.is_dir() { walk(file, &mut all, 0) } else { all.push(file.clone()) }
    }
    all
}

fn walk(folder: &Path, all: &mut Vec<PathBuf>, depth: usize) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        let hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
        if path.is_dir() && !hidden && depth < 16 {
            walk(&path, all, depth + 1);
        } else if path.extension().is_some_and(|e| e == "yaml" || e == "yml") {
            let is_pipeline =
                std::fs::read_to_string(&path).is_ok_and(|t| t.lines().any(|l| l.starts_with("version:")));
            if is_pipeline {
                all.push(path);
            }
        }
    }
}
