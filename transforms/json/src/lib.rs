//! The bundled codec `json` (RFC 8259).
//!
//! Decoding reads every row whole, and rejects what is not JSON, though it hands on only the fields that are wanted.
//! Read `decode` first, then `fast` (how nearly all rows go, over the `index` of quotes that `blocks` makes), `careful`
//! (the rest, and every error), `wanted` (which both fill). `encode` is the way back.
//!
//! Natively the same scanner is the benchmark's baseline: [`Decoder`].

mod blocks;
mod careful;
mod decode;
mod encode;
mod escape;
mod fast;
mod index;
mod tree;
mod wanted;

pub use decode::Decoder;
pub use encode::encode;

use tamis_guest::failure::RowFailure;
use tamis_guest::{Codec, Column, Decoded, Value};

tamis_guest::codec!(Json, include_str!("../manifest.json"));

/// The codec.
#[derive(Debug)]
pub struct Json {
    decoder: Decoder,
}

impl Codec for Json {
    fn open(_params: &Value, paths: &[String]) -> Result<Json, String> {
        Ok(Json { decoder: Decoder::new(paths)? })
    }

    fn decode(&mut self, payloads: &Column) -> Decoded {
        self.decoder.decode(payloads)
    }

    fn encode(&mut self, columns: &[Column]) -> (Column, Vec<RowFailure>) {
        columns.first().map(encode).unwrap_or_else(|| (Column::with_capacity(0, 0), Vec::new()))
    }
}

#[cfg(test)]
mod tests;
