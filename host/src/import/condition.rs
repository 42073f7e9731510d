//! Conditions of `WHERE` as expressions of the guest `filter`. SQL drops a row whose condition is not known, so every
//! comparison also asks whether the field is there.

use sqlparser::ast::{BinaryOperator, Expr, InTarget, UnaryOperator, Value};

use super::meaning::{Meaning, Meanings, text};
use super::relation::Scoped;
use crate::config::path::{Path, Root, Step};

/// A condition in CEL; the error names what has no equivalent.
pub fn cel(scoped: &Scoped, meanings: &Meanings<'_>) -> Result<String, String> {
    Conditions { meanings, level: scoped.level }.cel(&scoped.expr, false)
}

struct Conditions<'a> {
    meanings: &'a Meanings<'a>,
    level: usize,
}

impl Conditions<'_> {
    /// `not`: the condition is turned; it is carried inwards, so that what is not known stays not known.
    fn cel(&self, expr: &Expr, not: bool) -> Result<String, String> {
        match expr {
            Expr::Nested(inner) => self.cel(inner, not),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => self.cel(expr, !not),
            Expr::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
                let both = (*op == BinaryOperator::And) != not;
                let (left, right) = (self.cel(left, not)?, self.cel(right, not)?);
                Ok(if both { format!("{left} && {right}") } else { format!("({left} || {right})") })
            }
            Expr::BinaryOp { left, op, right } => self.compared(left, operator(op, not)?, right),
            Expr::IsNull(inner) => self.presence(inner, not),
            Expr::IsNotNull(inner) => self.presence(inner, !not),
            Expr::In { expr, target: InTarget::List(list), negated, .. } => {
                let values: Vec<String> = list.iter().map(literal).collect::<Result<_, _>>()?;
                let (name, guard) = self.field(expr)?;
                let turned = if *negated != not { "!" } else { "" };
                Ok(format!("{guard} && {turned}({name} in [{}])", values.join(", ")))
            }
            Expr::Between { expr, negated, low, high } => {
                let (name, guard) = self.field(expr)?;
                let (low, high) = (literal(low)?, literal(high)?);
                Ok(if *negated != not {
                    format!("{guard} && ({name} < {low} || {name} > {high})")
                } else {
                    format!("{guard} && {name} >= {low} && {name} <= {high}")
                })
            }
            Expr::Like { negated, expr, pattern, escape_char: None, .. } => {
                let pattern = text(pattern).ok_or("a pattern that is no text")?;
                let (name, guard) = self.field(expr)?;
                let inner = pattern.trim_matches('%');
                if inner.contains(['%', '_']) {
                    return Err(format!("the pattern '{pattern}'"));
                }
                let function = match (pattern.starts_with('%'), pattern.ends_with('%')) {
                    (true, true) => "contains",
                    (true, false) => "endsWith",
                    (false, true) => "startsWith",
                    (false, false) => {
                        return self.compared(
                            expr,
                            if *negated != not { "!=" } else { "==" },
                            &pattern_value(&pattern),
                        );
                    }
                };
                let turned = if *negated != not { "!" } else { "" };
                Ok(format!("{guard} && {turned}{name}.{function}({})", quoted(inner)))
            }
            column if self.field(column).is_ok() => {
                let (name, guard) = self.field(column)?;
                Ok(format!("{guard} && {name} == {}", !not))
            }
            other => Err(format!("`{other}`")),
        }
    }

    fn presence(&self, expr: &Expr, there: bool) -> Result<String, String> {
        let (_, guard) = self.field(expr)?;
        Ok(if there { guard } else { format!("!({guard})") })
    }

    fn compared(&self, left: &Expr, operator: &str, right: &Expr) -> Result<String, String> {
        let turned = match operator {
            "<" => ">",
            "<=" => ">=",
            ">" => "<",
            ">=" => "<=",
            same => same,
        };
        match (literal(left), literal(right)) {
            (Err(_), Ok(value)) => {
                let (name, guard) = self.field(left)?;
                Ok(format!("{guard} && {name} {operator} {value}"))
            }
            (Ok(value), Err(_)) => {
                let (name, guard) = self.field(right)?;
                Ok(format!("{guard} && {name} {turned} {value}"))
            }
            _ => {
                let ((left, there), (right, here)) = (self.field(left)?, self.field(right)?);
                Ok(format!("{there} && {here} && {left} {operator} {right}"))
            }
        }
    }

    /// A field in CEL, and the question whether it is there.
    fn field(&self, expr: &Expr) -> Result<(String, String), String> {
        let path = match self.meanings.of_expr(&Scoped { expr: expr.clone(), level: self.level }) {
            Meaning::Path(path) => path,
            _ => return Err(format!("`{expr}`")),
        };
        let plain = |step: &Step| matches!(step, Step::Member(name) if tamis_guest::path::is_identifier(name));
        if !path.steps.iter().all(plain) {
            return Err(format!("the name `{path}`"));
        }
        let name = path.to_string();
        let guard = match &path {
            Path { root: Root::Value | Root::Key, steps } if !steps.is_empty() => {
                format!("has({name}) && {name} != null")
            }
            Path { root: Root::Key | Root::Timestamp, .. } => format!("{name} != null"),
            _ => "true".to_string(),
        };
        Ok((name, guard))
    }
}

fn operator(op: &BinaryOperator, not: bool) -> Result<&'static str, String> {
    Ok(match (op, not) {
        (BinaryOperator::Eq, false) | (BinaryOperator::NotEq, true) => "==",
        (BinaryOperator::NotEq, false) | (BinaryOperator::Eq, true) => "!=",
        (BinaryOperator::Lt, false) | (BinaryOperator::GtEq, true) => "<",
        (BinaryOperator::LtEq, false) | (BinaryOperator::Gt, true) => "<=",
        (BinaryOperator::Gt, false) | (BinaryOperator::LtEq, true) => ">",
        (BinaryOperator::GtEq, false) | (BinaryOperator::Lt, true) => ">=",
        (other, _) => return Err(format!("`{other}`")),
    })
}

fn literal(expr: &Expr) -> Result<String, String> {
    match expr {
        Expr::Nested(inner) => literal(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => Ok(format!("-{}", literal(expr)?)),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => Ok(digits.clone()),
            Value::SingleQuotedString(text) => Ok(quoted(text)),
            Value::Boolean(truth) => Ok(truth.to_string()),
            other => Err(format!("`{other}`")),
        },
        other => Err(format!("`{other}`")),
    }
}

/// A pattern without a wildcard is a text.
fn pattern_value(text: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(text.to_string()))
}

/// Text as CEL and JSON write it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
