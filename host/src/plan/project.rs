//! What has to be decoded: the union of what the stages, their keys and event time name.

use super::{ColumnRef, Plan, Planned, WindowBounds};
use crate::config::path::{Path, Root};
use crate::config::pipeline::{KeyForm, Pipeline};

/// Paths below `value` and below `key`, each once.
#[derive(Debug, Default)]
pub struct Projection {
    /// Below `value`.
    pub value: Vec<Path>,
    /// Below `key`.
    pub key: Vec<Path>,
}

impl Projection {
    fn add(&mut self, path: &Path) {
        let paths = match path.root {
            Root::Value => &mut self.value,
            Root::Key => &mut self.key,
            _ => return,
        };
        if !paths.contains(path) {
            paths.push(path.clone());
        }
    }

    fn add_column(&mut self, column: &ColumnRef) {
        match column {
            ColumnRef::KeyField(path) | ColumnRef::ValueField(path) => self.add(path),
            ColumnRef::Content => self.add(&Path::whole(Root::Value)),
            _ => {}
        }
    }
}

/// Of a plan whose stages, clocks and encoders are settled.
pub fn project(plan: &Plan) -> Projection {
    let mut projection = Projection::default();
    for stage in &plan.stages {
        add_key(&mut projection, stage);
    }
    if plan.event_time {
        projection.add(&plan.pipeline.time.field);
    }
    for stage in &plan.stages {
        stage.reads.iter().for_each(|column| projection.add_column(column));
    }
    if plan.reencode_value || plan.stages.iter().any(|s| changes(s, Root::Value)) {
        projection.add(&Path::whole(Root::Value));
    }
    if plan.reencode_key || plan.stages.iter().any(|s| changes(s, Root::Key)) {
        projection.add(&Path::whole(Root::Key));
    }
    projection
}

fn add_key(projection: &mut Projection, stage: &Planned) {
    let Some(key) = &stage.key else { return };
    match &key.key.form {
        KeyForm::Fields(parts) => parts.iter().for_each(|part| projection.add(&part.path)),
        KeyForm::Whole { root, .. } => projection.add(root),
        KeyForm::Guest(_) => key.guest.iter().flat_map(|g| &g.reads).for_each(|column| projection.add_column(column)),
    }
}

/// Whether a stage writes into the value or the key: then the whole document is needed to write it again.
fn changes(stage: &Planned, root: Root) -> bool {
    let bounds = root == Root::Value && stage.traits.bounded_state && stage.traits.bounds == WindowBounds::Value;
    bounds
        || stage.writes.iter().any(|column| match column {
            ColumnRef::ValueField(_) => root == Root::Value,
            ColumnRef::KeyField(_) => root == Root::Key,
            _ => false,
        })
}

/// Whether a pipeline's event time can only come from record timestamps.
pub fn time_is_timestamp(pipeline: &Pipeline) -> bool {
    pipeline.time.field.root == Root::Timestamp
}
