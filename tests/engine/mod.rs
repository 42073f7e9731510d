//! The engine with real guests: loading, calling, limits, faults; the state of a keyed one is a stub that writes down
//! what it was asked.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tamis::batch::{Cell, Column, kind};
use tamis::bundled;
use tamis::config::pipeline::Limits;
use tamis::guest::call::{Call, Dues, Fault, Refusal, Stamps, StampsOf, State, View};
use tamis::guest::{CheckError, Engine, Guest, Module, Opening, Shape, World};

mod evil;

/// An engine that compiles each guest once for all runs of these tests.
fn engine() -> Engine {
    Engine::new(Some(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"))).unwrap()
}

/// A bundled guest.
fn bundled(engine: &Engine, name: &str) -> Module {
    let (_, bytes) = bundled::all().iter().find(|(has, _)| *has == name).expect("a bundled guest");
    engine.load(name, bytes).unwrap()
}

/// A guest of this repository, built on the spot.
fn built(engine: &Engine, directory: &str) -> Module {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (out, target) = guest_folders();
    let paths = tamis_guest_build::build(&[root.join(directory)], &out, &target).unwrap();
    engine.load(directory, &std::fs::read(&paths[0]).unwrap()).unwrap()
}

/// Where guests of tests are packed, and where cargo builds them: shared with the bundled ones.
fn guest_folders() -> (PathBuf, PathBuf) {
    // .../target/debug/deps/integration-HASH
    let exe = std::env::current_exe().unwrap();
    let target = exe.ancestors().nth(3).unwrap();
    (target.join("guests"), target.join("guests-build"))
}

fn bytes(cells: &[Option<&[u8]>]) -> Column {
    let mut column = Column::default();
    for cell in cells {
        match cell {
            Some(bytes) => column.push(kind::BYTES, bytes),
            None => column.push(kind::NULL, b""),
        }
    }
    column
}

fn texts(cells: &[&str]) -> Column {
    let mut column = Column::default();
    for cell in cells {
        column.push(kind::TEXT, cell.as_bytes());
    }
    column
}

fn codec(paths: &[&str]) -> Opening {
    Opening::Codec { params: "{}".into(), paths: paths.iter().map(|p| p.to_string()).collect() }
}

fn kind_of(fault: &Fault) -> &'static str {
    match fault {
        Fault::Module { kind, .. } => kind,
        Fault::Full => "full",
    }
}

fn text_of(fault: &Fault) -> &str {
    match fault {
        Fault::Module { text, .. } => text,
        Fault::Full => "",
    }
}

#[test]
fn every_bundled_guest_loads_and_imports_nothing_but_the_contract() {
    let engine = engine();
    for (name, bytes) in bundled::all() {
        let module = engine.load(name, bytes).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(module.manifest().name, *name);
        assert_eq!((module.digest().len(), module.size()), (64, bytes.len()));
        let imports = module.imports();
        assert!(imports.iter().all(|i| i.starts_with("tamis:guest/")), "{name} imports {imports:?}");
        let params = &module.manifest().params;
        assert_eq!(params["type"], "object", "{name}");
    }
    assert_eq!(bundled(&engine, "raw").world(), World::Codec);
    assert_eq!(bundled(&engine, "mask").world(), World::Transform);
    assert_eq!(bundled(&engine, "dedup").world(), World::Keyed);
}

#[test]
fn guests_go_to_threads_and_modules_are_shared_by_them() {
    fn goes<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    goes::<Guest>();
    is_shared::<Module>();
    is_shared::<Engine>();
}

#[test]
fn a_codec_decodes_to_spans_and_encodes_back() {
    let engine = engine();
    let mut guest = bundled(&engine, "string").guest(codec(&["", "a"]), Limits::default());
    let payloads = bytes(&[Some("né".as_bytes()), None, Some(b"\xff"), Some(b"")]);
    let decoded = guest.decode(&payloads).unwrap();
    assert_eq!(decoded.columns.len(), 2);
    assert_eq!(decoded.columns[0].kinds, [kind::TEXT, kind::NULL, kind::NULL, kind::TEXT]);
    assert_eq!(decoded.columns[0].spans[..2], [0, 3]);
    assert_eq!(decoded.columns[1].kinds[0], kind::MISSING);
    let failure = &decoded.failures[0];
    assert_eq!((failure.row, failure.category, &*failure.code), (2, 2, "utf8"));

    let (column, failures) = guest.encode(&[texts(&["x", "yz"])]).unwrap();
    assert_eq!(column, bytes(&[Some(b"x"), Some(b"yz")]));
    assert!(failures.is_empty());
    let none = guest.decode(&Column::default()).unwrap();
    assert!(none.columns.iter().all(|c| c.kinds.is_empty()));
}

#[test]
fn a_stage_is_checked_and_called_with_columns() {
    let engine = engine();
    let mask = bundled(&engine, "mask");
    let params = json!({"fields": ["value.name"]});
    let answer = mask.check(&params, &json!({}), &Limits::default()).unwrap();
    assert_eq!(answer["reads"], json!(["value.name"]));
    let bad = mask.check(&json!({"fields": ["key"]}), &json!({}), &Limits::default()).unwrap();
    assert_eq!(bad["findings"][0]["severity"], "error");

    let opening = Opening::Transform { params: params.to_string(), context: "{}".into() };
    let mut guest = mask.guest(opening, Limits::default());
    let mut names = texts(&["Ada"]);
    names.push(kind::MISSING, b"");
    let call = Call { rows: 2, columns: vec![names], ..Call::default() };
    let shape = Shape { writes: 1, routes: 0, counters: 0 };
    let (outcome, state) = guest.process(&call, &shape, None);
    let outcome = outcome.unwrap();
    assert!(state.is_none());
    assert_eq!((outcome.verdicts, outcome.output.origins), (vec![2, 0], vec![0]));
    assert_eq!(outcome.output.columns[0].cell(0), Cell { kind: kind::TEXT, bytes: b"***" });
    // The same answer under another shape is a breach, and the guest goes on with a fresh instance.
    let (wrong, _) = guest.process(&call, &Shape { writes: 2, ..shape }, None);
    assert_eq!(kind_of(&wrong.unwrap_err()), "contract");
    assert!(guest.process(&call, &shape, None).0.is_ok());
}

#[test]
fn a_key_guest_names_columns_and_makes_keys() {
    let engine = engine();
    let module = built(&engine, "examples/custom-key/guest");
    assert_eq!(module.world(), World::Key);
    let columns = module.key_columns(&json!({}), &Limits::default()).unwrap();
    assert_eq!(columns, ["value.url", "value.user"]);
    let mut guest = module.guest(Opening::Key { params: "{}".into() }, Limits::default());
    let (keys, failures) = guest.keys(&[texts(&["HTTP://A/x", "a"]), texts(&["u", "u"])]).unwrap();
    assert_eq!(keys.cell(0), keys.cell(1));
    assert!(failures.is_empty());
}

#[test]
fn a_module_is_used_only_as_what_it_is() {
    let engine = engine();
    let raw = bundled(&engine, "raw");
    let fault = raw.check(&json!({}), &json!({}), &Limits::default()).unwrap_err();
    assert_eq!(kind_of(&fault), "open");
    assert!(matches!(raw.key_columns(&json!({}), &Limits::default()), Err(CheckError::Fault(_))));
    let mut guest = raw.guest(Opening::Key { params: "{}".into() }, Limits::default());
    assert_eq!(kind_of(&guest.open().unwrap_err()), "open");
    let mut guest = raw.guest(codec(&[""]), Limits::default());
    assert_eq!(kind_of(&guest.keys(&[]).unwrap_err()), "open");
    assert!(guest.decode(&bytes(&[Some(b"x")])).is_ok());
}

#[test]
fn compiled_code_is_cached_where_only_its_owner_reads() {
    let directory = std::env::temp_dir().join(format!("tamis-cache-{}", std::process::id()));
    let load = || bundled(&Engine::new(Some(&directory)).unwrap(), "raw").digest().to_owned();
    assert_eq!(load(), load());
    assert!(std::fs::read_dir(&directory).unwrap().next().is_some());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&directory).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_cut_or_changed_file_is_refused() {
    let engine = engine();
    let (_, raw) = bundled::all()[0];
    for end in [9, 100, raw.len() / 2, raw.len() - 1] {
        assert!(engine.load("cut", &raw[..end]).is_err(), "cut at {end}");
    }
    let manifest = raw.windows(14).rposition(|w| w == b"tamis:manifest").unwrap();
    let mut other = raw.to_vec();
    let about = other[manifest..].windows(5).position(|w| w == b"Bytes").unwrap();
    other[manifest + about] = b'b';
    let error = engine.load("other", &other).unwrap_err();
    assert!(error.cause.contains("differ"), "{error}");
}

/// Answers as the contract wants it, and keeps what it was asked.
struct Stub {
    asked: Arc<Mutex<Vec<String>>>,
    rows: usize,
    refuse: Option<Refusal>,
}

impl Stub {
    fn note(&self, what: String) -> Result<(), Refusal> {
        self.asked.lock().unwrap().push(what);
        self.refuse.clone().map_or(Ok(()), Err)
    }
}

impl State for Stub {
    fn seen(&mut self, space: i64, expires: &[i64], clears: &[u32], refresh: bool) -> Result<Vec<u8>, Refusal> {
        self.note(format!("seen {space} {expires:?} {clears:?} {refresh}"))?;
        Ok((0..self.rows).map(|row| if row == 1 { 2 } else { 1 }).collect())
    }
    fn due(&mut self) -> Result<Dues, Refusal> {
        self.note("due".into())?;
        Ok(Dues::default())
    }
    fn open(&mut self, rows: &[u32], spaces: &[i64]) -> Result<View, Refusal> {
        self.note(format!("open {rows:?} {spaces:?}"))?;
        let mut view = View::default();
        for slot in 0..self.rows {
            view.slots.push(slot as u32);
            view.entries.values.push(kind::MISSING, b"");
            view.entries.expires.push(0);
        }
        Ok(view)
    }
    fn remove(&mut self, slots: &[u32]) -> Result<(), Refusal> {
        self.note(format!("remove {slots:?}"))
    }
    fn put(&mut self, slots: &[u32], values: &Column, expires: &[i64]) -> Result<(), Refusal> {
        self.note(format!("put {slots:?} {} {}", values.rows(), expires.len()))
    }
    fn keep(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32]) -> Result<(), Refusal> {
        self.note(format!("keep {slots:?} {numbers:?} {rows:?}"))
    }
    fn mark(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32]) -> Result<(), Refusal> {
        self.note(format!("mark {slots:?} {numbers:?} {rows:?}"))
    }
    fn wake(&mut self, slots: &[u32], wakes: StampsOf<'_>, ranks: &Column) -> Result<(), Refusal> {
        self.note(format!("wake {slots:?} {} {}", wakes.times.len(), ranks.rows()))
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// dedup, keep first by arrival: what it asks its state for two rows, and what it answers; once with each refusal.
#[test]
fn a_keyed_stage_reaches_its_state_in_process_only() {
    let engine = engine();
    let dedup = bundled(&engine, "dedup");
    let params = json!({"keep": "first", "order": "arrival"});
    let context = json!({
        "id": "dedup", "key": {"fields": ["value.id"]}, "scope": "partition", "bounded": true, "partitions": 1,
        "state": {"retention": {"for": 3_600_000_000_000i64, "clock": "processing", "refresh": "create"}},
        "time": {"field": "timestamp", "delay": 0}, "before": [], "stored": null,
    });
    let answer = dedup.check(&params, &context, &Limits::default()).unwrap();
    let count = |name: &str| answer[name].as_array().map_or(0, Vec::len);
    let shape = Shape { writes: count("writes"), routes: count("routes"), counters: count("counters") };
    let reads: Vec<&str> = answer["reads"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let mut column = Column::default();
    column.push(kind::INT64, &0i64.to_le_bytes());
    column.push(kind::INT64, &1i64.to_le_bytes());
    let stamps = |n: usize| Stamps { times: vec![0; n], inputs: vec![] };
    let wants_time = answer["traits"]["wants-time"] == json!(true);
    let (times, seen) = if wants_time { (stamps(2), stamps(3)) } else { Default::default() };
    let call = Call { rows: 2, columns: vec![column; reads.len()], times, seen, ..Call::default() };

    let opening = Opening::Transform { params: params.to_string(), context: context.to_string() };
    let mut guest = dedup.guest(opening, Limits::default());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let stub = |refuse| -> Option<Box<dyn State>> { Some(Box::new(Stub { asked: asked.clone(), rows: 2, refuse })) };

    let (outcome, state) = guest.process(&call, &shape, stub(None));
    assert!(state.is_some(), "the state comes back");
    let outcome = outcome.unwrap_or_else(|f| panic!("{f:?}; {answer}"));
    assert_eq!(outcome.verdicts.len(), 2);
    assert!(!asked.lock().unwrap().is_empty());

    let (full, state) = guest.process(&call, &shape, stub(Some(Refusal::Full)));
    assert!(matches!(full, Err(Fault::Full)) && state.is_some());
    let (breach, state) = guest.process(&call, &shape, stub(Some(Refusal::Breach("no such slot".into()))));
    let breach = breach.unwrap_err();
    assert!(state.is_some() && kind_of(&breach) == "contract" && text_of(&breach).contains("no such slot"));
    let (none, _) = guest.process(&call, &shape, None);
    let none = none.unwrap_err();
    assert!(kind_of(&none) == "contract" && text_of(&none).contains("only during `process`"), "{none:?}");
    assert!(guest.process(&call, &shape, stub(None)).0.is_ok(), "the next call is on a fresh instance");
}
