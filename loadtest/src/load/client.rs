//! A client under way: this program once more, as a process of its own that prints its report.

use std::path::Path;
use std::process::{Child, Stdio};

use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::process::{self, Cores};

/// Which client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In a closed loop.
    Load,
    /// At fixed instants.
    Pace,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Pace => "pace",
        }
    }
}

/// A client under way; it ends with its handle.
#[derive(Debug)]
pub(crate) struct Client {
    child: Option<Child>,
}

impl Client {
    /// Starts a client that sends prepared requests to a port.
    pub(crate) fn start(
        kind: Kind,
        (port, requests, cores): (u16, &Path, Cores),
        arguments: &[String],
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::io("own program"))?;
        let child = process::command(&program, cores)
            .arg(kind.as_str())
            .arg(format!("--port={port}"))
            .arg(format!("--requests={}", requests.display()))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Failure::io("a client"))?;
        Ok(Self { child: Some(child) })
    }

    /// Waits for its report.
    pub(crate) fn report<R: DeserializeOwned>(mut self) -> Result<R, Failure> {
        let child = self.child.take().expect("only this takes it");
        let output = child.wait_with_output();
        let output = output.map_err(Failure::io("a client"))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::WrongAnswer(text.trim_end().to_owned()));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // One that has ended already refuses, which is as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
