//! What a fresh machine lacks: looked for, added where we can, named with the way out where we cannot.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::steps;

/// The target every guest is built for.
const TARGET: &str = "wasm32-unknown-unknown";
/// The oldest Rust that builds the engine.
const OLDEST: (u32, u32) = (1, 95);

/// Folder of the workspace.
pub fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map(PathBuf::from).unwrap_or(xtask)
}

/// The cargo that runs us.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Checks compiler and target, and adds the target if it is missing.
pub fn prepare() -> Result<()> {
    check_rust()?;
    check_linker()?;
    check_kafka_client()?;
    if has_target()? {
        return Ok(());
    }
    steps::say(&format!("adding the Rust target {TARGET} (guests are built for it)"));
    let added = Command::new("rustup").args(["target", "add", TARGET]).current_dir(root()).status();
    match added {
        Ok(status) if status.success() && has_target()? => Ok(()),
        Ok(_) => bail!(
            "`rustup target add {TARGET}` failed. Way out: check the network (or the proxy) and run the command by hand"
        ),
        Err(error) => bail!(
            "the Rust target {TARGET} is missing and rustup cannot be run ({error}). Way out: install Rust by rustup, \
             or your system's package with the standard library for {TARGET}"
        ),
    }
}

fn check_rust() -> Result<()> {
    let text = output("rustc", &["--version"])
        .context("rustc cannot be run. Way out: install Rust 1.95 or newer by rustup (https://rustup.rs)")?;
    let numbers: Vec<u32> =
        text.split_whitespace().nth(1).unwrap_or("").split(['.', '-']).map_while(|n| n.parse().ok()).collect();
    if let [major, minor, ..] = numbers[..]
        && (major, minor) < OLDEST
    {
        bail!("{} is too old. Way out: `rustup update stable` (1.95 or newer is needed)", text.trim());
    }
    Ok(())
}

fn check_linker() -> Result<()> {
    let found = Command::new("cc").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if cfg!(unix) && found.is_err() {
        bail!("there is no C compiler (`cc`). Way out: on Debian or Ubuntu `apt-get install gcc libc6-dev`");
    }
    Ok(())
}

/// The Kafka client is built from C, and speaks TLS by OpenSSL.
fn check_kafka_client() -> Result<()> {
    let make = Command::new("make").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if cfg!(unix) && make.is_err() {
        bail!("there is no `make`. Way out: on Debian or Ubuntu `apt-get install make`");
    }
    let include = Command::new("cc")
        .args(["-E", "-include", "openssl/ssl.h", "-x", "c", "/dev/null"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if cfg!(target_os = "linux") && !include.is_ok_and(|status| status.success()) {
        bail!("there are no headers of OpenSSL. Way out: on Debian or Ubuntu `apt-get install libssl-dev`");
    }
    Ok(())
}

/// Whether the standard library for the target is there, by looking for it: this works with and without rustup.
fn has_target() -> Result<bool> {
    let folder = output("rustc", &["--print", "target-libdir", "--target", TARGET])?;
    let Ok(entries) = std::fs::read_dir(folder.trim()) else { return Ok(false) };
    Ok(entries.flatten().any(|e| e.file_name().to_string_lossy().starts_with("libcore-")))
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).current_dir(root()).output()?;
    if !output.status.success() {
        bail!("`{program} {}` failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
