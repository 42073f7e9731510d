//! A pipeline with settings of one stage replaced, as tests and restarts in them do (pipeline-file 14.1).

use super::build;
use super::check::check;
use super::diagnostic::Diagnostic;
use super::node::{Node, NodeKind};
use super::pipeline::Pipeline;
use super::table::Kind;
use super::tables;

/// What replaces what; as written.
#[derive(Clone, Debug, Default)]
pub struct Replacements {
    /// Parameters, member by member at the first level; null removes one.
    pub with: Option<Node>,
    /// The key as a whole; null removes it.
    pub key: Option<Node>,
    /// The scope; null removes it.
    pub scope: Option<Node>,
    /// `state` as a whole; null removes it.
    pub state: Option<Node>,
    /// Members of the file's `time`, one by one; null removes one.
    pub time: Option<Node>,
}

impl Replacements {
    /// The five members of a test, or of a `restart:`.
    pub fn of(node: &Node) -> Replacements {
        let member = |name: &str| node.get(name).cloned();
        Replacements {
            with: member("with"),
            key: member("key"),
            scope: member("scope"),
            state: member("state"),
            time: member("time"),
        }
    }
}

impl Pipeline {
    /// The stage a test speaks of when it does not say: the first `dedup` stage, else the only one.
    pub fn default_stage(&self) -> Option<&str> {
        let dedup = self.stages.iter().find(|s| s.uses.name == "dedup" || s.uses.name.starts_with("dedup@"));
        let only = match self.stages.as_slice() {
            [only] => Some(only),
            _ => None,
        };
        dedup.or(only).map(|s| s.id.as_str())
    }

    /// With settings of a stage replaced; all that is wrong with them otherwise.
    pub fn replace(&self, stage: Option<&str>, by: &Replacements) -> Result<Pipeline, Vec<Diagnostic>> {
        let mut findings = Vec::new();
        let mut replaced = self.clone();
        if let Some(over) = by.time.as_ref() {
            let node = merged_time(self.time.node.as_ref(), over);
            check(&node, &Kind::Map(&tables::TIME), "time", &mut findings);
            replaced.time = build::time(Some(&node), &mut findings);
        }
        let touched = by.with.is_some() || by.key.is_some() || by.scope.is_some() || by.state.is_some();
        if let Some(place) = stage.and_then(|id| replaced.stages.iter().position(|s| s.id == id)).filter(|_| touched) {
            let old = &replaced.stages[place];
            let mut node = old.node.clone();
            if let Some(over) = &by.with {
                let empty = Node::new(over.span, NodeKind::Map(Vec::new()));
                let with = node.get("with").filter(|n| !n.is_null()).unwrap_or(&empty).merged(over);
                node = node.with_member("with", over.span, Some(with));
            }
            for (name, value) in [("key", &by.key), ("scope", &by.scope), ("state", &by.state)] {
                if let Some(value) = value {
                    node = node.with_member(name, value.span, (!value.is_null()).then(|| value.clone()));
                }
            }
            check(&node, &Kind::Map(&tables::STAGE), "a stage", &mut findings);
            let mut new = build::stage(&node, &mut findings);
            new.id = old.id.clone();
            replaced.stages[place] = new;
        } else if touched {
            findings.push(Diagnostic::new(
                super::diagnostic::Severity::Error,
                "P-VALUE",
                by.with.as_ref().or(by.key.as_ref()).map(|n| n.span),
                match stage {
                    Some(id) => format!("there is no stage `{id}`"),
                    None => "several stages, and none is named: say which with `stage`".to_string(),
                },
            ));
        }
        for finding in &mut findings {
            finding.file = self.file.clone();
        }
        if findings.iter().any(Diagnostic::is_error) { Err(findings) } else { Ok(replaced) }
    }
}

/// Members of the file's `time` replaced; on both sides a plain path stands for `field`.
fn merged_time(written: Option<&Node>, over: &Node) -> Node {
    let as_map = |node: &Node| match node.as_map() {
        Some(_) => node.clone(),
        None => Node::new(node.span, NodeKind::Map(vec![("field".to_string(), node.span, node.clone())])),
    };
    match written {
        _ if over.is_null() => Node::new(over.span, NodeKind::Map(Vec::new())),
        Some(written) if !written.is_null() => as_map(written).merged(&as_map(over)),
        _ => Node::new(over.span, NodeKind::Map(Vec::new())).merged(&as_map(over)),
    }
}
