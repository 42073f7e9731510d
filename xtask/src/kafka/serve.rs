//! A cluster for as long as somebody holds our standard input: for tests, which may end in any way.
//!
//! First line of the answer: `ready BROKERS PORTS SECURED`, PORTS being those behind the proxies, SECURED the addresses
//! with TLS or nothing. Then one line `done`, or
//! `failed: ..`, for each line read: `start N`, `stop N`, `kill N`, `pause N`, `resume N`.

use std::fs;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cluster::{Cluster, Wish, send};
use super::jars::folder;
use super::secured;

/// Serves until standard input ends, then ends the nodes and removes their folder.
pub fn run(nodes: usize, proxies: Vec<u16>, secured: Option<PathBuf>) -> Result<()> {
    sweep();
    let own = folder().join(format!("run-{}", std::process::id()));
    let _ = fs::remove_dir_all(&own);
    let wish = Wish { folder: own.clone(), ports: Vec::new(), nodes, proxies, hasty: true, secured };
    let served = serve(&wish);
    let _ = fs::remove_dir_all(&own);
    served
}

fn serve(wish: &Wish) -> Result<()> {
    let mut cluster = Cluster::start(wish)?;
    let ports: Vec<String> = cluster.behind_proxies().iter().map(u16::to_string).collect();
    let mut secured = String::new();
    if wish.secured.is_some() {
        secured::tell_passwords(&cluster)?;
        secured = format!(" {}", cluster.secured());
    }
    let mut answers = std::io::stdout();
    let ready = format!("ready {} {}{secured}", cluster.brokers(), ports.join(","));
    let mut said = writeln!(answers, "{ready}").and_then(|()| answers.flush());
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if said.is_err() {
            break;
        }
        let answer = match obey(&mut cluster, &line) {
            Ok(()) => "done".to_string(),
            Err(error) => format!("failed: {}", format!("{error:#}").replace('\n', " | ")),
        };
        said = writeln!(answers, "{answer}").and_then(|()| answers.flush());
    }
    cluster.kill_all();
    Ok(())
}

fn obey(cluster: &mut Cluster, line: &str) -> Result<()> {
    let (verb, number) = line.split_once(' ').context("a command is a verb and the number of a node")?;
    let number: usize = number.trim().parse().context("nodes have numbers")?;
    match verb {
        "start" => cluster.start_node(number),
        "stop" => cluster.stop_node(number),
        "kill" => cluster.kill_node(number),
        "pause" => cluster.signal_node(number, "STOP"),
        "resume" => cluster.signal_node(number, "CONT"),
        _ => bail!("there is no command `{verb}`"),
    }
}

/// Ends nodes whose keeper was killed, and removes what they left.
pub fn sweep() {
    let Ok(entries) = fs::read_dir(folder()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let keeper = name.strip_prefix("run-").and_then(|pid| pid.parse::<u32>().ok());
        if let Some(keeper) = keeper
            && !is_alive(keeper)
        {
            end_nodes(&entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_alive(pid: u32) -> bool {
    command_line(pid).is_some()
}

/// Ends the nodes below a folder: processes that were started with this very folder, no others.
pub fn end_nodes(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let mut ended = 0;
    for node in entries.flatten() {
        let pid = fs::read_to_string(node.path().join("pid")).ok().and_then(|text| text.trim().parse::<u32>().ok());
        let Some(pid) = pid else { continue };
        let settings = node.path().join("server.properties").display().to_string();
        if command_line(pid).is_some_and(|line| line.contains(&settings)) {
            let _ = send("TERM", pid);
            let patience = std::time::Instant::now();
            while is_alive(pid) && patience.elapsed().as_secs() < 15 {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            if is_alive(pid) {
                let _ = send("KILL", pid);
            }
            ended += 1;
        }
        let _ = fs::remove_file(node.path().join("pid"));
    }
    ended
}

/// How a process was started; nothing if there is none (a dead one that nobody has waited for counts as none).
pub fn command_line(pid: u32) -> Option<String> {
    let output = Command::new("ps").args(["-o", "stat=,args=", "-p", &pid.to_string()]).output().ok()?;
    let line = String::from_utf8_lossy(&output.stdout).trim().to_string();
    (!line.is_empty() && !line.starts_with('Z')).then_some(line)
}
