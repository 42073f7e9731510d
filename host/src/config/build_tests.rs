#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::path::Path as FilePath;
use std::sync::Arc;

use crate::config::diagnostic::Diagnostic;
use crate::config::node::Node;
use crate::config::path::Root;
use crate::config::pipeline::{Format, KeyForm, Pipeline, Scope, Sink, Source, Tolerance};
use crate::config::replace::Replacements;
use crate::config::{read, yaml};

fn pipeline(text: &str) -> Pipeline {
    let file: Arc<FilePath> = Arc::from(FilePath::new("some/Unique Clicks.yaml"));
    read(text, Some(&file), &|_| None).unwrap_or_else(|(findings, _)| panic!("{text}: {findings:?}"))
}

fn check_error(text: &str, code: &str, line: u32, column: u32) -> Diagnostic {
    let (findings, _) = read(text, None, &|_| None).expect_err(text);
    let errors: Vec<&Diagnostic> = findings.iter().filter(|f| f.is_error()).collect();
    assert_eq!(errors.len(), 1, "{text}: {findings:?}");
    let span = errors[0].span.unwrap();
    assert_eq!((errors[0].code.as_str(), span.line, span.column), (code, line, column), "{text}: {findings:?}");
    errors[0].clone()
}

fn node(text: &str) -> Node {
    yaml::parse(text, None, &|_| None).unwrap().0
}

#[test]
fn the_shortest_file_has_every_default() {
    let p = pipeline("version: 1");
    assert_eq!(p.name, "unique-clicks");
    assert!(matches!(&p.source, Source::Stdin { format: Format::Json, topic } if topic == "stdin"));
    assert!(matches!(p.sink, Sink::Stdout { format: Format::Json }));
    assert_eq!((p.decode.key.name.as_str(), p.decode.value.name.as_str()), ("string", "json"));
    assert_eq!((p.time.field.root.clone(), p.time.min, p.time.unit), (Root::Timestamp, Some(0), 1_000_000));
    assert_eq!(
        (p.limits.call, p.limits.memory, p.limits.output, p.limits.log),
        (1_000_000_000, 64 << 20, 8 << 20, 64 << 10)
    );
    assert_eq!((p.limits.batch_rows, p.limits.batch_bytes, p.limits.batch_wait), (1024, 256 << 10, 5_000_000));
    assert_eq!((p.errors.retry_for, p.errors.retry_max_delay, p.errors.log), (300_000_000_000, 10_000_000_000, true));
    assert_eq!((p.state.durable, p.state.checkpoint, p.state.quota), (true, 60_000_000_000, 4 << 30));
    assert_eq!(
        (p.run.commit, p.run.stop, p.run.http.as_deref()),
        (200_000_000, 25_000_000_000, Some("127.0.0.1:8484"))
    );
    assert_eq!(p.errors.tolerance, Tolerance::None);
}

#[test]
fn short_forms_stand_for_one_member() {
    let p = pipeline(
        "version: 1\nsource: { file: in.jsonl }\nsink: { file: out.jsonl }\ntime: value.ts\nstate: memory\ndecode: { value: raw }\n\
         errors: { retry: 1m, dead_letter: stdout }\nstages: [{ uses: dedup, key: value.id, state: { retention: 1h } }]\n",
    );
    assert!(matches!(&p.source, Source::File { paths, .. } if paths == &["in.jsonl"]));
    assert!(matches!(&p.sink, Sink::File { path, format: Format::Json } if path.to_str() == Some("out.jsonl")));
    assert!(matches!(p.errors.dead_letter, Some(Sink::Stdout { format: Format::Envelope })));
    assert_eq!((p.errors.tolerance, p.errors.retry_for), (Tolerance::All, 60_000_000_000));
    assert_eq!((p.time.field.to_string().as_str(), p.time.min), ("value.ts", None));
    assert!(!p.state.durable);
    assert_eq!(p.decode.value.name, "raw");
    assert_eq!(p.stages[0].state.retention.unwrap().length, 3_600_000_000_000);
}

#[test]
fn keys_have_four_forms() {
    let form = |key: &str| {
        pipeline(&format!("version: 1\nstages: [{{ uses: dedup, key: {key} }}]")).stages.remove(0).key.unwrap()
    };
    let names = |key: &str| match form(key).form {
        KeyForm::Fields(parts) => parts.iter().map(|p| format!("{}={}", p.name, p.path)).collect::<Vec<_>>().join(" "),
        other => format!("{other:?}"),
    };
    assert_eq!(names("value.user.id"), "id=value.user.id");
    assert_eq!(names("[value.a, { field: headers.b, name: c, as: int }]"), "a=value.a c=headers.b");
    assert_eq!(names("[]"), "");
    assert!(
        matches!(form("{ whole: value, except: value.ts }").form, KeyForm::Whole { except, .. } if except.len() == 1)
    );
    assert!(matches!(form("{ uses: ./k.wasm, with: { a: 1 } }").form, KeyForm::Guest(uses) if uses.with["a"] == 1));
    let options =
        form("{ fields: value.a, null_key: group, missing: distinct, numbers: typed, normalize: nfc, casefold: true }");
    assert!(options.missing_distinct && options.typed_numbers && options.casefold);
}

