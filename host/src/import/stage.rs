//! The numbering of rows of which the first is kept, as a `dedup` stage.

use serde_json::{Map, Value, json};

use super::Notes;
use super::meaning::{Cut, Meaning, Meanings, interval};
use super::relation::{Numbering, Relation, Scoped, Windowing};
use super::settings::Settings;
use super::table::Table;
use crate::config::node::Span;
use crate::config::path::{Path, Root};
use crate::config::values::print_duration;

/// What a sink takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Inserts.
    Appends,
    /// Keyed writes.
    Upserts,
    /// Old and new images.
    Retractions,
    /// Whatever comes: it is shown.
    Anything,
}

/// The stage, and the time that it needs.
pub struct Dedup {
    /// The key.
    pub key: Vec<Path>,
    /// Its parameters.
    pub with: Map<String, Value>,
    /// Its state, if something must be said of it.
    pub state: Option<Value>,
    /// Event time, if it is used.
    pub time: Option<Scoped>,
    /// Where event time is.
    pub time_path: Option<Path>,
    /// Whether its output may take something back.
    pub updates: bool,
}

/// What PARTITION BY says.
struct Parts {
    key: Vec<Path>,
    cut: Option<Cut>,
    bounds: bool,
}

/// Makes the stage; `None`: the reason is among the findings.
pub struct Maker<'a> {
    /// The query.
    pub relation: &'a Relation,
    /// Its table, if it is declared.
    pub table: Option<&'a Table>,
    /// What its names mean.
    pub meanings: &'a Meanings<'a>,
    /// What the sink takes.
    pub takes: Takes,
    /// Whether the input ends.
    pub bounded: bool,
    /// Whether the columns that remain have the bounds of the window.
    pub shows_bounds: bool,
    /// What `SET` said.
    pub settings: &'a Settings,
}

