//! Writes into a file what came out (`tamis test --bless`): rows that were expected and came stay as they are written,
//! with the comments before them; the others are taken out or put in. Counters get their numbers. Nothing else of the
//! file changes.

use std::collections::BTreeMap;

use super::heard::HeardRow;
use super::judge::{Judge, route_of};
use super::{Expected, Test};
use crate::chain::Route;
use crate::config::node::{Node, Span};

/// A part of a file and what stands there from now on: a range of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// First byte.
    pub start: usize,
    /// Behind the last byte.
    pub end: usize,
    /// The new text.
    pub text: String,
}

/// The text with some of its parts replaced; they must not overlap.
pub fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| std::cmp::Reverse(edit.start));
    let mut text = text.to_owned();
    for edit in edits {
        text.replace_range(edit.start..edit.end, &edit.text);
    }
    text
}

/// What of the expected rows stays, and what else came, in the order of the new list.
enum Line {
    Kept(usize),
    Gone(usize),
    New(String),
}

/// The edits that make a test expect what came. `node`: the test as written, in `text`. `Err`: it cannot be said in the
/// form in which it is written; the text says how it could.
pub fn edits(
    judge: &mut Judge<'_>,
    counters: &BTreeMap<String, u64>,
    node: &Node,
    text: &str,
) -> Result<Vec<Edit>, String> {
    let test = judge.test;
    if test.contains || !test.exactly_once || test.table.is_some() {
        return Err(
            "with `match: contains`, `delivery: at-least-once` or a `table` somebody must say what counts".into()
        );
    }
    if test.output.iter().any(|row| matches!(row, Expected::Series(_))) {
        return Err("rows of a `series` are not written out".into());
    }
    let mut edits = Vec::new();
    if let Some(written) = node.get("counters") {
        for (name, _, value) in written.as_map().unwrap_or_default() {
            if let Some(n) = counters.get(name).filter(|n| value.as_integer() != i64::try_from(**n).ok()) {
                edits.push(Edit { start: value.span.start, end: value.span.end, text: n.to_string() });
            }
        }
    }
    let lines = lined_up(judge);
    if lines.iter().any(|line| !matches!(line, Line::Kept(_))) {
        edits.push(output(test, node, text, &lines)?);
    }
    Ok(edits)
}

/// Route by route a longest common subsequence of what is expected and what came, put together in the order of the test.
fn lined_up(judge: &mut Judge<'_>) -> Vec<Line> {
    let (test, heard) = (judge.test, judge.heard);
    let mut gone = vec![false; test.output.len()];
    // What comes behind an expected row, or before the first of its route; at the end where a route expects none.
    let mut behind: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut before: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut at_the_end = Vec::new();
    for route in [Route::Main, Route::Late, Route::DeadLetter, Route::Duplicates] {
        let expected: Vec<usize> = (0..test.output.len()).filter(|&at| route_of(&test.output[at]) == route).collect();
        if route == Route::Duplicates && expected.is_empty() {
            continue;
        }
        let came: Vec<&HeardRow> = heard.rows.iter().filter(|row| row.route == route).collect();
        let mut same = vec![vec![false; came.len()]; expected.len()];
        let mut length = vec![vec![0u32; came.len() + 1]; expected.len() + 1];
        for i in (0..expected.len()).rev() {
            for j in (0..came.len()).rev() {
                same[i][j] = judge.is_same(&test.output[expected[i]], came[j]);
                length[i][j] =
                    if same[i][j] { length[i + 1][j + 1] + 1 } else { length[i + 1][j].max(length[i][j + 1]) };
            }
        }
        let (mut i, mut j) = (0, 0);
        while i < expected.len() || j < came.len() {
            if i < expected.len() && j < came.len() && same[i][j] {
                (i, j) = (i + 1, j + 1);
            } else if i < expected.len() && (j == came.len() || length[i + 1][j] >= length[i][j + 1]) {
                gone[expected[i]] = true;
                i += 1;
            } else {
                let row = judge.show_heard(came[j]);
                match (i.checked_sub(1).and_then(|i| expected.get(i)), expected.first()) {
                    (Some(&last), _) => behind.entry(last).or_default().push(row),
                    (None, Some(&first)) => before.entry(first).or_default().push(row),
                    (None, None) => at_the_end.push(row),
                }
                j += 1;
            }
        }
    }
    let mut lines = Vec::new();
    for (at, gone) in gone.into_iter().enumerate() {
        lines.extend(before.remove(&at).unwrap_or_default().into_iter().map(Line::New));
        lines.push(if gone { Line::Gone(at) } else { Line::Kept(at) });
        lines.extend(behind.remove(&at).unwrap_or_default().into_iter().map(Line::New));
    }
    lines.extend(at_the_end.into_iter().map(Line::New));
    lines
}

