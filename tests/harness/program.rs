//! The program as a user runs it: a folder with files, a command, what it said.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The binary, built if it is not there yet.
pub fn tamis() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        // target/PROFILE/deps/integration-.. -> target/PROFILE/tamis
        let test = std::env::current_exe().expect("this test has a path");
        let folder = test.parent().and_then(Path::parent).expect("a test lies in target/PROFILE/deps");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "tamis", "--bin", "tamis"]).current_dir(root());
        if folder.file_name().is_some_and(|name| name == "release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success(), "tamis does not build");
        folder.join("tamis")
    })
}

/// Folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the workspace").to_path_buf()
}

/// A folder of one test, which goes with it.
pub struct Folder(PathBuf);

impl Folder {
    /// An empty one; `name` must be the test's own.
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tamis-test-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Folder(path)
    }

    /// Where it is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).expect("a file can be written");
    }

    /// The text of a file; empty if there is none.
    pub fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    /// A command that runs here, with a state directory of its own and a cache of compiled guests that all tests share.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(tamis());
        command
            .args(arguments)
            .current_dir(&self.0)
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CACHE_HOME", std::env::temp_dir().join("tamis-test-cache"))
            .env_remove("TAMIS_MODULES")
            .stdin(Stdio::null());
        command
    }

    /// Runs to the end.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran(self.command(arguments).output().expect("tamis runs"))
    }

    /// Runs to the end; what takes longer than that is killed, which its exit code shows.
    pub fn run_within(&self, time: Duration, arguments: &[&str]) -> Ran {
        let mut child = self.start(arguments);
        let began = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if began.elapsed() > time {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ran(child.wait_with_output().expect("its output is ours"))
    }

    /// Starts, and does not wait.
    pub fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("tamis starts")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a run said.
#[derive(Debug)]
pub struct Ran(pub Output);

impl Ran {
    /// Its exit code, -1 if a signal ended it.
    pub fn code(&self) -> i32 {
        self.0.status.code().unwrap_or(-1)
    }

    /// What it wrote to standard output.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    /// What it wrote to standard error.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Asserts the exit code, showing what was said.
    #[track_caller]
    pub fn exits(self, code: i32) -> Ran {
        assert_eq!(self.code(), code, "stdout:\n{}\nstderr:\n{}", self.out(), self.err());
        self
    }

    /// Asserts that standard error has all of these.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Ran {
        for part in parts {
            assert!(self.err().contains(part), "`{part}` is not in:\n{}", self.err());
        }
        self
    }
}
