//! Running one step: what it is, a sign of life while it lasts, how long it took.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(30);

/// Says what happens now.
pub fn say(text: &str) {
    eprintln!("==> {text}");
}

/// Runs a command with its output going where ours goes.
pub fn run(what: &str, command: &mut Command) -> Result<()> {
    say(what);
    let beat = Beat::start(what);
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    beat.stop();
    if !status.success() {
        bail!("{what}: failed ({status})");
    }
    Ok(())
}

/// Runs a command, hands every line of its standard output to `line`, and says whether it succeeded.
pub fn lines(what: &str, command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool> {
    say(what);
    let beat = Beat::start(what);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {command:?}"))?;
    if let Some(output) = child.stdout.take() {
        each_line(output, &mut line)?;
    }
    let status = child.wait()?;
    beat.stop();
    Ok(status.success())
}

fn each_line(output: impl Read, line: &mut impl FnMut(&str)) -> Result<()> {
    let mut reader = BufReader::new(output);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes)? > 0 {
        line(String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']));
        bytes.clear();
    }
    Ok(())
}

/// A line every half minute while a step lasts, so that nobody takes a long step for a hanging one.
struct Beat {
    stop: Sender<()>,
    thread: JoinHandle<()>,
    began: Instant,
}

impl Beat {
    fn start(what: &str) -> Beat {
        let (stop, stopped) = channel();
        let (what, began) = (what.to_string(), Instant::now());
        let thread = std::thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(BEAT) {
                say(&format!("{what}: at it for {}", duration(began.elapsed())));
            }
        });
        Beat { stop, thread, began }
    }

    fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
        if self.began.elapsed() > Duration::from_secs(10) {
            say(&format!("done in {}", duration(self.began.elapsed())));
        }
    }
}

fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 60 => format!("{seconds} s"),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}
