//! The numbered cases about restarts and redelivery, played on a real broker by real processes: records go to a topic,
//! `restart` and `crash` are signals, and what is committed to the output is compared with what the case expects. The
//! other player, of `tamis test`, plays the same files without a broker.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tamis::config::pipeline::Pipeline;
use tamis::script::content::Content;
use tamis::script::record::{Body, Record, Row, Tag};
use tamis::script::{Expected, Said, Step, Test, read};
use tamis_tests::kafka::broker::{Cluster, shared};
use tamis_tests::kafka::topics::{Rec, unique};
use tamis_tests::program::Folder;

use super::faults::Process;
use super::many;

/// Files whose every test is played here; tests elsewhere that say `needs: kafka` are too.
const FILES: [&str; 10] = ["R-02", "R-03", "R-04", "R-05", "R-06", "R-07", "R-09", "R-10", "R-11", "R-16"];

/// Tests of these files that are not played, and why.
const NOT_PLAYED: [(&str, &str, &str); 2] = [
    ("R-06", "scope global sees both", "two partitions share state only behind the exchange, which is not built"),
    ("R-07", "a new leader epoch is a new history", "a topic shows two epochs only after an unclean election"),
];

/// What some of them say in words beside their script.
const TOLD: [(&str, Told); 2] = [("R-04", Told::Moves), ("R-05", Told::LosesPartition)];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    #[default]
    Nothing,
    /// `restart`: another process takes the partition over, with an older copy of the state.
    Moves,
    /// `crash`: the process stands still and loses the partition to another one, then goes on.
    LosesPartition,
}

const PATIENCE: Duration = Duration::from_secs(120);
/// A commit that nobody asks for does not come.
const NEVER: &str = "1h";
const SOON: &str = "100ms";

#[test]
fn the_cases_of_restarts_hold_on_a_real_broker() {
    let mut cases = Vec::new();
    let mut left_out = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/dedup");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let all = FILES.contains(&name.as_str());
        if !all && !text.contains("kafka") {
            continue;
        }
        let pipeline = Arc::new(tamis::config::read(&text, None, &|_| None).map_err(|(f, _)| f).unwrap());
        for node in &pipeline.tests {
            let test = read::test(node).unwrap();
            if !all && test.needs.is_empty() {
                continue;
            }
            found.push(name.clone());
            match NOT_PLAYED.iter().find(|(file, of, _)| *file == name && *of == test.name) {
                Some((file, of, _)) => left_out.push((*file, *of)),
                None => cases.push((name.clone(), Arc::clone(&pipeline), test)),
            }
        }
    }
    assert!(FILES.iter().all(|file| found.iter().any(|name| name == file)), "cases are missing: {found:?}");
    let named: Vec<_> = NOT_PLAYED.iter().map(|(file, of, _)| (*file, *of)).collect();
    assert_eq!(left_out, named, "a test that is named as not played must be there");
    let count = cases.len();
    let failed = many::each(cases, |(name, pipeline, test)| {
        let told = TOLD.iter().find(|(file, _)| *file == name).map_or(Told::Nothing, |(_, told)| *told);
        Player::new(&name, (*pipeline).clone(), &test, told)
            .and_then(Player::play)
            .map_err(|why| format!("{name}, {}: {why}", test.name))
    });
    assert!(failed.is_empty(), "{} of {count} cases:\n{}", failed.len(), failed.join("\n"));
    println!("{count} cases played, {} named as not played", NOT_PLAYED.len());
}

/// One test on its way.
struct Player<'a> {
    cluster: &'static Cluster,
    test: &'a Test,
    told: Told,
    /// With the settings of the test, and of every restart so far.
    pipeline: Pipeline,
    stage: Option<String>,
    /// Names the topics, the group, and folders of processes.
    name: String,
    folders: [Folder; 2],
    /// Which of the folders the process runs in.
    own: usize,
    process: Option<Process>,
    /// Where the partitions ended when the process began.
    before: i64,
}

