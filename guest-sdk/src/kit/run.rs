//! Runs a keyed guest over a stream, cut in some way, and writes down what comes out.

use serde_json::Value;

use super::session::Session;
use super::state::State;
use super::stream::{Random, Stream};
use crate::export::OpenKeyed;
use crate::keyed::{Keyed, Outcome};
use crate::out::Kind;
use crate::row::{Batch, NONE_YET, Stamp};

/// How a stream is cut into calls.
#[derive(Clone, Debug)]
pub struct Cutting {
    /// A call ends before each of these records; also wherever processing time changes.
    pub cuts: Vec<usize>,
    /// Due wakes a call may get; the host's limit is 4,096.
    pub wakes: usize,
    /// Is the guest opened anew for each call?
    pub fresh: bool,
}

impl Cutting {
    /// One record a call.
    pub fn singly(stream: &Stream) -> Cutting {
        Cutting { cuts: (0..=stream.records.len()).collect(), wakes: usize::MAX, fresh: false }
    }

    /// The whole stream in one call.
    pub fn whole() -> Cutting {
        Cutting { cuts: Vec::new(), wakes: usize::MAX, fresh: false }
    }

    /// Up to five cuts, one to three wakes a call or all, a fresh guest or not.
    pub fn random(stream: &Stream, random: &mut Random) -> Cutting {
        let count = random.below(6);
        let mut cuts: Vec<_> = (0..count).map(|_| random.below(stream.records.len() as u64 + 1) as usize).collect();
        cuts.sort_unstable();
        let wakes = [1, 2, 3, usize::MAX][random.below(4) as usize];
        Cutting { cuts, wakes, fresh: random.below(2) == 0 }
    }
}

/// One line of what comes out. Records are named by their place in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A record was judged.
    Record {
        /// Which.
        record: usize,
        /// The verdict, as it crosses.
        verdict: u8,
        /// What it lost to, if the guest names winners.
        winner: Option<usize>,
    },
    /// A row was emitted.
    Out {
        /// The record behind it.
        record: usize,
        /// As it crosses.
        kind: u8,
        /// As it crosses.
        route: u8,
        /// Start and end, ns.
        window: Option<(i64, i64)>,
        /// The wake that emitted it.
        wake: Option<Stamp>,
        /// What was written, by column: kind and bytes.
        cells: Vec<(u8, Vec<u8>)>,
    },
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// In order.
    pub lines: Vec<Line>,
    /// The counters of the check, summed.
    pub counts: Vec<u64>,
    /// Code and record of each failure.
    pub failures: Vec<(String, usize)>,
    /// What is left in state, as text.
    pub state: Vec<String>,
}

/// Runs a keyed guest over a stream against this state.
///
/// # Errors
/// What `open` refuses.
///
/// # Panics
/// If the guest breaks the contract.
pub fn run<K: Keyed>(
    params: &Value,
    context: &Value,
    stream: &Stream,
    cutting: &Cutting,
    state: &mut State,
) -> Result<Run, String> {
    let open = || OpenKeyed::<K>::open(&params.to_string(), &context.to_string());
    let mut runner = Runner { stream, state, guest: open()?, run: Run::default() };
    let count = stream.records.len();
    let mut from = 0;
    while from <= count {
        let last = from == count;
        let next = (from + 1..count).find(|&at| {
            let new_now = stream.records[at].now != stream.records[at - 1].now;
            new_now || cutting.cuts.contains(&at)
        });
        let to = next.unwrap_or(count);
        // The input may end in a call of its own, or together with the last records.
        let with_end =
            last || (to == count && !cutting.cuts.contains(&count) && stream.end_now == stream.records[from].now);
        let now = if last { stream.end_now } else { stream.records[from].now };
        let end = match (with_end, stream.processing) {
            (true, _) => stream.end,
            (false, true) => Stamp::at(now),
            (false, false) => runner.sees(to),
        };
        runner.section(from, to, end, now, cutting.wakes, &mut |guest| {
            if cutting.fresh {
                *guest = open()?;
            }
            Ok(())
        })?;
        if with_end {
            break;
        }
        from = to;
    }
    let Runner { state, mut run, .. } = runner;
    run.state = state.dump();
    Ok(run)
}

struct Runner<'a, K> {
    stream: &'a Stream,
    state: &'a mut State,
    guest: OpenKeyed<K>,
    run: Run,
}

