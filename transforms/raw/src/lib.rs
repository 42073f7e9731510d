//! The codec `raw`: one field, the whole payload as bytes. It has no members, so every path but the empty one is missing.

use tamis_guest::{Cell, Codec, Column, Decoded, DecodedColumn, Failure, Value, failure::RowFailure, kind};

struct Raw {
    /// Of each path wanted: is it the whole document?
    whole: Vec<bool>,
}

tamis_guest::codec!(Raw, include_str!("../manifest.json"));

impl Codec for Raw {
    fn open(_params: &Value, paths: &[String]) -> Result<Raw, String> {
        Ok(Raw { whole: paths.iter().map(String::is_empty).collect() })
    }

    fn decode(&mut self, payloads: &Column) -> Decoded {
        let mut columns = vec![DecodedColumn::with_capacity(payloads.len()); self.whole.len()];
        for (row, payload) in payloads.cells().enumerate() {
            for (column, whole) in columns.iter_mut().zip(&self.whole) {
                match (payload.is_none(), *whole) {
                    (true, _) => column.push_none(kind::NULL),
                    (false, true) => column.push(kind::BYTES, payloads.offsets[row], payload.bytes.len() as u32),
                    (false, false) => column.push_none(kind::MISSING),
                }
            }
        }
        Decoded { columns, ..Decoded::default() }
    }

    fn encode(&mut self, columns: &[Column]) -> (Column, Vec<RowFailure>) {
        let mut failures = Vec::new();
        let Some(documents) = columns.first() else { return Default::default() };
        let mut payloads = Column::with_capacity(documents.len(), documents.data.len());
        for (row, cell) in documents.cells().enumerate() {
            match cell.kind {
                kind::MISSING | kind::NULL => payloads.push(Cell::NULL),
                kind::BYTES | kind::TEXT => payloads.push(Cell::bytes(cell.bytes)),
                _ => {
                    let text = "raw writes bytes and text; this is something else";
                    failures.push(Failure::permanent("raw", text).at(row as u32));
                    payloads.push(Cell::NULL);
                }
            }
        }
        (payloads, failures)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn raw(paths: &[&str]) -> Raw {
        let paths: Vec<_> = paths.iter().map(|path| path.to_string()).collect();
        Raw::open(&Value::Null, &paths).unwrap()
    }

    #[test]
    fn the_whole_payload_is_bytes_and_has_no_members() {
        let mut payloads = Column::default();
        payloads.push(Cell::bytes(&[1, 0, 255]));
        payloads.push(Cell::NULL);
        payloads.push(Cell::bytes(b"x"));
        let decoded = raw(&["", "a"]).decode(&payloads);
        assert_eq!(decoded.cell(&payloads, 0, 0), Cell::bytes(&[1, 0, 255]));
        assert_eq!(decoded.cell(&payloads, 0, 1), Cell::NULL);
        assert_eq!(decoded.cell(&payloads, 0, 2), Cell::bytes(b"x"));
        assert_eq!(decoded.cell(&payloads, 1, 2), Cell::MISSING);
    }

    #[test]
    fn what_is_neither_bytes_nor_text_cannot_be_written() {
        let mut documents = Column::default();
        documents.push(Cell::text("é"));
        documents.push_i64(kind::INT64, 7);
        documents.push(Cell::NULL);
        let (payloads, failures) = raw(&[""]).encode(&[documents]);
        assert_eq!(payloads.cell(0), Cell::bytes("é".as_bytes()));
        assert_eq!(payloads.cell(2), Cell::NULL);
        assert_eq!(failures.len(), 1);
        assert_eq!((failures[0].row, failures[0].code.as_str()), (1, "raw"));
    }
}
