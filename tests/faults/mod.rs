//! Guests that misbehave, in a whole pipeline: the row or the entry to blame goes to the dead letter, everything else
//! goes on as if nothing had happened.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tamis::batch::{Batch, Origin, Payload, Row, Span};
use tamis::chain::{Chain, Emit, Out, Route};
use tamis::config::guests::Library;
use tamis::guest::Engine;
use tamis::plan::{Conditions, plan};
use tamis::task::{Input, InputEvent, Task};
use tamis::time::NONE_YET;

/// A folder with the evil guests, built once.
pub fn evil_guests() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let exe = std::env::current_exe().unwrap();
        let target = exe.ancestors().nth(3).unwrap();
        let crates: Vec<PathBuf> =
            ["stage", "wake", "codec", "key"].iter().map(|name| root.join("tests/evil-guests").join(name)).collect();
        let folder = target.join("guests-evil");
        tamis_guest_build::build(&crates, &folder, &target.join("guests-build")).unwrap();
        folder
    })
}

/// The bundled guests and the evil ones, which are found in a folder by their names.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        Library::new(Engine::new(None).unwrap(), tamis::bundled::all(), vec![evil_guests().to_path_buf()])
    })
}

/// What left: the value, and for dead letters code and stage.
#[derive(Default)]
struct Left {
    main: Vec<String>,
    dead: Vec<(String, String, String)>,
}

impl Out for Left {
    fn emit(&mut self, emit: Emit<'_>) {
        let value = match emit.row.value {
            Payload::Bytes(span) => String::from_utf8(emit.batch.bytes(span).to_vec()).unwrap(),
            other => panic!("not bytes: {other:?}"),
        };
        match (emit.route, emit.failure) {
            (Route::Main, _) => self.main.push(value),
            (Route::DeadLetter, Some(why)) => self.dead.push((value, why.code.clone(), why.stage.clone())),
            (route, _) => panic!("{route:?}: {value}"),
        }
    }
    fn mark(&mut self) -> usize {
        0
    }
    fn undo(&mut self, _to: usize) {}
}

fn batch(values: &[String]) -> Batch {
    let mut bytes = Vec::new();
    let rows = values.iter().enumerate().map(|(offset, value)| {
        let start = bytes.len() as u32;
        bytes.extend_from_slice(value.as_bytes());
        Row {
            origin: Origin { input: 0, epoch: -1, offset: offset as i64, child: 0 },
            timestamp: NONE_YET,
            key: Payload::Null,
            value: Payload::Bytes(Span { arena: 0, start, len: value.len() as u32 }),
            headers: Row::NO_HEADERS,
            kind: Default::default(),
            window: Row::NO_WINDOW,
            arrival: 0,
            redelivered: false,
            bounds: false,
        }
    });
    let rows: Vec<Row> = rows.collect();
    Batch { rows, arenas: vec![Arc::new(bytes)], ..Batch::default() }
}

/// Runs records `{"n": .., "t": ..}` with n from 0 through a pipeline; all but the guilty one come out, in order.
#[track_caller]
fn check(pipeline: &str, records: usize, guilty: usize, stage: &str) {
    let text = format!(
        "version: 1\nname: faults\nsource: {{ file: in.jsonl }}\nsink: {{ file: out.jsonl }}\n\
         errors: {{ dead_letter: {{ file: dead.jsonl }} }}\nlimits: {{ call: 400ms }}\n{pipeline}"
    );
    let read = tamis::config::read(&text, None, &|_| None).map_err(|(findings, _)| findings).unwrap();
    let plan = Arc::new(plan(&read, library(), &Conditions::of(&read, Some(1))).unwrap());
    let mut chain = Chain::open(&plan, true);
    let mut task = Task::new(&chain, vec![Input { topic: Arc::from("in"), partition: 0 }], 1, 0);
    let values: Vec<String> = (0..records).map(|n| format!("{{\"n\":{n},\"t\":{}}}", 1000 + n)).collect();
    let mut left = Left::default();
    for (part, values) in values.chunks(records.div_ceil(2)).enumerate() {
        let mut batch = batch(values);
        for row in &mut batch.rows {
            row.origin.offset += (part * records.div_ceil(2)) as i64;
        }
        task.push(&mut chain, batch, &mut left).unwrap();
    }
    task.event(&mut chain, InputEvent::End, 0, &mut left).unwrap();
    let good: Vec<String> = values.iter().enumerate().filter(|(n, _)| *n != guilty).map(|(_, v)| v.clone()).collect();
    assert_eq!(left.dead, [(values[guilty].clone(), "fault".to_owned(), stage.to_owned())]);
    // Even a behaving evil-stage adds a row of its own to each call.
    left.main.retain(|value| !value.contains("abcd"));
    assert!(left.main == good, "rows are lost, repeated or moved");
}

