#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

fn check(line: &str, expected: Envelope<'_>) {
    assert_eq!(read(line.as_bytes()).unwrap(), expected, "{line}");
}

fn refused(line: &str, reason: &str) {
    let error = read(line.as_bytes()).unwrap_err();
    assert!(error.contains(reason), "{line}: {error}");
}

#[test]
fn every_member_is_optional_and_none_is_a_tombstone() {
    check("{}", Envelope::default());
    check(r#" { "key" : null , "value" : null } "#, Envelope::default());
}

#[test]
fn documents_keep_their_text_and_bytes_are_decoded() {
    check(
        r#"{"key":"a,\"}b","value":{"n":[1.50,{"x":"]"}],"s":"}"},"offset":7,"partition":2,"topic":"t"}"#,
        Envelope {
            key: Part::Document(br#""a,\"}b""#),
            value: Part::Document(br#"{"n":[1.50,{"x":"]"}],"s":"}"}"#),
            offset: Some(7),
            partition: Some(2),
            topic: Some("t".into()),
            ..Envelope::default()
        },
    );
    check(
        r#"{"value":{"$bytes":"AAH/"},"key":{ "$bytes" : "YQ" }}"#,
        Envelope { value: Part::Bytes(vec![0, 1, 255]), key: Part::Bytes(b"a".to_vec()), ..Envelope::default() },
    );
    check(
        r#"{"value":{"$bytes":"YQ==","more":1}}"#,
        Envelope { value: Part::Document(br#"{"$bytes":"YQ==","more":1}"#), ..Envelope::default() },
    );
    check(r#"{"value":-1.5e3}"#, Envelope { value: Part::Document(b"-1.5e3"), ..Envelope::default() });
}

#[test]
fn headers_are_an_object_or_a_list_that_may_repeat_names() {
    let expected = |list: &[(&str, Option<&[u8]>)]| Envelope {
        headers: list.iter().map(|(n, v)| (n.to_string(), v.map(<[u8]>::to_vec))).collect(),
        ..Envelope::default()
    };
    check(
        r#"{"headers":{"a":"x","b":null,"c":{"$bytes":"/w=="}}}"#,
        expected(&[("a", Some(b"x")), ("b", None), ("c", Some(b"\xff"))]),
    );
    check(r#"{"headers":[["a","1"],["a","2"]]}"#, expected(&[("a", Some(b"1")), ("a", Some(b"2"))]));
    check(r#"{"headers":null}"#, Envelope::default());
}

#[test]
fn timestamps_are_milliseconds_or_rfc_3339() {
    let at = |ms| Envelope { timestamp: Some(ms), ..Envelope::default() };
    check(r#"{"timestamp":1500}"#, at(1500));
    check(r#"{"timestamp":"1970-01-01T00:00:01.5Z"}"#, at(1500));
    check(r#"{"timestamp":"1969-12-31T23:59:59.9999Z"}"#, at(-1));
}

#[test]
fn what_is_no_envelope_is_refused_with_the_reason() {
    refused(r#"{"key":1"#, "not JSON");
    refused("[1]", "not a JSON object");
    refused(r#"{"id":1}"#, "no member `id`");
    refused(r#"{"offset":"x"}"#, "`offset`");
    refused(r#"{"partition":99999999999}"#, "`partition`");
    refused(r#"{"timestamp":"yesterday"}"#, "`timestamp`");
    refused(r#"{"headers":{"a":1}}"#, "value of a header");
    refused(r#"{"headers":[["a"]]}"#, "`headers`");
    refused(r#"{"value":{"$bytes":"*"}}"#, "base64");
}

fn written(record: &Record<'_>) -> String {
    let mut out = Vec::new();
    write(record, &mut out);
    assert_eq!(out.pop(), Some(b'\n'));
    String::from_utf8(out).unwrap()
}

const RECORD: Record<'static> = Record {
    key: None,
    key_style: Style::Text,
    value: None,
    value_style: Style::Json,
    headers: &[],
    added: &[],
    timestamp: None,
    partition: 0,
    topic: "t",
    offset: 3,
};

#[test]
fn a_record_is_written_with_the_members_it_is_read_from() {
    let headers = vec![("a".to_string(), Some(b"x".to_vec())), ("b".to_string(), None)];
    let added = vec![("c".to_string(), Some(vec![255]))];
    let text = written(&Record {
        key: Some(b"k"),
        value: Some(b"{\"n\": 1.50}"),
        headers: &headers,
        added: &added,
        timestamp: Some(5),
        ..RECORD
    });
    assert_eq!(
        text,
        r#"{"key":"k","value":{"n": 1.50},"headers":{"a":"x","b":null,"c":{"$bytes":"/w=="}},"timestamp":5,"partition":0,"topic":"t","offset":3}"#
    );
    let back = read(text.as_bytes()).unwrap();
    assert_eq!(back.headers, [headers, added].concat());
}

#[test]
fn repeated_names_make_a_list() {
    let headers = vec![("a".to_string(), Some(b"1".to_vec())), ("a".to_string(), Some(b"2".to_vec()))];
    let text = written(&Record { headers: &headers, ..RECORD });
    assert!(text.contains(r#""headers":[["a","1"],["a","2"]]"#), "{text}");
}

#[test]
fn what_is_no_json_text_is_written_as_bytes() {
    for (value, style) in
        [(&b"abc"[..], Style::Json), (b"{\"a\":1}", Style::Bytes), (b"\xff", Style::Text), (b"null", Style::Json)]
    {
        let text = written(&Record { value: Some(value), value_style: style, ..RECORD });
        assert_eq!(read(text.as_bytes()).unwrap().value, Part::Bytes(value.to_vec()), "{text}");
    }
}

#[test]
fn a_document_over_several_lines_becomes_one_line() {
    let text = written(&Record { value: Some(b"{\n \"a\": 1\r\n}"), ..RECORD });
    assert!(text.contains(r#""value":{  "a": 1  }"#), "{text}");
}
