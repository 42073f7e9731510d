//! The pipeline file: what was written (`node`), what is meant (`pipeline`), and how to say what is wrong.

use std::sync::Arc;

use diagnostic::Diagnostic;
use pipeline::Pipeline;
use secrets::Secrets;
use variables::Environment;

pub mod build;
pub mod check;
pub mod diagnostic;
pub mod ends;
pub mod filled;
pub mod guests;
pub mod kafka;
pub mod keys;
pub mod node;
pub mod params;
pub mod path;
pub mod pipeline;
pub mod replace;
pub mod schema;
pub mod secrets;
pub mod section;
pub mod table;
pub mod tables;
pub mod values;
pub mod variables;
pub mod yaml;

/// Text to a pipeline. Err: everything that is wrong with it, and the pipeline as far as it can be told, to look for more.
pub fn read(
    text: &str,
    file: Option<&Arc<std::path::Path>>,
    environment: Environment<'_>,
) -> Result<Pipeline, (Vec<Diagnostic>, Option<Box<Pipeline>>)> {
    let (root, mut findings) = yaml::parse(text, file, environment).map_err(|findings| (findings, None))?;
    let (mut pipeline, more) = build::build(&root, file);
    findings.extend(more);
    if let Some(pipeline) = &mut pipeline {
        let mut missing = Vec::new();
        pipeline.secrets = Secrets::read(pipeline, environment, &mut missing);
        for finding in &mut missing {
            finding.file = file.cloned();
        }
        findings.extend(missing);
    }
    match pipeline {
        Some(mut pipeline) if !findings.iter().any(Diagnostic::is_error) => {
            pipeline.findings = findings;
            Ok(pipeline)
        }
        pipeline => Err((findings, pipeline.map(Box::new))),
    }
}

/// The name nearest to a misspelt one, if any is near: at most a third of its letters differ.
pub fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    names
        .map(|name| (distance(&word.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= limit && *distance < name.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Edit distance with swaps of neighbours counted as one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let mut best = (above[j] + usize::from(a[i] != b[j])).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_not() {
        let names = ["window", "keep", "lateness", "late"];
        for (word, wanted) in [
            ("windw", Some("window")),
            ("kepe", Some("keep")),
            ("latness", Some("lateness")),
            ("zone", None),
            ("ttl", None),
        ] {
            assert_eq!(nearest(word, names.into_iter()), wanted, "{word}");
        }
    }
}
