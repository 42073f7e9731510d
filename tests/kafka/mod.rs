//! What runs against real Apache Kafka.

mod conformance;
mod examples;
mod harness;
mod import;
mod pipelines;
