//! The driver of keyed guests: turns one call into per-row and per-wake code (section 4 of the contract).

mod table;

pub(crate) use table::Table;
