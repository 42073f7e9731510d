//! What one pipeline tells: its state, its counters, its inputs. Written by its worker at commits, read by the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use serde_json::{Value, json};

use super::metrics::{Labels, Metrics};
use super::orders::Orders;
use super::watch::GuestWatch;
use crate::files::sink::Counts;
use crate::guest::Watch;
use crate::plan::{Plan, Planned};
use crate::task::Task;
use crate::time::{Activity, END, NONE_YET};

/// What a task tells that is a size, not a count.
const SIZES: [&str; 3] = ["state_entries", "state_bytes", "pending"];

/// Entries and marks that went because their time was over.
const EXPIRED: &str = "state_expired";

/// What a pipeline is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It opens guests, source and sinks.
    Starting,
    /// It brings state back.
    Restoring,
    /// It reads.
    Running,
    /// It has come to its end.
    Ended,
    /// It has stopped because of something.
    Failed,
}

impl Phase {
    /// The word in metrics and status.
    pub fn word(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Restoring => "restoring",
            Phase::Running => "running",
            Phase::Ended => "ended",
            Phase::Failed => "failed",
        }
    }
}

/// Every word that `task_state` may have; `draining` is `running` after somebody asked to stop.
const WORDS: [&str; 6] = ["starting", "restoring", "running", "draining", "ended", "failed"];

/// The place of one pipeline on the board.
#[derive(Debug)]
pub struct Seat {
    pipeline: String,
    metrics: Arc<Metrics>,
    /// Series that every batch or commit adds to, looked up once.
    sent: Histogram,
    state_committed: Histogram,
    sent_again: Counter<u64, AtomicU64>,
    began: Instant,
    /// When its loop turned last, milliseconds after it began.
    turned: AtomicU64,
    told: Mutex<Told>,
    /// Whether somebody looks at a terminal.
    pub(super) shows: AtomicBool,
    /// What is asked of it.
    pub orders: Orders,
}

#[derive(Debug)]
struct Told {
    phase: Phase,
    reason: String,
    /// Counters of each task when they were gathered last, by its first input.
    tasks: BTreeMap<Place, BTreeMap<(String, String), u64>>,
    inputs: BTreeMap<Place, Input>,
    stages: BTreeMap<String, BTreeMap<String, u64>>,
    counts: Counts,
    commits: u64,
    committed: Option<Instant>,
    away: Option<&'static str>,
    modules: Vec<Labels>,
}

/// Topic and partition.
type Place = (String, i32);

#[derive(Debug, Default)]
struct Input {
    /// ns since 1970.
    watermark: Option<i64>,
    idle: bool,
    offset: Option<i64>,
    lag: Option<i64>,
    paused: Option<&'static str>,
    /// Records of its state that were read back, and about how many are left.
    restoring: Option<(u64, i64)>,
}

impl Seat {
    pub(super) fn new(pipeline: &str, metrics: Arc<Metrics>) -> Seat {
        let labels: Labels = vec![("pipeline", pipeline.to_owned())];
        Seat {
            pipeline: pipeline.to_owned(),
            sent: metrics.sink_seconds.get_or_create_owned(&labels),
            state_committed: metrics.state_commit.get_or_create_owned(&labels),
            sent_again: metrics.sink_retries.get_or_create_owned(&labels),
            metrics,
            began: Instant::now(),
            turned: AtomicU64::new(0),
            shows: AtomicBool::new(false),
            told: Mutex::new(Told {
                phase: Phase::Starting,
                reason: String::new(),
                tasks: BTreeMap::new(),
                inputs: BTreeMap::new(),
                stages: BTreeMap::new(),
                counts: Counts::default(),
                commits: 0,
                committed: None,
                away: None,
                modules: Vec::new(),
            }),
            orders: Orders::default(),
        }
    }

    /// Name of the pipeline.
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// It does something else from now on. `reason`: why, if it is not what one would expect.
    pub fn enter(&self, phase: Phase, reason: &str) {
        let mut told = self.told();
        told.phase = phase;
        reason.clone_into(&mut told.reason);
        drop(told);
        self.beat();
    }

    /// What it is doing.
    pub fn phase(&self) -> Phase {
        self.told().phase
    }

    /// Its loop has turned.
    pub fn beat(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.turned.store(now, Ordering::Relaxed);
    }

