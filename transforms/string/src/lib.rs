//! The codec `string`: one field, the whole payload as UTF-8 text. It has no members, so every path but the empty one is
//! missing.

use tamis_guest::{Cell, Codec, Column, Decoded, DecodedColumn, Failure, Value, failure::RowFailure, kind};

struct Text {
    /// Of each path wanted: is it the whole document?
    whole: Vec<bool>,
}

tamis_guest::codec!(Text, include_str!("../manifest.json"));

impl Codec for Text {
    fn open(_params: &Value, paths: &[String]) -> Result<Text, String> {
        Ok(Text { whole: paths.iter().map(String::is_empty).collect() })
    }

    fn decode(&mut self, payloads: &Column) -> Decoded {
        let mut columns = vec![DecodedColumn::with_capacity(payloads.len()); self.whole.len()];
        let mut failures = Vec::new();
        for (row, payload) in payloads.cells().enumerate() {
            let error = if payload.is_none() { None } else { std::str::from_utf8(payload.bytes).err() };
            if let Some(error) = &error {
                let text = format!("not UTF-8 from byte {} on", error.valid_up_to());
                failures.push(Failure::permanent("utf8", text).at(row as u32));
            }
            for (column, whole) in columns.iter_mut().zip(&self.whole) {
                match (payload.is_none() || error.is_some(), *whole) {
                    (true, _) => column.push_none(kind::NULL),
                    (false, true) => column.push(kind::TEXT, payloads.offsets[row], payload.bytes.len() as u32),
                    (false, false) => column.push_none(kind::MISSING),
                }
            }
        }
        Decoded { columns, heap: Vec::new(), failures }
    }

    fn encode(&mut self, columns: &[Column]) -> (Column, Vec<RowFailure>) {
        let mut failures = Vec::new();
        let Some(documents) = columns.first() else { return Default::default() };
        let mut payloads = Column::with_capacity(documents.len(), documents.data.len());
        for (row, cell) in documents.cells().enumerate() {
            match cell.kind {
                kind::MISSING | kind::NULL => payloads.push(Cell::NULL),
                kind::TEXT | kind::NUMBER => payloads.push(Cell::bytes(cell.bytes)),
                kind::BOOL => payloads.push(Cell::bytes(if cell.bytes == [1] { b"true" } else { b"false" })),
                kind::BYTES if std::str::from_utf8(cell.bytes).is_ok() => payloads.push(cell),
                _ => match (cell.as_i64(), cell.as_f64()) {
                    (Some(n), _) => payloads.push(Cell::bytes(n.to_string().as_bytes())),
                    (_, Some(n)) => payloads.push(Cell::bytes(n.to_string().as_bytes())),
                    _ => {
                        let text = "string writes one text, number or boolean; this is something else";
                        failures.push(Failure::permanent("string", text).at(row as u32));
                        payloads.push(Cell::NULL);
                    }
                },
            }
        }
        (payloads, failures)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn codec() -> Text {
        Text::open(&Value::Null, &[String::new()]).unwrap()
    }

    #[test]
    fn the_whole_payload_is_text_and_what_is_not_utf8_fails() {
        let mut payloads = Column::default();
        payloads.push(Cell::bytes("né".as_bytes()));
        payloads.push(Cell::bytes(&[b'a', 0xff]));
        payloads.push(Cell::NULL);
        let decoded = codec().decode(&payloads);
        assert_eq!(decoded.cell(&payloads, 0, 0), Cell::text("né"));
        assert_eq!(decoded.cell(&payloads, 0, 2), Cell::NULL);
        assert_eq!(decoded.failures.len(), 1);
        let failure = &decoded.failures[0];
        assert_eq!((failure.row, failure.category, failure.code.as_str()), (1, 2, "utf8"));
    }

    #[test]
    fn scalars_are_written_as_text_and_containers_fail() {
        let mut documents = Column::default();
        documents.push(Cell::text("a"));
        documents.push_i64(kind::INT64, -7);
        documents.push_bool(true);
        documents.push_bytes(kind::NUMBER, b"1.50");
        documents.push(Cell::NULL);
        documents.push_bytes(kind::MAP, b"");
        let (payloads, failures) = codec().encode(&[documents]);
        let written: Vec<_> = payloads.cells().map(|cell| cell.as_bytes()).collect();
        assert_eq!(&written[..4], [Some(&b"a"[..]), Some(b"-7"), Some(b"true"), Some(b"1.50")]);
        assert_eq!(written[4], None);
        assert_eq!((failures.len(), failures[0].row), (1, 5));
    }
}
