//! The only user of wasmtime. Placeholder types until the engine lands: it replaces this file whole.
#![allow(clippy::todo)]

pub mod call;
use call::*;
use crate::batch::Column;
use crate::config::pipeline::Limits;
/// m
#[derive(Clone, Debug)] pub struct Module;
/// g
pub struct Guest;
/// o
#[allow(missing_docs)] pub enum Opening { Codec{params: String, paths: Vec<String>}, Transform{params: String, context: String}, Key{params: String} }
/// s
#[allow(missing_docs)] pub struct Shape { pub writes: usize, pub routes: usize, pub counters: usize }
#[allow(missing_docs)]
impl Module { pub fn name(&self)->&str{""} pub fn version(&self)->&str{""} pub fn digest(&self)->&str{""} pub fn guest(&self, _: Opening, _: Limits)->Guest{Guest} }
#[allow(missing_docs)]
impl Guest { pub fn decode(&mut self,_: &Column)->Result<Decoded,Fault>{todo!()} pub fn encode(&mut self,_: &[Column])->Result<(Column,Vec<RowFailure>),Fault>{todo!()} pub fn keys(&mut self,_: &[Column])->Result<(Column,Vec<RowFailure>),Fault>{todo!()}
pub fn process(&mut self, _: &Call, _: &Shape, _: Option<Box<dyn State>>)->(Result<Outcome,Fault>, Option<Box<dyn State>>){todo!()} pub fn discard(&mut self){} pub fn module(&self)->&Module{todo!()} }
