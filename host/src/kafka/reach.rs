//! Whether a cluster answers, and why not: passwords, certificates and addresses are tried before anything else, so
//! that a mistake is told at once and in words.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::client::PATIENCE;
use super::settings::plain;
use crate::files::Trouble;

/// What is tried again for a moment: it may be a broker that is just starting.
const MOMENT: Duration = Duration::from_secs(5);

/// Keeps the reason that the client gave last.
#[derive(Default)]
struct Witness(Mutex<Option<(RDKafkaErrorCode, String)>>);

impl ClientContext for Witness {
    fn log(&self, _: RDKafkaLogLevel, fac: &str, text: &str) {
        tracing::debug!("kafka: {fac}: {text}");
        // Some reasons are only logged.
        if fac == "FAIL" {
            self.said().get_or_insert((RDKafkaErrorCode::BrokerTransportFailure, text.to_owned()));
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // That all brokers are down follows from what was said before.
        if let Some(code) = error.rdkafka_error_code().filter(|c| *c != RDKafkaErrorCode::AllBrokersDown) {
            *self.said() = Some((code, reason.to_owned()));
        }
    }
}

impl ConsumerContext for Witness {}

impl Witness {
    fn said(&self) -> MutexGuard<'_, Option<(RDKafkaErrorCode, String)>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Waits until the cluster has answered once.
///
/// # Errors
/// It refuses this user or this client, or does not answer within 20 s; the reason is the client's own.
pub fn reach(config: &ClientConfig, brokers: &str) -> Result<(), Trouble> {
    let client: BaseConsumer<Witness> = config.create_with_context(Witness::default()).map_err(|error| {
        Trouble::new(
            format!("the Kafka client cannot be made: {}", plain(&error)),
            "check the `properties` of source and sink",
        )
    })?;
    let began = Instant::now();
    loop {
        if client.client().fetch_cluster_id(Duration::from_millis(500)).is_some() {
            return Ok(());
        }
        // Serves what the client has to say.
        let _ = client.poll(Duration::ZERO);
        let said = client.context().said().clone();
        let (code, reason) = said.unwrap_or((RDKafkaErrorCode::BrokerTransportFailure, "it is silent".to_owned()));
        let (patience, way_out) = judge(code, &reason);
        if began.elapsed() >= patience {
            return Err(Trouble::new(format!("no answer from Kafka at {brokers}: {reason}"), way_out));
        }
    }
}

/// How long to hope for another answer, and what to do about this one.
fn judge(code: RDKafkaErrorCode, reason: &str) -> (Duration, &'static str) {
    let has = |words: &str| reason.contains(words);
    match code {
        RDKafkaErrorCode::Authentication => (
            Duration::ZERO,
            "the broker does not take this user: check `sasl.mechanism`, `sasl.username` and `sasl.password`",
        ),
        _ if has("certificate verify failed") => (
            Duration::ZERO,
            "the broker's certificate was not signed by a CA that is known here: name the CA's certificate with `ssl.ca.location` (a relative path starts where tamis was started), and call the broker by a name in its certificate",
        ),
        _ if has("No such file") && has("ssl") => (Duration::ZERO, "check the paths of certificates and keys"),
        _ if has("SSL listener")
            || has("wrong version number")
            || has("PLAINTEXT broker listener")
            || has("SSL broker listener")
            || has("security.protocol") =>
        {
            (
                MOMENT,
                "this port and `security.protocol` do not go together: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, as the broker's listener is",
            )
        }
        RDKafkaErrorCode::SSL => (MOMENT, "check `ssl.ca.location`, `ssl.certificate.location` and `ssl.key.location`"),
        RDKafkaErrorCode::Resolve => (MOMENT, "check the host name in `brokers`"),
        _ => (PATIENCE, "check `brokers`, and whether the cluster is up"),
    }
}
