//! What the stage will do, what it may change later and what that costs, as a person reads it in `plan`.

use serde_json::{Value, json};
use tamis_guest::Says;

use crate::duration;
use crate::plan::Plan;
use crate::settings::{Clock, Late, Order, Settings, Window};
use crate::table::{Code, Emit, Keep, Output, Shape};

/// The three sentences of `plan`.
pub fn says(s: &Settings, plan: &Plan, context: &Value) -> Says {
    let words = Words { s, plan, context };
    Says { does: words.does(), changes: words.changes(), costs: words.costs() }
}

/// The parameters with every default filled in, also those that depend on others (8.3).
pub fn filled(params: &Value, s: &Settings) -> Value {
    let mut all = params.as_object().cloned().unwrap_or_default();
    all.retain(|_, value| !value.is_null());
    let order = match &s.order {
        Order::Time => json!("time"),
        Order::Arrival => json!("arrival"),
        Order::Fields(paths) => json!(paths),
    };
    let emit = ["immediate", "close", "change"][s.emit as usize];
    all.insert("order".to_string(), order);
    all.insert("emit".to_string(), json!(emit));
    if let Some(Value::Object(window)) = all.get_mut("window") {
        let mut default = |name: &str, value: &str| {
            if window.get(name).is_none_or(Value::is_null) {
                window.insert(name.to_string(), json!(value));
            }
        };
        match s.window.shape() {
            Shape::Tumbling => {
                default("offset", "0s");
                default("zone", "UTC");
            }
            Shape::Hopping | Shape::Cumulative => default("offset", "0s"),
            Shape::Horizon => default("refresh", "create"),
            Shape::None | Shape::Session => {}
        }
    }
    Value::Object(all)
}

struct Words<'a> {
    s: &'a Settings,
    plan: &'a Plan,
    context: &'a Value,
}

