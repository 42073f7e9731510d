//! The macros that make a guest of a type, and what they expand to. On other targets than wasm32 they export nothing,
//! so that several guests link into one test.

use serde_json::Value;

use crate::bindings::{stage_exports, state};
use crate::cells::{Cell, Column};
use crate::check::Check;
use crate::codec::Codec;
use crate::driver::{Driver, FAILED};
use crate::failure::RowFailure;
use crate::key::{Key, KeyCell};
use crate::keyed::{Dues, Keyed, Outcome, Stamps, StateCalls, View};
use crate::log_panics;
use crate::out::Out;
use crate::row::Batch;
use crate::transform::Transform;

/// Exports a [`Key`]: `key!(Type, include_str!("../manifest.json"));`
#[macro_export]
macro_rules! key {
    ($guest:ty, $manifest:expr) => {
        $crate::__manifest!($manifest);
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, missing_docs)]
        const _: () = {
            use $crate::bindings::types::{Column, Failure};
            $crate::__opened!($crate::__private::OpenKey<$guest>);
            struct Export;
            impl $crate::bindings::key_exports::Guest for Export {
                fn describe() -> String {
                    MANIFEST.to_string()
                }
                fn open(params: String) -> Result<Vec<String>, String> {
                    let (key, columns) = $crate::__private::OpenKey::open(&params)?;
                    OPENED.set(Some(key));
                    Ok(columns)
                }
                fn keys(columns: Vec<Column>) -> (Column, Vec<Failure>) {
                    opened(|key| key.keys(&columns))
                }
            }
            $crate::bindings::key::export_key!(Export);
        };
        $crate::__natively!(
            fn open(params: &str) {
                let opened = $crate::__private::OpenKey::<$guest>::open(params);
                let _ = opened.map(|(mut key, _)| key.keys(&[]));
            }
        );
    };
}

/// Exports a [`Transform`]: `transform!(Type, include_str!("../manifest.json"));`
#[macro_export]
macro_rules! transform {
    ($guest:ty, $manifest:expr) => {
        $crate::__stage!($guest, $manifest, $crate::__private::OpenTransform<$guest>);
    };
}

/// Exports a [`Keyed`]: `keyed!(Type, include_str!("../manifest.json"));`
#[macro_export]
macro_rules! keyed {
    ($guest:ty, $manifest:expr) => {
        $crate::__stage!($guest, $manifest, $crate::__private::OpenKeyed<$guest>);
    };
}

/// Exports a [`Codec`]: `codec!(Type, include_str!("../manifest.json"));`
#[macro_export]
macro_rules! codec {
    ($guest:ty, $manifest:expr) => {
        $crate::__manifest!($manifest);
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, missing_docs)]
        const _: () = {
            use $crate::bindings::codec_exports::Decoded;
            use $crate::bindings::types::{Column, Failure};
            $crate::__opened!($guest);
            struct Export;
            impl $crate::bindings::codec_exports::Guest for Export {
                fn describe() -> String {
                    MANIFEST.to_string()
                }
                fn open(params: String, paths: Vec<String>) -> Result<(), String> {
                    OPENED.set(Some($crate::__private::open_codec(&params, &paths)?));
                    Ok(())
                }
                fn decode(payloads: Column) -> Decoded {
                    opened(|codec| $crate::Codec::decode(codec, &payloads))
                }
                fn encode(columns: Vec<Column>) -> (Column, Vec<Failure>) {
                    opened(|codec| $crate::Codec::encode(codec, &columns))
                }
            }
            $crate::bindings::codec::export_codec!(Export);
        };
        $crate::__natively!(
            fn open(params: &str) {
                let _ = $crate::__private::open_codec::<$guest>(params, &[]);
            }
        );
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __stage {
    ($guest:ty, $manifest:expr, $opened:ty) => {
        $crate::__manifest!($manifest);
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, missing_docs)]
        const _: () = {
            use $crate::bindings::stage_exports::{Batch, Outcome};
            $crate::__opened!($opened);
            struct Export;
            impl $crate::bindings::stage_exports::Guest for Export {
                fn describe() -> String {
                    MANIFEST.to_string()
                }
                fn check(params: String, context: String) -> String {
                    <$opened>::check(&params, &context)
                }
                fn open(params: String, context: String) -> Result<(), String> {
                    OPENED.set(Some(<$opened>::open(&params, &context)?));
                    Ok(())
                }
                fn process(batch: Batch) -> Outcome {
                    opened(|stage| stage.process(&batch))
                }
            }
            $crate::bindings::stage::export_stage!(Export);
        };
        $crate::__natively!(
            fn open(params: &str) {
                let _ = <$opened>::open(params, params);
            }
        );
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __manifest {
    ($manifest:expr) => {
        /// The manifest of this guest, JSON.
        pub const MANIFEST: &str = $manifest;
    };
}

/// Uses the guest where it exports nothing, lest its author is warned that nobody does.
#[doc(hidden)]
#[macro_export]
macro_rules! __natively {
    ($used:item) => {
        #[cfg(not(target_arch = "wasm32"))]
        const _: () = {
            #[allow(dead_code)]
            $used
        };
    };
}

/// The guest once it is open. A call before `open` is a fault.
#[doc(hidden)]
#[macro_export]
macro_rules! __opened {
    ($opened:ty) => {
        ::std::thread_local! {
            static OPENED: ::std::cell::RefCell<Option<$opened>> = const { ::std::cell::RefCell::new(None) };
        }
        fn opened<T>(call: impl FnOnce(&mut $opened) -> T) -> T {
            OPENED.with_borrow_mut(|opened| match opened {
                Some(opened) => call(opened),
                None => panic!("called before open"),
            })
        }
    };
}

