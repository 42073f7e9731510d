//! To come.

use super::exit::Failure;
use super::output::{Reply, Session};

/// Makes a stream unique, without a pipeline file.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// The verb.
pub fn main(_args: &Args, _session: &mut Session) -> Result<Reply, Failure> {
    Err(Failure::runtime("`dedup` is not built yet"))
}
