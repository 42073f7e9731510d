//! `test`: the tests in pipeline files, through the real guests, offline.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::exit::Failure;
use super::load;
use super::output::{Reply, Session, finding};
use crate::config::guests::Library;
use crate::script::source::Dice;
use crate::script::suite::{Suite, Verdict, run_all};
use crate::script::{self, report};

/// Runs the tests in pipeline files.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Pipeline files, or folders with them
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Run only tests with this text in their name
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Write into the files what comes out: tests that fail by their rows or counters expect it from then on
    #[arg(long)]
    pub bless: bool,
    /// Run the tests in a random order; with a number, in the order of that number
    #[arg(long, value_name = "SEED", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub shuffle: Option<String>,
}

/// The verb.
pub fn main(args: &Args, session: &mut Session) -> Result<Reply, Failure> {
    let began = Instant::now();
    let library = load::library(session)?;
    let files = load::expand(&args.paths);
    if files.is_empty() {
        return Err(Failure::invalid("there is no pipeline file there")
            .help("a pipeline file ends in .yaml and has a `version`"));
    }
    let mut pipelines = Vec::new();
    for file in &files {
        pipelines.push(load::pipeline(session, file, &library)?);
    }
    let suites: Vec<Suite<'_>> = pipelines.iter().map(|pipeline| Suite::new(pipeline, &library)).collect();
    let mut jobs: Vec<(usize, usize)> = Vec::new();
    for (number, suite) in suites.iter().enumerate() {
        let wanted = |name: &str| args.filter.as_ref().is_none_or(|text| name.contains(text.as_str()));
        jobs.extend((0..suite.tests.len()).filter(|&test| wanted(&suite.tests[test].0)).map(|test| (number, test)));
    }
    if jobs.is_empty() {
        return Err(Failure::invalid("there is no test to run")
            .help("tests stand under `tests:` in a pipeline file; `--filter` looks for text in their names"));
    }
    let seed = shuffle(args, &mut jobs);
    let shown = session.talks_to_terminal() && !session.json;
    let done = AtomicUsize::new(0);
    let verdicts = run_all(&suites, &jobs, &|_| {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if shown {
            // Nobody seeing it is no reason to stop.
            let _ = write!(std::io::stderr(), "\r{done} of {} tests", jobs.len());
        }
    });
    if shown {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }

    let (mut text, mut tests) = (String::new(), Vec::new());
    let blessed = match args.bless {
        true => bless(session, &files, &suites, &jobs, &verdicts, &library)?,
        false => BTreeMap::new(),
    };
    for (&(number, test), verdict) in jobs.iter().zip(&verdicts) {
        let Some((name, span, _)) = suites.get(number).and_then(|suite| suite.tests.get(test)) else { continue };
        let file = files.get(number).map(|file| file.display().to_string()).unwrap_or_default();
        let place = format!("{file}:{}  {}", span.line, super::output::printable(name));
        match blessed.get(&(number, test)) {
            Some(Ok(())) => text.push_str(&format!("blessed  {place}\n")),
            Some(Err(why)) => {
                tell(session, verdict, &place, &mut text);
                text.push_str(&format!("    not blessed: {why}\n"));
            }
            None => tell(session, verdict, &place, &mut text),
        }
        let mut value = report::value(verdict, &finding);
        if let Value::Object(members) = &mut value {
            members.insert("file".into(), json!(file));
            members.insert("line".into(), json!(span.line));
            members.insert("name".into(), json!(name));
            if let Some(outcome) = blessed.get(&(number, test)) {
                members.insert("blessed".into(), json!(outcome.is_ok()));
            }
        }
        tests.push(value);
    }
    let count = |of: fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| of(verdict)).count();
    let passed = count(|v| matches!(v, Verdict::Passed));
    let written = blessed.values().filter(|outcome| outcome.is_ok()).count();
    let failed = count(|v| matches!(v, Verdict::Failed(_))) - written;
    let skipped = count(|v| matches!(v, Verdict::Skipped(_)));
    let not_runnable = count(|v| matches!(v, Verdict::NotRunnable(_)));
    let mut summary = format!("{passed} passed, {failed} failed, {skipped} skipped");
    if not_runnable > 0 {
        summary.push_str(&format!(", {not_runnable} not runnable"));
    }
    if args.bless {
        summary.push_str(&format!(", {written} blessed"));
    }
    if let Some(seed) = &seed {
        summary.push_str(&format!(", in the order of --shuffle={seed}"));
    }
    summary.push_str(&format!(" ({:.1} s)", began.elapsed().as_secs_f64()));
    let result = json!({
        "passed": passed, "failed": failed, "skipped": skipped, "not_runnable": not_runnable, "seed": seed, "tests": tests,
    });
    let mut reply = Reply::new(text, result).summary(summary);
    reply.ok = failed == 0 && not_runnable == 0;
    Ok(reply)
}