impl<'a> Player<'a> {
    fn new(case: &str, pipeline: Pipeline, test: &'a Test, told: Told) -> Result<Player<'a>, String> {
        let cluster = shared();
        let name = unique(&format!("case-{}", case.to_lowercase()));
        let stage = test.stage.as_ref().map(|(id, _)| id.clone()).or(pipeline.default_stage().map(str::to_owned));
        let pipeline = pipeline.replace(stage.as_deref(), &test.replace).map_err(|findings| format!("{findings:?}"))?;
        let most = |said: &Said| if let Step::Record(record) = &said.step { record.p.unwrap_or(0) + 1 } else { 1 };
        let partitions = test.partitions.unwrap_or_else(|| test.input.iter().map(most).max().unwrap_or(1) as u32);
        cluster.create(&format!("{name}-in"), partitions as i32, &[]);
        for route in ["out", "late"] {
            cluster.create(&format!("{name}-{route}"), 1, &[]);
        }
        let folders = [0, 1].map(|n| Folder::new(&format!("{name}-{n}")));
        Ok(Player { cluster, test, told, pipeline, stage, name, folders, own: 0, process: None, before: 0 })
    }

    fn play(mut self) -> Result<(), String> {
        for (at, said) in self.test.input.iter().enumerate() {
            let rest = &self.test.input[at..];
            match &said.step {
                Step::Record(record) => self.give(record, rest)?,
                Step::Commit => self.wait_until_through()?,
                Step::Restart(settings) => {
                    self.stop()?;
                    self.pipeline = self
                        .pipeline
                        .replace(self.stage.as_deref(), settings)
                        .map_err(|findings| format!("{findings:?}"))?;
                    if self.test.refused.is_some() {
                        return self.is_refused();
                    }
                }
                Step::Crash => self.crash()?,
                Step::End(None) => self.run_to_end()?,
                step => return Err(format!("this player cannot play {step:?}")),
            }
        }
        if self.test.refused.is_some() {
            return Err("nothing refuses it".to_owned());
        }
        match self.process {
            Some(_) => self.stop()?,
            None if !self.test.has_input => self.run_to_end()?,
            None => {}
        }
        self.judge()
    }

    /// Writes a record to its place; the first one starts the process, but where the input has an end that is waited for.
    fn give(&mut self, record: &Record, rest: &[Said]) -> Result<(), String> {
        let source = self.topic("in");
        let partition = record.p.unwrap_or(0);
        let next = self.cluster.ends(&source, true)[partition as usize];
        if let Some(offset) = record.o.filter(|offset| *offset > next) {
            if next > 0 {
                return Err(format!("a gap of offsets between {next} and {offset}"));
            }
            // What was there before is gone.
            let gone: Vec<Rec> = (0..offset).map(|_| Rec::new("gone", "gone").at(partition)).collect();
            self.cluster.write(&source, &gone);
            self.cluster.truncate(&source, partition, offset);
        }
        self.cluster.write(&source, &[as_written(record)?]);
        let ends = rest.iter().any(|said| matches!(said.step, Step::End(_)));
        if self.process.is_none() && !ends {
            let crashes = |said: &&Said| matches!(said.step, Step::Crash | Step::Restart(_));
            let crashes = rest.iter().find(crashes).is_some_and(|said| matches!(said.step, Step::Crash));
            self.start(if crashes { NEVER } else { SOON });
            if self.told == Told::Moves && self.own == 0 {
                self.leave_an_old_copy()?;
            }
        }
        Ok(())
    }

    fn start(&mut self, commit: &str) {
        self.before = self.produced();
        let folder = &self.folders[self.own];
        folder.write("p.json", self.file(commit, false));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.path("log")).unwrap();
        self.process = Some(Process(folder.command(&["-v", "run", "p.json"]).stderr(log).spawn().unwrap()));
    }

    /// The second process gets a copy of the checkpoints as they are now; the first one goes on.
    fn leave_an_old_copy(&mut self) -> Result<(), String> {
        self.stop()?;
        let [first, second] = [0, 1].map(|n| self.folders[n].path("state"));
        let (from, to) = (first.to_string_lossy().into_owned(), second.to_string_lossy().into_owned());
        let copied = std::process::Command::new("cp").args(["-r", &from, &to]).status();
        if !copied.is_ok_and(|status| status.success()) {
            return Err("the state cannot be copied".to_owned());
        }
        rename_instance(&second, "process-0", "process-1");
        self.start(SOON);
        Ok(())
    }

    /// Everything is committed, then the process ends as it is asked to.
    fn stop(&mut self) -> Result<(), String> {
        if self.process.is_none() {
            return Ok(());
        }
        self.wait_until_through()?;
        if self.told == Told::Moves && self.own == 0 && self.cluster.ends(&self.topic("in"), true)[0] > 1 {
            // The other one joins while this one still runs.
            let first = self.process.take();
            self.own = 1;
            self.start(SOON);
            std::thread::sleep(Duration::from_secs(1));
            self.own = 0;
            let second = std::mem::replace(&mut self.process, first);
            let ended = self.terminate();
            (self.own, self.process) = (1, second);
            return ended;
        }
        self.terminate()
    }