/// The edit of the list `output`.
fn output(test: &Test, node: &Node, text: &str, lines: &[Line]) -> Result<Edit, String> {
    let source = |span: Span| text.get(span.start..span.end).unwrap_or_default();
    if source(test.span).starts_with('{') {
        return Err("a test in braces stays as it is: write its members on lines of their own".into());
    }
    let Some(written) = node.get("output") else {
        let (Some(key), Some(input)) = (node.key_span("input"), node.get("input")) else {
            return Err("a test without `input` has no rows".into());
        };
        let end = line_end(text, input.span.end.saturating_sub(1));
        let indent = " ".repeat(key.column as usize - 1);
        let rows = rows_of(text, &[], lines, &format!("{indent}  "));
        return Ok(Edit { start: end, end, text: format!("\n{indent}output:\n{}", rows.trim_end_matches('\n')) });
    };
    let items = written.as_list().unwrap_or_default();
    let in_brackets = source(written.span).starts_with('[');
    if source(written.span).starts_with('*') || (in_brackets && !items.is_empty()) {
        return Err("rows in brackets, or that stand elsewhere, stay as they are: write one a line".into());
    }
    let key = node.key_span("output").unwrap_or_default();
    let colon = text[key.end..].find(':').map_or(key.end, |at| key.end + at + 1);
    if items.is_empty() {
        let rows = rows_of(text, &[], lines, &" ".repeat(key.column as usize + 1));
        let rest = &text[colon..line_end(text, colon)];
        let end =
            if rest.trim_start().starts_with('[') { rest.find(']').map_or(colon, |at| colon + at + 1) } else { colon };
        return Ok(Edit { start: colon, end, text: format!("\n{}", rows.trim_end_matches('\n')) });
    }
    let segments = segments(text, items);
    let (start, end) = (segments[0].0, segments[segments.len() - 1].2);
    let first = &text[line_start(text, items[0].span.start)..];
    let indent: String = first.chars().take_while(|c| *c == ' ').collect();
    let mut rows = rows_of(text, &segments, lines, &indent);
    if rows.trim().is_empty() {
        // A list without rows still says that there are none.
        rows = format!(" []\n{rows}");
        return Ok(Edit { start: colon, end, text: rows });
    }
    Ok(Edit { start, end, text: rows })
}

/// Each item with what stands before it on lines of its own: start, start of its own first line, end behind its last.
fn segments(text: &str, items: &[Node]) -> Vec<(usize, usize, usize)> {
    let mut segments: Vec<(usize, usize, usize)> = Vec::new();
    for item in items {
        let first = line_start(text, item.span.start);
        let end = (line_end(text, item.span.end.saturating_sub(1)) + 1).min(text.len());
        segments.push((segments.last().map_or(first, |before| before.2.min(first)), first, end));
    }
    segments
}

/// The rows of the new list, each on lines of its own.
fn rows_of(text: &str, segments: &[(usize, usize, usize)], lines: &[Line], indent: &str) -> String {
    let mut rows = String::new();
    for line in lines {
        match line {
            Line::Kept(at) => {
                let &(start, _, end) = &segments[*at];
                rows.push_str(&text[start..end]);
                if !rows.ends_with('\n') {
                    rows.push('\n');
                }
            }
            // Comments stay.
            Line::Gone(at) => rows.push_str(&text[segments[*at].0..segments[*at].1]),
            Line::New(row) => rows.push_str(&format!("{indent}- {row}\n")),
        }
    }
    rows
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at.min(text.len())].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Where the line break of the line of a byte is.
fn line_end(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    text[at..].find('\n').map_or(text.len(), |newline| at + newline)
}
