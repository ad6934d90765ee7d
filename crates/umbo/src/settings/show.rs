//! The settings in effect as TOML, each line with its origin in a comment.
//!
//! The output is a valid settings file, except for hidden values.

use std::fmt::Write as _;

use toml::Value;

use super::layer::Effective;

/// Replaces a hidden value.
const HIDDEN: &str = "***";

pub(super) fn to_toml(effective: &[Effective]) -> String {
    let assignments: Vec<String> = effective
        .iter()
        .map(|entry| format!("{} = {}", entry.name, hide(&entry.value)))
        .collect();
    let width = assignments.iter().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    let mut section = "";
    for (entry, assignment) in effective.iter().zip(&assignments) {
        if entry.section != section {
            let separator = if section.is_empty() { "" } else { "\n" };
            section = &entry.section;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{separator}[{section}]");
        }
        let _ = writeln!(text, "{assignment:width$}  # {}", entry.origin);
    }
    text
}

/// Hides user and password of an address.
fn hide(value: &Value) -> Value {
    let Value::String(text) = value else {
        return value.clone();
    };
    let address = text.split_once("://");
    let secret = address.and_then(|(scheme, rest)| {
        let end = rest.find('/').unwrap_or(rest.len());
        let at = rest[..end].rfind('@')?;
        Some(format!("{scheme}://{HIDDEN}{}", &rest[at..]))
    });
    Value::String(secret.unwrap_or_else(|| text.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_an_address_are_hidden() {
        let cases = [
            ("http://a:b@host:1/x", "http://***@host:1/x"),
            ("https://host/p@th", "https://host/p@th"),
            ("plain@text", "plain@text"),
            ("", ""),
        ];
        for (text, shown) in cases {
            assert_eq!(
                hide(&Value::String(text.into())),
                Value::String(shown.into())
            );
        }
    }
}
