//! Builds guest crates and packs them as components: cargo for `wasm32-unknown-unknown`, then wit-component, then the
//! manifest as a custom section.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, bail};

/// The target guests are built for: no ambient imports at all.
pub const TARGET: &str = "wasm32-unknown-unknown";
/// The custom section of a component that holds its manifest.
pub const MANIFEST_SECTION: &str = "tamis:manifest";

/// Builds the crates in `crate_dirs`, all of one workspace, by one cargo call into `target_dir`, and writes each as
/// `out_dir/NAME.wasm`, NAME being the name in its `manifest.json`. Gives these paths in the order of the crates. A
/// component that is newer than what it is made of stays as it is.
///
/// # Errors
/// The wasm target is missing (the text names the command that adds it), cargo fails (its output has been shown), a
/// manifest is missing or not one, or the module cannot be made a component.
pub fn build(crate_dirs: &[PathBuf], out_dir: &Path, target_dir: &Path) -> Result<Vec<PathBuf>> {
    if crate_dirs.is_empty() {
        return Ok(Vec::new());
    }
    let crates = crate_dirs.iter().map(|dir| GuestCrate::read(dir)).collect::<Result<Vec<_>>>()?;
    check_target(TARGET)?;
    cargo_build(&crates, target_dir)?;
    fs::create_dir_all(out_dir).with_context(|| format!("cannot make {}", out_dir.display()))?;
    crates.iter().map(|guest| guest.pack(out_dir, target_dir)).collect()
}

/// Makes a component of a core module and puts its manifest into it.
///
/// # Errors
/// The module does not fit the contract: wit-component says how.
pub fn component(module: &[u8], manifest: &str) -> Result<Vec<u8>> {
    let mut component = wit_component::ComponentEncoder::default().validate(true).module(module)?.encode()?;
    let mut section = Vec::new();
    leb(&mut section, MANIFEST_SECTION.len());
    section.extend_from_slice(MANIFEST_SECTION.as_bytes());
    section.extend_from_slice(manifest.as_bytes());
    component.push(0);
    leb(&mut component, section.len());
    component.extend_from_slice(&section);
    Ok(component)
}

/// A number as wasm writes it: seven bits a byte, the lowest first.
fn leb(out: &mut Vec<u8>, mut n: usize) {
    while n >= 0x80 {
        out.push((n as u8 & 0x7f) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

struct GuestCrate {
    dir: PathBuf,
    package: String,
    manifest: String,
    name: String,
}

impl GuestCrate {
    fn read(dir: &Path) -> Result<GuestCrate> {
        let cargo = dir.join("Cargo.toml");
        let text = fs::read_to_string(&cargo).with_context(|| format!("cannot read {}", cargo.display()))?;
        let package = package_name(&text).ok_or_else(|| anyhow!("{} names no package", cargo.display()))?;
        let path = dir.join("manifest.json");
        let manifest = fs::read_to_string(&path)
            .with_context(|| format!("a guest needs a manifest: cannot read {}", path.display()))?;
        let json: serde_json::Value =
            serde_json::from_str(&manifest).with_context(|| format!("{} is not JSON", path.display()))?;
        let name = json["name"].as_str().filter(|name| !name.is_empty() && !name.contains(['/', '\\']));
        let name = name.ok_or_else(|| anyhow!("{} has no name", path.display()))?.to_string();
        Ok(GuestCrate { dir: dir.to_path_buf(), package, manifest, name })
    }

    fn pack(&self, out_dir: &Path, target_dir: &Path) -> Result<PathBuf> {
        let file = format!("{}.wasm", self.package.replace('-', "_"));
        let module = target_dir.join(TARGET).join("guest").join(file);
        let out = out_dir.join(format!("{}.wasm", self.name));
        if is_newer(&out, &[&module, &self.dir.join("manifest.json")]) {
            return Ok(out);
        }
        let bytes = fs::read(&module)
            .with_context(|| format!("{} is no cdylib: cannot read {}", self.package, module.display()))?;
        let component = component(&bytes, &self.manifest)
            .with_context(|| format!("{} cannot be made a component", self.package))?;
        // Renamed into place: another build may read it at the same time.
        let part = out_dir.join(format!(".{}.{}", self.name, std::process::id()));
        fs::write(&part, component).with_context(|| format!("cannot write {}", part.display()))?;
        fs::rename(&part, &out).with_context(|| format!("cannot write {}", out.display()))?;
        Ok(out)
    }
}

/// The `name` of the `[package]` section.
fn package_name(cargo: &str) -> Option<String> {
    let mut lines = cargo.lines().map(str::trim);
    lines.by_ref().find(|line| *line == "[package]")?;
    let name = lines.take_while(|line| !line.starts_with('[')).find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "name").then(|| value.trim().trim_matches('"').to_string())
    })?;
    (!name.is_empty()).then_some(name)
}

