//! The tests of one file, run one by one: a plan for each, two runs, a verdict.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::bless::{self, Edit};
use super::cells::Reader;
use super::heard::Heard;
use super::judge::{self, Difference, Judge, Line};
use super::play::{Cuts, End, Planner, Played, play};
use super::source::{Dice, inputs};
use super::{Replace, Test, read};
use crate::chain::Route;
use crate::config::diagnostic::Diagnostic;
use crate::config::node::Span;
use crate::config::pipeline::{Format, Pipeline, Sink};
use crate::plan::{Conditions, Guests, OutputKind, Plan, plan};

/// Findings about source, sink and routes: they count only where a test names them (14.1).
const ENDS: [&str; 4] = ["P-TIMESTAMP", "W-LATE", "W-NULL", "W-WALL-CLOCK"];

/// What became of a test.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// As it should be.
    Passed,
    /// It needs what is not here.
    Skipped(String),
    /// It is not as it should be.
    Failed(Vec<Reason>),
    /// It cannot be run.
    NotRunnable(Vec<Diagnostic>),
}

/// Why a test failed.
#[derive(Clone, Debug)]
pub enum Reason {
    /// A sentence.
    Said(String),
    /// What the plan found.
    Found(String, Vec<Diagnostic>),
    /// Rows differ.
    Rows(Difference),
}

/// The tests of a file.
pub struct Suite<'a> {
    /// The file.
    pub pipeline: &'a Pipeline,
    /// Finds its guests.
    pub guests: &'a (dyn Guests + Sync),
    /// Name, place and content of each test, in order.
    pub tests: Vec<(String, Span, Result<Test, Vec<Diagnostic>>)>,
}

impl<'a> Suite<'a> {
    /// Reads the tests of a pipeline.
    pub fn new(pipeline: &'a Pipeline, guests: &'a (dyn Guests + Sync)) -> Suite<'a> {
        let mut tests: Vec<(String, Span, Result<Test, Vec<Diagnostic>>)> = Vec::new();
        for node in &pipeline.tests {
            let name = node.get("name").and_then(|name| read::text_of(name).ok()).unwrap_or_default();
            let mut test = read::test(node);
            if tests.iter().any(|(other, ..)| *other == name) {
                let span = node.get("name").map_or(node.span, |name| name.span);
                let twice = Diagnostic::error("P-VALUE", span, format!("two tests are called `{name}`"))
                    .help("every test of a file has its own name");
                test = Err(test.err().unwrap_or_default().into_iter().chain([twice]).collect());
            }
            tests.push((name, node.span, test.map_err(|findings| placed(pipeline, findings))));
        }
        Suite { pipeline, guests, tests }
    }

    /// Runs one test.
    pub fn run(&self, test: &Test) -> Verdict {
        if !test.needs.is_empty() {
            return Verdict::Skipped(format!("needs {}", test.needs.join(", ")));
        }
        match self.case(test) {
            Ok(case) => case.run(),
            Err(findings) => Verdict::NotRunnable(placed(self.pipeline, findings)),
        }
    }

    /// The edits of the file's text that make the test expect what comes (`bless`). `Err`: why there are none.
    pub fn bless(&self, number: usize, text: &str) -> Result<Vec<Edit>, String> {
        let (Some((.., Ok(test))), Some(node)) = (self.tests.get(number), self.pipeline.tests.get(number)) else {
            return Err("it cannot be read".into());
        };
        let cannot_run = |_| "it cannot be run".to_owned();
        let case = self.case(test).map_err(cannot_run)?;
        let plan = case.plan(&[], &BTreeMap::new()).map_err(cannot_run)?;
        let played = play(test, &case, &plan, &case.inputs, Cuts::Asked);
        if test.refused.is_some() || case.ending(&played).is_some() || matches!(played.end, End::Refused(_)) {
            return Err("it ends otherwise than it says, which only its author can judge".into());
        }
        let (output, inputs, reader) = (output_of(&plan), &case.inputs, Reader::of(&plan));
        let counters = case.stage.as_ref().and_then(|id| played.counters.get(id)).cloned().unwrap_or_default();
        let mut judge = Judge { heard: &played.heard, test, output, inputs, reader };
        bless::edits(&mut judge, &counters, node, text)
    }

    /// The test with the part of the chain that it runs.
    fn case<'t>(&'t self, test: &'t Test) -> Result<Case<'t>, Vec<Diagnostic>> {
        let mut pipeline = self.pipeline.clone();
        let stages = &mut pipeline.stages;
        let mut wrong = Vec::new();
        let mut find = |named: &Option<(String, Span)>, other: usize| {
            let Some((id, span)) = named else { return other };
            let found = stages.iter().position(|stage| stage.id == *id);
            if found.is_none() {
                let ids: Vec<&str> = stages.iter().map(|stage| stage.id.as_str()).collect();
                let finding = Diagnostic::error("P-VALUE", *span, format!("there is no stage `{id}`"));
                wrong.push(finding.help(format!("the stages are {}", ids.join(", "))));
            }
            found.unwrap_or(other)
        };
        let (first, last) = (find(&test.from, 0), find(&test.to, stages.len().saturating_sub(1)));
        find(&test.stage, 0);
        if first > last {
            wrong.push(Diagnostic::error("P-VALUE", test.span, "`from` stands behind `to`"));
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        stages.truncate(last + 1);
        stages.drain(..first.min(stages.len()));
        let stage =
            test.stage.as_ref().map(|(id, _)| id.clone()).or_else(|| pipeline.default_stage().map(str::to_owned));
        Ok(Case { suite: self, test, pipeline, stage, inputs: inputs(test) })
    }
}

