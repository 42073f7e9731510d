//! The server of a board: one thread, plain HTTP, reading only.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::Board;
use crate::config::values;

/// Where operations are served if nothing else is said.
pub const ADDRESS: &str = "127.0.0.1:8484";
/// How often the thread looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

/// What a board is served with.
#[derive(Debug, Default)]
pub struct Serving {
    /// Sockets that listen.
    pub listeners: Vec<TcpListener>,
}

/// Listens at an address. If it is taken, at any free port of the same host.
///
/// # Errors
/// The address is none, or is not of this machine; the text says so.
pub fn listen(address: &str) -> Result<(TcpListener, bool), String> {
    let address = values::address(address).map_err(|error| error.message)?;
    let (listener, moved) = match TcpListener::bind(address) {
        Ok(listener) => (listener, false),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let any = SocketAddr::new(address.ip(), 0);
            (TcpListener::bind(any).map_err(|error| format!("{any}: {error}"))?, true)
        }
        Err(error) => return Err(format!("{address}: {error}")),
    };
    listener.set_nonblocking(true).map_err(|error| format!("{address}: {error}"))?;
    Ok((listener, moved))
}

/// Serves in a thread of its own, until the board is closed.
///
/// # Errors
/// The thread cannot be started.
pub fn start(board: Arc<Board>, serving: Serving) -> std::io::Result<()> {
    std::thread::Builder::new().name("operations".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(serve(&board, serving)),
            Err(error) => tracing::error!("operations are not served: {error}"),
        }
    })?;
    Ok(())
}

async fn serve(board: &Arc<Board>, serving: Serving) {
    for listener in serving.listeners {
        let router = router(Arc::clone(board));
        if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
            tokio::spawn(async move { axum::serve(listener, router).await });
        }
    }
    while !board.is_closed() {
        tokio::time::sleep(LOOK).await;
    }
}

fn router(board: Arc<Board>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .with_state(board)
}

async fn index() -> &'static str {
    "tamis\n\n/livez    is the process alive\n/readyz   does every pipeline run\n/metrics  OpenMetrics\n/status   JSON\n"
}

async fn livez(State(board): State<Arc<Board>>) -> (StatusCode, String) {
    answer(board.dead())
}

async fn readyz(State(board): State<Arc<Board>>) -> (StatusCode, String) {
    answer(board.not_ready())
}

fn answer(reason: Option<String>) -> (StatusCode, String) {
    match reason {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

async fn metrics(State(board): State<Arc<Board>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], board.metrics())
}

async fn status(State(board): State<Arc<Board>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], format!("{}\n", board.status()))
}
