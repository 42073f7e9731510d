//! What a query amounts to, its subqueries and views put together: one table, perhaps a windowing function, conditions, a
//! numbering of rows of which the first is kept, the columns that remain.

use sqlparser::ast::{
    BinaryOperator, Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    OrderBySort, Query, Select, SelectItem, SetExpr, Spanned, TableFactor, Value, WindowType,
};

use super::script::{Places, Script};
use crate::config::diagnostic::Diagnostic;
use crate::config::node::Span;

/// A query.
#[derive(Clone, Debug, Default)]
pub struct Relation {
    /// The table that is read.
    pub table: String,
    /// The windowing function over it.
    pub window: Option<Windowing>,
    /// What its names mean.
    pub names: Names,
    /// Conditions on the records that come in.
    pub before: Vec<Scoped>,
    /// `ROW_NUMBER` whose condition has not come yet.
    pub numbered: Option<Numbering>,
    /// `ROW_NUMBER` of which the first row is kept.
    pub kept: Option<Numbering>,
    /// Conditions on the rows that were kept.
    pub after: Vec<Scoped>,
    /// Whether every column of the table remains.
    pub all: bool,
    /// Columns that are named.
    pub columns: Vec<Output>,
    /// `SELECT DISTINCT`.
    pub distinct: bool,
}

/// An expression and the level at which its names are looked up.
#[derive(Clone, Debug)]
pub struct Scoped {
    /// The expression.
    pub expr: Expr,
    /// Names defined up to here count.
    pub level: usize,
}

/// A column that remains.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// What it is.
    pub value: Scoped,
}

/// `ROW_NUMBER() OVER (PARTITION BY .. ORDER BY ..)`.
#[derive(Clone, Debug)]
pub struct Numbering {
    /// The name of its column.
    pub name: String,
    /// `PARTITION BY`.
    pub partition: Vec<Expr>,
    /// `ORDER BY`; true: descending.
    pub order: Vec<(Expr, bool)>,
    /// Names defined up to here count.
    pub level: usize,
    /// Where it stands.
    pub span: Span,
}

/// `TUMBLE`, `HOP`, `CUMULATE`, `SESSION`.
#[derive(Clone, Debug)]
pub struct Windowing {
    /// Which, in capitals.
    pub function: String,
    /// The time column.
    pub time: Scoped,
    /// Intervals, by the name of the argument.
    pub intervals: Vec<(String, Expr)>,
    /// Where it stands.
    pub span: Span,
}

/// Names that queries gave to expressions, in the order in which they did.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<(String, Scoped)>);

impl Names {
    /// What a name means at a level; `None`: a column of the table.
    pub fn look_up(&self, name: &str, level: usize) -> Option<&Scoped> {
        self.0.iter().take(level).rev().find(|(known, _)| known == name).map(|(_, scoped)| scoped)
    }

    fn level(&self) -> usize {
        self.0.len()
    }
}

/// Puts queries together.
pub struct Reader<'a> {
    /// The statements.
    pub script: &'a Script,
    /// Where things stand.
    pub places: &'a Places,
    /// The statement that is read.
    pub span: Span,
}

type Read<T> = Result<T, Box<Diagnostic>>;

