#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn cells(cells: &[(u8, &[u8])]) -> Column {
    let mut column = Column { offsets: vec![0], ..Column::default() };
    for (kind, bytes) in cells {
        column.push(*kind, bytes);
    }
    column
}

fn failed(row: u32) -> RowFailure {
    RowFailure { row, category: 2, code: "x".into(), text: String::new() }
}

/// `words`: empty if it is fine, else part of what is said.
fn check(column: &Column, rows: usize, allowed: Allowed, failures: &[RowFailure], words: &str) {
    match super::column("c", column, rows, allowed, failures) {
        Ok(()) => assert_eq!(words, "", "was accepted: {column:?}"),
        Err(Breach(text)) => assert!(!words.is_empty() && text.contains(words), "{text} / {words}"),
    }
}

fn written(cell: (u8, &[u8]), words: &str) {
    check(&cells(&[cell]), 1, Allowed::Written, &[], words);
}

#[test]
fn the_form_of_a_column_is_checked_before_anything_is_read() {
    let good = cells(&[(kind::TEXT, b"ab"), (kind::NULL, b""), (kind::INT64, &7i64.to_le_bytes())]);
    assert_eq!(good.offsets, [0, 2, 2, 10]);
    check(&good, 3, Allowed::Written, &[], "");
    check(&good, 2, Allowed::Written, &[], "3 in place of 2");
    let with = |change: &dyn Fn(&mut Column), words: &str| {
        let mut bad = good.clone();
        change(&mut bad);
        check(&bad, 3, Allowed::Written, &[failed(0), failed(1), failed(2)], words);
    };
    with(&|c| c.offsets = vec![], "0 offsets for 3 rows");
    with(&|c| c.offsets = vec![0, 2, 10], "3 offsets for 3 rows");
    with(&|c| c.offsets = vec![1, 2, 2, 10], "first offset");
    with(&|c| c.offsets = vec![0, 11, 2, 10], "offsets fall");
    with(&|c| c.offsets = vec![0, 2, 2, 9], "last offset");
    with(&|c| c.offsets = vec![0, 2, 2, u32::MAX], "last offset");
    with(&|c| c.kinds = vec![kind::TEXT], "1 in place of 3");
}

#[test]
fn without_rows_the_offsets_may_be_left_out() {
    check(&Column::default(), 0, Allowed::Key, &[], "");
    check(&cells(&[]), 0, Allowed::Key, &[], "");
    check(&Column { data: vec![1], ..Column::default() }, 0, Allowed::Key, &[], "offsets");
    check(&Column { offsets: vec![0, 0], ..Column::default() }, 0, Allowed::Key, &[], "offsets");
}

#[test]
fn every_kind_has_its_size() {
    for kind in 0..=255u8 {
        let fits = |n: usize| column("c", &cells(&[(kind, &vec![0; n][..])]), 1, Allowed::Written, &[]).is_ok();
        let sizes: Vec<usize> = (0..=9).filter(|&n| fits(n)).collect();
        let wants: Vec<usize> = match kind {
            0x00..=0x02 => vec![0],
            0x10 => vec![1],
            0x20..=0x23 | 0x28..=0x2a | 0x30 | 0x31 => vec![8],
            // Zero bytes are text and bytes, but no number and no document.
            0x40 | 0x50 => (0..=9).collect(),
            _ => vec![],
        };
        assert_eq!(sizes, wants, "kind {kind:#04x}");
    }
}

#[test]
fn a_use_allows_some_kinds_only() {
    let one = |kind: u8, bytes: &[u8], allowed, words| check(&cells(&[(kind, bytes)]), 1, allowed, &[], words);
    one(kind::UNCHANGED, b"", Allowed::Written, "");
    one(kind::UNCHANGED, b"", Allowed::Key, "may not stand there");
    one(kind::UNCHANGED, b"", Allowed::Decoded, "may not stand there");
    one(kind::MAP, b"", Allowed::Key, "may not stand there");
    one(kind::NUMBER, b"1", Allowed::Key, "");
    one(kind::TEXT, b"a", Allowed::Payload, "may not stand there");
    one(kind::MISSING, b"", Allowed::Payload, "may not stand there");
    one(kind::BYTES, b"\xff", Allowed::Payload, "");
    one(0x24, b"", Allowed::Written, "0x24 is reserved");
}

#[test]
fn a_boolean_is_0_or_1() {
    written((kind::BOOLEAN, &[1]), "");
    written((kind::BOOLEAN, &[2]), "neither 0 nor 1");
}

