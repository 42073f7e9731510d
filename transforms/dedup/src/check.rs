//! What is decided before the first record: refusals with the nearest legal settings, warnings, and what the stage
//! reads, writes and needs.

use serde_json::{Value, json};
use tamis_guest::{Check, Finding, Severity, Traits};

use crate::plan::Plan;
use crate::settings::{Clock, Late, Order, Settings, Window};
use crate::table::{Axis, Code, Emit, Keep, Output, Place, Shape};
use crate::{COUNTERS, plan, words};

/// The answer of `check`.
pub fn check(params: &Value, context: &Value) -> Check {
    let settings = match Settings::read(params, context) {
        Ok(settings) => settings,
        Err(findings) => return Check { findings, ..Check::default() },
    };
    let mut check = Check::default();
    refuse(&settings, &mut check);
    if !check.is_refused() {
        refuse_changes(&settings, &mut check);
    }
    if !check.is_refused() {
        refuse_later(&settings, &mut check);
    }
    warn(&settings, &mut check);
    let plan = describe(&settings, &mut check);
    check.settings = Some(words::filled(params, &settings));
    check.says = Some(words::says(&settings, &plan, context));
    check
}

/// Section 8.4, what the stage's own parameters forbid.
fn refuse(s: &Settings, check: &mut Check) {
    refuse_cell(s, check);
    if s.late == Late::Pass && s.output == Output::Upsert {
        let text = "a late record would overwrite a row that is final";
        check.error("D-LATE-PASS", "/with/late", text).help("late: route").help("late: drop");
    }
    if s.lateness > 0
        && (!(s.window.is_aligned() || s.window.shape() == Shape::Session) || s.clock == Clock::Processing)
    {
        let text = "nothing here closes by the watermark, so nothing can be late for it";
        let found = check.error("D-LATENESS", "/with/lateness", text).help("leave lateness out");
        if s.clock != Clock::Processing {
            found.help("let event time wait instead: time: { delay: .. }");
        }
    }
    if s.batch == Some(false) {
        let text = "without a greatest wait the tail of a slow stream would never leave";
        check.error("D-BATCH-WAIT", "/with/batch", text).help("wait: 100ms");
    }
    if s.changelog && (s.window != Window::None || s.order != Order::Arrival || s.emit == Emit::Close) {
        let text = "an update breaks what the watermark promised, and removed rows are not kept to come back";
        let found = check.error("D-CHANGELOG", "/with/input", text);
        found.help("keep first or last with order: arrival, window: none and emit: immediate or change");
    }
    refuse_window(s, check);
    if s.heartbeat.is_some() && (s.emit != Emit::Change || !s.updates() || s.window != Window::None) {
        let text = "a heartbeat writes an unchanged record again: it needs emit: change, updating output and no window";
        check.error("D-EMIT", "/with/heartbeat", text).help("leave heartbeat out");
    }
    if s.content.is_some() && s.emit != Emit::Change {
        let text = "content is compared only with emit: change";
        check.error("D-EMIT", "/with/content", text).help("leave content out").help("emit: change");
    }
    let has_window_in_key = s.output == Output::Upsert && s.window.is_aligned();
    if !s.window_in_key && !has_window_in_key {
        let text = match s.window.shape() {
            Shape::Session => "a session is its key and its start",
            _ => "without upsert output and an aligned window there is no window in the key to leave out",
        };
        check.error("D-WINDOW-KEY", "/with/window_in_key", text).help("leave window_in_key out");
    }
    if s.clock == Clock::Ingestion && s.delay > 0 {
        check.error("D-DELAY", "/time/delay", "append time does not run backwards").help("delay: 0s");
    }
}

/// The decision table.
fn refuse_cell(s: &Settings, check: &mut Check) {
    let place = s.place();
    if place.is_legal(s.bounded) {
        return;
    }
    let (code, text) = match place.code() {
        Code::NO1 => ("D-NO1", "an earlier record could invalidate what was sent"),
        Code::NO2 => ("D-NO2", "keep last sends updates, which append output cannot carry"),
        _ => ("D-NO3", "without a window the scope never closes on unbounded input"),
    };
    let help = ways_out(s, place);
    check.error(code, "/with/emit", text).help = help;
}

