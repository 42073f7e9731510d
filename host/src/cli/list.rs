//! `list`: the guests that are there.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::exit::Failure;
use super::load::{self, count};
use super::output::{Reply, Session, printable};

/// Arguments of `list`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to list
    #[arg(value_enum, default_value_t = What::Guests)]
    pub what: What,
    /// A pipeline file: also the modules beside it
    #[arg(long, value_name = "FILE")]
    pub beside: Option<PathBuf>,
}

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// Guests that pipelines may use
    Guests,
    /// What a guest can be
    Worlds,
}

const WORLDS: [(&str, &str); 4] = [
    ("codec-guest", "bytes to fields and back; stands in `decode` and `encode`"),
    ("transform-guest", "keeps, drops, changes, splits, routes rows; stands in `stages`"),
    ("keyed-guest", "as a transform, with state by key; stands in `stages`, with a `key`"),
    ("key-guest", "makes the key of a record; stands in `key`"),
];

/// The verb.
pub fn main(args: &Args, session: &mut Session) -> Result<Reply, Failure> {
    if args.what == What::Worlds {
        let text: String = WORLDS.iter().map(|(name, about)| format!("{name:<16} {about}\n")).collect();
        let worlds: Vec<Value> = WORLDS.iter().map(|(name, about)| json!({ "name": name, "about": about })).collect();
        return Ok(Reply::new(text, json!({ "worlds": worlds })));
    }
    let library = load::library(session)?;
    // Without a file the folder one is in is that of a file that might stand here.
    let beside = args.beside.clone().unwrap_or_else(|| PathBuf::from("pipeline.yaml"));
    let listed = library.list(Some(&beside));
    let width = listed.iter().map(|l| l.name.len() + l.version.len() + 1).max().unwrap_or(0).max(12);
    let (mut text, mut guests) = (String::new(), Vec::new());
    for guest in &listed {
        let name = format!("{}@{}", guest.name, guest.version);
        let place = guest.file.as_ref().map_or_else(|| "bundled".to_string(), |f| f.display().to_string());
        text.push_str(&printable(&format!("{name:<width$}  {}\n", guest.about)));
        if guest.file.is_some() {
            text.push_str(&printable(&format!("{:<width$}  in {place}\n", "")));
        }
        if let Some(problem) = &guest.problem {
            text.push_str(&printable(&format!("{:<width$}  cannot be used: {problem}\n", "")));
        }
        guests.push(json!({
            "name": guest.name, "version": guest.version, "about": guest.about,
            "file": guest.file.as_ref().map(|f| f.display().to_string()), "problem": guest.problem,
        }));
    }
    let summary = count(listed.len(), "guest");
    Ok(Reply::new(text, json!({ "guests": guests })).summary(summary))
}
