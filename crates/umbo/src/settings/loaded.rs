//! Reads the layers of settings: the values in effect, and the origin of each. Writes both as TOML, which is a valid
//! settings file except for hidden values.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use toml::Value;

use super::layer::{Effective, Flag, Layers};
use super::{Settings, SettingsError, check, memory};

/// Name of the file that is read from the working folder by default.
const FILE_DEFAULT: &str = "umbo.toml";
/// Variable that names the file.
const FILE_VARIABLE: &str = "UMBO_CONFIG";
/// Replaces a hidden value.
const HIDDEN: &str = "***";

/// Origins of settings, in addition to the defaults and the environment.
#[derive(Debug, Clone, Default)]
pub(crate) struct SettingsSources {
    /// The file of `--config`. Without it `UMBO_CONFIG` may name one, and `umbo.toml` of the working folder
    /// is read if it exists.
    pub(crate) file: Option<PathBuf>,
    /// The flags that were given.
    pub(crate) flags: Vec<Flag>,
}

/// Settings in effect, and the origin of each.
#[derive(Debug, Clone)]
pub(crate) struct LoadedSettings {
    /// The values.
    pub(crate) settings: Settings,
    /// The file that was read, if any.
    pub(crate) file: Option<PathBuf>,
    pub(super) effective: Vec<Effective>,
    /// Variables with the prefix `UMBO_` that nothing reads.
    unread: Vec<String>,
}

impl LoadedSettings {
    /// Reads all layers.
    pub(crate) fn read(sources: &SettingsSources) -> Result<Self, SettingsError> {
        let file = sources.file.clone().or_else(find_file);
        let variables = env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            Some((name, value.to_string_lossy().into_owned()))
        });
        Self::from_layers(memory::limit(), file, variables, &sources.flags)
    }

    /// Reads the layers for a command that has only one flag for settings: the file.
    pub(crate) fn of_file(file: Option<PathBuf>) -> Result<Self, SettingsError> {
        let flags = Vec::new();
        Self::read(&SettingsSources { file, flags })
    }

    /// Reads one file over the defaults, without the environment.
    pub(crate) fn read_file(file: &Path) -> Result<Self, SettingsError> {
        Self::from_layers(None, Some(file.to_owned()), [], &[])
    }

    /// Returns the settings in effect as TOML, each with its origin; secrets are hidden.
    pub(crate) fn to_toml(&self) -> String {
        to_toml(&self.effective)
    }

    /// Returns a line about the file that was read, for the log.
    pub(crate) fn source(&self) -> String {
        match &self.file {
            Some(file) => format!("settings of {}", file.display()),
            None => format!("default settings ({FILE_DEFAULT} does not exist here)"),
        }
    }

    /// Returns a line about variables with Umbo's prefix that nothing reads, or `None`.
    pub(crate) fn warning(&self) -> Option<String> {
        let unread = self.unread.join(", ");
        (!unread.is_empty())
            .then(|| format!("the environment has variables that are not read: {unread}"))
    }

    pub(super) fn from_layers(
        memory_limit: Option<u64>,
        file: Option<PathBuf>,
        variables: impl IntoIterator<Item = (String, String)>,
        flags: &[Flag],
    ) -> Result<Self, SettingsError> {
        let mut layers = Layers::defaults();
        if let Some(limit) = memory_limit {
            memory::fit(&mut layers, limit);
        }
        if let Some(path) = &file {
            let text = std::fs::read_to_string(path).map_err(|source| SettingsError::Read {
                path: path.clone(),
                source,
            })?;
            layers.add_file(path, &text)?;
        }
        let variables: Vec<_> = variables.into_iter().collect();
        let unread = layers.unread(variables.iter().map(|(name, _)| &**name));
        layers.add_variables(variables)?;
        layers.add_flags(flags)?;
        let settings = layers.settings()?;
        check::check(&settings, &layers)?;
        Ok(Self {
            settings,
            file,
            effective: layers.into_effective(),
            unread,
        })
    }
}

fn find_file() -> Option<PathBuf> {
    let named = env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty());
    named.map(PathBuf::from).or_else(|| {
        let default = PathBuf::from(FILE_DEFAULT);
        default.exists().then_some(default)
    })
}

fn to_toml(effective: &[Effective]) -> String {
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
