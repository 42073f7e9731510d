//! A listener with TLS and passwords beside the plain ones, for tests of clients that need them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use super::cluster::Cluster;

/// The user that may do everything, and what he says for it, by PLAIN and by SCRAM-SHA-256.
pub const ALICE: (&str, &str) = ("alice", "alice-has-a-secret");
/// A user that is known and may do nothing.
pub const MALLORY: (&str, &str) = ("mallory", "mallory-has-one-too");

/// Adds the listener to the settings of a node. `folder` has `broker.pem`: the key of the broker and its certificates.
pub fn add(settings: &mut BTreeMap<String, String>, folder: &Path, port: u16) {
    for (name, more) in [
        ("listeners", format!("SECURED://127.0.0.1:{port}")),
        ("advertised.listeners", format!("SECURED://127.0.0.1:{port}")),
        ("listener.security.protocol.map", "SECURED:SASL_SSL".to_string()),
    ] {
        let list = settings.entry(name.to_string()).or_default();
        *list = format!("{list},{more}");
    }
    let module = |name: &str| format!("org.apache.kafka.common.security.{name}");
    let users: String = [ALICE, MALLORY].iter().map(|(name, word)| format!(" user_{name}=\"{word}\"")).collect();
    for (name, value) in [
        ("ssl.keystore.type", "PEM".to_string()),
        ("ssl.keystore.location", folder.join("broker.pem").display().to_string()),
        ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256".to_string()),
        (
            "listener.name.secured.plain.sasl.jaas.config",
            format!("{} required{users};", module("plain.PlainLoginModule")),
        ),
        (
            "listener.name.secured.scram-sha-256.sasl.jaas.config",
            format!("{} required;", module("scram.ScramLoginModule")),
        ),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_string()),
        // Whoever comes by a plain listener has no name.
        ("super.users", format!("User:ANONYMOUS;User:{}", ALICE.0)),
    ] {
        settings.insert(name.to_string(), value);
    }
}

/// Tells the cluster the passwords of SCRAM; those of PLAIN are in its settings.
pub fn tell_passwords(cluster: &Cluster) -> Result<()> {
    let (name, word) = ALICE;
    let mut tool = cluster.jars().java("org.apache.kafka.tools.ConfigCommand", "-Xmx128m");
    tool.args(["--bootstrap-server", &cluster.brokers(), "--alter", "--entity-type", "users", "--entity-name", name]);
    tool.args(["--add-config", &format!("SCRAM-SHA-256=[password={word}]")]);
    let output = tool.output()?;
    if !output.status.success() {
        bail!("the password of {name} cannot be set: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
