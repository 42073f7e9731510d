//! The codec `double`: one field, a binary64 number of eight bytes, big-endian, as Kafka's own serializer writes it. It
//! has no members, so every path but the empty one is missing. What bits a NaN has stays as it is.

use tamis_guest::{Cell, Codec, Column, Decoded, DecodedColumn, Failure, Value, failure::RowFailure, kind};

struct Double {
    /// Of each path wanted: is it the whole document?
    whole: Vec<bool>,
}

tamis_guest::codec!(Double, include_str!("../manifest.json"));

impl Codec for Double {
    fn open(_params: &Value, paths: &[String]) -> Result<Double, String> {
        Ok(Double { whole: paths.iter().map(String::is_empty).collect() })
    }

    fn decode(&mut self, payloads: &Column) -> Decoded {
        let mut columns = vec![DecodedColumn::with_capacity(payloads.len()); self.whole.len()];
        let mut heap = Vec::with_capacity(8 * payloads.len());
        let mut failures = Vec::new();
        for (row, payload) in payloads.cells().enumerate() {
            let number: Option<[u8; 8]> = if payload.is_none() { None } else { payload.bytes.try_into().ok() };
            if number.is_none() && !payload.is_none() {
                let text = format!("a double has 8 bytes, this has {}", payload.bytes.len());
                failures.push(Failure::permanent("double", text).at(row as u32));
            }
            // Behind the payloads in the address space of spans.
            let at = (payloads.data.len() + heap.len()) as u32;
            if let Some(number) = number {
                heap.extend_from_slice(&u64::from_be_bytes(number).to_le_bytes());
            }
            for (column, whole) in columns.iter_mut().zip(&self.whole) {
                match (number, *whole) {
                    (None, _) => column.push_none(kind::NULL),
                    (Some(_), true) => column.push(kind::FLOAT64, at, 8),
                    (Some(_), false) => column.push_none(kind::MISSING),
                }
            }
        }
        Decoded { columns, heap, failures }
    }

    fn encode(&mut self, columns: &[Column]) -> (Column, Vec<RowFailure>) {
        let mut failures = Vec::new();
        let Some(documents) = columns.first() else { return Default::default() };
        let mut payloads = Column::with_capacity(documents.len(), 8 * documents.len());
        for (row, cell) in documents.cells().enumerate() {
            if cell.is_none() {
                payloads.push(Cell::NULL);
                continue;
            }
            match number(cell) {
                Some(number) => payloads.push(Cell::bytes(&number.to_bits().to_be_bytes())),
                None => {
                    let text = "double writes a number; this is something else";
                    failures.push(Failure::permanent("double", text).at(row as u32));
                    payloads.push(Cell::NULL);
                }
            }
        }
        (payloads, failures)
    }
}

/// The number of a cell; what has more digits than a double takes is rounded.
fn number(cell: Cell<'_>) -> Option<f64> {
    let exact = || cell.as_number().and_then(|text| text.parse().ok());
    cell.as_f64().or_else(|| cell.as_i64().map(|n| n as f64)).or_else(exact)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn codec() -> Double {
        Double::open(&Value::Null, &[String::new(), "a".to_string()]).unwrap()
    }

    #[test]
    fn eight_bytes_are_a_number_and_anything_else_fails() {
        let mut payloads = Column::default();
        payloads.push(Cell::bytes(&1.5f64.to_be_bytes()));
        payloads.push(Cell::bytes(&[1, 2, 3]));
        payloads.push(Cell::NULL);
        payloads.push(Cell::bytes(&0x7ff8_0000_0000_0002u64.to_be_bytes()));
        let decoded = codec().decode(&payloads);
        assert_eq!(decoded.cell(&payloads, 0, 0).as_f64(), Some(1.5));
        assert_eq!(decoded.cell(&payloads, 1, 0), Cell::MISSING);
        assert_eq!(decoded.cell(&payloads, 0, 2), Cell::NULL);
        assert_eq!(decoded.cell(&payloads, 0, 3).as_f64().unwrap().to_bits(), 0x7ff8_0000_0000_0002);
        assert_eq!(decoded.failures.len(), 1);
        assert_eq!((decoded.failures[0].row, decoded.failures[0].code.as_str()), (1, "double"));
    }

    #[test]
    fn numbers_of_every_kind_are_written_and_the_rest_fails() {
        let mut documents = Column::default();
        documents.push_i64(kind::INT64, -7);
        documents.push_bytes(kind::NUMBER, b"1.50");
        documents.push_bytes(kind::FLOAT64, &f64::INFINITY.to_le_bytes());
        documents.push(Cell::NULL);
        documents.push(Cell::text("1"));
        let (payloads, failures) = codec().encode(&[documents]);
        let written: Vec<_> = payloads.cells().map(|cell| cell.as_bytes().map(<[u8]>::to_vec)).collect();
        let of = |number: f64| Some(number.to_be_bytes().to_vec());
        assert_eq!(&written[..4], [of(-7.0), of(1.5), of(f64::INFINITY), None]);
        assert_eq!((failures.len(), failures[0].row), (1, 4));
    }
}
