//! The servers that loads are checked on: one process that is all, or a shard node behind two dispatchers.
//!
//! Each server can be killed and started again on its data. Without tokens: they listen on this machine alone.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use umbo_api::loads::{LoadInfo, LoadList};
use umbo_api::versions::{VersionInfo, VersionList, VersionState};
use umbo_routing::{ClusterMap, ClusterNode};

use crate::bench::lab::Lab;
use crate::check::connection::Connection;
use crate::failure::Failure;
use crate::load::requests::http;
use crate::load::scrape::scrape;
use crate::process::{Cores, Process, check_free, command};

/// Ports of the dispatchers: data plane and metrics.
const DISPATCHERS: [(u16, u16); 2] = [(18_100, 18_101), (18_102, 18_103)];
/// Ports of the shard node.
const NODE: (u16, u16) = (18_104, 18_105);
/// Shards, as in the figures that loads are held against.
pub(super) const SHARDS: u16 = 4;
/// Memory for pages, which is not counted as memory of the process.
pub(super) const CACHE_BYTES: u64 = 64 << 20;
/// Longest wait for what a server does by itself.
const PATIENCE: Duration = Duration::from_mins(10);
/// How often a wait looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A server that can be killed.
struct Server {
    arguments: Vec<String>,
    folder: PathBuf,
    cores: Cores,
    /// Port that answers once it has started.
    port: u16,
    process: Option<Process>,
}

impl Server {
    fn start(&mut self, program: &Path) -> Result<(), Failure> {
        check_free(&[self.port])?;
        let mut process = Process::start(program, &self.arguments, self.cores, &self.folder)?;
        process.wait_for(self.port)?;
        self.process = Some(process);
        Ok(())
    }
}

/// The servers, and where they are.
pub(super) struct Tier {
    pub(super) lab: Lab,
    servers: Vec<Server>,
    /// Data ports.
    pub(super) ports: Vec<u16>,
    /// Port of the metrics of the process that has the shards.
    store_admin: u16,
    /// Folder of the shards.
    pub(super) data: PathBuf,
}

/// The size of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Size {
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

