//! All automation of the project: `cargo xtask VERB`.
//!
//! Every verb first sets up what is missing, says what it does, and is quick the second time. Nothing but Rust by
//! rustup and a C compiler is expected.

mod chaos;
mod demo;
mod kafka;
mod setup;
mod steps;
mod suite;

use std::process::ExitCode;

use anyhow::Result;

const HELP: &str = "\
usage: cargo xtask VERB

  demo     build everything and run the click example on embedded defaults
  test     build everything and run every test, fifty kills on Kafka, then format and lint
  guests   build the bundled guests
  bench    run the benchmarks and print their ratios
  chaos    kill, freeze and rob processes that run on Kafka, and count what they wrote
  kafka    start and stop Apache Kafka on this machine, and run its tools
  bless    rewrite expected files of the tests from what the code does now

Each sets up what is missing (the wasm32-unknown-unknown target) and says so.";

fn main() -> ExitCode {
    let verb = std::env::args().nth(1).unwrap_or_default();
    let rest: Vec<String> = std::env::args().skip(2).collect();
    let done = match verb.as_str() {
        "demo" => demo::run(),
        "test" => suite::test(&rest),
        "guests" => suite::guests(),
        "chaos" => chaos::run(&rest),
        "kafka" => kafka::run(&rest),
        "bench" => suite::bench(&rest),
        "bless" => suite::bless(&rest),
        "" | "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => {
            eprintln!("xtask: there is no verb `{other}`\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    report(done)
}

fn report(done: Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
