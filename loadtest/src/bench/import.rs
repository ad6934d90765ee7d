//! The benchmark of bulk upload: `umbo kv import` over HTTP, the client's work included.

use std::fs::File;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::lab::{Lab, UMBO};
use crate::dataset::{self, Order};
use crate::failure::Failure;
use crate::process::{Cores, command, resident_bytes};
use crate::verdict::{Bound, Verdict};

const MIB: f64 = 1_048_576.0;
/// How often the memory of client and server is read.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Rows a second, in key order and at random.
pub(super) fn import(lab: &mut Lab) -> Result<Vec<Verdict>, Failure> {
    let mut verdicts = Vec::new();
    for (order, name, bound) in [
        (Order::Key, "in key order", 100_000.0),
        (Order::Random, "at random", 40_000.0),
    ] {
        let path = lab.path("rows.ndjson");
        let file = File::create(&path).map_err(Failure::io(path.display().to_string()))?;
        dataset::write_rows(file, lab.rows, order).map_err(Failure::io("the rows"))?;
        let (mut figures, mut detail) = (Vec::new(), String::new());
        for _ in 0..3 {
            let run = Run::of(lab, &path)?;
            detail = run.memory;
            figures.push(run.rows_a_second);
        }
        let what = format!("import: rows a second, {name}");
        verdicts.push(Verdict::new(what, Bound::AtLeast(bound), figures, detail));
    }
    Ok(verdicts)
}

struct Run {
    rows_a_second: f64,
    memory: String,
}

impl Run {
    /// Imports a file into an empty store.
    fn of(lab: &mut Lab, rows: &std::path::Path) -> Result<Self, Failure> {
        let data = lab.path("data");
        let umbo = lab.umbo(&data, Cores::All)?;
        lab.create_namespace()?;
        let errors = lab.path("import.txt");
        let output = File::create(&errors).map_err(Failure::io(errors.display().to_string()))?;
        let begun = Instant::now();
        let mut client = command(lab.umbo_program(), Cores::All)
            .args(["kv", "import", "bench"])
            .arg(rows)
            .env("UMBO_SERVER", format!("http://127.0.0.1:{UMBO}"))
            .env("UMBO_TOKEN", lab.token())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .map_err(Failure::io("umbo kv import"))?;
        let (mut client_half, mut server_half) = (0, 0);
        let (mut client_max, mut server_max) = (0, 0);
        let status = loop {
            if let Some(status) = client.try_wait().map_err(Failure::io("umbo kv import"))? {
                break status;
            }
            // A client that has just ended has no memory to tell of.
            client_max = client_max.max(resident_bytes(client.id(), "VmRSS:").unwrap_or(0));
            server_max = server_max.max(umbo.process.resident_bytes()?);
            if begun.elapsed() < Duration::from_secs(2) {
                (client_half, server_half) = (client_max, server_max);
            }
            sleep(LOOK_INTERVAL);
        };
        let seconds = begun.elapsed().as_secs_f64();
        if !status.success() {
            let text = std::fs::read_to_string(&errors).unwrap_or_default();
            return Err(Failure::WrongAnswer(format!("umbo kv import: {text}")));
        }
        umbo.process.stop()?;
        let mib = |bytes: u64| bytes as f64 / MIB;
        Ok(Self {
            rows_a_second: lab.rows as f64 / seconds,
            memory: format!(
                "resident MiB after 2 s and at most: client {:.0} and {:.0}, server {:.0} and {:.0}",
                mib(client_half),
                mib(client_max),
                mib(server_half),
                mib(server_max)
            ),
        })
    }
}
