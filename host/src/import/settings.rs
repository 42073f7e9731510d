//! What `SET` says, as far as it means something here.

use super::Notes;
use super::script::Setting;
use crate::config::values;

/// Settings that a pipeline has.
#[derive(Debug, Default)]
pub struct Settings {
    /// `pipeline.name`.
    pub name: Option<String>,
    /// State TTL in ns; none if it is zero.
    pub ttl: Option<i64>,
    /// Idle timeout of sources in ns.
    pub idle: Option<i64>,
    /// The session's zone, if it is not UTC.
    pub zone: Option<String>,
}

/// Reads them all; what has no equivalent is said.
pub fn read(all: &[Setting], notes: &mut Notes<'_>) -> Settings {
    let mut settings = Settings::default();
    for Setting { name, value, span } in all {
        match name.as_str() {
            "pipeline.name" | "client.statement-name" => settings.name = Some(value.clone()),
            "table.exec.state.ttl" | "sql.state-ttl" => match duration(value) {
                Some(ttl) => settings.ttl = (ttl > 0).then_some(ttl),
                None => notes.warn("W-SQL", &format!("`{value}` is no duration: left out"), *span, "as in '1 h'"),
            },
            "table.exec.source.idle-timeout" | "sql.tables.scan.idle-timeout" => match duration(value) {
                Some(idle) => settings.idle = (idle > 0).then_some(idle),
                None => notes.warn("W-SQL", &format!("`{value}` is no duration: left out"), *span, "as in '30 s'"),
            },
            "table.local-time-zone" | "sql.local-time-zone" => {
                settings.zone = (!["UTC", "default", "Etc/UTC"].contains(&value.as_str())).then(|| value.clone());
            }
            name if name.starts_with("table.exec.mini-batch.") => {
                notes.note(
                    "mini-batches have no setting: batching never changes results here, and needs none to be quick",
                    *span,
                );
            }
            name if name.starts_with("execution.checkpointing.") => {
                notes.note("checkpoints have other settings here: `run.commit` is the time between commits, `state.checkpoint` between checkpoints", *span);
            }
            "parallelism.default" | "table.exec.resource.default-parallelism" => {
                notes.note("parallelism follows the partitions: left out", *span);
            }
            name if name.starts_with("sql-client.")
                || name.starts_with("sql.current-")
                || name == "execution.runtime-mode" => {}
            _ => notes.note(&format!("`{name}` has no equivalent: left out"), *span),
        }
    }
    settings
}

/// A duration as Flink writes it: `1 h`, `36000s`, `2 days`; a bare number is milliseconds. In ns.
fn duration(text: &str) -> Option<i64> {
    let text = text.trim().to_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "" | "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "minute" | "minutes" => "m",
        "h" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        _ => return None,
    };
    values::duration(&format!("{number}{unit}")).ok()
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_are_read_as_flink_writes_them() {
        for (text, seconds) in [("1 h", 3600), ("36000s", 36_000), ("2 days", 172_800), ("5000", 5), ("10 min", 600)] {
            assert_eq!(duration(text), Some(seconds * 1_000_000_000), "{text}");
        }
        assert_eq!((duration("soon"), duration("")), (None, None));
    }
}
