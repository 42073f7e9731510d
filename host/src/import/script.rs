//! A file of statements: tables, views, settings, rows, and the queries that can become pipelines.

use sqlparser::ast::{Expr, Query, SelectItem, SetExpr, Spanned, TableFactor};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token};

use super::dialect::Flink;
use super::table::{self, Table};
use crate::config::diagnostic::{Diagnostic, Severity};
use crate::config::node::Span;

/// Everything a file says.
#[derive(Debug, Default)]
pub struct Script {
    /// `CREATE TABLE`.
    pub tables: Vec<Table>,
    /// `CREATE VIEW`.
    pub views: Vec<View>,
    /// `SET`.
    pub settings: Vec<Setting>,
    /// `INSERT INTO .. SELECT`, `CREATE TABLE .. AS SELECT` and bare `SELECT`.
    pub queries: Vec<Statement>,
    /// `INSERT INTO .. VALUES`.
    pub rows: Vec<Rows>,
}

/// A named query.
#[derive(Debug)]
pub struct View {
    /// The last part of its name.
    pub name: String,
    /// Names of its columns, if they are given.
    pub columns: Vec<String>,
    /// What it stands for.
    pub query: Query,
    /// Where it starts.
    pub span: Span,
}

/// `SET 'name' = 'value'`.
#[derive(Debug)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where it stands.
    pub span: Span,
}

/// A query that runs.
#[derive(Debug)]
pub struct Statement {
    /// The table it fills; `None`: a bare query.
    pub sink: Option<String>,
    /// Columns of that table, if they are listed.
    pub columns: Vec<String>,
    /// What runs.
    pub query: Query,
    /// Where it starts.
    pub span: Span,
}

/// Rows given as values.
#[derive(Debug)]
pub struct Rows {
    /// The table they go to.
    pub table: String,
    /// Columns, if they are listed.
    pub columns: Vec<String>,
    /// The values.
    pub rows: Vec<Vec<Expr>>,
}

impl Statement {
    /// `SELECT * FROM table`: somebody looks at a table.
    fn only_looks(&self) -> bool {
        let SetExpr::Select(select) = &*self.query.body else { return false };
        let all = matches!(select.projection.as_slice(), [SelectItem::Wildcard(_)]);
        let plain = matches!(select.from.as_slice(), [from] if from.joins.is_empty()
            && matches!(&from.relation, TableFactor::Table { args: None, .. }));
        self.sink.is_none() && all && plain && select.selection.is_none()
    }
}

impl Script {
    /// Takes away what only looks at tables, beside queries that do something.
    pub fn without_looks(&mut self, findings: &mut Vec<Diagnostic>) {
        if self.queries.iter().all(Statement::only_looks) && self.views.is_empty() {
            return;
        }
        self.queries.retain(|statement| {
            let looks = statement.only_looks();
            if looks {
                let text = "this query only looks at a table: left out";
                findings.push(Diagnostic::new(Severity::Note, "W-SQL", Some(statement.span), text));
            }
            !looks
        });
    }

    /// Where nothing is inserted, the last view is what runs, into the table beside the one it reads: tools that draw
    /// pipelines show the view and the tables, and write the rest themselves.
    pub fn with_view(&mut self, findings: &mut Vec<Diagnostic>) {
        let (true, Some(view)) = (self.queries.is_empty(), self.views.last()) else { return };
        let quoted = view.name.replace('`', "``");
        let query =
            Parser::new(&Flink).try_with_sql(&format!("SELECT * FROM `{quoted}`")).and_then(|mut p| p.parse_query());
        let Ok(query) = query else { return };
        let sinks = self.tables.iter().filter(|table| !table.primary_key.is_empty() || self.tables.len() == 1);
        let sink = sinks.last().map(|table| table.name.clone());
        let into = sink.as_ref().map_or(String::new(), |sink| format!(", into `{sink}`"));
        let text = format!("nothing is inserted anywhere: the view `{}` is taken for the query{into}", view.name);
        findings.push(Diagnostic::new(Severity::Note, "W-SQL", Some(view.span), text));
        self.queries.push(Statement { sink, columns: Vec::new(), query: *query, span: view.span });
    }
}

