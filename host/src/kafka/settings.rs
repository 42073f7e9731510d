//! Client settings of a pipeline file, looked at before anything connects: names that the client does not know, values
//! that it does not take. Values of secrets are never told.

use std::collections::BTreeMap;
use std::path::Path;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, DefaultConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;

use super::client::{Clients, ends};
use super::raw::Producer;
use crate::config::diagnostic::Diagnostic;
use crate::config::kafka::Setting;
use crate::config::node::Node;
use crate::config::pipeline::{Pipeline, Sink, Source};

/// What is wrong with the client settings of a pipeline, each where it stands. A secret that is not there now is no
/// mistake of the file.
pub fn wrong(pipeline: &Pipeline, environment: &BTreeMap<String, String>) -> Vec<Diagnostic> {
    let base = pipeline.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    let mut look = |settings: &[(String, Setting)], node: &Node| {
        for (name, setting) in settings {
            let value = setting.value(environment, base).ok();
            let written = value.as_deref().filter(|_| !setting.is_secret(name));
            if let Some(text) = refusal(name, value.as_deref().unwrap_or_default(), written) {
                let known = value.is_some() || text.contains("no client setting");
                let span = node.get("properties").and_then(|map| map.key_span(name)).unwrap_or(node.span);
                if known && !findings.iter().any(|f: &Diagnostic| f.span == Some(span)) {
                    let finding = Diagnostic::error("P-VALUE", span, text)
                        .help("names and values are those of librdkafka's CONFIGURATION.md, not those of Java");
                    findings.push(Diagnostic { file: pipeline.file.clone(), ..finding });
                }
            }
        }
    };
    if let Source::Kafka(source) = &pipeline.source {
        look(&source.properties, &source.node);
    }
    let sinks = [
        Some(&pipeline.sink),
        pipeline.late.as_ref(),
        pipeline.duplicates.as_ref(),
        pipeline.errors.dead_letter.as_ref(),
    ];
    for sink in sinks.into_iter().flatten() {
        if let Sink::Kafka(sink) = sink {
            look(&sink.properties, &sink.node);
        }
    }
    if findings.is_empty() {
        findings.extend(misfit(pipeline, environment, base));
    }
    findings
}

/// What the clients say of settings that do not go together, or not with ours.
fn misfit(pipeline: &Pipeline, environment: &BTreeMap<String, String>, base: &Path) -> Option<Diagnostic> {
    let (source, sink) = ends(pipeline).ok()?;
    let clients = Clients::of(pipeline, environment, base).ok()?;
    let producer = alone(clients.producer(sink.exactly_once.then_some("a name")));
    let why = match Producer::new(&producer, &[]) {
        Err(fault) => fault.text,
        Ok(_) => match alone(clients.consumer()).create::<BaseConsumer<DefaultConsumerContext>>() {
            Err(KafkaError::ClientCreation(why)) => why,
            _ => return None,
        },
    };
    let named = |node: &Node| {
        let properties = node.get("properties")?;
        why.split('`').skip(1).step_by(2).find_map(|name| properties.key_span(name))
    };
    let span = named(&sink.node).or_else(|| named(&source.node)).unwrap_or(source.node.span);
    let finding = Diagnostic::error("P-VALUE", span, format!("the Kafka client refuses this: {why}"))
        .help("leave it out, or change it so that it goes with the others");
    Some(Diagnostic { file: pipeline.file.clone(), ..finding })
}

/// A client that connects to nobody, and looks at no file: whether it may connect is found out later.
fn alone(mut config: ClientConfig) -> ClientConfig {
    let of_others = |name: &str| {
        ["ssl.", "sasl.", "security."].iter().any(|start| name.starts_with(start))
            || ["bootstrap.servers", "metadata.broker.list", "enable.sasl.oauthbearer.unsecure.jwt"].contains(&name)
    };
    let names: Vec<String> =
        config.config_map().keys().filter(|name| of_others(name)).map(ToString::to_string).collect();
    for name in names {
        config.remove(&name);
    }
    config
}

/// Why the client does not take a setting. `written`: the value, if it may be told.
fn refusal(name: &str, value: &str, written: Option<&str>) -> Option<String> {
    match ClientConfig::new().set(name, value).create_native_config() {
        Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)) => {
            Some(format!("`{name}` is no client setting"))
        }
        Err(KafkaError::ClientConfig(_, why, ..)) => Some(match written {
            Some(written) => format!("`{name}` cannot be `{written}`: {why}"),
            None => format!("the value of `{name}` is not one that the client takes"),
        }),
        _ => None,
    }
}

/// What an error of the client says, without the value of any setting.
pub fn plain(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, _, name, _) => {
            format!("`{name}` is no client setting")
        }
        KafkaError::ClientConfig(_, _, name, _) => {
            format!("the value of `{name}` is not one that the client takes")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    /// What is said of settings of source and sink, and which of them is pointed at.
    fn check(source: &str, sink: &str, says: Option<(&str, &str)>) {
        let text = format!(
            "version: 1\nname: x\nsource: {{ kafka: {{ topics: a, brokers: \"b:1\", properties: {{ {source} }} }} }}\n\
             sink: {{ kafka: {{ topic: c, properties: {{ {sink} }} }} }}\n"
        );
        let pipeline = crate::config::read(&text, None, &|_| None).unwrap();
        let wrong = wrong(&pipeline, &BTreeMap::new());
        let found = wrong.first().map(|f| (f.message.as_str(), f.span.and_then(|s| text.get(s.start..s.end)).unwrap()));
        let fits = match (found, says) {
            (Some((message, at)), Some((words, place))) => message.contains(words) && at == place,
            (found, says) => found.is_none() && says.is_none(),
        };
        assert!(fits && wrong.len() <= 1, "{source} | {sink}: {wrong:?}");
    }

    #[test]
    fn settings_that_do_not_go_together_are_found_before_anything_connects() {
        check("", "", None);
        check("session.timeout.ms: 6000", "linger.ms: 3", None);
        check("", "acks: 1", Some(("`acks` must be set to `all`", "acks")));
        check("", "linger.ms: 20000", Some(("must be greater than `linger.ms`", "linger.ms")));
        check("max.poll.interval.ms: 3000", "", Some(("must be >= `session.timeout.ms`", "max.poll.interval.ms")));
        // Who is found out only where it connects, and a secret that is not here, are no mistakes of the file.
        check("security.protocol: SASL_SSL, ssl.ca.location: /nowhere", "", None);
        check("sasl.password: { from_env: NOBODY_HAS_THIS }", "", None);
    }

    #[test]
    fn what_the_client_refuses_is_told_without_secrets() {
        for (name, value, says) in [
            ("sasl.passwrd", "hidden", Some("`sasl.passwrd` is no client setting")),
            ("security.protocol", "SASL_SSL", None),
            ("sasl.password", "hidden", None),
            ("linger.ms", "hidden", Some("the value of `linger.ms` is not one that the client takes")),
        ] {
            assert_eq!(refusal(name, value, None).as_deref(), says, "{name}");
            let error = ClientConfig::new().set(name, value).create_native_config().err();
            assert!(error.is_none_or(|error| !plain(&error).contains("hidden")), "{name}");
        }
        let told = refusal("linger.ms", "soon", Some("soon")).unwrap();
        assert!(told.starts_with("`linger.ms` cannot be `soon`"), "{told}");
    }
}
