//! Errors in settings. Every message contains the place of the value and what to do.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

/// Why settings are invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read the settings file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{} is not TOML: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The error, with its line.
        message: String,
    },
    /// A key or a value cannot be used, or two values contradict each other.
    #[error("{place}: {message}")]
    Invalid {
        /// File and line, variable or flag.
        place: String,
        /// The key, the error, and the expected form.
        message: String,
    },
}

impl SettingsError {
    /// Makes an error of a place.
    pub(super) fn at(place: &dyn Display, message: impl Into<String>) -> Self {
        let (place, message) = (place.to_string(), message.into());
        Self::Invalid { place, message }
    }

    /// Makes an error of a key that does not exist; `nearest` is the setting that was probably meant.
    pub(super) fn unknown(place: &dyn Display, key: &str, nearest: Option<String>) -> Self {
        let suggestion = nearest.map_or_else(
            || " (umbo config show lists all)".to_owned(),
            |nearest| format!("; did you mean '{nearest}'?"),
        );
        Self::at(place, format!("there is no setting '{key}'{suggestion}"))
    }

    /// Makes an error of a value of the wrong type.
    pub(super) fn wrong_type(place: &dyn Display, key: &str, expected: &str, found: &str) -> Self {
        Self::at(place, format!("{key} is {expected}, but {found} was found"))
    }
}
