//! Payloads to columns.

use tamis_guest::document::Builder;
use tamis_guest::failure::RowFailure;
use tamis_guest::{Column, Decoded, kind};

use crate::index::Index;
use crate::wanted::{Results, Taker, Wanted};
use crate::{careful, fast, tree};

/// Decodes batches for one set of paths. Scratch memory is kept between batches.
#[derive(Debug)]
pub struct Decoder {
    wanted: Wanted,
    index: Index,
    builder: Builder,
}

impl Decoder {
    /// For these paths (`user.id`, `["a.b"]`, `tags[0]`, `""` for the whole document). The error says which is wrong.
    pub fn new(paths: &[String]) -> Result<Decoder, String> {
        Ok(Decoder { wanted: Wanted::new(paths)?, index: Index::default(), builder: Builder::new() })
    }

    /// Reads every row whole, whatever the paths: a row that is not JSON fails with code `json`. Values are spans into
    /// the payloads where the bytes there are the cell's, else into the heap. Null payloads are null in every column.
    pub fn decode(&mut self, payloads: &Column) -> Decoded {
        let rows = payloads.kinds.len();
        let mut results = Results::new(&self.wanted, rows, payloads.data.len());
        let mut failures = Vec::new();
        for (row, (bounds, &cell)) in payloads.offsets.windows(2).zip(&payloads.kinds).enumerate() {
            results.row = row;
            if cell <= kind::NULL {
                results.fill(&self.wanted, kind::NULL);
                continue;
            }
            let (start, end) = (bounds[0] as usize, bounds[1] as usize);
            let rest = payloads.data.get(start..).unwrap_or_default();
            let length = end.saturating_sub(start);
            let mut taker = Taker { wanted: &mut self.wanted, results: &mut results, start };
            if !fast::row(rest, length, &mut self.index, &mut taker) {
                taker.results.fill(taker.wanted, kind::MISSING);
                let bytes = rest.get(..length).unwrap_or_default();
                if let Err(wrong) = careful::row(bytes, &mut taker) {
                    results.fill(&self.wanted, kind::MISSING);
                    failures.push(failure(row, wrong.to_string()));
                    continue;
                }
            }
            if !results.containers.is_empty() && !self.build(payloads, &mut results) {
                results.fill(&self.wanted, kind::MISSING);
                failures.push(failure(row, "a member name is longer than 65,535 bytes".to_owned()));
            }
        }
        Decoded { failures, ..results.finish(&self.wanted) }
    }

    /// Makes documents of the containers that a row has where a path asks for one.
    #[inline(never)]
    fn build(&mut self, payloads: &Column, results: &mut Results) -> bool {
        let containers = std::mem::take(&mut results.containers);
        let mut fits = true;
        for &(result, from, to) in &containers {
            let text = payloads.data.get(from..to).unwrap_or_default();
            self.builder.clear();
            fits &= tree::build(text, &mut self.builder);
            let offset = results.heap.len();
            let kind = self.builder.finish_into(&mut results.heap);
            results.put(result, kind, results.payloads + offset, results.heap.len() - offset);
        }
        results.containers = containers;
        results.containers.clear();
        fits
    }
}

fn failure(row: usize, text: String) -> RowFailure {
    RowFailure { row: row as u32, category: 2, code: "json".to_owned(), text }
}
