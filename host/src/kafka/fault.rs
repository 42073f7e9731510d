//! What goes wrong in a client.

use std::fmt;

use rdkafka::error::RDKafkaErrorCode;

/// What the client says went wrong.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Its code.
    pub code: RDKafkaErrorCode,
    /// In its words.
    pub text: String,
    /// The same call may work later.
    pub retriable: bool,
    /// The transaction must be aborted; the producer can go on.
    pub abort: bool,
    /// The producer cannot go on.
    pub fatal: bool,
}

impl Fault {
    /// One that is not of a transaction: nothing is known but its code.
    pub fn of(code: RDKafkaErrorCode, text: impl Into<String>) -> Fault {
        Fault { code, text: text.into(), retriable: false, abort: true, fatal: false }
    }

    /// Whether a rival with the same id has taken over, or the broker gave the transaction up.
    pub fn is_fenced(&self) -> bool {
        matches!(
            self.code,
            RDKafkaErrorCode::Fenced | RDKafkaErrorCode::InvalidProducerEpoch | RDKafkaErrorCode::ProducerFenced
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.text, self.code)
    }
}
