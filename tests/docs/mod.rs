//! What is written about the program is true of it: pipeline files in pages are planned, every code that is raised is
//! explained, and `plan` prints files that mean what they were made of.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis::cli::codes;
use tamis::plan::{Conditions, plan};
use tamis_tests::program::{Folder, root};

use crate::cases::library;

/// Files with an ending below a folder of the project.
fn files(below: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(below)];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no {ending} below {below}");
    found
}

/// The blocks of a page that are marked as YAML, with their lines.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in page.lines().enumerate() {
        match &mut open {
            Some(_) if line.trim() == "```" => blocks.extend(open.take()),
            Some((_, text)) => text.push_str(&format!("{line}\n")),
            None if line.trim() == "```yaml" => open = Some((number + 2, String::new())),
            None => {}
        }
    }
    assert!(open.is_none(), "a block does not end");
    blocks
}

/// A block is a file, the parts of one without its version, or what stands in a dedup stage.
fn as_file(block: &str) -> String {
    let begins = |words: &[&str]| block.lines().any(|line| words.iter().any(|word| line.starts_with(word)));
    if begins(&["version:"]) {
        block.to_string()
    } else if begins(&["stages:", "time:", "source:", "sink:", "tests:"]) {
        format!("version: 1\n{block}")
    } else {
        let inner: String = block.lines().map(|line| format!("    {line}\n")).collect();
        format!("version: 1\nstages:\n  - uses: dedup\n    id: dedup\n{inner}")
    }
}

