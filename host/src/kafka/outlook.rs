//! What the cluster says about a plan before it runs: which topics there are, and whether they keep what is written.

use super::run::changelog_topic;
use super::topics::Topics;
use crate::config::diagnostic::Diagnostic;
use crate::config::kafka::KafkaSink;
use crate::config::pipeline::{Sink, Source};
use crate::config::values::print_duration;
use crate::files::Trouble;
use crate::plan::Plan;

/// The topics of a plan, a line each: how many partitions, or that they are missing.
///
/// # Errors
/// The cluster does not answer.
pub fn topics(plan: &Plan, topics: &Topics) -> Result<Vec<String>, Trouble> {
    let pipeline = &plan.pipeline;
    let mut lines = Vec::new();
    let mut look = |role: &str, topic: &str, made: bool| -> Result<(), Trouble> {
        let state = match (topics.partitions(topic)?, made) {
            (Some(1), _) => "1 partition".to_owned(),
            (Some(count), _) => format!("{count} partitions"),
            (None, true) => "missing, is made".to_owned(),
            (None, false) => "missing, and nobody asked to make it: `create: {}`".to_owned(),
        };
        lines.push(format!("{role} {topic}: {state}"));
        Ok(())
    };
    if let Source::Kafka(source) = &pipeline.source {
        for topic in &source.topics {
            look("source", topic, false)?;
            if pipeline.state.durable && plan.stages.iter().any(|stage| stage.key.is_some()) {
                look("changelog", &changelog_topic(&pipeline.name, topic), pipeline.state.create_changelog)?;
            }
        }
    }
    for (role, sink) in sinks(plan) {
        look(role, &sink.topic, sink.create.is_some())?;
    }
    Ok(lines)
}

/// Whether topics that get records with their event time keep them, and keep that time.
pub fn warnings(plan: &Plan, topics: &Topics) -> Vec<Diagnostic> {
    let mut findings: Vec<Diagnostic> = Vec::new();
    for (_, sink) in sinks(plan).filter(|(_, sink)| sink.event_timestamp) {
        // A topic that is missing is said elsewhere; settings that may not be read are no reason to stop.
        let Ok(Some(_)) = topics.partitions(&sink.topic) else { continue };
        let Ok(settings) = topics.settings(&sink.topic) else { continue };
        let setting = |name: &str| settings.get(name).map_or("", String::as_str);
        let ms = |name: &str| setting(name).parse::<i64>().ok().filter(|ms| (0..i64::MAX).contains(ms));
        let long = |ms: i64| print_duration(ms.saturating_mul(1_000_000));
        let topic = &sink.topic;
        let text = if setting("message.timestamp.type") == "LogAppendTime" {
            format!("{topic} stamps records itself (`message.timestamp.type`): their event time does not stay")
        } else if let Some(ms) = ms("message.timestamp.before.max.ms") {
            format!(
                "{topic} refuses records that are stamped more than {} before now (`message.timestamp.before.max.ms`)",
                long(ms)
            )
        } else if let (Some(ms), true) = (ms("retention.ms"), setting("cleanup.policy").contains("delete")) {
            format!(
                "{topic} keeps records for {} from their timestamp (`retention.ms`), which is their event time: older ones are deleted soon after they are written",
                long(ms)
            )
        } else {
            continue;
        };
        let span = sink.node.key_span("timestamp").unwrap_or(sink.node.span);
        let finding = Diagnostic::warning("W-RETENTION", span, text)
            .help("`timestamp: record` keeps the timestamps that records came with")
            .help(format!("or change the topic: kafka-configs.sh --bootstrap-server {} --alter --entity-type topics --entity-name {topic} --add-config ..", topics.brokers()));
        findings.push(Diagnostic { file: plan.pipeline.file.clone(), ..finding });
    }
    findings
}

fn sinks(plan: &Plan) -> impl Iterator<Item = (&'static str, &KafkaSink)> {
    let pipeline = &plan.pipeline;
    let all = [
        ("sink", Some(&pipeline.sink)),
        ("late", pipeline.late.as_ref()),
        ("duplicates", pipeline.duplicates.as_ref()),
        ("dead letters", pipeline.errors.dead_letter.as_ref()),
    ];
    all.into_iter().filter_map(|(role, sink)| match sink {
        Some(Sink::Kafka(sink)) => Some((role, &**sink)),
        _ => None,
    })
}