    /// How long its loop has not turned.
    pub fn silence(&self) -> Duration {
        let turned = Duration::from_millis(self.turned.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(turned)
    }

    /// Tells which modules its stages use from now on.
    pub fn modules(&self, plan: &Plan) {
        let of = |stage: &Planned| {
            self.labels(&[
                ("stage", &stage.id),
                ("module", stage.module.name()),
                ("version", stage.module.version()),
                ("digest", stage.module.digest()),
            ])
        };
        let modules: Vec<Labels> = plan.stages.iter().map(of).collect();
        let old = std::mem::replace(&mut self.told().modules, modules.clone());
        for labels in &old {
            self.metrics.module.remove(labels);
            self.metrics.compile_seconds.remove(&without_build(labels));
        }
        for (labels, stage) in modules.iter().zip(&plan.stages) {
            self.metrics.module.get_or_create(labels).set(1);
            let seconds = stage.module.compiled().as_secs_f64();
            self.metrics.compile_seconds.get_or_create(&without_build(labels)).set(seconds);
        }
    }

    /// Takes up tasks as they were restored: what they had counted before does not count again.
    pub fn adopt<'a>(&self, plan: &Plan, tasks: impl Iterator<Item = &'a Task>) {
        let mut told = self.told();
        for task in tasks {
            if let Some(place) = place(task) {
                told.tasks.insert(place, counters(plan, task));
            }
        }
    }

    /// A partition is read by somebody else from now on.
    pub fn revoked(&self, topic: &str, partition: i32) {
        let mut told = self.told();
        let place = (topic.to_owned(), partition);
        told.tasks.remove(&place);
        told.inputs.remove(&place);
        drop(told);
        let labels = self.input_labels(&place);
        self.metrics.source_lag.remove(&labels);
        self.metrics.source_paused.remove(&labels);
        self.metrics.restore_left.remove(&labels);
        self.metrics.watermark_delay.remove(&labels);
    }

    /// Where the guest at a place (a stage, `decode.value`, ..) tells what it does.
    pub fn watch(&self, place: &str) -> Arc<dyn Watch> {
        Arc::new(GuestWatch::new(Arc::clone(&self.metrics), self.labels(&[("stage", place)])))
    }

    /// Bytes of keys and values came in.
    pub fn read(&self, bytes: u64) {
        self.metrics.source_bytes.get_or_create(&self.labels(&[])).inc_by(bytes);
    }

    /// State of a partition is being read back: so many records were, and about so many are left.
    pub fn restoring(&self, topic: &str, partition: i32, read: u64, left: i64) {
        let place = (topic.to_owned(), partition);
        self.metrics.restore_left.get_or_create(&self.input_labels(&place)).set(left);
        let restoring = (left > 0).then_some((read, left));
        self.told().inputs.entry(place).or_default().restoring = restoring;
    }

    /// A partition is ours and is not read.
    pub fn pause(&self, topic: &str, partition: i32, why: &'static str) {
        let place = (topic.to_owned(), partition);
        self.metrics.source_paused.get_or_create(&self.input_labels(&place)).set(1);
        self.told().inputs.entry(place).or_default().paused = Some(why);
    }

    /// Records that retention removed before they were read.
    pub fn lost(&self, topic: &str, partition: i32, records: i64) {
        let labels = self.input_labels(&(topic.to_owned(), partition));
        self.metrics.source_lost.get_or_create(&labels).inc_by(records.unsigned_abs());
    }

    /// Source and sink cannot be reached, and why; nothing: they can again.
    pub fn away(&self, why: Option<&'static str>) {
        self.told().away = why;
    }

