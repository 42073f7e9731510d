//! Builds the bundled guests and makes them part of the binary.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The guests that come with tamis; each is the crate `transforms/NAME`.
const BUNDLED: &[&str] = &["raw", "string", "double", "mask", "dedup", "json", "filter", "project"];

fn main() -> Result<()> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").context("no OUT_DIR")?);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?;
    // OUT_DIR is TARGET/PROFILE/build/PACKAGE/out.
    let target = out.ancestors().nth(4).context("OUT_DIR is too short")?;
    for path in
        ["guest-sdk/src", "guest-sdk/wit", "guest-sdk/build", "guest-sdk/Cargo.toml", "Cargo.toml", "Cargo.lock"]
    {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    for name in BUNDLED {
        println!("cargo::rerun-if-changed={}", root.join("transforms").join(name).display());
    }
    let crates: Vec<_> = BUNDLED.iter().map(|name| root.join("transforms").join(name)).collect();
    let components = tamis_guest_build::build(&crates, &target.join("guests"), &target.join("guests-build"))?;
    let mut code = String::from("&[");
    for (name, path) in BUNDLED.iter().zip(&components) {
        write!(code, "({name:?}, include_bytes!({path:?})), ")?;
    }
    code.push(']');
    std::fs::write(out.join("bundled.rs"), code).context("cannot write the list of bundled guests")
}
