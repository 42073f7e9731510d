//! `completions`: what a shell needs to complete commands.

use clap::CommandFactory;
use serde_json::json;

use super::exit::Failure;
use super::output::{Reply, Session};

/// Arguments of `completions`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// The verb.
pub fn main(args: &Args, _session: &mut Session) -> Result<Reply, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "tamis", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let result = json!({ "shell": args.shell.to_string(), "script": script });
    Ok(Reply::new(script, result))
}
