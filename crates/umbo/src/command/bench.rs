//! `umbo bench`: a short self-test: how many gets, puts and ranges a second a server takes, and what limits them.
//!
//! Owns the order: rows, puts one at a time, puts, gets, ranges. Everything is removed at the end, after a failure too.
//! By default a temporary server is started with a new folder below the working folder: a folder in memory would say
//! nothing about the disk. The client is `umbo-client` on the same machine, so its CPU time is measured and reported
//! too. `umbo-loadtest bench` compares Umbo with other servers.

pub(crate) mod disk;
mod phase;
mod temporary;

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
use crate::output::listing::Listing;
use crate::output::{self, Format};
use crate::run_to_end::run_to_end;
use crate::signals::Interrupts;

const HELP: &str = "\
It takes about ten seconds, and removes all that it has made. It starts a server of its own, with default settings
and a data folder in a new folder under --dir; --running measures the server that --server names instead, with the
quotas that it has, in a namespace of its own. Rows have 256 bytes, ranges 100 rows. The requests come from this
process, and cost about as much CPU as the server's part: on few cores a server alone does more than it says here.";

/// Shortest and longest phase, in seconds.
const PHASE_SECONDS: std::ops::RangeInclusive<u64> = 1..=60;
/// Fewest and most connections.
const CONNECTIONS: std::ops::RangeInclusive<u64> = 1..=512;
/// Lowest share of all cores at which the CPU counts as used up.
const BUSY_SHARE_MIN: f64 = 0.85;
/// Most syncs in the median time of a put that the disk limits: a commit takes one to three, and a put that arrives
/// during a commit waits for the next one.
const SYNCS_MAX: f64 = 8.0;

/// Arguments of `umbo bench`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Measure the server of --server, which must be on this machine
    #[arg(long)]
    running: bool,
    /// With --running: allow a server on another machine
    #[arg(long, requires = "running")]
    anywhere: bool,
    /// Folder for the temporary server's data, on the disk to measure
    #[arg(
        long,
        value_name = "DIR",
        default_value = ".",
        conflicts_with = "running"
    )]
    dir: PathBuf,
    /// Seconds of each of the four phases, 1 to 60
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(PHASE_SECONDS))]
    seconds: u64,
    /// Requests in flight, 1 to 512
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
    cores: usize,
    /// Absent for a server that was running before: its folder is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskSample>,
    phases: Vec<PhaseResult>,
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        // Several threads, so that the requests keep the server busy.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(CliError::start)?;
        let report = run_to_end(&runtime, self.measure(connection))?;
        output::write_report(connection.listing_format(), &report, || report.print())
    }

    async fn measure(&self, connection: &ConnectionArgs) -> Result<BenchReport, CliError> {
        let interrupts = Interrupts::begin()?;
        if self.running {
            let server = connection.server();
            if !self.anywhere && !is_loopback(&server) {
                let message =
                    format!("{server} is not on this machine; add --anywhere if it may be loaded");
                return Err(CliError::Usage(message));
            }
            let client = connection.single_attempt_client()?;
            return self.measure_server(client, server, None, interrupts).await;
        }
        let temporary = TemporaryServer::start(&self.dir)?;
        let disk = disk::measure(temporary.folder())?;
        let client = ConnectionArgs::to(temporary.url()).single_attempt_client()?;
        let server = "a temporary server of its own".to_owned();
        self.measure_server(client, server, Some(disk), interrupts)
            .await
    }

    async fn measure_server(
        &self,
        client: Client,
        server: String,
        disk: Option<DiskSample>,
        mut interrupts: Interrupts,
    ) -> Result<BenchReport, CliError> {
        let version = client.service().await?.version;
        let namespace = format!("umbo-bench-{}", std::process::id());
        client
            .put_namespace(&namespace, &NamespaceSpec::default())
            .await?;
        let mut report = BenchReport {
            server,
            version,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            disk,
            phases: Vec::new(),
        };
        let measured = tokio::select! {
            biased;
            measured = self.run_phases(&client, &namespace, &mut report) => measured,
            () = interrupts.next() => Err(CliError::Interrupted),
        };
        let removed = client.delete_namespace(&namespace, None).await;
        measured?;
        removed?;
        Ok(report)
    }

    async fn run_phases(
        &self,
        client: &Client,
        namespace: &str,
        report: &mut BenchReport,
    ) -> Result<(), CliError> {
        phase::fill(client, namespace).await?;
        let time = Duration::from_secs(self.seconds);
        for (load, connections) in [
            (BenchRequest::Put, 1),
            (BenchRequest::Put, self.connections),
            (BenchRequest::Get, self.connections),
            (BenchRequest::Range, self.connections),
        ] {
            let mut result = phase::run(client, namespace, load, connections, time).await?;
            result.limit = report.limit_of(&result);
            report.phases.push(result);
        }
        Ok(())
    }
}

