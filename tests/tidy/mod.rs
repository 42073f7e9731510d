//! The invariants that a look at the files can prove (ARCHITECTURE.md, 1 to 3), and the length of files.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Rust files below a folder of the project: path relative to the root, and text.
fn files(below: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(below)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "no Rust file below {below}");
    found
}

/// The lines of a file that are code of the product: no comments, nothing behind the first test module.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let until_tests = text.lines().enumerate().take_while(|(_, line)| line.trim() != "#[cfg(test)]");
    until_tests.filter(|(_, line)| !line.trim_start().starts_with("//")).map(|(i, line)| (i + 1, line))
}

fn is_test(file: &str) -> bool {
    file.ends_with("_tests.rs") || file.ends_with("/tests.rs") || file.contains("/tests/")
}

#[track_caller]
fn check(word: &str, below: &str, allowed: &[&str]) {
    let mut breaches = Vec::new();
    for (file, text) in files(below) {
        if is_test(&file) || allowed.iter().any(|a| file.starts_with(a)) {
            continue;
        }
        breaches.extend(code(&text).filter(|(_, line)| line.contains(word)).map(|(n, l)| format!("{file}:{n}: {l}")));
    }
    assert!(breaches.is_empty(), "`{word}` may stand only in {allowed:?}:\n{}", breaches.join("\n"));
}

#[test]
fn one_module_owns_each_library() {
    check("wasmtime::", "host/src", &["host/src/guest/"]);
    check("sled::", "host/src", &["host/src/checkpoint"]);
    check("bincode::", "host/src", &["host/src/format"]);
    check("rdkafka::", "host/src", &["host/src/kafka/"]);
    check("sqlparser::", "host/src", &["host/src/import/"]);
}

#[test]
fn the_core_does_no_io_and_reads_no_clock() {
    let core =
        ["time", "batch", "key", "columns", "keyed", "stage", "outcome", "chain", "decode", "encode", "task", "plan"];
    for (file, text) in files("host/src") {
        let name = file.trim_start_matches("host/src/");
        let module = name.split(['/', '.']).next().unwrap();
        if !core.contains(&module) || is_test(&file) {
            continue;
        }
        for word in ["std::fs", "std::io", "std::net", "std::env", "SystemTime", "Instant::now", "std::thread"] {
            let line = code(&text).find(|(_, line)| line.contains(word));
            assert!(line.is_none(), "{file}: `{word}` in the core: {line:?}");
        }
    }
}

#[test]
fn the_host_does_not_panic_on_purpose() {
    for word in [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!(", "static mut"] {
        check(word, "host/src", &[]);
    }
    for word in ["unsafe {", "unsafe_code"] {
        check(word, "host/src", &["host/src/kafka/raw"]);
    }
    check("process::exit", "host/src", &["host/src/main.rs"]);
}

#[test]
fn no_file_is_longer_than_600_lines() {
    for below in ["host", "guest-sdk", "transforms", "tests", "xtask", "examples"] {
        for (file, text) in files(below) {
            let lines = text.lines().count();
            assert!(lines <= 600, "{file} has {lines} lines: split it by concept");
        }
    }
}
