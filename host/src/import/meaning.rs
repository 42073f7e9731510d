//! What expressions of a query mean in a pipeline: paths, time, truncated time.

use sqlparser::ast::{CeilFloorKind, DataType, DateTimeField, Expr, Value};

use super::relation::{Names, Relation, Scoped, arguments, identifier, last};
use super::table::{Origin, Table};
use crate::config::path::{Path, Root, Step};

/// What an expression means.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// A place in the record.
    Path(Path),
    /// Processing time.
    ProcessingTime,
    /// A bound of the window: `window_start`, `window_end`, `window_time`.
    Bound(String),
    /// Computed from something else.
    Computed(Scoped),
}

/// A time, cut.
#[derive(Clone, Debug)]
pub struct Cut {
    /// What is cut.
    pub time: Scoped,
    /// The length of what remains the same, in seconds; `None`: no fixed length, such as a month.
    pub seconds: Option<i64>,
    /// Only a part of the date remains, which comes again: the hour of the day.
    pub cyclic: bool,
}

/// Where the names of a query are looked up.
pub struct Meanings<'a> {
    /// The table that is read, if it is declared.
    pub table: Option<&'a Table>,
    /// What queries named.
    pub names: &'a Names,
    /// Whether a windowing function adds its bounds.
    pub windowed: bool,
}

