//! The servers that decide for the dispatchers: Redis, and three of gubernator, which is built once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::admit::Kind;
use crate::bench::lab::Lab;
use crate::check::connection::Connection;
use crate::failure::Failure;
use crate::load::requests::http;
use crate::process::{self, Cores, Process};

const REDIS: u16 = 18_120;
/// Ports of each gubernator: gRPC and HTTP.
const GUBERNATORS: [[u16; 2]; 3] = [[18_121, 18_122], [18_123, 18_124], [18_125, 18_126]];
/// Port of their gossip. Each has another loopback address for it, by which they tell each other apart.
const GOSSIP: u16 = 18_127;
const SOURCE: &str = include_str!("gubernator.go");
const MODULE: &str =
    "module peer\ngo 1.22\nrequire github.com/gubernator-io/gubernator/v2 v2.13.0\n";
/// Longest wait until the servers have found each other.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The servers; they end with this.
pub(super) struct Servers {
    processes: Vec<(u16, Process)>,
    /// Ports on which dispatchers ask.
    pub(super) ports: Vec<u16>,
    /// Ports that tell how many servers there are.
    health: Vec<u16>,
}

impl Servers {
    /// Starts what dispatchers of this kind ask.
    pub(super) fn start(lab: &mut Lab, kind: Kind) -> Result<Self, Failure> {
        match kind {
            Kind::Fleet | Kind::Pod => Ok(Self {
                processes: Vec::new(),
                ports: Vec::new(),
                health: Vec::new(),
            }),
            Kind::Redis | Kind::RedisBatched => Self::redis(lab),
            Kind::Gubernator | Kind::GubernatorGlobal => Self::gubernators(lab),
        }
    }

    fn redis(lab: &mut Lab) -> Result<Self, Failure> {
        let program = process::find("redis-server", "apt-get install redis-server")?;
        process::check_free(&[REDIS])?;
        let folder = lab.new_folder("redis")?;
        let arguments = ["--port", "18120", "--bind", "127.0.0.1", "--save", ""];
        let arguments = arguments.map(str::to_owned);
        let mut process = Process::start(&program, &arguments, Cores::All, &folder)?;
        process.wait_for(REDIS)?;
        Ok(Self {
            processes: vec![(REDIS, process)],
            ports: vec![REDIS],
            health: Vec::new(),
        })
    }

    /// Starts three servers that find each other by gossip, as the program does without other settings.
    fn gubernators(lab: &mut Lab) -> Result<Self, Failure> {
        let program = built()?;
        process::check_free(&GUBERNATORS.concat())?;
        let mut processes = Vec::new();
        for (at, [grpc, http]) in (1..).zip(GUBERNATORS) {
            let folder = lab.new_folder("gubernator")?;
            let settings = folder.join("gubernator.conf");
            let text = format!(
                "GUBER_GRPC_ADDRESS=127.0.0.1:{grpc}\n\
                 GUBER_HTTP_ADDRESS=127.0.0.1:{http}\n\
                 GUBER_ADVERTISE_ADDRESS=127.0.0.1:{grpc}\n\
                 GUBER_PEER_DISCOVERY_TYPE=member-list\n\
                 GUBER_MEMBERLIST_ADDRESS=127.0.0.{at}:{GOSSIP}\n\
                 GUBER_MEMBERLIST_BIND_ADDRESS=127.0.0.{at}:{GOSSIP}\n\
                 GUBER_MEMBERLIST_KNOWN_NODES=127.0.0.1:{GOSSIP}\n",
            );
            fs::write(&settings, text).map_err(Failure::io(settings.display().to_string()))?;
            let arguments = [settings.display().to_string()];
            let mut process = Process::start(&program, &arguments, Cores::All, &folder)?;
            process.wait_for(grpc)?;
            processes.push((grpc, process));
        }
        Ok(Self {
            processes,
            ports: GUBERNATORS.map(|[grpc, ..]| grpc).to_vec(),
            health: GUBERNATORS.map(|[_, http]| http).to_vec(),
        })
    }

    /// Waits until each server knows all.
    pub(super) fn wait(&self) -> Result<(), Failure> {
        let begun = Instant::now();
        for port in &self.health {
            let asked = http("GET", "/v1/HealthCheck", "", b"");
            loop {
                let answer = Connection::open(*port)?.ask(&asked)?;
                let body = String::from_utf8_lossy(&answer.body).replace(' ', "");
                if body.contains(&format!("\"peer_count\":{}", self.health.len())) {
                    break;
                }
                if begun.elapsed() > TIMEOUT {
                    return Err(answer.unexpected());
                }
                sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// Returns the processor time of all.
    pub(super) fn cpu_seconds(&self) -> Result<f64, Failure> {
        let times = self.processes.iter();
        times
            .map(|(_, process)| process::cpu_seconds(process.id()))
            .sum()
    }

    /// Kills the server that owns the limit. Returns the port of the owner if it is none of the servers.
    pub(super) fn kill(&mut self, owner: Option<u16>) -> Result<Option<u16>, Failure> {
        let owner = owner.or_else(|| self.ports.first().copied().filter(|port| *port == REDIS));
        let owner = owner.ok_or_else(|| Failure::Peer("the limit has no owner".to_owned()))?;
        let found = self.processes.iter().position(|(port, _)| *port == owner);
        let Some(at) = found else {
            return Ok(Some(owner));
        };
        self.processes.remove(at).1.kill()?;
        Ok(None)
    }
}

/// Builds gubernator in the folder of builds, if it is not there.
fn built() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(Failure::io("own program"))?;
    let builds = own.parent().and_then(Path::parent).unwrap_or(&own);
    let folder = builds.join("peers/gubernator");
    let program = folder.join("gubernator");
    if program.is_file() {
        return Ok(program);
    }
    let go = process::find("go", "install Go, which builds it from its module")?;
    fs::create_dir_all(&folder).map_err(Failure::io(folder.display().to_string()))?;
    for (name, text) in [("main.go", SOURCE), ("go.mod", MODULE)] {
        fs::write(folder.join(name), text).map_err(Failure::io(name))?;
    }
    let status = Command::new(go)
        .args(["build", "-mod=mod", "-o", "gubernator", "."])
        .current_dir(&folder)
        .status()
        .map_err(Failure::io("go build"))?;
    let missing = || Failure::Missing {
        program: "gubernator".to_owned(),
        remedy: format!("`go build` in {} ended with {status}", folder.display()),
    };
    program.is_file().then_some(program).ok_or_else(missing)
}
