//! Children that are watched: what they say goes into a file, and who waits for one in vain hears why.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// Between two words on standard error while nothing else is said.
const WORD: Duration = Duration::from_secs(5);
/// How long a child may take to end once it is asked to.
const GOODBYE: Duration = Duration::from_secs(60);
/// Lines of a child that are shown when it fails.
const SHOWN: usize = 15;

/// Tells on standard error how far a benchmark has come: figures alone go to standard output.
pub fn say(text: &str) {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    eprintln!("ratios: {:>5.1} s  {text}", BEGAN.get_or_init(Instant::now).elapsed().as_secs_f64());
}

/// The number in a variable of the environment; a text that is none is a mistake we want to see.
pub fn from_env(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}: `{text}` is no number")),
        Err(_) => otherwise,
    }
}

/// A child. It does not outlive this value.
pub struct Watched {
    child: Child,
    what: String,
    said: PathBuf,
}

impl Watched {
    /// Starts a child; what it says to standard error goes into the file.
    pub fn start(mut command: Command, what: &str, said: &Path) -> Watched {
        let file = File::create(said).expect("a file for what it says");
        let child = command.stderr(Stdio::from(file)).spawn().expect("the child runs");
        Watched { child, what: what.to_owned(), said: said.to_owned() }
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it said so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.said).unwrap_or_default()).into_owned()
    }

    /// Waits until something is so, which must be while the child runs and within this time. `is_so` gives how far it is
    /// as an error.
    pub fn wait_for(&mut self, what: &str, limit: Duration, mut is_so: impl FnMut() -> Result<(), String>) {
        let (began, mut told) = (Instant::now(), Instant::now());
        while let Err(so_far) = is_so() {
            if let Some(status) = self.child.try_wait().expect("its status") {
                self.fail(&format!("ended before {what} ({so_far}): {status}"));
            }
            if began.elapsed() > limit {
                self.fail(&format!("not within {} s: {what} ({so_far})", limit.as_secs()));
            }
            if told.elapsed() > WORD {
                let said = self.said();
                let last = said.lines().next_back().unwrap_or("nothing");
                say(&format!("{}: waiting until {what}: {so_far}; it said last: {last}", self.what));
                told = Instant::now();
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until it ends well by itself, and gives what it said.
    pub fn end(mut self, limit: Duration) -> String {
        let (began, mut told) = (Instant::now(), Instant::now());
        loop {
            match self.child.try_wait().expect("its status") {
                Some(status) if status.success() => return self.said(),
                Some(status) => self.fail(&status.to_string()),
                None if began.elapsed() > limit => self.fail(&format!("it did not end within {} s", limit.as_secs())),
                None => {}
            }
            if told.elapsed() > WORD {
                say(&format!("{}: runs", self.what));
                told = Instant::now();
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Asks it to end, waits until it has, and gives what it said.
    pub fn stop(self) -> String {
        let asked = Command::new("kill").arg(self.id().to_string()).status().expect("kill runs");
        assert!(asked.success(), "{}: it cannot be asked to end", self.what);
        self.end(GOODBYE)
    }

    fn fail(&self, why: &str) -> ! {
        let said = self.said();
        let lines: Vec<&str> = said.lines().collect();
        let last = lines.get(lines.len().saturating_sub(SHOWN)..).unwrap_or_default().join("\n");
        panic!("{}: {why}\nit said last:\n{last}", self.what)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It has ended, or nobody needs it any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
