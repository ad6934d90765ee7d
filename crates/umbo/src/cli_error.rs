//! Errors of commands: the one error type of the binary, its exit code and its text on stderr. The only place
//! where an exit code is chosen; the README and `--help` list them.

mod advice;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use umbo_api::Outcome;
use umbo_client::Error;
use umbo_store_redb::OpenError;

use crate::settings::SettingsError;

/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Makes an error of arguments that cannot be used, with a text as for `format!`.
macro_rules! usage {
    ($($text:tt)+) => {
        $crate::cli_error::CliError::Usage(format!($($text)+))
    };
}
pub(crate) use usage;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The reader of stdout has closed it; not reported.
    #[error("the reader of the output has closed it")]
    OutputClosed,
    /// Stdout could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    /// The server cannot start, or the system has no thread.
    #[error("cannot start: {0}")]
    Start(String),
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Arguments that cannot be combined or used, found after they were parsed: also a file without rows.
    #[error("{0}")]
    Usage(String),
    /// A call to the server failed.
    #[error(transparent)]
    Client(#[from] Error),
    /// There is no such row.
    #[error("no row has this key")]
    RowNotFound,
    /// Another node uses a newer map than the given one.
    #[error(
        "node '{node}' ({address}) uses version {version} of the cluster's map, and {file} is version {own}: a shard that has moved since must not be served here too"
    )]
    NewerMap {
        /// The other node.
        node: String,
        /// Address of the other node.
        address: String,
        /// The version that it uses.
        version: u64,
        /// The given version.
        own: u64,
        /// The file of the given map.
        file: String,
    },
    /// A data folder cannot be used.
    #[error(transparent)]
    DataFolder(#[from] OpenError),
    /// A failure with the message of one command.
    #[error("{message}")]
    Told {
        /// The exit code.
        exit: Exit,
        /// What happened.
        message: String,
        /// What to do.
        advice: Option<&'static str>,
    },
    /// Some rows failed; the others are done.
    #[error("{failed} of {rows} rows failed{hint}")]
    Partial {
        /// Rows that failed.
        failed: u64,
        /// Rows in all.
        rows: u64,
        /// Where to find them, with the separator before it.
        hint: String,
    },
    /// Rows are missing in the input of an import.
    #[error("{0}")]
    Incomplete(String),
    /// A file could not be read or written.
    #[error("cannot {verb} {}: {source}", path.display())]
    File {
        /// The action that failed, like `read`.
        verb: &'static str,
        /// Name of the file or folder; `-` for stdin.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Checks have found problems, and have reported them.
    #[error("problems: {problems}")]
    Unwell {
        /// Number of problems.
        problems: usize,
    },
    /// Ctrl-C; the work done until then was reported.
    #[error("interrupted")]
    Interrupted,
}

/// Exit codes of [`CliError::Told`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command failed.
    Failed = 1,
    /// The named object does not exist.
    NotFound = 3,
    /// A precondition is false.
    Precondition = 4,
    /// A server or node does not answer, or not in time.
    Unreachable = 6,
}

impl CliError {
    /// Makes an error with a message.
    pub(crate) fn told(exit: Exit, message: impl std::fmt::Display) -> Self {
        Self::Told {
            exit,
            message: message.to_string(),
            advice: None,
        }
    }

    /// Makes an error of a backup that could not be made, read or put back.
    pub(crate) fn backup(message: impl std::fmt::Display) -> Self {
        Self::told(Exit::Failed, message)
    }

    /// Makes an error of a shard number that is too high.
    pub(crate) fn shard_not_found(shard: u16, shards: usize) -> Self {
        let message =
            format_args!("there is no shard {shard}: there are {shards}, numbered from 0");
        Self::told(Exit::NotFound, message)
    }

    /// Adds the advice of a name in the list to [`Self::Told`]; leaves other errors unchanged.
    pub(crate) fn advising(mut self, name: &str) -> Self {
        if let Self::Told { advice, .. } = &mut self {
            *advice = advice::of(name);
        }
        self
    }

    /// Makes an error of an answer of the server that cannot be understood.
    pub(crate) fn malformed(reason: impl std::fmt::Display) -> Self {
        Self::Client(Error::Malformed(reason.to_string()))
    }

