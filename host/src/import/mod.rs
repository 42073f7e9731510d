//! Flink SQL as a pipeline file. The only user of `sqlparser`.
//!
//! `script.rs` reads statements, `relation.rs` puts a query and what it stands on together, `meaning.rs` says what its
//! expressions are in a record, `stage.rs` makes the dedup stage, `ends.rs` source and sink. What has no equivalent is
//! a finding with its place in the SQL: P-SQL where no pipeline would mean the same, W-SQL where one does nearly.

use serde_json::{Map, Value, json};
use sqlparser::ast::Spanned;

use crate::config::diagnostic::{Diagnostic, Severity};
use crate::config::node::Span;
use crate::config::path::{Path, Root};
use crate::config::values::print_duration;
use meaning::{Meaning, Meanings, interval};
use relation::{Numbering, Reader, Relation, Scoped};
use script::{Places, Script, Statement};
use settings::Settings;
use stage::{Dedup, Maker, Takes};
use table::Table;

mod columns;
mod condition;
mod dialect;
mod ends;
mod meaning;
mod relation;
mod rows;
mod script;
mod settings;
mod stage;
mod table;
#[cfg(test)]
mod tests;

/// What is asked for besides the SQL.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which of several queries, from 1.
    pub query: Option<usize>,
    /// A file, or `-`, in place of the source.
    pub from: Option<String>,
    /// A file, or `-`, in place of the sink.
    pub to: Option<String>,
}

/// What an import gives.
#[derive(Debug)]
pub struct Imported {
    /// The pipeline file, members in order; `None`: there is none, the findings say why.
    pub file: Option<Value>,
    /// The rows of `INSERT INTO .. VALUES` into the table that is read, as lines of a file for `--from`.
    pub rows: String,
    /// What has no equivalent, and why.
    pub findings: Vec<Diagnostic>,
}

/// Imports one query of a file of statements. Spans of findings lie in `sql`.
pub fn import(sql: &str, options: &Options) -> Imported {
    let mut findings = Vec::new();
    let mut script = script::read(sql, &mut findings);
    script.without_looks(&mut findings);
    script.with_view(&mut findings);
    let places = Places::of(sql);
    let mut imported = Imported { file: None, rows: String::new(), findings };
    let Some(statement) = chosen(&script, options, &mut imported.findings) else { return imported };
    let reader = Reader { script: &script, places: &places, span: statement.span };
    let relation = match reader.query(&statement.query, 0) {
        Ok(relation) => relation,
        Err(finding) => {
            imported.findings.push(*finding);
            return imported;
        }
    };
    let mut notes = Notes { places: &places, findings: Vec::new() };
    let settings = settings::read(&script.settings, &mut notes);
    let table = |name: &str| script.tables.iter().find(|table| table.name == name);
    let sink = statement.sink.as_deref().and_then(table);
    let like_sink =
        sink.filter(|_| table(&relation.table).is_none()).and_then(|sink| undeclared(&relation, sink, &mut notes));
    let source = table(&relation.table).or(like_sink.as_ref());
    let import = Import { statement, source, sink, relation: &relation, settings: &settings, options };
    imported.file = import.file(&mut notes);
    imported.rows = rows::lines(&script.rows, &relation.table, source, import.reads_envelopes(&imported.file));
    imported.findings.extend(notes.findings);
    imported
}

/// A source that is not declared, where the sink is: its records have the sink's columns.
fn undeclared(relation: &Relation, sink: &Table, notes: &mut Notes<'_>) -> Option<Table> {
    let is_named = |name: &str| relation.columns.iter().any(|column| column.name == name);
    if sink.columns.is_empty() || !sink.columns.iter().all(|column| is_named(&column.name)) {
        return None;
    }
    let text =
        format!("`{}` is not declared: it is taken for a topic with the columns of `{}`", relation.table, sink.name);
    notes.warn("W-SQL", &text, sink.span, "put its CREATE TABLE in front");
    let options = sink.options.iter().filter(|item| item.name.starts_with("properties.")).cloned().collect();
    Some(Table {
        name: relation.table.clone(),
        span: sink.span,
        columns: sink.columns.clone(),
        options,
        ..Table::default()
    })
}

