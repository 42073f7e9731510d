//! The click example on embedded defaults: no Kafka, no configuration, one minute to a result.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::setup::{self, cargo};
use crate::steps;

/// Builds guests and host, runs `examples/clicks`, prints its rows as the table of the tutorial.
pub fn run() -> Result<()> {
    setup::prepare()?;
    steps::run(
        "building guests and host (long the first time, quick after that)",
        cargo().args(["build", "-p", "tamis"]),
    )?;
    steps::say("tamis run examples/clicks/pipeline.yaml (the first click per address, page and hour)");
    let mut tamis = cargo();
    tamis.args([
        "run",
        "--quiet",
        "-p",
        "tamis",
        "--bin",
        "tamis",
        "--",
        "--quiet",
        "run",
        "examples/clicks/pipeline.yaml",
    ]);
    let output = tamis.stderr(Stdio::inherit()).output().context("cannot start tamis")?;
    if !output.status.success() {
        bail!("the example did not run ({})", output.status);
    }
    table(&String::from_utf8_lossy(&output.stdout))?;
    println!(
        "\nFour rows are those of the tutorial. The fifth is of the window that is still open there: here the input\n\
         ends, and the end closes every window. Pipeline, data and more words: examples/clicks/README.md"
    );
    Ok(())
}

/// Prints the rows, one JSON object a line, in columns.
fn table(rows: &str) -> Result<()> {
    let columns = ["window_start", "window_end", "ip_address", "url"];
    println!("{:>22} {:>22} {:>12} {:>31}", columns[0], columns[1], columns[2], columns[3]);
    for line in rows.lines() {
        let row: Value = serde_json::from_str(line).with_context(|| format!("not a row: {line}"))?;
        let cell = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or("?").to_string();
        println!("{:>22} {:>22} {:>12} {:>31}", cell(columns[0]), cell(columns[1]), cell(columns[2]), cell(columns[3]));
    }
    Ok(())
}
