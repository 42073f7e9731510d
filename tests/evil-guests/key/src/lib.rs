//! A key that misbehaves as `how` says; otherwise the key is `value.n`. It speaks to the bindings directly, since the SDK
//! would not let it.

#![cfg_attr(not(target_arch = "wasm32"), allow(dead_code))]

use std::cell::RefCell;

use serde_json::Value;
use tamis_guest::bindings::key_exports::Guest;
use tamis_guest::bindings::types::Column;
use tamis_guest::failure::RowFailure;
use tamis_guest::{Cell, Failure, Level, kind, log, log_panics};

struct Evil;

#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, missing_docs)]
mod export {
    use super::Evil;
    tamis_guest::bindings::key::export_key!(Evil with_types_in tamis_guest::bindings::key);
}

thread_local! {
    static PARAMS: RefCell<Value> = const { RefCell::new(Value::Null) };
}

fn forever() -> ! {
    let mut n = 0u64;
    loop {
        n = std::hint::black_box(n.wrapping_add(1));
    }
}

fn deeper(n: u64) -> u64 {
    let room = std::hint::black_box([n; 64]);
    if n == u64::MAX { room[0] } else { deeper(n + 1) + std::hint::black_box(room[7]) }
}

fn resources(how: &str) {
    match how {
        "loop-keys" => forever(),
        "memory" => {
            let mut all: Vec<Vec<u8>> = Vec::new();
            loop {
                all.push(std::hint::black_box(vec![1; 1 << 20]));
            }
        }
        "log" => {
            let line = "evil ".repeat(200);
            for _ in 0..10_000 {
                log(Level::Error, &line);
            }
        }
        "stack" => {
            std::hint::black_box(deeper(0));
        }
        _ => {}
    }
}

impl Guest for Evil {
    fn describe() -> String {
        include_str!("../manifest.json").to_string()
    }

    fn open(params: String) -> Result<Vec<String>, String> {
        log_panics();
        let params: Value = serde_json::from_str(&params).map_err(|e| e.to_string())?;
        let columns = match params["how"].as_str() {
            Some("loop-open") => forever(),
            Some("no-columns") => Vec::new(),
            _ => vec!["value.n".to_string()],
        };
        PARAMS.set(params);
        Ok(columns)
    }

    fn keys(columns: Vec<Column>) -> (Column, Vec<RowFailure>) {
        PARAMS.with_borrow(|params| {
            let how = params["how"].as_str().unwrap_or_default();
            resources(how);
            let rows = columns[0].len();
            let mut keys = Column::default();
            let mut failures = Vec::new();
            for (row, cell) in columns[0].cells().enumerate() {
                let n = cell.as_i64().or_else(|| cell.as_number()?.parse().ok());
                assert!(!(how == "trap" && n == params["n"].as_i64()), "evil: row");
                match (how, row) {
                    ("document", 0) => keys.push_bytes(kind::MAP, &[1]),
                    ("unchanged", 0) => keys.push(Cell::UNCHANGED),
                    ("utf8", 0) => keys.push_bytes(kind::TEXT, &[0xff]),
                    _ if cell.as_document().is_some() => keys.push(Cell::NULL),
                    _ => keys.push(cell),
                }
            }
            match how {
                "output" => keys.data = vec![0; 48 << 20],
                "rows" => keys.pop(),
                "offsets" => keys.offsets.push(u32::MAX),
                "failure-row" => failures.push(Failure::permanent("evil", "evil").at(rows as u32)),
                _ => {}
            }
            (keys, failures)
        })
    }
}