impl Maker<'_> {
    /// The stage of a numbering.
    pub fn dedup(&self, numbering: &Numbering, notes: &mut Notes<'_>) -> Option<Dedup> {
        let parts = self.parts(numbering, notes)?;
        let (order, last) = self.order(numbering, notes)?;
        let mut with = Map::new();
        if last {
            with.insert("keep".to_string(), json!("last"));
        }
        // The window, and the time it goes by.
        let (window, window_time) = match (&self.relation.window, parts.bounds, &parts.cut) {
            (Some(windowing), true, None) => (Some(self.window(windowing, notes)?), Some(windowing.time.clone())),
            (_, true, Some(_)) => {
                notes.refuse("windows within windows are not followed", numbering.span, "leave one of them out");
                return None;
            }
            (_, _, Some(cut)) => (Some(self.tumbling(cut, numbering.span, notes)?), Some(cut.time.clone())),
            (Some(windowing), false, None) => {
                let text = "`PARTITION BY` names neither window_start nor window_end: one row is kept of all windows";
                notes.warn("W-SQL", text, windowing.span, "name both, if one of each window is meant");
                (None, None)
            }
            (None, _, None) => (None, None),
        };
        let processing = window_time.as_ref().is_some_and(|time| self.is_processing(time));
        if let Some(window) = window {
            with.insert("window".to_string(), window);
        }
        let time = match (&window_time, order.as_slice()) {
            (Some(time), _) if !processing => Some(time.clone()),
            (_, [one]) if self.path(one).is_some_and(|path| self.is_time(&path)) => Some(one.clone()),
            _ => None,
        };
        let time_path = time.as_ref().and_then(|time| self.path(time));
        if time.is_some() && time_path.is_none() {
            notes.refuse(
                "this time is computed in a way that has no equivalent",
                numbering.span,
                "name a field that holds the time",
            );
            return None;
        }
        if processing {
            with.insert("clock".to_string(), json!("processing"));
        }
        let fields: Vec<Path> = order.iter().filter_map(|scoped| self.path(scoped)).collect();
        let order = match fields.as_slice() {
            [] => json!("arrival"),
            [one] if time_path.as_ref() == Some(one) => json!("time"),
            several => json!(several.iter().map(Path::to_string).collect::<Vec<_>>()),
        };
        let aligned = parts.bounds && self.relation.window.is_some();
        let updates = self.output(&mut with, last, &order, aligned, parts.cut.is_some(), numbering.span, notes);
        with.insert("order".to_string(), order);
        if with.contains_key("window") {
            let bounds = if self.shows_bounds && aligned {
                json!({ "to": "value", "format": "rfc3339" })
            } else {
                json!("none")
            };
            with.insert("bounds".to_string(), bounds);
        }
        let state = if with.contains_key("window") { None } else { self.state(numbering.span, notes) };
        Some(Dedup { key: parts.key, with: in_order(with), state, time, time_path, updates })
    }

    /// `PARTITION BY`: parts of the key, the window, and what neither of them can be.
    fn parts(&self, numbering: &Numbering, notes: &mut Notes<'_>) -> Option<Parts> {
        let mut parts = Parts { key: Vec::new(), cut: None, bounds: false };
        let mut cuts: Vec<(Cut, Span, String)> = Vec::new();
        let mut computed: Vec<(Scoped, Span)> = Vec::new();
        for expr in &numbering.partition {
            let scoped = Scoped { expr: expr.clone(), level: numbering.level };
            let span = notes.place(expr, numbering.span);
            match self.meanings.of_expr(&scoped) {
                Meaning::Path(path) if parts.key.contains(&path) => {
                    notes.warn("W-DEPENDENT-KEY", &format!("`{path}` stands in the key already"), span, "leave it out");
                }
                Meaning::Path(path) => parts.key.push(path),
                Meaning::Bound(_) => parts.bounds = true,
                Meaning::ProcessingTime => {
                    notes.refuse(
                        "each record has a processing time of its own: nothing would be a duplicate",
                        span,
                        "leave it out",
                    );
                    return None;
                }
                Meaning::Computed(_) => match self.meanings.cut(&scoped) {
                    Some(cut) => cuts.push((cut, span, expr.to_string())),
                    None => computed.push((scoped, span)),
                },
            }
        }
        for (scoped, span) in computed {
            let made_of = self.meanings.made_of(&scoped);
            if made_of.is_empty() || !made_of.iter().all(|path| parts.key.contains(path)) {
                let text = format!("`{}` is computed: a part of a key is a field", scoped.expr);
                notes.refuse(&text, span, "a key guest of your own computes keys: `key: { uses: ./key.wasm }`");
                return None;
            }
            let paths: Vec<String> = made_of.iter().map(|path| format!("`{path}`")).collect();
            let text = format!(
                "`{}` is decided by {}: it tells no more records apart, and is left out",
                scoped.expr,
                paths.join(", ")
            );
            notes.warn(
                "W-DEPENDENT-KEY",
                &text,
                span,
                "leave it out of the query as well; state does not become smaller by it",
            );
        }
        parts.cut = self.smallest(cuts, notes)?;
        Some(parts)
    }

    /// Of several date functions the finest decides. One that comes again each day is warned about.
    #[allow(clippy::option_option, reason = "none: refused; none inside: there is no date function")]
    fn smallest(&self, cuts: Vec<(Cut, Span, String)>, notes: &mut Notes<'_>) -> Option<Option<Cut>> {
        let whole_date = cuts.iter().any(|(cut, ..)| !cut.cyclic && cut.seconds.is_some());
        for (cut, span, text) in &cuts {
            let Some(seconds) = cut.seconds else {
                notes.refuse(
                    &format!("`{text}` has no fixed length, and a window has one"),
                    *span,
                    "a day, or whole days: `window: { tumbling: 7d }`",
                );
                return None;
            };
            if cut.cyclic && !whole_date {
                let length = print_duration(seconds * 1_000_000_000);
                let text = format!(
                    "`{text}` comes again: today's and tomorrow's are one partition, of which one row is kept for ever. Imported as what is meant, a window of {length}"
                );
                notes.warn(
                    "W-CYCLIC-KEY",
                    &text,
                    *span,
                    "DATE_FORMAT(.., 'yyyy-MM-dd HH') in the query, with the whole date",
                );
            }
        }
        Some(cuts.into_iter().map(|(cut, ..)| cut).min_by_key(|cut| cut.seconds))
    }

    /// `ORDER BY`: the fields, none for processing time; and whether the last is kept.
    fn order(&self, numbering: &Numbering, notes: &mut Notes<'_>) -> Option<(Vec<Scoped>, bool)> {
        let Some((_, last)) = numbering.order.first() else {
            notes.refuse("without `ORDER BY` it is open which row is kept", numbering.span, "ORDER BY a time");
            return None;
        };
        let mut fields = Vec::new();
        for (expr, descending) in &numbering.order {
            let scoped = Scoped { expr: expr.clone(), level: numbering.level };
            let span = notes.place(expr, numbering.span);
            if descending != last {
                notes.refuse(
                    "one order ascends and another descends: dedup compares all in one direction",
                    span,
                    "give them one direction",
                );
                return None;
            }
            match self.meanings.of_expr(&scoped) {
                Meaning::Path(_) => fields.push(scoped),
                Meaning::ProcessingTime | Meaning::Bound(_) => {}
                Meaning::Computed(_) => {
                    notes.refuse(
                        &format!("`{expr}` is computed: records are ordered by fields"),
                        span,
                        "order by a field",
                    );
                    return None;
                }
            }
        }
        Some((fields, *last))
    }

    /// Kind of output, and when it leaves. True: it may take something back.
    #[allow(clippy::too_many_arguments)]
    fn output(
        &self,
        with: &mut Map<String, Value>,
        last: bool,
        order: &Value,
        aligned: bool,
        cut: bool,
        span: Span,
        notes: &mut Notes<'_>,
    ) -> bool {
        let mut set = |name: &str, value: &str| drop(with.insert(name.to_string(), json!(value)));
        let by_arrival = order == "arrival";
        let updating = match self.takes {
            Takes::Upserts => Some("upsert"),
            Takes::Retractions => Some("retract"),
            Takes::Appends | Takes::Anything => None,
        };
        if aligned || (!last && by_arrival) {
            // Insert only, whatever the sink takes: a window leaves when it closes, a first arrival at once.
            if cut {
                set("emit", "immediate");
            }
            if let Some(output) = updating {
                set("output", output);
            }
            return updating.is_some();
        }
        if !last && order == "time" && updating.is_none() {
            set("emit", "close");
            let text = "the sink takes no corrections: a row leaves when nothing earlier can come any more";
            notes.note(text, span);
            return false;
        }
        if self.takes == Takes::Appends {
            let text = if last {
                "the sink only appends, and keep last sends updates: Flink refuses this query. Imported as upserts under the deduplication key"
            } else {
                "the sink only appends, and an earlier record may come: Flink refuses this query. Imported as upserts under the deduplication key"
            };
            notes.warn("W-SQL", text, span, "'connector' = 'upsert-kafka' with a PRIMARY KEY in the query");
        }
        set("output", updating.unwrap_or("upsert"));
        if last && by_arrival && self.settings.ttl.is_none() {
            // Flink leaves out a row that equals the last one while no state TTL is set.
            set("emit", "change");
        } else if cut {
            set("emit", "immediate");
        }
        true
    }

    /// Without a window state lasts as long as the TTL says, or for ever.
    fn state(&self, span: Span, notes: &mut Notes<'_>) -> Option<Value> {
        if let Some(ttl) = self.settings.ttl {
            return Some(json!({ "retention": { "for": print_duration(ttl), "clock": "processing" } }));
        }
        if self.bounded {
            return None;
        }
        let text = "no state TTL is set: state grows with every new key, here as there";
        notes.warn("W-SQL", text, span, "`state: { retention: 7d }` in place of `unbounded: true`");
        Some(json!({ "unbounded": true }))
    }

    fn window(&self, windowing: &Windowing, notes: &mut Notes<'_>) -> Option<Value> {
        let mut lengths = Map::new();
        for (name, expr) in &windowing.intervals {
            let Some(length) = interval(expr) else {
                let help = "seconds, minutes, hours or days: INTERVAL '1' HOUR";
                notes.refuse(&format!("`{expr}` has no fixed length"), notes.place(expr, windowing.span), help);
                return None;
            };
            lengths.insert(name.clone(), json!(print_duration(length)));
        }
        let mut window = Map::new();
        let mut put = |to: &str, from: &str| {
            let length = lengths.get(from).cloned();
            window.insert(to.to_string(), length.unwrap_or(Value::Null));
        };
        match windowing.function.as_str() {
            "HOP" => {
                put("hopping", "SIZE");
                put("every", "SLIDE");
            }
            "CUMULATE" => {
                put("cumulative", "SIZE");
                put("step", "STEP");
            }
            "SESSION" => put("session", "GAP"),
            _ => put("tumbling", "SIZE"),
        }
        if lengths.contains_key("OFFSET") {
            put("offset", "OFFSET");
        }
        if window.values().any(Value::is_null) {
            notes.refuse(
                "an interval is missing",
                windowing.span,
                "as in TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)",
            );
            return None;
        }
        Some(Value::Object(window))
    }

    fn tumbling(&self, cut: &Cut, span: Span, notes: &mut Notes<'_>) -> Option<Value> {
        let size = print_duration(cut.seconds? * 1_000_000_000);
        let mut window = json!({ "tumbling": size });
        if let (Some(zone), Some(members)) = (&self.settings.zone, window.as_object_mut()) {
            members.insert("zone".to_string(), json!(zone));
            notes.note("the date is read in the session's time zone, so the window has it", span);
        }
        Some(window)
    }

    fn is_processing(&self, scoped: &Scoped) -> bool {
        matches!(self.meanings.of_expr(scoped), Meaning::ProcessingTime)
    }

    fn path(&self, scoped: &Scoped) -> Option<Path> {
        match self.meanings.of_expr(scoped) {
            Meaning::Path(path) => Some(path),
            _ => None,
        }
    }

    /// A time attribute: the record's timestamp, or what the watermark is for.
    fn is_time(&self, path: &Path) -> bool {
        path.root == Root::Timestamp || self.watermark_path().as_ref() == Some(path)
    }

    fn watermark_path(&self) -> Option<Path> {
        let column = &self.table?.watermark.as_ref()?.column;
        let scoped = Scoped { expr: sqlparser::ast::Expr::Identifier(column.as_str().into()), level: 0 };
        self.path(&scoped)
    }
}

/// Parameters in the order in which people read them.
fn in_order(mut with: Map<String, Value>) -> Map<String, Value> {
    let mut all = Map::new();
    for name in ["keep", "window", "clock", "order", "output", "emit", "bounds"] {
        if let Some(value) = with.remove(name) {
            all.insert(name.to_string(), value);
        }
    }
    all.extend(with);
    all
}
