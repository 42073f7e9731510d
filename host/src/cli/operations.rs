//! Where a run tells of itself: the addresses that its pipelines name, one server for the process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::exit::Failure;
use super::output::Session;
use crate::config::pipeline::{Pipeline, Source};
use crate::ops::{Board, server};

/// Serves health and metrics where the pipelines say. An input that ends needs no such place: without one that was
/// asked for it does as well.
/// Gives an address at which it serves, if there is one.
pub fn serve(session: &Session, board: &Arc<Board>, pipelines: &[&Pipeline]) -> Result<Option<SocketAddr>, Failure> {
    let mut wanted: BTreeMap<&str, bool> = BTreeMap::new();
    for pipeline in pipelines {
        if let Some(address) = pipeline.run.http.as_deref() {
            let lasts = match &pipeline.source {
                Source::File { follow, .. } => *follow,
                Source::Stdin { .. } => false,
                Source::Kafka(source) => source.until.is_none(),
            };
            *wanted.entry(address).or_default() |= lasts || address != server::ADDRESS;
        }
    }
    let mut serving = server::Serving::default();
    for (address, must) in wanted {
        match server::listen(address) {
            Ok((listener, moved)) => {
                let at = listener.local_addr().map_or(address.to_owned(), |at| at.to_string());
                if moved && !must {
                    // Nobody looks for it there; orders find it by the state directory.
                    tracing::debug!("health and metrics are at http://{at}");
                } else if moved {
                    session.say(&format!("warning: {address} is taken: health and metrics are at http://{at}"));
                } else if session.verbose > 0 || address.ends_with(":0") {
                    session.say(&format!("health and metrics are at http://{at}"));
                }
                serving.listeners.push(listener);
            }
            Err(_) if !must => {}
            Err(text) => {
                return Err(Failure::environment(text).help("another address at `run.http`, or `run.http: none`"));
            }
        }
    }
    let address = serving.listeners.first().and_then(|listener| listener.local_addr().ok());
    server::start(Arc::clone(board), serving)
        .map(|()| address)
        .map_err(|error| Failure::environment(format!("a thread cannot be started: {error}")))
}
