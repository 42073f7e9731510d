//! A cluster of one or three nodes on loopback, in a folder of its own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::jars::{Jars, folder};

/// How long a node may take until it is up; on a busy machine it takes a while.
const UP_WITHIN: Duration = Duration::from_secs(120);
/// What a node writes when it serves.
const UP: &str = "Kafka Server started";
/// What it writes when its port is not free.
const TAKEN: &str = "Address already in use";

/// What a cluster should be like.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Where everything of it lies.
    pub folder: PathBuf,
    /// Ports of clients, one per node; free ones if there are none.
    pub ports: Vec<u16>,
    /// Nodes: broker and controller each.
    pub nodes: usize,
    /// Ports at which proxies stand before the nodes, one per node; none if there are none.
    pub proxies: Vec<u16>,
    /// Whether timeouts are as short as they can be, for tests.
    pub hasty: bool,
    /// A folder with `broker.pem`: there is a listener with TLS and passwords, too, and users need permissions.
    pub secured: Option<PathBuf>,
}

/// Nodes that run, or did.
pub struct Cluster {
    jars: Jars,
    heap: &'static str,
    nodes: Vec<Node>,
}

struct Node {
    folder: PathBuf,
    ports: Ports,
    child: Option<Child>,
}

/// Where a node listens. `proxied` is for a proxy, whose own port is what clients of that listener are told.
#[derive(Clone, Copy, Debug)]
struct Ports {
    client: u16,
    controller: u16,
    proxied: u16,
    secured: u16,
}

impl Cluster {
    /// Lays out the folder of a cluster and starts its nodes. With free ports it tries again if one was taken meanwhile.
    pub fn start(wish: &Wish) -> Result<Cluster> {
        let jars = Jars::find()?;
        let mut tries = if wish.ports.is_empty() { 3 } else { 1 };
        loop {
            tries -= 1;
            let mut cluster = Cluster::lay_out(jars.clone(), wish)?;
            match cluster.start_all() {
                Ok(()) => return Ok(cluster),
                Err(error) if tries > 0 && error.to_string().contains(TAKEN) => {
                    cluster.kill_all();
                    fs::remove_dir_all(&wish.folder)?;
                }
                Err(error) => {
                    cluster.kill_all();
                    return Err(error);
                }
            }
        }
    }

    fn lay_out(jars: Jars, wish: &Wish) -> Result<Cluster> {
        let ports = choose_ports(wish)?;
        let voters: Vec<String> =
            ports.iter().enumerate().map(|(i, p)| format!("{}@127.0.0.1:{}", i + 1, p.controller)).collect();
        let id = match fs::read_to_string(wish.folder.join("cluster-id")) {
            Ok(id) => id,
            Err(_) => random_id(),
        };
        let mut nodes = Vec::new();
        for (i, ports) in ports.iter().enumerate() {
            let number = i + 1;
            let folder = wish.folder.join(format!("node-{number}"));
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            let advertised = wish.proxies.get(i).copied().unwrap_or(ports.proxied);
            let settings = settings(wish, number, *ports, advertised, &voters.join(","), &folder.join("data"));
            fs::write(folder.join("server.properties"), settings)?;
            if !folder.join("data").is_dir() {
                format(&jars, &folder, number, &id)?;
            }
            nodes.push(Node { folder, ports: *ports, child: None });
        }
        fs::write(wish.folder.join("cluster-id"), id)?;
        Ok(Cluster { jars, heap: if wish.nodes > 1 { "-Xmx320m" } else { "-Xmx512m" }, nodes })
    }

    fn start_all(&mut self) -> Result<()> {
        for number in 1..=self.nodes.len() {
            self.spawn(number)?;
        }
        for number in 1..=self.nodes.len() {
            self.wait_until_up(number)?;
        }
        Ok(())
    }

    /// Starts a node that does not run.
    pub fn start_node(&mut self, number: usize) -> Result<()> {
        self.spawn(number)?;
        self.wait_until_up(number)
    }

    fn spawn(&mut self, number: usize) -> Result<()> {
        let (jars, heap) = (self.jars.clone(), self.heap);
        let node = self.node(number)?;
        if node.child.is_some() {
            bail!("node {number} runs already");
        }
        let log = File::create(node.log())?;
        let mut java = jars.java("kafka.Kafka", heap);
        java.arg(node.folder.join("server.properties")).stdin(Stdio::null());
        java.stdout(log.try_clone()?).stderr(log).current_dir(&node.folder);
        // Not in our group: an interrupt from the keyboard reaches us, and we see to the nodes.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut java, 0);
        let child = java.spawn().context("cannot start java")?;
        fs::write(node.folder.join("pid"), child.id().to_string())?;
        node.child = Some(child);
        Ok(())
    }

