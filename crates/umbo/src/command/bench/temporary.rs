//! A server of the self-test's own: a process of this program in a new folder, which goes with it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::cli_error::CliError;

/// A running server; killed, and its folder removed, when it is dropped.
#[derive(Debug)]
pub(super) struct TemporaryServer {
    child: Option<Child>,
    folder: PathBuf,
    url: String,
}

impl TemporaryServer {
    /// Starts a server with default settings on a free port of this machine, in a new folder below `parent`.
    pub(super) fn start(parent: &Path) -> Result<Self, CliError> {
        let folder = parent.join(format!(".umbo-bench-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|source| CliError::File {
            verb: "create",
            path: folder.clone(),
            source,
        })?;
        let mut server = Self {
            child: None,
            folder,
            url: String::new(),
        };
        server.url = server.spawn()?;
        Ok(server)
    }

    fn spawn(&mut self) -> Result<String, CliError> {
        let program = std::env::current_exe().map_err(CliError::start)?;
        let mut command = Command::new(program);
        command
            .args(["serve", "--data", "data"])
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            // Neither a settings file of the working folder nor one of the environment is for this server.
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("UMBO_") {
                command.env_remove(name);
            }
        }
        command.env("UMBO__LOG__FORMAT", "json");
        let child = self.child.insert(command.spawn().map_err(CliError::start)?);
        let mut log = BufReader::new(child.stderr.take().ok_or_else(ended)?);
        let mut line = String::new();
        loop {
            line.clear();
            if log.read_line(&mut line).map_err(CliError::start)? == 0 {
                return Err(ended());
            }
            if let Some(url) = url_of(&line) {
                // The log is read on, so that the server can write it.
                std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
                return Ok(url);
            }
        }
    }

    /// Returns its address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns its folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for TemporaryServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // The data of the server is removed, so the server need not stop in order.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn ended() -> CliError {
    CliError::start("the temporary server has ended; 'umbo serve' says why")
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
