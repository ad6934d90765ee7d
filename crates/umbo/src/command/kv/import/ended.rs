//! Why the reader of an import ends before its source does.

use umbo_rows::RowsError;

use crate::cli_error::CliError;

/// No lane takes batches any more: the import was stopped.
pub(super) struct Stopped;

/// Why reading has ended early.
pub(super) enum Ended {
    Failed(CliError),
    Stopped,
}

impl From<Stopped> for Ended {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<CliError> for Ended {
    fn from(failure: CliError) -> Self {
        Self::Failed(failure)
    }
}

/// The same, or the source is at fault.
pub(super) enum ReadError {
    Source(RowsError),
    Ended(Ended),
}

impl From<Ended> for ReadError {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

impl From<CliError> for ReadError {
    fn from(failure: CliError) -> Self {
        Self::Ended(Ended::Failed(failure))
    }
}
