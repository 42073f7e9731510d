//! Cells to compact JSON.

use tamis_guest::document::{Doc, Node, Storage};
use tamis_guest::failure::RowFailure;
use tamis_guest::{Column, kind};

/// One column, the whole document, to payloads. Null and missing stay null. Bytes, NaN and infinities have no JSON
/// form: those rows fail with code `json`.
pub fn encode(column: &Column) -> (Column, Vec<RowFailure>) {
    let rows = column.kinds.len();
    let mut payloads = Column::with_capacity(rows, column.data.len());
    let mut failures = Vec::new();
    for row in 0..rows {
        let cell = column.cell(row);
        if cell.kind <= kind::NULL {
            payloads.push_bytes(kind::NULL, &[]);
            continue;
        }
        let from = payloads.data.len();
        match value(cell.kind, cell.bytes, &mut payloads.data) {
            Ok(()) => payloads.kinds.push(kind::BYTES),
            Err(what) => {
                payloads.data.truncate(from);
                payloads.kinds.push(kind::NULL);
                failures.push(RowFailure {
                    row: row as u32,
                    category: 2,
                    code: "json".to_owned(),
                    text: what.to_owned(),
                });
            }
        }
        payloads.offsets.push(payloads.data.len() as u32);
    }
    (payloads, failures)
}

fn value(kind: u8, bytes: &[u8], into: &mut Vec<u8>) -> Result<(), &'static str> {
    if matches!(Storage::of(kind), Some(Storage::Array | Storage::Object)) {
        let doc = Doc::unchecked(bytes).map_err(|malformed| malformed.what)?;
        return node(doc.root(), into);
    }
    scalar(kind, bytes, into)
}

fn node(value: Node<'_>, into: &mut Vec<u8>) -> Result<(), &'static str> {
    if let Some(bytes) = value.scalar() {
        return scalar(value.kind(), bytes, into);
    }
    let object = Storage::of(value.kind()) == Some(Storage::Object);
    into.push(if object { b'{' } else { b'[' });
    let mut first = true;
    for child in value.children() {
        if !first {
            into.push(b',');
        }
        first = false;
        if object {
            text(child.name_bytes(), into);
            into.push(b':');
        }
        node(child, into)?;
    }
    into.push(if object { b'}' } else { b']' });
    Ok(())
}

fn scalar(kind: u8, bytes: &[u8], into: &mut Vec<u8>) -> Result<(), &'static str> {
    match Storage::of(kind) {
        Some(Storage::Nothing) => into.extend_from_slice(b"null"),
        Some(Storage::Boolean) => into.extend_from_slice(if bytes == [1] { b"true" } else { b"false" }),
        Some(Storage::Number) => into.extend_from_slice(bytes),
        Some(Storage::Text) => text(bytes, into),
        Some(Storage::Eight) => {
            let eight: [u8; 8] = bytes.try_into().map_err(|_| "a number that is not 8 bytes")?;
            match kind {
                kind::FLOAT64 => float(f64::from_le_bytes(eight), into, |number| format!("{number:?}"))?,
                kind::FLOAT32 => float(f64::from_le_bytes(eight), into, |number| format!("{:?}", number as f32))?,
                _ => integer(i64::from_le_bytes(eight), into),
            }
        }
        Some(Storage::Bytes) => return Err("bytes have no JSON form"),
        _ => return Err("a cell of this kind has no JSON form"),
    }
    Ok(())
}

/// The shortest digits that read back as the same float; a whole number keeps `.0`.
fn float(number: f64, into: &mut Vec<u8>, format: impl Fn(f64) -> String) -> Result<(), &'static str> {
    if !number.is_finite() {
        return Err("NaN and infinities have no JSON form");
    }
    into.extend_from_slice(format(number).as_bytes());
    Ok(())
}

fn integer(number: i64, into: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        into.push(b'-');
    }
    into.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// Text in quotes; only what must be is escaped.
fn text(text: &[u8], into: &mut Vec<u8>) {
    into.push(b'"');
    let mut rest = text;
    loop {
        let (plain, tail) = rest.split_at(plain_length(rest));
        into.extend_from_slice(plain);
        let Some(&byte) = tail.first() else { break };
        let short = match byte {
            b'"' | b'\\' => byte,
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            _ => 0,
        };
        if short > 0 {
            into.extend_from_slice(&[b'\\', short]);
        } else {
            let digit = |half: u8| b"0123456789abcdef".get(usize::from(half)).copied().unwrap_or(b'0');
            into.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
        }
        rest = tail.get(1..).unwrap_or_default();
    }
    into.push(b'"');
}

/// Bytes before the first that must be escaped.
fn plain_length(text: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let mut at = 0;
    while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        // A high bit is set if one of the bytes is below the limit; it may also be set above such a byte.
        let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGH;
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let slash = below(word ^ (ONES * u64::from(b'\\')), 1);
        if below(word, 0x20) | quote | slash != 0 {
            break;
        }
        at += 8;
    }
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\').unwrap_or(rest.len())
}