impl<K: Keyed> Runner<'_, K> {
    /// What a record sees; of the one after the last: the same as where the clock stands just after the last.
    fn sees(&self, record: usize) -> Stamp {
        match self.stream.records.get(record) {
            Some(record) => record.seen,
            None => self.stream.records.last().map_or(Stamp::NONE_YET, |record| record.seen),
        }
    }

    /// The records from..to, in as many calls as the limit of wakes asks for (rule 8 of the contract).
    fn section(
        &mut self,
        mut from: usize,
        to: usize,
        end: Stamp,
        now: i64,
        limit: usize,
        renew: &mut dyn FnMut(&mut OpenKeyed<K>) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            let mut dues = if self.stream.wants_time { self.state.due(end) } else { Vec::new() };
            if dues.len() <= limit {
                renew(&mut self.guest)?;
                self.call(from, to, dues, end, now);
                return Ok(());
            }
            let first_left = dues[limit].0.at;
            let below = dues.iter().take_while(|(wake, _)| wake.at < first_left).count();
            let before = (from..to).find(|&record| self.sees(record) >= first_left).unwrap_or(to);
            dues.truncate(if below > 0 || before > from { below } else { limit });
            renew(&mut self.guest)?;
            self.call(from, before, dues, just_below(first_left), now);
            from = before;
        }
    }

    fn call(&mut self, from: usize, to: usize, dues: Vec<(super::state::Wake, (String, i64))>, end: Stamp, now: i64) {
        let records = &self.stream.records[from..to];
        let columns = self.stream.columns(from, to);
        let rows_where = |is: &dyn Fn(&super::Record) -> bool| -> Vec<u32> {
            (0..records.len() as u32).filter(|&row| is(&records[row as usize])).collect()
        };
        let (tombstones, redelivered) =
            (rows_where(&|record| record.tombstone), rows_where(&|record| record.redelivered));
        let times: Vec<Stamp> = records.iter().map(|record| record.time).collect();
        let seen: Vec<Stamp> = records.iter().map(|record| record.seen).chain([end]).collect();
        let split = |stamps: &[Stamp]| -> (Vec<i64>, Vec<u16>) { stamps.iter().map(|s| (s.time, s.input)).unzip() };
        let ((times, time_inputs), (seen, seen_inputs)) = (split(&times), split(&seen));
        let mut batch = Batch {
            rows: records.len() as u32,
            now,
            columns: &columns,
            tombstones: &tombstones,
            redelivered: &redelivered,
            ..Batch::default()
        };
        if self.stream.wants_time {
            (batch.times, batch.time_inputs) = (&times, &time_inputs);
            (batch.seen, batch.seen_inputs) = (&seen, &seen_inputs);
        }
        let mut session = Session::new(self.state, records, from, dues, now);
        let outcome = self.guest.process_with(&batch, &mut session);
        read(&outcome, &session, &mut self.run);
    }
}

/// Writes an outcome down, checking it as the host does.
fn read(outcome: &Outcome, session: &Session<'_>, run: &mut Run) {
    let rows = session.records.len();
    let output = &outcome.output;
    let count = output.at.len();
    assert_eq!(outcome.verdicts.len(), rows, "a verdict per row");
    assert_eq!(output.origins.len(), count, "an origin per output row");
    assert!(output.at.is_sorted() && output.at.iter().all(|&at| at as usize <= rows), "at must not fall");
    for list in [&output.images, &output.routes, &output.kinds] {
        assert!(list.is_empty() || list.len() == count, "images, routes, kinds: one per output row or none");
    }
    assert!(output.windows.is_empty() || output.windows.len() == 2 * count, "windows: two per output row or none");
    assert!(output.columns.iter().all(|column| column.len() == count), "columns: a cell per output row");
    let duplicates = outcome.verdicts.iter().filter(|&&verdict| verdict == 4).count();
    assert!(outcome.winners.is_empty() || outcome.winners.len() == duplicates, "winners: one per duplicate or none");
    let byte = |list: &[u8], i: usize| list.get(i).copied().unwrap_or(0);
    let mut next = 0;
    let mut duplicate = 0;
    for row in 0..=rows {
        while next < count && output.at[next] as usize <= row {
            let (record, is_mark) = session.origin(output.origins[next], byte(&output.images, next));
            let kind = byte(&output.kinds, next);
            assert!(!is_mark || kind == Kind::Delete as u8, "a mark can only be deleted");
            let window = output.windows.get(2 * next..2 * next + 2).filter(|window| window[0] != NONE_YET);
            let wake = output.wakes.times.get(next).filter(|&&time| time != NONE_YET);
            run.lines.push(Line::Out {
                record,
                kind,
                route: byte(&output.routes, next),
                window: window.map(|window| (window[0], window[1])),
                wake: wake.map(|&time| Stamp { time, input: output.wakes.inputs.get(next).copied().unwrap_or(0) }),
                cells: output
                    .columns
                    .iter()
                    .map(|column| (column.cell(next).kind, column.cell(next).bytes.to_vec()))
                    .collect(),
            });
            next += 1;
        }
        let Some(&verdict) = outcome.verdicts.get(row) else { break };
        let mut winner = None;
        if verdict == 4 {
            let image = byte(&outcome.winner_images, duplicate);
            winner = outcome.winners.get(duplicate).map(|&origin| session.origin(origin, image).0);
            duplicate += 1;
        }
        run.lines.push(Line::Record { record: session.first + row, verdict, winner });
    }
    run.counts.resize(run.counts.len().max(outcome.counts.len()), 0);
    for (sum, count) in run.counts.iter_mut().zip(&outcome.counts) {
        *sum += count;
    }
    let failures = outcome.failures.iter().map(|failure| (failure.code.clone(), session.first + failure.row as usize));
    run.failures.extend(failures);
}

fn just_below(stamp: Stamp) -> Stamp {
    match stamp.input.checked_sub(1) {
        Some(input) => Stamp { time: stamp.time, input },
        None => Stamp::after(stamp.time.saturating_sub(1)),
    }
}

/// Runs a guest over a stream with one record a call, then `tries` times with random cuts, and compares. Gives the run.
///
/// # Panics
/// At a difference, with both runs; and if the guest cannot be opened or breaks the contract.
pub fn check_cuts<K: Keyed>(params: &Value, context: &Value, stream: &Stream, seed: u64, tries: usize) -> Run {
    let go = |cutting: &Cutting| match run::<K>(params, context, stream, cutting, &mut State::default()) {
        Ok(run) => run,
        Err(text) => panic!("the guest cannot be opened: {text}"),
    };
    let reference = go(&Cutting::singly(stream));
    let mut random = Random::new(seed);
    for _ in 0..tries {
        let cutting = Cutting::random(stream, &mut random);
        let other = go(&cutting);
        assert!(other == reference, "cut as {cutting:?}\n{other:#?}\none record a call\n{reference:#?}\n{stream:#?}");
    }
    reference
}
