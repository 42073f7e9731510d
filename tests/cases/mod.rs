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

/// Runs every test of a file; panics with what failed. What needs Kafka is played on Kafka, too (tests/kafka/cases.rs); its
/// rows must come without it as well. Nothing is skipped.
pub fn passes(name: &str, text: &str) {
    let text = &text.replace("\n    needs: kafka\n", "\n");
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
        if !matches!(verdict, Verdict::Passed) {
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

/// Blesses every test of a file that fails: the new text, or why not.
fn blessed(text: &str) -> Result<String, String> {
    let pipeline = tamis::config::read(text, None, &|_| None).map_err(|(findings, _)| findings).unwrap();
    let suite = Suite::new(&pipeline, library());
    let mut edits = Vec::new();
    for (number, (.., test)) in suite.tests.iter().enumerate() {
        if !matches!(suite.run(test.as_ref().unwrap()), Verdict::Passed) {
            edits.extend(suite.bless(number, text)?);
        }
    }
    Ok(tamis::script::bless::apply(text, edits))
}

#[test]
fn blessing_writes_rows_and_leaves_everything_else() {
    let head = "# a comment\nversion: 1   # another\nname: bless\nstages:\n- uses: dedup\n  key: value.id\ntests:\n";
    let tests = "
  - name: rows come and go  # why
    input:
      - { id: 1, n: 1 }
      - {id:  2, n: 2}   # odd spacing
      - { id: 1, n: 3 }
      - { value: null, t: 7 }
    output:
      # the first
      - { id: 1,   n: 1 }
      # was once expected
      - { id: 9, n: 9 }
      - duplicate: { id: 1, n: 3 }   # stays
    counters: { duplicates_dropped: 7, records_in: 4 }

  - name: there is no output yet
    input:
      - { id: 1 }   # the last step
    # before the next

  - name: nothing comes any more
    key: value.other
    input: []
    output:
      - { id: 1 }
  - name: an empty list fills
    input: [{ id: 3 }]
    output: []   # none
  - name: this one passes
    input: [{ id: 3 }]
    output: [{ id: 3 }]
";
    let expected = "
  - name: rows come and go  # why
    input:
      - { id: 1, n: 1 }
      - {id:  2, n: 2}   # odd spacing
      - { id: 1, n: 3 }
      - { value: null, t: 7 }
    output:
      # the first
      - { id: 1,   n: 1 }
      # was once expected
      - { id: 2, n: 2, o: 1 }
      - TOMB: { value: null, t: 7, o: 3 }
      - duplicate: { id: 1, n: 3 }   # stays
    counters: { duplicates_dropped: 1, records_in: 4 }

  - name: there is no output yet
    input:
      - { id: 1 }   # the last step
    output:
      - { id: 1, o: 0 }
    # before the next

  - name: nothing comes any more
    key: value.other
    input: []
    output: []
  - name: an empty list fills
    input: [{ id: 3 }]
    output:
      - { id: 3, o: 0 }   # none
  - name: this one passes
    input: [{ id: 3 }]
    output: [{ id: 3 }]
";
    let new = blessed(&format!("{head}{tests}")).unwrap();
    assert_eq!(new, format!("{head}{expected}"));
    passes("blessed", &new);
}

#[test]
fn what_needs_a_judgement_is_not_blessed() {
    let file = |test: &str| format!("version: 1\nstages: [{{ uses: dedup, key: value.id }}]\ntests:\n{test}");
    let refuses = |test: &str, why: &str| {
        let said = blessed(&file(test)).unwrap_err();
        assert!(said.contains(why), "{said}");
    };
    refuses("  - name: a\n    match: contains\n    input: [{ id: 1 }]\n    output: [{ id: 2 }]\n", "match: contains");
    refuses("  - name: a\n    input: [{ id: 1 }]\n    output: [{ id: 2 }]\n", "in brackets");
    refuses("  - { name: a, input: [{ id: 1 }], output: [] }\n", "in braces");
    refuses("  - name: a\n    stops: null_key\n    input: [{ id: 1 }]\n", "only its author");
}
