//! What runs against real Apache Kafka.

mod conformance;
mod examples;
mod faults;
mod harness;
mod import;
mod outage;
mod pipelines;
mod security;
