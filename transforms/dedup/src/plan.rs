//! What the settings amount to: how rows are judged, what is read and written, which clock is asked for.

use serde_json::{Value, json};
use tamis_guest::ExpiresBy;

use crate::settings::{Clock, Order, Settings, Window};
use crate::table::{Code, Emit, Keep, Output, Shape};

/// Name of the route for records that lost after they were kept.
pub const DUPLICATES: &str = "duplicates";

/// What follows from the settings.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is done.
    pub code: Code,
    /// The whole batch in one call of `state.seen`.
    pub fast: bool,
    /// The clock of times, of what rows see, and of wakes.
    pub clock: Clock,
    /// Times cross.
    pub wants_time: bool,
    /// Time takes part in the order of emission (O9).
    pub ranks_by_time: bool,
    /// When an entry is over.
    pub expires_by: ExpiresBy,
    /// Something waits for the watermark.
    pub waits: bool,
    /// How long after its end a window drops itself, ns.
    pub space_after: Option<i64>,
    /// The kept record stays as an image; else only its position.
    pub images: bool,
    /// A kept record that another one replaces goes to the route of duplicates.
    pub displaces: bool,
    /// A deletion leaves a marker, so that a second one can be left out (O11).
    pub marks_deletes: bool,
    /// What was written last is kept, and leaves again where it no longer holds.
    pub retracts: bool,
    /// Groups keep the name of their record: it may displace another later, in a call without it.
    pub named: bool,
    /// A step leaves only if its record is not that of the step before (2.4).
    pub changed_steps: bool,
    /// Columns to read.
    pub reads: Vec<String>,
    /// Where among them the offset is.
    pub offset: usize,
    /// Where topic and partition are.
    pub topic: usize,
    /// Where event time is, if the order needs it beside the clock.
    pub time: Option<usize>,
    /// Where the host's count of rows is, if groups that become one are ordered by it.
    pub arrival: Option<usize>,
    /// Where the order fields begin.
    pub fields: usize,
    /// Where the content is.
    pub content: Option<usize>,
    /// Columns to write.
    pub writes: Vec<String>,
    /// Where among them the winner of a replaced record is.
    pub duplicate_of: usize,
    /// Outputs beside the main one.
    pub routes: Vec<String>,
}

impl Plan {
    /// Of these settings.
    pub fn of(s: &Settings) -> Plan {
        let code = s.code();
        let shape = s.window.shape();
        let marks_deletes = shape == Shape::None && s.emit == Emit::Change && s.updates();
        let retracts = s.output == Output::Retract;
        // A deletion that comes in takes back what was written, even if nothing else ever does (O11).
        let deletes = retracts && matches!(shape, Shape::None | Shape::Horizon);
        // Entries that are there already are not left for marks, which do not see them.
        let fast = code == Code::FA
            && stored_form(s) != Some(ENTRIES)
            && !s.audit
            && s.heartbeat.is_none()
            && !deletes
            && match s.window {
                Window::None => !marks_deletes,
                Window::Horizon { .. } => s.clock == Clock::Processing,
                _ => false,
            };
        let closes = matches!(code, Code::FE | Code::LE | Code::WU | Code::NO3);
        let (clock, timed) = clock(s, shape);
        let mut plan = Plan {
            code,
            fast,
            // A clock that nothing needs is not asked for: no record may fail for a time that nobody uses (T2). Inputs
            // come with times of any clock.
            clock: if timed || fast { clock } else { Clock::Processing },
            wants_time: if fast { ages_by_event(s) } else { true },
            ranks_by_time: timed,
            expires_by: expires_by(s, shape, fast),
            waits: closes && code != Code::NO3 && s.clock != Clock::Processing,
            space_after: s.window.is_aligned().then_some(s.lateness),
            images: deletes
                || closes
                || s.heartbeat.is_some()
                || (code != Code::FA && (s.duplicates || retracts || (shape == Shape::Session && s.updates()))),
            displaces: code != Code::FA && s.duplicates,
            marks_deletes,
            retracts,
            named: code != Code::FA && s.duplicates && s.window.grows(),
            changed_steps: shape == Shape::Cumulative && s.emit == Emit::Change && !s.updates(),
            reads: Vec::new(),
            offset: 0,
            topic: 0,
            time: None,
            arrival: None,
            fields: 0,
            content: None,
            writes: Vec::new(),
            duplicate_of: 0,
            routes: Vec::new(),
        };
        if !fast {
            plan.columns(s);
        }
        plan
    }

