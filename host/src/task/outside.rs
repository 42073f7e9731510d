//! What a changelog has of a task besides its state.

use super::Sealed;

/// What was found in a changelog that is no state, and is to be taken away once, or some day.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    /// What is left of spaces that were dropped: changes that take it away.
    pub dead: Vec<Sealed>,
    /// Numbers of the sheaves that stand, by stage.
    pub sheaves: Vec<(String, Vec<u128>)>,
}