impl Words<'_> {
    fn does(&self) -> String {
        let which = if self.s.keep == Keep::First { "first" } else { "last" };
        let order = self.order().map(|order| format!(" {order}")).unwrap_or_default();
        let place = if self.context["scope"] == "partition" { " in each partition" } else { "" };
        format!("keeps the {which} record{order}{}{}{place}; {}", self.key(), self.scope(), self.leaves())
    }

    /// What the key tells apart.
    fn key(&self) -> String {
        let key = &self.context["key"];
        let short = |path: &Value| {
            let path = path.as_str().unwrap_or_default();
            path.strip_prefix("value.").unwrap_or(path).to_string()
        };
        let list = |paths: &Value, of: &dyn Fn(&Value) -> Value| -> Vec<String> {
            paths.as_array().into_iter().flatten().map(|path| short(&of(path))).collect()
        };
        if let Some(guest) = key["uses"].as_str() {
            return format!(" per key of {guest}");
        }
        if let Some(whole) = key["whole"].as_str() {
            let except = list(&key["except"], &Value::clone);
            return match except.as_slice() {
                [] => format!(" per whole {whole}"),
                except => format!(" per {whole} without {}", except.join(", ")),
            };
        }
        match list(&key["fields"], &|part| part["field"].clone()).as_slice() {
            [] => " of the whole stream".to_string(),
            [one] => format!(" per {one}"),
            several => format!(" per ({})", several.join(", ")),
        }
    }

    /// What limits sameness in time.
    fn scope(&self) -> String {
        let fields = self.context["key"]["fields"].as_array();
        let and = if fields.is_some_and(Vec::is_empty) { "per" } else { "and" };
        let of = self.of_clock();
        let shifted = |offset: i64| match offset {
            0 => String::new(),
            offset => format!(", shifted by {}", print(offset)),
        };
        match &self.s.window {
            Window::None => String::new(),
            Window::Tumbling { size, offset, .. } => {
                let zone = self.s.window.zone().map(|zone| format!(" in {zone}")).unwrap_or_default();
                format!(" {and} {} of {of}{zone}{}", period(*size), shifted(*offset))
            }
            Window::Hopping { size, every, offset, .. } => {
                let (period, every) = (period(*size), print(*every));
                format!(" {and} {period} of {of}, a new one every {every}{}", shifted(*offset))
            }
            Window::Cumulative { size, step, offset, .. } => {
                let (period, step) = (period(*size), print(*step));
                format!(" {and} {period} of {of}, so far in steps of {step}{}", shifted(*offset))
            }
            Window::Session { gap } => format!(" {and} session, records at most {} apart by {of}", print(*gap)),
            Window::Horizon { ttl, access: false } => {
                format!(" within {} of the one that opened its group, by {of}", print(*ttl))
            }
            Window::Horizon { ttl, access: true } => {
                format!(" within {} of any other of its group, by {of}", print(*ttl))
            }
        }
    }

    /// What first and last compare, where the window does not say it already.
    fn order(&self) -> Option<String> {
        match &self.s.order {
            Order::Time if self.s.window.is_aligned() && self.s.clock == Clock::Event => None,
            Order::Time => Some(format!("by {}", self.event_time())),
            Order::Arrival => Some("to arrive".to_string()),
            Order::Fields(paths) => Some(format!("by {}", paths.join(", "))),
        }
    }

    /// When a row leaves.
    fn leaves(&self) -> String {
        let better = match (&self.s.order, self.s.keep) {
            (Order::Time, Keep::First) => "one that is earlier".to_string(),
            (Order::Fields(paths), Keep::First) => format!("one with a smaller {}", paths.join(", ")),
            (Order::Arrival, Keep::First) => String::new(),
            (Order::Time, Keep::Last) => "each that is not earlier".to_string(),
            (Order::Fields(paths), Keep::Last) => format!("each whose {} is not smaller", paths.join(", ")),
            (Order::Arrival, Keep::Last) => "each that comes later".to_string(),
        };
        let updates = match (&self.s.order, self.s.keep) {
            (Order::Arrival, Keep::First) => "a row leaves at once".to_string(),
            _ => format!("a row leaves at once, and {better} replaces it"),
        };
        let steps = self.s.window.shape() == Shape::Cumulative && self.s.emit == Emit::Change;
        let leaves = match self.plan.code {
            Code::FA => "a row leaves at once".to_string(),
            Code::FE | Code::LE if steps && !self.s.updates() => {
                format!("a row leaves {}, if it is another than that of the step before", self.close())
            }
            Code::FE | Code::LE => format!("a row leaves {}", self.close()),
            Code::NO3 => "a row leaves when the input ends".to_string(),
            Code::WU if self.s.lateness > 0 => {
                format!("a row leaves {}, and corrections for {} after that end", self.close(), print(self.s.lateness))
            }
            Code::WU => format!("a row leaves {}", self.close()),
            Code::FC | Code::LC => format!("{updates}, if its content differs"),
            Code::MU if self.s.emit == Emit::Change => {
                format!("{updates}, if its content differs; sessions that meet become one")
            }
            Code::MU => format!("{updates}; sessions that meet become one"),
            Code::FU | Code::LU | Code::NO1 | Code::NO2 | Code::Same => updates,
        };
        match self.s.heartbeat {
            Some(silence) => {
                format!(
                    "{leaves}; it leaves again with a record that changes nothing, from {} after it left last",
                    print(silence)
                )
            }
            None => leaves,
        }
    }

    /// When what closes closes.
    fn close(&self) -> String {
        let mover = self.of_clock();
        let mut wait = if self.s.clock == Clock::Event { self.s.delay } else { 0 };
        // Append output waits for all that may still come; the others write, and correct (L3).
        if !self.s.updates() {
            wait = wait.saturating_add(self.s.lateness);
        }
        match &self.s.window {
            Window::None if wait == 0 => format!("once {mover} has gone past it"),
            Window::None => format!("once {mover} is {} past it", print(wait)),
            Window::Tumbling { size, .. } | Window::Hopping { size, .. } => self.close_of(&period(*size), wait),
            Window::Cumulative { .. } => self.close_of("step", wait),
            Window::Session { gap } => {
                format!(
                    "when its session closes, once {mover} is more than {} past its last record",
                    print(gap.saturating_add(wait))
                )
            }
            Window::Horizon { ttl, access } => {
                let base = if *access { "its last record" } else { "the record that opened it" };
                format!("when its group closes, once {mover} is {} past {base}", print(ttl.saturating_add(wait)))
            }
        }
    }

    fn close_of(&self, what: &str, wait: i64) -> String {
        match (self.s.clock, wait) {
            (Clock::Processing, _) => format!("when its {what} closes by {}", self.of_clock()),
            (_, 0) => format!("when its {what} closes, as soon as {} reaches its end", self.of_clock()),
            (_, wait) => {
                format!("when its {what} closes, {} after {} has reached its end", print(wait), self.of_clock())
            }
        }
    }

    /// What of the output may change later.
    fn changes(&self) -> String {
        let s = self.s;
        let written = match s.output {
            Output::Append => "",
            Output::Upsert => "the row is written again under its key",
            Output::Retract => "the old image is taken back and the new one sent",
        };
        let shape = s.window.shape();
        let facts = match (self.plan.code, shape) {
            (Code::WU, Shape::Session) if s.lateness > 0 => {
                format!(
                    "for {} a session may grow or meet another: {written}, an absorbed one is deleted",
                    print(s.lateness)
                )
            }
            (Code::WU, _) if s.lateness > 0 => {
                format!("for {} after its window's end a row may be replaced: {written}", print(s.lateness))
            }
            (Code::FU | Code::FC | Code::LU | Code::LC, Shape::None) => {
                format!("a row may be replaced while its key is remembered: {written}")
            }
            (Code::FU | Code::FC | Code::LU | Code::LC, _) => {
                format!("a row may be replaced until it closes: {written}")
            }
            (Code::MU, _) => {
                format!("a row may be replaced until its session closes: {written}, an absorbed one is deleted")
            }
            _ => "nothing: a row that has left stays".to_string(),
        };
        let tombstone = match (shape, s.updates()) {
            // Elsewhere a null value is a value (O11).
            (Shape::None | Shape::Horizon, true) => "; a null value deletes the row of its key",
            (Shape::None | Shape::Horizon, false) => "; a null value passes, and the next record of its key is a first",
            _ => "",
        };
        format!("{facts}{tombstone}{}", self.late())
    }

    /// What becomes of late records, where something is final (L1).
    fn late(&self) -> &'static str {
        let by_watermark = self.s.clock != Clock::Processing;
        let is_final = self.s.window != Window::None || self.plan.code == Code::FE;
        match self.s.late {
            _ if !by_watermark || !is_final => "",
            Late::Route => "; late records go to the route `late`",
            Late::Drop => "; late records are dropped and counted",
            Late::Pass => "; late records pass",
        }
    }

    /// What state costs, how long it stays, and what a changelog gets of it.
    fn costs(&self) -> String {
        let waits = matches!(self.plan.code, Code::FE | Code::LE | Code::WU | Code::NO3);
        let compares = if self.plan.content.is_some() {
            ", the order value and 16 bytes for its content"
        } else {
            " and the order value"
        };
        let (state, changelog) = if self.plan.fast {
            ("a mark of 46 bytes".to_string(), "one mark per first record, nothing per duplicate")
        } else if waits && self.s.keep == Keep::First && self.s.window == Window::None {
            (
                "the record and about 100 bytes while it waits, then a mark".to_string(),
                "one image per candidate that outlives a commit, then a mark",
            )
        } else if waits && self.s.keep == Keep::First {
            ("the record and about 100 bytes".to_string(), "one image per candidate that outlives a commit")
        } else if self.plan.images && self.plan.code == Code::FA {
            // A null value takes the row back, so the row must be known.
            ("the record and about 100 bytes".to_string(), "one image per first record, nothing per duplicate")
        } else if waits || self.plan.images {
            ("the record and about 100 bytes".to_string(), "up to one image per record, the last per key and commit")
        } else if self.plan.code == Code::FA {
            ("a mark with its position, no record".to_string(), "one mark per first record, nothing per duplicate")
        } else {
            (format!("a mark{compares}, no record"), "one small entry per winning record")
        };
        format!("{state} {}; changelog: {changelog}", self.stays())
    }

    /// Per what, and how long.
    fn stays(&self) -> String {
        let lateness =
            if self.s.lateness > 0 { format!(" and {} more", print(self.s.lateness)) } else { String::new() };
        match &self.s.window {
            Window::None => {
                let bounds = &self.context["state"];
                let mut words = Vec::new();
                if let Some(retention) = self.s.retention {
                    let since = if retention.access { "its last record" } else { "the kept record" };
                    words.push(format!("for {} after {since}", print(retention.after)));
                }
                words.extend(bounds["max_entries"].as_u64().map(|most| format!("for at most {most} keys")));
                words.extend(bounds["max_bytes"].as_u64().map(|most| format!("within {most} bytes")));
                let fields = self.context["key"]["fields"].as_array();
                match words.as_slice() {
                    _ if fields.is_some_and(Vec::is_empty) => "in all".to_string(),
                    [] => "per key, for as long as the pipeline runs".to_string(),
                    words => format!("per key, {}", words.join(", ")),
                }
            }
            Window::Tumbling { size, .. } => format!("per key, until its {} is over{lateness}", period(*size)),
            Window::Hopping { size, every, .. } => {
                format!("per key in each of {} windows{lateness}", size.saturating_add(every - 1) / every)
            }
            Window::Cumulative { size, step, .. } => format!("per key in each of {} steps{lateness}", size / step),
            Window::Session { .. } => format!("per open session{lateness}"),
            Window::Horizon { .. } => "per open group".to_string(),
        }
    }

    /// What moves the stage's clock.
    fn of_clock(&self) -> String {
        match self.s.clock {
            Clock::Processing => "the wall clock".to_string(),
            Clock::Ingestion => "the record timestamp".to_string(),
            Clock::Event => self.event_time(),
        }
    }

    fn event_time(&self) -> String {
        match self.context["time"]["field"].as_str() {
            Some("timestamp") | None => "the record timestamp".to_string(),
            Some(path) => path.to_string(),
        }
    }
}

fn print(length: i64) -> String {
    duration::print(length)
}

/// A window of this size in one word, if there is one.
fn period(size: i64) -> String {
    const WORDS: [(i64, &str); 4] = [(1, "second"), (60, "minute"), (3_600, "hour"), (86_400, "day")];
    let word = WORDS.iter().find(|(seconds, _)| size == seconds * 1_000_000_000);
    word.map_or_else(|| format!("window of {}", print(size)), |(_, word)| word.to_string())
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