/// A test and what it runs.
struct Case<'a> {
    suite: &'a Suite<'a>,
    test: &'a Test,
    pipeline: Pipeline,
    stage: Option<String>,
    inputs: Vec<(String, i32)>,
}

impl Case<'_> {
    fn run(&self) -> Verdict {
        let plan = match self.plan(&[], &BTreeMap::new()) {
            Ok(plan) => plan,
            Err(findings) => return self.refused(findings, "the plan is refused"),
        };
        let mut reasons = self.missing_warnings(&plan.findings);
        if !self.test.has_input && self.test.refused.is_none() {
            return verdict(reasons);
        }
        let first = play(self.test, self, &plan, &self.inputs, Cuts::Asked);
        if let End::Refused(findings) = first.end {
            return self.refused(findings, "a restart or reload is refused");
        }
        if let Some(code) = &self.test.refused {
            return Verdict::Failed(vec![Reason::Said(format!("it should be refused with {code}, and is accepted"))]);
        }
        reasons.extend(self.ending(&first));
        let mut judge = Judge {
            heard: &first.heard,
            test: self.test,
            output: output_of(&plan),
            inputs: &self.inputs,
            reader: Reader::of(&plan),
        };
        reasons.extend(judge.judge().into_iter().map(Reason::Rows));
        reasons.extend(self.wrong_counters(&first.counters));
        if let (End::Waits(stop), false) = (&first.end, reasons.is_empty()) {
            let failure = &stop.failure;
            reasons.push(Reason::Said(format!(
                "at the end of the script the pipeline waits at `{}` with {}: {}",
                failure.stage, failure.code, failure.text
            )));
        }
        reasons.extend(self.other_cuts(&plan, &first));
        verdict(reasons)
    }

    /// Whether a refusal is the one that the test names.
    fn refused(&self, findings: Vec<Diagnostic>, what: &str) -> Verdict {
        let codes: Vec<&str> = findings.iter().filter(|f| f.is_error()).map(|f| f.code.as_str()).collect();
        match &self.test.refused {
            Some(code) if codes.contains(&code.as_str()) => Verdict::Passed,
            _ if codes.contains(&"P-LATER") => Verdict::NotRunnable(findings),
            Some(code) => {
                Verdict::Failed(vec![Reason::Found(format!("it should be refused with {code}, but {what}"), findings)])
            }
            None => Verdict::Failed(vec![Reason::Found(what.to_string(), findings)]),
        }
    }

    fn missing_warnings(&self, findings: &[Diagnostic]) -> Vec<Reason> {
        let found: Vec<&str> = findings.iter().filter(|f| !f.is_error()).map(|f| f.code.as_str()).collect();
        let missing = self.test.warns.iter().filter(|code| !found.contains(&code.as_str()));
        missing
            .map(|code| {
                let found = if found.is_empty() { "nothing".to_string() } else { found.join(", ") };
                Reason::Said(format!("it should warn of {code}, and warns of {found}"))
            })
            .collect()
    }

    /// Whether the run ended as it should.
    fn ending(&self, played: &Played) -> Option<Reason> {
        match (&played.end, &self.test.stops) {
            (End::Stopped(stop), Some(code)) if stop.failure.code == *code => None,
            (End::Stopped(stop), wanted) => {
                let wanted = wanted.as_ref().map_or(String::new(), |code| format!(" (it should stop with {code})"));
                let failure = &stop.failure;
                Some(Reason::Said(format!(
                    "the pipeline stops at `{}` with {}: {}{wanted}",
                    failure.stage, failure.code, failure.text
                )))
            }
            // A pipeline that waits for ever stands still with a code too.
            (End::Waits(stop), Some(code)) if stop.failure.code != *code => Some(Reason::Said(format!(
                "the pipeline should stop with {code}, and waits at `{}` with {}",
                stop.failure.stage, stop.failure.code
            ))),
            (End::Waits(_), _) => None,
            (End::Broken(text), _) => Some(Reason::Said(text.clone())),
            (_, Some(code)) => Some(Reason::Said(format!("the pipeline should stop with {code}, and does not"))),
            _ => None,
        }
    }

    fn wrong_counters(&self, counters: &BTreeMap<String, BTreeMap<String, u64>>) -> Vec<Reason> {
        let stage = self.stage.as_deref().unwrap_or_default();
        let of = counters.get(stage);
        let wrong = self.test.counters.iter().filter_map(|(name, expected)| {
            let counted = of.and_then(|counters| counters.get(name));
            match counted {
                Some(counted) if counted == expected => None,
                Some(counted) => Some(format!("counter {name}: expected {expected}, got {counted}")),
                None => Some(format!("counter {name}: expected {expected}, but stage `{stage}` has no such counter")),
            }
        });
        wrong.map(Reason::Said).collect()
    }

    /// Plays again with random cuts and fresh instances: what comes out may not change.
    fn other_cuts(&self, plan: &Arc<Plan>, first: &Played) -> Option<Reason> {
        let difference = self.differs(plan, first, &self.inputs)?;
        let guest = self.guilty().unwrap_or_else(|| {
            let modules: Vec<&str> = plan.stages.iter().map(|stage| stage.module.name()).collect();
            modules.join(", ")
        });
        Some(Reason::Rows(Difference {
            route: "other cuts",
            lines: [
                vec![Line::Note(format!("guest `{guest}` gives other rows when batches are cut differently"))],
                difference,
            ]
            .concat(),
        }))
    }

    fn differs(&self, plan: &Arc<Plan>, first: &Played, inputs: &[(String, i32)]) -> Option<Vec<Line>> {
        let dice = Dice::of(&self.test.name);
        let again = play(self.test, self, plan, inputs, Cuts::Random(dice));
        if std::mem::discriminant(&first.end) != std::mem::discriminant(&again.end) {
            let ends = [&first.end, &again.end].map(|end| match end {
                End::Over => "runs to its end".to_string(),
                End::Stopped(stop) => format!("stops with {}: {}", stop.failure.code, stop.failure.text),
                End::Waits(stop) => format!("waits with {}: {}", stop.failure.code, stop.failure.text),
                End::Refused(_) => "is refused".to_string(),
                End::Broken(text) => text.clone(),
            });
            return Some(vec![Line::Missing(ends[0].clone()), Line::Unexpected(ends[1].clone())]);
        }
        for route in [Route::Main, Route::Late, Route::DeadLetter, Route::Duplicates] {
            let of = |heard: &Heard| -> Vec<usize> {
                (0..heard.rows.len()).filter(|&at| heard.rows.get(at).is_some_and(|row| row.route == route)).collect()
            };
            let (a, b) = (of(&first.heard), of(&again.heard));
            let same = a.iter().zip(&b).take_while(|(x, y)| first.heard.same(**x, &again.heard, **y)).count();
            if same == a.len() && same == b.len() {
                continue;
            }
            let mut lines = vec![Line::Note(format!("{route:?}: row {} differs", same + 1))];
            for (heard, at, is_first) in [(&first.heard, a.get(same), true), (&again.heard, b.get(same), false)] {
                let output = output_of(plan);
                let mut judge = Judge { heard, test: self.test, output, inputs, reader: Reader::of(plan) };
                let shown = at.and_then(|&at| heard.rows.get(at)).map_or("no row".into(), |row| judge.show_heard(row));
                lines.push(if is_first { Line::Missing(shown) } else { Line::Unexpected(shown) });
            }
            return Some(lines);
        }
        let changed = first.counters.iter().flat_map(|(stage, counters)| {
            let other = again.counters.get(stage);
            // What is over goes at its leisure (X4): sizes are no results.
            counters.iter().filter(|(name, _)| !name.starts_with("state_")).filter_map(move |(name, n)| {
                let m = other.and_then(|other| other.get(name)).copied().unwrap_or_default();
                (m != *n).then(|| Line::Note(format!("counter {name} of {stage}: {n}, with other cuts {m}")))
            })
        });
        let changed: Vec<Line> = changed.collect();
        (!changed.is_empty()).then_some(changed)
    }

    /// The guest of the first stage up to which the rows change with the cuts.
    fn guilty(&self) -> Option<String> {
        for last in 0..self.pipeline.stages.len() {
            let mut pipeline = self.pipeline.clone();
            pipeline.stages.truncate(last + 1);
            let part = Case {
                suite: self.suite,
                test: self.test,
                pipeline,
                stage: self.stage.clone(),
                inputs: self.inputs.clone(),
            };
            let plan = part.plan(&[], &BTreeMap::new()).ok()?;
            let first = play(self.test, &part, &plan, &self.inputs, Cuts::Asked);
            if part.differs(&plan, &first, &self.inputs).is_some() {
                return plan.stages.last().map(|stage| stage.module.name().to_string());
            }
        }
        None
    }
}

