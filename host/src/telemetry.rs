//! What a running pipeline tells its operator: log lines on standard error, repeated ones with a count.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use crate::chain::Failure;
use crate::files::sink::Position;
use crate::ops::Seat;

/// Lines of one kind of failure that are logged in full; later ones are counted.
const IN_FULL: u64 = 5;

/// How log lines look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Text, above which a line of progress may stand; else JSON.
    pub terminal: bool,
    /// Text in colour.
    pub color: bool,
    /// 0 warnings, 1 what happens, 2 everything.
    pub verbose: u8,
}

/// Runs `work` with log lines going to standard error, each with the name of the pipeline.
pub fn with_log<T>(pipeline: &str, look: Look, work: impl FnOnce() -> T) -> T {
    tracing::dispatcher::with_default(&log(pipeline, look, std::io::stderr), work)
}

fn log(pipeline: &str, look: Look, to: impl for<'w> MakeWriter<'w> + Send + Sync + 'static) -> Dispatch {
    let level = match look.verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(to);
    let (pipeline, terminal) = (pipeline.to_owned(), look.terminal);
    if terminal {
        let form = format::format().compact().with_target(false).with_ansi(look.color);
        lines.with_ansi(look.color).event_format(Named { form, pipeline, terminal }).finish().into()
    } else {
        let form = format::format().json().flatten_event(true).with_target(false);
        lines.fmt_fields(format::JsonFields::new()).event_format(Named { form, pipeline, terminal }).finish().into()
    }
}

/// A form of log lines, and the name of the pipeline in each.
struct Named<F> {
    form: F,
    pipeline: String,
    terminal: bool,
}

impl<S, N, F> FormatEvent<S, N> for Named<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = String::new();
        self.form.format_event(context, Writer::new(&mut line), event)?;
        if self.terminal {
            // In the place of a line of progress, if there is one.
            return writeln!(to, "\r\x1b[K{} pipeline={:?}", line.trim_end(), self.pipeline);
        }
        let name = serde_json::Value::from(self.pipeline.as_str());
        write!(to, "{{\"pipeline\":{name},{}", line.strip_prefix('{').unwrap_or(&line))
    }
}

/// The log of failed records: the first of a kind in full, then the 10th, the 100th and so on with their count.
#[derive(Debug, Default)]
pub struct FailureLog {
    on: bool,
    seen: BTreeMap<(String, String), u64>,
    seat: Option<Arc<Seat>>,
}

impl FailureLog {
    /// A log, or none.
    pub fn new(on: bool) -> FailureLog {
        FailureLog { on, ..FailureLog::default() }
    }

    /// Logs from now on, or does not.
    pub fn turn(&mut self, on: bool) {
        self.on = on;
    }

    /// Counts failures at this seat, too.
    pub fn tell(&mut self, seat: Arc<Seat>) {
        self.seat = Some(seat);
    }

    /// A record failed.
    pub fn failed(&mut self, failure: &Failure, at: &Position) {
        if let Some(seat) = &self.seat {
            seat.failed(&failure.stage, &failure.code);
        }
        if !self.on {
            return;
        }
        let count = self.seen.entry((failure.stage.clone(), failure.code.clone())).or_default();
        *count += 1;
        if *count > IN_FULL && !is_power_of_ten(*count) {
            return;
        }
        tracing::warn!(
            stage = failure.stage,
            code = failure.code,
            topic = &*at.topic,
            partition = at.partition,
            offset = at.offset,
            module = failure.module,
            value = at.value,
            count = *count,
            "record failed: {}",
            failure.text
        );
    }

    /// Says how many lines were left out.
    pub fn close(&mut self) {
        for ((stage, code), count) in std::mem::take(&mut self.seen) {
            if count > IN_FULL {
                tracing::warn!(stage, code, count, "records failed in all");
            }
        }
    }
}

fn is_power_of_ten(mut number: u64) -> bool {
    while number >= 10 && number % 10 == 0 {
        number /= 10;
    }
    number == 1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::io::Write;
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What a warning looks like, but for its time.
    fn line(terminal: bool, color: bool) -> String {
        let paper = Paper::default();
        let to = paper.clone();
        let log = log("a \"b\"", Look { terminal, color, verbose: 0 }, move || to.clone());
        tracing::dispatcher::with_default(&log, || {
            tracing::info!("not asked for");
            tracing::warn!(stage = "ids", "a record failed");
        });
        let written = paper.0.lock().unwrap();
        String::from_utf8(written.clone()).unwrap()
    }

    #[test]
    fn without_a_terminal_a_line_is_a_document_with_the_name_of_the_pipeline() {
        let written = line(false, true);
        assert_eq!((written.lines().count(), written.ends_with('\n')), (1, true), "{written}");
        let mut document: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert!(document["timestamp"].take().is_string(), "{written}");
        let expected = serde_json::json!({ "timestamp": null, "pipeline": "a \"b\"", "level": "WARN", "stage": "ids", "message": "a record failed" });
        assert_eq!(document, expected);
    }

    #[test]
    fn on_a_terminal_a_line_is_text_and_takes_the_place_of_progress() {
        let plain = line(true, false);
        assert!(plain.starts_with("\r\x1b[K2"), "{plain:?}");
        assert!(plain.ends_with(" WARN a record failed stage=\"ids\" pipeline=\"a \\\"b\\\"\"\n"), "{plain:?}");
        assert_eq!(plain.matches('\x1b').count(), 1, "no colour: {plain:?}");
        assert!(line(true, true).matches('\x1b').count() > 1);
    }

    #[test]
    fn powers_of_ten_are_known() {
        let found: Vec<u64> = (1..2000).filter(|&n| is_power_of_ten(n)).collect();
        assert_eq!(found, [1, 10, 100, 1000]);
    }
}
