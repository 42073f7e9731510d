//! One engine for all guests: how they are compiled, and the clock of their deadlines.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use wasmtime::component::Linker;
use wasmtime::{Cache, CacheConfig, Config, OptLevel, WasmBacktraceDetails, WasmFeatures};

use super::host::Host;
use super::load::LoadError;
use super::module::Module;
use super::{link, load};

/// The stack of a guest, bytes.
const STACK: usize = 512 << 10;
/// Between two ticks of the deadline clock. A call may overrun its deadline by two of them.
const TICK: Duration = Duration::from_millis(10);

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

    /// Compiles, or takes it from the cache.
    pub(super) fn compile(&self, bytes: &[u8]) -> wasmtime::Result<wasmtime::component::Component> {
        // A panic in another compilation leaves nothing behind that matters here.
        let _one = self.inner.compiling.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        wasmtime::component::Component::from_binary(&self.inner.wasm, bytes)
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
