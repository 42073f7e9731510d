//! To come.

use super::exit::Failure;
use super::output::{Reply, Session};

/// Runs the tests in pipeline files.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Pipeline files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<std::path::PathBuf>,
}

/// The verb.
pub fn main(_args: &Args, _session: &mut Session) -> Result<Reply, Failure> {
    Err(Failure::runtime("`test` is not built yet"))
}