    /// Makes an error of a failed write to stdout.
    pub(crate) fn from_output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Output(error),
        }
    }

    /// Makes an error about a failure to start the server or a thread.
    pub(crate) fn start(error: impl std::fmt::Display) -> Self {
        Self::Start(error.to_string())
    }

    /// Returns a function that turns the system's error into an error about a file or folder. `verb` is the action that
    /// failed.
    pub(crate) fn file(verb: &'static str, path: impl AsRef<Path>) -> impl Fn(io::Error) -> Self {
        move |source| Self::File {
            verb,
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// Returns the exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::OutputClosed => 0,
            Self::Usage(_) | Self::Settings(_) => 2,
            Self::RowNotFound => 3,
            Self::NewerMap { .. } => 4,
            Self::Partial { .. } | Self::Incomplete(_) => 7,
            Self::Interrupted => INTERRUPTED,
            Self::Client(error) => client_exit_code(error),
            Self::Told { exit, .. } => *exit as u8,
            Self::Output(_)
            | Self::File { .. }
            | Self::Start(_)
            | Self::Unwell { .. }
            | Self::DataFolder(_) => 1,
        })
    }

    /// Prints the error on stderr, as one readable block.
    pub(crate) fn report(&self) {
        if matches!(
            self,
            Self::OutputClosed | Self::Interrupted | Self::Unwell { .. }
        ) {
            return;
        }
        // Without stderr there is nowhere to report it.
        let _ = io::stderr().write_all(self.block().as_bytes());
    }

    fn block(&self) -> String {
        let problem = match self {
            Self::Client(Error::Problem { problem }) => Some(problem),
            _ => None,
        };
        let mut block = match problem {
            Some(of) => format!("umbo: {} ({})\n  {}\n", of.title, of.status, of.detail),
            None => format!("umbo: {self}\n"),
        };
        let mut say = |name: &str, value: Option<&str>| {
            // Writing to a String cannot fail.
            let _ = value.map(|value| writeln!(block, "  {name}{value}"));
        };
        say("What to do: ", self.advice());
        if let Self::Client(error @ Error::Unconfirmed { .. }) = self {
            say("Outcome of the write: ", Some(error.outcome().as_str()));
        }
        if let Some(of) = problem {
            let etag = of.etag.as_deref().map(|etag| etag.trim_matches('"'));
            let wait = of.retry.after_ms.map(|after_ms| format!("{after_ms} ms"));
            let id = Some(&*of.request_id).filter(|id| !id.is_empty());
            say("Current version: ", etag);
            say("The token, if it was created: ", of.token.as_deref());
            say("Outcome of the write: ", of.outcome.map(Outcome::as_str));
            say("Try again in ", wait.as_deref());
            say("Request id: ", id);
        }
        block
    }

    fn advice(&self) -> Option<&'static str> {
        match self {
            Self::NewerMap { .. } => advice::of("newer-map"),
            Self::Told { advice, .. } => *advice,
            Self::Client(Error::Unreachable { .. }) => advice::of("unreachable"),
            Self::Client(Error::Tls(_)) => advice::of("tls"),
            Self::Client(Error::Timeout(_)) => advice::of("timeout"),
            Self::Client(Error::Foreign { .. }) => advice::of("foreign"),
            Self::Client(Error::Transport(_)) => advice::of("transport"),
            Self::Client(Error::Unconfirmed { .. }) => advice::of("unconfirmed"),
            Self::Client(Error::TruncatedStream { .. }) => advice::of("truncated-stream"),
            Self::Client(error) => error.code().and_then(|code| advice::of(code.as_str())),
            _ => None,
        }
    }
}

fn client_exit_code(error: &Error) -> u8 {
    match error {
        Error::BadUrl { .. } | Error::BadOption(_) => 2,
        Error::GivenUp { status, .. } if *status != 503 => 5,
        Error::Unreachable { .. }
        | Error::Timeout(_)
        | Error::Transport(_)
        | Error::GivenUp { .. }
        | Error::WaitEnded
        | Error::Unconfirmed { .. }
        | Error::TruncatedStream { .. } => 6,
        Error::Problem { .. } | Error::Foreign { .. } => match error.status().unwrap_or_default() {
            401 | 403 => 8,
            404 => 3,
            412 => 4,
            419 | 429 => 5,
            408 | 503 | 504 | 507 => 6,
            _ => 1,
        },
        Error::Tls(_) | Error::Malformed(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_api::{ErrorCode, Problem};

    fn code_of(code: ErrorCode) -> u8 {
        client_exit_code(&Error::Problem {
            problem: Box::new(Problem::new(code, "")),
        })
    }

    #[test]
    fn every_error_code_has_the_exit_code_of_its_kind() {
        for code in ErrorCode::ALL {
            let expected = match code.status() {
                401 | 403 => 8,
                404 => 3,
                412 => 4,
                429 => 5,
                408 | 503 | 504 | 507 => 6,
                _ => 1,
            };
            assert_eq!(code_of(*code), expected, "{code}");
        }
    }

    #[test]
    fn what_is_given_up_here_is_what_the_server_would_have_said() {
        let given_up = |status| Error::GivenUp {
            requests: 9,
            accepts: 1,
            status,
        };
        let codes = [419, 429, 503].map(|status| client_exit_code(&given_up(status)));
        assert_eq!(codes, [5, 5, 6]);
    }

    #[test]
    fn a_server_that_is_lost_midway_is_one_that_was_not_reached() {
        let broken = Error::Transport("reset by peer".to_owned());
        assert_eq!(client_exit_code(&broken), 6);
        assert_eq!(client_exit_code(&Error::TruncatedStream { rows: 7 }), 6);
    }

    #[test]
    fn a_failure_without_advice_gives_none() {
        let problem = Problem::new(ErrorCode::NamespaceNotFound, "no namespace 'n'");
        let block = CliError::Client(Error::Problem {
            problem: Box::new(problem),
        })
        .block();
        assert_eq!(
            block,
            "umbo: Namespace not found (404)\n  no namespace 'n'\n"
        );
    }

    #[test]
    fn the_block_says_what_happened_what_to_do_and_the_request() {
        let mut problem = Problem::new(ErrorCode::PreconditionFailed, "the version is 8, not 7");
        problem.etag = Some("\"8\"".to_owned());
        problem.request_id = "r7".to_owned();
        let failure = CliError::Client(Error::Problem {
            problem: Box::new(problem),
        });
        let block = failure.block();
        for part in [
            "umbo: Precondition failed (412)\n  the version is 8, not 7\n",
            "  What to do: ",
            "  Current version: 8\n",
            "  Request id: r7\n",
        ] {
            assert!(block.contains(part), "{block}");
        }
    }
}
