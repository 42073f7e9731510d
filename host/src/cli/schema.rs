//! `schema`: the JSON Schema of pipeline files, for editors.

use std::path::PathBuf;

use super::exit::Failure;
use super::load;
use super::output::{Reply, Session};
use crate::config::schema::{GuestParams, schema};
use crate::guest::World;
use crate::plan::Guests;

/// Arguments of `schema`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Merge in the parameters of the guests that are there
    #[arg(long)]
    pub with_guests: bool,
}

/// The verb.
pub fn main(args: &Args, session: &mut Session) -> Result<Reply, Failure> {
    let mut guests = Vec::new();
    if args.with_guests {
        let library = load::library(session)?;
        let beside = PathBuf::from("pipeline.yaml");
        for listed in library.list(Some(&beside)).into_iter().filter(|l| l.problem.is_none()) {
            let Ok(module) = library.find(&listed.name, Some(&beside)) else { continue };
            if matches!(module.world(), World::Transform | World::Keyed) {
                guests.push(GuestParams { name: listed.name, params: module.manifest().params.clone() });
            }
        }
    }
    let schema = schema(&guests);
    Ok(Reply::new(format!("{schema:#}\n"), schema))
}
