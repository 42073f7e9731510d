//! What runs against real Apache Kafka.

mod asked;
mod cases;
mod conformance;
mod cut;
mod damage;
mod examples;
mod faults;
mod guards;
mod harness;
mod import;
mod landed;
mod many;
mod members;
mod outage;
mod pipelines;
mod poison;
mod security;
mod stages;
mod state;
mod told;
