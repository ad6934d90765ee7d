//! Why a command failed: the one error type of the binary, its exit code and its words on stderr.
//! The only place where an exit code is chosen; the list stands in the README and in `--help`.

mod advice;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use umbo_client::Error;
use umbo_dispatcher::auth::AuthError;
use umbo_routing::{ClusterMapError, SuccessionError};
use umbo_store_redb::OpenError;

use crate::settings::SettingsError;

/// Exit code of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Whoever read stdout went away; not worth a word.
    #[error("the reader of the output went away")]
    OutputClosed,
    /// Stdout could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    /// The server cannot start, or the system gives no thread.
    #[error("cannot start: {0}")]
    Start(String),
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Arguments that do not go together, found after they were parsed.
    #[error("{0}")]
    Usage(String),
    /// A call to the server failed.
    #[error(transparent)]
    Client(#[from] Error),
    /// There is no such row.
    #[error("no row has this key")]
    RowNotFound,
    /// There is no such shard.
    #[error("there is no shard {shard}: there are {shards}, numbered from 0")]
    ShardNotFound {
        /// The one asked for.
        shard: u16,
        /// How many there are.
        shards: usize,
    },
    /// A file is no map of a cluster.
    #[error("{}: {error}", path.display())]
    BadMap {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<ClusterMapError>,
    },
    /// The map of the cluster does not know this node.
    #[error("{} has no node '{node}'", path.display())]
    UnknownNode {
        /// The file of the map.
        path: PathBuf,
        /// The node.
        node: String,
    },
    /// A map cannot follow the one that is there.
    #[error("the map does not follow {}: {error}", before.display())]
    NoSuccessor {
        /// The file of the one that is there.
        before: PathBuf,
        /// Why it does not.
        error: SuccessionError,
    },
    /// A data folder is not the one it should be.
    #[error(transparent)]
    DataFolder(#[from] OpenError),
    /// A node would not serve some of its shards.
    #[error("{bad} of {files} shards would not be served")]
    BadFiles {
        /// Shards that would not.
        bad: u64,
        /// Shards of the node.
        files: u64,
    },
    /// There is already a namespace of this name.
    #[error("namespace '{0}' exists already")]
    NamespaceExists(String),
    /// Some rows failed; the others are done.
    #[error("{failed} of {rows} rows failed{hint}")]
    Partial {
        /// Rows that failed.
        failed: u64,
        /// Rows in all.
        rows: u64,
        /// Where to look, with what separates it from the words before.
        hint: String,
    },
    /// A token file cannot take a token.
    #[error(transparent)]
    Tokens(AuthError),
    /// A file could not be read or written.
    #[error("cannot {verb} {}: {source}", path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        /// Its name; `-` for stdin.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Ctrl-C; what was done until then was reported.
    #[error("interrupted")]
    Interrupted,
}

impl Failure {
    /// Makes a failure of an error in writing to stdout.
    pub(crate) fn from_output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Output(error),
        }
    }

    /// Makes a failure of an error that keeps the server or a thread from starting.
    pub(crate) fn start(error: impl std::fmt::Display) -> Self {
        Self::Start(error.to_string())
    }

    /// Returns the exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::OutputClosed => 0,
            Self::Usage(_) | Self::Settings(_) | Self::BadMap { .. } | Self::UnknownNode { .. } => {
                2
            }
            Self::RowNotFound | Self::ShardNotFound { .. } => 3,
            Self::NamespaceExists(_) | Self::NoSuccessor { .. } => 4,
            Self::Partial { .. } => 7,
            Self::Interrupted => INTERRUPTED,
            Self::Client(error) => client_exit_code(error),
            Self::Output(_)
            | Self::File { .. }
            | Self::Start(_)
            | Self::Tokens(_)
            | Self::DataFolder(_)
            | Self::BadFiles { .. } => 1,
        })
    }

    /// Says on stderr what happened, as one readable block.
    pub(crate) fn report(&self) {
        if matches!(self, Self::OutputClosed | Self::Interrupted) {
            return;
        }
        // Where stderr is gone there is nobody left to tell.
        let _ = io::stderr().write_all(self.block().as_bytes());
    }

    fn block(&self) -> String {
        let mut block = String::from("umbo: ");
        match self {
            Self::Client(Error::Problem { problem }) => {
                let _ = writeln!(block, "{} ({})", problem.title, problem.status);
                let _ = writeln!(block, "  {}", problem.detail);
            }
            other => {
                let _ = writeln!(block, "{other}");
            }
        }
        if let Some(advice) = self.advice() {
            let _ = writeln!(block, "  What to do: {advice}");
        }
        if let Self::Client(Error::Problem { problem }) = self {
            if let Some(etag) = &problem.etag {
                let _ = writeln!(block, "  Current version: {}", etag.trim_matches('"'));
            }
            if let Some(outcome) = problem.outcome {
                let _ = writeln!(block, "  Outcome of the write: {}", outcome.as_str());
            }
            if let Some(after_ms) = problem.retry.after_ms {
                let _ = writeln!(block, "  Try again in {after_ms} ms");
            }
            if !problem.request_id.is_empty() {
                let _ = writeln!(block, "  Request id: {}", problem.request_id);
            }
        }
        block
    }

    fn advice(&self) -> Option<&'static str> {
        match self {
            Self::NamespaceExists(_) => Some("add --update to set its settings"),
            Self::Client(Error::Unreachable { .. }) => Some(
                "start a server with 'umbo serve', or name another with --server or UMBO_SERVER",
            ),
            Self::Client(Error::Timeout(_)) => Some("give it more time with --timeout"),
            Self::Client(Error::Foreign { .. }) => {
                Some("check that --server names an Umbo server and not something else")
            }
            Self::Client(Error::Transport(_)) => {
                Some("try again; if it was a write, read first whether it was applied")
            }
            Self::Client(Error::TruncatedStream { .. }) => {
                Some("run the command again; what came so far is not all")
            }
            Self::Client(error) => error.code().and_then(advice::of_code),
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
        let block = Failure::Client(Error::Problem {
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
        let failure = Failure::Client(Error::Problem {
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