impl Tier {
    /// Starts one process that is all.
    pub(super) fn embedded(cores: Cores) -> Result<Self, Failure> {
        let mut lab = Lab::open(None, true)?;
        let data = lab.path("data");
        let (port, admin) = DISPATCHERS[0];
        let settings = format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\nadmin_listen = \"127.0.0.1:{admin}\"\ndrain_delay = \"0s\"\n\
             [store]\nshards = {SHARDS}\ncache = \"{}MiB\"\nfolder = {:?}\n",
            CACHE_BYTES >> 20,
            data.display().to_string()
        );
        let server = server(&mut lab, "serve", &settings, port, cores)?;
        Self::start(lab, vec![server], vec![port], admin, data)
    }

    /// Starts a shard node with all shards, and two dispatchers in front of it.
    pub(super) fn cluster(cores: Cores) -> Result<Self, Failure> {
        let mut lab = Lab::open(None, true)?;
        let data = lab.path("data");
        let map = lab.path("cluster.toml");
        let (port, admin) = NODE;
        let node = ClusterNode::new("a", &format!("127.0.0.1:{port}"));
        let first = node.and_then(|node| ClusterMap::create("check", vec![node], SHARDS));
        let first = first.map_err(|error| Failure::Contradiction(error.to_string()))?;
        std::fs::write(&map, first.to_toml()).map_err(Failure::io(map.display().to_string()))?;
        let of_map = format!("[cluster]\nmap = {:?}\n", map.display().to_string());
        let settings = format!(
            "{of_map}node = \"a\"\n\
             [shard]\nlisten = \"127.0.0.1:{port}\"\nadmin_listen = \"127.0.0.1:{admin}\"\n\
             [store]\ncache = \"{}MiB\"\nfolder = {:?}\n",
            CACHE_BYTES >> 20,
            data.display().to_string()
        );
        let mut servers = vec![server(&mut lab, "shard", &settings, port, cores)?];
        for (port, admin) in DISPATCHERS {
            let settings = format!(
                "{of_map}[server]\nlisten = \"127.0.0.1:{port}\"\nadmin_listen = \"127.0.0.1:{admin}\"\n\
                 drain_delay = \"0s\"\n"
            );
            servers.push(server(&mut lab, "dispatcher", &settings, port, cores)?);
        }
        let ports = DISPATCHERS.map(|(port, _)| port).to_vec();
        Self::start(lab, servers, ports, admin, data)
    }

    fn start(
        lab: Lab,
        servers: Vec<Server>,
        ports: Vec<u16>,
        store_admin: u16,
        data: PathBuf,
    ) -> Result<Self, Failure> {
        let mut tier = Self {
            lab,
            servers,
            ports,
            store_admin,
            data,
        };
        for number in 0..tier.servers.len() {
            tier.start_again(number)?;
        }
        tier.wait_until_ready()?;
        Ok(tier)
    }

    /// Returns how many servers there are; the last ones are those with a data port.
    pub(super) const fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Returns the id of the process that has the shards.
    pub(super) fn store_id(&self) -> Result<u32, Failure> {
        let process = self.servers[0].process.as_ref().map(Process::id);
        process.ok_or_else(|| Failure::Contradiction("the server was killed".to_owned()))
    }

    /// Kills a server without a warning.
    pub(super) fn kill(&mut self, number: usize) -> Result<(), Failure> {
        let process = self.servers[number].process.take();
        process.map_or(Ok(()), Process::kill)
    }

    /// Starts a server that was killed.
    pub(super) fn start_again(&mut self, number: usize) -> Result<(), Failure> {
        let program = self.lab.umbo_program().to_owned();
        self.servers[number].start(&program)
    }

    /// Waits until every dispatcher has reached every shard.
    pub(super) fn wait_until_ready(&self) -> Result<(), Failure> {
        for &port in &self.ports {
            wait_for("a dispatcher has its shards", || {
                let shards = ask(port, "GET", "/admin/v1/shards", b"");
                Ok(shards
                    .is_ok_and(|_| ask(port, "GET", "/readyz", b"").is_ok())
                    .then_some(()))
            })?;
        }
        Ok(())
    }

    /// Creates a namespace, and waits until every dispatcher knows it.
    pub(super) fn create(&self, namespace: &str, settings: &str) -> Result<(), Failure> {
        let target = format!("/admin/v1/namespaces/{namespace}");
        ask(self.ports[0], "PUT", &target, settings.as_bytes())?;
        for &port in &self.ports[1..] {
            wait_for("a dispatcher knows a namespace", || {
                Ok(ask(port, "GET", &format!("/v1/ns/{namespace}/loads"), b"").ok())
            })?;
        }
        Ok(())
    }

    /// Removes a namespace with its rows.
    pub(super) fn remove(&self, namespace: &str) -> Result<(), Failure> {
        let target = format!("/admin/v1/namespaces/{namespace}");
        ask(self.ports[0], "DELETE", &target, b"").map(drop)
    }

    /// Returns the size of a namespace.
    pub(super) fn size(&self, namespace: &str) -> Result<Size, Failure> {
        #[derive(Deserialize)]
        struct Described {
            size: Size,
        }
        let target = format!("/admin/v1/namespaces/{namespace}");
        let described: Described = json(&ask(self.ports[0], "GET", &target, b"")?)?;
        Ok(described.size)
    }

    /// Returns the bytes of all rows in all shards, whosever they are.
    pub(super) fn stored_bytes(&self) -> Result<f64, Failure> {
        scrape(self.store_admin, "", "umbo_shard_live_bytes")
    }

    /// Returns the loads of a namespace, by a dispatcher that answers.
    pub(super) fn loads(&self, namespace: &str) -> Result<Vec<LoadInfo>, Failure> {
        let target = format!("/v1/ns/{namespace}/loads");
        let mut failure = None;
        for &port in &self.ports {
            match ask(port, "GET", &target, b"") {
                Ok(list) => return Ok(json::<LoadList>(&list)?.loads),
                Err(refused) => failure = Some(refused),
            }
        }
        Err(failure.unwrap_or_else(|| Failure::Contradiction("no dispatcher".to_owned())))
    }

    /// Activates the version of a namespace that is ready.
    pub(super) fn activate_ready(&self, namespace: &str) -> Result<(), Failure> {
        let versions = format!("/v1/ns/{namespace}/versions");
        let list: VersionList = json(&ask(self.ports[0], "GET", &versions, b"")?)?;
        let ready = |version: &&VersionInfo| version.state == VersionState::Ready;
        let ready = list.versions.iter().find(ready);
        let ready =
            ready.ok_or_else(|| Failure::WrongAnswer(format!("none is ready: {list:?}")))?;
        let target = format!("{versions}/{}/activate", ready.number);
        ask(self.ports[0], "POST", &target, b"").map(drop)
    }

    /// Returns a command of the program for a server.
    pub(super) fn umbo(&self, port: u16, arguments: &[&str], folder: &Path) -> Command {
        let mut command = command(self.lab.umbo_program(), Cores::All);
        command
            .args(arguments)
            .env("UMBO_SERVER", format!("http://127.0.0.1:{port}"))
            .env_remove("UMBO_TOKEN")
            .current_dir(folder)
            .stdin(Stdio::null());
        command
    }

    /// Runs a command of the program, which must succeed; returns what it printed.
    pub(super) fn run(&self, arguments: &[&str], folder: &Path) -> Result<Vec<u8>, Failure> {
        let output = self.umbo(self.ports[0], arguments, folder).output();
        let output = output.map_err(Failure::io("umbo"))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let text = text.trim_end();
            let command = arguments.join(" ");
            return Err(Failure::WrongAnswer(format!("umbo {command}: {text}")));
        }
        Ok(output.stdout)
    }

    /// Stops all servers, dispatchers first.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        for server in self.servers.iter_mut().rev() {
            if let Some(process) = server.process.take() {
                process.stop()?;
            }
        }
        Ok(())
    }
}

