//! What the user asked for: the parameters and what stands beside them, read once, defaults filled in.

use serde_json::{Map, Value};
use tamis_guest::{Finding, Severity};

use crate::duration;
use crate::table::{Axis, Code, Emit, Keep, Output, Place, Shape};
use crate::zone;

/// The parameters of a stage and the parts of the context that matter here.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which one stays.
    pub keep: Keep,
    /// What limits sameness in time.
    pub window: Window,
    /// What assigns and closes windows and ages state.
    pub clock: Clock,
    /// What first and last compare.
    pub order: Order,
    /// Kind of output.
    pub output: Output,
    /// When a result leaves.
    pub emit: Emit,
    /// How long a window accepts records after its end, ns.
    pub lateness: i64,
    /// What becomes of late records.
    pub late: Late,
    /// The header `tamis.kind` says what a record is.
    pub changelog: bool,
    /// Paths that "equal content" leaves out; none: `content` was not given.
    pub content: Option<Vec<String>>,
    /// Silence after which an unchanged record is written again, ns.
    pub heartbeat: Option<i64>,
    /// Micro-batches: given, and with `wait`?
    pub batch: Option<bool>,
    /// Where window bounds are written: `headers`, `value` or `none`.
    pub bounds: String,
    /// `ms` or `rfc3339`.
    pub bounds_format: String,
    /// Does the key of upsert output contain the window?
    pub window_in_key: bool,
    /// Audit headers?
    pub audit: bool,
    /// When state forgets a key, if ever.
    pub retention: Option<Retention>,
    /// The input ends.
    pub bounded: bool,
    /// Partitions of the input; none: not known, more than one.
    pub partitions: Option<u64>,
    /// Delay of event time, ns.
    pub delay: i64,
    /// Are losers written anywhere? Then replaced records keep their image.
    pub duplicates: bool,
    /// What kept state was made with.
    pub stored: Option<Value>,
}

/// The window, times in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "pipeline-file words")]
pub enum Window {
    None,
    Tumbling { size: i64, offset: i64, zone: Option<String> },
    Hopping { size: i64, every: i64, offset: i64, zone: Option<String> },
    Cumulative { size: i64, step: i64, offset: i64, zone: Option<String> },
    Session { gap: i64 },
    Horizon { ttl: i64, access: bool },
}

/// A clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "pipeline-file words")]
pub enum Clock {
    Event,
    Processing,
    Ingestion,
}

impl Clock {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Clock::Event => "event",
            Clock::Processing => "processing",
            Clock::Ingestion => "ingestion",
        }
    }
}

/// What first and last compare.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "pipeline-file words")]
pub enum Order {
    Time,
    Arrival,
    Fields(Vec<String>),
}

/// What becomes of late records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "pipeline-file words")]
pub enum Late {
    Route,
    Drop,
    Pass,
}

/// When state forgets a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// After this time, ns.
    pub after: i64,
    /// By the processing clock; else by the event clock.
    pub processing: bool,
    /// Counted from the last record that met the entry; else from the kept one.
    pub access: bool,
}

impl Settings {
    /// Reads parameters and context. The error: everything that is wrong with single values.
    pub fn read(params: &Value, context: &Value) -> Result<Settings, Vec<Finding>> {
        let mut reader = Reader { findings: Vec::new() };
        let settings = reader.settings(params, context);
        if reader.findings.is_empty() { Ok(settings) } else { Err(reader.findings) }
    }

    /// Where in the decision table these settings stand.
    pub fn place(&self) -> Place {
        let axis = match (&self.order, self.clock) {
            (Order::Arrival, Clock::Processing) => Axis::Proc,
            (Order::Arrival, _) => Axis::Offset,
            (Order::Time, Clock::Event) => Axis::Event,
            _ => Axis::Field,
        };
        Place { shape: self.window.shape(), keep: self.keep, axis, output: self.output, emit: self.emit }
    }

    /// What they amount to.
    pub fn code(&self) -> Code {
        self.place().code()
    }

    /// Output that can take something back.
    pub fn updates(&self) -> bool {
        self.output != Output::Append
    }
}

impl Window {
    /// Its table.
    pub fn shape(&self) -> Shape {
        match self {
            Window::None => Shape::None,
            Window::Tumbling { .. } => Shape::Tumbling,
            Window::Hopping { .. } => Shape::Hopping,
            Window::Cumulative { .. } => Shape::Cumulative,
            Window::Session { .. } => Shape::Session,
            Window::Horizon { .. } => Shape::Horizon,
        }
    }

    /// A window with edges that are the same for all keys.
    pub fn is_aligned(&self) -> bool {
        matches!(self.shape(), Shape::Tumbling | Shape::Hopping | Shape::Cumulative)
    }

    /// Do groups grow with their records, so that two may become one?
    pub fn grows(&self) -> bool {
        matches!(self, Window::Session { .. } | Window::Horizon { access: true, .. })
    }

