//! Where things are: source files by path and glob, and the state directory of a pipeline with its lock.

use std::fs::{File, TryLockError};
use std::path::{Component, Path, PathBuf};

use super::Trouble;

/// The files that paths and globs name: in the order written, a glob in the order of names, each file once.
///
/// `base` is the folder relative paths start from. A plain path that names nothing is trouble, and so is a glob that
/// matches nothing.
pub fn files(base: &Path, written: &[String]) -> Result<Vec<PathBuf>, Trouble> {
    collect(base, written, false)
}

/// The same while files may still appear: a glob may match nothing yet.
pub fn files_so_far(base: &Path, written: &[String]) -> Result<Vec<PathBuf>, Trouble> {
    collect(base, written, true)
}

fn collect(base: &Path, written: &[String], none_is_fine: bool) -> Result<Vec<PathBuf>, Trouble> {
    let mut found: Vec<PathBuf> = Vec::new();
    for text in written {
        let path = base.join(text);
        let mut matches = if has_wildcard(text) && !path.exists() { expand(&path)? } else { vec![path.clone()] };
        if matches.is_empty() && !none_is_fine {
            let what = format!("no file matches {}", path.display());
            return Err(Trouble::new(what, "check the pattern (`*`, `?` and `[a-z]` match within one folder name)"));
        }
        matches.retain(|p| !found.contains(p));
        found.extend(matches);
    }
    Ok(found)
}

/// Whether a path names files by a pattern.
pub fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The paths that match, component by component, sorted.
fn expand(pattern: &Path) -> Result<Vec<PathBuf>, Trouble> {
    let mut paths = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = match component {
            Component::Normal(name) => name.to_string_lossy().into_owned(),
            other => {
                paths.iter_mut().for_each(|p| p.push(other));
                continue;
            }
        };
        if !has_wildcard(&name) {
            paths.iter_mut().for_each(|p| p.push(&name));
            continue;
        }
        let mut next = Vec::new();
        for folder in &paths {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            let Ok(entries) = std::fs::read_dir(folder) else { continue };
            for entry in entries {
                let entry = entry.map_err(|e| Trouble::io("list", folder, &e))?;
                let file_name = entry.file_name();
                let text = file_name.to_string_lossy();
                // A leading dot hides a file from a pattern, as in a shell.
                if (!text.starts_with('.') || name.starts_with('.')) && matches(name.as_bytes(), text.as_bytes()) {
                    next.push(folder.join(&file_name));
                }
            }
        }
        paths = next;
    }
    paths.retain(|p| p.is_file() || (p.exists() && !p.is_dir()));
    paths.sort();
    Ok(paths)
}

/// Whether a name matches a pattern of `*`, `?` and `[..]`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.first(), name.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            let rest = pattern.get(1..).unwrap_or_default();
            (0..=name.len()).any(|skip| matches(rest, name.get(skip..).unwrap_or_default()))
        }
        (Some(b'?'), Some(_)) => matches(rest(pattern, 1), rest(name, 1)),
        (Some(b'['), Some(&byte)) => match set(pattern) {
            Some((negate, members, length)) => {
                in_set(members, byte) != negate && matches(rest(pattern, length), rest(name, 1))
            }
            None => byte == b'[' && matches(rest(pattern, 1), rest(name, 1)),
        },
        (Some(expected), Some(byte)) => expected == byte && matches(rest(pattern, 1), rest(name, 1)),
        _ => false,
    }
}

fn rest(bytes: &[u8], from: usize) -> &[u8] {
    bytes.get(from..).unwrap_or_default()
}

/// `[abc]`, `[!a-z]`: whether it is negated, its members, its length.
fn set(pattern: &[u8]) -> Option<(bool, &[u8], usize)> {
    let negate = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = if negate { 2 } else { 1 };
    let end = (first + 1..pattern.len()).find(|&i| pattern.get(i) == Some(&b']'))?;
    Some((negate, pattern.get(first..end)?, end + 1))
}

