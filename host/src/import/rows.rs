//! Rows given as values, as lines of a file that a pipeline reads in place of its topic.

use serde_json::{Map, Value, json};
use sqlparser::ast::{Expr, UnaryOperator};

use super::meaning::key_is_bare;
use super::relation::{arguments, last};
use super::script::Rows;
use super::table::{Origin, Table};

/// The rows of one table, one JSON object a line: values, or envelopes with key and timestamp. Rows have no timestamps:
/// an envelope's counts them, in milliseconds.
pub fn lines(all: &[Rows], name: &str, table: Option<&Table>, envelope: bool) -> String {
    let keys = table.map(Table::key_columns).unwrap_or_default();
    let without_key = table.is_some_and(Table::value_is_without_key);
    let mut out = String::new();
    for (number, (columns, row)) in all
        .iter()
        .filter(|rows| rows.table == name)
        .flat_map(|rows| rows.rows.iter().map(|row| (&rows.columns, row)))
        .enumerate()
    {
        let (mut key, mut value) = (Map::new(), Map::new());
        let mut timestamp = json!(number);
        for (column, expr) in names(columns, table).zip(row) {
            let cell = literal(expr);
            if table
                .and_then(|table| table.column(&column))
                .is_some_and(|column| matches!(column.origin, Origin::Metadata(_)))
            {
                timestamp = cell;
                continue;
            }
            let in_key = keys.contains(&column);
            if in_key {
                key.insert(column.clone(), cell.clone());
            }
            if !(in_key && without_key && envelope) {
                value.insert(column, cell);
            }
        }
        let line = if envelope {
            let bare = table.is_some_and(key_is_bare) && key.len() == 1;
            let key = match key.values().next() {
                None => Value::Null,
                Some(one) if bare => one.clone(),
                Some(_) => Value::Object(key),
            };
            json!({ "key": key, "value": value, "timestamp": timestamp })
        } else {
            Value::Object(value)
        };
        out.push_str(&line.to_string());
        out.push('\n');
    }
    out
}

/// The columns that a row fills: those listed, else all that are not computed.
fn names<'a>(listed: &'a [String], table: Option<&'a Table>) -> Box<dyn Iterator<Item = String> + 'a> {
    match table {
        Some(table) if listed.is_empty() => Box::new(
            table.columns.iter().filter(|c| !matches!(c.origin, Origin::Computed(_))).map(|column| column.name.clone()),
        ),
        None if listed.is_empty() => Box::new((0..).map(|n| format!("f{n}"))),
        _ => Box::new(listed.iter().cloned()),
    }
}

fn literal(expr: &Expr) -> Value {
    use sqlparser::ast::Value as Sql;
    match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => literal(inner),
        Expr::Value(value) => match &value.value {
            Sql::Number(digits, _) => serde_json::from_str(digits).unwrap_or(Value::Null),
            Sql::SingleQuotedString(text) => json!(text),
            Sql::Boolean(truth) => json!(truth),
            _ => Value::Null,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match literal(expr) {
            Value::Number(number) => serde_json::from_str(&format!("-{number}")).unwrap_or(Value::Null),
            _ => Value::Null,
        },
        Expr::TypedString(typed) => json!(typed.value.value.clone().into_string()),
        // TO_TIMESTAMP('2023-07-09 01:00:00') and the like: the text says it as well.
        Expr::Function(function) if !last(&function.name).is_empty() => {
            arguments(function).first().map_or(Value::Null, |inner| literal(inner))
        }
        _ => Value::Null,
    }
}
