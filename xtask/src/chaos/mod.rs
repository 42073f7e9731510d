//! Processes that are killed, frozen and robbed of their state while they make a stream unique, and a judge who counts
//! afterwards: nothing lost, nothing twice, the order kept, no transaction left open.

mod harm;
mod process;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::kafka::cluster::{Cluster, Wish};
use crate::kafka::jars::Jars;
use crate::kafka::{jars, number, serve, value};
use crate::setup::{self, cargo};
use crate::steps;
use harm::Random;
use process::Process;

const HELP: &str = "\
usage: cargo xtask chaos [--kills 50] [--processes 3] [--partitions 9] [--records 200000] [--seed 1]
                         [--interval MS] [--longest-stop MS] [--delivery exactly-once|at-least-once] [--skip-build]

With `--delivery at-least-once` records may come twice, and the judge must find some that do: proof that it looks.";

/// Of so many processes that are frozen one must come back too late.
const FREEZES: usize = 5;

/// What a run is like.
struct Shape {
    kills: usize,
    processes: usize,
    partitions: usize,
    records: usize,
    seed: usize,
    /// Between two harms, ms, on average.
    interval: usize,
    /// How long a process is frozen at most, ms.
    longest_stop: usize,
    /// What the pipeline promises.
    exactly_once: bool,
}

/// Runs the loop of kills, and prints what the judge says.
pub fn run(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|a| a == "--help" || a == "-h") {
        println!("{HELP}");
        return Ok(());
    }
    let shape = Shape {
        kills: number(arguments, "--kills", 50)?,
        processes: number(arguments, "--processes", 3)?,
        partitions: number(arguments, "--partitions", 9)?,
        records: number(arguments, "--records", 200_000)?,
        seed: number(arguments, "--seed", 1)?,
        interval: number(arguments, "--interval", 2_000)?,
        longest_stop: number(arguments, "--longest-stop", 8_000)?,
        exactly_once: match value(arguments, "--delivery")? {
            None | Some("exactly-once") => true,
            Some("at-least-once") => false,
            Some(other) => bail!("--delivery: `{other}` is no promise"),
        },
    };
    setup::prepare()?;
    if !arguments.iter().any(|a| a == "--skip-build") {
        steps::run(
            "building tamis and the judge",
            cargo().args(["build", "-p", "tamis", "-p", "tamis-verifier", "--bins"]),
        )?;
    }
    serve::sweep();
    let own = jars::folder().join(format!("run-{}", std::process::id()));
    let _ = fs::remove_dir_all(&own);
    steps::say("starting Apache Kafka");
    let wish = Wish {
        folder: own.join("kafka"),
        ports: Vec::new(),
        nodes: 1,
        proxies: Vec::new(),
        hasty: true,
        secured: None,
    };
    let mut cluster = Cluster::start(&wish)?;
    let outcome = scenario(&shape, &cluster.brokers(), &own);
    cluster.kill_all();
    let report = outcome.with_context(|| format!("logs are in {}", own.display()))?;
    println!("{report:#}");
    if !kept(&shape, &report) {
        bail!("the promise was broken; logs and state are in {}", own.display());
    }
    let _ = fs::remove_dir_all(&own);
    println!(
        "{} inputs, {} unique, {} outputs, {} missing, {} twice, {} out of order, {} kills",
        report["inputs"],
        report["unique"],
        report["outputs"],
        report["missing"],
        report["duplicates"],
        report["out_of_order"],
        report["harms"]["all"]
    );
    Ok(())
}

/// Whether the promise was kept. Of records that may come twice, some must, of many that are frozen some must lose their
/// partitions to others, and some marks must stand in sheaves: else the run proves nothing.
fn kept(shape: &Shape, report: &Value) -> bool {
    if report["came_back_too_late"] == 0
        && report["harms"]["freeze"].as_u64() >= Some(FREEZES as u64)
        && shape.processes > 1
    {
        eprintln!("nobody came back too late: the freezes were too short to prove anything");
        return false;
    }
    if report["changelog_sheaves"] == 0 {
        eprintln!("every mark had a record of its own: that proves nothing of sheaves");
        return false;
    }
    if shape.exactly_once {
        return report["holds"] == true;
    }
    let zero = ["missing", "foreign", "changed", "records_not_committed"];
    zero.iter().all(|name| report[*name] == 0) && report["duplicates"] != 0
}

