//! The temporary server of the self-test: a process of this program in a new folder, which is removed with it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use tempfile::TempDir;

use crate::cli_error::CliError;

/// A running server. Dropping it kills the process and removes the folder.
#[derive(Debug)]
pub(super) struct TemporaryServer {
    child: Child,
    folder: TempDir,
    url: String,
}

impl TemporaryServer {
    /// Starts a server with default settings on a free port of this machine, in a new folder below `parent`.
    pub(super) fn start(parent: &Path) -> Result<Self, CliError> {
        let folder = tempfile::Builder::new()
            .prefix(".umbo-bench-")
            .tempdir_in(parent);
        let folder = folder.map_err(CliError::file("create a folder in", parent))?;
        let mut command = Command::new(std::env::current_exe().map_err(CliError::start)?);
        command
            .args(["serve", "--data", "data"])
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            // Neither a settings file of the working folder nor one of the environment is for this server.
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let variables = std::env::vars_os().map(|(name, _)| name);
        for name in variables.filter(|name| name.to_string_lossy().starts_with("UMBO_")) {
            command.env_remove(name);
        }
        command.env("UMBO__LOG__FORMAT", "json");
        let mut child = command.spawn().map_err(CliError::start)?;
        let log = child.stderr.take();
        let mut server = Self {
            child,
            folder,
            url: String::new(),
        };
        server.url = log.and_then(url_in).ok_or_else(|| {
            CliError::start("the temporary server has ended; 'umbo serve' says why")
        })?;
        Ok(server)
    }

    /// Returns its address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns its folder.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for TemporaryServer {
    fn drop(&mut self) {
        // The data of the server is removed, so the server need not stop in order.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the log until the server serves, and returns its address, or `None` if the log ends before.
fn url_in(log: ChildStderr) -> Option<String> {
    let mut log = BufReader::new(log);
    let mut line = String::new();
    while log.read_line(&mut line).ok()? > 0 {
        if let Some(url) = url_of(&line) {
            // The log is read on, so that the server can write it.
            std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
            return Some(url);
        }
        line.clear();
    }
    None
}

/// Returns the address in the line of the log that says that the server serves.
fn url_of(line: &str) -> Option<String> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    (line["message"] == "umbo serves").then(|| line["data"].as_str().map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_in_the_line_that_says_so() {
        let line =
            r#"{"level":"INFO","message":"umbo serves","data":"http://127.0.0.1:7","admin":"x"}"#;
        assert_eq!(url_of(line).as_deref(), Some("http://127.0.0.1:7"));
        for other in ["", "{}", r#"{"message":"umbo starts"}"#, "umbo serves"] {
            assert_eq!(url_of(other), None);
        }
    }
}
