//! Pipelines from Kafka to Kafka: input, output, state and positions in one transaction (reliability, section 4). The
//! only user of rdkafka.
//!
//! `client` makes settings, `settings` and `reach` tell mistakes in them early, `topics` looks after topics, `needs` says which, `group` is
//! a member, `member` the one there is now, `inbox` reads partitions, `restore` finds where they go on (`begins`) and with which state (`reading`),
//! `outbox` takes rows, `committer` does what `txn` says, `changelog` and `token` are what is
//! written, `statistics` how far the library has fetched, `checkpoints` what need not be read again (`rounds` writes them), `raw` is the only unsafe code, `run` puts it together.

pub mod attempts;
mod begins;
pub mod buried;
pub mod changelog;
pub mod checkpoints;
pub mod client;
pub mod committer;
pub mod fault;
pub mod group;
pub mod grown;
#[cfg(test)]
mod history_tests;
pub mod inbox;
pub mod member;
pub mod needs;
pub mod outbox;
pub mod outlook;
pub mod owned;
pub mod pack;
pub mod partition;
#[cfg(test)]
mod protocol_tests;
pub mod raw;
pub mod reach;
pub mod reading;
pub mod reset;
pub mod restore;
pub mod rounds;
pub mod run;
pub mod settings;
pub mod statistics;
pub mod token;
pub mod topics;
pub mod txn;
pub mod watchdog;
