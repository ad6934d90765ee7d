//! Errors in settings. Every message contains the place of the value and what to do.

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
    /// There is no such setting.
    #[error("{place}: there is no setting '{key}'{}", suggestion(nearest.as_deref()))]
    UnknownKey {
        /// File and line, variable or flag.
        place: String,
        /// As written.
        key: String,
        /// The setting that was probably meant.
        nearest: Option<String>,
    },
    /// The value has the wrong type.
    #[error("{place}: {key} is {expected}, but {found} was found")]
    WrongType {
        /// File and line, variable or flag.
        place: String,
        /// The setting.
        key: String,
        /// The type that is expected.
        expected: &'static str,
        /// The value that was found.
        found: String,
    },
    /// The value has the right type and cannot be read.
    #[error("{place}: {key}: {message}")]
    BadValue {
        /// File and line, variable or flag.
        place: String,
        /// The setting.
        key: String,
        /// The error, and the expected form.
        message: String,
    },
    /// The value is outside its bounds.
    #[error("{place}: {key} is {value}, and must be {bounds}")]
    OutOfBounds {
        /// File and line, variable or flag.
        place: String,
        /// The setting.
        key: &'static str,
        /// The value that was read.
        value: String,
        /// The allowed range.
        bounds: String,
    },
    /// Two values contradict each other.
    #[error(
        "{first} ({first_place}) and {second} ({second_place}) contradict each other: {reason}"
    )]
    Relation {
        /// One setting with its value.
        first: String,
        /// Place of the first setting.
        first_place: String,
        /// The other one.
        second: String,
        /// Place of the second setting.
        second_place: String,
        /// Why.
        reason: &'static str,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || " (umbo config show lists all)".to_owned(),
        |nearest| format!("; did you mean '{nearest}'?"),
    )
}
