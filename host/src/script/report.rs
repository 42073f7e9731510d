//! How the verdict on a test reads: what was expected (`-`) and what came (`+`), route by route.

use serde_json::{Value, json};

use super::judge::{Difference, Line};
use super::suite::{Reason, Verdict};
use crate::config::diagnostic::Diagnostic;

/// Why a test failed or could not be run, as text; empty if it passed. `finding`: how a finding of the plan is shown.
pub fn text(verdict: &Verdict, colour: bool, finding: &dyn Fn(&Diagnostic) -> String) -> String {
    let mut text = String::new();
    let mut line = |line: &str| {
        for line in line.lines() {
            text.push_str("    ");
            text.push_str(line);
            text.push('\n');
        }
    };
    match verdict {
        Verdict::Passed => {}
        Verdict::Skipped(note) => line(note),
        Verdict::NotRunnable(findings) => findings.iter().for_each(|f| line(&finding(f))),
        Verdict::Failed(reasons) => {
            for reason in reasons {
                match reason {
                    Reason::Said(sentence) => line(sentence),
                    Reason::Found(sentence, findings) => {
                        line(sentence);
                        findings.iter().for_each(|f| line(&finding(f)));
                    }
                    Reason::Rows(difference) => line(&rows(difference, colour)),
                }
            }
        }
    }
    text
}

fn rows(difference: &Difference, colour: bool) -> String {
    let mut text = format!("{} (- expected, + got)", difference.route);
    for line in &difference.lines {
        let (sign, paint, row) = match line {
            Line::Same(row) => (' ', "", row),
            Line::Missing(row) => ('-', "31", row),
            Line::Unexpected(row) => ('+', "32", row),
            Line::Note(note) => ('.', "2", note),
        };
        if colour && !paint.is_empty() {
            text.push_str(&format!("\n  \x1b[{paint}m{sign} {row}\x1b[0m"));
        } else {
            text.push_str(&format!("\n  {sign} {row}"));
        }
    }
    text
}

/// The verdict for `--json`. `finding`: a finding of the plan as JSON.
pub fn value(verdict: &Verdict, finding: &dyn Fn(&Diagnostic) -> Value) -> Value {
    let findings = |findings: &[Diagnostic]| findings.iter().map(finding).collect::<Vec<Value>>();
    match verdict {
        Verdict::Passed => json!({ "outcome": "passed" }),
        Verdict::Skipped(note) => json!({ "outcome": "skipped", "note": note }),
        Verdict::NotRunnable(why) => json!({ "outcome": "not-runnable", "findings": findings(why) }),
        Verdict::Failed(reasons) => {
            let reasons: Vec<Value> = reasons
                .iter()
                .map(|reason| match reason {
                    Reason::Said(sentence) => json!({ "message": sentence }),
                    Reason::Found(sentence, why) => json!({ "message": sentence, "findings": findings(why) }),
                    Reason::Rows(difference) => {
                        let lines: Vec<Value> = difference.lines.iter().map(line_value).collect();
                        json!({ "route": difference.route, "rows": lines })
                    }
                })
                .collect();
            json!({ "outcome": "failed", "reasons": reasons })
        }
    }
}

fn line_value(line: &Line) -> Value {
    match line {
        Line::Same(row) => json!({ "same": row }),
        Line::Missing(row) => json!({ "expected": row }),
        Line::Unexpected(row) => json!({ "got": row }),
        Line::Note(note) => json!({ "note": note }),
    }
}
