//! From a failed call to a `Fault`: which limit or rule it was, in words for a person.

use wasmtime::{Trap, WasmBacktrace};

use super::call::{Fault, Refusal};
use super::escape::escape;
use super::host::Host;

/// The guest trapped: a panic, an access out of bounds, an exhausted stack.
pub const TRAP: &str = "trap";
/// The call took longer than it may.
pub const DEADLINE: &str = "deadline";
/// The instance wanted more memory than it may have.
pub const MEMORY: &str = "memory";
/// The call returned more than it may.
pub const OUTPUT: &str = "output";
/// The guest broke the contract.
pub const CONTRACT: &str = "contract";
/// `open` refused.
pub const OPEN: &str = "open";

/// A fault of the module.
pub fn module(kind: &'static str, text: impl Into<String>) -> Fault {
    Fault::Module { kind, text: text.into() }
}

/// Why `call` came back with an error. `call` names the function, `host` is the data of the store it ran in.
pub fn of(error: &wasmtime::Error, host: &mut Host, call: &str) -> Fault {
    match host.refusal.take() {
        Some(Refusal::Full) => return Fault::Full,
        Some(Refusal::Breach(text)) => return module(CONTRACT, with_words(format!("{call}: {text}"), host)),
        None => {}
    }
    let root = error.root_cause().to_string();
    let (kind, text) = match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => (DEADLINE, format!("{call} took longer than limits.call allows")),
        Some(_) | None if host.meter.refused => {
            (MEMORY, format!("{call} needs more memory than limits.memory allows ({root})"))
        }
        Some(_) => (TRAP, format!("{call}: {root}{}", place(error))),
        // The type of this error is private to wasmtime; a test holds its wording.
        None if root.contains("fuel allocated for hostcalls has been exhausted") => {
            (OUTPUT, format!("{call} returned more than limits.output allows"))
        }
        None if root.contains("exceeds memory limits") => {
            (MEMORY, format!("{call} needs more memory than limits.memory allows ({root})"))
        }
        // What is left is what the component model checks while it lifts: pointers, alignment, UTF-8 of strings.
        None => (CONTRACT, format!("{call}: {root}")),
    };
    module(kind, with_words(text, host))
}

/// The function in which it trapped, if the module has names.
fn place(error: &wasmtime::Error) -> String {
    let frame = error.downcast_ref::<WasmBacktrace>().and_then(|trace| trace.frames().first());
    match frame.and_then(|frame| frame.func_name()) {
        Some(name) => format!(" in {}", escape(name)),
        None => String::new(),
    }
}

/// Adds what the guest said last.
fn with_words(mut text: String, host: &Host) -> String {
    let words = host.log.last_words();
    if !words.is_empty() {
        text.push_str("; it said: ");
        text.push_str(&escape(words));
    }
    text
}