    fn wait_until_up(&mut self, number: usize) -> Result<()> {
        let node = self.node(number)?;
        let began = Instant::now();
        while began.elapsed() < UP_WITHIN {
            let log = String::from_utf8_lossy(&fs::read(node.log())?).into_owned();
            if log.contains(UP) {
                return Ok(());
            }
            let gone = node.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if gone {
                node.child = None;
                bail!("node {number} of Kafka ended while it started:\n{}", tail(&log));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = String::from_utf8_lossy(&fs::read(node.log())?).into_owned();
        bail!("node {number} of Kafka is not up after {} s:\n{}", UP_WITHIN.as_secs(), tail(&log))
    }

    /// Ends a node at once, as a power failure would.
    pub fn kill_node(&mut self, number: usize) -> Result<()> {
        let mut child = self.node(number)?.child.take().with_context(|| format!("node {number} does not run"))?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Asks a node to end, and waits until it has.
    pub fn stop_node(&mut self, number: usize) -> Result<()> {
        self.signal_node(number, "TERM")?;
        let child = self.node(number)?.child.take();
        child.context("it does not run")?.wait()?;
        Ok(())
    }

    /// Sends a node a signal: `STOP` and `CONT` freeze and wake it.
    pub fn signal_node(&mut self, number: usize, signal: &str) -> Result<()> {
        let child = self.node(number)?.child.as_ref().with_context(|| format!("node {number} does not run"))?;
        send(signal, child.id())
    }

    /// Ends all nodes at once.
    pub fn kill_all(&mut self) {
        for node in &mut self.nodes {
            if let Some(mut child) = node.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    /// Addresses for clients, as they are given to them.
    pub fn brokers(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(|n| format!("127.0.0.1:{}", n.ports.client)).collect();
        addresses.join(",")
    }

    /// Addresses of the listeners with TLS.
    pub fn secured(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(|n| format!("127.0.0.1:{}", n.ports.secured)).collect();
        addresses.join(",")
    }

    /// Kafka, for running its tools.
    pub fn jars(&self) -> &Jars {
        &self.jars
    }

    /// Ports of the listeners that proxies connect to, one per node.
    pub fn behind_proxies(&self) -> Vec<u16> {
        self.nodes.iter().map(|n| n.ports.proxied).collect()
    }

    fn node(&mut self, number: usize) -> Result<&mut Node> {
        number.checked_sub(1).and_then(|i| self.nodes.get_mut(i)).with_context(|| format!("there is no node {number}"))
    }
}

impl Node {
    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}

/// Sends a process a signal by its name.
pub fn send(signal: &str, pid: u32) -> Result<()> {
    let status = Command::new("kill").args(["-s", signal, &pid.to_string()]).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => bail!("process {pid} cannot be sent the signal {signal}"),
    }
}

/// Four ports for each node, all held until all are chosen, so that they differ.
fn choose_ports(wish: &Wish) -> Result<Vec<Ports>> {
    let mut held = Vec::new();
    let mut free = || -> Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("there is no free port")?;
        let port = listener.local_addr()?.port();
        held.push(listener);
        Ok(port)
    };
    (0..wish.nodes)
        .map(|i| {
            let client = match wish.ports.get(i) {
                Some(&port) => port,
                None => free()?,
            };
            Ok(Ports { client, controller: free()?, proxied: free()?, secured: free()? })
        })
        .collect()
}

/// `server.properties` of one node.
fn settings(wish: &Wish, number: usize, ports: Ports, advertised: u16, voters: &str, data: &Path) -> String {
    let Ports { client, controller, proxied, .. } = ports;
    let replicas = wish.nodes.min(3).to_string();
    let in_sync = if wish.nodes > 2 { "2" } else { "1" };
    let mut settings: BTreeMap<&str, String> = BTreeMap::new();
    let mut set = |name: &'static str, value: &str| {
        settings.insert(name, value.to_string());
    };
    set("process.roles", "broker,controller");
    set("node.id", &number.to_string());
    set("controller.quorum.voters", voters);
    set("controller.listener.names", "CONTROLLER");
    set("inter.broker.listener.name", "PLAIN");
    set("listener.security.protocol.map", "PLAIN:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT");
    set(
        "listeners",
        &format!("PLAIN://127.0.0.1:{client},PROXIED://127.0.0.1:{proxied},CONTROLLER://127.0.0.1:{controller}"),
    );
    set("advertised.listeners", &format!("PLAIN://127.0.0.1:{client},PROXIED://127.0.0.1:{advertised}"));
    set("log.dirs", &data.display().to_string());
    for topic in ["offsets.topic", "transaction.state.log", "share.coordinator.state.topic", "default"] {
        let name = match topic {
            "offsets.topic" => "offsets.topic.replication.factor",
            "transaction.state.log" => "transaction.state.log.replication.factor",
            "share.coordinator.state.topic" => "share.coordinator.state.topic.replication.factor",
            _ => "default.replication.factor",
        };
        set(name, &replicas);
    }
    for name in ["transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr", "min.insync.replicas"] {
        set(name, in_sync);
    }
    // A topic that nobody made is a mistake we want to see.
    set("auto.create.topics.enable", "false");
    set("group.initial.rebalance.delay.ms", "0");
    // Examples and tests have records of long ago, which retention by time would take away within minutes.
    set("log.retention.ms", "-1");
    set("offsets.topic.num.partitions", "5");
    set("transaction.state.log.num.partitions", "5");
    if wish.hasty {
        // At once rather than after five minutes, and in one test by chance.
        set("log.retention.check.interval.ms", "1000");
        set("group.min.session.timeout.ms", "1000");
        set("group.consumer.min.session.timeout.ms", "1000");
        set("group.consumer.min.heartbeat.interval.ms", "500");
        set("group.consumer.heartbeat.interval.ms", "500");
        set("transaction.abort.timed.out.transaction.cleanup.interval.ms", "1000");
        // Changelogs, which say so themselves, are compacted at once; updating outputs are looked at whole.
        set("log.cleaner.backoff.ms", "500");
        set("log.cleaner.min.cleanable.ratio", "1");
        set("log.initial.task.delay.ms", "500");
    }
    let mut settings: BTreeMap<String, String> = settings.into_iter().map(|(n, v)| (n.to_string(), v)).collect();
    if let Some(folder) = &wish.secured {
        super::secured::add(&mut settings, folder, ports.secured);
    }
    settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// Makes the data folder of a node. What Kafka's tool writes is the same for all but the ids: it runs once.
fn format(jars: &Jars, node: &Path, number: usize, cluster: &str) -> Result<()> {
    const METADATA: &str = "__cluster_metadata-0";
    let template = folder().join(format!("formatted-{}", super::jars::VERSION));
    if !template.is_dir() {
        let mut tool = jars.java("kafka.tools.StorageTool", "-Xmx128m");
        tool.args(["format", "-t", cluster, "-c"]).arg(node.join("server.properties"));
        let output = tool.output().context("cannot start java")?;
        if !output.status.success() {
            bail!("Kafka cannot format {}: {}", node.display(), String::from_utf8_lossy(&output.stderr));
        }
        let own = folder().join(format!("formatting-{}", std::process::id()));
        copy_files(&node.join("data").join(METADATA), &own)?;
        // Another process may have been as quick.
        let moved = fs::rename(&own, &template);
        if moved.is_err() && !template.is_dir() {
            moved.with_context(|| format!("cannot make {}", template.display()))?;
        }
        return Ok(());
    }
    copy_files(&template, &node.join("data").join(METADATA))?;
    let ids = format!("version=1\ncluster.id={cluster}\nnode.id={number}\ndirectory.id={}\n", random_id());
    fs::write(node.join("data").join("meta.properties"), ids)?;
    Ok(())
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("{} is not there", from.display()))? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// 128 random bits as Kafka writes its ids: 22 letters of base64 for names of files. The first is a capital, since an
/// id must not begin with a dash.
fn random_id() -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let word = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    let mut bits = (u128::from(word()) << 64) | u128::from(word());
    let mut letters = Vec::new();
    for _ in 0..22 {
        letters.push(LETTERS[(bits & 63) as usize] as char);
        bits >>= 6;
    }
    // The last letter holds two bits only; the rest of it must be zero.
    letters[21] = LETTERS[((bits_of(letters[21]) & 3) << 4) as usize] as char;
    letters[0] = LETTERS[(bits_of(letters[0]) % 26) as usize] as char;
    letters.into_iter().collect()
}

fn bits_of(letter: char) -> u8 {
    match letter {
        'A'..='Z' => letter as u8 - b'A',
        'a'..='z' => letter as u8 - b'a' + 26,
        '0'..='9' => letter as u8 - b'0' + 52,
        '-' => 62,
        _ => 63,
    }
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::random_id;

    #[test]
    fn ids_are_what_kafka_takes_for_128_bits() {
        for _ in 0..200 {
            let id = random_id();
            assert_eq!(id.len(), 22);
            assert!(id.starts_with(|c: char| c.is_ascii_uppercase()), "{id}");
            assert!(id.ends_with(['A', 'Q', 'g', 'w']), "the last letter holds two bits: {id}");
        }
    }
}
