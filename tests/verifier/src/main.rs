//! Fills an input topic, and judges later what a dedup pipeline has made of it. An independent witness: it uses nothing
//! of the host, and knows of it only what is promised: of records with equal keys in one partition the first is kept,
//! as it came and in its order, exactly once, and its state is what was committed.
//!
//!     tamis-verifier fill  --brokers B --topic T --records N [--duplicates PERCENT] [--seed S] [--rate R]
//!     tamis-verifier check --brokers B --from T --to U --group G --changelog C [--records N] [--within SECONDS]
//!
//! `check` prints one JSON object and ends with 1 if anything is not as promised.

mod fill;
mod hash;
mod judge;
mod read;
mod state;

use std::collections::BTreeMap;
use std::process::ExitCode;

/// Arguments by name.
type Arguments = BTreeMap<String, String>;
/// What went wrong, for a person.
type Failure = String;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let named = named(arguments);
    let done = named.and_then(|named| match verb.as_str() {
        "fill" => fill::run(&named).map(|()| true),
        "check" => read::check(&named),
        _ => Err("usage: tamis-verifier fill|check --NAME VALUE ..".to_owned()),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("verifier: {failure}");
            ExitCode::from(2)
        }
    }
}

fn named(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
    let mut named = Arguments::new();
    while let Some(name) = arguments.next() {
        let name = name.strip_prefix("--").ok_or_else(|| format!("`{name}` is no --NAME"))?.to_owned();
        let value = arguments.next().ok_or_else(|| format!("--{name} wants a value"))?;
        named.insert(name, value);
    }
    Ok(named)
}

/// A text that must be there.
fn text<'a>(arguments: &'a Arguments, name: &str) -> Result<&'a str, Failure> {
    arguments.get(name).map(String::as_str).ok_or_else(|| format!("--{name} is missing"))
}

/// A number, or what stands for it.
fn number(arguments: &Arguments, name: &str, default: u64) -> Result<u64, Failure> {
    match arguments.get(name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| format!("--{name}: `{text}` is no number")),
    }
}