    /// Why source and sink cannot be reached.
    pub fn is_away(&self) -> Option<&'static str> {
        self.told().away
    }

    /// Records between what was read and the end of a partition.
    pub fn lag(&self, topic: &str, partition: i32, records: i64) {
        let place = (topic.to_owned(), partition);
        self.metrics.source_lag.get_or_create(&self.input_labels(&place)).set(records);
        self.told().inputs.entry(place).or_default().lag = Some(records);
    }

    /// A batch was handed over to the sinks within this time.
    pub fn sent(&self, took: Duration) {
        self.sent.observe(took.as_secs_f64());
    }

    /// So often a request timed out or a connection failed, and what was on its way is sent again.
    pub fn sent_again(&self, times: u64) {
        self.sent_again.inc_by(times);
    }

    /// Changes of state were written within this time.
    pub fn state_committed(&self, took: Duration) {
        self.state_committed.observe(took.as_secs_f64());
    }

    /// A commit took this long.
    pub fn committed(&self, took: Duration) {
        self.metrics.commit_seconds.get_or_create(&self.labels(&[])).observe(took.as_secs_f64());
        let mut told = self.told();
        told.commits += 1;
        told.committed = Some(Instant::now());
    }

    /// A commit failed.
    pub fn commit_failed(&self) {
        self.metrics.commit_failures.get_or_create(&self.labels(&[])).inc();
    }

    /// A record failed at a stage.
    pub fn failed(&self, stage: &str, code: &str) {
        self.metrics.dead_letters.get_or_create(&self.labels(&[("stage", stage), ("code", code)])).inc();
    }

    /// Gathers what the tasks have counted, once a commit.
    pub fn publish(&self, plan: &Plan, tasks: &[&mut Task], counts: Counts) {
        let mut told = self.told();
        let mut sizes: BTreeMap<(String, String), u64> = BTreeMap::new();
        for task in tasks {
            let Some(place) = place(task) else { continue };
            let now = counters(plan, task);
            let before = told.tasks.insert(place, now.clone()).unwrap_or_default();
            for ((stage, name), count) in now {
                if SIZES.contains(&name.as_str()) {
                    *sizes.entry((stage, name)).or_default() += count;
                    continue;
                }
                let more = count.saturating_sub(before.get(&(stage.clone(), name.clone())).copied().unwrap_or(0));
                self.count(&stage, &name, more);
                if !stage.is_empty() {
                    *told.stages.entry(stage).or_default().entry(name).or_default() += more;
                }
            }
            self.inputs(&mut told, task);
        }
        for ((stage, name), size) in sizes {
            let family = match name.as_str() {
                "state_entries" => &self.metrics.state_entries,
                "state_bytes" => &self.metrics.state_bytes,
                _ => &self.metrics.wakes_pending,
            };
            family.get_or_create(&self.labels(&[("stage", &stage)])).set(i64::try_from(size).unwrap_or(i64::MAX));
            told.stages.entry(stage).or_default().insert(name, size);
        }
        for (route, count) in [
            ("sink", counts.main),
            ("late", counts.late),
            ("duplicates", counts.duplicates),
            ("dead_letter", counts.dead),
            ("nowhere", counts.late_lost + counts.failed_lost),
        ] {
            let counter = self.metrics.sink_records.get_or_create_owned(&self.labels(&[("route", route)]));
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        told.counts = counts;
    }

    /// Adds to the counter of a stage, or of the source.
    fn count(&self, stage: &str, name: &str, more: u64) {
        if stage.is_empty() {
            self.metrics.source_records.get_or_create(&self.labels(&[])).inc_by(more);
            return;
        }
        let of_state = match name {
            "evicted_live" => Some(&self.metrics.state_evicted),
            EXPIRED => Some(&self.metrics.state_expired),
            _ => None,
        };
        if let Some(family) = of_state {
            family.get_or_create(&self.labels(&[("stage", stage)])).inc_by(more);
            return;
        }
        let verdict = match name {
            "records_in" => "in",
            "records_out" => "out",
            "duplicates_dropped" => "duplicate",
            "failed" => "fail",
            other => other,
        };
        let labels = self.labels(&[("stage", stage), ("verdict", verdict)]);
        self.metrics.stage_records.get_or_create(&labels).inc_by(more);
    }

    fn inputs(&self, told: &mut Told, task: &Task) {
        let marker = task.marker();
        for (i, input) in marker.inputs.iter().enumerate() {
            let watermark = marker.event.own(i as u16);
            let told = told.inputs.entry((input.topic.to_string(), input.partition)).or_default();
            told.watermark = (watermark != NONE_YET && watermark < END).then_some(watermark);
            told.idle = marker.activity.get(i) != Some(&Activity::Active);
            told.offset = marker.positions.get(i).copied().flatten().map(|(_, offset)| offset);
        }
    }

    /// Brings what depends on the clock up to date.
    pub(super) fn refresh(&self, draining: bool) {
        let told = self.told();
        let word = word(told.phase, draining);
        for state in WORDS {
            let is = i64::from(state == word);
            self.metrics.task_state.get_or_create(&self.labels(&[("state", state)])).set(is);
        }
        for (place, input) in &told.inputs {
            if let Some(delay) = input.watermark.map(behind) {
                self.metrics.watermark_delay.get_or_create(&self.input_labels(place)).set(delay);
            }
        }
    }

    /// What `/status` says of this pipeline.
    pub(super) fn status(&self, draining: bool) -> Value {
        let told = self.told();
        let inputs: Vec<Value> = told
            .inputs
            .iter()
            .map(|((topic, partition), input)| {
                json!({
                    "topic": topic, "partition": partition, "offset": input.offset, "lag": input.lag,
                    "idle": input.idle, "watermark_delay_seconds": input.watermark.map(behind),
                    "paused": input.paused,
                    "restoring": input.restoring.map(|(read, left)| json!({ "read": read, "left": left })),
                })
            })
            .collect();
        json!({
            "pipeline": self.pipeline,
            "state": word(told.phase, draining),
            "reason": told.away.or((!told.reason.is_empty()).then_some(told.reason.as_str())),
            "seconds_since_turn": self.silence().as_secs_f64(),
            "commits": told.commits,
            "seconds_since_commit": told.committed.map(|at| at.elapsed().as_secs_f64()),
            "inputs": inputs,
            "stages": told.stages,
            "records_out": told.counts.main,
            "late": told.counts.late,
            "duplicates": told.counts.duplicates,
            "dead_lettered": told.counts.dead,
        })
    }

    /// What a person wants to know while it runs, in a line.
    pub(super) fn line(&self) -> String {
        let told = self.told();
        let restoring: Vec<(u64, i64)> = told.inputs.values().filter_map(|input| input.restoring).collect();
        let lag: i64 = told.inputs.values().filter_map(|input| input.lag).sum();
        let records: u64 = told.tasks.values().filter_map(|t| t.get(&(String::new(), String::new()))).sum();
        match (told.phase, told.away) {
            (_, Some(why)) => format!("{why}: waiting"),
            (Phase::Starting, _) => "joining the group".to_owned(),
            (Phase::Restoring, _) if restoring.is_empty() => "restoring state".to_owned(),
            (Phase::Restoring, _) => {
                let (read, left) = restoring.iter().fold((0, 0), |(r, l), (read, left)| (r + read, l + left));
                format!("restoring state: {read} records read, about {left} left")
            }
            _ => format!("{records} records in so far, {lag} behind"),
        }
    }

    fn labels(&self, more: &[(&'static str, &str)]) -> Labels {
        let mut labels = vec![("pipeline", self.pipeline.clone())];
        labels.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        labels
    }

    fn input_labels(&self, (topic, partition): &Place) -> Labels {
        self.labels(&[("topic", topic), ("partition", &partition.to_string())])
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Labels of a module but for its version and digest.
fn without_build(labels: &Labels) -> Labels {
    labels.iter().filter(|(name, _)| !["version", "digest"].contains(name)).cloned().collect()
}

fn word(phase: Phase, draining: bool) -> &'static str {
    if draining && phase == Phase::Running { "draining" } else { phase.word() }
}

/// A task is known by its first input.
fn place(task: &Task) -> Option<Place> {
    task.marker().inputs.first().map(|input| (input.topic.to_string(), input.partition))
}

/// Everything a task counts, by stage and name; records read have no stage.
fn counters(plan: &Plan, task: &Task) -> BTreeMap<(String, String), u64> {
    let mut all = BTreeMap::from([((String::new(), String::new()), task.marker().arrivals)]);
    for (stage, counters) in task.counters(plan) {
        all.extend(counters.into_iter().map(|(name, count)| ((stage.clone(), name), count)));
    }
    all.extend(task.expired(plan).into_iter().map(|(stage, count)| ((stage, EXPIRED.to_owned()), count)));
    all
}

/// Seconds between a time (ns since 1970) and now.
fn behind(time: i64) -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    now.saturating_sub(time) as f64 / 1e9
}