impl Planner for Case<'_> {
    fn plan(&self, restarts: &[Replace], stored: &BTreeMap<String, Value>) -> Result<Arc<Plan>, Vec<Diagnostic>> {
        let mut pipeline = self.pipeline.clone();
        for replace in std::iter::once(&self.test.replace).chain(restarts) {
            pipeline = pipeline.replace(self.stage.as_deref(), replace)?;
        }
        let named =
            |code: &&str| self.test.refused.as_deref() == Some(*code) || self.test.warns.iter().any(|w| w == *code);
        let source = Conditions::of(&self.pipeline, None);
        // Only a test that lists duplicates asks for them: guests may be quicker when nobody does.
        let duplicates = self.test.output.iter().any(|row| judge::route_of(row) == Route::Duplicates);
        let conditions = Conditions {
            partitions: u32::try_from(self.inputs.len()).ok(),
            bounded: self.test.bounded.unwrap_or(source.bounded),
            stored: stored.clone(),
            ends: ENDS.iter().any(named),
            duplicates,
        };
        let mut plan = plan(&pipeline, self.suite.guests, &conditions)?;
        if duplicates {
            plan.pipeline.duplicates.get_or_insert(Sink::Stdout { format: Format::Envelope });
        }
        // A slow machine is no fault of a guest here.
        plan.pipeline.limits.call = plan.pipeline.limits.call.max(10_000_000_000);
        Ok(Arc::new(plan))
    }
}

