//! Real nodes from jars, ended with this process.
//!
//! What is missing fails the tests, and skips none.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A question of the protocol (version 4, OPTIONS) that any node answers as soon as it serves.
const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];
/// Opcode of the answer.
const SUPPORTED: u8 = 6;
/// Attempts at a tenth of a second each that a node has to begin to serve: far more than it takes.
const ATTEMPTS_MAX: u32 = 1_800;

/// A running node. It ends once its standard input does, and so with this process, whichever way that ends.
pub(crate) struct Node {
    number: u8,
    ports: Ports,
    process: Child,
}

/// Ports of all nodes of a cluster; they differ by their addresses.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    cql: u16,
    storage: u16,
}

impl Ports {
    pub(crate) fn free() -> Self {
        let free = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
            listener.local_addr().expect("it is bound").port()
        };
        Self {
            cql: free(),
            storage: free(),
        }
    }
}

impl Node {
    /// Starts a node of a cluster of some nodes on the files of a folder, without waiting for it. The first node is
    /// number 1.
    pub(crate) fn begin((number, nodes): (u8, u8), ports: Ports, folder: &Path) -> Self {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cassandra");
        let jars = fetch_jars(&scripts);
        let process = Command::new(scripts.join("node.sh"))
            .arg(number.to_string())
            .arg(folder)
            .args([nodes.into(), ports.cql, ports.storage].map(|one: u16| one.to_string()))
            .env("JARS", jars)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a shell runs");
        Self {
            number,
            ports,
            process,
        }
    }

    /// Waits until the node serves and has found others: one that has not refuses what needs their copies.
    pub(crate) fn wait(&mut self, folder: &Path, others: &[u8]) {
        let (address, storage) = (self.address(), self.ports.storage);
        let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        let has_found = |log: &str| {
            let mut others = others.iter();
            others.all(|other| log.contains(&format!("/127.0.0.{other}:{storage} is now UP")))
        };
        for _ in 0..ATTEMPTS_MAX {
            if answers(&address) && has_found(&log()) {
                return;
            }
            if self.process.try_wait().is_ok_and(|ended| ended.is_some()) {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        panic!("the node does not begin to serve:\n{}", log());
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.{}:{}", self.number, self.ports.cql)
    }
}

impl Drop for Node {
    /// Kills the node, and waits for its end.
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Fetches what Cassandra is made of, once for all test programs of the build.
fn fetch_jars(scripts: &Path) -> PathBuf {
    let build = std::env::current_exe().expect("a test is a program");
    let build = build
        .ancestors()
        .nth(3)
        .expect("it is in target/debug/deps");
    let folder = build.join("cassandra");
    let fetched = Command::new(scripts.join("fetch.sh")).arg(&folder).output();
    let fetched = fetched.expect("a shell runs");
    assert!(
        fetched.status.success(),
        "cannot fetch Cassandra:\n{}{}",
        String::from_utf8_lossy(&fetched.stdout),
        String::from_utf8_lossy(&fetched.stderr)
    );
    folder
}

fn answers(address: &str) -> bool {
    let ask = || -> std::io::Result<u8> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(&OPTIONS)?;
        let mut header = [0; 9];
        stream.read_exact(&mut header)?;
        Ok(header[4])
    };
    ask().is_ok_and(|opcode| opcode == SUPPORTED)
}
