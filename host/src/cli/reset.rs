//! `reset`: where a pipeline on Kafka goes on, when it shall not go on where it stopped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::exit::Failure;
use super::load;
use super::output::{Reply, Session};
use super::run::{failure, judge};
use crate::config::kafka::Start;
use crate::config::pipeline::Source;
use crate::config::values;
use crate::kafka::client::Clients;
use crate::kafka::reset::{self, Forget, Place};
use crate::kafka::topics::Topics;
use crate::plan::{self, Conditions};

/// Moves a pipeline on Kafka to another place in its input; it must not run meanwhile.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The pipeline file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where to go on: earliest, latest, or an instant such as 2026-01-01T00:00:00Z
    #[arg(long, value_name = "PLACE")]
    pub to: String,
    /// Begin with empty state; without it, what was seen stays seen
    #[arg(long)]
    pub forget: bool,
}

/// The verb.
pub fn main(args: &Args, session: &mut Session) -> Result<Reply, Failure> {
    let to = match args.to.as_str() {
        "earliest" => Start::Earliest,
        "latest" => Start::Latest,
        instant => Start::At(values::instant(instant).map_err(|_| {
            Failure::invalid(format!("`{instant}` is no place to go on"))
                .help("`--to earliest`, `--to latest`, or an instant: `--to 2026-01-01T00:00:00Z`")
        })?),
    };
    let library = load::library(session)?;
    let pipeline = load::pipeline(session, &args.file, &library)?;
    if !matches!(pipeline.source, Source::Kafka(_)) {
        return Err(Failure::invalid("only pipelines on Kafka are reset")
            .help("a pipeline on files begins anew without its state directory"));
    }
    let base = args.file.parent().unwrap_or(Path::new("."));
    let clients = Clients::of(&pipeline, &session.environment, base).map_err(failure)?;
    let topics = Topics::new(&clients).map_err(failure)?;
    let mut conditions = Conditions::of(&pipeline, None);
    conditions.partitions = crate::kafka::run::partitions(&pipeline, &topics).map_err(failure)?;
    let plan = plan::plan(&pipeline, &library, &conditions).map_err(|f| load::refused(&args.file, f))?;
    let forget = if args.forget { Forget::All } else { Forget::Nothing };
    let moved =
        reset::reset(&Arc::new(plan), &clients, &topics, Place::To(to), &forget, &judge(&library)).map_err(failure)?;
    let lines = moved.iter().map(|m| {
        let from = m.from.map_or("none".to_owned(), |offset| offset.to_string());
        format!("{}/{}: {from} -> {}, {} entries kept\n", m.place.0, m.place.1, m.to, m.entries)
    });
    let text: String = lines.collect();
    let places = moved.iter().map(
        |m| json!({ "topic": &*m.place.0, "partition": m.place.1, "from": m.from, "to": m.to, "entries": m.entries }),
    );
    let result = json!({ "pipeline": pipeline.name, "partitions": places.collect::<Vec<_>>(), "forgot": args.forget });
    Ok(Reply::new(text, result).summary(format!("{} goes on there", pipeline.name)))
}
