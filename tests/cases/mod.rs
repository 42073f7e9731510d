//! The deduplication cases, run by `tamis test`'s own code through the real guests in the real host.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tamis::config::guests::Library;
use tamis::guest::Engine;
use tamis::script::report;
use tamis::script::suite::{Suite, Verdict, run_all};

/// The bundled guests, compiled once for all tests.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::new(Engine::new(None).unwrap(), tamis::bundled::all(), Vec::new()))
}

/// Runs every test of a file; panics with what failed.
pub fn passes(name: &str, text: &str) {
    let file: Arc<Path> = Arc::from(Path::new(name));
    let pipeline = match tamis::config::read(text, Some(&file), &|_| None) {
        Ok(pipeline) => pipeline,
        Err((findings, _)) => panic!("{name} is refused: {findings:#?}"),
    };
    let suites = [Suite::new(&pipeline, library())];
    let jobs: Vec<(usize, usize)> = (0..suites[0].tests.len()).map(|test| (0, test)).collect();
    assert!(!jobs.is_empty(), "{name} has no tests");
    let verdicts = run_all(&suites, &jobs, &|_| ());
    assert_eq!(verdicts.len(), jobs.len(), "{name}: a test panicked");
    let mut failed = String::new();
    for ((test, span, _), verdict) in suites[0].tests.iter().zip(&verdicts) {
        if !matches!(verdict, Verdict::Passed | Verdict::Skipped(_)) {
            let shown = report::text(verdict, false, &|f| format!("{}: {}", f.code, f.message));
            failed.push_str(&format!("{name}:{}  {test}\n{shown}", span.line));
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

fn folder(name: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases").join(name);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// All files of a folder; all failures at once.
fn all_pass(name: &str, least: usize) {
    let files = folder(name);
    assert!(files.len() >= least, "cases/{name} has only {} files", files.len());
    let mut failed = Vec::new();
    for (path, text) in files {
        let name = format!("{name}/{}", path.file_name().unwrap().to_string_lossy());
        if let Err(panic) = std::panic::catch_unwind(|| passes(&name, &text)) {
            failed.push(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| format!("{name} panics")));
        }
    }
    assert!(failed.is_empty(), "{} files fail\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn the_numbered_cases_pass() {
    all_pass("dedup", 120);
}

#[test]
fn the_random_cases_pass() {
    all_pass("random", 16);
}

#[test]
fn refusals_warnings_and_edges_pass() {
    all_pass("more", 12);
}
