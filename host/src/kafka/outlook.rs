//! What the cluster says about a plan before it runs: which topics there are, and whether they keep what is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::needs::{self, Need};
use super::topics::Topics;
use crate::config::diagnostic::Diagnostic;
use crate::config::pipeline::Source;
use crate::config::values::print_duration;
use crate::files::Trouble;
use crate::plan::Plan;

/// The topics of a plan, a line each: how many partitions, or that they are missing.
///
/// # Errors
/// The cluster does not answer.
pub fn topics(plan: &Plan, topics: &Topics) -> Result<Vec<String>, Trouble> {
    let (mut lines, mut partitions) = (Vec::new(), BTreeMap::new());
    let said = |found: Option<i32>| match found {
        Some(1) => "1 partition".to_owned(),
        Some(count) => format!("{count} partitions"),
        None => "missing".to_owned(),
    };
    if let Source::Kafka(source) = &plan.pipeline.source {
        for topic in &source.topics {
            let found = topics.partitions(topic)?;
            lines.push(format!("source {topic}: {}", said(found)));
            partitions.insert(Arc::from(topic.as_str()), found.and_then(|n| u32::try_from(n).ok()).unwrap_or(0));
        }
    }
    for Need { role, wanted, may_create, setting } in needs::of(plan, &partitions) {
        let found = topics.partitions(&wanted.topic)?;
        let way_out = match (found, may_create) {
            (Some(_), _) => String::new(),
            (None, true) => ", is made".to_owned(),
            (None, false) => format!(
                "; {setting} makes it, or: {}",
                wanted.clone().within(topics.nodes()?).command(topics.brokers())
            ),
        };
        lines.push(format!("{role} {}: {}{way_out}", wanted.topic, said(found)));
    }
    Ok(lines)
}

/// Whether topics that get records with their event time keep them, and keep that time.
pub fn warnings(plan: &Plan, topics: &Topics) -> Vec<Diagnostic> {
    let mut findings: Vec<Diagnostic> = Vec::new();
    for (_, sink) in needs::sinks(plan).filter(|(_, sink)| sink.event_timestamp) {
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
