//! Client settings of a pipeline file, looked at before anything connects: names that the client does not know, values
//! that it does not take. Values of secrets are never told.

use std::collections::BTreeMap;
use std::path::Path;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;

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
    findings
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
