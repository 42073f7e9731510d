//! The guest `dedup` in the real host against an independent reference of the rules: random streams, settings, cuts,
//! restarts and crashes, in every cell of the decision table.

mod reference;
mod scripts;
mod table;
mod words;

use table::Cell;

/// Streams of each cell.
const STREAMS: u64 = 6;

#[test]
fn every_legal_cell_does_what_the_rules_say() {
    let cells = Cell::all();
    let mut named = Vec::new();
    for (number, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.code(true).is_ok()) {
        let seeds = (0..STREAMS).map(|stream| number as u64 * 1000 + stream);
        let text: String =
            scripts::HEAD.to_string() + &seeds.map(|seed| scripts::test(*cell, seed)).collect::<String>();
        crate::cases::passes(&cell.name(), &text);
        named.push(cell.name());
    }
    // The table of this slice: each legal cell was named, each once.
    named.dedup();
    assert_eq!(named.len(), 236, "legal cells of the slice: {named:#?}");
}

#[test]
fn every_other_cell_is_refused_with_its_code() {
    let refused: String =
        Cell::all().iter().filter_map(|cell| Some(scripts::refusal(*cell, cell.code(false).err()?))).collect();
    crate::cases::passes("refused cells", &(scripts::HEAD.to_string() + &refused));
}
