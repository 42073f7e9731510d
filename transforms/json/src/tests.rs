#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Map, Value};
use tamis_guest::document::{Doc, Node};
use tamis_guest::{Cell, Column, Decoded, kind};

use crate::{Decoder, encode};

mod table;

fn column(rows: &[&[u8]]) -> Column {
    let mut column = Column::with_capacity(rows.len(), 0);
    rows.iter().for_each(|row| column.push_bytes(kind::BYTES, row));
    column
}

fn decoder(paths: &[&str]) -> Decoder {
    let paths: Vec<String> = paths.iter().map(|path| path.to_string()).collect();
    Decoder::new(&paths).unwrap()
}

/// A cell as serde_json has it; missing is `None`.
fn value(cell: Cell<'_>) -> Option<Value> {
    let text = || std::str::from_utf8(cell.bytes).unwrap();
    Some(match cell.kind {
        kind::MISSING => return None,
        kind::NULL => Value::Null,
        kind::BOOL => Value::Bool(cell.as_bool().unwrap()),
        kind::NUMBER => Value::Number(serde_json::from_str(text()).unwrap()),
        kind::TEXT => Value::String(text().to_owned()),
        kind::ARRAY | kind::MAP => node(Doc::new(cell.bytes).unwrap().root()),
        other => panic!("kind {other}"),
    })
}

fn node(node_: Node<'_>) -> Value {
    match node_.kind() {
        kind::ARRAY => Value::Array(node_.children().map(node).collect()),
        kind::MAP => {
            let mut map = Map::new();
            node_.children().for_each(|child| drop(map.insert(child.name().to_owned(), node(child))));
            Value::Object(map)
        }
        kind => value(Cell { kind, bytes: node_.scalar().unwrap() }).unwrap(),
    }
}

fn decode_one(row: &[u8], paths: &[&str]) -> (Column, Decoded) {
    let payloads = column(&[row]);
    let decoded = decoder(paths).decode(&payloads);
    (payloads, decoded)
}

/// What the path finds in the row, as JSON text; missing: nothing.
fn check(row: &str, path: &str, found: &str) {
    let (payloads, decoded) = decode_one(row.as_bytes(), &[path]);
    assert_eq!(decoded.failures, [], "{row}");
    let text = value(decoded.cell(&payloads, 0, 0)).map(|value| value.to_string()).unwrap_or_default();
    assert_eq!(text, found, "{path} of {row}");
}

