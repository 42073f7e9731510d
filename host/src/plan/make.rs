//! From a pipeline to a plan: modules, parameters, keys, what the guests say, then what the host decides.

use serde_json::{Value, json};

use super::answer::{self, Answer, Places};
use super::{
    Clock, Coder, ColumnRef, Conditions, Guests, KeyGuest, Plan, Planned, PlannedKey, Traits, exchange, judge, project,
};
use crate::config::diagnostic::Diagnostic;
use crate::config::node::Span;
use crate::config::params;
use crate::config::pipeline::{Key, KeyForm, NullKey, Pipeline, RetentionClock, Scope, Source, Stage, Uses};
use crate::guest::call::Fault;
use crate::guest::{CheckError, Module, World};

/// Plans a pipeline: what would run, or everything that speaks against it (with the warnings among it).
pub fn plan(pipeline: &Pipeline, guests: &dyn Guests, conditions: &Conditions) -> Result<Plan, Vec<Diagnostic>> {
    let mut maker = Maker { pipeline, guests, conditions, findings: pipeline.findings.clone() };
    if conditions.ends {
        judge::later(pipeline, &mut maker.findings);
    }
    let plan = maker.plan();
    let mut findings = maker.findings;
    for finding in &mut findings {
        finding.file = finding.file.take().or_else(|| pipeline.file.clone());
    }
    match plan {
        Some(mut plan) if !findings.iter().any(Diagnostic::is_error) => {
            findings.sort_by_key(|f| f.span.map_or((0, 0), |s| (s.line, s.column)));
            plan.findings = findings;
            Ok(plan)
        }
        _ => Err(findings),
    }
}

/// Looks only whether guests are there and their parameters fit: what can still be said of a file with other errors.
pub fn check_parameters(pipeline: &Pipeline, guests: &dyn Guests) -> Vec<Diagnostic> {
    let conditions = Conditions::default();
    let mut maker = Maker { pipeline, guests, conditions: &conditions, findings: Vec::new() };
    maker.coder(&pipeline.decode.key);
    maker.coder(&pipeline.decode.value);
    for stage in pipeline.stages.iter().filter(|s| !s.uses.name.is_empty()) {
        maker.module(&stage.uses, &[World::Transform, World::Keyed], "a stage");
        if let Some(Key { form: KeyForm::Guest(uses), .. }) = &stage.key {
            maker.module(uses, &[World::Key], "a key");
        }
    }
    for finding in &mut maker.findings {
        finding.file = pipeline.file.clone();
    }
    maker.findings
}

struct Maker<'a> {
    pipeline: &'a Pipeline,
    guests: &'a dyn Guests,
    conditions: &'a Conditions,
    findings: Vec<Diagnostic>,
}

