//! Real Apache Kafka for tests: one broker that all tests share, topics with random names, faults on the wire.

pub mod broker;
pub mod proxy;
pub mod topics;