/// The query that is meant.
fn chosen<'s>(script: &'s Script, options: &Options, findings: &mut Vec<Diagnostic>) -> Option<&'s Statement> {
    let wrong =
        |span: Option<Span>, text: String, help: &str| Diagnostic::new(Severity::Error, "P-SQL", span, text).help(help);
    match (script.queries.as_slice(), options.query) {
        ([], _) => {
            if !findings.iter().any(Diagnostic::is_error) {
                let help = "CREATE TABLE says where records are, a query what becomes of them";
                findings.push(wrong(
                    None,
                    "there is no query: neither SELECT nor INSERT INTO .. SELECT".to_string(),
                    help,
                ));
            }
            None
        }
        (all, Some(number)) => {
            let statement = number.checked_sub(1).and_then(|at| all.get(at));
            if statement.is_none() {
                let text = format!("there is no query {number}: the file has {}", all.len());
                findings.push(wrong(None, text, "they count from 1, in the order of the file"));
            }
            statement
        }
        ([one], None) => Some(one),
        (all, None) => {
            for (at, statement) in all.iter().enumerate() {
                let what = statement
                    .sink
                    .as_ref()
                    .map_or("a bare SELECT".to_string(), |sink| format!("the query into `{sink}`"));
                let text = format!("this is query {}, {what}", at + 1);
                findings.push(Diagnostic::new(Severity::Note, "W-SQL", Some(statement.span), text));
            }
            let text = format!("the file has {} queries, and each is a pipeline of its own", all.len());
            findings.push(wrong(None, text, "say which: `--query 1`"));
            None
        }
    }
}

/// Findings, as they come up.
pub struct Notes<'a> {
    places: &'a Places,
    findings: Vec<Diagnostic>,
}

impl Notes<'_> {
    /// No pipeline would mean the same.
    pub fn refuse(&mut self, text: &str, span: Span, help: &str) {
        self.findings.push(Diagnostic::error("P-SQL", span, text).help(help));
    }

    /// One means nearly the same, or what was written is not what was meant.
    pub fn warn(&mut self, code: &str, text: &str, span: Span, help: &str) {
        self.findings.push(Diagnostic::warning(code, span, text).help(help));
    }

    /// Good to know.
    pub fn note(&mut self, text: &str, span: Span) {
        self.findings.push(Diagnostic::new(Severity::Note, "W-SQL", Some(span), text));
    }

    /// Where a part of the query stands; what the parser does not place stands where `other` does.
    pub fn place(&self, part: &impl Spanned, other: Span) -> Span {
        self.places.of_part(part, other)
    }
}

struct Import<'a> {
    statement: &'a Statement,
    source: Option<&'a Table>,
    sink: Option<&'a Table>,
    relation: &'a Relation,
    settings: &'a Settings,
    options: &'a Options,
}

