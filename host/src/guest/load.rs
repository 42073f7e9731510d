//! From bytes to a module: everything that can be said against one is said here, before a record is read.

use std::fmt;
use std::time::Instant;

use serde_json::Value;
use sha2::{Digest, Sha256};
use wasmtime::component::types::ComponentItem;

use super::engine::{Engine, Uncompiled};
use super::escape::escape;
use super::manifest::{self, Form, Manifest};
use super::module::{Module, Parts};
use super::names::{self, Item};

/// The largest file, bytes.
const SIZE: usize = 32 << 20;

/// Why a module cannot be used.
#[derive(Clone, Debug)]
pub struct LoadError {
    /// The name it was loaded by.
    pub module: String,
    /// P-GUEST, or P-LATER for what is defined but not built yet.
    pub code: &'static str,
    /// What is wrong.
    pub cause: String,
    /// The way out.
    pub help: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", escape(&self.module), escape(&self.cause), escape(&self.help))
    }
}

impl std::error::Error for LoadError {}

const PACK: &str = "pack it with `cargo xtask guests` or tamis-guest-build";
const REBUILD: &str = "build it again with tamis-guest-build, which writes the section";

/// See `Engine::load`.
pub fn load(engine: &Engine, name: &str, bytes: &[u8]) -> Result<Module, LoadError> {
    let error =
        |cause: String, help: &str| LoadError { module: name.into(), code: "P-GUEST", cause, help: help.into() };

    if bytes.len() > SIZE {
        let cause = format!("it has {} bytes, a module may have {} MiB", bytes.len(), SIZE >> 20);
        return Err(error(cause, "build it smaller: optimised for size, without debug information"));
    }
    match manifest::form(bytes) {
        Form::Component => {}
        Form::Core => return Err(error("it is a core module, not a component".into(), PACK)),
        Form::Other => return Err(error("it is not a WebAssembly component".into(), "name a .wasm file of a guest")),
    }

    let section = manifest::section(bytes).map_err(|cause| error(cause, REBUILD))?;
    let section = section.ok_or_else(|| error("it has no section `tamis:manifest`".into(), REBUILD))?;
    let said: Value = serde_json::from_slice(section)
        .map_err(|e| error(format!("its section `tamis:manifest` is not JSON: {e}"), REBUILD))?;
    let manifest = Manifest::parse(&said).map_err(|cause| error(cause, "correct the manifest beside its source"))?;

    let began = Instant::now();
    let component = engine.compile(bytes).map_err(|why| match why {
        Uncompiled::Refused(text) => {
            error(format!("it does not compile: {text}"), "build it again; the file may be damaged")
        }
        Uncompiled::TooLong(limit) => error(
            format!("it had not been compiled after {} s", limit.as_secs()),
            "build it smaller: optimised for size, without debug information, with fewer and shorter functions",
        ),
    })?;
    let compiled = began.elapsed();

    let ty = component.component_type();
    let item = |(name, item): (&str, ComponentItem)| Item { name: name.into(), functions: functions(engine, &item) };
    let exports: Vec<Item> = ty.exports(engine.wasm()).map(|(name, e)| item((name, e.ty))).collect();
    let imports: Vec<Item> = ty.imports(engine.wasm()).map(|(name, e)| item((name, e.ty))).collect();
    let fit = names::compare(&exports, &imports).map_err(|misfit| LoadError {
        module: name.into(),
        code: if misfit.later { "P-LATER" } else { "P-GUEST" },
        cause: misfit.cause,
        help: misfit.help,
    })?;

    let wrong_types = "build it against the contract of this host (guest-sdk/wit)";
    let pre = engine
        .linker()
        .instantiate_pre(&component)
        .map_err(|e| error(format!("its imports have other types: {e:#}"), wrong_types))?;
    let module = Module::new(Parts {
        engine: engine.clone(),
        name: name.into(),
        digest: hex(&Sha256::digest(bytes)),
        size: bytes.len(),
        compiled,
        manifest,
        world: fit.world,
        export: fit.export,
        imports: imports.into_iter().map(|i| i.name).collect(),
        pre,
    });

    let described = module.describe().map_err(|text| error(text, wrong_types))?;
    let described: Value = serde_json::from_str(&described)
        .map_err(|e| error(format!("what it describes itself as is not JSON: {e}"), REBUILD))?;
    if described != said {
        let cause = "its section `tamis:manifest` and what it describes itself as differ".to_owned();
        return Err(error(cause, REBUILD));
    }
    Ok(module)
}

/// The functions of an interface; none for anything else.
fn functions(engine: &Engine, item: &ComponentItem) -> Vec<String> {
    let ComponentItem::ComponentInstance(instance) = item else { return Vec::new() };
    instance
        .exports(engine.wasm())
        .filter(|(_, e)| matches!(e.ty, ComponentItem::ComponentFunc(_)))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|n| char::from(b"0123456789abcdef"[n as usize])).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn a_file_that_is_no_guest_is_refused_with_cause_and_way_out() {
        let engine = Engine::new(None).unwrap();
        let component = b"\0asm\x0d\0\x01\0".to_vec();
        let with_section = |json: &str| {
            let mut bytes = component.clone();
            bytes.extend([0, 15 + json.len() as u8, 14]);
            bytes.extend(b"tamis:manifest");
            bytes.extend(json.as_bytes());
            bytes
        };
        for (bytes, words) in [
            (vec![0; SIZE + 1], "a module may have 32 MiB"),
            (b"\x7fELF\x02\x01".to_vec(), "not a WebAssembly component"),
            (b"\0asm\x01\0\0\0".to_vec(), "a core module"),
            (component.clone(), "no section `tamis:manifest`"),
            (with_section("{"), "not JSON"),
            (with_section("{}"), "no `name`"),
            (with_section(r#"{"name":"n","version":"1"}"#), "exports none of tamis:guest"),
            ([with_section(r#"{"name":"n","version":"1"}"#), vec![1, 2, 3]].concat(), "does not compile"),
        ] {
            let error = engine.load("x\u{1b}", &bytes).err().expect(words);
            let text = error.to_string();
            assert!(text.contains(words) && text.starts_with("x\\u{1b}: ") && text.contains("; "), "{text}");
            assert_eq!(error.code, "P-GUEST");
        }
    }

    #[test]
    fn digests_are_hexadecimal() {
        assert_eq!(hex(&[0, 0xab, 0x1f]), "00ab1f");
    }
}