impl Maker<'_> {
    fn plan(&mut self) -> Option<Plan> {
        let pipeline = self.pipeline;
        let decode_key = self.coder(&pipeline.decode.key);
        let decode_value = self.coder(&pipeline.decode.value);
        let encode_key = pipeline.encode.key.as_ref().map(|uses| self.coder(uses));
        let encode_value = pipeline.encode.value.as_ref().map(|uses| self.coder(uses));
        let made_key = match &encode_key {
            Some(given) => given.clone(),
            None => self.coder(&Uses { name: "json".to_string(), with: json!({}), node: None, span: Span::default() }),
        };
        let mut stages: Vec<Planned> = Vec::new();
        let mut before: Vec<Value> = Vec::new();
        let mut complete = true;
        for stage in &pipeline.stages {
            match self.stage(stage, &before) {
                Some((planned, traits)) => {
                    before.push(json!({ "id": stage.id, "traits": traits }));
                    stages.push(planned);
                }
                None => complete = false,
            }
        }
        let (decode_key, decode_value) = (decode_key?, decode_value?);
        let encode_key = encode_key.map_or(Some(decode_key.clone()), |c| c)?;
        let encode_value = encode_value.map_or(Some(decode_value.clone()), |c| c)?;
        let mut plan = Plan {
            reencode_key: differs(&encode_key, &decode_key),
            reencode_value: differs(&encode_value, &decode_value),
            event_time: stages.iter().any(|s| s.wants_event_time),
            ingestion: stages.iter().any(|s| s.traits.wants_time && s.traits.clock == Clock::Ingestion),
            one_task: self.conditions.partitions != Some(1)
                && !matches!(pipeline.source, Source::Kafka(_))
                && stages.iter().any(|s| s.key.is_some() && s.scope != Scope::Partition),
            pipeline: pipeline.clone(),
            stages,
            decode_key,
            decode_value,
            encode_key,
            encode_made_key: made_key?,
            encode_value,
            value_paths: Vec::new(),
            key_paths: Vec::new(),
            findings: Vec::new(),
        };
        judge::judge(&plan, self.conditions, &mut self.findings);
        if !complete {
            return None;
        }
        let projection = project::project(&plan);
        plan.value_paths = projection.value;
        plan.key_paths = projection.key;
        Some(plan)
    }

    fn coder(&mut self, uses: &Uses) -> Option<Coder> {
        let module = self.module(uses, &[World::Codec], "a codec")?;
        Some(Coder { module, params: params::given(&uses.with) })
    }

    /// A module of the world that is wanted, with its parameters checked.
    fn module(&mut self, uses: &Uses, worlds: &[World], role: &str) -> Option<Module> {
        let module = match self.guests.find(&uses.name, self.pipeline.file.as_deref()) {
            Ok(module) => module,
            Err(missing) => {
                let mut finding = Diagnostic::error(missing.code, uses.span, missing.message);
                finding.help = missing.help;
                self.findings.push(finding);
                return None;
            }
        };
        if !worlds.contains(&module.world()) {
            let (is, place) = match module.world() {
                World::Codec => ("a codec", "it stands in `decode` or `encode`"),
                World::Key => ("a key", "it stands in `key`: `key: { uses: ... }`"),
                World::Transform | World::Keyed => ("a stage", "it stands in `stages`"),
            };
            self.findings.push(
                Diagnostic::error("P-GUEST", uses.span, format!("`{}` is {is}, and cannot be {role}", uses.name))
                    .help(place),
            );
            return None;
        }
        let found = params::check(uses.node.as_ref(), &module.manifest().params, &uses.name, uses.span);
        let fits = !found.iter().any(Diagnostic::is_error);
        self.findings.extend(found);
        fits.then_some(module)
    }

    fn stage(&mut self, stage: &Stage, before: &[Value]) -> Option<(Planned, Value)> {
        let module = self.module(&stage.uses, &[World::Transform, World::Keyed], "a stage")?;
        let keyed = module.world() == World::Keyed;
        let places = Places { stage: &stage.node, time: self.pipeline.time.node.as_ref() };
        if keyed && stage.key.is_none() {
            // A key that was written and refused has been reported.
            if stage.node.get("key").is_none_or(|n| n.is_null()) {
                self.findings.push(
                    Diagnostic::error(
                        "P-MISSING",
                        places.stage_span(),
                        format!("`{}` keeps state by key: the stage needs a `key`", stage.uses.name),
                    )
                    .help("add `key: value.ID`, or several: `key: [value.a, value.b]`"),
                );
            }
            return None;
        }
        for name in ["key", "scope", "state"] {
            if let (false, Some(span)) = (keyed, stage.node.key_span(name)) {
                self.findings.push(
                    Diagnostic::error(
                        "P-VALUE",
                        span,
                        format!("`{name}` is for keyed stages; `{}` keeps no state", stage.uses.name),
                    )
                    .help("leave it out"),
                );
            }
        }
        let key_guest = match stage.key.as_ref().map(|k| &k.form) {
            Some(KeyForm::Guest(uses)) => Some(self.key_guest(uses)?),
            _ => None,
        };
        let params = params::given(&stage.uses.with);
        let context = self.context(stage, before);
        let answer = self.ask(stage, &module, &params, &context, &places)?;
        if keyed != answer.traits.keyed {
            let text = format!(
                "`{}` contradicts itself: the trait `keyed` is {}, its world says otherwise",
                stage.uses.name, answer.traits.keyed
            );
            self.findings.push(Diagnostic::error("P-GUEST", places.stage_span(), text).help("tell its author"));
            return None;
        }
        let refused = answer.findings.iter().any(Diagnostic::is_error);
        self.findings.extend(answer.findings);
        let key = stage.key.as_ref().filter(|_| keyed).map(|key| PlannedKey {
            null_key: key.null_key.unwrap_or(match answer.traits.output {
                super::OutputKind::Append => NullKey::Pass,
                super::OutputKind::Upsert | super::OutputKind::Retract => NullKey::Dlq,
            }),
            key: key.clone(),
            guest: key_guest,
        });
        let wants_event_time = wants_event_time(&answer.traits, &answer.reads);
        let planned = Planned {
            id: stage.id.clone(),
            identity: identity(&module, stage, &answer.traits),
            module,
            params,
            context,
            key,
            scope: self.scope(stage),
            traits: answer.traits,
            reads: answer.reads,
            writes: answer.writes,
            routes: answer.routes,
            counters: answer.counters,
            settings: answer.settings,
            says: answer.says,
            wants_event_time,
        };
        if refused {
            // What else the host would say is said of a stage that is otherwise sound.
            judge::judge_stage(&planned, stage, self.conditions, &mut self.findings);
            return None;
        }
        Some((planned, answer.raw_traits))
    }

    /// The exchange is left out where equal keys are in the same partition anyway (D4).
    fn scope(&self, stage: &Stage) -> Scope {
        let decided = match &self.pipeline.source {
            Source::Kafka(source) => {
                source.topics.len() == 1 && stage.key.as_ref().is_some_and(exchange::decides_partition)
            }
            _ => false,
        };
        if decided && stage.scope == Scope::Global { Scope::Partition } else { stage.scope }
    }

    fn ask(
        &mut self,
        stage: &Stage,
        module: &Module,
        params: &Value,
        context: &Value,
        places: &Places<'_>,
    ) -> Option<Answer> {
        let answer = module
            .check(&self.pipeline.secrets.reveal(params), context, &self.pipeline.limits)
            .map_err(|fault| fault_text(&fault))
            .and_then(|answer| answer::read(&answer, places));
        match answer {
            Ok(answer) => Some(answer),
            Err(text) => {
                self.findings.push(
                    Diagnostic::error(
                        "P-GUEST",
                        places.stage_span(),
                        format!("`{}` failed when it was asked for its plan: {text}", stage.uses.name),
                    )
                    .help("`tamis inspect` says what the module is; this is a mistake of the module, tell its author"),
                );
                None
            }
        }
    }

    fn key_guest(&mut self, uses: &Uses) -> Option<KeyGuest> {
        let module = self.module(uses, &[World::Key], "a key")?;
        let params = params::given(&uses.with);
        let (text, help) = match module.key_columns(&self.pipeline.secrets.reveal(&params), &self.pipeline.limits) {
            Ok(names) => {
                match names.iter().map(|n| ColumnRef::parse(n).map_err(|e| format!("it reads `{n}`: {e}"))).collect() {
                    Ok(reads) => return Some(KeyGuest { module, params, reads }),
                    Err(text) => (text, "tell its author"),
                }
            }
            Err(CheckError::Refused(text)) => (text, "change its parameters in `with`"),
            Err(CheckError::Fault(fault)) => (fault_text(&fault), "tell its author"),
        };
        let span = uses.node.as_ref().map_or(uses.span, |n| n.span);
        self.findings
            .push(Diagnostic::error("P-GUEST", span, format!("the key guest `{}`: {text}", uses.name)).help(help));
        None
    }

    /// What the guest gets to know besides its parameters; every default filled in, durations in nanoseconds.
    fn context(&self, stage: &Stage, before: &[Value]) -> Value {
        let (time, state) = (&self.pipeline.time, &stage.state);
        let retention = state.retention.map(|r| {
            let clock = r.clock.map(|c| match c {
                RetentionClock::Event => "event",
                RetentionClock::Processing => "processing",
            });
            json!({ "for": r.length, "clock": clock, "refresh": if r.on_access { "access" } else { "create" } })
        });
        let stored = self.conditions.stored.get(&stage.id).and_then(|s| s.get("guest"));
        json!({
            "id": stage.id,
            "key": stage.key.as_ref().map(key_json),
            "scope": match stage.scope { Scope::Global => "global", Scope::Partition => "partition", Scope::Stream => "stream" },
            "state": {
                "retention": retention, "max_entries": state.max_entries, "max_bytes": state.max_bytes, "unbounded": state.unbounded,
            },
            "time": {
                "field": time.field.to_string(), "unit": time.unit, "min": time.min, "max_future": time.max_future,
                "delay": time.delay, "idle": time.idle, "max_drift": time.max_drift, "manual": time.manual,
            },
            "bounded": self.conditions.bounded,
            "partitions": self.conditions.partitions,
            "duplicates": self.conditions.duplicates || self.pipeline.duplicates.is_some(),
            "before": before,
            "stored": stored,
        })
    }
}