/// Reads a file. What cannot be read is a finding, and the next statement is read all the same.
pub fn read(sql: &str, findings: &mut Vec<Diagnostic>) -> Script {
    let places = Places::of(sql);
    let mut script = Script::default();
    let mut parser = match Parser::new(&Flink).try_with_sql(sql) {
        Ok(parser) => parser,
        Err(error) => {
            findings.push(places.wrong(&error, Span::default()));
            return script;
        }
    };
    loop {
        while parser.consume_token(&Token::SemiColon) {}
        let first = parser.peek_token();
        if first.token == Token::EOF {
            return script;
        }
        let span = places.span(first.span.start, first.span.end);
        if let Err(error) = statement(&mut parser, &places, span, &mut script, findings) {
            findings.push(places.wrong(&error, span));
            skip(&mut parser);
        } else if !matches!(parser.peek_token_ref().token, Token::SemiColon | Token::EOF) && !at_end_of_set(&parser) {
            let token = parser.peek_token();
            let text = format!("`{}` is not expected here", token.token);
            findings.push(Diagnostic::error("P-SQL", places.span(token.span.start, token.span.end), text).help(SPLIT));
            skip(&mut parser);
        }
    }
}

const SPLIT: &str = "statements end with `;`";

/// Behind a statement in a statement set its `END` may stand.
fn at_end_of_set(parser: &Parser) -> bool {
    word(parser, 0).as_deref() == Some("END")
}

fn skip(parser: &mut Parser) {
    while !matches!(parser.peek_token_ref().token, Token::SemiColon | Token::EOF) {
        parser.next_token();
    }
}

fn statement(
    parser: &mut Parser,
    places: &Places,
    span: Span,
    script: &mut Script,
    findings: &mut Vec<Diagnostic>,
) -> Result<(), ParserError> {
    let first = word(parser, 0).unwrap_or_default();
    match first.as_str() {
        "SET" => {
            parser.next_token();
            let name = setting_text(parser);
            parser.expect_token(&Token::Eq)?;
            let value = setting_text(parser);
            script.settings.push(Setting { name, value, span });
        }
        "CREATE" => create(parser, places, span, script, findings)?,
        "INSERT" => insert(parser, span, script)?,
        // The frame of a statement set; the statements in it stand for themselves.
        "EXECUTE" | "BEGIN" if set_frame(parser) => {}
        "END" => drop(parser.next_token()),
        "SELECT" | "WITH" | "" => {
            let query = *parser.parse_query()?;
            script.queries.push(Statement { sink: None, columns: Vec::new(), query, span });
        }
        _ => {
            skip(parser);
            let text = format!("`{first}` does nothing for a pipeline: left out");
            findings.push(Diagnostic::new(Severity::Note, "W-SQL", Some(span), text));
        }
    }
    Ok(())
}

/// `EXECUTE STATEMENT SET BEGIN`, `BEGIN STATEMENT SET;`
fn set_frame(parser: &mut Parser) -> bool {
    let frame = ["EXECUTE STATEMENT SET BEGIN", "BEGIN STATEMENT SET"]
        .iter()
        .find(|frame| frame.split(' ').enumerate().all(|(n, expected)| word(parser, n).as_deref() == Some(expected)));
    let words = frame.map_or(0, |frame| frame.split(' ').count());
    (0..words).for_each(|_| drop(parser.next_token()));
    words > 0
}

fn create(
    parser: &mut Parser,
    places: &Places,
    span: Span,
    script: &mut Script,
    findings: &mut Vec<Diagnostic>,
) -> Result<(), ParserError> {
    parser.next_token();
    eat(parser, &["OR", "REPLACE"]);
    eat(parser, &["OR", "ALTER"]);
    eat(parser, &["TEMPORARY"]);
    if eat(parser, &["TABLE"]) {
        eat(parser, &["IF", "NOT", "EXISTS"]);
        let (table, query) = table::read(parser, places, span, findings)?;
        if let Some(query) = query {
            let sink = Some(table.name.clone());
            script.queries.push(Statement { sink, columns: Vec::new(), query, span });
        }
        script.tables.push(table);
    } else if eat(parser, &["VIEW"]) {
        eat(parser, &["IF", "NOT", "EXISTS"]);
        let name = last_name(parser)?;
        let columns = names(parser)?;
        if eat(parser, &["COMMENT"]) {
            parser.next_token();
        }
        if !eat(parser, &["AS"]) {
            return parser.expected("AS and a query", parser.peek_token());
        }
        let query = *parser.parse_query()?;
        script.views.push(View { name, columns, query, span });
    } else {
        let what = word(parser, 0).unwrap_or_default();
        skip(parser);
        let text = format!("`CREATE {what}` does nothing for a pipeline: left out");
        findings.push(Diagnostic::new(Severity::Note, "W-SQL", Some(span), text));
    }
    Ok(())
}