/// What the macros expand to; no part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use super::{OpenKey, OpenKeyed, OpenTransform, open_codec};
}

/// An open key.
pub struct OpenKey<K> {
    key: K,
}

impl<K: Key> OpenKey<K> {
    /// Opens it; gives the columns wanted, too.
    pub fn open(params: &str) -> Result<(OpenKey<K>, Vec<String>), String> {
        log_panics();
        let (key, columns) = K::open(&json(params)?)?;
        if columns.is_empty() {
            return Err("a key reads at least one column".to_string());
        }
        Ok((OpenKey { key }, columns))
    }

    /// A cell per row.
    pub fn keys(&mut self, columns: &[Column]) -> (Column, Vec<RowFailure>) {
        let rows = columns.first().map_or(0, Column::len);
        let batch = Batch { rows: rows as u32, columns, ..Batch::default() };
        let mut keys = Column::with_capacity(rows, 16 * rows);
        let mut failures = Vec::new();
        for row in 0..rows {
            let result = self.key.key(&batch.row(row as u32), &mut KeyCell { column: &mut keys, row });
            if let Err(failure) = result {
                failures.push(failure.at(row as u32));
                while keys.len() > row {
                    keys.pop();
                }
            }
            if keys.len() == row {
                keys.push(Cell::MISSING);
            }
        }
        (keys, failures)
    }
}

/// An open stage without state.
pub struct OpenTransform<T> {
    transform: T,
    columns: usize,
    counters: usize,
}

impl<T: Transform> OpenTransform<T> {
    /// The check's answer, JSON.
    pub fn check(params: &str, context: &str) -> String {
        log_panics();
        answer(params, context, T::check)
    }

    /// Opens it.
    pub fn open(params: &str, context: &str) -> Result<OpenTransform<T>, String> {
        log_panics();
        let (params, context) = (json(params)?, json(context)?);
        let check = T::check(&params, &context);
        let transform = T::open(&params, &context)?;
        Ok(OpenTransform { transform, columns: check.writes.len(), counters: check.counters.len() })
    }

    /// One call.
    pub fn process(&mut self, batch: &stage_exports::Batch) -> Outcome {
        let batch = Batch::of(batch);
        let mut out = Out::new(self.columns, self.counters);
        let mut verdicts = Vec::with_capacity(batch.rows as usize);
        for index in 0..batch.rows {
            let emitted = out.emitted();
            out.stand(index, None);
            let row = batch.row(index);
            let verdict = match self.transform.row(&row, &mut out) {
                Ok(verdict) => verdict.code(),
                Err(failure) => {
                    out.fail(&row, failure);
                    FAILED
                }
            };
            verdicts.push(if out.undo_if_failed(emitted) { FAILED } else { verdict });
        }
        out.finish(verdicts, Vec::new(), Vec::new())
    }
}

/// An open stage with state.
pub struct OpenKeyed<K> {
    driver: Driver<K>,
}

impl<K: Keyed> OpenKeyed<K> {
    /// The check's answer, JSON.
    pub fn check(params: &str, context: &str) -> String {
        log_panics();
        answer(params, context, K::check)
    }

    /// Opens it.
    pub fn open(params: &str, context: &str) -> Result<OpenKeyed<K>, String> {
        log_panics();
        let (params, context) = (json(params)?, json(context)?);
        let check = K::check(&params, &context);
        let guest = K::open(&params, &context)?;
        Ok(OpenKeyed { driver: Driver::new(guest, check.writes.len(), check.counters.len()) })
    }

    /// One call, with the state of the host.
    pub fn process(&mut self, batch: &stage_exports::Batch) -> Outcome {
        self.process_with(&Batch::of(batch), &mut HostState)
    }

    /// One call, with this state.
    pub fn process_with(&mut self, batch: &Batch<'_>, state: &mut dyn StateCalls) -> Outcome {
        self.driver.process(batch, state)
    }
}

/// Opens a codec.
pub fn open_codec<C: Codec>(params: &str, paths: &[String]) -> Result<C, String> {
    log_panics();
    C::open(&json(params)?, paths)
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))
}

fn answer(params: &str, context: &str, check: impl Fn(&Value, &Value) -> Check) -> String {
    let check = match (json(params), json(context)) {
        (Ok(params), Ok(context)) => check(&params, &context),
        (Err(text), _) | (_, Err(text)) => {
            let mut refused = Check::default();
            refused.error("guest-json", "", text);
            refused
        }
    };
    serde_json::to_string(&check).unwrap_or_default()
}

/// The state imports.
struct HostState;

impl StateCalls for HostState {
    fn seen(&mut self, space: i64, expires: &[i64], clears: &[u32], refresh: bool) -> Vec<u8> {
        state::seen(space, expires, clears, refresh)
    }
    fn due(&mut self) -> Dues {
        state::due()
    }
    fn open(&mut self, rows: &[u32], spaces: &[i64]) -> View {
        state::open(rows, spaces)
    }
    fn remove(&mut self, slots: &[u32]) {
        state::remove(slots);
    }
    fn put(&mut self, slots: &[u32], values: &Column, expires: &[i64]) {
        state::put(slots, values, expires);
    }
    fn keep(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32]) {
        state::keep(slots, numbers, rows);
    }
    fn mark(&mut self, slots: &[u32], numbers: &[u8], rows: &[u32]) {
        state::mark(slots, numbers, rows);
    }
    fn wake(&mut self, slots: &[u32], wakes: &Stamps, ranks: &Column) {
        state::wake(slots, wakes, ranks);
    }
}
