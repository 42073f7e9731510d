//! Flink's SQL as `sqlparser` is told it. Queries are read by the parser as it is, with one hook for `TABLE clicks` as an
//! argument; what is Flink's own in the other statements is read in `script.rs` and `table.rs`.

use sqlparser::ast::{Expr, Ident};
use sqlparser::dialect::Dialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// The dialect.
#[derive(Debug)]
pub struct Flink;

impl Dialect for Flink {
    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_'
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch.is_alphanumeric() || ch == '_'
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '`'
    }

    fn supports_named_fn_args_with_rarrow_operator(&self) -> bool {
        true
    }

    /// `TABLE clicks` and `TABLE clicks PARTITION BY item` as arguments of windowing functions.
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let names_a_table = matches!(parser.peek_nth_token_ref(1).token, Token::Word(_));
        (names_a_table && parser.peek_keyword(Keyword::TABLE)).then(|| table_argument(parser))
    }
}

fn table_argument(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.expect_keyword_is(Keyword::TABLE)?;
    let name = parser.parse_object_name(false)?;
    if parser.parse_keywords(&[Keyword::PARTITION, Keyword::BY]) {
        // Several stand in parentheses: the next comma ends the argument.
        parser.parse_expr()?;
    }
    let parts = name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
    Ok(Expr::Prefixed { prefix: Ident::new("TABLE"), value: Box::new(Expr::CompoundIdentifier(parts)) })
}
