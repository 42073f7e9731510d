//! `explain`: what a code means, and the way out.

use serde_json::{Value, json};

use super::codes::{self, Entry};
use super::exit::Failure;
use super::output::{Reply, Session};
use crate::config::nearest;

/// Arguments of `explain`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A code such as P-UNIT, D-NO1, W-IDLE, null_key; without one, all are listed
    #[arg(value_name = "CODE")]
    pub code: Option<String>,
}

/// The verb.
pub fn main(args: &Args, _session: &mut Session) -> Result<Reply, Failure> {
    let Some(code) = &args.code else {
        let text: String = everything().map(|entry| format!("{:<17} {}\n", entry.code, entry.when)).collect();
        let entries: Vec<Value> = everything().map(json_of).collect();
        return Ok(Reply::new(text, json!({ "codes": entries })));
    };
    match codes::find(code) {
        Some(entry) => Ok(Reply::new(text_of(entry), json_of(entry))),
        None => {
            let failure = Failure::invalid(format!("there is no code `{code}`"));
            let begins = everything().map(|e| e.code).find(|c| c.starts_with(&code.to_uppercase()));
            Err(match begins.or_else(|| nearest(code, everything().map(|e| e.code))) {
                Some(near) => failure.help(format!("perhaps {near}")),
                None => failure.help("`tamis explain` lists them all"),
            })
        }
    }
}

/// What is said of files and of records.
fn everything() -> impl Iterator<Item = &'static Entry> {
    codes::all().chain(codes::failures())
}

fn text_of(entry: &Entry) -> String {
    let kind = match entry.code.as_bytes().first() {
        Some(b'W') => "warning",
        Some(first) if first.is_ascii_lowercase() => "failure of a record",
        _ => "refused",
    };
    let mut text =
        format!("{}  {kind}: {}\n\n{}\n\nThe way out:\n", entry.code, entry.when, wrapped(entry.reason, 100));
    for way in entry.ways {
        text.push_str(&format!("  - {way}\n"));
    }
    if !entry.rules.is_empty() {
        text.push_str(&format!("\nRules: {}\n", entry.rules.join(", ")));
    }
    text
}

fn json_of(entry: &Entry) -> Value {
    json!({ "code": entry.code, "when": entry.when, "reason": entry.reason, "ways": entry.ways, "rules": entry.rules })
}

fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut length = 0;
    for word in text.split(' ') {
        if length > 0 && length + 1 + word.len() > width {
            out.push('\n');
            length = 0;
        } else if length > 0 {
            out.push(' ');
            length += 1;
        }
        out.push_str(word);
        length += word.len();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_reason_and_a_way_out() {
        for entry in everything() {
            assert!(!entry.reason.is_empty() && !entry.ways.is_empty(), "{}", entry.code);
            assert_eq!(everything().filter(|e| e.code == entry.code).count(), 1, "{}", entry.code);
        }
    }

    #[test]
    fn every_code_of_the_specification_is_known() {
        const CODES: &str = "P-SYNTAX P-UNKNOWN P-MISSING P-VALUE P-UNIT P-PATH P-VARIABLE P-OWNED P-TIMESTAMP P-GUEST P-CHAIN \
            P-EXCHANGE P-LATER P-RESTART P-SQL D-NO1 D-NO2 D-NO3 D-EMPTY-KEY D-NULL-PASS D-LATE-PASS D-LATENESS D-UNBOUNDED D-RETENTION \
            D-BATCH-WAIT D-CHANGELOG D-STEP D-ZONE D-REFRESH D-EMIT D-WINDOW-KEY D-DELAY D-KEY-CHANGED D-ORDER-CHANGED \
            D-WINDOW-CHANGED W-CYCLIC-KEY W-DEPENDENT-KEY W-IDLE W-SCOPE W-ARRIVAL W-WINDOW-KEY W-REPEATS W-SESSION \
            W-WALL-CLOCK W-FIRST-ARRIVAL W-ALIGNED W-UNBOUNDED W-LATE W-NULL W-SAME W-ID W-QUOTED W-SQL W-RETENTION";
        for code in CODES.split_whitespace() {
            assert!(codes::find(code).is_some(), "{code}");
        }
        assert_eq!(CODES.split_whitespace().count(), codes::all().count());
    }
}