/// What the chain writes: as its last updating stage says.
fn output_of(plan: &Plan) -> OutputKind {
    let kinds = plan.stages.iter().rev().map(|stage| stage.traits.output);
    kinds.into_iter().find(|kind| *kind != OutputKind::Append).unwrap_or_default()
}

fn verdict(reasons: Vec<Reason>) -> Verdict {
    if reasons.is_empty() { Verdict::Passed } else { Verdict::Failed(reasons) }
}

/// Findings in the file of a pipeline.
fn placed(pipeline: &Pipeline, mut findings: Vec<Diagnostic>) -> Vec<Diagnostic> {
    for finding in &mut findings {
        finding.file = pipeline.file.clone();
    }
    findings
}

/// Runs tests on all cores. A job names a suite and one of its tests; `each` hears of every verdict as it comes, the
/// answer has them in the order of the jobs.
pub fn run_all(suites: &[Suite<'_>], jobs: &[(usize, usize)], each: &(dyn Fn(&Verdict) + Sync)) -> Vec<Verdict> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(suite, test)) = jobs.get(number) else { return done };
            let test = suites.get(suite).and_then(|suite| Some((suite, suite.tests.get(test)?)));
            let Some((suite, (.., test))) = test else { return done };
            let verdict = match test {
                Ok(test) => suite.run(test),
                Err(findings) => Verdict::NotRunnable(findings.clone()),
            };
            each(&verdict);
            done.push((number, verdict));
        }
    };
    let mut all: Vec<(usize, Verdict)> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len().max(1));
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, verdict)| verdict).collect()
}