    /// The zone that was asked for, if it is not UTC.
    pub fn zone(&self) -> Option<&str> {
        match self {
            Window::Tumbling { zone, .. } | Window::Hopping { zone, .. } | Window::Cumulative { zone, .. } => {
                zone.as_deref().filter(|zone| *zone != "UTC")
            }
            _ => None,
        }
    }
}

struct Reader {
    findings: Vec<Finding>,
}

impl Reader {
    fn settings(&mut self, params: &Value, context: &Value) -> Settings {
        let clock = match self.word(params, "clock", &["event", "processing", "ingestion"], 0) {
            1 => Clock::Processing,
            2 => Clock::Ingestion,
            _ => Clock::Event,
        };
        let window = self.window(params.get("window"));
        let timed = clock == Clock::Event && !matches!(window.shape(), Shape::None | Shape::Horizon);
        let order = match params.get("order").filter(|order| !order.is_null()) {
            None if timed => Order::Time,
            None => Order::Arrival,
            Some(Value::String(word)) if word == "time" => Order::Time,
            Some(Value::String(word)) if word == "arrival" => Order::Arrival,
            Some(Value::Array(paths)) if !paths.is_empty() => Order::Fields(self.texts(paths, "/with/order")),
            Some(_) => {
                self.wrong("P-VALUE", "/with/order", "order is time, arrival or a list of paths");
                Order::Arrival
            }
        };
        let close = matches!(window.shape(), Shape::None | Shape::Horizon);
        let emit = match self.word(params, "emit", &["immediate", "close", "change"], usize::from(!close)) {
            0 => Emit::Immediate,
            1 => Emit::Close,
            _ => Emit::Change,
        };
        let (bounds, bounds_format) = self.bounds(params.get("bounds"));
        Settings {
            keep: [Keep::First, Keep::Last][self.word(params, "keep", &["first", "last"], 0)],
            window,
            clock,
            order,
            output: [Output::Append, Output::Upsert, Output::Retract]
                [self.word(params, "output", &["append", "upsert", "retract"], 0)],
            emit,
            lateness: self.duration(params, "lateness", "/with/lateness", 0).unwrap_or(0),
            late: [Late::Route, Late::Drop, Late::Pass][self.word(params, "late", &["route", "drop", "pass"], 0)],
            changelog: self.word(params, "input", &["append", "changelog"], 0) == 1,
            content: self.content(params.get("content")),
            heartbeat: self.duration(params, "heartbeat", "/with/heartbeat", 1),
            batch: params.get("batch").filter(|b| !b.is_null()).map(|b| b.get("wait").is_some_and(|w| !w.is_null())),
            bounds,
            bounds_format,
            window_in_key: params.get("window_in_key").and_then(Value::as_bool).unwrap_or(true),
            audit: params.get("audit").and_then(Value::as_bool).unwrap_or(false),
            retention: retention(context, clock),
            bounded: context.get("bounded").and_then(Value::as_bool).unwrap_or(false),
            partitions: context.get("partitions").and_then(Value::as_u64),
            delay: context.pointer("/time/delay").and_then(Value::as_i64).unwrap_or(0),
            duplicates: context.get("duplicates").and_then(Value::as_bool).unwrap_or(true),
            stored: context.get("stored").filter(|stored| !stored.is_null()).cloned(),
        }
    }

    fn window(&mut self, window: Option<&Value>) -> Window {
        let members = match window {
            None | Some(Value::Null) => return Window::None,
            Some(Value::String(word)) if word == "none" => return Window::None,
            Some(Value::Object(members)) => members,
            Some(_) => {
                self.wrong("P-VALUE", "/with/window", "a window is none or a mapping, such as { tumbling: 1h }");
                return Window::None;
            }
        };
        const FORMS: [(&str, &[&str], Option<&str>); 5] = [
            ("tumbling", &["offset", "zone"], None),
            ("hopping", &["every", "offset", "zone"], Some("every")),
            ("cumulative", &["step", "offset", "zone"], Some("step")),
            ("session", &[], None),
            ("horizon", &["refresh"], None),
        ];
        let mut given = FORMS.iter().filter(|(name, ..)| members.contains_key(*name));
        let (Some(&(form, others, needed)), None) = (given.next(), given.next()) else {
            let text = "a window is one of tumbling, hopping, cumulative, session and horizon";
            self.wrong("P-VALUE", "/with/window", text);
            return Window::None;
        };
        for name in members.keys().filter(|name| *name != form && !others.contains(&name.as_str())) {
            self.wrong("P-VALUE", &format!("/with/window/{name}"), &format!("`{name}` does not go with `{form}`"));
        }
        let of = |name: &str| format!("/with/window/{name}");
        let size = self.member(members, form, &of(form), 1).unwrap_or(1);
        let offset = self.member(members, "offset", &of("offset"), i64::MIN).unwrap_or(0);
        let zone = members.get("zone").and_then(Value::as_str).and_then(|zone| {
            let known = zone::name(zone);
            if known.is_none() {
                self.wrong("P-VALUE", &of("zone"), &format!("`{zone}` is no time zone, such as Europe/Paris"));
            }
            known.map(str::to_string)
        });
        let second = needed.map(|name| {
            let given = self.member(members, name, &of(name), 1);
            if !members.contains_key(name) {
                self.wrong("P-MISSING", "/with/window", &format!("`{form}` needs `{name}`"));
            }
            given.unwrap_or(1)
        });
        match (form, second) {
            ("tumbling", _) => Window::Tumbling { size, offset: offset.rem_euclid(size), zone },
            ("hopping", Some(every)) => Window::Hopping { size, every, offset: offset.rem_euclid(every), zone },
            ("cumulative", Some(step)) => Window::Cumulative { size, step, offset: offset.rem_euclid(size), zone },
            ("session", _) => Window::Session { gap: size },
            _ => {
                let access = match members.get("refresh").and_then(Value::as_str) {
                    Some("access") => true,
                    None | Some("create") => false,
                    Some(_) => {
                        self.wrong("P-VALUE", &of("refresh"), "refresh is create or access");
                        false
                    }
                };
                Window::Horizon { ttl: size, access }
            }
        }
    }

