//! Where guests come from: the bundled ones, files that a pipeline names, and the modules folders (contract section 6).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::nearest;
use crate::guest::{Engine, Manifest, Module, manifest_of};
use crate::plan::{Guests, NotFound};

/// Bundled guests: name and bytes.
pub type Bundled = &'static [(&'static str, &'static [u8])];

/// Codecs of pipeline-file section 5 that are not built yet.
const LATER: [&str; 5] = ["csv", "long", "int", "boolean", "none"];

/// Finds guests, and compiles each once.
pub struct Library {
    engine: Engine,
    bundled: Bundled,
    folders: Vec<PathBuf>,
    loaded: Mutex<HashMap<String, Module>>,
}

/// A guest that is there, as `tamis list` shows it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// What a pipeline writes.
    pub name: String,
    /// Version of its manifest.
    pub version: String,
    /// What it does, in its own words.
    pub about: String,
    /// `None`: bundled.
    pub file: Option<PathBuf>,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// A module file in a folder.
struct Found {
    path: PathBuf,
    stem: String,
    manifest: Option<Manifest>,
}

impl Found {
    fn version(&self) -> &str {
        self.manifest.as_ref().map_or("", |m| &m.version)
    }

    fn is_called(&self, name: &str) -> bool {
        self.stem == name || self.manifest.as_ref().is_some_and(|m| m.name == name)
    }
}

impl Library {
    /// `folders`: those of `--modules` and TAMIS_MODULES; `modules/` beside a pipeline file comes before them.
    pub fn new(engine: Engine, bundled: Bundled, folders: Vec<PathBuf>) -> Library {
        Library { engine, bundled, folders, loaded: Mutex::new(HashMap::new()) }
    }

    /// Everything that is there, bundled first. `beside`: a pipeline file, for its `modules/` folder.
    pub fn list(&self, beside: Option<&Path>) -> Vec<Listed> {
        let bundled = self.bundled.iter().map(|(name, bytes)| {
            let manifest = manifest_of(bytes);
            Listed {
                name: (*name).to_string(),
                version: manifest.as_ref().map(|m| m.version.clone()).unwrap_or_default(),
                about: manifest.map(|m| m.about).unwrap_or_default(),
                file: None,
                problem: None,
            }
        });
        let found = self.found(beside);
        let listed: Vec<Listed> = found
            .iter()
            .map(|file| {
                let name = file.manifest.as_ref().map_or(&file.stem, |m| &m.name).clone();
                let twin =
                    found.iter().find(|f| f.path != file.path && f.is_called(&name) && f.version() == file.version());
                let problem = match (&file.manifest, twin) {
                    (None, _) => Some("it has no manifest that can be read".to_string()),
                    _ if self.is_bundled(&name) => Some(format!("`{name}` is the name of a bundled guest")),
                    (_, Some(twin)) => Some(format!("the same name and version as {}", twin.path.display())),
                    _ => None,
                };
                Listed {
                    version: file.version().to_string(),
                    about: file.manifest.as_ref().map(|m| m.about.clone()).unwrap_or_default(),
                    file: Some(file.path.clone()),
                    name,
                    problem,
                }
            })
            .collect();
        bundled.chain(listed).collect()
    }

    fn is_bundled(&self, name: &str) -> bool {
        self.bundled.iter().any(|(bundled, _)| *bundled == name)
    }

