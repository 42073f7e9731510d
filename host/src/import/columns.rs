//! The columns that a query keeps, as a `project` stage, and what of them the sink has elsewhere.

use serde_json::{Value, json};

use super::meaning::{Meaning, Meanings};
use super::relation::Output;
use super::stage::Dedup;
use super::table::Origin;
use super::{Import, Notes};
use crate::config::path::{Path, Root, Step};

impl Import<'_> {
    /// The columns that remain, as a stage; none if all do.
    pub fn projection(&self, meanings: &Meanings<'_>, notes: &mut Notes<'_>) -> Option<Value> {
        let span = self.statement.span;
        let sink_columns: Vec<String> = match (&self.statement.columns, self.sink) {
            (listed, _) if !listed.is_empty() => listed.clone(),
            (_, Some(sink)) => sink.columns.iter().map(|column| column.name.clone()).collect(),
            _ => Vec::new(),
        };
        let mut fields = Vec::new();
        let mut plain = Vec::new();
        for (place, Output { name, value }) in self.relation.columns.iter().enumerate() {
            let at = notes.place(&value.expr, span);
            let name = sink_columns.get(place).filter(|_| !self.relation.all).unwrap_or(name);
            match meanings.of_expr(value) {
                Meaning::Path(path) if path.root == Root::Timestamp && self.is_timestamp_of_sink(name) => {}
                Meaning::Path(path) => {
                    plain.push(path.clone());
                    fields.push(field(&path, name));
                }
                Meaning::Bound(bound) if bound == "window_time" => {
                    notes.note("window_time is window_end less a millisecond: left out", at);
                }
                Meaning::Bound(bound) => {
                    let path = Path { root: Root::Value, steps: vec![Step::Member(bound)] };
                    plain.push(path.clone());
                    fields.push(field(&path, name));
                }
                Meaning::ProcessingTime => notes.note("processing time is no field of a record: left out", at),
                Meaning::Computed(_) => {
                    let text = format!(
                        "`{}` is computed: a pipeline keeps fields, it does not compute them. Left out",
                        value.expr
                    );
                    notes.warn("W-SQL", &text, at, "a transform guest of your own");
                }
            }
        }
        if self.relation.all || fields.is_empty() || self.is_whole_value(&plain) {
            return None;
        }
        Some(json!({ "uses": "project", "id": "columns", "with": { "fields": fields } }))
    }

    /// Whether these are all columns that the value has, in their order.
    fn is_whole_value(&self, paths: &[Path]) -> bool {
        let Some(table) = self.source else { return false };
        let columns = table.columns.iter().filter(|column| matches!(column.origin, Origin::Record));
        let whole: Vec<Path> =
            columns.map(|column| Path { root: Root::Value, steps: vec![Step::Member(column.name.clone())] }).collect();
        whole == paths
    }

    /// Whether a column of the sink is the timestamp of its records, which they keep by themselves.
    fn is_timestamp_of_sink(&self, name: &str) -> bool {
        let column = self.sink.and_then(|sink| sink.column(name));
        column.is_some_and(|column| matches!(&column.origin, Origin::Metadata(from) if from == "timestamp"))
    }

    /// Whether the sink's timestamp is the event time, which lies elsewhere in the record.
    pub fn writes_event_time(&self, dedup: &Dedup, meanings: &Meanings<'_>) -> bool {
        let Some(sink) = self.sink else { return false };
        sink.columns.iter().zip(&self.relation.columns).any(|(column, output)| {
            let is_timestamp = matches!(&column.origin, Origin::Metadata(from) if from == "timestamp");
            is_timestamp
                && matches!(meanings.of_expr(&output.value), Meaning::Path(path) if path.root != Root::Timestamp && Some(&path) == dedup.time_path.as_ref())
        })
    }

    pub fn shows_bounds(&self, meanings: &Meanings<'_>) -> bool {
        let named =
            self.relation.columns.iter().any(|column| matches!(meanings.of_expr(&column.value), Meaning::Bound(_)));
        self.relation.all || named
    }
}

/// A field of the guest `project`; named if its name is another.
fn field(path: &Path, name: &str) -> Value {
    if path.last_name() == name && path.root == Root::Value && path.steps.len() == 1 {
        json!(path.to_string())
    } else {
        json!({ "field": path.to_string(), "name": name })
    }
}

/// Where the columns are picked before the deduplication: its upserts have a key of their own, so a column that is the
/// key of the record must be taken before. That works only while all that it compares stays where it is.
pub fn before(dedup: &Dedup, columns: &Value, stages: &[Value]) -> Option<usize> {
    let fields = columns["with"]["fields"].as_array()?;
    let of_key = |field: &Value| field["field"].as_str().is_some_and(|path| path == "key" || path.starts_with("key."));
    let order = dedup.with.get("order").and_then(Value::as_array).into_iter().flatten();
    let compared = dedup.key.iter().chain(&dedup.time_path).map(|path| json!(path.to_string())).chain(order.cloned());
    let stays = |path: Value| {
        let text = path.as_str().unwrap_or_default();
        !text.starts_with("value") || fields.contains(&path)
    };
    let works = dedup.updates && fields.iter().any(of_key) && compared.map(stays).all(|stays| stays);
    works.then(|| stages.iter().position(|stage| stage["uses"] == "dedup"))?
}