/// The nearest legal settings: one change if one will do.
fn ways_out(s: &Settings, place: Place) -> Vec<String> {
    let legal = |place: Place| place.is_legal(s.bounded);
    let mut ways = Vec::new();
    for (emit, word) in [(Emit::Close, "close"), (Emit::Immediate, "immediate"), (Emit::Change, "change")] {
        if emit != place.emit && legal(Place { emit, ..place }) {
            ways.push(format!("emit: {word}"));
            break;
        }
    }
    for (output, word) in [(Output::Upsert, "upsert"), (Output::Retract, "retract")] {
        if output != place.output && legal(Place { output, ..place }) {
            ways.push(format!("output: {word}"));
        } else if output != place.output && legal(Place { output, emit: Emit::Immediate, ..place }) {
            ways.push(format!("emit: immediate with output: {word}"));
        }
    }
    let arrival = if s.clock == Clock::Processing { Axis::Proc } else { Axis::Offset };
    if place.axis != arrival && legal(Place { axis: arrival, ..place }) {
        ways.push("order: arrival".to_string());
    }
    if place.shape == Shape::None && legal(Place { shape: Shape::Tumbling, emit: Emit::Close, ..place }) {
        ways.push("a window with emit: close, such as window: { tumbling: 1h }".to_string());
    }
    if place.code() == Code::NO3 {
        ways.push("a source that ends, such as a file or kafka with until: end".to_string());
    }
    ways
}

fn refuse_window(s: &Settings, check: &mut Check) {
    match &s.window {
        Window::Cumulative { size, step, .. } if size % step != 0 => {
            let text = "the size must be a multiple of the step: steps must tile the window";
            check.error("D-STEP", "/with/window/step", text).help("a step that divides the size");
        }
        Window::Hopping { size, every, .. } if every > size => {
            let text = "a slide larger than the size loses the records between two windows";
            check.error("D-STEP", "/with/window/every", text).help("a slide of at most the size");
        }
        _ => {}
    }
    const DAY: i64 = 86_400_000_000_000;
    match &s.window {
        Window::Hopping { zone: Some(_), .. } | Window::Cumulative { zone: Some(_), .. } => {
            let text = "only tumbling windows follow a zone: others would drift";
            let found = check.error("D-ZONE", "/with/window/zone", text);
            found.help("leave zone out: UTC").help("a tumbling window");
        }
        Window::Tumbling { size, .. } if s.window.zone().is_some() && DAY % size != 0 && size % DAY != 0 => {
            let text = "with a zone the size must divide 24 hours or be whole days: others would drift";
            let found = check.error("D-ZONE", "/with/window/tumbling", text);
            found.help("leave zone out: UTC").help("a size such as 1h, 12h, 1d or 7d");
        }
        _ => {}
    }
    if matches!(s.window, Window::Horizon { access: true, .. })
        && s.updates()
        && s.emit != Emit::Close
        && s.clock != Clock::Processing
    {
        let text = "two groups that were already written may become one";
        let found = check.error("D-REFRESH", "/with/window/refresh", text);
        found.help("refresh: create").help("emit: close").help("clock: processing");
    }
}

/// R8: what kept state was made with.
fn refuse_changes(s: &Settings, check: &mut Check) {
    let Some(stored) = &s.stored else { return };
    let now = plan::identity(s);
    for (member, code, at) in
        [("order", "D-ORDER-CHANGED", "/with/order"), ("window", "D-WINDOW-CHANGED", "/with/window")]
    {
        let (Some(old), Some(new)) = (stored.get(member), now.get(member)) else { continue };
        if old == new {
            continue;
        }
        let (old, new) = (old.as_str().unwrap_or_default(), new.as_str().unwrap_or_default());
        let text = format!("kept state was made with {member} {old}, now it is {new}: entries do not compare");
        let found = check.error(code, at, text);
        found.help("a new stage id").help("the old setting").help("tamis reset --forget");
    }
    if plan::stored_form(s) == Some(plan::MARKS) && !Plan::of(s).fast && !check.is_refused() {
        let text = "kept state only knows that a key was here, which was enough for the settings before and is not now";
        let found = check.error("D-ORDER-CHANGED", "/with", text);
        found.help("a new stage id").help("the old settings").help("tamis reset --forget");
    }
}