    fn columns(&mut self, s: &Settings) {
        self.offset = self.read("offset");
        if s.order == Order::Time && !(s.clock == Clock::Event && self.clock == Clock::Event) {
            self.time = Some(self.read("time"));
        }
        if s.window.grows() && (s.order == Order::Arrival || self.code == Code::FA) {
            self.arrival = Some(self.read("arrival"));
        }
        self.fields = self.reads.len();
        if let Order::Fields(paths) = &s.order {
            self.reads.extend(paths.iter().cloned());
        }
        if matches!(self.code, Code::FC | Code::LC) || (self.code == Code::MU && s.emit == Emit::Change) {
            self.content = Some(self.read("content"));
        }
        if s.audit {
            self.writes =
                ["first_seen", "last_seen", "count"].map(|name| format!("headers[\"tamis.{name}\"]")).to_vec();
        }
        if self.displaces {
            self.topic = self.read("topic");
            self.read("partition");
            self.routes.push(DUPLICATES.to_string());
            self.duplicate_of = self.writes.len();
            self.writes.push("headers[\"tamis.duplicate_of\"]".to_string());
        }
    }

    fn read(&mut self, column: &str) -> usize {
        self.reads.push(column.to_string());
        self.reads.len() - 1
    }

    /// The word of the trait expires-by.
    pub fn expires_by_word(&self) -> &'static str {
        match self.expires_by {
            ExpiresBy::Time => "time",
            ExpiresBy::Seen => "seen",
            ExpiresBy::Now => "now",
        }
    }
}

/// The clock of the stage, and whether anything uses it.
fn clock(s: &Settings, shape: Shape) -> (Clock, bool) {
    if s.clock == Clock::Processing {
        // Only retention may look at event time then.
        let by_event = ages_by_event(s);
        return (if by_event { Clock::Event } else { Clock::Processing }, by_event || shape != Shape::None);
    }
    let orders = s.order == Order::Time && s.clock == Clock::Event;
    (s.clock, shape != Shape::None || orders || ages_by_event(s) || s.heartbeat.is_some())
}

fn ages_by_event(s: &Settings) -> bool {
    s.retention.is_some_and(|retention| !retention.processing)
}

fn expires_by(s: &Settings, shape: Shape, fast: bool) -> ExpiresBy {
    match s.retention {
        Some(retention) if retention.processing => ExpiresBy::Now,
        Some(_) => ExpiresBy::Time,
        None if fast || shape == Shape::None => ExpiresBy::Now,
        None => ExpiresBy::Seen,
    }
}

/// What kept state is made with (R8), in a text that is equal if and only if entries compare.
pub fn identity(s: &Settings) -> Value {
    let keep = match s.keep {
        Keep::First => "first",
        Keep::Last => "last",
    };
    let order = match &s.order {
        Order::Time => "time".to_string(),
        Order::Arrival => "arrival".to_string(),
        Order::Fields(paths) => json!(paths).to_string(),
    };
    let zone = s.window.zone().map(|zone| format!(" in {zone}")).unwrap_or_default();
    let window = match &s.window {
        Window::None => "none".to_string(),
        Window::Tumbling { size, offset, .. } => format!("tumbling {size}ns, offset {offset}ns{zone}"),
        Window::Hopping { size, every, offset, .. } => format!("hopping {size}ns, every {every}ns, offset {offset}ns"),
        Window::Cumulative { size, step, offset, .. } => {
            format!("cumulative {size}ns, step {step}ns, offset {offset}ns")
        }
        Window::Session { gap } => format!("session {gap}ns"),
        Window::Horizon { ttl, access } => {
            format!("horizon {ttl}ns, refresh {}", if *access { "access" } else { "create" })
        }
    };
    let window = if s.window == Window::None { window } else { format!("{window}, clock {}", s.clock.word()) };
    let form = if Plan::of(s).fast { MARKS } else { ENTRIES };
    json!({ "order": format!("{keep}/{order}"), "window": window, "form": form })
}

/// Only that a key was here.
pub const MARKS: &str = "marks";
/// What is kept of it.
pub const ENTRIES: &str = "entries";

/// What kept state consists of.
pub fn stored_form(s: &Settings) -> Option<&str> {
    s.stored.as_ref().and_then(|stored| stored.get("form")).and_then(Value::as_str)
}
