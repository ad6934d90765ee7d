//! The peers of Debian's packages: redis with webdis before it, etcd, nginx.

use std::fs;
use std::path::{Path, PathBuf};

use super::lab::Lab;
use crate::failure::Failure;
use crate::process::{self, Cores, Process};

/// Ports of the peers.
const REDIS: u16 = 18_082;
pub(super) const WEBDIS: u16 = 18_083;
pub(super) const ETCD: u16 = 18_084;
const ETCD_PEER: u16 = 18_085;
pub(super) const NGINX: u16 = 18_086;

/// redis, and webdis as its HTTP front.
#[derive(Debug)]
pub(super) struct Webdis {
    processes: [Process; 2],
}

impl Webdis {
    /// Starts both. A durable one writes every change to the disk before it answers.
    pub(super) fn start(lab: &mut Lab, cores: Cores, is_durable: bool) -> Result<Self, Failure> {
        let redis = program("redis-server", "redis-server")?;
        let webdis = program("webdis", "webdis")?;
        process::check_free(&[REDIS, WEBDIS])?;
        let folder = lab.new_folder("redis")?;
        let appendonly = if is_durable { "yes" } else { "no" };
        let arguments = [
            ("port", REDIS.to_string()),
            ("bind", "127.0.0.1".to_owned()),
            ("save", String::new()),
            ("appendonly", appendonly.to_owned()),
            ("appendfsync", "always".to_owned()),
            ("dir", folder.display().to_string()),
        ];
        let arguments: Vec<String> = arguments
            .into_iter()
            .flat_map(|(name, value)| [format!("--{name}"), value])
            .collect();
        let mut redis = Process::start(&redis, &arguments, cores, &folder)?;
        redis.wait_for(REDIS)?;
        let settings = format!(
            r#"{{"redis_host":"127.0.0.1","redis_port":{REDIS},"redis_auth":null,
            "http_host":"127.0.0.1","http_port":{WEBDIS},"threads":2,"pool_size":20,
            "daemonize":false,"websockets":false,"database":0,"verbosity":0,
            "http_max_request_size":134217728,"logfile":"{}"}}"#,
            folder.join("webdis.txt").display()
        );
        let file = write(&folder, "webdis.json", &settings)?;
        let mut webdis = Process::start(&webdis, &[file], cores, &folder)?;
        webdis.wait_for(WEBDIS)?;
        Ok(Self {
            processes: [redis, webdis],
        })
    }

    /// Returns the ids of both.
    pub(super) fn ids(&self) -> [u32; 2] {
        self.processes.each_ref().map(Process::id)
    }
}

/// Starts etcd, one node, with its JSON gateway.
pub(super) fn etcd(lab: &mut Lab, cores: Cores) -> Result<Process, Failure> {
    let etcd = program("etcd", "etcd-server")?;
    process::check_free(&[ETCD, ETCD_PEER])?;
    let folder = lab.new_folder("etcd")?;
    let client = format!("http://127.0.0.1:{ETCD}");
    let peer = format!("http://127.0.0.1:{ETCD_PEER}");
    let arguments = [
        "--name=bench".to_owned(),
        format!("--data-dir={}", folder.join("data").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=bench={peer}"),
        "--log-level=error".to_owned(),
        "--quota-backend-bytes=8589934592".to_owned(),
    ];
    let mut process = Process::start(&etcd, &arguments, cores, &folder)?;
    process.wait_for(ETCD)?;
    Ok(process)
}

/// Starts nginx with one worker that returns a constant.
pub(super) fn nginx(lab: &mut Lab) -> Result<Process, Failure> {
    let nginx = program("nginx", "nginx-light")?;
    process::check_free(&[NGINX])?;
    let folder = lab.new_folder("nginx")?;
    let body = "v".repeat(crate::dataset::VALUE_LEN);
    let at = folder.display();
    let settings = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error.txt;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; keepalive_requests 1000000000;\n\
         client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;\n\
         uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         server {{ listen 127.0.0.1:{NGINX}; location / {{ return 200 '{body}'; }} }} }}\n"
    );
    let file = write(&folder, "nginx.conf", &settings)?;
    let arguments = ["-c".to_owned(), file];
    let mut process = Process::start(&nginx, &arguments, Cores::Server, &folder)?;
    process.wait_for(NGINX)?;
    Ok(process)
}

fn program(name: &str, package: &str) -> Result<PathBuf, Failure> {
    process::find(name, &format!("apt-get install {package}"))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<String, Failure> {
    let path = folder.join(name);
    let shown = path.display().to_string();
    fs::write(path, text).map_err(Failure::io(shown.clone()))?;
    Ok(shown)
}
