//! A run that tells of itself over HTTP, read over a plain socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::program::Folder;

/// A run that lasts, and the address it says it serves at. It ends with this value.
pub struct Watched {
    child: Child,
    address: String,
}

impl Watched {
    /// Runs the pipeline `p.yaml`, whose `run.http` has the port 0.
    pub fn start(folder: &Folder) -> Watched {
        let mut child = folder.start(&["run", "p.yaml"]);
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is ours")).lines();
        let said = lines.find_map(|line| {
            let line = line.expect("text");
            line.split_once("are at http://").map(|(_, address)| address.trim().to_string())
        });
        // Whatever it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Watched { child, address: said.expect("it says where it serves") }
    }

    /// Status line and body.
    pub fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
        (head.lines().next().unwrap_or_default().to_string(), body.to_string())
    }

    /// Asks until the answer has this text, and gives the answer.
    #[track_caller]
    pub fn wait_for(&self, path: &str, what: &str) -> String {
        let began = Instant::now();
        loop {
            let (_, body) = self.get(path);
            if body.contains(what) {
                return body;
            }
            assert!(began.elapsed() < Duration::from_secs(90), "`{what}` does not come at {path}:\n{body}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let killed = Command::new("kill").args(["-s", "TERM", &self.child.id().to_string()]).status();
        assert!(killed.expect("kill runs").success());
    }

    /// Where it serves.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait()
    }

    /// The value of a series, given with its labels; nothing if it is not there.
    pub fn value(&self, series: &str) -> Option<f64> {
        let (_, metrics) = self.get("/metrics");
        metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