impl Import<'_> {
    /// The file, in the order in which people write it.
    fn file(&self, notes: &mut Notes<'_>) -> Option<Value> {
        let span = self.statement.span;
        if let (Some(numbering), None) = (&self.relation.numbered, &self.relation.kept) {
            notes.refuse("rows are numbered, but nothing is left out", numbering.span, "WHERE rownum = 1");
            return None;
        }
        let meanings = Meanings::of(self.relation, self.source);
        let takes = self.takes();
        let numbering = self.numbering(notes)?;
        let maker = Maker {
            relation: self.relation,
            table: self.source,
            meanings: &meanings,
            takes,
            bounded: self.options.from.is_some()
                || self.source.is_some_and(|t| t.option("scan.bounded.mode").is_some()),
            shows_bounds: self.shows_bounds(&meanings),
            settings: self.settings,
        };
        let dedup = match &numbering {
            Some(numbering) => Some(maker.dedup(numbering, notes)?),
            None => None,
        };
        let mut stages: Vec<Value> = Vec::new();
        stages.extend(self.filter("before", &self.relation.before, &meanings, notes)?);
        stages.extend(dedup.iter().map(stage_of));
        if dedup.as_ref().is_some_and(|dedup| dedup.updates) && !self.relation.after.is_empty() {
            let text =
                "rows are corrected and then left out by a condition: a row that no longer fits would stay in the sink";
            notes.refuse(text, span, "put the condition into the inner query, or let the sink append");
            return None;
        }
        stages.extend(self.filter("after", &self.relation.after, &meanings, notes)?);
        if let Some(columns) = self.projection(&meanings, notes) {
            let at = dedup.as_ref().and_then(|dedup| columns::before(dedup, &columns, &stages));
            stages.insert(at.unwrap_or(stages.len()), columns);
        }
        let time = dedup.as_ref().and_then(|dedup| self.time(dedup, &meanings, notes));
        let mut file = Map::new();
        file.insert("version".to_string(), json!(1));
        file.insert("name".to_string(), json!(self.name()));
        let mut rest = Map::new();
        rest.insert("time".to_string(), json!(time));
        rest.insert("stages".to_string(), json!(stages));
        let envelope = beyond_value(&Value::Object(rest.clone()));
        file.insert("source".to_string(), self.source_of(envelope, notes)?);
        if envelope && self.source.is_some_and(|table| !meaning::key_is_bare(table) && !table.key_columns().is_empty())
        {
            file.insert("decode".to_string(), json!({ "key": "json" }));
        }
        file.extend(time.map(|time| ("time".to_string(), time)));
        file.insert("stages".to_string(), json!(stages));
        let updates = dedup.as_ref().is_some_and(|dedup| dedup.updates);
        let bare = self.options.to.is_none() && self.sink.is_some_and(meaning::key_is_bare);
        if updates && bare && dedup.as_ref().is_some_and(|dedup| dedup.key.len() == 1) {
            file.insert("encode".to_string(), json!({ "key": "string" }));
        }
        let event_time = dedup.as_ref().is_some_and(|dedup| self.writes_event_time(dedup, &meanings));
        file.insert("sink".to_string(), self.sink_of(updates, event_time, notes)?);
        if self.source.is_some_and(ends::skips_broken_records) {
            file.insert("errors".to_string(), json!({ "tolerance": "all" }));
            let text =
                "broken records are passed over, each with a line in the log; `errors: { dead_letter: .. }` keeps them";
            notes.note(text, self.source.map_or(span, |table| table.span));
        }
        if dedup.is_some() && file["source"].get("kafka").is_some() {
            file.insert("state".to_string(), json!({ "changelog": { "create": true } }));
            notes.note("state is kept in a changelog topic beside the others, which is made if it is missing", span);
        }
        if let (Some(dedup), Some(sink)) = (&dedup, self.sink) {
            self.compare_keys(dedup, sink, notes);
        }
        self.source.iter().chain(&self.sink).for_each(|table| ends::others(table, notes));
        Some(Value::Object(file))
    }

    fn takes(&self) -> Takes {
        if self.statement.sink.is_some() && self.sink.is_none() { Takes::Appends } else { ends::takes(self.sink) }
    }

    /// `ROW_NUMBER` of which the first is kept, or the same for `SELECT DISTINCT`.
    #[allow(clippy::option_option, reason = "none: refused; none inside: nothing is deduplicated")]
    fn numbering(&self, notes: &mut Notes<'_>) -> Option<Option<Numbering>> {
        if !self.relation.distinct {
            return Some(self.relation.kept.clone());
        }
        if self.relation.columns.is_empty() {
            notes.refuse(
                "`SELECT DISTINCT *` compares whole records",
                self.statement.span,
                "name the columns, or write the pipeline with `key: { whole: value }`",
            );
            return None;
        }
        let level = self.relation.columns.iter().map(|column| column.value.level).max().unwrap_or(0);
        let proctime =
            sqlparser::parser::Parser::new(&dialect::Flink).try_with_sql("PROCTIME()").and_then(|mut p| p.parse_expr());
        Some(Some(Numbering {
            name: String::new(),
            partition: self.relation.columns.iter().map(|column| column.value.expr.clone()).collect(),
            order: vec![(proctime.ok()?, false)],
            level,
            span: self.statement.span,
        }))
    }

    fn name(&self) -> String {
        let given = self.settings.name.as_deref().or(self.statement.sink.as_deref());
        let given = given.map_or_else(|| format!("{}-unique", self.relation.table), str::to_string);
        let mut name = String::new();
        for c in given.to_lowercase().chars() {
            let c = if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
            if !(c == '-' && name.ends_with('-')) {
                name.push(c);
            }
        }
        let name: String = name.trim_matches(['-', '.', '_']).chars().take(100).collect();
        if name.is_empty() { "imported".to_string() } else { name }
    }

    /// A filter stage of conditions, none if there are none; the outer none: refused.
    #[allow(clippy::option_option)]
    fn filter(
        &self,
        id: &str,
        all: &[Scoped],
        meanings: &Meanings<'_>,
        notes: &mut Notes<'_>,
    ) -> Option<Option<Value>> {
        let mut parts = Vec::new();
        for scoped in all {
            let span = notes.place(&scoped.expr, self.statement.span);
            if scoped.expr.to_string().to_uppercase().contains("WATERMARK(") {
                let text = "this tests the watermark and not the record: it loses what comes before the first watermark. Left out; a record without a valid time goes to the dead letter by itself (`time.invalid`)";
                notes.warn("W-SQL", text, span, "leave it out of the query as well");
                continue;
            }
            match condition::cel(scoped, meanings) {
                Ok(part) => parts.push(part),
                Err(what) => {
                    notes.refuse(
                        &format!("{what} has no equivalent in a condition"),
                        span,
                        "write it as an expression of the guest filter: `keep: value.level == \"ERROR\"`",
                    );
                    return None;
                }
            }
        }
        let keep = parts.join(" && ");
        Some((!parts.is_empty()).then(|| json!({ "uses": "filter", "id": id, "with": { "keep": keep } })))
    }

    /// `time`.
    fn time(&self, dedup: &Dedup, meanings: &Meanings<'_>, notes: &mut Notes<'_>) -> Option<Value> {
        let (scoped, path) = (dedup.time.as_ref()?, dedup.time_path.as_ref()?);
        let mut time = Map::new();
        time.insert("field".to_string(), json!(path.to_string()));
        if let Some(unit) = meanings.unit(scoped) {
            time.insert("unit".to_string(), json!(unit));
        }
        if let Some(watermark) = self.source.and_then(|table| table.watermark.as_ref()) {
            let column = Scoped { expr: sqlparser::ast::Expr::Identifier(watermark.column.as_str().into()), level: 0 };
            let same = matches!(meanings.of_expr(&column), Meaning::Path(other) if other == *path);
            match (same, delay(&watermark.expression)) {
                (true, Some(0)) | (false, _) => {}
                (true, Some(delay)) => drop(time.insert("delay".to_string(), json!(print_duration(delay)))),
                (true, None) => {
                    let span = self.source.map_or(self.statement.span, |table| table.span);
                    let text = format!("the watermark `{}` is no fixed delay: none is set", watermark.expression);
                    notes.warn("W-SQL", &text, notes.place(&watermark.expression, span), "time: { delay: 5s }");
                }
            }
        }
        if let Some(idle) = self.settings.idle {
            time.insert("idle".to_string(), json!(print_duration(idle)));
        }
        Some(if time.len() == 1 { json!(path.to_string()) } else { Value::Object(time) })
    }

    fn source_of(&self, envelope: bool, notes: &mut Notes<'_>) -> Option<Value> {
        if let Some(name) = &self.options.from {
            let topic = self.source.and_then(|table| table.option("topic")).unwrap_or(&self.relation.table);
            return Some(ends::Replaced { name, envelope }.source(topic));
        }
        match self.source {
            Some(table) => ends::source(table, notes),
            None => {
                let table = Table { name: self.relation.table.clone(), span: self.statement.span, ..Table::default() };
                let text = format!("`{}` is not declared: it is taken for a topic with JSON values", table.name);
                notes.warn("W-SQL", &text, table.span, "put its CREATE TABLE in front");
                ends::source(&table, notes)
            }
        }
    }

    fn sink_of(&self, updates: bool, event_time: bool, notes: &mut Notes<'_>) -> Option<Value> {
        if let Some(name) = &self.options.to {
            return Some(ends::Replaced { name, envelope: updates }.sink());
        }
        match (&self.statement.sink, self.sink) {
            (None, _) => Some(ends::Replaced { name: "-", envelope: updates }.sink()),
            (Some(_), Some(table)) => ends::sink(table, self.source, event_time, notes),
            (Some(name), None) => {
                let text = format!("`{name}` is not declared: it is taken for a topic");
                notes.warn("W-SQL", &text, self.statement.span, "put its CREATE TABLE in front");
                let table = Table { name: name.clone(), span: self.statement.span, ..Table::default() };
                ends::sink(&table, self.source, event_time, notes)
            }
        }
    }

    /// The key of the output is that of the deduplication (O6), whatever the sink declares.
    fn compare_keys(&self, dedup: &Dedup, sink: &Table, notes: &mut Notes<'_>) {
        let mut of_sink = sink.primary_key.clone();
        let mut of_stage: Vec<String> = dedup.key.iter().map(Path::last_name).collect();
        of_sink.sort();
        of_stage.sort();
        if dedup.updates && !of_sink.is_empty() && of_sink != of_stage {
            let text = format!(
                "the sink's key is ({}), that of the deduplication ({}): rows would overwrite each other there. Here the key of the output is that of the deduplication",
                sink.primary_key.join(", "),
                dedup.key.iter().map(Path::last_name).collect::<Vec<_>>().join(", ")
            );
            notes.warn("W-SQL", &text, sink.span, "give the sink the key of PARTITION BY");
        }
    }

    /// Whether rows for this pipeline need keys or timestamps.
    fn reads_envelopes(&self, file: &Option<Value>) -> bool {
        file.as_ref().is_some_and(|file| beyond_value(&json!({ "time": file["time"], "stages": file["stages"] })))
    }
}

