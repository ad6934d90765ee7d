//! What those who wait take of memory: at a gate, and with their connections at a server.
//!
//! The bounds are those of the settings: so many bytes for each that `overload.waiting_max` lets wait,
//! and so many KiB for each of `server.connections_max`. A hundred thousand wait at the gate; how
//! many connections there are is a matter of how many files a process may open, and is told.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use umbo_overload::{
    Admission as Told, AdmissionQueue, Entered, Entry, LimitSettings, QueueSettings, Wakeups,
};
use umbo_types::{Criticality, Deadline, RequestUnits};

use crate::allocations::held;
use crate::check::plan::Plan;
use crate::failure::Failure;
use crate::load::scrape::scrape_data_port;
use crate::process::{Cores, Process, check_free};
use crate::verdict::{Bound, Verdict};

/// Port of the server, beside that of the scenarios.
const PORT: u16 = 18_093;
const WAITING: usize = 100_000;
/// Bytes of one that waits at a gate, as the settings say.
const WAITING_BYTES: f64 = 300.0;
/// Bytes of a connection, a request included, as the settings say.
const CONNECTION_BYTES: f64 = 48.0 * 1_024.0;
/// Files that each process needs beside its connections.
const OTHER_FILES: u64 = 200;
/// Longest wait until all have arrived.
const ARRIVAL_MAX: Duration = Duration::from_secs(8);

pub(super) fn memory(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let (bytes, waiting) = held(wait_at_a_gate);
    let most = if plan.is_quick { 5_000 } else { WAITING as u64 };
    let connections = files_max()?.saturating_sub(OTHER_FILES).min(most);
    let slow = of_connection(
        connections,
        b"GET /v1/ns/n/kv/p/s HTTP/1.1\r\nhost: a\r\nx-slow: ",
        0,
    )?;
    let body = "x".repeat(256);
    let put = format!(
        "PUT /v1/ns/n/kv/p/s HTTP/1.1\r\nhost: a\r\numbo-timeout-ms: 600000\r\ncontent-length: 256\r\n\r\n{body}"
    );
    // Some have a slot.
    let queued = of_connection(connections, put.as_bytes(), connections * 9 / 10)?;
    let verdict = |what: &str, each: f64| {
        let detail = format!(
            "{connections} connections; 100,000 would take {:.0} MiB",
            each * 1e5 / f64::from(1 << 20)
        );
        Verdict::one(what, Bound::AtMost(CONNECTION_BYTES), each, detail)
    };
    Ok(vec![
        Verdict::one(
            "memory: bytes of one that waits at a gate",
            Bound::AtMost(WAITING_BYTES),
            bytes as f64 / WAITING as f64,
            format!("{waiting} wait, with what wakes them"),
        ),
        verdict("memory: bytes of a slow connection", slow),
        verdict("memory: bytes of one with a request that waits", queued),
    ])
}

/// Lets a hundred thousand wait at a gate, and returns how many do.
fn wait_at_a_gate() -> usize {
    let one = LimitSettings {
        min: 1,
        max: 1,
        initial: 1,
    };
    let gate: AdmissionQueue<oneshot::Sender<Told>> = AdmissionQueue::new(QueueSettings {
        limit: one,
        waiting_max: WAITING,
        ..QueueSettings::default()
    });
    let now = Instant::now();
    let mut woken = Wakeups::new();
    let mut receivers = Vec::with_capacity(WAITING);
    let mut slots = Vec::new();
    for caller in 0..=WAITING as u64 {
        let entry = Entry {
            criticality: Criticality::SheddablePlus,
            caller,
            price: RequestUnits::from_micros(1_000_000),
            deadline: Deadline::after(now, Duration::from_mins(1)),
            is_above_share: false,
        };
        let waiter = || {
            let (sender, receiver) = oneshot::channel();
            receivers.push(receiver);
            sender
        };
        if let Entered::Permit(slot) = gate.enter(&entry, now, waiter, &mut woken) {
            slots.push(slot);
        }
    }
    gate.status(now).waiting()
}

/// Returns how many files this process may open.
fn files_max() -> Result<u64, Failure> {
    let path = "/proc/self/limits";
    let text = fs::read_to_string(path).map_err(Failure::io(path))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_ascii_whitespace().next());
    Ok(soft.and_then(|soft| soft.parse().ok()).unwrap_or(1_024))
}

/// Returns by how many bytes a server grows for a connection on which this was sent, once so many
/// requests wait.
fn of_connection(connections: u64, sent: &[u8], waiting_min: u64) -> Result<f64, Failure> {
    check_free(&[PORT])?;
    let program = std::env::current_exe().map_err(Failure::io("own program"))?;
    let arguments = [
        format!("--port={PORT}"),
        "--fault=*:stall:0:3600".to_owned(),
        format!("--waiting={WAITING}"),
    ];
    let arguments: Vec<_> = ["modelled".to_owned()]
        .into_iter()
        .chain(arguments)
        .collect();
    let folder = tempfile::tempdir().map_err(Failure::io("a folder"))?;
    let mut server = Process::start(&program, &arguments, Cores::All, folder.path())?;
    server.wait_for(PORT)?;
    // What a first request allocates once is no connection's.
    let mut first = connect()?;
    let namespace = b"PUT /admin/v1/namespaces/n HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    first
        .write_all(namespace)
        .map_err(Failure::io("a namespace"))?;
    sleep(Duration::from_millis(200));
    let before = server.resident_bytes()?;
    let mut sockets = Vec::new();
    for _ in 0..connections {
        let mut socket = connect()?;
        socket.write_all(sent).map_err(Failure::io("cannot send"))?;
        sockets.push(socket);
    }
    let begun = Instant::now();
    let arrived = || -> Result<(u64, f64), Failure> {
        let waiting = scrape_data_port(PORT, "umbo_shard_waiting{")?;
        Ok((files_of(server.id())?, waiting))
    };
    let mut there = arrived()?;
    while (there.0 < connections || there.1 < waiting_min as f64) && begun.elapsed() < ARRIVAL_MAX {
        sleep(Duration::from_millis(50));
        there = arrived()?;
    }
    if there.0 < connections || there.1 < waiting_min as f64 {
        let what = format!("of {connections} connections, {there:?} are open and wait");
        return Err(Failure::WrongAnswer(what));
    }
    let after = server.resident_bytes()?;
    drop(sockets);
    server.kill()?;
    Ok(after.saturating_sub(before) as f64 / connections as f64)
}

/// Returns how many files a process has open.
fn files_of(id: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{id}/fd");
    let files = fs::read_dir(&path).map_err(Failure::io(path))?;
    Ok(files.count() as u64)
}

fn connect() -> Result<TcpStream, Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    TcpStream::connect(address).map_err(Failure::io("cannot connect"))
}
