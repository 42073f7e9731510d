//! Where records would have to be exchanged by key between partitions, and where they need not.

use super::answer::Places;
use super::{Conditions, Planned};
use crate::config::diagnostic::Diagnostic;
use crate::config::kafka::KafkaSource;
use crate::config::path::{Path, Root};
use crate::config::pipeline::{Key, KeyForm, Scope, Stage};

/// Whether equal keys are in the same partition, of one topic (R6, D4).
pub fn decides_partition(key: &Key) -> bool {
    match &key.form {
        KeyForm::Fields(parts) => parts
            .iter()
            .any(|p| p.path == Path::whole(Root::Key) || matches!(p.path.root, Root::Partition | Root::Position)),
        KeyForm::Whole { root, except } => root.root == Root::Key && except.is_empty(),
        KeyForm::Guest(_) => false,
    }
}

/// On Kafka every partition is a task of its own, and records that belong together elsewhere would be exchanged.
pub fn on_kafka<'a>(
    source: &KafkaSource,
    keyed: impl Iterator<Item = (&'a Planned, &'a Stage)>,
    conditions: &Conditions,
    findings: &mut Vec<Diagnostic>,
) {
    for (planned, stage) in keyed {
        let at = stage.node.key_span("scope").unwrap_or(Places { stage: &stage.node, time: None }.stage_span());
        if source.topics.len() > 1 {
            findings.push(
                Diagnostic::error(
                    "P-EXCHANGE",
                    at,
                    format!(
                        "`{}` keeps state over {} topics: their records would be exchanged, which is not built yet",
                        planned.id,
                        source.topics.len()
                    ),
                )
                .help("make a pipeline for each topic"),
            );
        } else if planned.scope != Scope::Partition {
            let text = match conditions.partitions {
                Some(count) => format!(
                    "the topic has {count} partitions, and the key of `{}` does not decide which: records would be exchanged by key, which is not built yet",
                    planned.id
                ),
                None => format!(
                    "if the topic has more than one partition, `{}` cannot run: records would be exchanged by key, which is not built yet",
                    planned.id
                ),
            };
            let finding = match conditions.partitions {
                Some(_) => Diagnostic::error("P-EXCHANGE", at, text),
                None => Diagnostic::warning("P-EXCHANGE", at, text),
            };
            findings.push(
                finding
                    .help("`scope: partition`: copies meet only within a partition, which is right if equal records have equal Kafka keys")
                    .help("a key with `key`, `partition` or `position` in it"),
            );
        }
    }
}