#[test]
fn keys_that_mean_nothing_are_refused() {
    check_error("version: 1\nstages: [{ uses: dedup, key: { fields: value.a, whole: value } }]", "P-VALUE", 2, 49);
    check_error("version: 1\nstages: [{ uses: dedup, key: { null_key: drop } }]", "P-MISSING", 2, 30);
    check_error("version: 1\nstages: [{ uses: dedup, key: { whole: value, except: key.a } }]", "P-PATH", 2, 54);
    check_error("version: 1\nstages: [{ uses: dedup, key: { fields: value.a, as: int } }]", "P-UNKNOWN", 2, 49);
    check_error("version: 1\nstages: [{ uses: dedup, key: [{ field: value.a, as: int }] }]", "P-VALUE", 2, 49);
}

#[test]
fn ids_go_round_those_that_are_given() {
    let p = pipeline(
        "version: 1\nstages: [{ uses: mask }, { uses: mask, id: mask-2 }, { uses: mask }, { uses: ./my_guest.wasm }, { uses: mask@1.2 }]",
    );
    let ids: Vec<&str> = p.stages.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(ids, ["mask", "mask-2", "mask-3", "my-guest", "mask-4"]);
    check_error("version: 1\nstages: [{ uses: mask, id: a }, { uses: mask, id: a }]", "P-VALUE", 2, 51);
}

#[test]
fn a_format_and_a_codec_may_not_contradict_each_other() {
    check_error("version: 1\ndecode: { value: string }\nsource: { file: { path: a, format: json } }", "P-VALUE", 3, 36);
    pipeline("version: 1\ndecode: { value: string }\nsource: { file: a }");
}

#[test]
fn null_stands_for_left_out() {
    let p = pipeline("version: 1\nname:\ntime: { field: value.ts, idle: null }\nstages:\ntests:\n");
    assert_eq!((p.time.idle, p.stages.len()), (None, 0));
}

#[test]
fn tests_have_names_of_their_own() {
    check_error("version: 1\ntests: [{ name: a }, { name: a }]", "P-VALUE", 2, 30);
    check_error("version: 1\ntests: [{ name: a, inputs: [] }]", "P-UNKNOWN", 2, 20);
    check_error("version: 1\ntests: [{ input: [] }]", "P-MISSING", 2, 11);
}

fn base() -> Pipeline {
    pipeline(
        "version: 1\ntime: value.ts\nstages:\n  - { uses: filter, with: { keep: 'true' } }\n  - uses: dedup\n    key: value.id\n    scope: partition\n\
         \x20   state: { max_entries: 5 }\n    with: { keep: last, window: { tumbling: 1h } }\n",
    )
}

#[test]
fn replacements_merge_parameters_and_replace_the_rest() {
    let p = base();
    assert_eq!(p.default_stage(), Some("dedup"));
    let by = Replacements::of(&node(
        "{ with: { keep: null, output: upsert }, key: [value.a], scope: null, state: null, time: { delay: 5s } }",
    ));
    let replaced = p.replace(Some("dedup"), &by).unwrap();
    let stage = &replaced.stages[1];
    assert_eq!(stage.uses.with.to_string(), r#"{"window":{"tumbling":"1h"},"output":"upsert"}"#);
    assert_eq!((stage.id.as_str(), stage.scope, stage.state.max_entries), ("dedup", Scope::Global, None));
    assert!(matches!(&stage.key.as_ref().unwrap().form, KeyForm::Fields(parts) if parts[0].name == "a"));
    assert_eq!((replaced.time.field.to_string().as_str(), replaced.time.delay), ("value.ts", 5_000_000_000));
    assert_eq!(replaced.stages[0].uses.with, p.stages[0].uses.with);
    let again =
        replaced.replace(Some("dedup"), &Replacements::of(&node("{ time: { delay: null, field: null } }"))).unwrap();
    assert_eq!((again.time.field.to_string().as_str(), again.time.delay), ("timestamp", 0));
    let path = p.replace(None, &Replacements::of(&node("{ time: value.other }"))).unwrap();
    assert_eq!(path.time.field.to_string(), "value.other");
}

#[test]
fn replacements_are_checked_as_the_file_is() {
    let codes = |text: &str| -> Vec<String> {
        base()
            .replace(Some("dedup"), &Replacements::of(&node(text)))
            .map_or_else(|f| f.into_iter().map(|d| d.code).collect(), |_| Vec::new())
    };
    assert_eq!(codes("{ key: id }"), ["P-PATH"]);
    assert_eq!(codes("{ time: { delay: 5 }, scope: all }"), ["P-UNIT", "P-VALUE"]);
    assert_eq!(codes("{ state: { retention: -1h } }"), [""; 0]);
    assert_eq!(
        base().replace(Some("nobody"), &Replacements::of(&node("{ key: value.a }"))).unwrap_err()[0].code,
        "P-VALUE"
    );
}
