//! Guests that misbehave on purpose (`evil-guests/README.md`): each is survived, called by its right name, and the next
//! call on the same guest works, since it has a fresh instance.

use serde_json::{Value, json};
use tamis::batch::{Batch, Column, Origin, Payload, Row, kind};
use tamis::config::pipeline::Limits;
use tamis::guest::call::{Call, Fault, State};
use tamis::guest::{CALLS_PER_INSTANCE, CheckError, Guest, Module, Opening, Shape};
use tamis::keyed::{Begin, ExpiresBy, Keyed, Overflow, Settings};
use tamis::time::Stamp;

use super::{built, bytes, engine, kind_of, text_of, texts};

const ROWS: usize = 4;
/// What `evil-stage` says of itself in `check`.
const SHAPE: Shape = Shape { writes: 1, routes: 1, counters: 1 };

/// Short, so that what loops does not hold the tests up; long enough for a busy machine.
fn limits() -> Limits {
    Limits { call: 300_000_000, ..Limits::default() }
}

fn evil(role: &str) -> Module {
    built(&engine(), &format!("tests/evil-guests/{role}"))
}

fn params(how: &str) -> Value {
    json!({"how": how, "n": 2})
}

#[track_caller]
fn check(how: &str, fault: &Fault, kind: &str, words: &str) {
    assert_eq!(kind_of(fault), kind, "{how}: {fault:?}");
    assert!(text_of(fault).contains(words), "{how}: {fault:?}");
    assert!(text_of(fault).len() < 4096, "{how}: a fault's text is bounded");
}

/// A column 0, 1, 2, 3.
fn numbers() -> Column {
    let mut column = Column::default();
    for n in 0..ROWS as i64 {
        column.push(kind::INT64, &n.to_le_bytes());
    }
    column
}

fn session() -> Box<dyn State> {
    let settings =
        Settings { expires_by: ExpiresBy::Now, max_entries: None, max_bytes: None, overflow: Overflow::Pause };
    let row = |n: usize| Row {
        origin: Origin { offset: n as i64, ..Origin::default() },
        timestamp: 0,
        key: Payload::Null,
        value: Payload::Null,
        headers: Row::NO_HEADERS,
        kind: Default::default(),
        window: Row::NO_WINDOW,
        arrival: n as u64,
        redelivered: false,
        bounds: false,
    };
    Box::new(Keyed::new(settings).session(Begin {
        batch: Batch { rows: (0..ROWS).map(row).collect(), ..Batch::default() },
        rows: (0..ROWS as u32).collect(),
        keys: (1..=ROWS as u128).collect(),
        output_keys: None,
        times: Vec::new(),
        seen: Vec::new(),
        end: Stamp::START,
        now: 0,
        limit: 100,
    }))
}

fn process(guest: &mut Guest) -> Result<(), Fault> {
    let call = Call { rows: ROWS as u32, columns: vec![numbers()], ..Call::default() };
    let (outcome, state) = guest.process(&call, &SHAPE, Some(session()));
    assert!(state.is_some(), "the state comes back, whatever happens");
    outcome.map(|_| ())
}

fn stage(module: &Module, how: &str) -> Guest {
    let opening = Opening::Transform { params: params(how).to_string(), context: "{}".into() };
    module.guest(opening, limits())
}

#[test]
fn a_stage_cannot_harm_the_host_while_it_runs() {
    let module = evil("stage");
    process(&mut stage(&module, "")).unwrap();
    for (how, kind, words) in [
        ("loop-process", "deadline", "process took longer than limits.call"),
        ("memory", "memory", "limits.memory"),
        ("output", "output", "limits.output"),
        ("stack", "trap", "wasm trap"),
        ("trap", "trap", "evil: row"),
        ("loop-open", "deadline", "open took longer"),
        ("trap-open", "trap", "evil: open"),
    ] {
        let mut guest = stage(&module, how);
        // Twice: what happened to the first instance does not reach the second.
        for _ in 0..2 {
            check(how, &process(&mut guest).unwrap_err(), kind, words);
        }
    }
    // A flood of log lines is cut, and is no fault.
    process(&mut stage(&module, "log")).unwrap();
}

#[test]
fn after_a_fault_the_same_guest_does_the_rows_that_are_not_to_blame() {
    let module = evil("stage");
    let mut guest = stage(&module, "trap");
    check("trap", &process(&mut guest).unwrap_err(), "trap", "evil: row");
    let innocent = Column { kinds: numbers().kinds[..2].into(), ..numbers() };
    let innocent = Column { offsets: innocent.offsets[..3].into(), data: innocent.data[..16].into(), ..innocent };
    let call = Call { rows: 2, columns: vec![innocent], ..Call::default() };
    let (outcome, _) = guest.process(&call, &SHAPE, Some(session()));
    assert_eq!(outcome.unwrap().verdicts, [0, 0]);
}

#[test]
fn an_instance_is_replaced_before_it_grows_old() {
    let aged = |n: u32| {
        let params = json!({"how": "age", "n": n}).to_string();
        evil("stage").guest(Opening::Transform { params, context: "{}".into() }, limits())
    };
    let mut guest = aged(3);
    (0..3).for_each(|_| process(&mut guest).unwrap());
    check("age", &process(&mut guest).unwrap_err(), "trap", "evil: age");
    let mut guest = aged(CALLS_PER_INSTANCE);
    for call in 0..=CALLS_PER_INSTANCE {
        process(&mut guest).unwrap_or_else(|fault| panic!("call {call}: {fault:?}"));
    }
}

