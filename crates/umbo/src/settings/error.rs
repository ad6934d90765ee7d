//! Why settings cannot be used. Every message says where the value stands and what to do.

use std::io;
use std::path::PathBuf;

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read the settings file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{} is not TOML: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its line.
        message: String,
    },
    /// There is no such setting.
    #[error("{place}: there is no setting '{key}'{}", suggestion(nearest.as_deref()))]
    UnknownKey {
        /// File and line, variable or flag.
        place: String,
        /// As written.
        key: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// The value has the wrong type.
    #[error("{place}: {key} is {expected}, but {found} stands there")]
    WrongType {
        /// File and line, variable or flag.
        place: String,
        /// The setting.
        key: String,
        /// What belongs there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// The value has the right type and cannot be read.
    #[error("{place}: {key}: {message}")]
    BadValue {
        /// File and line, variable or flag.
        place: String,
        /// The setting.
        key: String,
        /// What is wrong and what belongs there.
        message: String,
    },
    /// The value is outside its bounds.
    #[error("{place}: {key} is {value}, and must be {bounds}")]
    OutOfBounds {
        /// File and line, variable or flag.
        place: String,
        /// The setting.
        key: &'static str,
        /// As read.
        value: String,
        /// What is allowed.
        bounds: String,
    },
    /// Two values do not go together.
    #[error("{first} ({first_place}) and {second} ({second_place}) do not go together: {reason}")]
    Relation {
        /// One setting with its value.
        first: String,
        /// Where it stands.
        first_place: String,
        /// The other one.
        second: String,
        /// Where it stands.
        second_place: String,
        /// Why they do not.
        reason: &'static str,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || " (umbo config show lists all)".to_owned(),
        |nearest| format!("; did you mean '{nearest}'?"),
    )
}
