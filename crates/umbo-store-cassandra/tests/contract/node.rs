//! The node that the tests share: a real one from jars, started by the first test and ended with this process.
//!
//! What is missing fails the tests, and skips none.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

/// A question of the protocol (version 4, OPTIONS) that any node answers as soon as it serves.
const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];
/// Opcode of the answer.
const SUPPORTED: u8 = 6;
/// Attempts at a tenth of a second each that a node has to begin to serve: far more than it takes.
const ATTEMPTS_MAX: u32 = 1_800;

/// A running node. It ends once its standard input does, and so with this process, whichever way that ends.
struct Node {
    address: String,
    _process: Child,
    _input: ChildStdin,
    _folder: TempDir,
}

/// Returns host and port of the node.
pub(crate) fn address() -> String {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(Node::start).address.clone()
}

impl Node {
    #[expect(
        clippy::zombie_processes,
        reason = "it ends once its standard input does, with this process"
    )]
    fn start() -> Self {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cassandra");
        let jars = fetch_jars(&scripts);
        let folder = TempDir::new().expect("there is room for a folder");
        let (cql, storage) = (free_port(), free_port());
        let mut process = Command::new(scripts.join("node.sh"))
            .arg("1")
            .arg(folder.path())
            .args(["1", &cql.to_string(), &storage.to_string()])
            .env("JARS", jars)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a shell runs");
        let input = process.stdin.take().expect("it is piped");
        for _ in 0..ATTEMPTS_MAX {
            if answers(cql) {
                return Self {
                    address: format!("127.0.0.1:{cql}"),
                    _process: process,
                    _input: input,
                    _folder: folder,
                };
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        panic!("the node does not begin to serve:\n{log}");
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

/// Returns a free port.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

fn answers(port: u16) -> bool {
    let ask = || -> std::io::Result<u8> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(&OPTIONS)?;
        let mut header = [0; 9];
        stream.read_exact(&mut header)?;
        Ok(header[4])
    };
    ask().is_ok_and(|opcode| opcode == SUPPORTED)
}