#[test]
fn every_breach_in_an_outcome_is_found() {
    let module = evil("stage");
    for (how, words) in [
        ("verdicts-short", "verdicts: 3 in place of 4"),
        ("verdicts-long", "verdicts: 5 in place of 4"),
        ("verdict-unknown", "verdict 99"),
        ("counts", "counts: 2 in place of 1"),
        ("origin", "origin 1004"),
        ("at-falls", "`at` falls"),
        ("at-beyond", "output at 5"),
        ("columns", "columns: 2 in place of 1"),
        ("cells", "column 0: 2 in place of 1"),
        ("offsets-fall", "offsets fall"),
        ("offsets-beyond", "last offset"),
        ("kind", "0x99 is reserved"),
        ("utf8", "not UTF-8"),
        ("number", "JSON syntax"),
        ("bool", "neither 0 nor 1"),
        ("width", "3 bytes in place of 8"),
        ("document", "malformed"),
        ("route", "route 2"),
        ("output-kind", "kind 4"),
        ("windows", "windows: 1 in place of 2"),
        ("winner", "winner 1004"),
        ("failure-row", "row 4 of 4"),
        ("failure-code", "[a-z0-9_-]+"),
        ("failure-category", "category 9"),
    ] {
        check(how, &process(&mut stage(&module, how)).unwrap_err(), "contract", words);
    }
}

#[test]
fn every_breach_of_the_rules_of_state_is_found() {
    let module = evil("stage");
    for how in ["open-twice", "due-late", "slot", "no-entry", "keep-row", "lengths", "rank", "space-list", "seen-list"]
    {
        check(how, &process(&mut stage(&module, how)).unwrap_err(), "contract", "process: ");
    }
}

#[test]
fn planning_survives_a_stage_that_loops_or_talks_nonsense() {
    let module = evil("stage");
    let ask = |how: &str| module.check(&params(how), &json!({}), &limits());
    assert_eq!(ask("").unwrap()["counters"], json!(["one"]));
    check("loop-check", &ask("loop-check").unwrap_err(), "deadline", "check took longer");
    check("check-nonsense", &ask("check-nonsense").unwrap_err(), "contract", "not JSON");
}

#[test]
fn a_codec_cannot_harm_the_host() {
    let module = evil("codec");
    let guest = |how: &str| {
        let opening = Opening::Codec { params: params(how).to_string(), paths: vec![String::new()] };
        module.guest(opening, limits())
    };
    let payloads = bytes(&[Some(b"a"), None, Some(b"trap"), Some(b"d")]);
    guest("").decode(&payloads).unwrap();
    guest("log").decode(&payloads).unwrap();
    for (how, kind, words) in [
        ("loop-open", "deadline", "open"),
        ("loop-decode", "deadline", "decode"),
        ("memory", "memory", "limits.memory"),
        ("output", "output", "limits.output"),
        ("stack", "trap", "wasm trap"),
        ("trap", "trap", "evil: payload"),
        ("columns", "contract", "1 paths and returns 2 columns"),
        ("kinds-short", "contract", "3 in place of 4"),
        ("spans-short", "contract", "7 in place of 8"),
        ("span-beyond", "contract", "in neither"),
        ("kind", "contract", "0x99 is reserved"),
        ("utf8", "contract", "not UTF-8"),
        ("unchanged", "contract", "0x02 may not stand there"),
        ("failure-row", "contract", "row 4 of 4"),
    ] {
        let mut guest = guest(how);
        check(how, &guest.decode(&payloads).unwrap_err(), kind, words);
        if how == "trap" {
            assert!(guest.decode(&bytes(&[Some(b"a")])).is_ok(), "a fresh instance does the rest");
        }
    }
    for (how, kind, words) in [
        ("loop-encode", "deadline", "encode"),
        ("encode-short", "contract", "3 in place of 4"),
        ("encode-kind", "contract", "may not stand there"),
    ] {
        let fault = guest(how).encode(&[texts(&["a", "b", "c", "d"])]).unwrap_err();
        check(how, &fault, kind, words);
    }
}

#[test]
fn a_key_guest_cannot_harm_the_host() {
    let module = evil("key");
    let guest = |how: &str| module.guest(Opening::Key { params: params(how).to_string() }, limits());
    guest("").keys(&[numbers()]).unwrap();
    guest("log").keys(&[numbers()]).unwrap();
    for (how, kind, words) in [
        ("loop-keys", "deadline", "keys"),
        ("memory", "memory", "limits.memory"),
        ("output", "output", "limits.output"),
        ("stack", "trap", "wasm trap"),
        ("trap", "trap", "evil: row"),
        ("rows", "contract", "3 in place of 4"),
        ("document", "contract", "0x61 may not stand there"),
        ("unchanged", "contract", "0x02 may not stand there"),
        ("utf8", "contract", "not UTF-8"),
        ("offsets", "contract", "6 offsets for 4 rows"),
        ("failure-row", "contract", "row 4 of 4"),
    ] {
        check(how, &guest(how).keys(&[numbers()]).unwrap_err(), kind, words);
    }
    for (how, kind) in [("loop-open", "deadline"), ("no-columns", "contract")] {
        match module.key_columns(&params(how), &limits()) {
            Err(CheckError::Fault(fault)) => check(how, &fault, kind, "open"),
            other => panic!("{how}: {other:?}"),
        }
    }
}