impl BenchReport {
    fn print(&self) -> Result<(), CliError> {
        Listing::new("REQUEST  IN-FLIGHT  PER-SECOND  P50-MS  P99-MS  FAILED  SERVER-CORES  CLIENT-CORES  OTHER-CORES  LIMITED BY")
            .with("PER-SECOND", |phase: &PhaseResult| format!("{:.0}", phase.per_second))
            .with("LIMITED BY", |phase| phase.limit.clone())
            .write(Format::Table, &self.phases)?;
        output::note(&format!(
            "umbo {}, {}; {} for server and client together",
            self.version,
            self.server,
            output::counted(self.cores as u64, "CPU core")
        ));
        if let Some(disk) = &self.disk {
            output::note(&format!(
                "the disk takes {:.2} ms (p99 {:.2} ms) to sync 4 KiB",
                disk.sync_p50_ms, disk.sync_p99_ms
            ));
        }
        Ok(())
    }

    /// Returns the limit of a phase as text, by simple rules. Refusals come first, because nothing else counts then.
    /// Then CPU: if nearly all cores of the machine were busy, the CPU was the limit, and its largest user is named.
    /// Then the disk, for puts that take a few syncs. Otherwise nothing was used up.
    #[expect(clippy::cast_precision_loss, reason = "a number of CPU cores")]
    fn limit_of(&self, result: &PhaseResult) -> String {
        if let Some(failure) = &result.failure {
            return format!("refusals: {failure}");
        }
        let (server, client) = (result.server_cores.unwrap_or(0.0), result.client_cores);
        if server + client + result.other_cores >= BUSY_SHARE_MIN * self.cores as f64 {
            let larger = if result.other_cores > server + client {
                "most of it other programs', shard nodes on this machine included"
            } else if client > server {
                "more of it the client's: the server alone does more"
            } else {
                "more of it the server's"
            };
            return format!("CPU, {larger}");
        }
        let is_put = result.request == BenchRequest::Put;
        match &self.disk {
            Some(disk) if is_put && result.p50_ms <= SYNCS_MAX * disk.sync_p50_ms => {
                let syncs = result.p50_ms / disk.sync_p50_ms;
                format!("disk: a put takes as long as {syncs:.1} syncs")
            }
            None if is_put => "disk or requests in flight (no folder to measure)".to_owned(),
            _ if result.in_flight == 1 => "one request at a time".to_owned(),
            _ => "requests in flight: try more --connections".to_owned(),
        }
    }
}

/// Returns whether an address names this machine.
fn is_loopback(server: &str) -> bool {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => authority,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(request: BenchRequest, server: f64, client: f64, p50_ms: f64) -> PhaseResult {
        PhaseResult {
            request,
            in_flight: 16,
            per_second: 100.0,
            p50_ms,
            p99_ms: p50_ms,
            failed: 0,
            failure: None,
            server_cores: Some(server),
            client_cores: client,
            other_cores: 0.0,
            limit: String::new(),
        }
    }

    #[test]
    fn each_limit_is_found() {
        use BenchRequest::{Get, Put};
        let mut report = BenchReport {
            server: String::new(),
            version: String::new(),
            cores: 2,
            disk: Some(DiskSample {
                sync_p50_ms: 1.0,
                sync_p99_ms: 2.0,
            }),
            phases: Vec::new(),
        };
        let mut refused = result(Get, 1.5, 0.5, 1.0);
        (refused.failed, refused.failure) = (3, Some("Quota exceeded".to_owned()));
        let mut alone = result(Get, 0.1, 0.1, 1.0);
        alone.in_flight = 1;
        let mut crowded = result(Put, 0.1, 0.1, 1.0);
        crowded.other_cores = 1.7;
        for (result, expected) in [
            (result(Get, 0.5, 1.3, 0.1), "CPU, more of it the client's"),
            (result(Get, 1.3, 0.5, 0.1), "CPU, more of it the server's"),
            (
                result(Put, 0.2, 0.2, 3.0),
                "disk: a put takes as long as 3.0 syncs",
            ),
            (result(Put, 0.2, 0.2, 30.0), "requests in flight"),
            (result(Get, 0.2, 0.2, 3.0), "requests in flight"),
            (refused, "refusals: Quota exceeded"),
            (alone, "one request at a time"),
            (crowded, "CPU, most of it other programs"),
        ] {
            let found = report.limit_of(&result);
            assert!(found.starts_with(expected), "{found}, not {expected}");
        }
        report.disk = None;
        let unknown = report.limit_of(&result(Put, 0.1, 0.1, 1.0));
        assert!(
            unknown.starts_with("disk or requests in flight"),
            "{unknown}"
        );
    }

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
