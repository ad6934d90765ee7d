//! The signals that tell a process to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// SIGTERM and SIGINT.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Begins to listen for them; until then they end the process at once.
    pub(crate) fn begin() -> Result<Self, Failure> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(Failure::start)?,
            interrupt: signal(SignalKind::interrupt()).map_err(Failure::start)?,
        })
    }

    /// Waits for one of them; says whether it was SIGTERM.
    pub(crate) async fn told(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => false,
        }
    }
}
