//! Does a module fit this host? Names and versions are compared before anything is instantiated, so that a refusal can
//! say which item is missing on which side.

use super::module::World;

/// The package of the contract.
const PACKAGE: &str = "tamis:guest";
/// The version this host was built for, and the part of it that must agree.
pub const VERSION: &str = "0.1.0";
const SERIES: &str = "0.1";

/// What a module may export, and the functions each role needs.
const ROLES: [(&str, &[&str]); 3] = [
    ("key", &["describe", "open", "keys"]),
    ("transform", &["describe", "check", "open", "process"]),
    ("codec", &["describe", "open", "decode", "encode"]),
];

/// What this host offers: interface, functions, and the role it is for (`None`: all).
const OFFERED: [(&str, &[&str], Option<&str>); 4] = [
    ("types", &[], None),
    ("log", &["log"], None),
    ("state", &["seen", "due", "open", "remove", "put", "keep", "mark", "wake"], Some("transform")),
    ("schemas", &["get", "register"], Some("codec")),
];

/// An export or import of a component: its name, and the functions in it if it is an interface.
#[derive(Clone, Debug)]
pub struct Item {
    /// As in the file: `tamis:guest/log@0.1.0`.
    pub name: String,
    /// Names of its functions.
    pub functions: Vec<String>,
}

/// A module that fits.
#[derive(Debug, PartialEq, Eq)]
pub struct Fit {
    /// Its world.
    pub world: World,
    /// Name of the export to call.
    pub export: String,
}

/// Why a module does not fit.
#[derive(Debug, PartialEq, Eq)]
pub struct Misfit {
    /// It asks for something that is defined but not built yet.
    pub later: bool,
    /// What is wrong.
    pub cause: String,
    /// The way out.
    pub help: String,
}

fn misfit<T>(cause: String, help: &str) -> Result<T, Misfit> {
    Err(Misfit { later: false, cause, help: help.into() })
}

const OTHER_VERSION: &str = "build it against the contract of this host, or use a tamis of its version";

/// Compares a component's exports and imports with what this host knows.
pub fn compare(exports: &[Item], imports: &[Item]) -> Result<Fit, Misfit> {
    let (role, export) = role(exports)?;
    let wasi: Vec<&str> = imports.iter().map(|i| i.name.as_str()).filter(|n| n.starts_with("wasi:")).collect();
    if !wasi.is_empty() {
        let cause = format!("it imports {}: modules that use WASI are not run yet", wasi.join(", "));
        let help = "build it without WASI: Rust for wasm32-unknown-unknown, Go and C with a null adapter, \
                    componentize-py with --stub-wasi, componentize-js with all features disabled";
        return Err(Misfit { later: true, cause, help: help.into() });
    }
    let mut keyed = false;
    for import in imports {
        keyed |= offered(import, role)? == "state";
    }
    let world = match role {
        "key" => World::Key,
        "codec" => World::Codec,
        _ if keyed => World::Keyed,
        _ => World::Transform,
    };
    Ok(Fit { world, export })
}

/// The one role of a module, and the name of the export that plays it.
fn role(exports: &[Item]) -> Result<(&'static str, String), Misfit> {
    let mut found: Option<(&'static str, &Item)> = None;
    for item in exports {
        let Some((interface, version)) = ours(&item.name) else { continue };
        let Some(&(role, functions)) = ROLES.iter().find(|(role, _)| *role == interface) else { continue };
        if !fits(version) {
            let cause = format!("the module exports {}, this host knows {SERIES}", item.name);
            return misfit(cause, OTHER_VERSION);
        }
        if let Some(missing) = functions.iter().find(|f| !item.functions.iter().any(|has| has == *f)) {
            let cause = format!("the module exports {} without `{missing}`, which this host calls", item.name);
            return misfit(cause, OTHER_VERSION);
        }
        if let Some((_, first)) = found {
            let cause = format!("the module exports {} and {}: a module has one role", first.name, item.name);
            return misfit(cause, "split it into one module for each");
        }
        found = Some((role, item));
    }
    if let Some((role, item)) = found {
        return Ok((role, item.name.clone()));
    }
    let has = match exports.iter().map(|e| e.name.as_str()).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "nothing".to_owned(),
        names => names,
    };
    let cause = format!("the module exports none of {PACKAGE}/{{key,transform,codec}}@{SERIES}, but {has}");
    misfit(cause, "it is not a guest of tamis; build one with the macros of tamis-guest")
}

