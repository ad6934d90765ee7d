//! Layers of settings: the value that wins, and its place.
//!
//! Owns the flat list of all keys (`section.key`), taken from the defaults. A later layer replaces values of
//! an earlier one. A key that is not in the list, or a value of another type than its default, is refused
//! here, where its place is still known.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeTable;
use toml::{Spanned, Table, Value};

use super::{Settings, SettingsError};

/// Prefix of every environment variable that is a setting.
const VARIABLE_PREFIX: &str = "UMBO__";
/// Variables of the command line: they are read, but are not settings.
pub(crate) const OTHER_VARIABLES: [&str; 6] = [
    "UMBO_CA_FILE",
    "UMBO_CONFIG",
    "UMBO_DEFAULT_COMMAND",
    "UMBO_INSECURE_SKIP_VERIFY",
    "UMBO_SERVER",
    "UMBO_TOKEN",
];
/// Most edits between a misspelt key and a suggested one.
const EDITS_MAX: usize = 3;

/// A flag of the command line that sets one key.
#[derive(Debug, Clone)]
pub(crate) struct Flag {
    /// As the operator typed it, like `--listen`.
    pub(crate) name: &'static str,
    /// The setting, like `server.listen`.
    pub(crate) key: &'static str,
    /// As typed.
    pub(crate) value: String,
}

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SettingOrigin {
    /// The default.
    Default,
    /// The default of a process with little memory.
    MemoryLimit,
    /// A line of a file.
    File(PathBuf, usize),
    /// A variable of the environment.
    Variable(String),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::MemoryLimit => f.write_str("default, of the memory limit"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One setting in effect.
#[derive(Debug, Clone)]
pub(super) struct Effective {
    pub(super) section: String,
    pub(super) name: String,
    pub(super) value: Value,
    pub(super) origin: SettingOrigin,
}

impl Effective {
    fn key(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}__{}", self.section, self.name).to_uppercase()
    }
}

/// All settings after the layers read so far.
#[derive(Debug)]
pub(super) struct Layers(Vec<Effective>);

impl Layers {
    pub(super) fn defaults() -> Self {
        let table = Table::try_from(Settings::default())
            .expect("the defaults are made of texts, numbers and truth values");
        let mut all = Vec::new();
        for (section, keys) in table {
            let Value::Table(keys) = keys else { continue };
            all.extend(keys.into_iter().map(|(name, value)| Effective {
                section: section.clone(),
                name,
                value,
                origin: SettingOrigin::Default,
            }));
        }
        Self(all)
    }

    pub(super) fn add_file(&mut self, path: &Path, text: &str) -> Result<(), SettingsError> {
        let syntax = |error: toml::de::Error| SettingsError::Syntax {
            path: path.to_owned(),
            message: error.to_string(),
        };
        // Parsed twice: once for the values, once for their places.
        let values: Table = text.parse().map_err(syntax)?;
        let places = DeTable::parse(text).map_err(syntax)?;
        for (section_key, spanned) in places.get_ref() {
            let section = section_key.get_ref().as_ref();
            let at = SettingOrigin::File(path.to_owned(), line_of(text, &section_key.span()));
            if !self.0.iter().any(|entry| entry.section == section) {
                return Err(self.unknown(&at, section));
            }
            let (Some(keys), Value::Table(table)) =
                (spanned.get_ref().as_table(), &values[section])
            else {
                let expected = "a section ([name] and the keys under it)";
                let found = describe(&values[section]);
                return Err(SettingsError::wrong_type(&at, section, expected, &found));
            };
            for key in keys.keys() {
                let name = key.get_ref().as_ref();
                let at = SettingOrigin::File(path.to_owned(), line_of(text, &Spanned::span(key)));
                self.set(&format!("{section}.{name}"), table[name].clone(), at)?;
            }
        }
        Ok(())
    }

    pub(super) fn add_variables(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), SettingsError> {
        for (name, text) in variables {
            let Some(path) = name.strip_prefix(VARIABLE_PREFIX) else {
                continue;
            };
            let key = path.to_lowercase().replacen("__", ".", 1);
            let origin = SettingOrigin::Variable(name.clone());
            // Only upper case, so that each setting has one variable.
            let is_known = self.0.iter().any(|entry| entry.variable() == name);
            let Some(entry) = self.0.iter().find(|entry| is_known && entry.key() == key) else {
                let nearest = self.nearest(&key).map(Effective::variable);
                return Err(SettingsError::unknown(&"environment", &name, nearest));
            };
            let value = read_as(&entry.value, &text);
            self.set(&key, value, origin)?;
        }
        Ok(())
    }

    /// Returns the variables with the prefix `UMBO_` that nothing reads, each with a suggestion. They are not errors:
    /// container platforms set such variables for a service called `umbo`, like `UMBO_PORT`.
    pub(super) fn unread<'v>(&self, variables: impl Iterator<Item = &'v str>) -> Vec<String> {
        let settings = self.0.iter().map(Effective::variable);
        let known: Vec<_> = settings.chain(OTHER_VARIABLES.map(str::to_owned)).collect();
        let suggest = |name: &str| {
            let edits = |known: &String| {
                strsim::damerau_levenshtein(&known.replace("__", "_"), &name.replace("__", "_"))
            };
            let nearest = known.iter().min_by_key(|known| edits(known));
            match nearest.filter(|nearest| edits(nearest) < EDITS_MAX) {
                Some(nearest) => format!("{name} (did you mean {nearest}?)"),
                None => name.to_owned(),
            }
        };
        let is_unread = |name: &&str| {
            name.starts_with("UMBO_")
                && !name.starts_with(VARIABLE_PREFIX)
                && !OTHER_VARIABLES.contains(name)
        };
        let mut unread: Vec<String> = variables.filter(is_unread).map(suggest).collect();
        unread.sort();
        unread
    }

    pub(super) fn add_flags(&mut self, flags: &[Flag]) -> Result<(), SettingsError> {
        for flag in flags {
            let entry = self.entry(flag.key);
            let value = entry.map(|entry| read_as(&entry.value, &flag.value));
            let value = value.unwrap_or_else(|| flag.value.clone().into());
            self.set(flag.key, value, SettingOrigin::Flag(flag.name))?;
        }
        Ok(())
    }

    /// Returns the typed settings, or an error for a value that cannot be parsed.
    pub(super) fn settings(&self) -> Result<Settings, SettingsError> {
        let mut table = Table::new();
        for entry in &self.0 {
            let section = table
                .entry(entry.section.clone())
                .or_insert_with(|| Table::new().into());
            if let Value::Table(section) = section {
                section.insert(entry.name.clone(), entry.value.clone());
            }
        }
        serde_path_to_error::deserialize(table).map_err(|error| {
            let key = error.path().to_string();
            let error = error.into_inner();
            let message = match error.message() {
                "invalid socket address syntax" => {
                    "this is no address with a port (expected like 127.0.0.1:8080 or [::1]:8080)"
                }
                message => message,
            };
            SettingsError::at(&self.place(&key), format!("{key}: {message}"))
        })
    }

    fn entry(&self, key: &str) -> Option<&Effective> {
        self.0.iter().find(|entry| entry.key() == key)
    }

    /// Returns the place of a key's value.
    pub(super) fn place(&self, key: &str) -> String {
        let entry = self.entry(key);
        entry.map_or_else(|| key.to_owned(), |entry| entry.origin.to_string())
    }

    /// Returns the value of a key of the list.
    pub(super) fn value(&self, key: &str) -> &Value {
        let entry = self.entry(key);
        &entry.expect("the key is in the list of the defaults").value
    }

    /// Returns a key with its value, as in a file.
    pub(super) fn written(&self, key: &str) -> String {
        format!("{key} = {}", self.value(key))
    }

    pub(super) fn into_effective(self) -> Vec<Effective> {
        self.0
    }

    pub(super) fn set(
        &mut self,
        key: &str,
        value: Value,
        origin: SettingOrigin,
    ) -> Result<(), SettingsError> {
        let Some(at) = self.0.iter().position(|entry| entry.key() == key) else {
            return Err(self.unknown(&origin, key));
        };
        let entry = &mut self.0[at];
        entry.value = match (&entry.value, value) {
            // A whole number is valid for a decimal one; TOML distinguishes them and an operator does not.
            (Value::Float(_), Value::Integer(whole)) => Value::Float(lossy(whole)),
            (default, value) if default.same_type(&value) => value,
            (default, value) => {
                let (expected, found) = (expected(default), describe(&value));
                return Err(SettingsError::wrong_type(&origin, key, expected, &found));
            }
        };
        entry.origin = origin;
        Ok(())
    }

    fn unknown(&self, origin: &SettingOrigin, key: &str) -> SettingsError {
        let nearest = self.nearest(key).map(Effective::key);
        let sections = self.0.iter().map(|entry| entry.section.as_str());
        let section = sections.min_by_key(|section| strsim::damerau_levenshtein(section, key));
        let section = section.filter(|section| {
            !key.contains('.') && strsim::damerau_levenshtein(section, key) < EDITS_MAX
        });
        let section = section.map(|name| format!("[{name}]"));
        SettingsError::unknown(origin, key, section.or(nearest))
    }

    /// Returns the setting that a misspelt key most likely means: a similar name in the same section, or the
    /// same name in another one.
    fn nearest(&self, key: &str) -> Option<&Effective> {
        let name = key.rsplit('.').next().unwrap_or(key);
        let distance = |entry: &Effective| {
            let full = strsim::damerau_levenshtein(&entry.key(), key);
            full.min(strsim::damerau_levenshtein(&entry.name, name) + 1)
        };
        let nearest = self.0.iter().min_by_key(|entry| distance(entry))?;
        // A short name must not be changed beyond recognition.
        (distance(nearest) <= EDITS_MAX.min(nearest.name.len())).then_some(nearest)
    }
}

/// Parses a text as the type of `default`; remains a text if it cannot be parsed.
fn read_as(default: &Value, text: &str) -> Value {
    let read = match default {
        Value::Integer(_) => text.parse().ok().map(Value::Integer),
        Value::Float(_) => text.parse().ok().map(Value::Float),
        Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
        _ => None,
    };
    read.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn expected(default: &Value) -> &'static str {
    match default {
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        _ => "a text in quotes",
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::String(text) => format!("the text \"{text}\""),
        Value::Integer(_) | Value::Float(_) => format!("the number {value}"),
        Value::Boolean(truth) => truth.to_string(),
        Value::Datetime(time) => format!("the time {time}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a section".to_owned(),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "no number setting comes near 2^52"
)]
fn lossy(whole: i64) -> f64 {
    whole as f64
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    text[..span.start].matches('\n').count() + 1
}
