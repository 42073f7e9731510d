//! `${NAME}`, `${NAME:-default}`, `${NAME:?message}`, `$${NAME}` in plain scalars (pipeline-file section 2).

/// Where values of variables come from.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Whether there is something that looks like a variable in it.
pub fn mentions(text: &str) -> bool {
    text.match_indices("${").any(|(at, _)| {
        text[at + 2..].chars().next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic()) && text[at..].contains('}')
    })
}

/// Puts the values in. The error is what is wrong, and the way out.
pub fn resolve(text: &str, environment: Environment<'_>) -> Result<String, (String, String)> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            // `$${NAME}` stands for `${NAME}` itself.
            out.push_str(&rest[..at - 1]);
            let end = rest[at..].find('}').map_or(rest.len(), |n| at + n + 1);
            out.push_str(&rest[at..end]);
            rest = &rest[end..];
            continue;
        }
        out.push_str(&rest[..at]);
        let Some(length) = rest[at..].find('}') else {
            return Err((
                "this `${` has no `}`".to_string(),
                "close it, or write `$${` for the characters themselves".to_string(),
            ));
        };
        out.push_str(&value(&rest[at + 2..at + length], environment)?);
        rest = &rest[at + length + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn value(inside: &str, environment: Environment<'_>) -> Result<String, (String, String)> {
    let end = inside.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(inside.len());
    let (name, rest) = inside.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        let help = "names are letters, digits and `_`; write `$${...}` for the characters themselves".to_string();
        return Err((format!("`${{{inside}}}` does not name a variable"), help));
    }
    // Like a shell with the colon: empty counts as not set.
    let set = environment(name).filter(|v| !v.is_empty());
    if let Some(default) = rest.strip_prefix(":-") {
        return Ok(set.unwrap_or_else(|| default.to_string()));
    }
    if let Some(message) = rest.strip_prefix(":?") {
        return set.ok_or_else(|| {
            (format!("variable {name} is not set: {message}"), format!("set it: `{name}=... tamis ...`"))
        });
    }
    if !rest.is_empty() {
        let help = format!("write `${{{name}}}`, `${{{name}:-default}}` or `${{{name}:?message}}`");
        return Err((format!("`${{{inside}}}` is not a form that is known"), help));
    }
    environment(name).ok_or_else(|| {
        (format!("variable {name} is not set"), format!("set it, or give a default: `${{{name}:-...}}`"))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let environment = |name: &str| match name {
            "A" => Some("x".to_string()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let got = resolve(text, &environment).map_err(|(message, _)| message);
        match expected {
            Ok(value) => assert_eq!(got.as_deref(), Ok(value), "{text}"),
            Err(part) => assert!(got.as_ref().is_err_and(|m| m.contains(part)), "{text}: {got:?}"),
        }
    }

    #[test]
    fn variables_are_put_in_where_they_are_set() {
        check("${A}", Ok("x"));
        check("a-${A}-${A}.json", Ok("a-x-x.json"));
        check("${EMPTY}", Ok(""));
        check("no variable, $5", Ok("no variable, $5"));
    }

    #[test]
    fn a_default_stands_for_what_is_not_set_or_empty() {
        check("${B:-y z}", Ok("y z"));
        check("${EMPTY:-y}", Ok("y"));
        check("${A:-y}", Ok("x"));
    }

    #[test]
    fn what_is_missing_is_named() {
        check("${B}", Err("variable B is not set"));
        check("${B:?which broker}", Err("which broker"));
        check("${B", Err("no `}`"));
        check("${1}", Err("does not name"));
        check("${A!}", Err("not a form"));
    }

    #[test]
    fn two_dollars_are_one() {
        check("$${A}", Ok("${A}"));
        check("$${A} ${A}", Ok("${A} x"));
    }
}