fn fault_text(fault: &Fault) -> String {
    match fault {
        Fault::Module { kind, text } => format!("{kind}: {text}"),
        Fault::Full => "its state is full".to_string(),
    }
}

fn differs(a: &Coder, b: &Coder) -> bool {
    a.module.digest() != b.module.digest() || a.params != b.params
}

/// Event time is evaluated for a stage that is given times of the event clock, or reads event time as a column.
fn wants_event_time(traits: &Traits, reads: &[ColumnRef]) -> bool {
    (traits.wants_time && traits.clock == Clock::Event) || reads.contains(&ColumnRef::Time)
}

/// What kept state is made with (R8): the guest, the key and its options, and what the guest adds.
fn identity(module: &Module, stage: &Stage, traits: &Traits) -> Value {
    json!({ "uses": module.manifest().name, "key": stage.key.as_ref().map(key_identity), "guest": traits.identity })
}

/// The key, so that two are equal if and only if their entries compare: parts in the order of their paths (K1).
fn key_identity(key: &Key) -> Value {
    let mut identity = key_json(key);
    if let Some(Value::Array(parts)) = identity.get_mut("fields") {
        parts.sort_by_key(Value::to_string);
    }
    if let Some(members) = identity.as_object_mut() {
        // What happens to records without key does not change the entries of those with one, unless they make one.
        let groups = members.get("null_key").and_then(Value::as_str) == Some("group");
        members.insert("null_key".to_string(), json!(groups.then_some("group")));
    }
    identity
}