fn scenario(shape: &Shape, brokers: &str, own: &Path) -> Result<Value> {
    let partitions = shape.partitions.to_string();
    for topic in ["chaos-in", "chaos-out"] {
        make_topic(brokers, topic, &partitions)?;
    }
    let seconds = (shape.kills * shape.interval / 1000).max(10);
    let rate = (shape.records / seconds).max(100);
    steps::say(&format!(
        "{} records, {rate} a second; {} harms, one every {} ms on average",
        shape.records, shape.kills, shape.interval
    ));
    let mut fill = verifier(&["fill", "--brokers", brokers, "--topic", "chaos-in"], shape)
        .args(["--rate", &rate.to_string()])
        .spawn()
        .context("the judge cannot be started")?;
    let mut processes = Vec::new();
    for number in 1..=shape.processes {
        processes.push(Process::new(number, own, &pipeline(shape, brokers, number))?);
    }
    let began = Instant::now();
    let harmed = harm_all(shape, &mut processes);
    let filled = fill.wait()?;
    let judged = match &harmed {
        Ok(_) if filled.success() => judge(shape, brokers, &mut processes),
        Ok(_) => bail!("the input was not filled"),
        Err(_) => Ok(json!({})),
    };
    let ends: Vec<Result<()>> = processes.iter_mut().map(Process::end).collect();
    let harms = harmed?;
    let mut report = judged?;
    for end in ends {
        end?;
    }
    report["harms"] = harms.count();
    report["came_back_too_late"] = json!(processes.iter().map(Process::times_too_late).sum::<usize>());
    report["processes"] = json!(shape.processes);
    report["partitions"] = json!(shape.partitions);
    report["seed"] = json!(shape.seed);
    report["run_seconds"] = json!(began.elapsed().as_secs());
    Ok(report)
}

