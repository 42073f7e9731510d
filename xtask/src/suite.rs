//! The tests, the guests, the benchmarks.

use std::process::Command;

use anyhow::{Result, bail};

use crate::chaos;
use crate::setup::{self, cargo};
use crate::steps;

/// Variable that makes tests rewrite what they expect.
const BLESS: &str = "TAMIS_BLESS";

/// Every test of the workspace, the loop of kills on Kafka, then format and lint where their components are installed.
pub fn test(arguments: &[String]) -> Result<()> {
    setup::prepare()?;
    // The guests first and alone: their build is part of the host's build script, where it could show no progress.
    steps::run(
        "building guests and host (long the first time, quick after that)",
        cargo().args(["build", "-p", "tamis"]),
    )?;
    let (mut passed, mut failed) = (0, 0);
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]).args(arguments);
    let succeeded = steps::lines("testing the workspace", &mut command, |line| {
        println!("{line}");
        if let Some((p, f)) = result(line) {
            passed += p;
            failed += f;
        }
    })?;
    // With a filter somebody wants one test, not all.
    if arguments.is_empty() {
        chaos::run(&[])?;
    }
    let tidy = format()? & lint()?;
    println!("{passed} passed, {failed} failed");
    if !succeeded && failed == 0 {
        bail!("the tests did not run to their end (a crate does not build, or a test took the process down)");
    }
    if failed > 0 {
        bail!("{failed} tests failed");
    }
    if !tidy {
        bail!("all tests passed, but format or lint has something to say (above)");
    }
    Ok(())
}

/// `test result: ok. 12 passed; 1 failed; ...` in numbers.
fn result(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |name: &str| {
        let before = rest.split(name).next()?.trim_end();
        before.rsplit(' ').next()?.parse().ok()
    };
    Some((number("passed")?, number("failed")?))
}

fn format() -> Result<bool> {
    if !installed("fmt") {
        steps::say("rustfmt is not installed: format not checked");
        return Ok(true);
    }
    Ok(steps::run("checking the format", cargo().args(["fmt", "--all", "--check"])).is_ok())
}

fn lint() -> Result<bool> {
    if !installed("clippy") {
        steps::say("clippy is not installed: lints not checked");
        return Ok(true);
    }
    let mut clippy = cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--quiet"]);
    Ok(steps::run("checking the lints", &mut clippy).is_ok())
}

fn installed(component: &str) -> bool {
    let mut command: Command = cargo();
    command.args([component, "--version"]).output().is_ok_and(|o| o.status.success())
}

/// The bundled guests, as the host embeds them.
pub fn guests() -> Result<()> {
    setup::prepare()?;
    steps::run("building the bundled guests", cargo().args(["build", "-p", "tamis"]))
}

/// The benchmarks; each prints its ratio.
pub fn bench(arguments: &[String]) -> Result<()> {
    setup::prepare()?;
    let mut command = cargo();
    command.args(["bench", "-p", "tamis-tests"]).args(arguments);
    steps::run("running the benchmarks (an optimised build: long the first time)", &mut command)
}

/// Tests with leave to rewrite the files they compare with.
pub fn bless(arguments: &[String]) -> Result<()> {
    setup::prepare()?;
    let mut command = cargo();
    command.args(["test", "--workspace"]).args(arguments).env(BLESS, "1");
    steps::run(
        "running the tests, which rewrite what they expect; look at the difference before you commit",
        &mut command,
    )
}