impl<'a> Meanings<'a> {
    /// Of a relation.
    pub fn of(relation: &'a Relation, table: Option<&'a Table>) -> Meanings<'a> {
        Meanings { table, names: &relation.names, windowed: relation.window.is_some() }
    }

    /// What an expression means.
    pub fn of_expr(&self, scoped: &Scoped) -> Meaning {
        self.follow(scoped, 0)
    }

    fn follow(&self, scoped: &Scoped, depth: usize) -> Meaning {
        let computed = || Meaning::Computed(scoped.clone());
        if depth > 32 {
            return computed();
        }
        let inner = |expr: &Expr| self.follow(&Scoped { expr: expr.clone(), level: scoped.level }, depth + 1);
        match &scoped.expr {
            Expr::Nested(expr) => inner(expr),
            Expr::Value(value) if matches!(&value.value, Value::Placeholder(name) if name == "$rowtime") => {
                Meaning::Path(Path::whole(Root::Timestamp))
            }
            Expr::Function(function) if last(&function.name).eq_ignore_ascii_case("PROCTIME") => {
                Meaning::ProcessingTime
            }
            // The same instant, written otherwise.
            Expr::Function(function) if is_to_timestamp(&last(&function.name)) => match arguments(function).first() {
                Some(expr) => inner(expr),
                None => computed(),
            },
            Expr::Cast { expr, data_type, .. } if !matches!(data_type, DataType::Date) => inner(expr),
            Expr::CompoundIdentifier(parts) if self.is_column(&parts[0].value) => {
                let Meaning::Path(mut path) = self.column(&parts[0].value, depth) else { return computed() };
                path.steps.extend(parts[1..].iter().map(|part| Step::Member(part.value.clone())));
                Meaning::Path(path)
            }
            expr => match identifier(expr) {
                Some(name) if self.windowed && is_bound(&name) => Meaning::Bound(name.to_lowercase()),
                Some(name) => match self.names.look_up(&name, scoped.level) {
                    Some(named) => self.follow(named, depth + 1),
                    None => self.column(&name, depth),
                },
                None => computed(),
            },
        }
    }

    fn is_column(&self, name: &str) -> bool {
        self.table.is_some_and(|table| table.column(name).is_some())
    }

    fn column(&self, name: &str, depth: usize) -> Meaning {
        let member = |root: Root, name: &str| Path { root, steps: vec![Step::Member(name.to_string())] };
        let Some(column) = self.table.and_then(|table| table.column(name)) else {
            // A topic has a key, whether the table declares it or not.
            let is_key = self.table.is_some() && name.eq_ignore_ascii_case("key");
            return Meaning::Path(if is_key { Path::whole(Root::Key) } else { member(Root::Value, name) });
        };
        match &column.origin {
            Origin::Record => Meaning::Path(self.of_record(&column.name)),
            Origin::Metadata(name) => match name.as_str() {
                "timestamp" => Meaning::Path(Path::whole(Root::Timestamp)),
                "topic" => Meaning::Path(Path::whole(Root::Topic)),
                "partition" => Meaning::Path(Path::whole(Root::Partition)),
                "offset" => Meaning::Path(Path::whole(Root::Offset)),
                "leader-epoch" => Meaning::Path(Path::whole(Root::Epoch)),
                _ => Meaning::Computed(Scoped { expr: Expr::Identifier(column.name.as_str().into()), level: 0 }),
            },
            Origin::Computed(expr) => self.follow(&Scoped { expr: expr.clone(), level: 0 }, depth + 1),
        }
    }

    /// A column of the record: in the value, or in the key if only the key has it.
    fn of_record(&self, name: &str) -> Path {
        let in_value = Path { root: Root::Value, steps: vec![Step::Member(name.to_string())] };
        let Some(table) = self.table else { return in_value };
        let keys = table.key_columns();
        if !table.value_is_without_key() || !keys.iter().any(|key| key == name) {
            return in_value;
        }
        if keys.len() == 1 && key_is_bare(table) {
            return Path::whole(Root::Key);
        }
        let prefix = table.option("key.fields-prefix").unwrap_or_default();
        let member = name.strip_prefix(prefix).unwrap_or(name);
        Path { root: Root::Key, steps: vec![Step::Member(member.to_string())] }
    }

    /// A time that is cut by a date function, if that is what an expression means.
    pub fn cut(&self, scoped: &Scoped) -> Option<Cut> {
        let Meaning::Computed(scoped) = self.of_expr(scoped) else { return None };
        let of = |expr: &Expr, (seconds, cyclic): (Option<i64>, bool)| {
            Some(Cut { time: Scoped { expr: expr.clone(), level: scoped.level }, seconds, cyclic })
        };
        match &scoped.expr {
            Expr::Cast { expr, data_type: DataType::Date, .. } => of(expr, (Some(DAY), false)),
            Expr::Floor { expr, field: CeilFloorKind::DateTimeField(field) } => of(expr, (seconds(field), false)),
            Expr::Extract { expr, field, .. } => of(expr, part(&field.to_string())?),
            Expr::Function(function) => {
                let args = arguments(function);
                match (last(&function.name).to_uppercase().as_str(), args.as_slice()) {
                    ("DATE_FORMAT", [time, pattern]) => of(time, pattern_of(&text(pattern)?)?),
                    ("TO_DATE" | "DATE", [time]) => of(time, (Some(DAY), false)),
                    ("DATE_TRUNC", [unit, time]) => of(time, (unit_seconds(&text(unit)?), false)),
                    (name, [time]) => of(time, part(name)?),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The paths that an expression is computed from; empty if that cannot be told.
    pub fn made_of(&self, scoped: &Scoped) -> Vec<Path> {
        let Meaning::Computed(scoped) = self.of_expr(scoped) else { return Vec::new() };
        let inner: Vec<&Expr> = match &scoped.expr {
            Expr::Substring { expr, .. } | Expr::Trim { expr, .. } | Expr::Cast { expr, .. } => vec![expr],
            Expr::Floor { expr, .. } | Expr::Ceil { expr, .. } | Expr::Extract { expr, .. } => vec![expr],
            Expr::BinaryOp { left, right, .. } => vec![left, right],
            Expr::Function(function) => arguments(function),
            _ => return Vec::new(),
        };
        let mut paths = Vec::new();
        for expr in inner {
            if matches!(expr, Expr::Value(_)) {
                continue;
            }
            let inner = Scoped { expr: expr.clone(), level: scoped.level };
            match self.of_expr(&inner) {
                Meaning::Path(path) => paths.push(path),
                Meaning::Computed(_) => {
                    let below = self.made_of(&inner);
                    if below.is_empty() {
                        return Vec::new();
                    }
                    paths.extend(below);
                }
                Meaning::ProcessingTime | Meaning::Bound(_) => return Vec::new(),
            }
        }
        paths
    }

    /// The unit of a time that a number tells, if the table says it.
    pub fn unit(&self, scoped: &Scoped) -> Option<&'static str> {
        let name = identifier(&scoped.expr)?;
        let expr = match self.names.look_up(&name, scoped.level) {
            Some(named) => return self.unit(named).or_else(|| unit_of(&named.expr)),
            None => match &self.table?.column(&name)?.origin {
                Origin::Computed(expr) => expr,
                _ => return None,
            },
        };
        unit_of(expr)
    }
}

/// `TO_TIMESTAMP_LTZ(n, 0)` counts seconds, with 3 milliseconds.
fn unit_of(expr: &Expr) -> Option<&'static str> {
    let Expr::Function(function) = expr else { return None };
    let args = arguments(function);
    let precision = args.get(1).map(ToString::to_string)?;
    match precision.as_str() {
        "0" => Some("s"),
        "6" => Some("us"),
        "9" => Some("ns"),
        _ => None,
    }
}

fn is_to_timestamp(name: &str) -> bool {
    ["TO_TIMESTAMP", "TO_TIMESTAMP_LTZ"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn is_bound(name: &str) -> bool {
    ["window_start", "window_end", "window_time"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// A record key that is one value and no object.
pub fn key_is_bare(table: &Table) -> bool {
    matches!(table.option("key.format"), Some("raw"))
}

const DAY: i64 = 86_400;

fn seconds(field: &DateTimeField) -> Option<i64> {
    unit_seconds(&field.to_string())
}

fn unit_seconds(unit: &str) -> Option<i64> {
    match unit.to_uppercase().trim_end_matches('S') {
        "SECOND" => Some(1),
        "MINUTE" => Some(60),
        "HOUR" => Some(3_600),
        "DAY" => Some(DAY),
        _ => None,
    }
}

/// A part of a date: how long it stays the same, and whether it comes again.
fn part(name: &str) -> Option<(Option<i64>, bool)> {
    Some(match name.to_uppercase().as_str() {
        "SECOND" => (Some(1), true),
        "MINUTE" => (Some(60), true),
        "HOUR" => (Some(3_600), true),
        "DAYOFWEEK" | "DAYOFMONTH" | "DAYOFYEAR" | "DAY" | "DOW" | "DOY" | "ISODOW" => (Some(DAY), true),
        "WEEK" | "MONTH" | "QUARTER" => (None, true),
        "YEAR" => (None, false),
        _ => return None,
    })
}

/// The smallest unit in a pattern of `DATE_FORMAT`; it comes again if a larger one is missing.
fn pattern_of(pattern: &str) -> Option<(Option<i64>, bool)> {
    let has = |letters: &[char]| pattern.contains(letters);
    let units = [
        has(&['y', 'u']),
        has(&['M', 'L']) || has(&['D']),
        has(&['d', 'D']),
        has(&['H', 'k']),
        has(&['m']),
        has(&['s']),
    ];
    let smallest = units.iter().rposition(|unit| *unit)?;
    let seconds = [None, None, Some(DAY), Some(3_600), Some(60), Some(1)][smallest];
    Some((seconds, !units[..smallest].iter().all(|unit| *unit)))
}

/// A quoted text.
pub fn text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// `INTERVAL '1' HOUR` in nanoseconds.
pub fn interval(expr: &Expr) -> Option<i64> {
    let Expr::Interval(interval) = expr else { return None };
    let number = match &*interval.value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => text.trim().to_string(),
            _ => return None,
        },
        _ => return None,
    };
    let unit = seconds(interval.leading_field.as_ref()?)?;
    if interval.last_field.is_some() {
        return None;
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let fraction: i64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let nanoseconds = whole.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)?;
    nanoseconds.checked_mul(unit)
}