/// Harms the processes as often as planned, in an order that the seed gives.
fn harm_all(shape: &Shape, processes: &mut [Process]) -> Result<harm::Tally> {
    let mut random = Random(shape.seed as u64);
    let mut tally = harm::Tally::default();
    let mut plan = VecDeque::from(harm::plan(shape.kills, &mut random));
    let mut done = 0;
    while let Some(harm) = plan.pop_front() {
        let from = Instant::now() + Duration::from_millis(random.around(shape.interval as u64));
        let running = loop {
            for process in processes.iter_mut() {
                process.tend()?;
            }
            // Whoever runs now; the others are frozen, or on their way back.
            let running: Vec<usize> =
                processes.iter().enumerate().filter(|(_, p)| p.is_running()).map(|(i, _)| i).collect();
            if Instant::now() >= from && !running.is_empty() {
                break running;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let Some(&chosen) = running.get(random.below(running.len() as u64) as usize) else { continue };
        let others: Vec<PathBuf> =
            processes.iter().enumerate().filter(|(i, _)| *i != chosen).map(|(_, p)| p.state()).collect();
        let Some(process) = processes.get_mut(chosen) else { continue };
        if !process.suffer(harm, &mut random, shape.longest_stop as u64, &others)? {
            // There was no state to rob or to damage yet: it was only killed.
            plan.push_back(harm);
            continue;
        }
        tally.add(harm);
        done += 1;
        if done % 10 == 0 {
            steps::say(&format!("{done} of {} harms", shape.kills));
        }
    }
    if tally.all() != shape.kills {
        bail!("{} harms were planned and {} were done: that is no proof", shape.kills, tally.all());
    }
    freeze_until_too_late(shape, processes, &mut random, &mut tally)?;
    Ok(tally)
}

/// A process that is frozen while it has no partitions, the group being about to deal them out, proves little: some are
/// frozen beyond the plan until one has come back too late.
fn freeze_until_too_late(
    shape: &Shape,
    processes: &mut [Process],
    random: &mut Random,
    tally: &mut harm::Tally,
) -> Result<()> {
    let too_late = |processes: &[Process]| processes.iter().map(Process::times_too_late).sum::<usize>() > 0;
    let mut more = if tally.freezes() >= FREEZES && shape.processes > 1 { 10 } else { 0 };
    while more > 0 && !too_late(processes) {
        more -= 1;
        // Time enough for the group to deal out, for the freeze itself, and for its end to be noticed.
        for wait in [6_000, shape.longest_stop as u64 + 3_000] {
            let until = Instant::now() + Duration::from_millis(wait);
            while Instant::now() < until {
                processes.iter_mut().try_for_each(Process::tend)?;
                std::thread::sleep(Duration::from_millis(20));
            }
            let chosen = random.below(processes.len() as u64) as usize;
            if let Some(process) = processes.get_mut(chosen).filter(|p| wait == 6_000 && p.is_running()) {
                process.freeze(Duration::from_millis(shape.longest_stop as u64))?;
                tally.add(harm::Harm::Freeze);
            }
        }
    }
    Ok(())
}

/// Lets all come back, waits until the group has read everything, and counts.
fn judge(shape: &Shape, brokers: &str, processes: &mut [Process]) -> Result<Value> {
    steps::say("waiting for the rest, then counting");
    let mut check = verifier(&["check", "--brokers", brokers, "--from", "chaos-in", "--to", "chaos-out"], shape)
        .args(["--group", "chaos", "--changelog", "chaos-chaos-in-changelog", "--within", "300"])
        .stdout(Stdio::piped())
        .spawn()?;
    while check.try_wait()?.is_none() {
        for process in processes.iter_mut() {
            process.tend()?;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    output(check)
}

fn output(child: Child) -> Result<Value> {
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim()).with_context(|| format!("the judge said: {text}"))
}

fn verifier(arguments: &[&str], shape: &Shape) -> Command {
    let mut command = Command::new(program("tamis-verifier"));
    command.args(arguments).args(["--records", &shape.records.to_string(), "--seed", &shape.seed.to_string()]);
    command
}

/// A binary of the workspace.
fn program(name: &str) -> PathBuf {
    match std::env::current_exe() {
        // target/PROFILE/xtask
        Ok(own) => own.with_file_name(name),
        Err(_) => setup::root().join("target").join("debug").join(name),
    }
}

fn make_topic(brokers: &str, topic: &str, partitions: &str) -> Result<()> {
    let mut tool = Jars::find()?.java("org.apache.kafka.tools.TopicCommand", "-Xmx128m");
    tool.args(["--bootstrap-server", brokers, "--create", "--topic", topic, "--partitions", partitions]);
    let output = tool.output().context("cannot start java")?;
    if !output.status.success() {
        bail!("the topic {topic} cannot be made: {}", String::from_utf8_lossy(&output.stdout));
    }
    Ok(())
}

/// The pipeline of one process: same name, so same group; state of its own.
fn pipeline(shape: &Shape, brokers: &str, number: usize) -> String {
    let delivery = if shape.exactly_once { "exactly-once" } else { "at-least-once" };
    format!(
        "version: 1
name: chaos
source:
  kafka:
    topics: chaos-in
    brokers: '{brokers}'
    properties: {{ client.id: chaos-{number}, session.timeout.ms: '3000', heartbeat.interval.ms: '300' }}
stages:
  - {{ uses: dedup, id: first, key: value.id, scope: partition, with: {{ keep: first, }}, state: {{ unbounded: true }} }}
sink: {{ kafka: {{ topic: chaos-out, delivery: {delivery} }} }}
state: {{ dir: state, checkpoint: 2s, changelog: {{ create: true, replication: 1 }} }}
run: {{ commit: 100ms, http: none, instance: chaos-{number} }}
"
    )
}
