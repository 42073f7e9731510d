//! What a guest answered to `check`, read with care: a member of the wrong sort is a breach of the contract.

use serde_json::Value;

use super::{BoundsFormat, Clock, ColumnRef, Computed, ExpiresBy, OutputKind, Says, Traits, WindowBounds};
use crate::config::diagnostic::{Diagnostic, Severity};
use crate::config::node::{Node, Span};
use crate::config::path::Path;

/// The answer of `check`.
#[derive(Debug, Default)]
pub struct Answer {
    /// Refusals, warnings, notes; with places in the file.
    pub findings: Vec<Diagnostic>,
    /// Columns of `process`.
    pub reads: Vec<ColumnRef>,
    /// Columns of its output.
    pub writes: Vec<ColumnRef>,
    /// Routes.
    pub routes: Vec<String>,
    /// Counters.
    pub counters: Vec<String>,
    /// Traits.
    pub traits: Traits,
    /// The traits as the guest gave them, for stages behind it.
    pub raw_traits: Value,
    /// The parameters with every default, if it told them.
    pub settings: Option<Value>,
    /// What it says of itself, if it does.
    pub says: Option<Says>,
}

/// Where findings point to: the stage, and `time`.
pub struct Places<'a> {
    /// The stage as written.
    pub stage: &'a Node,
    /// `time` as written.
    pub time: Option<&'a Node>,
}

impl Places<'_> {
    /// The span of a JSON pointer of a finding.
    fn span(&self, at: &str) -> Span {
        match (at.strip_prefix("/time"), self.time) {
            (Some(rest), Some(time)) => time.pointer(rest),
            (Some(_), None) => self.stage_span(),
            (None, _) if at.is_empty() => self.stage_span(),
            (None, _) => {
                let span = self.stage.pointer(at);
                if span == self.stage.span { self.stage_span() } else { span }
            }
        }
    }

    /// A stage is marked at its `uses`, not over all its lines.
    pub fn stage_span(&self) -> Span {
        self.stage.get("uses").map_or(self.stage.span, |uses| uses.span)
    }
}

/// Reads an answer. The error is a breach, for a person.
pub fn read(answer: &Value, places: &Places<'_>) -> Result<Answer, String> {
    let raw_traits = answer.get("traits").cloned().unwrap_or(Value::Null);
    Ok(Answer {
        findings: list(answer, "findings")?.iter().map(|f| finding(f, places)).collect::<Result<_, _>>()?,
        reads: columns(answer, "reads")?,
        writes: columns(answer, "writes")?,
        routes: texts(answer, "routes")?,
        counters: texts(answer, "counters")?,
        traits: traits(&raw_traits)?,
        raw_traits,
        settings: object(answer, "settings")?.cloned(),
        says: object(answer, "says")?.map(says),
    })
}

fn object<'a>(answer: &'a Value, name: &str) -> Result<Option<&'a Value>, String> {
    match answer.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value @ Value::Object(_)) => Ok(Some(value)),
        Some(_) => Err(format!("`{name}` of its answer is no mapping")),
    }
}

fn says(says: &Value) -> Says {
    let text = |name: &str| says.get(name).and_then(Value::as_str).unwrap_or_default().to_string();
    Says { does: text("does"), changes: text("changes"), costs: text("costs") }
}

fn list<'a>(answer: &'a Value, name: &str) -> Result<&'a [Value], String> {
    match answer.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("`{name}` of its answer is no list")),
    }
}

fn texts(answer: &Value, name: &str) -> Result<Vec<String>, String> {
    let text =
        |v: &Value| v.as_str().map(str::to_string).ok_or_else(|| format!("`{name}` of its answer is no list of texts"));
    list(answer, name)?.iter().map(text).collect()
}

fn columns(answer: &Value, name: &str) -> Result<Vec<ColumnRef>, String> {
    texts(answer, name)?
        .iter()
        .map(|text| ColumnRef::parse(text).map_err(|e| format!("`{name}` of its answer names `{text}`: {e}")))
        .collect()
}

fn finding(finding: &Value, places: &Places<'_>) -> Result<Diagnostic, String> {
    let text = |name: &str| finding.get(name).and_then(Value::as_str).unwrap_or_default();
    let severity = match text("severity") {
        "error" => Severity::Error,
        "warning" => Severity::Warning,
        "note" => Severity::Note,
        other => return Err(format!("a finding of its answer has the severity `{other}`")),
    };
    let span = places.span(text("at"));
    let mut diagnostic = Diagnostic::new(severity, text("code"), Some(span), text("text"));
    diagnostic.help = texts(finding, "help")?;
    Ok(diagnostic)
}

fn traits(traits: &Value) -> Result<Traits, String> {
    let truth = |name: &str| traits.get(name).and_then(Value::as_bool).unwrap_or(false);
    Ok(Traits {
        keyed: truth("keyed"),
        clock: word(
            traits,
            "clock",
            &[("event", Clock::Event), ("processing", Clock::Processing), ("ingestion", Clock::Ingestion)],
        )?,
        wants_time: truth("wants-time"),
        expires_by: word(
            traits,
            "expires-by",
            &[("now", ExpiresBy::Now), ("seen", ExpiresBy::Seen), ("time", ExpiresBy::Time)],
        )?,
        output: word(
            traits,
            "output",
            &[("append", OutputKind::Append), ("upsert", OutputKind::Upsert), ("retract", OutputKind::Retract)],
        )?,
        window_in_key: truth("window-in-key"),
        window_start_only: truth("window-start-only"),
        bounds: word(
            traits,
            "bounds",
            &[("headers", WindowBounds::Headers), ("value", WindowBounds::Value), ("none", WindowBounds::None)],
        )?,
        bounds_format: word(traits, "bounds-format", &[("ms", BoundsFormat::Ms), ("rfc3339", BoundsFormat::Rfc3339)])?,
        row_preserving: truth("row-preserving"),
        bounded_state: truth("bounded-state"),
        waits: truth("waits"),
        space_after: traits.get("space-after").and_then(Value::as_i64),
        content_except: texts(traits.get("content").unwrap_or(&Value::Null), "except")?
            .iter()
            .map(|text| Path::parse(text).map_err(|e| format!("the trait `content` names `{text}`: {}", e.message)))
            .collect::<Result<_, _>>()?,
        audit: truth("audit"),
        identity: traits.get("identity").cloned().unwrap_or(Value::Null),
        computed: list(traits, "computed")?.iter().map(computed).collect::<Result<_, _>>()?,
    })
}

fn computed(computed: &Value) -> Result<Computed, String> {
    let path = |text: &str| {
        Path::parse(text).map_err(|error| format!("the trait `computed` names `{text}`: {}", error.message))
    };
    let text = |name: &str| computed.get(name).and_then(Value::as_str);
    Ok(Computed {
        column: path(text("column").unwrap_or_default())?,
        from: texts(computed, "from")?.iter().map(|from| path(from)).collect::<Result<_, _>>()?,
        cyclic: text("cyclic").map(str::to_owned),
    })
}

/// One of some words; left out, the default.
fn word<T: Copy + Default>(traits: &Value, name: &str, words: &[(&str, T)]) -> Result<T, String> {
    match traits.get(name) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => words
            .iter()
            .find(|(word, _)| value.as_str() == Some(word))
            .map(|(_, meaning)| *meaning)
            .ok_or_else(|| format!("the trait `{name}` is {value}, which is not known")),
    }
}
