//! Key parts that tell no records apart, or too few (K14).

use super::{Computed, Plan, Planned};
use crate::config::diagnostic::Diagnostic;
use crate::config::path::Path;
use crate::config::pipeline::{KeyForm, Part, Stage};

/// Warns of parts of a stage's key that stages before it compute.
pub(super) fn computed(plan: &Plan, planned: &Planned, stage: &Stage, findings: &mut Vec<Diagnostic>) {
    let Some(KeyForm::Fields(parts)) = planned.key.as_ref().map(|key| &key.key.form) else { return };
    let before = plan.stages.iter().take_while(|before| before.id != planned.id);
    let all: Vec<(&Planned, &Computed)> =
        before.flat_map(|before| before.traits.computed.iter().map(move |computed| (before, computed))).collect();
    for (number, part) in parts.iter().enumerate() {
        // The last stage that writes it says what it is.
        let Some((by, computed)) = all.iter().rev().find(|(_, c)| part.path.is_within(&c.column)) else { continue };
        let span = super::judge::part_span(stage, number);
        if let Some(function) = &computed.cyclic {
            let of = names(&computed.from);
            let text = format!(
                "`{}` is the {function} of {of} (stage `{}`): records of different days share it",
                part.path, by.id
            );
            findings.push(
                Diagnostic::warning("W-CYCLIC-KEY", span, text)
                    .help("a tumbling window instead: `window: { tumbling: 1h }`")
                    .help("the whole date in the key"),
            );
        }
        let stands =
            |from: &Path| parts.iter().any(|other: &Part| !std::ptr::eq(other, part) && from.is_within(&other.path));
        if !computed.from.is_empty() && computed.from.iter().all(stands) {
            let text = format!(
                "`{}` is decided by {} (stage `{}`): it tells no more records apart",
                part.path,
                names(&computed.from),
                by.id
            );
            findings.push(Diagnostic::warning("W-DEPENDENT-KEY", span, text).help("leave it out"));
        }
    }
}

fn names(paths: &[Path]) -> String {
    paths.iter().map(|path| format!("`{path}`")).collect::<Vec<String>>().join(", ")
}
