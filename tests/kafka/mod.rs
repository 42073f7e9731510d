//! What runs against real Apache Kafka.

mod conformance;
mod harness;
mod pipelines;