fn server(
    lab: &mut Lab,
    role: &str,
    settings: &str,
    port: u16,
    cores: Cores,
) -> Result<Server, Failure> {
    let folder = lab.new_folder(role)?;
    let file = folder.join("umbo.toml");
    std::fs::write(&file, settings).map_err(Failure::io(file.display().to_string()))?;
    let arguments = vec![role.to_owned(), format!("--config={}", file.display())];
    Ok(Server {
        arguments,
        folder,
        cores,
        port,
        process: None,
    })
}

/// Asks a server something that must succeed; returns the body.
pub(super) fn ask(port: u16, method: &str, target: &str, body: &[u8]) -> Result<Vec<u8>, Failure> {
    ask_with(port, (method, target), "", body)
}

/// The same, with fields of the head.
pub(super) fn ask_with(
    port: u16,
    (method, target): (&str, &str),
    fields: &str,
    body: &[u8],
) -> Result<Vec<u8>, Failure> {
    let answer = Connection::open(port)?.ask(&http(method, target, fields, body))?;
    if answer.is_success() {
        Ok(answer.body)
    } else {
        Err(answer.unexpected())
    }
}

pub(super) fn json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(text).map_err(|error| {
        let text = String::from_utf8_lossy(text);
        Failure::WrongAnswer(format!("{error}: {text}"))
    })
}

/// Waits until something is there.
pub(super) fn wait_for<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::WrongAnswer(format!("waited in vain: {what}")));
        }
        sleep(LOOK_INTERVAL);
    }
}
