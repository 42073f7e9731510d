//! Metrics of the guest at one place: its series are looked up once.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::metrics::{Labels, Metrics};
use crate::guest::{OPS, Tally, Watch};

/// Tells what a guest does.
pub struct GuestWatch {
    metrics: Arc<Metrics>,
    labels: Labels,
    seconds: Histogram,
    instances: Gauge<i64, AtomicI64>,
    memory: Gauge<i64, AtomicI64>,
    retired: [(&'static str, Counter<u64, AtomicU64>); 4],
    into: Counter<u64, AtomicU64>,
    out: Counter<u64, AtomicU64>,
    /// By import; those that are not used have no series.
    ops: [OnceLock<Counter<u64, AtomicU64>>; OPS.len()],
}

impl GuestWatch {
    /// Of the guest with these labels.
    pub(super) fn new(metrics: Arc<Metrics>, labels: Labels) -> GuestWatch {
        let with = |name: &'static str, value: &str| {
            let mut labels = labels.clone();
            labels.push((name, value.to_owned()));
            labels
        };
        let retired = ["fault", "memory", "calls", "discard"];
        let retired =
            retired.map(|reason| (reason, metrics.guest_recycled.get_or_create_owned(&with("reason", reason))));
        GuestWatch {
            seconds: metrics.stage_seconds.get_or_create_owned(&labels),
            instances: metrics.guest_instances.get_or_create_owned(&labels),
            memory: metrics.guest_memory.get_or_create_owned(&labels),
            retired,
            into: metrics.stage_copied.get_or_create_owned(&with("direction", "in")),
            out: metrics.stage_copied.get_or_create_owned(&with("direction", "out")),
            ops: Default::default(),
            metrics,
            labels,
        }
    }
}

impl GuestWatch {
    fn op(&self, op: &str) -> Counter<u64, AtomicU64> {
        let mut labels = self.labels.clone();
        labels.push(("op", op.to_owned()));
        self.metrics.state_ops.get_or_create_owned(&labels)
    }
}

impl Watch for GuestWatch {
    fn started(&self) {
        self.instances.inc();
    }

    fn called(&self, took: Duration, memory: usize, tally: &Tally) {
        self.seconds.observe(took.as_secs_f64());
        self.into.inc_by(tally.into);
        self.out.inc_by(tally.out);
        for ((count, op), counter) in tally.ops.iter().zip(OPS).zip(&self.ops).filter(|((count, _), _)| **count > 0) {
            counter.get_or_init(|| self.op(op)).inc_by(*count);
        }
        self.memory.set(i64::try_from(memory).unwrap_or(i64::MAX));
    }

    fn faulted(&self, kind: &str) {
        let mut labels = self.labels.clone();
        labels.push(("kind", kind.to_owned()));
        self.metrics.guest_faults.get_or_create(&labels).inc();
    }

    fn recycled(&self, reason: &'static str) {
        self.instances.dec();
        if let Some((_, counter)) = self.retired.iter().find(|(name, _)| *name == reason) {
            counter.inc();
        }
    }
}
