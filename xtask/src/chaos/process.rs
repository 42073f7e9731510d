//! One process of the run: started, harmed, started again.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::harm::{self, Harm, Random};
use super::program;
use crate::kafka::cluster::send;

/// A process, or the gap between two.
pub struct Process {
    number: usize,
    folder: PathBuf,
    now: Now,
}

enum Now {
    Running(Child),
    /// Frozen until then.
    Frozen(Child, Instant),
    /// Gone; it starts again then.
    Gone(Instant),
}

impl Process {
    /// Starts the first of it.
    pub fn new(number: usize, own: &Path, pipeline: &str) -> Result<Process> {
        let folder = own.join(format!("process-{number}"));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("pipeline.yaml"), pipeline)?;
        let mut process = Process { number, folder, now: Now::Gone(Instant::now()) };
        process.tend()?;
        Ok(process)
    }

    /// Its state directory.
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Whether it can be harmed.
    pub fn is_running(&self) -> bool {
        matches!(self.now, Now::Running(_))
    }

    /// Starts it or wakes it if it is time to; an end that nobody asked for is an error.
    pub fn tend(&mut self) -> Result<()> {
        match &mut self.now {
            Now::Gone(until) if Instant::now() >= *until => self.now = Now::Running(self.start()?),
            Now::Frozen(child, until) if Instant::now() >= *until => {
                send("CONT", child.id())?;
                if let Now::Frozen(child, _) = std::mem::replace(&mut self.now, Now::Gone(Instant::now())) {
                    self.now = Now::Running(child);
                }
            }
            Now::Running(child) => {
                if let Some(status) = child.try_wait()? {
                    bail!("process {} ended by itself ({status}):\n{}", self.number, self.last_words());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn start(&self) -> Result<Child> {
        let log = self.log()?;
        let mut tamis = Command::new(program("tamis"));
        tamis.args(["-v", "run", "pipeline.yaml"]).current_dir(&self.folder);
        tamis.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        tamis.spawn().context("tamis cannot be started")
    }

    fn log(&self) -> Result<File> {
        Ok(OpenOptions::new().create(true).append(true).open(self.folder.join("log"))?)
    }

    fn last_words(&self) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(15)..).unwrap_or_default().join("\n")
    }

    /// How often its log says that it came back to partitions that others had taken meanwhile.
    pub fn times_too_late(&self) -> usize {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).lines().filter(|line| line.contains("lost: chaos-in/")).count()
    }

    /// Harms it; it comes back a little later. False: there was nothing to rob or to damage, and it was only killed.
    pub fn suffer(&mut self, harm: Harm, random: &mut Random, longest_stop: u64, others: &[PathBuf]) -> Result<bool> {
        if harm == Harm::Freeze {
            let time = Duration::from_millis(1_000 + random.below(longest_stop.saturating_sub(1_000)));
            return self.freeze(time).map(|()| true);
        }
        let Now::Running(mut child) = std::mem::replace(&mut self.now, Now::Gone(Instant::now())) else {
            bail!("process {} does not run", self.number);
        };
        child.kill()?;
        child.wait()?;
        let done = match harm {
            Harm::Wipe => fs::remove_dir_all(self.state()).is_ok(),
            Harm::Damage => harm::damage(&self.state(), others, random)?,
            Harm::Kill | Harm::Freeze => true,
        };
        self.now = Now::Gone(Instant::now() + Duration::from_millis(random.below(1_500)));
        Ok(done)
    }

    /// Freezes it for so long.
    pub fn freeze(&mut self, time: Duration) -> Result<()> {
        let Now::Running(child) = std::mem::replace(&mut self.now, Now::Gone(Instant::now())) else {
            bail!("process {} does not run", self.number);
        };
        send("STOP", child.id())?;
        self.now = Now::Frozen(child, Instant::now() + time);
        Ok(())
    }

    /// Asks it to end, and wants it to end well.
    pub fn end(&mut self) -> Result<()> {
        let mut child = match std::mem::replace(&mut self.now, Now::Gone(Instant::now())) {
            Now::Running(child) => child,
            Now::Frozen(child, _) => {
                send("CONT", child.id())?;
                child
            }
            Now::Gone(_) => return Ok(()),
        };
        let _ = send("TERM", child.id());
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(40) {
            if let Some(status) = child.try_wait()? {
                if !status.success() {
                    bail!("process {} did not end well ({status}):\n{}", self.number, self.last_words());
                }
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        child.kill()?;
        child.wait()?;
        bail!("process {} did not end within 40 s of being asked:\n{}", self.number, self.last_words())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Now::Running(child) | Now::Frozen(child, _) = &mut self.now {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
