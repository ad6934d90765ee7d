//! Why a command failed: the one error type of the binary, its exit code and its words on stderr.
//! The only place where an exit code is chosen.

use std::io;
use std::process::ExitCode;

use crate::settings::SettingsError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Whoever read stdout went away; not worth a word.
    #[error("the reader of the output went away")]
    OutputClosed,
    /// Stdout could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    /// The server cannot start.
    #[error("cannot start: {0}")]
    Start(String),
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl Failure {
    /// Makes a failure of an error in writing to stdout.
    pub(crate) fn from_output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Output(error),
        }
    }

    /// Makes a failure of an error that keeps the server from starting.
    pub(crate) fn start(error: impl std::fmt::Display) -> Self {
        Self::Start(error.to_string())
    }

    /// Returns the exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::OutputClosed => ExitCode::SUCCESS,
            Self::Output(_) | Self::Start(_) => ExitCode::FAILURE,
            Self::Settings(_) => ExitCode::from(2),
        }
    }

    /// Says on stderr what happened, as one readable block.
    pub(crate) fn report(&self) {
        if !matches!(self, Self::OutputClosed) {
            eprintln!("umbo: {self}");
        }
    }
}
