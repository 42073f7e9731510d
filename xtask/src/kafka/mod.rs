//! Apache Kafka without Docker: a cluster on loopback for people (`up`, `down`) and for tests (`serve`), and Kafka's
//! own tools.

pub mod cluster;
pub mod jars;
pub mod secured;
pub mod serve;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::steps;
use cluster::{Cluster, Wish};
use jars::Jars;

const HELP: &str = "\
usage: cargo xtask kafka VERB

  up [--nodes N] [--port P]   start Apache Kafka on 127.0.0.1:9092 (needs Java 17 and Maven)
  down [--delete]             stop it; with --delete remove its topics, too
  topics | produce | consume | groups | configs | transactions ARGUMENTS
                              Kafka's own tool, with --bootstrap-server filled in
  serve [--nodes N] [--proxies P,P] [--secured FOLDER]
                              a cluster for as long as standard input is open (for tests)";

/// Kafka's tools by the names people know.
const TOOLS: [(&str, &str); 6] = [
    ("topics", "org.apache.kafka.tools.TopicCommand"),
    ("produce", "org.apache.kafka.tools.ConsoleProducer"),
    ("consume", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
    ("groups", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    ("configs", "org.apache.kafka.tools.ConfigCommand"),
    ("transactions", "org.apache.kafka.tools.TransactionsCommand"),
];

/// The verb.
pub fn run(arguments: &[String]) -> Result<()> {
    let (verb, rest) = match arguments.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("help", [].as_slice()),
    };
    if let Some((_, class)) = TOOLS.iter().find(|(name, _)| *name == verb) {
        return tool(class, rest);
    }
    match verb {
        "up" => up(rest),
        "down" => down(rest),
        "serve" => serve::run(
            number(rest, "--nodes", 1)?,
            list(rest, "--proxies")?,
            value(rest, "--secured")?.map(PathBuf::from),
        ),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => bail!("kafka has no verb `{other}`\n\n{HELP}"),
    }
}

/// Where the cluster for people lies.
fn home() -> PathBuf {
    jars::folder().join("up")
}

fn up(arguments: &[String]) -> Result<()> {
    let (nodes, port) = (number(arguments, "--nodes", 1)?, number(arguments, "--port", 9092)?);
    if let Some(brokers) = running() {
        bail!("Kafka is up already, at {brokers}. Way out: use it, or `cargo xtask kafka down`");
    }
    let ports: Vec<u16> = (0..nodes).map(|i| u16::try_from(port + i)).collect::<Result<_, _>>().context("--port")?;
    for &port in &ports {
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_err() {
            bail!("port {port} is taken. Way out: `cargo xtask kafka up --port {}`", port.saturating_add(1000));
        }
    }
    if nodes != stored_nodes().unwrap_or(nodes) {
        bail!("the topics that are kept belong to another number of nodes. Way out: `cargo xtask kafka down --delete`");
    }
    steps::say(&format!("starting Apache Kafka {} on 127.0.0.1:{port}", jars::VERSION));
    let wish = Wish { folder: home(), ports, nodes, proxies: Vec::new(), hasty: false, secured: None };
    let brokers = Cluster::start(&wish)?.brokers();
    fs::write(home().join("brokers"), &brokers)?;
    println!("Kafka is up at {brokers}. Its data lies in {}.", home().display());
    println!("Stop it with `cargo xtask kafka down`.");
    Ok(())
}

fn down(arguments: &[String]) -> Result<()> {
    let ended = serve::end_nodes(&home());
    let _ = fs::remove_file(home().join("brokers"));
    if arguments.iter().any(|a| a == "--delete") {
        // Only what we made ourselves is removed.
        if home().exists() && !home().join("cluster-id").is_file() {
            bail!("{} holds no cluster of ours: not removed", home().display());
        }
        let _ = fs::remove_dir_all(home());
    }
    println!("{}", if ended == 0 { "Kafka was not up." } else { "Kafka is down." });
    Ok(())
}

/// Brokers of the cluster for people, if its nodes run.
fn running() -> Option<String> {
    let brokers = fs::read_to_string(home().join("brokers")).ok()?;
    let pid: u32 = fs::read_to_string(home().join("node-1").join("pid")).ok()?.trim().parse().ok()?;
    let line = serve::command_line(pid)?;
    line.contains(&home().display().to_string()).then_some(brokers)
}

fn stored_nodes() -> Option<usize> {
    let entries = fs::read_dir(home()).ok()?;
    let nodes = entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("node-")).count();
    (nodes > 0).then_some(nodes)
}

/// Runs one of Kafka's tools against the cluster for people, or the one that is named.
fn tool(class: &str, arguments: &[String]) -> Result<()> {
    let mut java = Jars::find()?.java(class, "-Xmx256m");
    if !arguments.iter().any(|a| a == "--bootstrap-server") {
        let brokers = running().context("Kafka is not up. Way out: `cargo xtask kafka up`")?;
        java.args(["--bootstrap-server", &brokers]);
    }
    let status = java.args(arguments).status().context("cannot start java")?;
    if !status.success() {
        bail!("the tool ended with {status}");
    }
    Ok(())
}

/// What stands after a name.
pub fn value<'a>(arguments: &'a [String], name: &str) -> Result<Option<&'a str>> {
    match arguments.iter().position(|a| a == name) {
        None => Ok(None),
        Some(at) => Ok(Some(arguments.get(at + 1).with_context(|| format!("{name} wants a value"))?)),
    }
}

/// A number after its name, or what stands for it.
pub fn number(arguments: &[String], name: &str, default: usize) -> Result<usize> {
    match value(arguments, name)? {
        None => Ok(default),
        Some(text) => text.parse().with_context(|| format!("{name}: `{text}` is no number")),
    }
}

fn list(arguments: &[String], name: &str) -> Result<Vec<u16>> {
    let Some(text) = value(arguments, name)? else { return Ok(Vec::new()) };
    text.split(',').map(|n| n.parse().with_context(|| format!("{name}: `{n}` is no port"))).collect()
}