/// What is defined and not built yet.
fn refuse_later(s: &Settings, check: &mut Check) {
    let mut later = |built: bool, at: &str, what: &str, help: &str| {
        if !built {
            check.error("P-LATER", at, format!("{what} is not built yet")).help(help);
        }
    };
    later(s.batch.is_none(), "/with/batch", "batch", "leave batch out");
    later(!s.changelog, "/with/input", "input: changelog", "input: append");
}

/// Section 8.5, what the stage can tell.
fn warn(s: &Settings, check: &mut Check) {
    let place = s.place();
    if s.order == Order::Arrival && s.partitions != Some(1) {
        let text = "records of several partitions arrive in an order that differs from run to run";
        check.warning("W-ARRIVAL", "/with/order", text).help("order: time");
    }
    if !s.window_in_key && s.output == Output::Upsert && s.window.is_aligned() {
        let text = "each window of a key overwrites the one before";
        check.warning("W-WINDOW-KEY", "/with/window_in_key", text).help("window_in_key: true");
    }
    if matches!(place.shape, Shape::Hopping | Shape::Cumulative) {
        check.warning("W-REPEATS", "/with/window", "a key leaves once for each window that covers it");
    }
    let at_once = s.output == Output::Append && s.clock != Clock::Processing;
    if at_once && place.shape == Shape::Session && s.emit != Emit::Close {
        let text = "sessions that meet after both have left cannot be made one";
        check.warning("W-SESSION", "/with/emit", text).help("emit: close");
    }
    let grows = matches!(s.window, Window::Horizon { access: true, .. });
    if at_once && grows && s.emit == Emit::Immediate {
        let text = "groups that meet after both have left cannot be made one";
        check.warning("W-SESSION", "/with/emit", text).help("emit: close");
    }
    if s.output == Output::Append
        && s.order == Order::Time
        && place.shape == Shape::Horizon
        && s.emit == Emit::Immediate
        && place.code() == Code::FA
    {
        let text = "the first arrival leaves, not the earliest record";
        check.warning("W-FIRST-ARRIVAL", "/with/order", text).help("emit: close").help("output: upsert");
    }
    if place.shape == Shape::Tumbling && s.keep == Keep::First {
        let text = "copies on both sides of a window's edge both leave";
        check
            .note("W-ALIGNED", "/with/window", text)
            .help("window: { horizon: .. } for copies within a time of each other");
    }
    if place.written() == Code::Same {
        check.note("W-SAME", "/with/emit", "the same as emit: immediate").help("emit: immediate");
    }
}

/// Reads, writes, routes, counters and traits.
fn describe(s: &Settings, check: &mut Check) -> Plan {
    let plan = Plan::of(s);
    check.reads = plan.reads.clone();
    check.writes = plan.writes.clone();
    check.routes = plan.routes.clone();
    check.counters = COUNTERS.iter().map(|name| name.to_string()).collect();
    let text = |word: &str| Some(word.to_string());
    let is_session = s.window.shape() == Shape::Session;
    check.traits = Traits {
        keyed: true,
        clock: text(plan.clock.word()),
        wants_time: plan.wants_time,
        expires_by: text(plan.expires_by_word()),
        output: text(["append", "upsert", "retract"][s.output as usize]),
        window_in_key: s.output == Output::Upsert && s.window_in_key && (s.window.is_aligned() || is_session),
        window_start_only: s.output == Output::Upsert && is_session,
        bounds: text(&s.bounds),
        bounds_format: text(&s.bounds_format),
        row_preserving: false,
        bounded_state: s.window != Window::None,
        waits: plan.waits,
        space_after: plan.space_after,
        content: plan.content.map(|_| json!({ "except": s.content.clone().unwrap_or_default() })),
        audit: s.audit,
        identity: Some(plan::identity(s)),
        computed: Vec::new(),
    };
    plan
}

/// Errors of single values become the answer of `open`.
pub fn settings(params: &Value, context: &Value) -> Result<Settings, String> {
    Settings::read(params, context).map_err(|findings: Vec<Finding>| {
        let texts: Vec<&str> =
            findings.iter().filter(|f| f.severity == Severity::Error).map(|f| f.text.as_str()).collect();
        texts.join("; ")
    })
}
