//! `CREATE TABLE` as Flink writes it: watermarks, metadata and computed columns, connector options.

use sqlparser::ast::{Expr, Query};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::script::{Places, eat, last_name, names, word};
use crate::config::diagnostic::{Diagnostic, Severity};
use crate::config::node::Span;

/// A declared table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The last part of its name.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// Its columns, in order.
    pub columns: Vec<Column>,
    /// `WATERMARK FOR`.
    pub watermark: Option<Watermark>,
    /// `PRIMARY KEY`.
    pub primary_key: Vec<String>,
    /// `DISTRIBUTED BY`: what the record key consists of.
    pub distributed: Vec<String>,
    /// `WITH`, in order.
    pub options: Vec<Item>,
}

/// One of `WITH`.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where it stands.
    pub span: Span,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Where its value comes from.
    pub origin: Origin,
}

/// Where the value of a column comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// Key or value of the record.
    Record,
    /// Metadata of the record under this name.
    Metadata(String),
    /// An expression.
    Computed(Expr),
}

/// `WATERMARK FOR column AS expression`.
#[derive(Clone, Debug)]
pub struct Watermark {
    /// The column.
    pub column: String,
    /// What the watermark is.
    pub expression: Expr,
}

impl Table {
    /// The value of an option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|item| item.name == name).map(|item| item.value.as_str())
    }

    /// A column; names are compared exactly first, as Flink does.
    pub fn column(&self, name: &str) -> Option<&Column> {
        let exact = self.columns.iter().find(|column| column.name == name);
        exact.or_else(|| self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name)))
    }

    /// The columns that the record key holds.
    pub fn key_columns(&self) -> Vec<String> {
        match self.option("key.fields") {
            Some(fields) => fields.split(';').map(|field| field.trim().to_string()).filter(|f| !f.is_empty()).collect(),
            None if !self.distributed.is_empty() => self.distributed.clone(),
            None if self.option("connector") == Some("upsert-kafka") => self.primary_key.clone(),
            None => Vec::new(),
        }
    }

    /// Whether columns of the key are left out of the value. Where tables are `DISTRIBUTED BY` that is the rule.
    pub fn value_is_without_key(&self) -> bool {
        match self.option("value.fields-include") {
            Some(word) => word.eq_ignore_ascii_case("EXCEPT_KEY") || word.eq_ignore_ascii_case("EXCEPT-KEY"),
            None => !self.distributed.is_empty(),
        }
    }
}

/// Reads from behind `CREATE TABLE [IF NOT EXISTS]`; with the query of `AS`, if there is one.
pub fn read(
    parser: &mut Parser,
    places: &Places,
    span: Span,
    findings: &mut Vec<Diagnostic>,
) -> Result<(Table, Option<Query>), ParserError> {
    let mut table = Table { name: last_name(parser)?, span, ..Table::default() };
    if parser.consume_token(&Token::LParen) {
        while !parser.consume_token(&Token::RParen) {
            element(parser, &mut table)?;
            if !parser.consume_token(&Token::Comma) {
                parser.expect_token(&Token::RParen)?;
                break;
            }
        }
    }
    let mut query = None;
    loop {
        let here = parser.peek_token();
        if eat(parser, &["COMMENT"]) {
            parser.next_token();
        } else if eat(parser, &["DISTRIBUTED"]) {
            distributed(parser, &mut table)?;
        } else if eat(parser, &["PARTITIONED", "BY"]) {
            names(parser)?;
        } else if eat(parser, &["WITH"]) {
            options(parser, places, &mut table)?;
        } else if eat(parser, &["AS"]) {
            query = Some(*parser.parse_query()?);
        } else if word(parser, 0).as_deref() == Some("LIKE") {
            let text = "`LIKE` is not followed: what the other table declares is missing here";
            let here = places.span(here.span.start, here.span.end);
            let note = Diagnostic::new(Severity::Warning, "W-SQL", Some(here), text);
            findings.push(note.help("write the columns and options out"));
            while !matches!(parser.peek_token_ref().token, Token::SemiColon | Token::EOF) {
                parser.next_token();
            }
        } else {
            return Ok((table, query));
        }
    }
}

