//! One engine for all guests: how they are compiled, and the clock of their deadlines.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use wasmtime::component::{Component, Linker};
use wasmtime::{Cache, CacheConfig, Config, OptLevel, WasmBacktraceDetails, WasmFeatures};

use super::host::Host;
use super::load::LoadError;
use super::module::Module;
use super::{link, load};

/// The stack of a guest, bytes.
const STACK: usize = 512 << 10;
/// How long one module may take to be compiled. The slowest in use, interpreters of 18 MB, take 14 s.
const COMPILING: Duration = Duration::from_secs(120);
/// Between two ticks of the deadline clock. A call may overrun its deadline by two of them.
const TICK: Duration = Duration::from_millis(10);

/// Why there is no compiled module.
#[derive(Debug)]
pub(super) enum Uncompiled {
    /// The compiler says so; in its words.
    Refused(String),
    /// It had not come to an end after this long.
    TooLong(Duration),
}

/// Compiles and runs guests. Clones share everything.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    wasm: wasmtime::Engine,
    linker: Linker<Host>,
    /// One compilation at a time: it takes all cores by itself.
    compiling: Mutex<()>,
    _ticker: Ticker,
}

impl Engine {
    /// Starts an engine. `cache`: a directory for compiled code, made if it is missing, readable for its owner only,
    /// since what lies there is run without being checked again. `None`: everything is compiled every time.
    ///
    /// # Errors
    /// The directory cannot be made, or belongs to somebody else.
    pub fn new(cache: Option<&Path>) -> Result<Engine> {
        let mut config = Config::new();
        config
            .concurrency_support(false)
            .epoch_interruption(true)
            .max_wasm_stack(STACK)
            .cranelift_opt_level(OptLevel::Speed)
            .cranelift_nan_canonicalization(true)
            .wasm_backtrace_details(WasmBacktraceDetails::Disable)
            .wasm_features(WasmFeatures::THREADS, false)
            .wasm_relaxed_simd(false)
            .wasm_memory64(false);
        if let Some(directory) = cache {
            let cache = open_cache(directory)
                .with_context(|| format!("the cache of compiled guests in {}", directory.display()))?;
            config.cache(Some(cache));
        }
        let wasm = wasmtime::Engine::new(&config).map_err(|e| anyhow!("{e:#}"))?;
        let linker = link::linker(&wasm).map_err(|e| anyhow!("{e:#}"))?;
        let ticker = Ticker::start(wasm.clone())?;
        Ok(Engine { inner: Arc::new(Inner { wasm, linker, compiling: Mutex::new(()), _ticker: ticker }) })
    }

    /// Makes a module of the bytes of a component. `name` stands for it in messages and logs.
    ///
    /// # Errors
    /// It is no component, is too large, does not fit this host, or is not what its manifest says.
    pub fn load(&self, name: &str, bytes: &[u8]) -> Result<Module, LoadError> {
        load::load(self, name, bytes)
    }

    pub(super) fn wasm(&self) -> &wasmtime::Engine {
        &self.inner.wasm
    }

    pub(super) fn linker(&self) -> &Linker<Host> {
        &self.inner.linker
    }

    /// Compiles, or takes it from the cache, within `COMPILING`.
    pub(super) fn compile(&self, bytes: &[u8]) -> Result<Component, Uncompiled> {
        self.compile_within(COMPILING, bytes)
    }

    /// The compiler is asked in a thread of its own: nothing stops it, so one that takes too long is left behind.
    fn compile_within(&self, limit: Duration, bytes: &[u8]) -> Result<Component, Uncompiled> {
        // A panic in another compilation leaves nothing behind that matters here.
        let _one = self.inner.compiling.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (answer, wait) = channel();
        let (wasm, bytes) = (self.inner.wasm.clone(), bytes.to_vec());
        let thread = std::thread::Builder::new().name("guest-compiler".into()).spawn(move || {
            // Whoever asked may have lost patience.
            let _ = answer.send(Component::from_binary(&wasm, &bytes));
        });
        thread.map_err(|e| Uncompiled::Refused(format!("the compiler does not start: {e}")))?;
        match wait.recv_timeout(limit) {
            Ok(compiled) => compiled.map_err(|e| Uncompiled::Refused(format!("{e:#}"))),
            Err(RecvTimeoutError::Timeout) => Err(Uncompiled::TooLong(limit)),
            Err(RecvTimeoutError::Disconnected) => Err(Uncompiled::Refused("the compiler gave up on it".into())),
        }
    }

    /// A deadline `ns` nanoseconds from now, in ticks from now.
    pub(super) fn ticks(ns: u64) -> u64 {
        // The tick under way does not count.
        ns.div_ceil(TICK.as_nanos() as u64).saturating_add(1)
    }
}

fn open_cache(directory: &Path) -> Result<Cache> {
    let directory = std::path::absolute(directory)?;
    make_private(&directory)?;
    let mut config = CacheConfig::new();
    config.with_directory(&directory);
    Cache::new(config).map_err(|e| anyhow!("{e:#}"))
}

#[cfg(unix)]
fn make_private(directory: &Path) -> Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).context("cannot be made")?;
    // Fails if the directory is somebody else's.
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).context("cannot be made private")
}

#[cfg(not(unix))]
fn make_private(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).context("cannot be made")
}

/// The thread that moves the epoch on, as long as its engine lives.
struct Ticker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    fn start(wasm: wasmtime::Engine) -> Result<Ticker> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("guest-deadlines".into())
            .spawn(move || {
                while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    wasm.increment_epoch();
                }
            })
            .context("cannot start the thread of the guests' deadlines")?;
        Ok(Ticker { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn a_module_that_takes_too_long_to_compile_is_given_up_and_the_next_one_is_compiled() {
        let engine = Engine::new(None).unwrap();
        let (_, bytes) = crate::bundled::all().first().expect("a bundled guest");
        let given_up = engine.compile_within(Duration::ZERO, bytes).err();
        assert!(matches!(given_up, Some(Uncompiled::TooLong(Duration::ZERO))), "{given_up:?}");
        assert!(engine.compile(bytes).is_ok());
    }
}
