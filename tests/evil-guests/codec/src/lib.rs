//! A codec that misbehaves as `how` says. Otherwise: the whole payload is a text, and a text is the whole payload.

#![cfg_attr(not(target_arch = "wasm32"), allow(dead_code))]

use serde_json::Value;
use tamis_guest::{Cell, Codec, Column, Decoded, DecodedColumn, Failure, Level, failure::RowFailure, kind, log};

struct EvilCodec {
    how: String,
    paths: usize,
}

tamis_guest::codec!(EvilCodec, include_str!("../manifest.json"));

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
        "loop-decode" => forever(),
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

impl Codec for EvilCodec {
    fn open(params: &Value, paths: &[String]) -> Result<EvilCodec, String> {
        let how = params["how"].as_str().unwrap_or_default().to_string();
        if how == "loop-open" {
            forever();
        }
        Ok(EvilCodec { how, paths: paths.len() })
    }

    fn decode(&mut self, payloads: &Column) -> Decoded {
        resources(&self.how);
        let is_trap = |cell: Cell<'_>| cell.bytes == b"trap";
        assert!(!(self.how == "trap" && payloads.cells().any(is_trap)), "evil: payload");
        let mut column = DecodedColumn::with_capacity(payloads.len());
        for (row, payload) in payloads.cells().enumerate() {
            match payload.is_none() {
                true => column.push_none(kind::NULL),
                false => column.push(kind::TEXT, payloads.offsets[row], payload.bytes.len() as u32),
            }
        }
        let mut decoded = Decoded { columns: vec![column; self.paths], ..Decoded::default() };
        let (rows, length) = (payloads.len() as u32, payloads.data.len() as u32);
        if rows == 0 || self.paths == 0 {
            return decoded;
        }
        let first = &mut decoded.columns[0];
        match self.how.as_str() {
            "output" => decoded.heap = vec![0; 48 << 20],
            "columns" => decoded.columns.push(DecodedColumn::default()),
            "kinds-short" => first.kinds.truncate(rows as usize - 1),
            "spans-short" => first.spans.truncate(2 * rows as usize - 1),
            "span-beyond" => first.spans[..2].copy_from_slice(&[length, 1]),
            "kind" => first.kinds[0] = 0x99,
            "unchanged" => {
                first.kinds[0] = kind::UNCHANGED;
                first.spans[..2].copy_from_slice(&[0, 0]);
            }
            "utf8" => {
                first.kinds[0] = kind::TEXT;
                first.spans[..2].copy_from_slice(&[length, 1]);
                decoded.heap = vec![0xff];
            }
            "failure-row" => decoded.failures.push(Failure::permanent("evil", "evil").at(rows)),
            _ => {}
        }
        decoded
    }

    fn encode(&mut self, columns: &[Column]) -> (Column, Vec<RowFailure>) {
        if self.how == "loop-encode" {
            forever();
        }
        let mut payloads = Column::default();
        for cell in columns.iter().flat_map(Column::cells) {
            match (cell.is_none(), self.how.as_str()) {
                (true, _) => payloads.push(Cell::NULL),
                (false, "encode-kind") => payloads.push(Cell { kind: kind::TEXT, bytes: cell.bytes }),
                (false, _) => payloads.push(Cell::bytes(cell.bytes)),
            }
        }
        if self.how == "encode-short" {
            payloads.pop();
        }
        (payloads, Vec::new())
    }
}