/// A key as JSON, defaults filled in.
fn key_json(key: &Key) -> Value {
    let form = match &key.form {
        KeyForm::Fields(parts) => {
            let parts: Vec<Value> = parts
                .iter()
                .map(|part| json!({ "field": part.path.to_string(), "as": format!("{:?}", part.read_as).to_lowercase() }))
                .collect();
            json!({ "fields": parts })
        }
        KeyForm::Whole { root, except } => {
            let mut except: Vec<String> = except.iter().map(ToString::to_string).collect();
            except.sort();
            json!({ "whole": root.to_string(), "except": except })
        }
        KeyForm::Guest(uses) => json!({ "uses": uses.name, "with": uses.with }),
    };
    let mut all = form.as_object().cloned().unwrap_or_default();
    all.insert("null_key".to_string(), json!(key.null_key.map(|n| format!("{n:?}").to_lowercase())));
    all.insert("missing".to_string(), json!(if key.missing_distinct { "distinct" } else { "as-null" }));
    all.insert("numbers".to_string(), json!(if key.typed_numbers { "typed" } else { "exact" }));
    all.insert("normalize".to_string(), json!(key.normalize.map(|n| format!("{n:?}").to_lowercase())));
    all.insert("casefold".to_string(), json!(key.casefold));
    Value::Object(all)
}
