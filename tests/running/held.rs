//! Records that are held up, with a clock that is told: the time they wait is no silence of their input (W5).

use std::collections::VecDeque;
use std::sync::Arc;

use tamis::batch::{Batch, Origin, Payload, Row, Span};
use tamis::chain::Chain;
use tamis::files::Trouble;
use tamis::files::ledger::Ledger;
use tamis::files::sink::Sinks;
use tamis::files::source::{Place, Polled, Polling, Position};
use tamis::plan::{Conditions, plan};
use tamis::task::Input;
use tamis::time::NONE_YET;
use tamis::worker::{Ended, Event, Inbox, Pace, Worker};
use tamis_tests::program::Folder;

use crate::faults::library;

const MS: i64 = 1_000_000;

/// Records of two inputs at moments of a clock that goes on as far as it is waited for, then the end.
struct Script {
    clock: i64,
    inputs: Vec<Input>,
    /// Moment in ms, input, value.
    records: VecDeque<(i64, u16, &'static str)>,
    offsets: [i64; 2],
}

impl Inbox for Script {
    fn now(&mut self) -> i64 {
        self.clock
    }

    fn next(&mut self, until: i64, may_read: &dyn Fn(u16) -> bool) -> Result<Event, Trouble> {
        let due = self.records.front().is_some_and(|(at, input, _)| at * MS <= until && may_read(*input));
        let Some((at, input, value)) = self.records.pop_front_if(|_| due) else {
            let ends = self.records.is_empty();
            self.clock = self.clock.max(if until == i64::MAX { self.clock } else { until });
            return Ok(Event::Source(if ends { Polled::End } else { Polled::Nothing }));
        };
        self.clock = self.clock.max(at * MS);
        let offset = self.offsets[usize::from(input)];
        self.offsets[usize::from(input)] += 1;
        let row = Row {
            origin: Origin { input, epoch: -1, offset, child: 0 },
            timestamp: NONE_YET,
            key: Payload::Null,
            value: Payload::Bytes(Span { arena: 0, start: 0, len: value.len() as u32 }),
            headers: Row::NO_HEADERS,
            kind: Default::default(),
            window: Row::NO_WINDOW,
            arrival: 0,
            redelivered: false,
            bounds: false,
        };
        let batch = Batch { rows: vec![row], arenas: vec![Arc::new(value.as_bytes().to_vec())], ..Batch::default() };
        Ok(Event::Source(Polled::Rows(Polling { batch, file: 0, rows: vec![Place { input, offset, end: 0 }] })))
    }

    fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    fn taken(&mut self, _polling: &Polling, _count: usize) {}

    fn position(&self) -> Position {
        Position::default()
    }
}

/// Runs stages over records of two inputs; the second one is hours ahead: were the first one idle, its hour would be
/// over, and what waits late.
#[track_caller]
fn check(name: &str, stages: &str, records: &[(i64, u16, &'static str)], waits: i64, out: &str) {
    let folder = Folder::new(name);
    let text = format!(
        "version: 1\nname: held\nsource: {{ file: [a, b] }}\ntime: {{ field: value.t, idle: 200ms }}\nstages:\n{stages}  \
         - {{ uses: dedup, id: d, key: value.n, with: {{ window: {{ tumbling: 1h }} }} }}\nsink: {{ file: out }}\n\
         routes: {{ late: {{ file: late }} }}\n"
    );
    let pipeline = tamis::config::read(&text, None, &|_| None).map_err(|(findings, _)| findings).unwrap();
    let plan = Arc::new(plan(&pipeline, library(), &Conditions::of(&pipeline, Some(2))).unwrap());
    let mut chain = Chain::open(&plan, true);
    let mut script = Script {
        clock: 0,
        inputs: ["a", "b"].map(|topic| Input { topic: topic.into(), partition: 0 }).to_vec(),
        records: records.iter().copied().collect(),
        offsets: [0, 0],
    };
    let mut ledger = Ledger::new(Sinks::open(&plan, &folder.path(".")).unwrap(), None, &plan);
    let pace = Pace { commit: i64::MAX, checkpoint: i64::MAX, flush: false };
    let ended = Worker::new(&mut chain, &mut script, &mut ledger, pace, 1, Vec::new()).run().unwrap();
    assert!(matches!(ended, Ended::Input), "{ended:?}");
    assert!(script.clock >= waits * MS, "it waited: {}", script.clock);
    assert_eq!(folder.read("late"), "");
    assert_eq!(folder.read("out"), out);
}

#[test]
fn time_spent_waiting_for_a_failure_to_pass_makes_no_input_idle() {
    check(
        "held",
        "  - { uses: evil-stage, id: e, key: value.n, state: { unbounded: true }, with: { how: passing, n: 2, times: 1 } }\n",
        &[(0, 0, r#"{"n":1,"t":0}"#), (10, 1, r#"{"n":5,"t":9000000}"#), (20, 0, r#"{"n":2,"t":1}"#)],
        320,
        "{\"n\":1,\"t\":0}\n{\"n\":2,\"t\":1}\n{\"n\":5,\"t\":9000000}\n",
    );
}

#[test]
fn time_spent_waiting_for_room_makes_no_input_idle() {
    check(
        "held-room",
        "  - { uses: dedup, id: full, key: value.n, state: { max_entries: 2, retention: { for: 700ms, clock: processing } } }\n",
        &[(0, 0, r#"{"n":1,"t":0}"#), (10, 1, r#"{"n":5,"t":9000000}"#), (20, 0, r#"{"n":2,"t":1}"#)],
        700,
        "{\"n\":1,\"t\":0}\n{\"n\":2,\"t\":1}\n{\"n\":5,\"t\":9000000}\n",
    );
}
