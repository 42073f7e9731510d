#![allow(clippy::unwrap_used)]

use super::super::Expected;
use super::super::moment::{MS, Moment};
use super::super::record::{Body, Tag, row};
use super::*;

fn node(yaml: &str) -> Node {
    crate::config::yaml::parse(yaml, None, &|_| None).unwrap().0
}

/// The steps of a flow list, as `{:?}` shows the kind of each.
fn check(yaml: &str, steps: &[&str]) {
    let test = test(&node(&format!("name: x\ninput: {yaml}"))).unwrap();
    let kinds: Vec<String> = test
        .input
        .iter()
        .map(|said| match &said.step {
            Step::Record(record) => {
                format!("record {}", if let Body::Document(d) = &record.value { d.to_string() } else { "-".into() })
            }
            Step::Series(series) => format!("series {} {}", series.from, series.to),
            step => format!("{step:?}").chars().take_while(|c| *c != '{').collect::<String>().trim().to_string(),
        })
        .collect();
    assert_eq!(kinds, steps, "{yaml}");
}

#[test]
fn steps_are_words_mappings_with_one_member_and_records() {
    check("[end, commit, crash, batch]", &["End(None)", "Commit", "Crash", "Batch"]);
    check(
        "[{ end: 1 }, { idle: 0 }, { block: 2 }, { unblock: 2 }]",
        &["End(Some(1))", "Idle(0)", "Block(2)", "Unblock(2)"],
    );
    check(
        "[{ clock: 5 }, { clock: +15m }, { watermark: 7 }]",
        &["Clock(At(5000000))", "Clock(After(900000000000))", "Watermark(7000000)"],
    );
    check(
        "[{ redeliver: 2 }, { forget: all }, { sink: fail }, { state: ok }, { reload: {} }, { forget: { id: 1 } }]",
        &["Redeliver(2)", "Forget(None)", "Sink(false)", "State(true)", "Reload(Replacements", "Forget(Some(Record"],
    );
    check("[{ end: 1, k: a }, { t: 5 }, { k: a, t: 5 }]", &["record { end: 1, k: a }", "record {}", "record { k: a }"]);
    check("[{ series: { from: 0, to: 3, record: { id: $i } } }]", &["series 0 3"]);
}

#[test]
fn the_long_form_takes_documents_bytes_or_nothing() {
    check(
        "[{ value: 5 }, { value: null }, { key: a }, { json: '{}' }]",
        &["record 5", "record -", "record -", "record -"],
    );
    let tests = test(&node(
        "name: x\ninput: [{ hex: 00 ff, headers: [[a, x], [a, null]], key: 1, p: 2, o: 3, epoch: 4, topic: q }]",
    ))
    .unwrap();
    let Step::Record(record) = &tests.input[0].step else { panic!("no record") };
    assert!(matches!(&record.value, Body::Bytes(bytes) if bytes == &[0, 255]));
    assert_eq!(record.headers, [("a".to_string(), Some(b"x".to_vec())), ("a".to_string(), None)]);
    assert_eq!((record.p, record.o, record.epoch, record.topic.as_deref()), (Some(2), Some(3), Some(4), Some("q")));
}

#[test]
fn rows_have_one_tag_and_marks_of_their_own() {
    let line = row(&node("{ PUT: { key: a, t: 01:00:00, w: [0, 1h], of: [1, 2] } }")).unwrap();
    assert_eq!(line.tag, Tag::Put);
    assert_eq!(
        (line.record.t, line.record.w, line.record.of),
        (Some(3_600_000), Some((0, 3_600_000 * MS)), Some((1, 2)))
    );
    assert_eq!(row(&node("{ dlq:time: { n: 1 } }")).unwrap().tag, Tag::DeadLetter("time".into()));
    assert_eq!(row(&node("{ +U: { n: 1 } }")).unwrap().tag, Tag::New);
    assert!(row(&node("{ late: 5 }")).is_err());
}

#[test]
fn the_integer_of_a_series_is_a_number_alone_and_digits_in_text() {
    let made = with_index(&node("{ id: $i, name: user-$i, list: [$i] }"), 7);
    let row = row(&made).unwrap();
    let Body::Document(document) = row.record.value else { panic!("no document") };
    assert_eq!(document.to_string(), "{ id: 7, name: user-7, list: [7] }");
}

#[test]
fn what_is_not_known_is_said_with_the_nearest_name() {
    let findings = test(&node("name: x\ninputs: []\ninput: [ends, { value: 1, headrs: 2 }]")).unwrap_err();
    let said: Vec<(&str, &str)> = findings.iter().map(|f| (f.code.as_str(), f.help[0].as_str())).collect();
    assert_eq!(
        said,
        [
            ("P-UNKNOWN", "did you mean `input`?"),
            ("P-UNKNOWN", "did you mean `end`?"),
            ("P-UNKNOWN", "did you mean `headers`?"),
        ]
    );
    assert!(findings.iter().all(|f| f.span.is_some()));
}

#[test]
fn a_test_says_everything_else_too() {
    let test = test(&node(
        "{ name: x, why: y, match: contains, partitions: 2, bounded: false, delivery: at-least-once, refused: D-NO1, \
         warns: [W-IDLE], stops: null_key, needs: kafka, counters: { late: 1 }, table: [{ k: a }], stage: d, \
         output: [{ series: { from: 1, to: 2, record: { PUT: { n: $i } } } }] }",
    ))
    .unwrap();
    assert!(test.contains && !test.exactly_once && !test.has_input);
    assert_eq!((test.partitions, test.bounded, test.needs), (Some(2), Some(false), vec!["kafka".to_string()]));
    assert_eq!(test.counters, [("late".to_string(), 1)]);
    assert!(matches!(&test.output[0], Expected::Series(series) if series.to == 2));
    assert_eq!(Moment::At(0), moment(&node("0")).unwrap());
}
