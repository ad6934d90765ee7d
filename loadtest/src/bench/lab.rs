//! Where benchmarks run: a temporary folder, the programs, Umbo itself and its loaded data.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use umbo_control::auth::CheckedToken;
use umbo_control::auth::file::append_token;
use umbo_types::Timestamp;

use super::folder;
use super::plan::{Pairs, Plan};
use crate::dataset::{self, PARTITION_ROWS};
use crate::failure::Failure;
use crate::load::Report;
use crate::load::client::{Client, Kind};
use crate::load::requests::{Prepared, http};
use crate::process::{self, Cores, Process};
use crate::random::Random;

/// Port of Umbo's data plane.
pub(crate) const UMBO: u16 = 18_080;
/// Port of Umbo's metrics.
pub(crate) const UMBO_ADMIN: u16 = 18_081;
/// Ports of a second one beside it.
pub(crate) const OTHER_UMBO: u16 = 18_088;
pub(super) const OTHER_UMBO_ADMIN: u16 = 18_089;
/// Port of the bare axum handler.
pub(crate) const AXUM: u16 = 18_087;
/// Connections of every load.
pub(crate) const CONNECTIONS: usize = 64;
/// Requests prepared for a load; after the last one comes the first again.
const PREPARED: u64 = 100_000;
/// Rows of one batch while data is loaded.
const BATCH_ROWS: u64 = 1_000;
/// Namespace of the scenario.
pub(crate) const NAMESPACE: &str = "bench";

/// What a load runs against.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// Port.
    pub(crate) port: u16,
    /// Prepared requests.
    pub(crate) requests: &'a Path,
    /// Processes of the server.
    pub(crate) servers: &'a [u32],
    /// Cores of the client.
    pub(crate) cores: Cores,
}

/// A server as a turn asks for it: its port, its requests, and its processes.
pub(crate) type Server<'a> = (u16, &'a Path, &'a [u32]);

/// A running Umbo.
#[derive(Debug)]
pub(crate) struct Umbo {
    /// Process of the server.
    pub(crate) process: Process,
    /// Id of the server's process, as a load wants it.
    pub(crate) ids: [u32; 1],
}

/// The place and its tools.
#[derive(Debug)]
pub(crate) struct Lab {
    folder: TempDir,
    umbo: PathBuf,
    /// How long and how often is measured.
    pub(crate) plan: Plan,
    /// Rows of the scenario.
    pub(crate) rows: u64,
    token: String,
    loaded: Option<PathBuf>,
    files: usize,
}