/// A column, a watermark or a constraint.
fn element(parser: &mut Parser, table: &mut Table) -> Result<(), ParserError> {
    if eat(parser, &["WATERMARK", "FOR"]) {
        let column = parser.parse_identifier()?.value;
        if !eat(parser, &["AS"]) {
            return parser.expected("AS", parser.peek_token());
        }
        table.watermark = Some(Watermark { column, expression: parser.parse_expr()? });
        return Ok(());
    }
    if eat(parser, &["CONSTRAINT"]) {
        parser.parse_identifier()?;
    }
    if eat(parser, &["PRIMARY", "KEY"]) {
        table.primary_key = names(parser)?;
        eat(parser, &["NOT", "ENFORCED"]);
        return Ok(());
    }
    let name = parser.parse_identifier()?.value;
    if eat(parser, &["AS"]) {
        let expression = parser.parse_expr()?;
        table.columns.push(Column { name: name.clone(), origin: Origin::Computed(expression) });
    } else {
        skip_type(parser);
        table.columns.push(Column { name: name.clone(), origin: Origin::Record });
    }
    loop {
        if eat(parser, &["METADATA"]) {
            let mut from = name.clone();
            if eat(parser, &["FROM"]) {
                from = parser.parse_literal_string()?;
            }
            eat(parser, &["VIRTUAL"]);
            if let Some(column) = table.columns.last_mut() {
                column.origin = Origin::Metadata(from);
            }
        } else if eat(parser, &["PRIMARY", "KEY"]) {
            table.primary_key.push(name.clone());
        } else if eat(parser, &["COMMENT"]) {
            parser.next_token();
        } else if eat(parser, &["CONSTRAINT"]) {
            parser.parse_identifier()?;
        } else if !(eat(parser, &["NOT", "ENFORCED"]) || eat(parser, &["NOT", "NULL"]) || eat(parser, &["NULL"])) {
            return Ok(());
        }
    }
}

/// A type says nothing here: records carry their own.
fn skip_type(parser: &mut Parser) {
    let mut depth = 0_i32;
    loop {
        let token = parser.peek_token().token;
        let ends = match &token {
            Token::EOF | Token::SemiColon => true,
            Token::Comma | Token::RParen => depth == 0,
            Token::Word(_) if depth == 0 => {
                let next = word(parser, 0).unwrap_or_default();
                ["METADATA", "NOT", "NULL", "PRIMARY", "COMMENT", "CONSTRAINT"].contains(&next.as_str())
            }
            _ => false,
        };
        if ends {
            return;
        }
        depth += match token {
            Token::LParen | Token::Lt => 1,
            Token::RParen | Token::Gt => -1,
            Token::ShiftRight => -2,
            _ => 0,
        };
        parser.next_token();
    }
}

/// `[BY] [HASH | RANGE] (columns) [INTO n BUCKETS]`, or `INTO n BUCKETS` alone.
fn distributed(parser: &mut Parser, table: &mut Table) -> Result<(), ParserError> {
    eat(parser, &["BY"]);
    let _ = eat(parser, &["HASH"]) || eat(parser, &["RANGE"]);
    table.distributed = names(parser)?;
    if eat(parser, &["INTO"]) {
        parser.parse_literal_uint()?;
        eat(parser, &["BUCKETS"]);
    }
    Ok(())
}

fn options(parser: &mut Parser, places: &Places, table: &mut Table) -> Result<(), ParserError> {
    parser.expect_token(&Token::LParen)?;
    while !parser.consume_token(&Token::RParen) {
        let first = parser.peek_token().span;
        let name = parser.parse_literal_string()?;
        parser.expect_token(&Token::Eq)?;
        let last = parser.peek_token().span;
        let value = parser.parse_literal_string()?;
        table.options.push(Item { name, value, span: places.span(first.start, last.end) });
        if !parser.consume_token(&Token::Comma) {
            parser.expect_token(&Token::RParen)?;
            break;
        }
    }
    Ok(())
}