fn is_newer(out: &Path, sources: &[&Path]) -> bool {
    let modified = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let Some(made) = modified(out) else { return false };
    sources.iter().all(|source| modified(source).is_some_and(|time| time <= made))
}

fn check_target(target: &str) -> Result<()> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let answer = Command::new(&rustc)
        .args(["--print", "target-libdir", "--target", target])
        .output()
        .with_context(|| format!("cannot run {}", rustc.display()))?;
    let libdir = String::from_utf8_lossy(&answer.stdout);
    if !answer.status.success() || !Path::new(libdir.trim()).is_dir() {
        bail!("guests need the target {target}, which is not installed; add it with: rustup target add {target}");
    }
    Ok(())
}

fn cargo_build(crates: &[GuestCrate], target_dir: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--lib", "--profile", "guest", "--target", TARGET, "--target-dir"]);
    command.arg(target_dir).arg("--manifest-path").arg(crates[0].dir.join("Cargo.toml"));
    for guest in crates {
        command.args(["-p", &guest.package]);
    }
    // From a build script, what was set for the host would go on to the guests.
    for name in ["CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET", "RUSTC_WRAPPER"] {
        command.env_remove(name);
    }
    for name in ["RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS", "RUSTDOC", "RUSTDOCFLAGS", "CARGO_BUILD_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command.env("RUSTFLAGS", "-Ctarget-feature=+simd128");
    let names = crates.iter().map(|guest| guest.package.as_str()).collect::<Vec<_>>().join(", ");
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo could not build the guests {names}; its output stands above");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn a_number_takes_as_many_bytes_as_it_needs() {
        for (n, bytes) in
            [(0, &[0u8][..]), (127, &[0x7f]), (128, &[0x80, 1]), (300, &[0xac, 2]), (16384, &[0x80, 0x80, 1])]
        {
            let mut out = Vec::new();
            leb(&mut out, n);
            assert_eq!(out, bytes, "{n}");
        }
    }

    #[test]
    fn the_name_of_a_package_is_found() {
        let cargo = "[lib]\nname = \"other\"\n[package]\nname = \"tamis-raw\"\nversion.workspace = true\n";
        assert_eq!(package_name(cargo).as_deref(), Some("tamis-raw"));
        assert_eq!(package_name("[package]\n[lib]\nname = \"x\"\n"), None);
    }

    #[test]
    fn a_missing_target_is_named_with_the_command_that_adds_it() {
        let error = check_target("riscv64gc-unknown-fuchsia").unwrap_err().to_string();
        assert!(error.contains("rustup target add riscv64gc-unknown-fuchsia"), "{error}");
        check_target(TARGET).unwrap();
    }

    #[test]
    fn a_crate_without_a_manifest_is_refused_with_its_path() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let error = build(&[dir.to_path_buf()], dir, dir).unwrap_err();
        assert!(format!("{error:#}").contains("manifest.json"), "{error:#}");
    }
}