fn in_set(members: &[u8], byte: u8) -> bool {
    let mut rest = members;
    while let Some((&from, tail)) = rest.split_first() {
        match tail {
            [b'-', to, tail @ ..] => {
                if (from..=*to).contains(&byte) {
                    return true;
                }
                rest = tail;
            }
            _ => {
                if from == byte {
                    return true;
                }
                rest = tail;
            }
        }
    }
    false
}

/// The directory in which a pipeline keeps its journal and checkpoints, locked while this lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Makes it if it is missing, and locks it: two runs of one pipeline would write over each other.
    pub fn open(path: &Path) -> Result<StateDir, Trouble> {
        std::fs::create_dir_all(path).map_err(|e| Trouble::io("make the state directory", path, &e))?;
        let name = path.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&name);
        let lock = lock.map_err(|e| Trouble::io("open", &name, &e))?;
        match lock.try_lock() {
            Ok(()) => Ok(StateDir { path: path.to_path_buf(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Trouble::new(
                format!("another run holds the state directory {}", path.display()),
                "stop the other run, or give this pipeline another `name` or `state.dir`",
            )),
            Err(TryLockError::Error(error)) => Err(Trouble::io("lock", &name, &error)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of all files in it.
    pub fn bytes(&self) -> u64 {
        bytes_below(&self.path)
    }
}

/// Whether a run holds a state directory now.
pub fn is_held(path: &Path) -> bool {
    let lock = File::options().write(true).open(path.join("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Bytes of the files in a folder and below; one that goes away meanwhile has none.
fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.metadata().ok()?, entry.path())))
        .map(|(meta, path)| if meta.is_dir() { bytes_below(&path) } else { meta.len() })
        .sum()
}

/// Where state lives if the file does not say: below `XDG_STATE_HOME`, else below `.local/state` of the home folder.
pub fn state_home(state: Option<PathBuf>, home: Option<PathBuf>) -> Result<PathBuf, Trouble> {
    let state = state.filter(|p| p.is_absolute());
    match state.or_else(|| home.map(|h| h.join(".local/state"))) {
        Some(folder) => Ok(folder.join("tamis")),
        None => Err(Trouble::new(
            "there is no folder to keep state in: neither XDG_STATE_HOME nor HOME is set",
            "set `state: { dir: PATH }` in the pipeline file, or `state: memory` to keep none",
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        for name in yes {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} should match {name}");
        }
        for name in no {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} should not match {name}");
        }
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        check("*.jsonl", &["a.jsonl", ".jsonl"], &["a.json", "a.jsonl.gz"]);
        check("part-?.log", &["part-1.log"], &["part-10.log", "part-.log"]);
        check("[a-c]x[!0-9]", &["axy", "cx-"], &["dxy", "ax1"]);
        check("a[", &["a["], &["a"]);
        check("*", &["", "abc"], &[]);
    }

    #[test]
    fn a_glob_gives_names_in_order_and_a_list_keeps_its_own() {
        let folder = std::env::temp_dir().join(format!("tamis-place-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["b.log", "a.log", "c.txt", ".hidden.log"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let names = |written: &[&str]| -> Vec<String> {
            let written: Vec<String> = written.iter().map(|s| s.to_string()).collect();
            let found = files(&folder, &written).unwrap();
            found.iter().map(|p| p.file_name().unwrap().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(names(&["*.log"]), ["a.log", "b.log"]);
        assert_eq!(names(&["c.txt", "b.log", "*.log"]), ["c.txt", "b.log", "a.log"]);
        assert!(files(&folder, &["*.none".into()]).unwrap_err().what.contains("no file matches"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_state_directory_is_held_by_one_run() {
        let folder = std::env::temp_dir().join(format!("tamis-lock-{}", std::process::id()));
        let first = StateDir::open(&folder).unwrap();
        assert!(StateDir::open(&folder).unwrap_err().what.contains("another run"));
        drop(first);
        StateDir::open(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
