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
            biased;
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => false,
        }
    }
}

/// Listens for Ctrl-C from its creation on: a signal that comes while the command does something else is not lost.
pub(crate) struct Interrupts(Signal);

impl Interrupts {
    /// Begins to listen; before that Ctrl-C ends the process at once.
    pub(crate) fn begin() -> Result<Self, CliError> {
        signal(SignalKind::interrupt())
            .map(Self)
            .map_err(CliError::start)
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        // It ends only with the runtime.
        let _ = self.0.recv().await;
    }
}
