//! What a run does that is held up, stopped, or follows what grows: through the program, as its user sees it.

use std::process::{Child, Output};
use std::time::Duration;

use tamis_tests::program::{Folder, Ran};

use super::faults::evil_guests;

mod asked;
mod follow;
mod held;
mod stages;
mod stop;

/// Waits until something is so; half a minute is enough on any machine.
#[track_caller]
fn wait_for(what: &str, done: impl Fn() -> bool) {
    for _ in 0..600 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("half a minute was not enough: {what}");
}

fn signal(child: &Child, name: &str) {
    let sent = std::process::Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Asks for a stop, and gives what was said.
fn stop(child: Child) -> Ran {
    signal(&child, "TERM");
    let output: Output = child.wait_with_output().unwrap();
    Ran(output)
}

/// A pipeline of one evil stage over records `{"n": ..}`.
fn evil(name: &str, with: &str, more: &str, records: u32) -> Folder {
    let folder = Folder::new(name);
    let input: String = (0..records).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    folder.write("in", input);
    folder.write(
        "p.yaml",
        format!(
            "version: 1\nname: p\nsource: {{ file: in }}\nstages:\n  - {{ uses: evil-stage, id: e, key: value.n, \
             state: {{ unbounded: true }}, with: {with} }}\nsink: {{ file: out }}\n{more}"
        ),
    );
    folder
}

const RUN: [&str; 4] = ["--modules", "MODULES", "run", "p.yaml"];

/// The arguments of a run that knows the evil guests.
fn run() -> Vec<String> {
    RUN.map(|word| if word == "MODULES" { evil_guests().display().to_string() } else { word.to_owned() }).to_vec()
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

fn lines(numbers: impl Iterator<Item = u32>) -> String {
    numbers.map(|n| format!("{{\"n\":{n}}}\n")).collect()
}

#[test]
fn a_failure_that_passes_costs_time_and_nothing_else() {
    let folder = evil("passing", "{ how: passing, n: 3, times: 2 }", "", 8);
    let began = std::time::Instant::now();
    folder.run(&words(&run())).exits(0).says(&["evil: not now", "trying again for 300s"]);
    assert!(began.elapsed() >= Duration::from_millis(900), "two pauses, of 300 and 600 ms");
    assert_eq!(folder.read("out"), lines(0..8));
}

#[test]
fn a_failure_that_does_not_pass_in_time_counts() {
    let retry = "errors: { retry: { for: 700ms, max_delay: 400ms }, dead_letter: { file: dead } }\n";
    let folder = evil("not-passing", "{ how: passing, n: 3, times: 1000 }", retry, 8);
    folder.run(&words(&run())).exits(0).says(&["1 dead-lettered"]);
    assert_eq!(folder.read("out"), lines((0..8).filter(|n| *n != 3)));
    let dead: serde_json::Value = serde_json::from_str(folder.read("dead").trim()).unwrap();
    assert_eq!(dead["headers"]["tamis.error.code"], "busy");
    // At once, after 300 ms, after 700 ms.
    assert_eq!(dead["headers"]["tamis.error.attempts"], "3");
    let none = evil("no-retry", "{ how: passing, n: 3, times: 1000 }", "errors: { retry: 0s }\n", 8);
    none.run(&words(&run())).exits(1).says(&["in/0/3", "busy"]);
    assert_eq!(none.read("out"), lines(0..3));
}

#[test]
fn a_full_state_pauses_the_run_until_something_is_forgotten() {
    let folder = Folder::new("pause");
    folder.write("in", lines(0..5));
    folder.write(
        "p.yaml",
        "version: 1\nname: p\nsource: { file: in }\nstages:\n  - uses: dedup\n    id: d\n    key: value.n\n    state: { \
         max_entries: 2, retention: { for: 700ms, clock: processing } }\nsink: { file: out }\n",
    );
    folder.run(&["run", "p.yaml"]).exits(0).says(&["paused until there is room", "evict-oldest"]);
    assert_eq!(folder.read("out"), lines(0..5));
}

#[test]
fn state_that_takes_more_of_the_disk_than_it_may_pauses_the_run_and_nothing_is_lost() {
    let folder = Folder::new("quota");
    let pipeline = |quota: &str| {
        format!(
            "version: 1\nname: p\nsource: {{ file: in }}\nstages:\n  - {{ uses: dedup, id: d, key: value.n }}\nsink: {{ \
             file: out }}\nstate: {{ quota: {quota} }}\nrun: {{ commit: 5ms }}\nlimits: {{ batch: {{ rows: 100 }} }}\n"
        )
    };
    folder.write("in", lines(0..30_000));
    folder.write("p.yaml", pipeline("300KB"));
    let child = folder.start(&["run", "p.yaml"]);
    wait_for("some output", || folder.read("out").lines().count() > 1000);
    // It does not end: what is paused waits.
    std::thread::sleep(Duration::from_secs(2));
    let paused = folder.read("out").lines().count();
    assert!(paused < 25_000, "{paused} rows left although there was no room");
    stop(child).exits(0).says(&["paused until there is room", "`state.quota` is 300KB"]);
    folder.write("p.yaml", pipeline("1GB"));
    folder.run(&["run", "p.yaml"]).exits(0);
    assert_eq!(folder.read("out"), lines(0..30_000));
}

#[test]
fn a_secret_reaches_the_guest_and_is_not_shown() {
    let folder = Folder::new("secret");
    folder.write("in", "{\"card\":\"4711\"}\n{\"card\":\"4712\"}\n");
    folder.write("token", "hush-hush\n");
    folder.write(
        "p.yaml",
        "version: 1\nname: p\nsource: { file: in }\nstages:\n  - { uses: mask, with: { fields: [value.card], text: { \
         from_file: token } } }\nsink: { file: out }\n",
    );
    let plan = folder.run(&["plan", "p.yaml"]).exits(0);
    assert!(plan.out().contains("from_file") && !plan.out().contains("hush-hush"), "{}", plan.out());
    let plan = folder.run(&["plan", "--json", "p.yaml"]).exits(0);
    assert!(!plan.out().contains("hush-hush"), "{}", plan.out());
    folder.run(&["run", "p.yaml"]).exits(0);
    assert_eq!(folder.read("out"), "{\"card\":\"hush-hush\"}\n".repeat(2));
    std::fs::remove_file(folder.path("token")).unwrap();
    folder.run(&["run", "p.yaml"]).exits(2).says(&["p.yaml:5:", "cannot read the secret in token"]);
}
