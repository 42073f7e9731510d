//! Event and ingestion time of a row: where they are read, and what makes them invalid (rules T1, T2, T10).

use crate::columns::{Env, Read, column_of};
use crate::config::pipeline::InvalidTime;
use crate::instant::{self, MILLI};
use crate::plan::Plan;
use crate::time::NONE_YET;

/// How event time is read, and when (T1, T2).
#[derive(Clone)]
pub(crate) struct TimeOf {
    pub(crate) evaluated: bool,
    pub(crate) ingestion: bool,
    pub(crate) read: Read,
    pub(crate) unit: i64,
    pub(crate) min: Option<i64>,
    pub(crate) max_future: Option<i64>,
    pub(crate) invalid: InvalidTime,
    pub(crate) manual: bool,
    pub(crate) idle: Option<i64>,
    pub(crate) max_drift: Option<i64>,
}

impl TimeOf {
    pub(crate) fn new(plan: &Plan, env: &Env<'_>) -> TimeOf {
        let time = &plan.pipeline.time;
        TimeOf {
            evaluated: plan.event_time,
            ingestion: plan.ingestion,
            read: Read::new(&column_of(&time.field), env),
            unit: time.unit,
            min: time.min,
            max_future: time.max_future,
            invalid: time.invalid,
            manual: time.manual,
            idle: time.idle,
            max_drift: time.max_drift,
        }
    }

    /// Event and ingestion time of a row, ns, where they are evaluated; or why the record is invalid (T2).
    pub(crate) fn of(
        &self,
        row: &crate::batch::Row,
        cell: crate::batch::Cell<'_>,
        now: i64,
    ) -> Result<(i64, i64), &'static str> {
        let recorded = (row.timestamp != NONE_YET).then(|| row.timestamp.checked_mul(MILLI)).flatten();
        let ingestion = match self.ingestion {
            false => NONE_YET,
            true => recorded.filter(|&time| time >= 0).ok_or("the record has no timestamp")?,
        };
        if !self.evaluated {
            return Ok((NONE_YET, ingestion));
        }
        let event = match instant::of_cell(cell, self.unit) {
            None if cell.is_null() => Err("the record has no time"),
            None => Err("the time cannot be read, or is outside 1677 to 2262"),
            Some(time) if self.min.is_some_and(|min| time < min) => Err("the time is below time.min"),
            Some(time) if self.max_future.is_some_and(|most| time > now.saturating_add(most)) => {
                Err("the time is further ahead of processing time than time.max_future")
            }
            // The ends of the range are words of the contract.
            Some(time) if time <= NONE_YET + 1 || time >= crate::time::END => Err("the time is outside 1677 to 2262"),
            Some(time) => Ok(time),
        };
        match (event, self.invalid) {
            (Ok(event), _) => Ok((event, ingestion)),
            (Err(why), InvalidTime::Timestamp) => recorded.map(|event| (event, ingestion)).ok_or(why),
            (Err(why), _) => Err(why),
        }
    }
}