    /// SIGTERM; it must end well.
    fn terminate(&mut self) -> Result<(), String> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        signal("TERM", &process);
        let began = Instant::now();
        loop {
            match process.0.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("it ended with {status}: {}", self.log())),
                None if began.elapsed() > PATIENCE => return Err(format!("it does not stop: {}", self.log())),
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// What was read since the last commit is lost to the process, which was in the middle of it.
    fn crash(&mut self) -> Result<(), String> {
        let (from, expected) = (self.before, self.records_since());
        self.wait("output that is not committed", |player| player.produced() >= from + expected)?;
        if self.told != Told::LosesPartition {
            self.process = None;
            self.start(SOON);
            return Ok(());
        }
        let first = self.process.take().ok_or("there is no process")?;
        signal("STOP", &first);
        self.own = 1;
        self.start(SOON);
        self.wait_until_through()?;
        let second = self.process.replace(first);
        // Back to life, it wants to end well, that is with a commit; the group takes none of it.
        signal("CONT", self.process.as_ref().ok_or("there is no process")?);
        let ended = self.terminate();
        self.process = second;
        ended
    }

    /// Records that the process was given, of which each brings a row in the cases with a crash.
    fn records_since(&self) -> i64 {
        let until = self.test.input.iter().position(|said| matches!(said.step, Step::Crash)).unwrap_or(0);
        let records = self.test.input[..until].iter().filter(|said| matches!(said.step, Step::Record(_)));
        records.count() as i64
    }

    fn run_to_end(&mut self) -> Result<(), String> {
        let folder = &self.folders[self.own];
        folder.write("p.json", self.file(SOON, true));
        let ran = folder.run(&["run", "p.json"]);
        folder.write("log", format!("{}{}", folder.read("log"), ran.err()));
        if ran.code() == 0 { Ok(()) } else { Err(format!("it ended with {}: {}", ran.code(), ran.err())) }
    }

    /// The process must not start with these settings.
    fn is_refused(&mut self) -> Result<(), String> {
        let code = self.test.refused.as_deref().unwrap_or_default();
        let folder = &self.folders[self.own];
        folder.write("p.json", self.file(SOON, true));
        let ran = folder.run(&["run", "p.json"]);
        match ran.code() != 0 && ran.err().contains(code) {
            true => self.judge(),
            false => Err(format!("not refused with {code}, it ended with {}: {}", ran.code(), ran.err())),
        }
    }

    /// The pipeline as a file, with Kafka at its ends.
    fn file(&self, commit: &str, until_end: bool) -> String {
        let mut kafka = json!({
            "topics": self.topic("in"),
            "brokers": self.cluster.brokers(),
            "properties": { "session.timeout.ms": "3000", "heartbeat.interval.ms": "300" },
        });
        if until_end {
            kafka["until"] = json!("end");
        }
        let stages: Vec<Value> = self.pipeline.stages.iter().map(|stage| bounded(stage.node.to_json())).collect();
        let delivery = if self.test.exactly_once { "exactly-once" } else { "at-least-once" };
        let mut file = json!({
            "version": 1,
            "name": self.name,
            "source": { "kafka": kafka },
            "stages": stages,
            "sink": { "kafka": { "topic": self.topic("out"), "delivery": delivery } },
            "routes": { "late": { "kafka": { "topic": self.topic("late") } } },
            "state": { "changelog": { "create": true, "replication": 1 } },
            "run": { "commit": commit, "http": "none", "instance": format!("process-{}", self.own) },
        });
        if let Some(time) = &self.pipeline.time.node {
            file["time"] = time.to_json();
        }
        file.to_string()
    }

    fn topic(&self, route: &str) -> String {
        format!("{}-{route}", self.name)
    }

    /// Rows in the output, committed or not; ends of transactions count as well.
    fn produced(&self) -> i64 {
        self.cluster.ends(&self.topic("out"), false).iter().sum()
    }

    fn log(&self) -> String {
        self.folders.each_ref().map(|folder| folder.read("log")).concat()
    }

