//! What can go wrong while measuring.

use std::io;
use std::path::PathBuf;

/// Why something was not measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A program is not there.
    #[error("{program} is missing; {remedy}")]
    Missing {
        /// Which.
        program: String,
        /// What to do.
        remedy: String,
    },
    /// A port answers before its server was started.
    #[error("port {0} answers already; a stale server would be measured instead, so stop it first")]
    PortInUse(u16),
    /// A process that was started does not answer, or has ended.
    #[error("{program} {what}; its output is in {}", log.display())]
    Process {
        /// Which.
        program: String,
        /// What it does not do.
        what: String,
        /// Where its output is.
        log: PathBuf,
    },
    /// A server answered something else than it was asked for.
    #[error("{0}")]
    WrongAnswer(String),
    /// There is nothing of this name.
    #[error("no {kind} is called {name}; there are {known}")]
    UnknownName {
        /// What was asked for.
        kind: &'static str,
        /// The name.
        name: String,
        /// Names that exist.
        known: String,
    },
    /// A crate that is measured beside ours refuses what it is given.
    #[error("a peer: {0}")]
    Peer(String),
    /// Settings that cannot hold at the same time.
    #[error("{0}")]
    Contradiction(String),
    /// A file or socket failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// The peer's own redb file failed.
    #[error("redb: {0}")]
    Redb(Box<redb::Error>),
    /// The token file could not be made.
    #[error(transparent)]
    Token(#[from] umbo_control::auth::AuthError),
    /// A report is not JSON.
    #[error("a report of the load client: {0}")]
    Report(#[from] serde_json::Error),
}

impl Failure {
    /// Says what was being done when the system refused.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Wraps any error of a crate that is measured beside ours.
    pub(crate) fn peer(error: impl std::fmt::Display) -> Self {
        Self::Peer(error.to_string())
    }

    /// Wraps any error of redb.
    pub(crate) fn redb(error: impl Into<redb::Error>) -> Self {
        Self::Redb(Box::new(error.into()))
    }
}