impl Reader<'_> {
    /// A query with all that it stands on.
    pub fn query(&self, query: &Query, depth: usize) -> Read<Relation> {
        if depth > 16 {
            return self.refuse(query, "queries are nested too deeply", "simplify it");
        }
        if let Some(with) = &query.with {
            return self.refuse(with, "`WITH` is not followed", "make a view of it: CREATE TEMPORARY VIEW .. AS ..");
        }
        if query.order_by.is_some() || query.limit_clause.is_some() || query.fetch.is_some() {
            let text = "a stream has no end to sort or to cut: `ORDER BY` and `LIMIT` of a query have no equivalent";
            return self.refuse(query, text, "leave them out");
        }
        match &*query.body {
            SetExpr::Select(select) => self.select(select, depth),
            SetExpr::Query(inner) => self.query(inner, depth + 1),
            SetExpr::SetOperation { .. } => self.refuse(
                query,
                "a pipeline reads one stream: `UNION` has no equivalent within it",
                "name several topics in `source.kafka.topics`, or make a pipeline of each query",
            ),
            _ => self.refuse(query, "this query is not known here", "write it as SELECT .. FROM .."),
        }
    }

    fn select(&self, select: &Select, depth: usize) -> Read<Relation> {
        let grouped = !matches!(&select.group_by, sqlparser::ast::GroupByExpr::Expressions(all, _) if all.is_empty());
        if grouped || select.having.is_some() {
            let text = "groups and their sums have no equivalent: tamis keeps records, it does not aggregate them";
            return self.refuse(
                select,
                text,
                "number the rows of each group and keep the first: ROW_NUMBER() OVER (..)",
            );
        }
        let mut relation = self.from(select, depth)?;
        let level = relation.names.level();
        for condition in conjuncts(select.selection.iter().chain(&select.qualify)) {
            let numbered = relation.numbered.as_ref().map(|numbering| numbering.name.clone());
            match numbered.and_then(|name| keeps(condition, &name)) {
                Some(1) => relation.kept = relation.numbered.take(),
                Some(_) => {
                    let text = "more than one row of each key is kept here; dedup keeps one";
                    return self.refuse(condition, text, "keep one: rownum = 1");
                }
                None => {
                    let scoped = Scoped { expr: condition.clone(), level };
                    if relation.kept.is_some() { relation.after.push(scoped) } else { relation.before.push(scoped) }
                }
            }
        }
        self.projection(select, &mut relation, level)?;
        match &select.distinct {
            None | Some(Distinct::All) => {}
            Some(Distinct::Distinct) if relation.kept.is_none() && relation.numbered.is_none() => {
                relation.distinct = true;
            }
            Some(_) => {
                return self.refuse(select, "`DISTINCT` of rows that were numbered is not followed", "leave it out");
            }
        }
        Ok(relation)
    }

    fn from(&self, select: &Select, depth: usize) -> Read<Relation> {
        let [from] = select.from.as_slice() else {
            return self.refuse(select, "a pipeline reads one stream, and here is none or several", "read one table");
        };
        if !from.joins.is_empty() {
            return self.refuse(
                &from.relation,
                "joins have no equivalent: a pipeline reads one stream",
                "read one table",
            );
        }
        match &from.relation {
            TableFactor::Table { name, args: None, .. } => self.table(&last(name), depth),
            TableFactor::Table { name, args: Some(args), .. } => {
                self.windowing(name, &args.args, &from.relation, depth)
            }
            TableFactor::Derived { subquery, .. } => self.query(subquery, depth + 1),
            TableFactor::TableFunction { expr: Expr::Function(Function { name, args, .. }), .. } => {
                let FunctionArguments::List(list) = args else {
                    return self.refuse(&from.relation, "the windowing function has no arguments", "name a table");
                };
                self.windowing(name, &list.args, &from.relation, depth)
            }
            other => self.refuse(other, "this is no table that a pipeline can read", "read a table, a view or a query"),
        }
    }

    /// A view is the query that it stands for.
    fn table(&self, name: &str, depth: usize) -> Read<Relation> {
        match self.script.views.iter().find(|view| view.name == name) {
            Some(view) => {
                let mut relation = self.query(&view.query, depth + 1)?;
                for (column, name) in relation.columns.iter_mut().zip(&view.columns) {
                    column.name.clone_from(name);
                    relation.names.0.push((name.clone(), column.value.clone()));
                }
                Ok(relation)
            }
            None => Ok(Relation { table: name.to_string(), all: true, ..Relation::default() }),
        }
    }

    fn windowing(&self, name: &ObjectName, args: &[FunctionArg], at: &TableFactor, depth: usize) -> Read<Relation> {
        let function = last(name).to_uppercase();
        let order: &[&str] = match function.as_str() {
            "TUMBLE" => &["DATA", "TIMECOL", "SIZE", "OFFSET"],
            "HOP" => &["DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"],
            "CUMULATE" => &["DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"],
            "SESSION" => &["DATA", "TIMECOL", "GAP"],
            _ => {
                let text = format!("the function `{function}` over a table is not known");
                return self.refuse(at, &text, "TUMBLE, HOP, CUMULATE and SESSION are");
            }
        };
        let (mut data, mut time, mut intervals) = (None, None, Vec::new());
        for (place, arg) in args.iter().enumerate() {
            let (name, value) = match arg {
                FunctionArg::Named { name, arg, .. } => (Some(name.value.to_uppercase()), arg),
                FunctionArg::ExprNamed { name, arg, .. } => (Some(name.to_string().to_uppercase()), arg),
                FunctionArg::Unnamed(arg) => (order.get(place).map(ToString::to_string), arg),
            };
            let (Some(name), FunctionArgExpr::Expr(value)) = (name, value) else { continue };
            match (name.as_str(), value) {
                ("DATA", Expr::Prefixed { value, .. }) => data = identifier(value),
                ("TIMECOL", Expr::Function(descriptor)) => time = arguments(descriptor).first().copied().cloned(),
                _ => intervals.push((name, value.clone())),
            }
        }
        let (Some(data), Some(expr)) = (data, time) else {
            let help = "as in TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)";
            return self.refuse(at, "the windowing function names no table and time column", help);
        };
        let mut relation = self.table(&data, depth)?;
        if relation.kept.is_some() || relation.numbered.is_some() {
            return self.refuse(at, "windows over rows that were deduplicated are not followed", "make two pipelines");
        }
        let level = relation.names.level();
        let span = self.places.of_part(at, self.span);
        relation.window = Some(Windowing { function, time: Scoped { expr, level }, intervals, span });
        Ok(relation)
    }

    /// What remains, under which names.
    fn projection(&self, select: &Select, relation: &mut Relation, level: usize) -> Read<()> {
        let below = std::mem::take(&mut relation.columns);
        let all_below = std::mem::replace(&mut relation.all, false);
        let mut defined = Vec::new();
        for item in &select.projection {
            let (expr, alias) = match item {
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => {
                    relation.all = all_below;
                    relation.columns.extend(below.iter().cloned());
                    continue;
                }
                SelectItem::UnnamedExpr(expr) => (expr, None),
                SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias.value.clone())),
                other => return self.refuse(other, "several names of one expression are not known", "name it once"),
            };
            if let Some(numbering) = self.numbering(expr, alias.as_deref(), level)? {
                relation.numbered = Some(numbering);
                continue;
            }
            let name = alias.clone().or_else(|| identifier(expr)).unwrap_or_else(|| expr.to_string());
            if relation.kept.as_ref().is_some_and(|kept| kept.name == name) {
                // The number of a row that was kept is one.
                continue;
            }
            let value = Scoped { expr: expr.clone(), level };
            if alias.is_some() {
                defined.push((name.clone(), value.clone()));
            }
            relation.columns.push(Output { name, value });
        }
        relation.names.0.extend(defined);
        Ok(())
    }

    /// `ROW_NUMBER() OVER (..)`, if it is one.
    fn numbering(&self, expr: &Expr, alias: Option<&str>, level: usize) -> Read<Option<Numbering>> {
        let Expr::Function(function) = expr else { return Ok(None) };
        let Some(over) = &function.over else { return Ok(None) };
        if !last(&function.name).eq_ignore_ascii_case("ROW_NUMBER") {
            let text = format!("`{}` over a window has no equivalent", function.name);
            return self.refuse(expr, &text, "ROW_NUMBER() has, with the condition that it is 1");
        }
        let WindowType::WindowSpec(spec) = over else {
            return self.refuse(expr, "named windows are not followed", "write the window where it is used");
        };
        let descending = |sort: &Option<OrderBySort>| matches!(sort, Some(OrderBySort::Desc));
        Ok(Some(Numbering {
            name: alias.unwrap_or("ROW_NUMBER").to_string(),
            partition: spec.partition_by.clone(),
            order: spec.order_by.iter().map(|by| (by.expr.clone(), descending(&by.options.sort))).collect(),
            level,
            span: self.places.of_part(expr, self.span),
        }))
    }

    fn refuse<T>(&self, at: &impl Spanned, text: &str, help: &str) -> Read<T> {
        let span = self.places.of_part(at, self.span);
        Err(Box::new(Diagnostic::error("P-SQL", span, text).help(help)))
    }
}

