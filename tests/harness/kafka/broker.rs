//! The brokers: started once per test binary by `cargo xtask kafka serve`, ended when this process ends, however it
//! ends.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::proxy::Proxy;
use crate::program::root;

/// Another cluster to use: `HOST:PORT,..`. Tests with faults on the wire or on nodes start their own all the same.
const ANOTHER: &str = "TAMIS_TEST_BROKERS";

/// Brokers, and what stands before them.
pub struct Cluster {
    brokers: String,
    proxies: Vec<Proxy>,
    secured: String,
    keeper: Option<Mutex<Keeper>>,
}

/// The process that ends the nodes when our end of its standard input closes.
struct Keeper {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// The cluster of all tests that need no more than one broker.
pub fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| match std::env::var(ANOTHER) {
        Ok(brokers) if !brokers.is_empty() => {
            Ok(Cluster { brokers, proxies: Vec::new(), secured: String::new(), keeper: None })
        }
        _ => Cluster::start(1),
    });
    shared.as_ref().unwrap_or_else(|error| panic!("{error}"))
}

/// The cluster of all tests that put faults on the wire: one broker behind proxies, always one of ours.
pub fn behind_proxy() -> &'static Cluster {
    static OURS: OnceLock<Result<Cluster, String>> = OnceLock::new();
    if !shared().proxies.is_empty() {
        return shared();
    }
    OURS.get_or_init(|| Cluster::start(1)).as_ref().unwrap_or_else(|error| panic!("{error}"))
}

impl Cluster {
    /// Nodes of one's own, for a test that stops or kills them. They go when this value goes.
    ///
    /// # Errors
    /// What is missing, with the way out.
    pub fn start(nodes: usize) -> Result<Cluster, String> {
        Cluster::start_with(nodes, None)
    }

    /// One node that has a listener with TLS and passwords, too. `folder` has `broker.pem`: its key and certificates.
    ///
    /// # Errors
    /// What is missing, with the way out.
    pub fn start_secured(folder: &Path) -> Result<Cluster, String> {
        Cluster::start_with(1, Some(folder))
    }

    fn start_with(nodes: usize, secured: Option<&Path>) -> Result<Cluster, String> {
        let proxies: Vec<Proxy> = (0..nodes).map(|_| Proxy::listen()).collect();
        let ports: Vec<String> = proxies.iter().map(|proxy| proxy.port().to_string()).collect();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut xtask = Command::new(cargo);
        xtask.args(["run", "--quiet", "--package", "xtask", "--", "kafka", "serve", "--nodes", &nodes.to_string()]);
        xtask.args(["--proxies", &ports.join(",")]).current_dir(root());
        if let Some(folder) = secured {
            xtask.arg("--secured").arg(folder);
        }
        let mut child = xtask
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cargo xtask cannot be run: {error}"))?;
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().ok_or("its output is ours")?);
        let mut keeper = Keeper { child, commands, answers };
        let ready = keeper.answer();
        let Some(rest) = ready.strip_prefix("ready ") else {
            return Err("Apache Kafka did not start: see `xtask:` above for what is missing".into());
        };
        let mut words = rest.split(' ');
        let brokers = words.next().unwrap_or_default();
        let behind = words.next().ok_or("`ready` names brokers and ports")?;
        let secured = words.next().unwrap_or_default().to_string();
        for (proxy, port) in proxies.iter().zip(behind.split(',')) {
            proxy.stand_before(port.parse().map_err(|_| "a port is a number")?);
        }
        Ok(Cluster { brokers: brokers.to_string(), proxies, secured, keeper: Some(Mutex::new(keeper)) })
    }

    /// Addresses for clients: `HOST:PORT,..`.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// Addresses of the listeners with TLS.
    pub fn secured(&self) -> &str {
        &self.secured
    }

    /// Addresses that lead through the proxies, first contact and all that follows.
    pub fn proxied(&self) -> String {
        assert!(!self.proxies.is_empty(), "only a cluster of ours has proxies");
        let addresses: Vec<String> = self.proxies.iter().map(|p| format!("127.0.0.1:{}", p.port())).collect();
        addresses.join(",")
    }

    /// The proxies, one per node.
    pub fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    /// `kill`, `stop`, `start`, `pause` or `resume` a node, counted from 1. Returns when it is done; a started node is
    /// up then.
    pub fn node(&self, verb: &str, number: usize) {
        let keeper = self.keeper.as_ref().expect("only nodes of ours can be stopped");
        let mut keeper = keeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let commands = keeper.commands.as_mut().expect("the keeper listens");
        writeln!(commands, "{verb} {number}").expect("the keeper listens");
        let answer = keeper.answer();
        assert_eq!(answer, "done", "{verb} {number}");
    }
}

impl Keeper {
    fn answer(&mut self) -> String {
        let mut line = String::new();
        let _ = self.answers.read_line(&mut line);
        line.trim_end().to_string()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.commands.take());
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
