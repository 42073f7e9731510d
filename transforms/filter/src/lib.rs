//! The bundled transform `filter`: `with: { keep: EXPRESSION }` (pipeline-file section 6 names what it reads).
//!
//! The expression is CEL. How numbers behave there, and what fails, is told in the manifest under `keep` and held by
//! the tests.

mod reads;
mod values;

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::Key;
use cel::parser::PrattParser;
use cel::{Context, Env, ExecutionError, IdedExpr, Value as CelValue};
use reads::{Field, Problem, ROOTS};
use tamis_guest::{Check, Failure, Out, Row, Transform, Value, Verdict};

tamis_guest::transform!(Filter, include_str!("../manifest.json"));

/// Bytes of a failure's text.
const MAX_TEXT: usize = 400;

/// The stage.
pub struct Filter {
    expression: IdedExpr,
    /// Functions, and the variables of the row before.
    context: Context<'static, 'static>,
    variables: Vec<Variable>,
}

/// A variable of the expression.
struct Variable {
    name: String,
    shape: Shape,
}

/// How the value of a variable is put together from columns.
enum Shape {
    /// It is this column.
    Column(usize),
    /// It is this header.
    Header(usize),
    /// A map; members that are missing are not in it.
    Members(Vec<(Key, Shape)>),
}

impl Transform for Filter {
    fn check(params: &Value, _context: &Value) -> Check {
        let mut check = Check::default();
        match compile(params) {
            Ok((expression, env)) => {
                let (fields, problems) = reads::of(&expression);
                check.reads = fields.iter().map(Field::column).collect();
                problems.into_iter().for_each(|problem| report(&mut check, problem));
                for name in unknown_functions(&expression, &env) {
                    check.error("P-VALUE", "/with/keep", format!("there is no function `{name}`"));
                }
            }
            Err(text) => drop(check.error("P-VALUE", "/with/keep", text)),
        }
        check
    }

    fn open(params: &Value, _context: &Value) -> Result<Filter, String> {
        let (expression, env) = compile(params)?;
        let (fields, _) = reads::of(&expression);
        let variables = variables(&fields);
        Ok(Filter { expression, context: Context::with_env(env), variables })
    }

    fn row(&mut self, row: &Row<'_>, _out: &mut Out) -> Result<Verdict, Failure> {
        for variable in &self.variables {
            // What has no members of its own to be absent is null instead.
            let value = value(&variable.shape, row).unwrap_or(CelValue::Null);
            self.context.add_variable_from_value(variable.name.as_str(), value);
        }
        match CelValue::resolve(&self.expression, &self.context) {
            Ok(CelValue::Bool(true)) => Ok(Verdict::Keep),
            Ok(CelValue::Bool(false)) => Ok(Verdict::Drop),
            Ok(other) => Err(failure(format!("the expression gives {}, not true or false", other.type_of()))),
            Err(error) => Err(failure(error.to_string())),
        }
    }
}

/// The error is for a person.
fn compile(params: &Value) -> Result<(IdedExpr, Arc<Env>), String> {
    let source = params.get("keep").and_then(Value::as_str).ok_or("`keep` must be an expression")?;
    let expression = parse(source).map_err(|errors| match errors.errors.first() {
        Some(error) => {
            let what = error.msg.trim_start_matches("Syntax error: ");
            format!("the expression is wrong at {}:{} (line and column): {what}", error.pos.0, error.pos.1)
        }
        None => "the expression is wrong".to_owned(),
    })?;
    Ok((expression, Arc::new(Env::stdlib())))
}

/// By the smaller of the two parsers that the crate has: with the other, the guest is twice as large.
fn parse(source: &str) -> Result<IdedExpr, cel::ParseErrors> {
    PrattParser::new().enable_optional_syntax(true).parse(source)
}

fn report(check: &mut Check, problem: Problem) {
    match problem {
        Problem::Unknown(name) => {
            let text = format!("`{name}` is nothing an expression can read");
            check
                .error("P-PATH", "/with/keep", text)
                .help(format!("a field of the value is `value.{name}`"))
                .help(format!("an expression starts from {}", ROOTS.join(", ")));
        }
        Problem::AllHeaders => {
            check
                .error("P-PATH", "/with/keep", "headers are read by name, not as a whole")
                .help("write headers.NAME, headers[\"NAME\"], or \"NAME\" in headers");
        }
    }
}

/// Functions that are called and do not exist: called with null, those that exist complain of the argument.
fn unknown_functions(expression: &IdedExpr, env: &Arc<Env>) -> Vec<String> {
    let mut names: Vec<String> = expression
        .references()
        .functions()
        .into_iter()
        .filter(|name| tamis_guest::path::is_identifier(name))
        .filter(|name| {
            [format!("{name}(null)"), format!("null.{name}()"), format!("optional.{name}(null)")].iter().all(|call| {
                let called = parse(call).map(|call| CelValue::resolve(&call, &Context::with_env(Arc::clone(env))));
                matches!(called, Ok(Err(ExecutionError::UndeclaredReference(_))))
            })
        })
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

/// The variables that give an expression these fields, whose columns are read in this order.
fn variables(fields: &[Field]) -> Vec<Variable> {
    let mut variables: Vec<Variable> = Vec::new();
    for (column, field) in fields.iter().enumerate() {
        let leaf = if field.root == "headers" { Shape::Header(column) } else { Shape::Column(column) };
        let at = variables.iter().position(|variable| variable.name == field.root);
        if field.members.is_empty() {
            variables.push(Variable { name: field.root.clone(), shape: leaf });
            continue;
        }
        let at = at.unwrap_or_else(|| {
            variables.push(Variable { name: field.root.clone(), shape: Shape::Members(Vec::new()) });
            variables.len() - 1
        });
        variables[at].shape.add(&field.members, leaf);
    }
    variables
}

impl Shape {
    fn add(&mut self, members: &[String], leaf: Shape) {
        let (Shape::Members(here), Some((first, rest))) = (self, members.split_first()) else { return };
        let key = Key::from(first.as_str());
        if rest.is_empty() {
            here.push((key, leaf));
            return;
        }
        let at = here.iter().position(|(name, _)| *name == key).unwrap_or_else(|| {
            here.push((key, Shape::Members(Vec::new())));
            here.len() - 1
        });
        here[at].1.add(rest, leaf);
    }
}

fn value(shape: &Shape, row: &Row<'_>) -> Option<CelValue> {
    match shape {
        Shape::Column(column) => values::of_cell(row.cell(*column)),
        Shape::Header(column) => values::of_header(row.cell(*column)),
        Shape::Members(members) => {
            let mut map = HashMap::with_capacity(members.len());
            for (key, shape) in members {
                if let Some(value) = value(shape, row) {
                    map.insert(key.clone(), value);
                }
            }
            Some(values::map(map))
        }
    }
}

/// The text may show data of the record; it is kept short.
fn failure(mut text: String) -> Failure {
    if text.len() > MAX_TEXT {
        let end = (0..=MAX_TEXT).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    Failure::permanent("expression", text)
}

#[cfg(test)]
mod tests;