/// The parts of a condition that must all be true.
pub fn conjuncts<'e>(conditions: impl Iterator<Item = &'e Expr>) -> Vec<&'e Expr> {
    let mut open: Vec<&Expr> = conditions.collect();
    open.reverse();
    let mut parts = Vec::new();
    while let Some(part) = open.pop() {
        match part {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => open.extend([&**right, &**left]),
            Expr::Nested(inner) => open.push(inner),
            other => parts.push(other),
        }
    }
    parts
}

/// How many rows a condition on a row number keeps: `rownum = 1`, `rownum <= 3`, `1 = rownum`; `None`: it is none.
fn keeps(condition: &Expr, name: &str) -> Option<u64> {
    let Expr::BinaryOp { left, op, right } = condition else { return None };
    let is_name = |expr: &Expr| identifier(expr).as_deref() == Some(name);
    let number = |expr: &Expr| match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse::<u64>().ok(),
            _ => None,
        },
        _ => None,
    };
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq};
    let (limit, op) = match (is_name(left), is_name(right)) {
        (true, false) => (number(right), op.clone()),
        (false, true) => {
            let turned = match op {
                Gt => Lt,
                GtEq => LtEq,
                Lt => Gt,
                LtEq => GtEq,
                other => other.clone(),
            };
            (number(left), turned)
        }
        _ => return None,
    };
    match (op, limit) {
        (Eq, Some(1)) | (LtEq, Some(1)) | (Lt, Some(2)) => Some(1),
        (LtEq, Some(limit)) => Some(limit),
        _ => Some(0),
    }
}

/// The last part of a name.
pub fn last(name: &ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.clone()).unwrap_or_default()
}

/// The column that an expression is, without the table in front of it.
pub fn identifier(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(Ident { value, .. }) => Some(value.clone()),
        Expr::CompoundIdentifier(parts) => parts.last().map(|ident| ident.value.clone()),
        Expr::Nested(inner) => identifier(inner),
        _ => None,
    }
}

/// The plain arguments of a function.
pub fn arguments(function: &Function) -> Vec<&Expr> {
    let FunctionArguments::List(list) = &function.args else { return Vec::new() };
    list.args
        .iter()
        .filter_map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        })
        .collect()
}
