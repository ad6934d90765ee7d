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
            interrupt: interrupts()?,
        })
    }

    /// Waits for one of them; returns whether it was SIGTERM.
    pub(crate) async fn stop_requested(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => false,
        }
    }
}

/// Begins to listen for Ctrl-C: a signal that comes while the command does something else is not lost. Before that it
/// ends the process at once.
pub(crate) fn interrupts() -> Result<Signal, CliError> {
    signal(SignalKind::interrupt()).map_err(CliError::start)
}
