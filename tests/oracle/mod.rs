//! The guest `dedup` in the real host against an independent reference of the rules: random streams, settings, cuts,
//! restarts and crashes, in every cell of the decision table; and the reference itself against the cases.

mod cases;
mod coverage;
mod judge;
mod reference;
mod scripts;
mod state;
mod table;
mod text;
mod windows;
mod words;