/// The interface that an import names, if this host offers all of it to a module of this role.
fn offered(import: &Item, role: &str) -> Result<&'static str, Misfit> {
    let Some((interface, version)) = ours(&import.name) else {
        let cause = format!("the module imports {}, which this host does not offer", import.name);
        return misfit(cause, "a guest may import nothing but tamis:guest; take this import out");
    };
    let Some(&(interface, functions, only)) = OFFERED.iter().find(|(name, ..)| *name == interface) else {
        let cause = format!("the module imports {}, which this host ({VERSION}) does not offer", import.name);
        return misfit(cause, OTHER_VERSION);
    };
    if !fits(version) {
        return misfit(format!("the module imports {}, this host offers {SERIES}", import.name), OTHER_VERSION);
    }
    if let Some(missing) = import.functions.iter().find(|f| !functions.contains(&f.as_str())) {
        let cause = format!("the module imports `{missing}` of {}, this host ({VERSION}) has none", import.name);
        return misfit(cause, OTHER_VERSION);
    }
    if let Some(only) = only.filter(|only| *only != role) {
        let cause = format!("the module is a {role} and imports {}, which is for a {only}", import.name);
        return misfit(cause, "build it for the world of its role");
    }
    Ok(interface)
}

/// Interface and version of a name in our package.
fn ours(name: &str) -> Option<(&str, &str)> {
    let rest = name.strip_prefix(PACKAGE)?.strip_prefix('/')?;
    Some(rest.split_once('@').unwrap_or((rest, "")))
}

/// In a 0.x contract the second number must agree; the third may differ in both directions, since a function that is
/// wanted and not there is found by name.
fn fits(version: &str) -> bool {
    version.strip_prefix(SERIES).is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn item(text: &str) -> Item {
        let mut words = text.split(' ');
        Item { name: words.next().unwrap().into(), functions: words.map(String::from).collect() }
    }

    fn check(exports: &[&str], imports: &[&str]) -> Result<Fit, Misfit> {
        let items = |texts: &[&str]| texts.iter().map(|t| item(t)).collect::<Vec<_>>();
        compare(&items(exports), &items(imports))
    }

    const KEY: &str = "tamis:guest/key@0.1.0 describe open keys";
    const TRANSFORM: &str = "tamis:guest/transform@0.1.0 describe check open process";
    const CODEC: &str = "tamis:guest/codec@0.1.3 describe open decode encode peek";
    const TYPES: &str = "tamis:guest/types@0.1.0";
    const STATE: &str = "tamis:guest/state@0.1.0 seen";

    #[test]
    fn the_world_follows_from_export_and_imports() {
        assert_eq!(check(&[KEY], &[TYPES]).unwrap().world, World::Key);
        assert_eq!(check(&[TRANSFORM], &[TYPES]).unwrap().world, World::Transform);
        assert_eq!(check(&[TRANSFORM], &[TYPES, STATE]).unwrap().world, World::Keyed);
        let codec = check(&["other:thing/x@1.0.0", CODEC], &["tamis:guest/schemas@0.1.0 get"]).unwrap();
        assert_eq!(codec, Fit { world: World::Codec, export: "tamis:guest/codec@0.1.3".into() });
    }

    #[test]
    fn a_refusal_names_the_item_and_the_side() {
        for (exports, imports, words) in [
            (
                &["tamis:guest/transform@0.2.0 describe"][..],
                &[][..],
                "exports tamis:guest/transform@0.2.0, this host knows 0.1",
            ),
            (
                &["tamis:guest/transform@0.1.0 describe open"],
                &[],
                "exports tamis:guest/transform@0.1.0 without `check`",
            ),
            (&[], &[], "but nothing"),
            (&["a:b/c@1.0.0"], &[], "but a:b/c@1.0.0"),
            (&[KEY, TRANSFORM], &[], "a module has one role"),
            (&[KEY], &["tamis:guest/log@0.10.0 log"], "imports tamis:guest/log@0.10.0, this host offers 0.1"),
            (&[KEY], &["tamis:guest/clock@0.1.0 now"], "imports tamis:guest/clock@0.1.0"),
            (&[TRANSFORM], &["tamis:guest/state@0.1.1 seen peek"], "imports `peek` of tamis:guest/state@0.1.1"),
            (&[KEY], &[STATE], "which is for a transform"),
            (&[KEY], &["my:own/thing"], "imports my:own/thing"),
        ] {
            let misfit = check(exports, imports).unwrap_err();
            assert!(misfit.cause.contains(words) && !misfit.later, "{misfit:?}");
        }
    }

    #[test]
    fn wasi_is_for_later_and_all_of_it_is_named() {
        let misfit =
            check(&[KEY], &["wasi:cli/stderr@0.2.0 get-stderr", "wasi:clocks/wall-clock@0.2.0 now"]).unwrap_err();
        assert!(misfit.later && misfit.cause.contains("wasi:cli/stderr@0.2.0, wasi:clocks/wall-clock@0.2.0"));
    }
}