    fn bounds(&mut self, bounds: Option<&Value>) -> (String, String) {
        let (to, format) = match bounds {
            Some(Value::String(to)) => (to.as_str(), "ms"),
            Some(Value::Object(members)) => (
                members.get("to").and_then(Value::as_str).unwrap_or("headers"),
                members.get("format").and_then(Value::as_str).unwrap_or("ms"),
            ),
            _ => ("headers", "ms"),
        };
        if !["headers", "value", "none"].contains(&to) || !["ms", "rfc3339"].contains(&format) {
            self.wrong("P-VALUE", "/with/bounds", "bounds go to headers, value or none, as ms or rfc3339");
        }
        (to.to_string(), format.to_string())
    }

    fn content(&mut self, content: Option<&Value>) -> Option<Vec<String>> {
        let content = content.filter(|content| !content.is_null())?;
        let paths = match content.get("except") {
            Some(Value::Array(paths)) => self.texts(paths, "/with/content/except"),
            Some(Value::String(path)) => vec![path.clone()],
            _ => Vec::new(),
        };
        for path in &paths {
            if !path.starts_with("value.") && !path.starts_with("value[") {
                let text = format!("`{path}` is not a path under `value`");
                self.wrong("P-PATH", "/with/content/except", &text);
            }
        }
        Some(paths)
    }

    fn texts(&mut self, values: &[Value], at: &str) -> Vec<String> {
        let texts: Vec<String> = values.iter().filter_map(Value::as_str).map(str::to_string).collect();
        if texts.len() != values.len() {
            self.wrong("P-VALUE", at, "these are paths");
        }
        texts
    }

    /// Which of the words a parameter is; `default` if it is not there.
    fn word(&mut self, params: &Value, name: &str, words: &[&str], default: usize) -> usize {
        let Some(given) = params.get(name).filter(|given| !given.is_null()) else { return default };
        let place = given.as_str().and_then(|given| words.iter().position(|word| *word == given));
        place.unwrap_or_else(|| {
            self.wrong("P-VALUE", &format!("/with/{name}"), &format!("`{name}` is one of {}", words.join(", ")));
            default
        })
    }

    fn duration(&mut self, params: &Value, name: &str, at: &str, least: i64) -> Option<i64> {
        params.as_object().and_then(|members| self.member(members, name, at, least))
    }

    /// A duration, at least so many ns.
    fn member(&mut self, members: &Map<String, Value>, name: &str, at: &str, least: i64) -> Option<i64> {
        let given = members.get(name).filter(|given| !given.is_null())?;
        let Some(text) = given.as_str() else {
            self.wrong("P-UNIT", at, "a duration is a number and a unit, such as 15m");
            return None;
        };
        match duration::parse(text) {
            Ok(length) if length >= least => Some(length),
            Ok(_) => {
                let bound = if least > 0 { "above zero" } else { "not negative" };
                self.wrong("P-VALUE", at, &format!("`{name}` must be {bound}"));
                None
            }
            Err(text) => {
                self.wrong("P-UNIT", at, &text);
                None
            }
        }
    }

    fn wrong(&mut self, code: &str, at: &str, text: &str) {
        self.findings.push(Finding {
            severity: Severity::Error,
            code: code.to_string(),
            at: at.to_string(),
            text: text.to_string(),
            help: Vec::new(),
        });
    }
}

/// Retention as the context has it. Zero means never, so there is none; so does a negative one, which the host refuses.
fn retention(context: &Value, clock: Clock) -> Option<Retention> {
    let retention = context.pointer("/state/retention").filter(|retention| !retention.is_null())?;
    let word = |name: &str| retention.get(name).and_then(Value::as_str);
    let processing = match word("clock") {
        Some(word) => word == "processing",
        None => clock == Clock::Processing,
    };
    let after = retention.get("for").and_then(Value::as_i64).filter(|after| *after > 0)?;
    Some(Retention { after, processing, access: word("refresh") == Some("access") })
}
