//! The imports of a guest. Arguments are read where they lie in its memory; nothing it passes is copied but what the
//! state keeps.

use wasmtime::component::{Linker, WasmList, WasmStr};
use wasmtime::{AsContext, StoreContext, StoreContextMut};

use super::call::{Refusal, StampsOf, State};
use super::host::Host;
use super::layout;
use super::tally::{self, Op};
use super::wire::{ColumnRef, DuesBack, StampsRef, ViewBack};
use crate::batch::Column;

type Caller<'a> = StoreContextMut<'a, Host>;
type Answer<T> = wasmtime::Result<T>;

/// Everything this host offers, to any module; `names` has said before which of it a module may import.
pub fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    linker.instance("tamis:guest/types@0.1.0")?;
    linker.instance("tamis:guest/log@0.1.0")?.func_wrap("log", log)?;

    let mut schemas = linker.instance("tamis:guest/schemas@0.1.0")?;
    schemas.func_wrap("get", |_: Caller<'_>, (_,): (u32,)| no_registry::<String>())?;
    schemas.func_wrap("register", |_: Caller<'_>, _: (WasmStr, WasmStr)| no_registry::<u32>())?;

    let mut state = linker.instance("tamis:guest/state@0.1.0")?;
    state.func_wrap("seen", seen)?;
    state.func_wrap("due", due)?;
    state.func_wrap("open", open)?;
    state.func_wrap("remove", remove)?;
    state.func_wrap("put", put)?;
    state.func_wrap("keep", keep)?;
    state.func_wrap("mark", mark)?;
    state.func_wrap("wake", wake)?;
    Ok(linker)
}

fn log(mut caller: Caller<'_>, (level, text): (u8, WasmStr)) -> Answer<()> {
    if !(1..=4).contains(&level) {
        return refuse(&mut caller, Refusal::Breach(format!("log: level {level}")));
    }
    // Not even read beyond the cap, so that a flood costs the guest's own time only.
    if caller.data().log.is_full() {
        return Ok(());
    }
    let text = text.to_str(&caller)?.into_owned();
    caller.data_mut().log.line(level, &text);
    Ok(())
}

fn no_registry<T>() -> Answer<(Result<T, String>,)> {
    Ok((Err("there is no schema registry".into()),))
}

fn seen(
    mut caller: Caller<'_>,
    (space, expires, clears, refresh): (i64, WasmList<i64>, WasmList<u32>, bool),
) -> Answer<(Vec<u8>,)> {
    let answer = with_state(&mut caller, |state, memory, _| {
        state.seen(space, expires.as_le_slice(&memory), clears.as_le_slice(&memory), refresh)
    })?;
    let tally = &mut caller.data_mut().tally;
    tally.count(Op::Seen, answer.len());
    tally.moved(answer.len() as u64, 0);
    Ok((answer,))
}

fn due(mut caller: Caller<'_>, (): ()) -> Answer<(DuesBack,)> {
    let dues = with_state(&mut caller, |state, _, _| state.due())?;
    let host = caller.data_mut();
    host.slots += dues.spaces.len() as u64;
    host.tally.count(Op::Due, dues.spaces.len());
    host.tally.moved(tally::dues(&dues), 0);
    Ok((dues.into(),))
}

fn open(mut caller: Caller<'_>, (rows, spaces): (WasmList<u32>, WasmList<i64>)) -> Answer<(ViewBack,)> {
    let view =
        with_state(&mut caller, |state, memory, _| state.open(rows.as_le_slice(&memory), spaces.as_le_slice(&memory)))?;
    let host = caller.data_mut();
    host.slots += view.entries.values.rows() as u64;
    host.tally.count(Op::Open, view.slots.len());
    host.tally.moved(tally::view(&view), 0);
    Ok((view.into(),))
}

fn remove(mut caller: Caller<'_>, (slots,): (WasmList<u32>,)) -> Answer<()> {
    caller.data_mut().tally.count(Op::Remove, slots.len());
    with_state(&mut caller, |state, memory, _| state.remove(slots.as_le_slice(&memory)))
}

fn put(mut caller: Caller<'_>, (slots, values, expires): (WasmList<u32>, ColumnRef, WasmList<i64>)) -> Answer<()> {
    let tally = &mut caller.data_mut().tally;
    tally.count(Op::Put, slots.len());
    tally.moved(0, column_bytes(&values));
    with_state(&mut caller, |state, memory, scratch| {
        let slots = slots.as_le_slice(&memory);
        take_column(&values, &memory, scratch);
        layout::stored("the values of put", scratch, slots.len())?;
        state.put(slots, scratch, expires.as_le_slice(&memory))
    })
}

type Triples = (WasmList<u32>, WasmList<u8>, WasmList<u32>);

fn keep(mut caller: Caller<'_>, (slots, numbers, rows): Triples) -> Answer<()> {
    caller.data_mut().tally.count(Op::Keep, slots.len());
    with_state(&mut caller, |state, memory, _| {
        state.keep(slots.as_le_slice(&memory), numbers.as_le_slice(&memory), rows.as_le_slice(&memory))
    })
}

fn mark(mut caller: Caller<'_>, (slots, numbers, rows): Triples) -> Answer<()> {
    caller.data_mut().tally.count(Op::Mark, slots.len());
    with_state(&mut caller, |state, memory, _| {
        state.mark(slots.as_le_slice(&memory), numbers.as_le_slice(&memory), rows.as_le_slice(&memory))
    })
}

fn wake(mut caller: Caller<'_>, (slots, wakes, ranks): (WasmList<u32>, StampsRef, ColumnRef)) -> Answer<()> {
    let tally = &mut caller.data_mut().tally;
    tally.count(Op::Wake, slots.len());
    tally.moved(0, column_bytes(&ranks));
    with_state(&mut caller, |state, memory, scratch| {
        let slots = slots.as_le_slice(&memory);
        let wakes = StampsOf { times: wakes.times.as_le_slice(&memory), inputs: wakes.inputs.as_le_slice(&memory) };
        layout::stamps("the wakes of wake", wakes, slots.len())?;
        take_column(&ranks, &memory, scratch);
        let ranks = if scratch.kinds.is_empty() { 0 } else { slots.len() };
        layout::stored("the ranks of wake", scratch, ranks)?;
        state.wake(slots, wakes, scratch)
    })
}

/// Bytes of a column that `take_column` copies.
fn column_bytes(column: &ColumnRef) -> u64 {
    (column.kinds.len() + 4 * column.offsets.len() + column.data.len()) as u64
}

/// Copies a column out of the guest's memory into one whose memory is used again.
fn take_column(from: &ColumnRef, memory: &StoreContext<'_, Host>, into: &mut Column) {
    into.clear();
    into.kinds.extend_from_slice(from.kinds.as_le_slice(memory));
    into.offsets.extend_from_slice(from.offsets.as_le_slice(memory));
    into.data.extend_from_slice(from.data.as_le_slice(memory));
}

/// Runs a state import. The state is taken out of the store for so long, since its arguments lie in the same store.
fn with_state<T>(
    caller: &mut Caller<'_>,
    import: impl FnOnce(&mut dyn State, StoreContext<'_, Host>, &mut Column) -> Result<T, Refusal>,
) -> Answer<T> {
    let Some(mut state) = caller.data_mut().state.take() else {
        return refuse(caller, Refusal::Breach("there is state only during `process` of a keyed stage".into()));
    };
    let mut scratch = std::mem::take(&mut caller.data_mut().scratch);
    let answer = import(&mut *state, caller.as_context(), &mut scratch);
    let host = caller.data_mut();
    host.state = Some(state);
    host.scratch = scratch;
    answer.or_else(|refusal| refuse(caller, refusal))
}

/// Traps, and leaves the reason in the store.
fn refuse<T>(caller: &mut Caller<'_>, refusal: Refusal) -> Answer<T> {
    caller.data_mut().refusal = Some(refusal);
    Err(wasmtime::Error::msg("an import refused"))
}
