//! The server of a board: one thread, plain HTTP. Reading is free; what changes something needs the token of the board.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::Board;
use super::orders::{Done, Order, Refusal};
use crate::config::values;

/// Where operations are served if nothing else is said.
pub const ADDRESS: &str = "127.0.0.1:8484";
/// How often the thread looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);
/// How often it is looked whether an order was answered.
const SOON: Duration = Duration::from_millis(10);

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
        .route("/forget", post(forget))
        .route("/reload", post(reload))
        .with_state(board)
}

async fn index() -> &'static str {
    "tamis\n\n/livez    is the process alive\n/readyz   does every pipeline run\n/metrics  OpenMetrics\n/status   JSON\n\
     /forget   POST, with the token: free keyed state\n/reload   POST, with the token: read the pipeline files again\n"
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

type Told = (StatusCode, [(header::HeaderName, &'static str); 1], String);

fn tell(status: StatusCode, body: &Value) -> Told {
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{body}\n"))
}

fn refuse(status: StatusCode, why: &str) -> Told {
    tell(status, &json!({ "error": why }))
}

/// What whoever does not show the token is told.
fn stranger(board: &Board, headers: &HeaderMap) -> Option<Told> {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let known = shown.and_then(|shown| shown.strip_prefix("Bearer ")).is_some_and(|shown| same(shown, &board.token));
    let why = "this changes something: show the token in the file `control` of the state directory \
               (`Authorization: Bearer TOKEN`), or use `tamis forget` and `tamis reload`";
    (!known).then(|| refuse(StatusCode::UNAUTHORIZED, why))
}

/// Equal texts, in a time that tells nothing of where they differ.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

async fn forget(State(board): State<Arc<Board>>, headers: HeaderMap, body: String) -> Told {
    if let Some(told) = stranger(&board, &headers) {
        return told;
    }
    let wrong = |why: &str| refuse(StatusCode::BAD_REQUEST, why);
    let Ok(Value::Object(asked)) = serde_json::from_str(&body) else {
        return wrong(
            "the body is a JSON object: `{\"all\": true}` or `{\"record\": {..}}`, and \"pipeline\" if several run",
        );
    };
    if let Some(name) = asked.keys().find(|name| !["pipeline", "all", "record"].contains(&name.as_str())) {
        return wrong(&format!("`{name}` is unknown; there are `pipeline`, `all` and `record`"));
    }
    let order = match (asked.get("all"), asked.get("record")) {
        (Some(Value::Bool(true)), None) => Order::ForgetAll,
        (None, Some(record @ Value::Object(_))) => Order::Forget(record.to_string()),
        _ => return wrong("say what to forget: `{\"all\": true}`, or a record with the key: `{\"record\": {..}}`"),
    };
    let Some(seat) = board.find(asked.get("pipeline").and_then(Value::as_str)) else {
        return refuse(StatusCode::NOT_FOUND, "no such pipeline runs here");
    };
    match wait_for(seat.orders.ask(order)).await {
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "the pipeline has ended"),
        Some(Err(Refusal::Wrong(why))) => wrong(&why),
        Some(Err(Refusal::NotNow(why))) => refuse(StatusCode::SERVICE_UNAVAILABLE, &why),
        Some(Ok(done)) => {
            let tasks: Vec<Value> = done.iter().map(task).collect();
            tell(StatusCode::OK, &json!({ "pipeline": seat.pipeline(), "tasks": tasks }))
        }
    }
}

fn task(done: &Done) -> Value {
    let inputs = done.inputs.iter().map(|input| json!({ "topic": &*input.topic, "partition": input.partition }));
    json!({ "inputs": inputs.collect::<Vec<Value>>(), "forgotten": done.freed })
}

async fn reload(State(board): State<Arc<Board>>, headers: HeaderMap) -> Told {
    if let Some(told) = stranger(&board, &headers) {
        return told;
    }
    match wait_for(board.ask_reload()).await {
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "the process has ended"),
        Some(answer) => {
            let fine = answer["pipelines"].as_array().is_some_and(|all| all.iter().all(|one| one["ok"] == true));
            tell(if fine { StatusCode::OK } else { StatusCode::CONFLICT }, &answer)
        }
    }
}

/// Waits for an answer; none comes if whoever should give it is gone.
async fn wait_for<T>(heard: Receiver<T>) -> Option<T> {
    loop {
        match heard.try_recv() {
            Ok(answer) => return Some(answer),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => tokio::time::sleep(SOON).await,
        }
    }
}