#[test]
fn fields_are_found() {
    let row = r#"{"id":12,"user":{"id":"u7","tags":["a",{"k":-1.50e+3},null]},"a.b":true,"off":false,"n":null}"#;
    check(row, "id", "12");
    check(row, "user.id", "\"u7\"");
    check(row, "user.tags[1].k", "-1.50e+3");
    check(row, "user.tags[2]", "null");
    check(row, "user.tags", r#"["a",{"k":-1.50e+3},null]"#);
    check(row, "[\"a.b\"]", "true");
    check(row, "off", "false");
    check(row, "n", "null");
    check(row, "", row);
    for missing in ["x", "user.x", "user.tags[3]", "user[0]", "id.x", "user.tags.k", "n.x", "[0]"] {
        check(row, missing, "");
    }
    check("[1,[2,3]]", "[1][0]", "2");
    check("[]", "[0]", "");
    check("{}", "a", "");
    check("7", "", "7");
    check("7", "a", "");
    check(" \"x\" ", "", "\"x\"");
    check("{\"\":1}", "[\"\"]", "1");
    check("{\"abcdefgh\":1,\"abcdefghi\":2,\"abcdefg\":3}", "abcdefghi", "2");
    check("{\"abcdefgh\":1,\"abcdefghi\":2,\"abcdefg\":3}", "abcdefgh", "1");
}

#[test]
fn of_repeated_names_the_last_counts() {
    check(r#"{"a":1,"b":2,"a":3}"#, "a", "3");
    check(r#"{"a":1,"b":2,"a":3}"#, "", r#"{"a":3,"b":2}"#);
    check(r#"{"a":{"b":1},"a":{"c":2}}"#, "a.b", "");
    check(r#"{"a":{"b":1},"a":5}"#, "a.b", "");
    check(r#"{"a":[1],"a":"x"}"#, "a", "\"x\"");
    check(r#"{"a":"x","a":[1]}"#, "a", "[1]");
    check(r#"{"a":1,"\u0061":2}"#, "a", "2");
    check(r#"{"a":1,"a":null}"#, "a", "null");
    let (payloads, decoded) = decode_one(br#"{"a":{"b":[1]},"a":{"c":2}}"#, &["a", "a.b", "a.c"]);
    let cells: Vec<_> = (0..3).map(|at| value(decoded.cell(&payloads, at, 0)).map(|v| v.to_string())).collect();
    assert_eq!(cells, [Some("{\"c\":2}".to_owned()), None, Some("2".to_owned())]);
}

#[test]
fn values_are_views_into_the_payload_where_they_can_be() {
    let row = br#"{"t":"plain","n":1.50,"e":"a\nb","u":"\u00e9","ok":true}"#;
    let (payloads, decoded) = decode_one(row, &["t", "n", "e", "u", "ok"]);
    let span = |at: usize| (decoded.columns[at].spans[0] as usize, decoded.columns[at].spans[1] as usize);
    assert_eq!(span(0), (6, 5));
    assert_eq!(span(1), (17, 4));
    assert!((2..5).all(|at| span(at).0 >= row.len()));
    assert_eq!(decoded.cell(&payloads, 2, 0), Cell::text("a\nb"));
    assert_eq!(decoded.cell(&payloads, 3, 0), Cell::text("é"));
    assert_eq!(decoded.cell(&payloads, 4, 0).as_bool(), Some(true));
}

#[test]
fn rows_do_not_meet() {
    let rows: [&[u8]; 9] =
        [b"{\"a\":1", b"2}", b"{\"a\":\"x", b"y\"}", b"{\"a\":3}", b"", b"12", b"34", b"{\"a\":12345678901234567890}"];
    let payloads = column(&rows);
    let decoded = decoder(&["a", ""]).decode(&payloads);
    assert_eq!(decoded.failures.iter().map(|failure| failure.row).collect::<Vec<_>>(), [0, 1, 2, 3, 5]);
    assert!(decoded.failures.iter().all(|failure| failure.code == "json" && failure.category == 2));
    let a: Vec<_> = (0..9).map(|row| decoded.cell(&payloads, 0, row).as_number()).collect();
    assert_eq!(a, [None, None, None, None, Some("3"), None, None, None, Some("12345678901234567890")]);
    assert_eq!(decoded.cell(&payloads, 1, 6).as_number(), Some("12"));
}

#[test]
fn null_payloads_are_null_in_every_column() {
    let mut payloads = column(&[b"{\"a\":1}"]);
    payloads.push(Cell::NULL);
    let decoded = decoder(&["a", "b"]).decode(&payloads);
    assert_eq!(decoded.columns[0].kinds, [kind::NUMBER, kind::NULL]);
    assert_eq!(decoded.columns[1].kinds, [kind::MISSING, kind::NULL]);
    assert_eq!(decoded.failures, []);
}

#[test]
fn equal_paths_give_equal_columns() {
    let (payloads, decoded) = decode_one(b"{\"a\":[1,2]}", &["a", "a[1]", "a", "[\"a\"]"]);
    let cells: Vec<_> = (0..4).map(|at| value(decoded.cell(&payloads, at, 0)).unwrap().to_string()).collect();
    assert_eq!(cells, ["[1,2]", "2", "[1,2]", "[1,2]"]);
    assert!(Decoder::new(&["a b".to_owned()]).is_err());
    assert_eq!(decoder(&[]).decode(&column(&[b"{", b"{}"])).failures.len(), 1);
}

#[test]
fn errors_say_where_and_what() {
    for (row, text) in [
        ("", "not JSON, at byte 0: there is nothing"),
        ("{\"a\":1", "not JSON, at byte 6: the text ends, `,` or `}` is missing"),
        ("{\"a\" 1}", "not JSON, at byte 5: `1` where `:` should be"),
        ("{\"a\":1}x", "not JSON, at byte 7: `x` where the end should be"),
        ("{\"a\":01}", "not JSON, at byte 5: not a number that JSON has"),
        ("{a:1}", "not JSON, at byte 1: `a` where a member name in quotes should be"),
        ("{\"a\":\"x\ty\"}", "not JSON, at byte 7: control character 0x09 in text; it must be escaped"),
        ("{\"a\":\"\\ud800\"}", "not JSON, at byte 6: a high surrogate without its low one"),
        ("\u{feff}{}", "not JSON, at byte 0: a byte order mark, which JSON text must not have"),
        ("{\"a\":tru}", "not JSON, at byte 5: `t` where a value should be"),
        ("[1,]", "not JSON, at byte 3: `]` where a value should be"),
        ("{}\0", "not JSON, at byte 2: byte 0x00 where the end should be"),
    ] {
        let decoded = decode_one(row.as_bytes(), &[]).1;
        assert_eq!(decoded.failures.first().map(|failure| failure.text.as_str()), Some(text), "{row:?}");
    }
    let decoded = decode_one(b"{\"a\":\"x\xffy\"}", &[]).1;
    assert_eq!(decoded.failures[0].text, "not JSON, at byte 7: not UTF-8");
}

#[test]
fn a_name_too_long_for_a_document_fails_only_where_the_document_is_wanted() {
    let row = format!("{{\"{}\":1,\"a\":2}}", "x".repeat(70_000));
    assert_eq!(decode_one(row.as_bytes(), &["a"]).1.failures, []);
    assert_eq!(decode_one(row.as_bytes(), &[""]).1.failures.len(), 1);
}

#[test]
fn long_rows_go_the_careful_way() {
    let row = format!("{{\"pad\":\"{}\",\"a\":[true,{}]}}", "é".repeat(100_000), "1,".repeat(50_000) + "2");
    check(&row, "a[50001]", "2");
    check(&row, "a[0]", "true");
}

/// Numbers that look random, the same for every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn space(&mut self, style: usize) -> &'static str {
        match style {
            0 => "",
            1 => " ",
            _ => self.pick(&["", " ", "  ", "\n", "\t ", "\r\n"]),
        }
    }

    fn value(&mut self, depth: usize, style: usize, into: &mut String) {
        match self.below(if depth == 0 { 6 } else { 9 }) {
            0 => into.push_str(self.pick(&["true", "false", "null"])),
            1 | 2 => into.push_str(self.pick(&[
                "0",
                "-0",
                "1",
                "42",
                "-17",
                "1.5",
                "0.001",
                "1e+9",
                "2e-3",
                "1234567890123456789",
                "99999999999999999999.5e+10",
                "12345678",
                "1234567890123456",
            ])),
            3..=5 => self.string(into),
            6 => {
                into.push('[');
                for at in 0..self.below(4) {
                    if at > 0 {
                        into.push(',');
                    }
                    into.push_str(self.space(style));
                    self.value(depth - 1, style, into);
                    into.push_str(self.space(if style == 1 { 0 } else { style }));
                }
                into.push(']');
            }
            _ => self.object(depth - 1, style, into),
        }
    }

    fn object(&mut self, depth: usize, style: usize, into: &mut String) {
        into.push('{');
        for at in 0..self.below(7) {
            if at > 0 {
                into.push(',');
                into.push_str(self.space(style));
            }
            let name = self.pick(&["a", "b", "c", "user", "a long name", "longer_name", "\\u0061", "", "é", "x\\\"y"]);
            into.push_str(&format!("\"{name}\""));
            into.push_str(self.space(if style == 1 { 0 } else { style }));
            into.push(':');
            into.push_str(self.space(style));
            self.value(depth, style, into);
        }
        into.push('}');
    }

    fn string(&mut self, into: &mut String) {
        into.push('"');
        for _ in 0..self.below(5) {
            into.push_str(self.pick(&[
                "a",
                "xyz",
                "{",
                "}",
                ",",
                ":",
                " ",
                "\\\"",
                "\\\\",
                "\\n",
                "\\u20ac",
                "\\ud83d\\ude00",
                "ü",
                "some longer text",
            ]));
        }
        into.push('"');
    }
}

const PATHS: [&str; 11] =
    ["", "a", "b", "a.b", "user", "user.a", "user.b[1]", "c[0].a", "longer_name", "[\"a long name\"]", "[0]"];

fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    tamis_guest::path::parse(path).unwrap().iter().try_fold(value, |value, step| match step {
        tamis_guest::path::Step::Member(name) => value.as_object()?.get(name),
        tamis_guest::path::Step::Element(number) => value.as_array()?.get(*number as usize),
    })
}

/// Rows in one batch, against serde_json, and the fast way against the careful one.
fn check_batch(decoder: &mut Decoder, rows: &[Vec<u8>]) {
    let payloads = column(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let decoded = decoder.decode(&payloads);
    // A tab at the end changes nothing, but sends the row the careful way.
    let slow: Vec<Vec<u8>> = rows.iter().map(|row| [row.as_slice(), b"\t"].concat()).collect();
    let slow = column(&slow.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let careful = decoder.decode(&slow);
    for (row, bytes) in rows.iter().enumerate() {
        let shown = String::from_utf8_lossy(bytes);
        let failed = |decoded: &Decoded| decoded.failures.iter().any(|failure| failure.row == row as u32);
        let expected: Option<Value> = serde_json::from_slice(bytes).ok();
        assert_eq!(!failed(&decoded), expected.is_some(), "{shown}");
        assert_eq!(failed(&decoded), failed(&careful), "{shown}");
        for (column, path) in PATHS.iter().enumerate() {
            let cell = decoded.cell(&payloads, column, row);
            let expected = expected.as_ref().and_then(|value| at(value, path));
            assert_eq!(value(cell).as_ref(), expected, "{path} of {shown}");
            assert_eq!(cell, careful.cell(&slow, column, row), "{path} of {shown}");
        }
    }
}

#[test]
fn random_documents_agree_with_serde_json() {
    let mut random = Random(11);
    let mut decoder = decoder(&PATHS);
    for round in 0..1_500 {
        let rows: Vec<Vec<u8>> = (0..8)
            .map(|_| {
                let mut text = String::new();
                match random.below(8) {
                    0 => random.value(3, round % 3, &mut text),
                    _ => random.object(3, round % 3, &mut text),
                }
                text.into_bytes()
            })
            .collect();
        check_batch(&mut decoder, &rows);
    }
}

#[test]
fn damaged_documents_agree_with_serde_json() {
    let mut random = Random(13);
    let mut decoder = decoder(&PATHS);
    for round in 0..3_000 {
        let rows: Vec<Vec<u8>> = (0..8)
            .map(|_| {
                let mut text = String::new();
                random.object(3, round % 3, &mut text);
                let mut row = text.into_bytes();
                for _ in 0..random.below(3) {
                    let place = random.below(row.len() + 1);
                    let byte = b"\"\\{}[]:,0-.eE+ \n\0\xff\xc3tfnua1 "[random.below(26)];
                    match random.below(3) {
                        0 => row.insert(place, byte),
                        1 if place < row.len() => row[place] = byte,
                        _ if place < row.len() => drop(row.remove(place)),
                        _ => row.truncate(place / 2),
                    }
                }
                row
            })
            .collect();
        check_batch(&mut decoder, &rows);
    }
}

#[test]
fn what_is_encoded_reads_back() {
    let mut random = Random(17);
    let mut decoder = decoder(&[""]);
    for round in 0..1_000 {
        let mut text = String::new();
        random.value(3, round % 3, &mut text);
        let payloads = column(&[text.as_bytes()]);
        let decoded = decoder.decode(&payloads);
        let mut documents = Column::with_capacity(1, 0);
        documents.push(decoded.cell(&payloads, 0, 0));
        let (encoded, failures) = encode(&documents);
        assert_eq!(failures, []);
        if decoded.columns[0].kinds[0] == kind::NULL {
            assert_eq!(encoded.kinds, [kind::NULL]);
            continue;
        }
        // The same text but for white space and escapes; serde_json does not escape more than it must either.
        let expected: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(String::from_utf8_lossy(encoded.cell(0).bytes), expected.to_string());
    }
}

#[test]
fn scalar_cells_are_encoded() {
    let mut cells = Column::with_capacity(0, 0);
    cells.push_i64(kind::INT64, i64::MIN);
    cells.push_i64(kind::TIMESTAMP, 0);
    cells.push_f64(1.5);
    cells.push_f64(1e300);
    cells.push_f64(-0.0);
    cells.push_bytes(kind::FLOAT32, &f64::from(0.1f32).to_le_bytes());
    cells.push_bool(true);
    cells.push(Cell::text("a\"\\\n\u{1}\u{7f}é/"));
    cells.push(Cell { kind: kind::NUMBER, bytes: b"1.50" });
    cells.push(Cell::NULL);
    cells.push(Cell::MISSING);
    cells.push(Cell::bytes(b"x"));
    cells.push_f64(f64::NAN);
    cells.push_f64(f64::INFINITY);
    let (encoded, failures) = encode(&cells);
    let texts: Vec<_> = (0..9).map(|row| String::from_utf8_lossy(encoded.cell(row).bytes).into_owned()).collect();
    assert_eq!(
        texts,
        ["-9223372036854775808", "0", "1.5", "1e300", "-0.0", "0.1", "true", "\"a\\\"\\\\\\n\\u0001\u{7f}é/\"", "1.50"]
    );
    assert_eq!(encoded.kinds[9..], [kind::NULL; 5]);
    assert_eq!(failures.iter().map(|failure| failure.row).collect::<Vec<_>>(), [11, 12, 13]);
    assert_eq!(encoded.offsets.len(), 15);
}
