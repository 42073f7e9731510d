//! The manifest of a module, and where it stands in the file: the custom section `tamis:manifest` of the component.

use serde_json::Value;

/// Name of the custom section.
const SECTION: &str = "tamis:manifest";

/// What a module says of itself: `{"name", "version", "about", "params"}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// What a pipeline writes after `uses:`.
    pub name: String,
    /// Of the module, not of the contract.
    pub version: String,
    /// One sentence.
    pub about: String,
    /// JSON Schema draft-07 of its parameters; `{}` allows anything.
    pub params: Value,
}

impl Manifest {
    /// Reads the JSON of a manifest. Members it does not know are ignored. The error says what is wrong, not where.
    pub fn parse(json: &Value) -> Result<Manifest, String> {
        let text = |name: &str| match json.get(name) {
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.clone()),
            Some(_) => Err(format!("`{name}` of its manifest is not a text, or empty")),
            None => Err(format!("its manifest has no `{name}`")),
        };
        let (name, version) = (text("name")?, text("version")?);
        let about = match json.get("about") {
            None => String::new(),
            Some(_) => text("about")?,
        };
        let params = match json.get("params") {
            None => Value::Object(serde_json::Map::new()),
            Some(params @ Value::Object(_)) => params.clone(),
            Some(_) => return Err("`params` of its manifest is not a JSON Schema (an object)".into()),
        };
        Ok(Manifest { name, version, about, params })
    }
}

/// The manifest in the bytes of a module, without compiling it. `None`: there is none, or it cannot be read.
pub fn manifest_of(bytes: &[u8]) -> Option<Manifest> {
    let json = serde_json::from_slice(section(bytes).ok()??).ok()?;
    Manifest::parse(&json).ok()
}

/// What the first eight bytes say a file is.
#[derive(Debug, PartialEq, Eq)]
pub enum Form {
    /// A WebAssembly component.
    Component,
    /// A core module: not packed yet.
    Core,
    /// Something else.
    Other,
}

/// Tells a component from a core module and from anything else.
pub fn form(bytes: &[u8]) -> Form {
    match bytes.first_chunk::<8>() {
        Some(b"\0asm\x0d\0\x01\0") => Form::Component,
        Some(b"\0asm\x01\0\0\0") => Form::Core,
        _ => Form::Other,
    }
}

/// The bytes of the manifest's section. `None`: there is no such section at the top level of the component, or the
/// sections cannot be read. `Err`: there are two.
pub fn section(component: &[u8]) -> Result<Option<&[u8]>, String> {
    let mut rest = component.get(8..).unwrap_or_default();
    let mut found = None;
    while let Some((&id, after)) = rest.split_first() {
        let Some((size, after)) = number(after) else { return Ok(found) };
        let Some((body, next)) = after.split_at_checked(size) else { return Ok(found) };
        rest = next;
        if id != 0 {
            continue;
        }
        let named = number(body).and_then(|(len, after)| after.split_at_checked(len));
        if let Some((name, payload)) = named
            && name == SECTION.as_bytes()
            && found.replace(payload).is_some()
        {
            return Err(format!("it has two sections `{SECTION}`"));
        }
    }
    Ok(found)
}

/// An unsigned LEB128 number of at most 32 bits, and what follows it.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().enumerate().take(5) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            let value = u32::try_from(value).ok()?;
            return Some((value as usize, &bytes[i + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;

    const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";

    fn custom(name: &str, body: &[u8]) -> Vec<u8> {
        let mut content = vec![name.len() as u8];
        content.extend_from_slice(name.as_bytes());
        content.extend_from_slice(body);
        let mut section = vec![0, content.len() as u8 | 0x80, (content.len() >> 7) as u8];
        section.extend_from_slice(&content);
        section
    }

    #[test]
    fn the_section_is_found_among_others() {
        let other = custom("producers", b"x");
        let long = custom("tamis:manifest", &[b'j'; 200]);
        let file = [HEADER, &other, &[1, 3, 9, 9, 9], &long, &other].concat();
        assert_eq!(section(&file).unwrap(), Some(&[b'j'; 200][..]));
        assert_eq!(section(&[HEADER, &other].concat()).unwrap(), None);
    }

    #[test]
    fn two_manifests_are_one_too_many() {
        let one = custom("tamis:manifest", b"{}");
        assert!(section(&[HEADER, &one, &one].concat()).is_err());
    }

    #[test]
    fn broken_sections_are_no_panic() {
        let file = [HEADER, &custom("tamis:manifest", b"{}")].concat();
        for end in 0..file.len() {
            assert_eq!(section(&file[..end]).unwrap(), None, "cut at {end}");
        }
        assert_eq!(section(&[HEADER, &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 1]].concat()).unwrap(), None);
    }

    #[test]
    fn the_first_bytes_tell_the_form() {
        assert_eq!(form(HEADER), Form::Component);
        assert_eq!(form(b"\0asm\x01\0\0\0\0"), Form::Core);
        assert_eq!(form(b"\x7fELF"), Form::Other);
        assert_eq!(form(b""), Form::Other);
    }

    #[test]
    fn a_manifest_needs_name_and_version() {
        let full =
            Manifest::parse(&json!({"name": "n", "version": "1", "about": "a", "params": {"type": "object"}, "x": 1}));
        let full = full.unwrap();
        assert_eq!((&*full.name, &*full.version, &*full.about), ("n", "1", "a"));
        assert_eq!(full.params, json!({"type": "object"}));
        assert!(Manifest::parse(&json!({"name": "n", "version": "1"})).is_ok());
        for (bad, word) in [
            (json!({"version": "1"}), "no `name`"),
            (json!({"name": "n", "version": 1}), "`version`"),
            (json!({"name": " ", "version": "1"}), "`name`"),
            (json!({"name": "n", "version": "1", "params": []}), "`params`"),
            (json!([]), "no `name`"),
        ] {
            let text = Manifest::parse(&bad).unwrap_err();
            assert!(text.contains(word), "{bad}: {text}");
        }
    }
}
