//! The metrics: names, labels, help. One registry per process, filled by the seats.

use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Labels of a series, in their order.
pub type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter<u64, AtomicU64>>;
type Gauges = Family<Labels, Gauge<i64, AtomicI64>>;
type Fractions = Family<Labels, Gauge<f64, AtomicU64>>;

/// Upper bounds of the buckets of commits and calls, seconds.
const COMMIT_SECONDS: [f64; 14] =
    [0.0001, 0.0004, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Makes a histogram of commits or of calls.
#[derive(Clone, Debug)]
pub struct CommitSeconds;

impl MetricConstructor<Histogram> for CommitSeconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(COMMIT_SECONDS)
    }
}

/// Every metric of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// 1 for the state a pipeline is in.
    pub task_state: Gauges,
    /// Records read.
    pub source_records: Counters,
    /// Records behind the end of a partition.
    pub source_lag: Gauges,
    /// 1 for a partition that is not read.
    pub source_paused: Gauges,
    /// Records that retention removed before they were read.
    pub source_lost: Counters,
    /// How far an input's watermark is behind the clock.
    pub watermark_delay: Fractions,
    /// Bytes of the keys and values read.
    pub source_bytes: Counters,
    /// Records of state that are still to be read back.
    pub restore_left: Gauges,
    /// Time of a call of a guest.
    pub stage_seconds: Family<Labels, Histogram, CommitSeconds>,
    /// Bytes copied into guests and out of them.
    pub stage_copied: Counters,
    /// Time to compile a module, or to take it from the cache.
    pub compile_seconds: Fractions,
    /// Calls that ended in a fault.
    pub guest_faults: Counters,
    /// Instances there are.
    pub guest_instances: Gauges,
    /// Memory of the instance that was called last.
    pub guest_memory: Gauges,
    /// Instances thrown away.
    pub guest_recycled: Counters,
    /// What became of records at a stage.
    pub stage_records: Counters,
    /// Entries and marks of keyed state.
    pub state_entries: Gauges,
    /// Bytes they count for.
    pub state_bytes: Gauges,
    /// What a stage asked of its state, by import.
    pub state_ops: Counters,
    /// Entries and marks freed because their time was over.
    pub state_expired: Counters,
    /// Time to make changes of state durable, or to hand them over.
    pub state_commit: Family<Labels, Histogram, CommitSeconds>,
    /// Live entries given up at a bound.
    pub state_evicted: Counters,
    /// Entries that wait for their time.
    pub wakes_pending: Gauges,
    /// Records that left, by route.
    pub sink_records: Counters,
    /// Time to hand a batch over to the sinks.
    pub sink_seconds: Family<Labels, Histogram, CommitSeconds>,
    /// Times that something had to be sent again.
    pub sink_retries: Counters,
    /// Records that failed, by stage and code; with a dead letter they went there.
    pub dead_letters: Counters,
    /// Time of a commit.
    pub commit_seconds: Family<Labels, Histogram, CommitSeconds>,
    /// Commits that failed.
    pub commit_failures: Counters,
    /// 1 for each module that is loaded.
    pub module: Gauges,
}

impl Metrics {
    /// All of them, without series.
    pub fn new() -> Metrics {
        let build: Gauges = Family::default();
        build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
        let mut metrics = Metrics {
            registry: Registry::default(),
            task_state: Family::default(),
            source_records: Family::default(),
            source_lag: Family::default(),
            source_paused: Family::default(),
            source_lost: Family::default(),
            watermark_delay: Family::default(),
            stage_records: Family::default(),
            source_bytes: Family::default(),
            restore_left: Family::default(),
            stage_seconds: Family::new_with_constructor(CommitSeconds),
            stage_copied: Family::default(),
            compile_seconds: Family::default(),
            guest_faults: Family::default(),
            guest_instances: Family::default(),
            guest_memory: Family::default(),
            guest_recycled: Family::default(),
            state_entries: Family::default(),
            state_bytes: Family::default(),
            state_ops: Family::default(),
            state_expired: Family::default(),
            state_commit: Family::new_with_constructor(CommitSeconds),
            state_evicted: Family::default(),
            wakes_pending: Family::default(),
            sink_records: Family::default(),
            sink_seconds: Family::new_with_constructor(CommitSeconds),
            sink_retries: Family::default(),
            dead_letters: Family::default(),
            commit_seconds: Family::new_with_constructor(CommitSeconds),
            commit_failures: Family::default(),
            module: Family::default(),
        };
        let mut r = Registry::with_prefix("tamis");
        r.register("build_info", "The version that runs", build);
        r.register("task_state", "1 for the state a pipeline is in", metrics.task_state.clone());
        r.register("source_records", "Records read", metrics.source_records.clone());
        r.register("source_lag_records", "Records behind the end of a partition", metrics.source_lag.clone());
        r.register("source_paused", "1 for a partition that is not read", metrics.source_paused.clone());
        r.register(
            "source_lost_records",
            "Records that were removed before they were read",
            metrics.source_lost.clone(),
        );
        r.register(
            "source_watermark_delay_seconds",
            "How far the watermark of an input is behind the clock",
            metrics.watermark_delay.clone(),
        );
        r.register("source_bytes", "Bytes of the keys and values read", metrics.source_bytes.clone());
        r.register("restore_left_records", "Records of state still to be read back", metrics.restore_left.clone());
        r.register("stage_batch_seconds", "Time of a call of a guest", metrics.stage_seconds.clone());
        r.register("stage_bytes_copied", "Bytes copied into guests and out of them", metrics.stage_copied.clone());
        r.register(
            "guest_compile_seconds",
            "Time to compile a module, or to take it from the cache",
            metrics.compile_seconds.clone(),
        );
        r.register("guest_faults", "Calls that ended in a fault", metrics.guest_faults.clone());
        r.register("guest_instances", "Instances of guests", metrics.guest_instances.clone());
        r.register("guest_memory_bytes", "Memory of the instance called last", metrics.guest_memory.clone());
        r.register("guest_recycled", "Instances thrown away", metrics.guest_recycled.clone());
        r.register("stage_records", "What became of records at a stage", metrics.stage_records.clone());
        r.register("state_entries", "Entries and marks of keyed state", metrics.state_entries.clone());
        r.register("state_bytes", "Bytes that entries and marks count for", metrics.state_bytes.clone());
        r.register("state_ops", "What a stage asked of its state, by import", metrics.state_ops.clone());
        r.register("state_expired", "Entries and marks freed because they were over", metrics.state_expired.clone());
        r.register("state_commit_seconds", "Time to write changes of state", metrics.state_commit.clone());
        r.register("state_evicted", "Live entries given up at a bound of the state", metrics.state_evicted.clone());
        r.register("wakes_pending", "Entries that wait for their time", metrics.wakes_pending.clone());
        r.register("sink_records", "Records that left, by route", metrics.sink_records.clone());
        r.register("sink_batch_seconds", "Time to hand a batch over to the sinks", metrics.sink_seconds.clone());
        r.register("sink_retries", "Times that something had to be sent again", metrics.sink_retries.clone());
        r.register("dead_letter_records", "Records that failed, by stage and code", metrics.dead_letters.clone());
        r.register("commit_seconds", "Time of a commit", metrics.commit_seconds.clone());
        r.register("commit_failures", "Commits that failed", metrics.commit_failures.clone());
        r.register("module_info", "1 for each module that is loaded", metrics.module.clone());
        metrics.registry = r;
        metrics
    }

    /// All series as text of OpenMetrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}
