//! `tamis-guest-build OUT_DIR CRATE_DIR..`: builds guest crates of one workspace and packs them into `OUT_DIR`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [out, crates @ ..] = arguments.as_slice() else { bail!("usage: tamis-guest-build OUT_DIR CRATE_DIR..") };
    for path in tamis_guest_build::build(crates, out, Path::new("target/guests-build"))? {
        println!("{}", path.display());
    }
    Ok(())
}