fn insert(parser: &mut Parser, span: Span, script: &mut Script) -> Result<(), ParserError> {
    parser.next_token();
    if !eat(parser, &["INTO"]) && !eat(parser, &["OVERWRITE"]) {
        return parser.expected("INTO", parser.peek_token());
    }
    let table = last_name(parser)?;
    let columns = names(parser)?;
    let query = *parser.parse_query()?;
    match *query.body {
        SetExpr::Values(values) => {
            let rows = values.rows.into_iter().map(|row| row.content).collect();
            script.rows.push(Rows { table, columns, rows });
        }
        _ => script.queries.push(Statement { sink: Some(table), columns, query, span }),
    }
    Ok(())
}

/// The word that comes `n` tokens later, in capitals, if it is not quoted.
pub fn word(parser: &Parser, n: usize) -> Option<String> {
    match &parser.peek_nth_token_ref(n).token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
        _ => None,
    }
}

/// Consumes these words if they are the next ones.
pub fn eat(parser: &mut Parser, words: &[&str]) -> bool {
    let found = words.iter().enumerate().all(|(n, expected)| word(parser, n).as_deref() == Some(expected));
    if found {
        words.iter().for_each(|_| drop(parser.next_token()));
    }
    found
}

/// Consumes a name and gives its last part: catalogues and databases have no meaning here.
pub fn last_name(parser: &mut Parser) -> Result<String, ParserError> {
    let name = parser.parse_object_name(false)?;
    let last = name.0.last().and_then(|part| part.as_ident());
    Ok(last.map(|ident| ident.value.clone()).unwrap_or_default())
}

/// Names in parentheses, if there are any.
pub fn names(parser: &mut Parser) -> Result<Vec<String>, ParserError> {
    if !parser.consume_token(&Token::LParen) {
        return Ok(Vec::new());
    }
    let names = parser.parse_comma_separated(Parser::parse_identifier)?;
    parser.expect_token(&Token::RParen)?;
    Ok(names.into_iter().map(|ident| ident.value).collect())
}

/// A quoted text, or the words up to `=` or the end, for files of older versions.
fn setting_text(parser: &mut Parser) -> String {
    if let Token::SingleQuotedString(text) = parser.peek_token().token {
        parser.next_token();
        return text;
    }
    let mut text = String::new();
    while !matches!(parser.peek_token_ref().token, Token::Eq | Token::SemiColon | Token::EOF) {
        text.push_str(&parser.next_token().token.to_string());
    }
    text
}

/// Places in the text: the parser counts lines and characters, findings need bytes as well.
#[derive(Debug)]
pub struct Places {
    lines: Vec<(usize, String)>,
}

impl Places {
    /// Of this text.
    pub fn of(sql: &str) -> Places {
        let mut start = 0;
        let line = |line: &str| {
            let here = (start, line.to_string());
            start += line.len();
            here
        };
        Places { lines: sql.split_inclusive('\n').map(line).collect() }
    }

    /// From one place to another.
    pub fn span(&self, from: Location, to: Location) -> Span {
        let start = self.byte(from);
        Span { line: from.line as u32, column: from.column as u32, start, end: self.byte(to).max(start) }
    }

    /// Of a part of a query; what the parser does not place stands where the other thing stands.
    pub fn of_part(&self, part: &impl Spanned, other: Span) -> Span {
        let span = part.span();
        if span.start.line == 0 { other } else { self.span(span.start, span.end) }
    }

    fn byte(&self, place: Location) -> usize {
        let Some((start, line)) = self.lines.get((place.line as usize).saturating_sub(1)) else {
            return self.lines.last().map_or(0, |(start, line)| start + line.len());
        };
        let column = (place.column as usize).saturating_sub(1);
        start + line.char_indices().nth(column).map_or(line.len(), |(at, _)| at)
    }

    /// A statement that cannot be read. The parser says where at the end of its message.
    fn wrong(&self, error: &ParserError, span: Span) -> Diagnostic {
        let (ParserError::ParserError(text) | ParserError::TokenizerError(text)) = error else {
            return Diagnostic::error("P-SQL", span, "the statement is nested too deeply").help("simplify it");
        };
        let number = |text: &str| text.trim().trim_end_matches('.').parse::<u64>().ok();
        let placed = text.rsplit_once(" at Line: ").and_then(|(text, place)| {
            let (line, column) = place.split_once(", Column: ")?;
            let here = Location { line: number(line)?, column: number(column)? };
            Some((text, self.span(here, Location { line: here.line, column: here.column + 1 })))
        });
        let (text, span) = placed.unwrap_or((text, span));
        Diagnostic::error("P-SQL", span, format!("this cannot be read as Flink SQL: {text}"))
            .help("`tamis import` reads CREATE TABLE, CREATE VIEW, SET, SELECT and INSERT INTO .. SELECT")
    }
}
