//! `umbo bench`: a short self-test: how many gets, puts and ranges a second a server takes, and what limits them.
//!
//! Owns the order: rows, puts one at a time, puts, gets, ranges, and then everything is removed, however it
//! ends. By default the server is one of its own, in a new folder below the working folder, because the disk of a
//! folder in memory tells nothing. The client is the one of `umbo-client`, on the same machine: its CPU time is
//! measured too, and said.

pub(crate) mod disk;
mod phase;
mod temporary;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use umbo_api::admin::NamespaceSpec;
use umbo_client::Client;

use self::disk::DiskSample;
use self::phase::{BenchRequest, PhaseResult};
use self::temporary::TemporaryServer;
use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output::{self, Format};
use crate::run_to_end::run_to_end;

const HELP: &str = "\
It takes about ten seconds, and removes all that it has made. It starts a server of its own, with default settings
and a data folder in a new folder under --dir; --running measures the server that --server names instead, with the
quotas that it has, in a namespace of its own. Rows have 256 bytes, ranges 100 rows. The requests come from this
process, and cost about as much CPU as the server's part: on few cores a server alone does more than it says here.";

/// Shortest and longest phase, in seconds.
const PHASE_SECONDS: std::ops::RangeInclusive<u64> = 1..=60;
/// Most connections.
const CONNECTIONS: std::ops::RangeInclusive<u64> = 1..=512;

/// Arguments of `umbo bench`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Measure the server that --server names, which has to be on this machine
    #[arg(long)]
    running: bool,
    /// With --running, also a server on another machine
    #[arg(long, requires = "running")]
    anywhere: bool,
    /// Folder for the temporary server's data: on the disk that is to be measured
    #[arg(
        long,
        value_name = "DIR",
        default_value = ".",
        conflicts_with = "running"
    )]
    dir: PathBuf,
    /// Seconds of each of the four phases
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(PHASE_SECONDS))]
    seconds: u64,
    /// Requests in flight
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(CONNECTIONS))]
    connections: u64,
}

/// The result of a self-test.
#[derive(Debug, Serialize)]
struct BenchReport {
    server: String,
    /// Version of the server.
    version: String,
    /// CPU cores of this machine that the program may use.
    cores: u32,
    /// Absent for a server that ran before: its folder is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskSample>,
    phases: Vec<PhaseResult>,
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        // Several threads: the requests are to keep the server busy.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(CliError::start)?;
        run_to_end(&runtime, async {
            tokio::select! {
                report = self.measure(connection) => {
                    let report = report?;
                    match connection.listing_format() {
                        Format::Table => report.print(),
                        Format::Json | Format::Ndjson => output::write_json(&report),
                    }
                }
                // What was begun is removed when the future above is dropped.
                _ = tokio::signal::ctrl_c() => Err(CliError::Interrupted),
            }
        })
    }

    async fn measure(&self, connection: &ConnectionArgs) -> Result<BenchReport, CliError> {
        if self.running {
            let server = connection.server();
            if !self.anywhere && !is_loopback(&server) {
                let message =
                    format!("{server} is not on this machine; add --anywhere if it may be loaded");
                return Err(CliError::Usage(message));
            }
            return self.measure_server(connection, server, None).await;
        }
        let temporary = TemporaryServer::start(&self.dir)?;
        let disk = disk::measure(temporary.folder())?;
        let connection = ConnectionArgs::to(temporary.url());
        let server = "a temporary server of its own".to_owned();
        self.measure_server(&connection, server, Some(disk)).await
    }

    async fn measure_server(
        &self,
        connection: &ConnectionArgs,
        server: String,
        disk: Option<DiskSample>,
    ) -> Result<BenchReport, CliError> {
        let client = connection.single_attempt_client()?;
        let version = client.service().await?.version;
        let namespace = format!("umbo-bench-{}", std::process::id());
        let spec = NamespaceSpec::default();
        client.put_namespace(&namespace, &spec).await?;
        let _remover = Remover {
            client: client.clone(),
            namespace: namespace.clone(),
        };
        let phases = self.phases(&client, &namespace, disk.as_ref()).await;
        // Waits for the removal; the guard is for what ends before this line.
        let removed = client.delete_namespace(&namespace, None).await;
        let phases = phases?;
        removed?;
        Ok(BenchReport {
            server,
            version,
            cores: cores(),
            disk,
            phases,
        })
    }

    async fn phases(
        &self,
        client: &Client,
        namespace: &str,
        disk: Option<&DiskSample>,
    ) -> Result<Vec<PhaseResult>, CliError> {
        phase::fill(client, namespace).await?;
        let time = Duration::from_secs(self.seconds);
        let connections = self.connections;
        let mut results = Vec::new();
        for (load, connections) in [
            (BenchRequest::Put, 1),
            (BenchRequest::Put, connections),
            (BenchRequest::Get, connections),
            (BenchRequest::Range, connections),
        ] {
            let mut result = phase::run(client, namespace, load, connections, time).await?;
            result.limit = verdict::limit(&result, load, cores(), disk);
            results.push(result);
        }
        Ok(results)
    }
}

impl BenchReport {
    fn print(&self) -> Result<(), CliError> {
        let header = "REQUEST  IN-FLIGHT  PER-SECOND  P50-MS  P99-MS  FAILED  SERVER-CORES  CLIENT-CORES  OTHER-CORES  LIMITED BY";
        output::write_list(Format::Table, &self.phases, header, PhaseResult::cells)?;
        output::note(&format!(
            "umbo {}, {}; {} for server and client together",
            self.version,
            self.server,
            output::counted(self.cores.into(), "CPU core")
        ));
        if let Some(disk) = &self.disk {
            output::note(&format!(
                "the disk takes {:.2} ms (p99 {:.2} ms) to sync 4 KiB",
                disk.sync_p50_ms, disk.sync_p99_ms
            ));
        }
        Ok(())
    }
}

/// Removes the namespace of a self-test that was interrupted.
struct Remover {
    client: Client,
    namespace: String,
}

impl Drop for Remover {
    fn drop(&mut self) {
        let (client, namespace) = (self.client.clone(), std::mem::take(&mut self.namespace));
        // On a thread of its own: the runtime is about to end.
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                // Nothing is left to remove where the self-test has ended by itself.
                let removal = client.delete_namespace(&namespace, None);
                let _ = run_to_end(&runtime, removal);
            }
        });
        let _ = removal.join();
    }
}

fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

/// Returns whether an address names this machine.
fn is_loopback(server: &str) -> bool {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, port)| {
            if port.ends_with(']') { authority } else { host }
        });
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine_and_nothing_else() {
        for server in [
            "http://127.0.0.1:8080",
            "http://127.3.2.1",
            "https://localhost:1/x",
            "http://[::1]:8080",
            "http://[::1]",
        ] {
            assert!(is_loopback(server), "{server}");
        }
        for server in [
            "http://10.0.0.1:8080",
            "http://localhost.example.org",
            "http://[::2]:8080",
            "http://127.0.0.1.example.org",
            "",
        ] {
            assert!(!is_loopback(server), "{server}");
        }
    }
}
