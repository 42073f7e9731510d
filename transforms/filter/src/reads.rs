//! Which columns an expression reads, found in its syntax tree: only what it names is decoded.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, operators};
use tamis_guest::path::{self, Step};

/// What an expression may start from.
pub const ROOTS: [&str; 8] = ["value", "key", "headers", "timestamp", "topic", "partition", "offset", "epoch"];

/// Names that are types where a value could stand.
const TYPES: [&str; 12] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional_type", "dyn"];

/// A field that the expression reads: a root and members below it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Field {
    /// One of `ROOTS`.
    pub root: String,
    /// For `value` and `key`: empty is the whole. For `headers`: the name.
    pub members: Vec<String>,
}

impl Field {
    /// The name of the column.
    pub fn column(&self) -> String {
        if !matches!(self.root.as_str(), "value" | "key" | "headers") {
            return self.root.clone();
        }
        let steps: Vec<Step> = self.members.iter().cloned().map(Step::Member).collect();
        let below = path::format(&steps);
        if below.starts_with('[') { format!("{}{below}", self.root) } else { format!("{}.{below}", self.root) }
    }
}

/// Something that an expression must not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A name that is no root.
    Unknown(String),
    /// `headers` as a whole.
    AllHeaders,
}

/// The fields of an expression, none below another, sorted; and what is wrong.
pub fn of(expression: &IdedExpr) -> (Vec<Field>, Vec<Problem>) {
    let mut walk = Walk::default();
    walk.visit(expression);
    walk.fields.sort();
    walk.fields.dedup();
    let all = walk.fields.clone();
    let covered = |field: &Field| {
        all.iter().any(|other| other != field && other.root == field.root && field.members.starts_with(&other.members))
    };
    walk.fields.retain(|field| !covered(field));
    (walk.fields, walk.problems)
}

#[derive(Default)]
struct Walk {
    fields: Vec<Field>,
    problems: Vec<Problem>,
    /// Variables of the macros around.
    local: Vec<String>,
}

impl Walk {
    fn visit(&mut self, expression: &IdedExpr) {
        if let Some((root, members)) = chain(expression) {
            return self.field(root.trim_start_matches('.'), members);
        }
        match &expression.expr {
            Expr::Call(call) => self.call(call),
            Expr::Select(select) => self.visit(&select.operand),
            Expr::List(list) => list.elements.iter().for_each(|element| self.visit(element)),
            Expr::Map(map) => map.entries.iter().for_each(|entry| self.entry(&entry.expr)),
            Expr::Struct(structure) => structure.entries.iter().for_each(|entry| self.entry(&entry.expr)),
            Expr::Comprehension(each) => {
                self.visit(&each.iter_range);
                self.visit(&each.accu_init);
                let depth = self.local.len();
                self.local.push(each.accu_var.clone());
                self.local.push(each.iter_var.clone());
                self.local.extend(each.iter_var2.clone());
                self.visit(&each.loop_cond);
                self.visit(&each.loop_step);
                self.visit(&each.result);
                self.local.truncate(depth);
            }
            Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
        }
    }

    fn entry(&mut self, entry: &EntryExpr) {
        match entry {
            EntryExpr::StructField(field) => self.visit(&field.value),
            EntryExpr::MapEntry(entry) => {
                self.visit(&entry.key);
                self.visit(&entry.value);
            }
        }
    }

    fn call(&mut self, call: &CallExpr) {
        // "NAME" in headers
        if let (operators::IN, [name, container]) = (call.func_name.as_str(), call.args.as_slice())
            && let (Some(name), Expr::Ident(root)) = (literal_text(name), &container.expr)
            && root == "headers"
            && !self.local.contains(root)
        {
            return self.field("headers", vec![name.to_owned()]);
        }
        match &call.target {
            // optional.of(..): a name in front of a function, not a value.
            Some(target) if matches!(&target.expr, Expr::Ident(name) if name == "optional") => {}
            Some(target) => self.visit(target),
            None => {}
        }
        call.args.iter().for_each(|argument| self.visit(argument));
    }

    fn field(&mut self, root: &str, mut members: Vec<String>) {
        if self.local.iter().any(|name| name == root) || root.starts_with('@') {
            return;
        }
        if !ROOTS.contains(&root) {
            if !TYPES.contains(&root) {
                self.problems.push(Problem::Unknown(root.to_owned()));
            }
            return;
        }
        match root {
            "value" | "key" => {}
            "headers" if members.is_empty() => return self.problems.push(Problem::AllHeaders),
            "headers" => members.truncate(1),
            _ => members.clear(),
        }
        self.fields.push(Field { root: root.to_owned(), members });
    }
}

/// Root and members of `a.b["c"]`, also under `has(..)`; nothing for other expressions.
fn chain(expression: &IdedExpr) -> Option<(&str, Vec<String>)> {
    let mut members = Vec::new();
    let mut here = expression;
    loop {
        match &here.expr {
            Expr::Ident(root) => {
                members.reverse();
                return Some((root, members));
            }
            Expr::Select(select) => {
                members.push(select.field.clone());
                here = &select.operand;
            }
            Expr::Call(CallExpr { func_name, target: None, args })
                if matches!(func_name.as_str(), operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT) =>
            {
                let [operand, name] = args.as_slice() else { return None };
                members.push(literal_text(name)?.to_owned());
                here = operand;
            }
            _ => return None,
        }
    }
}

fn literal_text(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}
