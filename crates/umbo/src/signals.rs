//! The signals that stop a process.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli_error::CliError;

/// SIGTERM and SIGINT.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Begins to listen for them; before that they end the process at once.
    pub(crate) fn begin() -> Result<Self, CliError> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(CliError::start)?,
            interrupt: signal(SignalKind::interrupt()).map_err(CliError::start)?,
        })
    }

    /// Waits for one of them; returns whether it was SIGTERM.
    pub(crate) async fn stop_requested(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => false,
        }
    }
}
