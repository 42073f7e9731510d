//! The topics that a plan needs beside those it reads: what they should be like, and what is said when they are not there.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::run::changelog_topic;
use super::topics::{Topics, Wanted};
use crate::config::kafka::KafkaSink;
use crate::config::pipeline::Sink;
use crate::files::Trouble;
use crate::plan::{OutputKind, Plan};

/// A topic that a plan needs.
#[derive(Clone, Debug)]
pub struct Need {
    /// What it is for, for a person.
    pub role: &'static str,
    /// As it should be.
    pub wanted: Wanted,
    /// Somebody asked to make it if it is missing.
    pub may_create: bool,
    /// The setting that asks for that.
    pub setting: &'static str,
}

/// The topics that a plan needs, each once. `partitions`: of its source topics.
pub fn of(plan: &Plan, partitions: &BTreeMap<Arc<str>, u32>) -> Vec<Need> {
    let (pipeline, state) = (&plan.pipeline, &plan.pipeline.state);
    let count = |count: u32| i32::try_from(count).unwrap_or(0);
    let mut needs = Vec::new();
    if state.durable && plan.stages.iter().any(|stage| stage.key.is_some()) {
        for (topic, partitions) in partitions {
            let name = changelog_topic(&pipeline.name, topic);
            let wanted = Wanted::changelog(name, count(*partitions), state.changelog_replication);
            let setting = "`state: { changelog: { create: true } }`";
            needs.push(Need { role: "changelog", wanted, may_create: state.create_changelog, setting });
        }
    }
    let most = partitions.values().copied().max().map_or(1, count);
    let updates = plan.stages.last().is_some_and(|stage| stage.traits.output == OutputKind::Upsert);
    for (role, sink) in sinks(plan) {
        let (may_create, setting) = (sink.create.is_some(), "`create: {}` beside its `topic`");
        match needs.iter_mut().find(|need: &&mut Need| need.wanted.topic == sink.topic) {
            Some(known) => known.may_create |= may_create,
            None => {
                let create = sink.create.clone().unwrap_or_default();
                let wanted = Wanted::output(sink.topic.clone(), &create, most, updates && role == "sink");
                needs.push(Need { role, wanted, may_create, setting });
            }
        }
    }
    needs
}

/// The sinks of a plan that are topics, and what each is for; the sink first.
pub fn sinks(plan: &Plan) -> impl Iterator<Item = (&'static str, &KafkaSink)> {
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

/// Refuses topics that are missing and that nobody asked to make: all of them at once, before any is made.
pub fn refuse_missing(needs: &[Need], topics: &Topics) -> Result<(), Trouble> {
    let mut missing = Vec::new();
    for need in needs.iter().filter(|need| !need.may_create) {
        if topics.partitions(&need.wanted.topic)?.is_none() {
            missing.push(need);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let nodes = topics.nodes()?;
    Err(trouble(&missing, topics.brokers(), nodes))
}

/// The commands are such that a cluster of so many brokers takes them.
fn trouble(missing: &[&Need], brokers: &str, nodes: i32) -> Trouble {
    let commands: Vec<String> = missing.iter().map(|need| need.wanted.clone().within(nodes).command(brokers)).collect();
    if let ([need], [command]) = (missing, commands.as_slice()) {
        return Trouble::new(
            format!("there is no topic {}", need.wanted.topic),
            format!("let tamis make it with {}, or: {command}", need.setting),
        );
    }
    let names: Vec<&str> = missing.iter().map(|need| need.wanted.topic.as_str()).collect();
    let mut settings: Vec<&str> = missing.iter().map(|need| need.setting).collect();
    settings.dedup();
    Trouble::new(
        format!("there are no topics {}", names.join(", ")),
        format!("let tamis make them with {}, or: \n{}", settings.join(" and "), commands.join("\n")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(topic: &str, setting: &'static str) -> Need {
        let wanted = Wanted { topic: topic.to_owned(), partitions: 3, replication: -1, config: BTreeMap::new() };
        Need { role: "sink", wanted, may_create: false, setting }
    }

    #[test]
    fn each_missing_topic_is_told_with_the_command_that_makes_it() {
        let (a, b, c) = (need("a", "`x`"), need("b", "`y`"), need("c", "`y`"));
        let command = |topic| format!("kafka-topics.sh --bootstrap-server h:1 --create --topic {topic} --partitions 3");
        let one = trouble(&[&a], "h:1", 1);
        assert_eq!(
            (one.what.as_str(), one.way_out),
            ("there is no topic a", format!("let tamis make it with `x`, or: {}", command("a")))
        );
        let all = trouble(&[&a, &b, &c], "h:1", 3);
        assert_eq!(all.what, "there are no topics a, b, c");
        let commands = ["a", "b", "c"].map(command).join("\n");
        assert_eq!(all.way_out, format!("let tamis make them with `x` and `y`, or: \n{commands}"));
    }

    #[test]
    fn a_command_asks_for_no_more_copies_than_there_are_brokers() {
        let log = Need { wanted: Wanted::changelog("a".to_owned(), 3, 3), ..need("a", "`x`") };
        let way_out = |nodes| trouble(&[&log], "h:1", nodes).way_out;
        let (three, one) = (way_out(3), way_out(1));
        assert!(three.contains("--replication-factor 3 ") && three.contains("min.insync.replicas=2"), "{three}");
        assert!(one.contains("--replication-factor 1 ") && !one.contains("min.insync.replicas"), "{one}");
        assert!(one.contains("--config cleanup.policy=compact"), "{one}");
    }
}
