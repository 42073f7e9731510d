//! Pipeline files with one planted mistake each, and files that are right. What must be said stands at the end of each:
//! `# expect: CODE LINE:COLUMN part of the help` for errors, `# warns: ...` for warnings and notes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tamis::config::diagnostic::Diagnostic;
use tamis::config::guests::Library;
use tamis::config::schema::{GuestParams, schema};
use tamis::guest::Engine;
use tamis::plan::{self, Conditions, Guests};

mod schema_check;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(name)
}

fn files(name: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder(name)).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn library() -> Library {
    Library::new(Engine::new(None).unwrap(), tamis::bundled::all(), Vec::new())
}

/// Everything that is said of a file that is to be run.
fn findings(file: &Path, library: &Library) -> Vec<Diagnostic> {
    let text = std::fs::read_to_string(file).unwrap();
    let name: Arc<Path> = Arc::from(file);
    match tamis::config::read(&text, Some(&name), &|_| None) {
        Ok(pipeline) => match plan::plan(&pipeline, library, &Conditions::of(&pipeline, None)) {
            Ok(plan) => plan.findings,
            Err(findings) => findings,
        },
        Err((mut findings, partly)) => {
            findings.extend(partly.iter().flat_map(|p| plan::check_parameters(p, library)));
            findings
        }
    }
}

/// Compares with the expectations in the file; `all`: warnings count, too.
fn check(file: &Path, library: &Library, all: bool) -> Result<(), String> {
    let text = std::fs::read_to_string(file).unwrap();
    let wanted =
        |prefix: &str| text.lines().filter_map(|l| l.strip_prefix(prefix)).map(str::to_string).collect::<Vec<_>>();
    let mut expected = wanted("# expect: ");
    expected.extend(wanted("# warns: "));
    let mut found = findings(file, library);
    found.retain(|f| all || f.is_error());
    for line in &expected {
        let mut words = line.splitn(3, ' ');
        let (code, place, help) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let fits = |f: &Diagnostic| {
            let span = f.span.unwrap_or_default();
            let helps = help == "-" || f.help.iter().any(|h| h.contains(help));
            f.code == code && format!("{}:{}", span.line, span.column) == place && helps
        };
        match found.iter().position(fits) {
            Some(at) => drop(found.remove(at)),
            None => return Err(format!("{}: not said: {line}; said: {found:#?}", file.display())),
        }
    }
    if found.is_empty() { Ok(()) } else { Err(format!("{}: also said: {found:#?}", file.display())) }
}

fn check_all(name: &str, all: bool) {
    let library = library();
    let wrong: Vec<String> = files(name).iter().filter_map(|file| check(file, &library, all).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn planted_mistakes_are_found_and_nothing_else_is_said() {
    check_all("invalid", false);
}

#[test]
fn right_files_are_planned_with_the_warnings_they_deserve() {
    check_all("valid", true);
}

#[test]
fn every_mistake_has_a_way_out() {
    let library = library();
    for file in files("invalid") {
        for finding in findings(&file, &library).iter().filter(|f| f.is_error()) {
            assert!(!finding.help.is_empty(), "{}: {finding:?}", file.display());
            assert!(finding.span.is_some() && finding.file.is_some(), "{}: {finding:?}", file.display());
        }
    }
}

/// The schema for editors accepts what the check accepts, and refuses the mistakes that a schema can see.
#[test]
fn the_schema_agrees_with_the_check() {
    let library = library();
    let guests = ["dedup", "mask", "filter"].map(|name| GuestParams {
        name: name.to_string(),
        params: library.find(name, None).unwrap().manifest().params.clone(),
    });
    let schema = schema(&guests);
    let json = |file: &Path| -> Option<Value> {
        let text = std::fs::read_to_string(file).unwrap();
        tamis::config::yaml::parse(&text, None, &|_| None).ok().map(|(node, _)| node.to_json())
    };
    let mut right = files("valid");
    right.extend(examples());
    for file in right {
        if let Err(why) = schema_check::check(&json(&file).unwrap(), &schema) {
            panic!("{}: {why}", file.display());
        }
    }
    let seen = [
        "misspelt-section",
        "misspelt-parameter",
        "misspelt-word",
        "no-version",
        "unit-missing",
        "unit-missing-in-guest",
        "wrong-type",
        "yes-is-text",
        "path-without-root",
        "two-sources",
        "bare-file-name",
        "parameter-beside",
    ];
    for name in seen {
        let file = folder("invalid").join(format!("{name}.yaml"));
        assert!(schema_check::check(&json(&file).unwrap(), &schema).is_err(), "{name}");
    }
}

/// The pipelines of the examples.
fn examples() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples");
    let folders = std::fs::read_dir(root).into_iter().flatten().flatten();
    folders.map(|f| f.path().join("pipeline.yaml")).filter(|p| p.is_file()).collect()
}
