//! A guest's state imports during one call, checked against the contract.

use super::{Begin, Keyed, Kept};
use crate::batch::{Batch, Column, Image, Origin};
use crate::guest::call::{Dues, Refusal, Stamps, State, View};

/// The state while one guest call has it.
#[derive(Debug)]
pub struct Session {
    keyed: Keyed,
    begin: Begin,
}

/// What is left when a call is over.
#[derive(Debug)]
pub struct Finished {
    /// The state, with the writes of the call in it.
    pub keyed: Keyed,
    /// The rows of the stage's input, back.
    pub batch: Batch,
    /// After `Fault::Full`: rows of the call before this one fit for certain. A call of one row is judged exactly.
    pub full_at: Option<u32>,
}

impl Session {
    pub(super) fn new(keyed: Keyed, begin: Begin) -> Session {
        Session { keyed, begin }
    }

    /// Takes the state back.
    pub fn finish(self) -> Finished {
        Finished { keyed: self.keyed, batch: self.begin.batch, full_at: None }
    }
}

impl Finished {
    /// What a slot kept as this number when the call began.
    pub fn kept(&self, _slot: u32, _number: u8) -> Option<&Kept> {
        None
    }

    /// The image a slot kept as this number when the call began.
    pub fn image(&self, slot: u32, number: u8) -> Option<&std::sync::Arc<Image>> {
        match self.kept(slot, number)? {
            Kept::Image(image) => Some(image),
            Kept::Mark(_) => None,
        }
    }

    /// Position of what a slot kept as this number when the call began.
    pub fn origin(&self, slot: u32, number: u8) -> Option<Origin> {
        self.kept(slot, number).map(Kept::origin)
    }

    /// Position of the mark that `seen` found for a row of the call.
    pub fn found(&self, _row: u32) -> Option<Origin> {
        None
    }
}

impl State for Session {
    fn seen(&mut self, _space: i64, _expires: &[i64], _clears: &[u32], _refresh: bool) -> Result<Vec<u8>, Refusal> {
        Ok(Vec::new())
    }
    fn due(&mut self) -> Result<Dues, Refusal> {
        Ok(Dues::default())
    }
    fn open(&mut self, _rows: &[u32], _spaces: &[i64]) -> Result<View, Refusal> {
        Ok(View::default())
    }
    fn remove(&mut self, _slots: &[u32]) -> Result<(), Refusal> {
        Ok(())
    }
    fn put(&mut self, _slots: &[u32], _values: &Column, _expires: &[i64]) -> Result<(), Refusal> {
        Ok(())
    }
    fn keep(&mut self, _slots: &[u32], _numbers: &[u8], _rows: &[u32]) -> Result<(), Refusal> {
        Ok(())
    }
    fn mark(&mut self, _slots: &[u32], _numbers: &[u8], _rows: &[u32]) -> Result<(), Refusal> {
        Ok(())
    }
    fn wake(&mut self, _slots: &[u32], _wakes: &Stamps, _ranks: &Column) -> Result<(), Refusal> {
        Ok(())
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}
