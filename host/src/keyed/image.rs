//! Rows of a call in the form in which an entry keeps them.

use std::sync::Arc;

use super::Session;
use crate::batch::{Image, Origin, Owned, Payload};
use crate::time::NONE_YET;

const EMPTY_IMAGE: Image = Image {
    origin: Origin { input: 0, epoch: -1, offset: 0, child: 0 },
    timestamp: NONE_YET,
    event: NONE_YET,
    ingestion: NONE_YET,
    key: Owned::Null,
    value: Owned::Null,
    headers: Vec::new(),
    output_key: Owned::Null,
    kind: 0,
    arrival: 0,
};

impl Session {
    /// The image of a row of the call; of the row asked for last, the same one.
    pub(super) fn image(&mut self, row: u32) -> Arc<Image> {
        if let Some((last, image)) = &self.image
            && *last == row
        {
            return image.clone();
        }
        let image = Arc::new(self.make_image(row));
        self.image = Some((row, image.clone()));
        image
    }

    fn make_image(&self, row: u32) -> Image {
        let batch = &self.begin.batch;
        let at = self.begin.rows.get(row as usize).copied().unwrap_or(row) as usize;
        let time = |times: &[i64]| times.get(at).copied().unwrap_or(NONE_YET);
        let owned = |payload: Payload| match payload {
            Payload::Null => Owned::Null,
            Payload::Bytes(span) => Owned::Bytes(batch.bytes(span).into()),
            Payload::Cell(kind, span) => Owned::Cell(kind, batch.bytes(span).into()),
        };
        let output_key = self.begin.output_keys.as_ref().map(|keys| keys.cell(row as usize));
        let output_key = output_key.filter(|cell| !cell.is_null());
        let Some(source) = batch.rows.get(at) else { return EMPTY_IMAGE };
        Image {
            origin: source.origin,
            timestamp: source.timestamp,
            event: time(&batch.event.times),
            ingestion: time(&batch.ingestion.times),
            key: owned(source.key),
            value: owned(source.value),
            headers: batch.headers_of(source).to_vec(),
            output_key: output_key.map_or(Owned::Null, |cell| Owned::Cell(cell.kind, cell.bytes.into())),
            kind: source.kind as u8,
            arrival: source.arrival,
        }
    }

    /// Where a row of the call came from.
    pub(super) fn origin(&self, row: u32) -> Origin {
        let at = self.begin.rows.get(row as usize).copied().unwrap_or(row) as usize;
        self.begin.batch.rows.get(at).map(|row| row.origin).unwrap_or_default()
    }

    /// About what keeping a row takes.
    pub(super) fn row_bytes(&self, row: u32) -> u64 {
        let batch = &self.begin.batch;
        let at = self.begin.rows.get(row as usize).copied().unwrap_or(row) as usize;
        let Some(row) = batch.rows.get(at) else { return 0 };
        let len = |payload: Payload| match payload {
            Payload::Null => 0,
            Payload::Bytes(span) | Payload::Cell(_, span) => u64::from(span.len),
        };
        let headers = batch.headers_of(row).iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len));
        2 * len(row.key) + len(row.value) + headers.sum::<usize>() as u64
    }
}