#[test]
fn text_is_utf8_cell_by_cell() {
    let e = "é".as_bytes();
    written((kind::TEXT, e), "");
    written((kind::TEXT, b"\xc3"), "not UTF-8");
    // As a whole it is UTF-8, but a cell ends within a character.
    check(&cells(&[(kind::TEXT, &e[..1]), (kind::TEXT, &e[1..])]), 2, Allowed::Written, &[], "row 0: its text");
    check(&cells(&[(kind::TEXT, e), (kind::NULL, b""), (kind::TEXT, e)]), 3, Allowed::Written, &[], "");
    check(&cells(&[(kind::BYTES, &e[..1]), (kind::TEXT, e), (kind::BYTES, &e[1..])]), 3, Allowed::Written, &[], "");
    check(&cells(&[(kind::BYTES, &e[..1]), (kind::TEXT, &e[1..])]), 2, Allowed::Written, &[], "row 1: its text");
    check(&cells(&[(kind::TEXT, b"a"), (kind::NULL, b"b")]), 2, Allowed::Written, &[], "row 1: a cell of kind 0x01");
}

#[test]
fn numbers_are_those_of_json() {
    for good in ["0", "-0", "1.50", "2e9", "-12.5E-3", "10", "0.0", "1e+05", "123456789012345678901234567890"] {
        written((kind::NUMBER, good.as_bytes()), "");
    }
    for bad in
        ["", "-", "01", "-01", "1.", ".5", "+1", "1e", "1e+", "1.5.2", "0x1", "1 ", " 1", "NaN", "1e5x", "--1", "é"]
    {
        written((kind::NUMBER, bad.as_bytes()), "JSON syntax");
    }
}

#[test]
fn a_document_is_checked_whole_and_is_of_its_cells_kind() {
    // One node: an empty map.
    let mut document = vec![1, 0, 0, 0, 1, 0, 0, 0, kind::MAP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    written((kind::MAP, &document), "");
    written((kind::ARRAY, &document), "holds a document of kind 0x61");
    document[20] = 9;
    written((kind::MAP, &document), "malformed");
    written((kind::MAP, b""), "malformed");
}

#[test]
fn cells_of_failed_rows_do_not_count_but_their_offsets_do() {
    let column = cells(&[(kind::TEXT, b"\xff"), (0x99, b"abc"), (kind::TEXT, b"ok")]);
    check(&column, 3, Allowed::Key, &[failed(1), failed(0)], "");
    check(&column, 3, Allowed::Key, &[failed(1)], "row 0");
    check(&column, 3, Allowed::Key, &[failed(0)], "row 1");
}

/// Spans over a payload of 6 bytes ("ab\xffcdé" without its last byte is never whole) and a heap of 4.
fn check_spans(kinds: &[u8], spans: &[u32], failures: &[RowFailure], words: &str) {
    let column = DecodedColumn { kinds: kinds.to_vec(), spans: spans.to_vec() };
    match super::spans(0, &column, 2, b"ab\xffcd1", b"heap", failures) {
        Ok(()) => assert_eq!(words, "", "was accepted: {column:?}"),
        Err(Breach(text)) => assert!(!words.is_empty() && text.contains(words), "{text} / {words}"),
    }
}

#[test]
fn spans_lie_in_the_payloads_or_in_the_heap_but_not_across() {
    let text = [kind::TEXT, kind::TEXT];
    check_spans(&text, &[0, 2, 6, 4], &[], "");
    check_spans(&text, &[3, 3, 10, 0], &[], "");
    check_spans(&text, &[6, 0, 7, 3], &[], "");
    check_spans(&text, &[0, 2, 5, 2], &[], "in neither");
    check_spans(&text, &[0, 2, 6, 5], &[], "in neither");
    check_spans(&text, &[0, 2, u32::MAX, u32::MAX], &[], "in neither");
    check_spans(&text, &[0, 2, 11, 0], &[failed(1)], "in neither");
    check_spans(&text, &[0, 2], &[], "spans: 2 in place of 4");
    check_spans(&text[..1], &[0, 2, 0, 2], &[], "1 in place of 2");
}

#[test]
fn what_spans_point_at_is_checked_too() {
    check_spans(&[kind::TEXT, kind::BYTES], &[0, 3, 2, 1], &[], "row 0: its text");
    check_spans(&[kind::BYTES, kind::NUMBER], &[0, 3, 5, 1], &[], "");
    check_spans(&[kind::UNCHANGED, kind::NULL], &[0, 0, 0, 0], &[], "0x02 may not stand there");
    check_spans(&[kind::NULL, kind::MISSING], &[0, 1, 0, 0], &[], "row 0: a cell of kind 0x01");
    check_spans(&[kind::TEXT, kind::NULL], &[0, 3, 0, 0], &[failed(0)], "");
}
