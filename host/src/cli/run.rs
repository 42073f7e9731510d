//! To come.

use super::exit::Failure;
use super::output::{Reply, Session};

/// Runs pipelines.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Pipeline files; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<std::path::PathBuf>,
}

/// The verb.
pub fn main(_args: &Args, _session: &mut Session) -> Result<Reply, Failure> {
    Err(Failure::runtime("`run` is not built yet"))
}
