//! Metrics of the guest at one place: its series are looked up once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::metrics::{Labels, Metrics};
use crate::guest::Watch;

/// Tells what a guest does.
pub struct GuestWatch {
    metrics: Arc<Metrics>,
    labels: Labels,
    seconds: Histogram,
    instances: Gauge<i64, AtomicI64>,
    memory: Gauge<i64, AtomicI64>,
    retired: [(&'static str, Counter<u64, AtomicU64>); 4],
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
            metrics,
            labels,
        }
    }
}

impl Watch for GuestWatch {
    fn started(&self) {
        self.instances.inc();
    }

    fn called(&self, took: Duration, memory: usize) {
        self.seconds.observe(took.as_secs_f64());
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
