//! Every example runs as its README says and gives what it says.

use std::process::Stdio;

use tamis_tests::program::{Folder, root};

/// Runs a pipeline file of an example and compares standard output with the file of what is expected.
#[track_caller]
fn check(example: &str, pipeline: &str, expected: &str) {
    let folder = Folder::new(&format!("example-{example}-{pipeline}"));
    let place = root().join("examples").join(example);
    let file = place.join(pipeline);
    let ran = folder.run(&["run", &file.to_string_lossy()]).exits(0);
    let path = place.join(expected);
    if std::env::var_os("TAMIS_BLESS").is_some() {
        std::fs::write(&path, ran.out()).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap();
    assert_eq!(ran.out(), wanted, "{}", ran.err());
}

#[test]
fn clicks() {
    check("clicks", "pipeline.yaml", "expected.jsonl");
}

#[test]
fn users() {
    check("users", "pipeline.yaml", "expected.jsonl");
}

#[test]
fn stock_movements() {
    check("stock-movements", "pipeline.yaml", "expected.jsonl");
    check("stock-movements", "append.yaml", "expected-append.jsonl");
}

#[test]
fn logs() {
    for name in ["latest", "by-service", "hourly", "event-time"] {
        check("logs", &format!("{name}.yaml"), &format!("expected-{name}.jsonl"));
    }
}

#[test]
fn custom_key() {
    let example = root().join("examples/custom-key");
    let target = root().join("target/guests-build");
    tamis_guest_build::build(&[example.join("guest")], &example.join("modules"), &target).unwrap();
    check("custom-key", "pipeline.yaml", "expected.jsonl");
}

/// The tests in pipeline files are part of what an example says.
#[test]
fn tests_in_examples_pass() {
    let folder = Folder::new("example-tests");
    let file = root().join("examples/custom-key/pipeline.yaml");
    custom_key();
    folder.run(&["test", &file.to_string_lossy()]).exits(0);
}

#[test]
fn the_quick_way_of_the_users_example_works() {
    let folder = Folder::new("example-quick");
    let users = std::fs::read_to_string(root().join("examples/users/users.jsonl")).unwrap();
    let values = users.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        format!("{}\n", line["value"])
    });
    folder.write("users.jsonl", values.collect::<String>());
    let mut command = folder.command(&["dedup", "--from", "users.jsonl", "--to", "unique.jsonl", "--key", "user_id"]);
    assert!(command.stderr(Stdio::null()).status().unwrap().success());
    assert_eq!(folder.read("unique.jsonl").lines().count(), 8);
}
