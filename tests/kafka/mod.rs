//! What runs against real Apache Kafka.

mod harness;