    /// Waits until the group has committed everything.
    fn wait_until_through(&mut self) -> Result<(), String> {
        let source = self.topic("in");
        let ends = self.cluster.ends(&source, true);
        self.wait("everything is committed", |player| {
            let committed = player.cluster.committed(&player.name, &source);
            let done = committed.iter().map(|c| c.as_ref().map_or(0, |(offset, _)| *offset));
            done.eq(ends.iter().copied())
        })
    }

    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&Player<'_>) -> bool) -> Result<(), String> {
        let began = Instant::now();
        while !is_so(self) {
            let ended = self.process.as_mut().and_then(|process| process.0.try_wait().ok().flatten());
            if ended.is_some() || began.elapsed() > PATIENCE {
                return Err(format!("waited in vain ({ended:?}): {what}\n{}", self.log()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn judge(&self) -> Result<(), String> {
        if !self.test.counters.is_empty() || self.test.table.is_some() || self.test.contains {
            return Err("this player compares rows alone".to_owned());
        }
        let log = self.log();
        if let Some(code) = self.test.warns.iter().find(|code| !log.contains(code.as_str())) {
            return Err(format!("it does not warn of {code}: {log}"));
        }
        for route in ["out", "late"] {
            let expected: Vec<Row> = self.expected(route)?;
            let found = self.cluster.read(&self.topic(route));
            let same = match self.test.exactly_once {
                _ if self.test.partitions.is_some_and(|count| count > 1) => {
                    // Tasks do not wait for each other.
                    let mut rows: Vec<&Row> = expected.iter().collect();
                    let mut is_row = |rec: &Rec| {
                        let at = rows.iter().position(|row| matches(row, rec));
                        at.map(|at| rows.swap_remove(at)).is_some()
                    };
                    found.iter().all(&mut is_row) && rows.is_empty()
                }
                true => {
                    found.len() == expected.len() && expected.iter().zip(&found).all(|(row, rec)| matches(row, rec))
                }
                // At least once: each row, first copies in this order.
                false => {
                    let mut next = 0;
                    let mut is_row = |rec: &Rec| {
                        let new = expected.get(next).is_some_and(|row| matches(row, rec));
                        next += usize::from(new);
                        new || expected[..next].iter().any(|row| matches(row, rec))
                    };
                    found.iter().all(&mut is_row) && next == expected.len()
                }
            };
            if !same && self.test.refused.is_none() {
                let found: Vec<String> = found.iter().map(Rec::text).collect();
                return Err(format!("{route}: {found:?} is not {expected:?}\n{log}"));
            }
        }
        Ok(())
    }

    /// Rows of one route that must come out.
    fn expected(&self, route: &str) -> Result<Vec<Row>, String> {
        let mut rows = Vec::new();
        for expected in &self.test.output {
            let Expected::Row(row) = expected else { return Err("a series of rows".to_owned()) };
            match (&row.tag, route) {
                (Tag::Late, "late") | (Tag::Insert, "out") => rows.push((**row).clone()),
                (Tag::Late | Tag::Insert, _) => {}
                (tag, _) => return Err(format!("this player does not know rows of {tag:?}")),
            }
        }
        Ok(rows)
    }
}

/// State that grows is meant to, where the case says nothing of it: a topic has no end.
fn bounded(mut stage: Value) -> Value {
    if stage["with"]["window"].is_null() && stage["state"].is_null() {
        stage["state"] = json!({ "unbounded": true });
    }
    stage
}

fn as_written(record: &Record) -> Result<Rec, String> {
    let value = match &record.value {
        Body::Null => None,
        Body::Document(document) => Some(as_json(document).to_string().into_bytes()),
        Body::Bytes(bytes) => Some(bytes.clone()),
    };
    if record.key.is_some() || !record.headers.is_empty() || record.epoch.is_some() || record.at.is_some() {
        return Err("this player writes values, times, partitions and offsets alone".to_owned());
    }
    let timestamp = record.t.unwrap_or(0);
    Ok(Rec { partition: record.p.unwrap_or(0), timestamp, value, ..Rec::default() })
}

/// Whether a record of a topic is the row.
fn matches(row: &Row, found: &Rec) -> bool {
    let record = &row.record;
    let value = match (&record.value, &found.value) {
        (Body::Null, None) => true,
        (Body::Document(document), Some(bytes)) => {
            serde_json::from_slice::<Value>(bytes).is_ok_and(|found| found == as_json(document))
        }
        _ => false,
    };
    let bound = |name: &str| found.header(name).and_then(|text| text.parse::<i64>().ok());
    let window = (bound("tamis.window_start"), bound("tamis.window_end"));
    let ms = |ns: i64| Some(ns / 1_000_000);
    value
        && record.t.is_none_or(|t| t == found.timestamp)
        && record.w.is_none_or(|(start, end)| window == (ms(start), ms(end)))
}

fn as_json(content: &Content) -> Value {
    match content {
        Content::Boolean(truth) => json!(truth),
        Content::Number(digits) => serde_json::from_str(digits).expect("a number"),
        Content::Text(text) => json!(text),
        Content::List(items) => items.iter().map(as_json).collect(),
        Content::Map(members) => members.iter().map(|(name, value)| (name.clone(), as_json(value))).collect(),
        Content::Null | Content::Float(_) | Content::Bytes(_) => Value::Null,
    }
}

/// What a process of one name wrote becomes that of another.
fn rename_instance(folder: &Path, from: &str, to: &str) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if !entry.is_dir() {
            continue;
        }
        rename_instance(&entry, from, to);
        if entry.ends_with(from) {
            std::fs::rename(&entry, entry.with_file_name(to)).unwrap();
        }
    }
}

fn signal(word: &str, process: &Process) {
    let status = std::process::Command::new("kill").args([&format!("-{word}"), &process.0.id().to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill -{word}");
}