impl Lab {
    /// Opens a lab in a new folder within `parent`, or where temporary files go.
    pub(crate) fn open(parent: Option<&Path>, is_quick: bool) -> Result<Self, Failure> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = tempfile::Builder::new()
            .prefix("umbo-bench-")
            .tempdir_in(&parent)
            .map_err(Failure::io(parent.display().to_string()))?;
        let remedy = "build it beside this program: cargo build --release --workspace";
        let umbo = process::find("umbo", remedy)?;
        process::find("taskset", "install the package util-linux")?;
        let token = make_token(&folder.path().join("tokens.toml"), "bench")?;
        let plan = if is_quick {
            Plan {
                rounds: 3,
                warm_up_ms: 200,
                measure_ms: 600,
            }
        } else {
            Plan {
                rounds: 7,
                warm_up_ms: 500,
                measure_ms: 2_000,
            }
        };
        Ok(Self {
            folder,
            umbo,
            plan,
            rows: if is_quick { 100_000 } else { 1_000_000 },
            token,
            loaded: None,
            files: 0,
        })
    }

    /// Returns an unused path in the lab.
    pub(crate) fn path(&mut self, name: &str) -> PathBuf {
        self.files += 1;
        self.folder.path().join(format!("{}-{name}", self.files))
    }

    /// Creates an unused folder.
    pub(crate) fn new_folder(&mut self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.path(name);
        std::fs::create_dir(&path).map_err(Failure::io(path.display().to_string()))?;
        Ok(path)
    }

    /// Starts Umbo with default settings and a token file.
    pub(crate) fn umbo(&mut self, data: &Path, cores: Cores) -> Result<Umbo, Failure> {
        self.start(data, cores, (UMBO, UMBO_ADMIN), "")
    }

    /// Starts Umbo with some settings, as a file of them would have them.
    pub(crate) fn umbo_with(
        &mut self,
        data: &Path,
        cores: Cores,
        settings: &str,
    ) -> Result<Umbo, Failure> {
        self.start(data, cores, (UMBO, UMBO_ADMIN), settings)
    }

    /// Starts a second one beside the first, on data of its own.
    pub(crate) fn other_umbo(
        &mut self,
        data: &Path,
        cores: Cores,
        settings: &str,
    ) -> Result<Umbo, Failure> {
        let ports = (OTHER_UMBO, OTHER_UMBO_ADMIN);
        self.start(data, cores, ports, settings)
    }

    fn start(
        &mut self,
        data: &Path,
        cores: Cores,
        (port, admin): (u16, u16),
        settings: &str,
    ) -> Result<Umbo, Failure> {
        process::check_free(&[port, admin])?;
        let arguments = [
            "serve".to_owned(),
            format!("--data={}", data.display()),
            format!("--listen=127.0.0.1:{port}"),
            format!("--admin-listen=127.0.0.1:{admin}"),
            format!("--token-file={}", self.token_file()),
        ];
        let mut process = self.role(&arguments, cores, settings)?;
        process.wait_for(port)?;
        let ids = [process.id()];
        Ok(Umbo { process, ids })
    }

    /// Starts Umbo in one of its roles, with some settings.
    pub(super) fn role(
        &mut self,
        arguments: &[String],
        cores: Cores,
        settings: &str,
    ) -> Result<Process, Failure> {
        let folder = self.new_folder("umbo")?;
        let file = folder.join("umbo.toml");
        std::fs::write(&file, settings).map_err(Failure::io(file.display().to_string()))?;
        let mut arguments = arguments.to_vec();
        arguments.push(format!("--config={}", file.display()));
        Process::start(&self.umbo, &arguments, cores, &folder)
    }

    pub(super) fn token_file(&self) -> String {
        self.folder.path().join("tokens.toml").display().to_string()
    }

    /// Starts a peer that is a part of this program.
    pub(crate) fn own_peer(&mut self, port: u16, kind: &[String]) -> Result<Process, Failure> {
        process::check_free(&[port])?;
        let folder = self.new_folder("peer")?;
        let program = std::env::current_exe().map_err(Failure::io("own program"))?;
        let mut arguments = vec!["peer".to_owned(), format!("--port={port}")];
        arguments.extend_from_slice(kind);
        let mut process = Process::start(&program, &arguments, Cores::Server, &folder)?;
        process.wait_for(port)?;
        Ok(process)
    }

    /// Returns a data folder with the rows of the scenario, loaded once.
    pub(crate) fn loaded(&mut self) -> Result<PathBuf, Failure> {
        if let Some(folder) = &self.loaded {
            return Ok(folder.clone());
        }
        let folder = self.path("data");
        let umbo = self.umbo(&folder, Cores::All)?;
        self.fill(UMBO)?;
        umbo.process.stop()?;
        self.loaded = Some(folder.clone());
        Ok(folder)
    }

    /// Creates the namespace of the scenario on a server, and loads its rows.
    pub(crate) fn fill(&mut self, port: u16) -> Result<(), Failure> {
        self.create_namespace_on(port)?;
        let rows = self.rows;
        let batches = (0..rows).step_by(BATCH_ROWS as usize).map(|first| {
            let mut lines = Vec::new();
            for row in first..(first + BATCH_ROWS).min(rows) {
                dataset::write_put(&mut lines, row);
            }
            lines
        });
        let requests: Vec<Vec<u8>> = batches
            .map(|lines| self.request("POST", "batch/write", "Prefer: return=minimal\r\n", &lines))
            .collect();
        self.send_once(port, requests.into_iter()).map(drop)
    }

    /// Copies a data folder that no server has open.
    pub(crate) fn copy_of(&mut self, data: &Path) -> Result<PathBuf, Failure> {
        let to = self.path("data");
        folder::copy(data, &to).map_err(Failure::io(to.display().to_string()))?;
        Ok(to)
    }

    /// Makes a policy of the server.
    pub(crate) fn put_policy(&mut self, name: &str, policy: &str) -> Result<(), Failure> {
        self.put_policy_on(UMBO, name, policy)
    }

    /// Makes a policy of the server on this port.
    pub(crate) fn put_policy_on(
        &mut self,
        port: u16,
        name: &str,
        policy: &str,
    ) -> Result<(), Failure> {
        let request = self.admin_request("PUT", &format!("quotas/{name}"), policy.as_bytes());
        self.send_once(port, std::iter::once(request)).map(drop)
    }

    /// Creates the namespace of the scenario.
    pub(crate) fn create_namespace(&mut self) -> Result<(), Failure> {
        self.create_namespace_on(UMBO)
    }

    /// Creates the namespace of the scenario on the server on this port.
    pub(crate) fn create_namespace_on(&mut self, port: u16) -> Result<(), Failure> {
        let fields = self.fields();
        let target = format!("/admin/v1/namespaces/{NAMESPACE}");
        let request = http("PUT", &target, &fields, b"{}");
        self.send_once(port, std::iter::once(request))?;
        Ok(())
    }

    /// Makes a request of the namespace, with the token.
    pub(crate) fn request(
        &self,
        method: &str,
        resource: &str,
        fields: &str,
        body: &[u8],
    ) -> Vec<u8> {
        let target = format!("/v1/ns/{NAMESPACE}/{resource}");
        let fields = format!("{}{fields}", self.fields());
        http(method, &target, &fields, body)
    }

    /// Makes a request of the admin API, with the token.
    pub(crate) fn admin_request(&self, method: &str, resource: &str, body: &[u8]) -> Vec<u8> {
        let target = format!("/admin/v1/{resource}");
        http(method, &target, &self.fields(), body)
    }

    /// Makes a token for another caller, to be known to a server that is started later; it may do
    /// everything. Returns its field.
    pub(crate) fn new_caller(&self, name: &str) -> Result<String, Failure> {
        let token = make_token(&self.folder.path().join("tokens.toml"), name)?;
        Ok(authorization(&token))
    }

    /// Returns the token.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Returns the program.
    pub(crate) fn umbo_program(&self) -> &Path {
        &self.umbo
    }

    /// Returns the field of the token.
    pub(crate) fn fields(&self) -> String {
        authorization(&self.token)
    }

    /// Prepares requests for rows chosen at random, the same for every server.
    pub(crate) fn prepare(
        &mut self,
        name: &str,
        below: u64,
        make: impl Fn(&Self, u64) -> Vec<u8>,
    ) -> Result<PathBuf, Failure> {
        let path = self.path(name);
        let mut random = Random::seeded(17);
        let requests = (0..PREPARED).map(|_| make(self, random.below(below)));
        Prepared::write(&path, requests)?;
        Ok(path)
    }

    /// Prepares gets of the first rows.
    pub(crate) fn gets(&mut self, below: u64) -> Result<PathBuf, Failure> {
        self.prepare("get", below, |lab, row| {
            lab.request("GET", &dataset::resource(row), "", b"")
        })
    }

    /// Reads every partition once, so that what is cached is cached.
    pub(crate) fn warm(&mut self, port: u16) -> Result<(), Failure> {
        let partitions = (0..self.rows).step_by(PARTITION_ROWS as usize);
        let requests: Vec<_> = partitions
            .map(|row| {
                let resource = format!("range/{}?limit=100", dataset::partition(row));
                self.request("GET", &resource, "", b"")
            })
            .collect();
        self.send_once(port, requests.into_iter()).map(drop)
    }

    /// Sends each of these requests once.
    pub(crate) fn send_once(
        &mut self,
        port: u16,
        requests: impl Iterator<Item = Vec<u8>>,
    ) -> Result<Report, Failure> {
        let path = self.path("once");
        Prepared::write(&path, requests)?;
        let target = Target {
            port,
            requests: &path,
            servers: &[],
            cores: Cores::All,
        };
        let report = load(
            &target,
            &["--once".to_owned(), "--connections=16".to_owned()],
        );
        // A large file is not needed twice; one that cannot be removed goes with the lab.
        let _ = std::fs::remove_file(&path);
        report
    }

    /// Drives a server for one turn.
    pub(crate) fn turn(&self, target: &Target<'_>, round: usize) -> Result<Report, Failure> {
        load(target, &self.turn_arguments(CONNECTIONS, round))
    }

    /// Drives two servers by turns, by so many connections.
    pub(crate) fn compare(
        &self,
        connections: usize,
        cores: Cores,
        one: Server<'_>,
        other: Server<'_>,
    ) -> Result<Pairs, Failure> {
        let turn = |(port, requests, servers): Server<'_>, round| {
            let target = Target {
                port,
                requests,
                servers,
                cores,
            };
            load(&target, &self.turn_arguments(connections, round))
        };
        Pairs::measure(
            self.plan.rounds,
            |round| turn(one, round),
            |round| turn(other, round),
        )
    }

    /// Drives a server for one turn by so many connections; what is refused is counted.
    pub(crate) fn closed_loop(
        &self,
        target: &Target<'_>,
        connections: usize,
        round: usize,
    ) -> Result<Report, Failure> {
        measure(target, &self.turn_arguments(connections, round))
    }

    fn turn_arguments(&self, connections: usize, round: usize) -> Vec<String> {
        vec![
            format!("--connections={connections}"),
            format!("--warm-up-ms={}", self.plan.warm_up_ms),
            format!("--measure-ms={}", self.plan.measure_ms),
            // Every round begins at other keys.
            format!("--first={}", round * 7_919),
        ]
    }
}

/// Runs the load client; everything must succeed.
fn load(target: &Target<'_>, arguments: &[String]) -> Result<Report, Failure> {
    let report = measure(target, arguments)?;
    if report.failed > 0 || report.requests == 0 {
        return Err(Failure::WrongAnswer(format!(
            "port {}: {} requests succeeded and {} did not",
            target.port, report.requests, report.failed
        )));
    }
    Ok(report)
}

/// Runs the load client.
fn measure(target: &Target<'_>, arguments: &[String]) -> Result<Report, Failure> {
    let servers = target.servers.iter().map(|id| format!("--server={id}"));
    let arguments: Vec<String> = servers.chain(arguments.iter().cloned()).collect();
    let to = (target.port, target.requests, target.cores);
    Client::start(Kind::Load, to, &arguments)?.report()
}

fn authorization(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn make_token(path: &Path, name: &str) -> Result<String, Failure> {
    let asked = umbo_api::admin::NewToken {
        name: name.to_owned(),
        grants: vec!["*:*".to_owned()],
        criticality_max: None,
        ttl: None,
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_micros() as u64);
    let created = append_token(path, &CheckedToken::check(&asked)?, Timestamp(now))?;
    Ok(created.token)
}