fn stage_of(dedup: &Dedup) -> Value {
    let mut stage = Map::new();
    stage.insert("uses".to_string(), json!("dedup"));
    stage.insert("id".to_string(), json!("dedup"));
    let key: Vec<String> = dedup.key.iter().map(Path::to_string).collect();
    match key.as_slice() {
        [] => {
            stage.insert("key".to_string(), json!([]));
            stage.insert("scope".to_string(), json!("stream"));
        }
        [one] => drop(stage.insert("key".to_string(), json!(one))),
        several => drop(stage.insert("key".to_string(), json!(several))),
    }
    stage.extend(dedup.state.clone().map(|state| ("state".to_string(), state)));
    stage.insert("with".to_string(), Value::Object(dedup.with.clone()));
    Value::Object(stage)
}

/// `ts - INTERVAL '5' SECOND` is a delay of 5 s, `ts` and `SOURCE_WATERMARK()` one of none.
fn delay(expression: &sqlparser::ast::Expr) -> Option<i64> {
    use sqlparser::ast::{BinaryOperator, Expr};
    match expression {
        Expr::Nested(inner) => delay(inner),
        Expr::BinaryOp { left, op: BinaryOperator::Minus, right } if relation::identifier(left).is_some() => {
            interval(right)
        }
        Expr::Function(function) if relation::last(&function.name).eq_ignore_ascii_case("SOURCE_WATERMARK") => Some(0),
        other => relation::identifier(other).map(|_| 0),
    }
}

/// Whether a part of the file names anything outside the value: then a file has envelopes.
fn beyond_value(part: &Value) -> bool {
    match part {
        // Words of an expression count as well; one that is only text in it does no harm.
        Value::String(text) => text
            .split(|c: char| !(c.is_alphanumeric() || "_.[]\"".contains(c)))
            .any(|word| Path::parse(word).is_ok_and(|path| path.root != Root::Value)),
        Value::Array(items) => items.iter().any(beyond_value),
        Value::Object(members) => {
            members.iter().filter(|(name, _)| *name != "name").any(|(_, value)| beyond_value(value))
        }
        _ => false,
    }
}
