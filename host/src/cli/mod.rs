//! The verbs: one file each, all of the same shape.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use exit::Failure;
use output::{Color, Reply, Session};

pub mod codes;
pub mod completions;
pub mod control;
pub mod dedup;
pub mod exit;
pub mod explain;
pub mod forget;
pub mod import;
pub mod inspect;
pub mod list;
pub mod load;
pub mod operations;
pub mod output;
pub mod plan;
pub mod reload;
pub mod reset;
pub mod run;
pub mod schema;
pub mod summary;
pub mod test;
pub mod validate;

/// Streams through WebAssembly guests: unique, filtered, masked; from Kafka to Kafka, from file to file.
#[derive(Parser, Debug)]
#[command(name = "tamis", version, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
    /// One JSON envelope on stdout instead of text
    #[arg(long, global = true)]
    json: bool,
    /// When to use colour
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,
    /// Say only what was asked for, and errors
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Say more; twice: much more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// A folder with modules; also TAMIS_MODULES
    #[arg(long, global = true, value_name = "DIR")]
    modules: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Run pipelines
    Run(run::Args),
    /// Check pipeline files without running them
    #[command(alias = "lint")]
    Validate(validate::Args),
    /// Show what would run: every default, what each stage does, modules, state
    Plan(plan::Args),
    /// Run the tests in pipeline files
    Test(test::Args),
    /// List the guests that are there
    List(list::Args),
    /// Show what a guest is, what it wants and what it costs
    Inspect(inspect::Args),
    /// Say what a code means, and the way out
    Explain(explain::Args),
    /// Turn Flink SQL into a pipeline file
    Import(import::Args),
    /// Print the JSON Schema of pipeline files, for editors
    Schema(schema::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Make a stream unique, without a pipeline file
    Dedup(dedup::Args),
    /// Move a pipeline on Kafka to another place in its input
    Reset(reset::Args),
    /// Free what a pipeline knows of a key, or all it knows; it may run meanwhile
    Forget(forget::Args),
    /// Let a running pipeline go on under its file as it is now
    Reload(reload::Args),
}

/// Parses, conducts, answers the exit code. `environment`: what the verbs may know of it.
pub fn main(arguments: impl Iterator<Item = OsString>, environment: BTreeMap<String, String>) -> u8 {
    let arguments: Vec<OsString> = arguments.collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && arguments.iter().any(|a| a == "--json") => {
            return output::print_envelope("tamis", &Err(usage(&error)));
        }
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { exit::Exit::Invalid.code() } else { exit::Exit::Ok.code() };
        }
    };
    let mut session = session(&cli, environment);
    let (command, outcome) = dispatch(&cli.verb, &mut session);
    session.finish(command, outcome)
}

/// A mistake in the arguments, without the text that clap wraps round it.
fn usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    Failure::invalid(first.strip_prefix("error: ").unwrap_or(first))
        .help("`tamis --help` shows the verbs, `tamis VERB --help` its arguments")
}

fn session(cli: &Cli, environment: BTreeMap<String, String>) -> Session {
    let colour_wanted = |terminal: bool| match cli.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let refused = environment.get("NO_COLOR").is_some_and(|v| !v.is_empty());
            let dumb = environment.get("TERM").is_some_and(|v| v == "dumb");
            terminal && !refused && !dumb
        }
    };
    let modules = cli.modules.iter().cloned().chain(environment.get("TAMIS_MODULES").map(PathBuf::from)).collect();
    Session {
        json: cli.json,
        color_err: colour_wanted(std::io::stderr().is_terminal()),
        color_out: colour_wanted(std::io::stdout().is_terminal()),
        quiet: cli.quiet,
        verbose: cli.verbose,
        modules,
        environment,
        sources: BTreeMap::new(),
    }
}

fn dispatch(verb: &Verb, session: &mut Session) -> (&'static str, Result<Reply, Failure>) {
    match verb {
        Verb::Run(args) => ("run", run::main(args, session)),
        Verb::Validate(args) => ("validate", validate::main(args, session)),
        Verb::Plan(args) => ("plan", plan::main(args, session)),
        Verb::List(args) => ("list", list::main(args, session)),
        Verb::Inspect(args) => ("inspect", inspect::main(args, session)),
        Verb::Explain(args) => ("explain", explain::main(args, session)),
        Verb::Import(args) => ("import", import::main(args, session)),
        Verb::Schema(args) => ("schema", schema::main(args, session)),
        Verb::Completions(args) => ("completions", completions::main(args, session)),
        Verb::Test(args) => ("test", test::main(args, session)),
        Verb::Dedup(args) => ("dedup", dedup::main(args, session)),
        Verb::Reset(args) => ("reset", reset::main(args, session)),
        Verb::Forget(args) => ("forget", forget::main(args, session)),
        Verb::Reload(args) => ("reload", reload::main(args, session)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use clap::CommandFactory;
    use serde_json::Value;

    use super::*;

    /// Arguments for each verb, good or bad: the envelope is the same.
    const CALLS: [&[&str]; 15] = [
        &["run", "no-such-file.yaml"],
        &["validate", "no-such-file.yaml"],
        &["plan", "no-such-file.yaml"],
        &["test", "no-such-file.yaml"],
        &["list", "worlds"],
        &["list"],
        &["inspect", "no-such-guest"],
        &["explain", "P-UNIT"],
        &["import", "no-such-file.sql"],
        &["schema"],
        &["completions", "bash"],
        &["reset", "no-such-file.yaml", "--to", "latest"],
        &["forget", "no-such-file.yaml", "--all"],
        &["reload", "no-such-file.yaml"],
        &["dedup", "--from", "no-such-file.jsonl", "--to", "-", "--key", "id"],
    ];

    #[test]
    fn every_verb_answers_with_the_same_envelope() {
        for name in Cli::command().get_subcommands().map(|c| c.get_name().to_string()) {
            assert!(CALLS.iter().any(|call| call[0] == name), "{name} is not tried");
        }
        for call in CALLS {
            let arguments = ["tamis", "--json"].into_iter().chain(call.iter().copied());
            let (command, outcome) = match Cli::try_parse_from(arguments) {
                Ok(cli) => dispatch(&cli.verb, &mut session(&cli, BTreeMap::new())),
                Err(error) => (call[0], Err(usage(&error))),
            };
            let envelope: Value = output::envelope(command, &outcome);
            let names: Vec<&String> = envelope.as_object().unwrap().keys().collect();
            assert_eq!(names, ["command", "ok", "summary", "result", "error"], "{call:?}");
            assert_eq!(envelope["command"], call[0]);
            assert!(envelope["error"].is_null() || envelope["ok"] == false, "{call:?}");
            if let Some(error) = envelope["error"].as_object() {
                assert!(error["message"].is_string() && error["help"].is_array() && error["findings"].is_array());
            }
        }
    }

    #[test]
    fn the_arguments_are_sound() {
        Cli::command().debug_assert();
    }
}