#[test]
fn every_pipeline_in_a_page_is_planned() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for page in files("", ".md") {
        for (line, block) in blocks(&std::fs::read_to_string(&page).unwrap()) {
            seen += 1;
            let name: Arc<Path> = Arc::from(page.as_path());
            let place = format!("{}:{line}", page.display());
            match tamis::config::read(&as_file(&block), Some(&name), &|_| None) {
                Ok(pipeline) => {
                    let conditions = Conditions { ends: false, bounded: false, ..Conditions::of(&pipeline, Some(3)) };
                    if let Err(findings) = plan(&pipeline, library(), &conditions) {
                        wrong.push(format!("{place}: {findings:#?}"));
                    }
                }
                Err((findings, _)) => wrong.push(format!("{place}: {findings:#?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 10, "{seen} blocks");
}

/// Codes in quotes, in all that is no test and does not explain codes.
fn raised() -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for path in ["host/src", "transforms", "guest-sdk/src"].iter().flat_map(|below| files(below, ".rs")) {
        let name = path.to_string_lossy().into_owned();
        if name.contains("/codes/") || name.ends_with("tests.rs") || name.contains("/tests/") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for quoted in code.split('"').filter(|part| part.len() < 30) {
            let is_code = ["P-", "D-", "W-"].iter().any(|kind| quoted.starts_with(kind))
                && quoted.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-');
            if is_code {
                codes.insert(quoted.to_string());
            }
        }
    }
    codes
}

#[test]
fn every_code_that_is_raised_is_explained_and_every_explanation_is_of_a_code_that_is_raised() {
    let explained: BTreeSet<String> = codes::all().map(|entry| entry.code.to_string()).collect();
    let raised = raised();
    assert!(raised.len() > 40, "{raised:?}");
    let missing: Vec<&String> = raised.difference(&explained).collect();
    let idle: Vec<&String> = explained.difference(&raised).collect();
    assert!(missing.is_empty(), "raised and not explained: {missing:?}");
    assert!(idle.is_empty(), "explained and never raised: {idle:?}");
}

/// What dead letters say is explained as well.
#[test]
fn every_failure_of_a_record_is_explained() {
    const CALLS: [&str; 6] = [
        "Failure::of_sink(\"",
        ".failure(\"",
        "Failure::permanent(\"",
        "Broken { code: \"",
        "code: \"",
        "const CODE: &str = \"",
    ];
    let mut raised = BTreeSet::new();
    for path in ["host/src", "transforms"].iter().flat_map(|below| files(below, ".rs")) {
        let name = path.to_string_lossy().into_owned();
        if name.contains("/codes/")
            || name.ends_with("tests.rs")
            || name.contains("/tests/")
            || name.contains("/script/")
        {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let found = CALLS.iter().flat_map(|call| code.split(call).skip(1)).map(|rest| rest.split('"').next().unwrap());
        raised.extend(found.filter(|code| code.starts_with(|c: char| c.is_ascii_lowercase())).map(str::to_string));
    }
    let explained: BTreeSet<String> = codes::failures().map(|entry| entry.code.to_string()).collect();
    let missing: Vec<&String> = raised.difference(&explained).collect();
    assert!(raised.len() > 10 && missing.is_empty(), "raised and not explained: {missing:?}");
    // Codecs make theirs of a variable.
    let idle: Vec<&String> = explained.difference(&raised).filter(|code| *code != "json").collect();
    assert!(idle.is_empty(), "explained and never raised: {idle:?}");
}

/// Findings of guests have codes as well, and those of ours are explained.
#[test]
fn bundled_guests_raise_only_codes_that_are_explained() {
    for path in files("transforms", ".rs") {
        let text = std::fs::read_to_string(&path).unwrap();
        for call in [".error(\"", ".warning(\"", ".note(\""] {
            for part in text.split(call).skip(1) {
                let code = part.split('"').next().unwrap();
                assert!(codes::find(code).is_some(), "{}: {code}", path.display());
            }
        }
    }
}

#[test]
fn explain_names_the_nearest_legal_settings() {
    let folder = Folder::new("explain");
    let said = folder.run(&["explain", "d-no2"]).exits(0).out();
    for part in ["D-NO2", "keep last", "output: upsert", "emit: close", "Rules:"] {
        assert!(said.contains(part), "`{part}` is not in:\n{said}");
    }
    folder.run(&["explain", "D-NO9"]).exits(2).says(&["perhaps D-NO"]);
}

/// What `plan` prints is a pipeline file, and planned again it is the same file.
#[test]
fn a_file_with_every_default_means_what_the_file_meant() {
    let folder = Folder::new("plan-again");
    for path in files("examples", ".yaml") {
        if path.to_string_lossy().contains("custom-key") {
            continue;
        }
        let first = folder.run(&["plan", "--quiet", &path.to_string_lossy()]).exits(0).out();
        // Beside the example, so that its files are found.
        let again = path.with_file_name(format!("planned-{}.yaml", std::process::id()));
        std::fs::write(&again, &first).unwrap();
        let second = folder.run(&["plan", "--quiet", &again.to_string_lossy()]);
        std::fs::remove_file(&again).unwrap();
        assert_eq!(second.exits(0).out(), first, "{}", path.display());
        for part in ["order: ", "emit: ", "; a row leaves ", "changes later: ", "changelog: "] {
            assert!(first.contains(part), "`{part}` is not in the plan of {}:\n{first}", path.display());
        }
    }
}

/// The table of what can happen on Kafka names tests that are there, for every row.
#[test]
fn every_row_of_the_fault_table_has_its_tests() {
    let sources: Vec<String> = ["tests", "host/src"]
        .iter()
        .flat_map(|below| files(below, ".rs"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let is_test = |name: &str| {
        sources.iter().any(|text| text.contains(&format!("    fn {name}(")) || text.contains(&format!("\nfn {name}(")))
    };
    let page = std::fs::read_to_string(root().join("tests/kafka/README.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #")).collect();
    assert_eq!(rows.len(), 25, "rows");
    for (at, row) in rows.iter().enumerate() {
        assert!(row.starts_with(&format!("| {} |", at + 1)), "{row}");
        let names: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test: {row}");
        let missing: Vec<&&str> = names.iter().filter(|name| !is_test(name)).collect();
        assert!(missing.is_empty(), "{missing:?} of row {}", at + 1);
    }
}