#[test]
fn a_trap_on_one_row_costs_that_row() {
    check(
        "stages: [{ uses: evil-stage, id: evil, key: value.n, state: { unbounded: true }, with: { how: trap, n: 333 } }]",
        600,
        333,
        "evil",
    );
}

#[test]
fn a_trap_in_a_wake_costs_the_entry_that_woke() {
    let stages = "time: value.t\nstages: [{ uses: evil-wake, id: evil, key: value.n, state: { unbounded: true }, with: { how: trap, n: 41 } }]";
    check(stages, 90, 41, "evil");
}

#[test]
fn a_wake_that_never_ends_is_stopped_and_blamed() {
    let stages = "time: value.t\nstages: [{ uses: evil-wake, id: evil, key: value.n, state: { unbounded: true }, with: { how: loop, n: 5 } }]";
    check(stages, 16, 5, "evil");
}

#[test]
fn a_wake_that_sets_itself_for_ever_is_stopped_and_blamed() {
    let stages = "time: value.t\nstages: [{ uses: evil-wake, id: evil, key: value.n, state: { unbounded: true }, with: { how: again, n: 5 } }]";
    check(stages, 16, 5, "evil");
}

#[test]
fn stages_before_and_behind_a_fault_see_every_row_once() {
    let stages = "stages:\n  - { uses: dedup, id: before, key: value.n }\n  \
                  - { uses: evil-stage, id: evil, key: value.n, state: { unbounded: true }, with: { how: trap, n: 20 } }\n  \
                  - { uses: dedup, id: behind, key: value.n }";
    check(stages, 64, 20, "evil");
}

/// The codes about key parts that a plan says of a dedup stage with this key, behind a stage that computes.
#[track_caller]
fn check_parts(key: &str, expected: &[(&str, &str)]) {
    let text = format!(
        "version: 1\nname: p\nsource: {{ file: in }}\nstages:\n  - {{ uses: evil-stage, id: c, key: value.n, state: {{ \
         unbounded: true }}, with: {{ how: computes }} }}\n  - {{ uses: dedup, id: d, key: {key} }}\nsink: {{ file: out }}\n"
    );
    let pipeline = tamis::config::read(&text, None, &|_| None).map_err(|(findings, _)| findings).unwrap();
    let plan = plan(&pipeline, library(), &Conditions::of(&pipeline, Some(1))).unwrap();
    let found = plan.findings.iter().filter(|f| f.code.ends_with("-KEY"));
    let found: Vec<(&str, &str)> = found
        .map(|f| {
            let span = f.span.unwrap();
            (f.code.as_str(), &text[span.start..span.end])
        })
        .collect();
    assert_eq!(found, expected, "{key}");
}

#[test]
fn key_parts_that_a_stage_computes_are_told_if_they_come_again_or_say_nothing_new() {
    check_parts("[value.id, value.ts]", &[]);
    check_parts("[value.id, value.hour]", &[("W-CYCLIC-KEY", "value.hour")]);
    check_parts("[value.ts, value.hour.x]", &[("W-CYCLIC-KEY", "value.hour.x"), ("W-DEPENDENT-KEY", "value.hour.x")]);
    check_parts("[value.a, value.sum]", &[]);
    check_parts("[value.sum, value.b, value.a]", &[("W-DEPENDENT-KEY", "value.sum")]);
    check_parts("[value.hours]", &[]);
    let text = "version: 1\nname: p\nsource: { file: in }\nstages:\n  - { uses: evil-stage, id: c, key: value.n, with: { how: \
                computes-nonsense } }\nsink: { file: out }\n";
    let pipeline = tamis::config::read(text, None, &|_| None).map_err(|(findings, _)| findings).unwrap();
    let refused = plan(&pipeline, library(), &Conditions::of(&pipeline, Some(1))).unwrap_err();
    assert!(
        refused.iter().any(|f| f.is_error() && f.message.contains("the trait `computed` names `no path`")),
        "{refused:#?}"
    );
}
