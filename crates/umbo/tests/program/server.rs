//! A real server in a folder of its own, and the program run against it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A server that is killed with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    pub(crate) folder: tempfile::TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_umbo"))
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--admin-listen",
                "127.0.0.1:0",
            ])
            .arg("--data")
            .arg(folder.path().join("data"))
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let url = loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the server ended");
            if line.contains("umbo serves") {
                let from = line.find("http://").unwrap();
                let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '/' | '.');
                break line[from..].chars().take_while(|&c| is_part(c)).collect();
            }
        };
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        Self { child, url, folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file and returns its name.
    pub(crate) fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Runs the program and returns what it wrote; fails unless its exit code is this one.
    pub(crate) fn run(&self, code: i32, arguments: &[&str]) -> Ran {
        run(&self.url, self.folder.path(), code, arguments, b"")
    }

    /// Imports rows into the namespace `n`, which is created where it is absent.
    pub(crate) fn import(&self, rows: impl AsRef<[u8]>) -> Ran {
        let file = self.file("rows", rows);
        self.run(0, &["kv", "import", "n", &file, "--create"])
    }

    /// Runs the program, and returns its exit code too.
    pub(crate) fn run_any(&self, arguments: &[&str]) -> (Option<i32>, Ran) {
        let output = command(&self.url, self.folder.path(), arguments)
            .output()
            .unwrap();
        let code = output.status.code();
        (code, checked(code.unwrap(), arguments, output))
    }

    /// Runs the program without a stdin, as under a service manager.
    pub(crate) fn run_without_input(&self, code: i32, arguments: &[&str]) -> Ran {
        let mut command = command(&self.url, self.folder.path(), arguments);
        let output = command.stdin(Stdio::null()).output().unwrap();
        checked(code, arguments, output)
    }

    pub(crate) fn run_with_input(&self, code: i32, arguments: &[&str], input: &[u8]) -> Ran {
        run(&self.url, self.folder.path(), code, arguments, input)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the program wrote.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap()
    }
}

/// The program, told where the server is.
pub(crate) fn command(url: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbo"));
    command
        .args(arguments)
        .current_dir(folder)
        .env("UMBO_SERVER", url)
        .env_remove("UMBO_TOKEN")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Sends Ctrl-C to the program.
pub(crate) fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
}

pub(crate) fn run(url: &str, folder: &Path, code: i32, arguments: &[&str], input: &[u8]) -> Ran {
    let mut child = command(url, folder, arguments).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that does not read its input to the end breaks the pipe; that is its right.
    let writing = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    checked(code, arguments, output)
}

pub(crate) fn checked(code: i32, arguments: &[&str], output: Output) -> Ran {
    let ran = Ran {
        out: output.stdout,
        err: String::from_utf8(output.stderr).unwrap(),
    };
    assert_eq!(
        output.status.code(),
        Some(code),
        "umbo {}: {ran:?}",
        arguments.join(" ")
    );
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    ran
}