    /// The module files in the folders, each folder in the order of names.
    fn found(&self, beside: Option<&Path>) -> Vec<Found> {
        let own = beside.map(|file| file.parent().unwrap_or(Path::new("")).join("modules"));
        let mut seen: Vec<PathBuf> = Vec::new();
        let mut found = Vec::new();
        for folder in own.iter().chain(&self.folders) {
            // The same folder may be named twice.
            let Ok(real) = folder.canonicalize() else { continue };
            if seen.contains(&real) {
                continue;
            }
            seen.push(real);
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> =
                entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "wasm")).collect();
            paths.sort();
            for path in paths {
                let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
                let manifest = std::fs::read(&path).ok().and_then(|bytes| manifest_of(&bytes));
                found.push(Found { path, stem, manifest });
            }
        }
        found
    }

    fn load(&self, id: &str, name: &str, bytes: &[u8]) -> Result<Module, NotFound> {
        let loaded = |map: &Mutex<HashMap<String, Module>>| map.lock().ok().and_then(|map| map.get(id).cloned());
        if let Some(module) = loaded(&self.loaded) {
            return Ok(module);
        }
        let module = self.engine.load(name, bytes).map_err(|error| NotFound {
            code: error.code,
            message: format!("`{name}` cannot be used: {}", error.cause),
            help: vec![error.help],
        })?;
        if let Ok(mut map) = self.loaded.lock() {
            map.insert(id.to_string(), module.clone());
        }
        Ok(module)
    }

    fn load_file(&self, name: &str, path: &Path) -> Result<Module, NotFound> {
        let bytes = std::fs::read(path).map_err(|error| {
            let what = if error.kind() == std::io::ErrorKind::NotFound {
                "there is no such file".to_string()
            } else {
                error.to_string()
            };
            let help = "a path is relative to the pipeline file; `tamis list` shows the modules that go by name";
            NotFound {
                code: "P-GUEST",
                message: format!("`{name}`: {what}: {}", path.display()),
                help: vec![help.to_string()],
            }
        })?;
        let id = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        self.load(&id.to_string_lossy(), name, &bytes)
    }

    fn by_name(&self, uses: &str, beside: Option<&Path>) -> Result<Module, NotFound> {
        let (name, wanted) = uses.split_once('@').map_or((uses, None), |(name, version)| (name, Some(version)));
        if let Some((bundled, bytes)) = self.bundled.iter().find(|(bundled, _)| *bundled == name) {
            let module = self.load(bundled, bundled, bytes)?;
            let version = module.version().to_string();
            return match wanted.filter(|w| !version_fits(&version, w)) {
                None => Ok(module),
                Some(wanted) => Err(NotFound {
                    code: "P-GUEST",
                    message: format!("`{name}` is bundled, in version {version}; {wanted} is not here"),
                    help: vec![
                        format!("write `{name}`, or `{name}@{version}`"),
                        "bundled names are reserved: give another module another name".to_string(),
                    ],
                }),
            };
        }
        let mut found: Vec<Found> = self.found(beside).into_iter().filter(|f| f.is_called(name)).collect();
        let versions: Vec<String> = found.iter().map(|f| f.version().to_string()).collect();
        found.retain(|f| wanted.is_none_or(|w| version_fits(f.version(), w)));
        found.sort_by(|a, b| compare_versions(b.version(), a.version()));
        match found.as_slice() {
            [] if !versions.is_empty() => Err(NotFound {
                code: "P-GUEST",
                message: format!("there is no version {} of `{name}`", wanted.unwrap_or_default()),
                help: vec![format!("there is: {}", versions.join(", "))],
            }),
            [] => Err(self.missing(name, beside)),
            [first, second, ..] if first.version() == second.version() => Err(NotFound {
                code: "P-GUEST",
                message: format!("two modules are called `{name}`, version {}", first.version()),
                help: vec![format!("take one away: {} or {}", first.path.display(), second.path.display())],
            }),
            [first, ..] => self.load_file(name, &first.path),
        }
    }

    fn missing(&self, name: &str, beside: Option<&Path>) -> NotFound {
        if LATER.contains(&name) {
            return NotFound {
                code: "P-LATER",
                message: format!("the guest `{name}` is defined, but not built yet"),
                help: vec!["`json`, `string`, `raw` and `double` are there".to_string()],
            };
        }
        let names: Vec<String> = self.list(beside).into_iter().map(|l| l.name).collect();
        let mut help = Vec::new();
        if let Some(near) = nearest(name, names.iter().map(String::as_str)) {
            help.push(format!("perhaps `{near}`"));
        }
        help.push("`tamis list` shows what is there; a file of your own is named by its path: `./my.wasm`, or put into `modules/`".to_string());
        NotFound { code: "P-GUEST", message: format!("there is no guest `{name}`"), help }
    }
}

impl Guests for Library {
    fn find(&self, uses: &str, beside: Option<&Path>) -> Result<Module, NotFound> {
        if uses.starts_with("oci://") {
            let help = "download the module, and name the file: `./name.wasm`".to_string();
            return Err(NotFound {
                code: "P-LATER",
                message: "modules from registries are defined, but not built yet".to_string(),
                help: vec![help],
            });
        }
        if uses.contains('/') || uses.ends_with(".wasm") {
            let folder = beside.and_then(Path::parent).unwrap_or(Path::new(""));
            return self.load_file(uses, &folder.join(uses));
        }
        self.by_name(uses, beside)
    }
}

/// `1.2` stands for every `1.2.x`.
fn version_fits(version: &str, wanted: &str) -> bool {
    version == wanted || version.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'))
}

fn compare_versions(a: &str, b: &str) -> std::cmp::Ordering {
    let parts = |v: &str| -> Vec<u64> { v.split(['.', '-', '+']).map(|p| p.parse().unwrap_or(0)).collect() };
    parts(a).cmp(&parts(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_fit_by_their_first_numbers() {
        for (version, wanted, fits) in
            [("1.2.3", "1.2", true), ("1.20.3", "1.2", false), ("1.2", "1.2", true), ("2.0.0", "1", false)]
        {
            assert_eq!(version_fits(version, wanted), fits, "{version} {wanted}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(compare_versions("1.10.0", "1.9.0"), std::cmp::Ordering::Greater);
    }
}