/// Writes expectations into the files, a file only if its tests then pass; what became of each test that failed.
fn bless(
    session: &mut Session,
    files: &[PathBuf],
    suites: &[Suite<'_>],
    jobs: &[(usize, usize)],
    verdicts: &[Verdict],
    library: &Library,
) -> Result<BTreeMap<(usize, usize), Result<(), String>>, Failure> {
    let mut outcomes = BTreeMap::new();
    for (number, (file, suite)) in files.iter().zip(suites).enumerate() {
        let failed = |(job, verdict): (&(usize, usize), &Verdict)| {
            (job.0 == number && matches!(verdict, Verdict::Failed(_))).then_some(job.1)
        };
        let failed: Vec<usize> = jobs.iter().zip(verdicts).filter_map(failed).collect();
        if failed.is_empty() {
            continue;
        }
        let (name, text) = load::text(session, file)?;
        let mut edits = Vec::new();
        for test in failed {
            let outcome = match suite.bless(test, &text) {
                Ok(more) if more.is_empty() => Err("its rows and counters are right".to_owned()),
                Ok(more) => {
                    edits.extend(more);
                    Ok(())
                }
                Err(why) => Err(why),
            };
            outcomes.insert((number, test), outcome);
        }
        if edits.is_empty() {
            continue;
        }
        let new = script::bless::apply(&text, edits);
        let environment = session.environment.clone();
        let again = crate::config::read(&new, Some(&name), &|variable| environment.get(variable).cloned());
        let blessed = outcomes.iter_mut().filter(|((of, _), outcome)| *of == number && outcome.is_ok());
        let mut all_pass = true;
        for ((_, test), outcome) in blessed {
            let passes = again.as_ref().is_ok_and(|pipeline| {
                let suite = Suite::new(pipeline, library);
                let test = suite.tests.get(*test).and_then(|(.., test)| test.as_ref().ok());
                test.is_some_and(|test| matches!(suite.run(test), Verdict::Passed))
            });
            if !passes {
                all_pass = false;
                *outcome = Err("what came cannot be written down so that it passes; nothing of this file is".into());
            }
        }
        if !all_pass {
            let others = outcomes.iter_mut().filter(|((of, _), outcome)| *of == number && outcome.is_ok());
            others.for_each(|(_, outcome)| *outcome = Err("another test of this file cannot be blessed".into()));
            continue;
        }
        std::fs::write(file, new)
            .map_err(|error| Failure::runtime(format!("cannot write {}: {}", file.display(), load::plain(&error))))?;
    }
    Ok(outcomes)
}

/// Puts the jobs into a random order; answers what that order is called.
fn shuffle(args: &Args, jobs: &mut [(usize, usize)]) -> Option<String> {
    let seed = match args.shuffle.as_deref()? {
        "" => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos()).to_string(),
        given => given.to_string(),
    };
    let mut dice = Dice::of(&seed);
    for last in (1..jobs.len()).rev() {
        jobs.swap(last, dice.below(last as u64 + 1) as usize);
    }
    Some(seed)
}

/// One line for a test that did not pass, and why; with `--verbose` a line for each that did.
fn tell(session: &Session, verdict: &Verdict, name: &str, text: &mut String) {
    let (word, paint) = match verdict {
        Verdict::Passed if session.verbose == 0 => return,
        Verdict::Passed => ("ok", "32"),
        Verdict::Skipped(_) => ("skip", "33"),
        Verdict::Failed(_) => ("FAIL", "31;1"),
        Verdict::NotRunnable(_) => ("NOT RUNNABLE", "31;1"),
    };
    if session.color_out {
        text.push_str(&format!("\x1b[{paint}m{word}\x1b[0m  {name}\n"));
    } else {
        text.push_str(&format!("{word}  {name}\n"));
    }
    text.push_str(&report::text(verdict, session.color_out, &|finding| session.render(finding)));
}
