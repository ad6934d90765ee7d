//! Checks that need no server: limits of files, the disk, certificates, files that settings name;
//! and the nodes of the cluster map, asked as a dispatcher would.

use std::path::Path;
use std::sync::Arc;

use umbo_admin::{CERTIFICATE_DAYS, DISPATCHER_ROLE};
use umbo_control::policies::FilePolicies;
use umbo_routing::{ClusterMap, ClusterNode};
use umbo_store_remote::ask_map_versions;
use umbo_tls::{ListenerTlsFiles, TlsSource};
use umbo_types::Clock as _;

use super::disk;
use super::finding::Finding;
use crate::cli_error::CliError;
use crate::map_file;
use crate::output::bytes;
use crate::parts;
use crate::server::{SystemClock, cassandra_settings, remote_settings};
use crate::settings::{Settings, StoreEngine};

/// Descriptors that a process needs in addition to its connections: files of shards, logs, listeners, nodes.
const OTHER_FILES: u64 = 1_100;
/// Free space below which a disk is nearly full: this part of it, and this many bytes.
const FREE_SHARE_MIN: u64 = 10;
const FREE_BYTES_MIN: u64 = 1 << 30;
/// Time of a sync of 4 KiB above which each commit is slow, in milliseconds.
const SYNC_SLOW_MS: f64 = 50.0;

/// Checks this machine.
pub(super) fn check(settings: &Settings) -> Vec<Finding> {
    let mut findings = vec![open_files(settings)];
    findings.extend(check_disk(settings));
    findings.extend(policies(settings));
    findings.extend(certificates(settings));
    findings
}

fn open_files(settings: &Settings) -> Finding {
    const CHECK: &str = "open files";
    const ADVICE: &str =
        "raise the limit (ulimit -n, LimitNOFILE of the service), or lower server.connections_max";
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let connections = u64::from(settings.server.connections_max);
    let Some(limit) = limit.current else {
        return Finding::ok(CHECK, "no limit");
    };
    let found = format!(
        "{limit} may be open here, for {connections} connections and {OTHER_FILES} other files"
    );
    let is_low = limit < connections + OTHER_FILES;
    Finding::judged(CHECK, found, [is_low, false], ADVICE)
}

fn check_disk(settings: &Settings) -> Vec<Finding> {
    if settings.store.engine == StoreEngine::Cassandra {
        return Vec::new();
    }
    let folder = Path::new(&settings.store.folder);
    if !folder.is_dir() {
        let found = format!("{} does not exist; a server makes it", folder.display());
        return vec![Finding::skipped("disk", found)];
    }
    vec![space(folder), sync(folder)]
}

fn space(folder: &Path) -> Finding {
    const ADVICE: &str =
        "make room, or move the data folder to a larger disk: a full one refuses writes with 507";
    let disk = match rustix::fs::statvfs(folder) {
        Ok(disk) => disk,
        Err(error) => {
            let found = format!("{}: {error}", folder.display());
            return Finding::problem("disk", found, "look whether the disk is mounted");
        }
    };
    let (free, size) = (
        disk.f_bavail.saturating_mul(disk.f_frsize),
        disk.f_blocks.saturating_mul(disk.f_frsize),
    );
    let found = format!(
        "{} free of {} at {}",
        bytes(free),
        bytes(size),
        folder.display()
    );
    let is_low = [free < FREE_BYTES_MIN, free < size / FREE_SHARE_MIN];
    Finding::judged("disk", found, is_low, ADVICE)
}

fn sync(folder: &Path) -> Finding {
    const CHECK: &str = "disk sync";
    const ADVICE: &str =
        "use a faster disk, or asynchronous durability where losing the last writes is no harm";
    let probe = folder.join("sync-probe");
    match disk::sync_ms(&probe).map_err(CliError::file("write", &probe)) {
        Err(error) => Finding::problem(
            CHECK,
            error.to_string(),
            "run this as the user of the server, and look whether the folder may be written",
        ),
        Ok([p50, p99]) => {
            let found = format!(
                "{p50:.2} ms, p99 {p99:.2} ms for 4 KiB: the least that a durable write takes"
            );
            Finding::judged(CHECK, found, [false, p50 > SYNC_SLOW_MS], ADVICE)
        }
    }
}

fn policies(settings: &Settings) -> Option<Finding> {
    let path = settings.quota.policy_file.as_deref()?;
    Some(match FilePolicies::read(Path::new(path)) {
        Ok(found) => Finding::ok("policy file", format!("{path}: {} policies", found.len())),
        Err(error) => Finding::problem(
            "policy file",
            error.to_string(),
            "mend the policy; config/quotas.toml explains how one is written",
        ),
    })
}

fn certificates(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let cluster = &settings.cluster;
    for (check, files) in [
        ("certificate", parts::client_tls(&settings.tls)),
        ("cluster certificate", parts::cluster_tls(cluster)),
        ("cassandra certificate", parts::cassandra_tls(settings)),
    ] {
        findings.extend(files.map(|files| certificate_of(check, files)));
    }
    if let (Some(certificate), Some(ca), Some(map)) =
        (&cluster.certificate, &cluster.ca, &cluster.map)
        && let Ok(map) = map_file::read(Path::new(map))
        && let Some(host) = match &cluster.node {
            Some(node) => map.node(node).map(ClusterNode::host),
            None => Some(DISPATCHER_ROLE),
        }
    {
        let (chain, ca) = (Path::new(certificate), Path::new(ca));
        findings.push(match umbo_tls::verify(chain, ca, host) {
            Ok(()) => Finding::ok("cluster names", format!("peers take it for '{host}'")),
            Err(error) => Finding::problem(
                "cluster names",
                error.to_string(),
                "make a certificate with that name among its names, signed by cluster.ca: a node has the host of its \
                 address in the map, a dispatcher umbo-dispatcher",
            ),
        });
    }
    findings
}

/// Checks that certificate files can be used together, and when they expire.
fn certificate_of(check: &'static str, files: ListenerTlsFiles) -> Finding {
    let path = files.certificate.clone();
    if let Err(error) = TlsSource::load(files) {
        return Finding::problem(
            check,
            error.to_string(),
            "put a certificate chain, its own first, and its key there, in PEM form",
        );
    }
    let facts = umbo_tls::describe(&path).unwrap_or_default();
    let now = SystemClock.wall().as_millis() / 1_000;
    let Some(first_to_end) = facts.iter().min_by_key(|facts| facts.not_after) else {
        return Finding::warning(
            check,
            format!("{}: cannot be parsed", path.display()),
            "look at it with openssl x509",
        );
    };
    let days = |until: u64| until.saturating_sub(now) / 86_400;
    let found = format!(
        "{} ({}), {} more days",
        path.display(),
        first_to_end.subject,
        days(first_to_end.not_after)
    );
    let begins = facts.iter().map(|facts| facts.not_before).max();
    if first_to_end.not_after < now {
        let found = format!("{} ({}) has expired", path.display(), first_to_end.subject);
        let advice =
            "put a new one in its place; the server reads it again by itself, or on SIGHUP";
        return Finding::problem(check, found, advice);
    }
    if begins.is_some_and(|begins| begins > now) {
        let found = format!("{} is not valid yet", path.display());
        return Finding::problem(check, found, "compare this machine's clock, or wait");
    }
    let is_soon = days(first_to_end.not_after) < CERTIFICATE_DAYS;
    let advice = "put a new one in its place before that";
    Finding::judged(check, found, [false, is_soon], advice)
}

/// Asks the contact points of a Cassandra cluster as a start does.
async fn cassandra(settings: &Settings) -> Finding {
    const ADVICE: &str = "mend the settings of [cassandra] in umbo.toml, or start the node";
    let answer = match cassandra_settings(settings) {
        Ok((cassandra, _)) => cassandra.ask().await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match answer {
        Ok(()) => Finding::ok("cassandra", "a contact point answers"),
        Err(error) => Finding::problem("cassandra", error, ADVICE),
    }
}

/// Asks the nodes behind the server: a Cassandra cluster, or the nodes of the cluster map for their maps.
pub(super) async fn check_nodes(settings: &Settings) -> Vec<Finding> {
    if settings.store.engine == StoreEngine::Cassandra {
        return vec![cassandra(settings).await];
    }
    let Some(path) = &settings.cluster.map else {
        return Vec::new();
    };
    let map = match map_file::read(Path::new(path)) {
        Ok(map) => Arc::new(map),
        Err(error) => {
            let advice = "mend the map; 'umbo cluster plan' writes one";
            return vec![Finding::problem("cluster map", error.to_string(), advice)];
        }
    };
    let asked = remote_settings(&settings.cluster);
    let answers = ask_map_versions(asked, &map, None, Arc::new(SystemClock)).await;
    let mut findings = vec![Finding::ok("cluster map", describe_map(path, &map))];
    findings.extend(answers.iter().map(|peer| {
        let found = format!("node '{}' at {}", peer.node, peer.address);
        match peer.version {
            None => Finding::problem(
                "node",
                format!("{found} does not answer within two seconds"),
                "look whether it runs, whether this machine reaches its port, and whether both trust one authority",
            ),
            Some(version) if version == map.version() => Finding::ok("node", found),
            Some(version) => Finding::warning(
                "node",
                format!("{found} uses map {version}, the file here is {}", map.version()),
                "give all machines the newest map: 'umbo cluster status' shows which map each uses",
            ),
        }
    }));
    findings
}

fn describe_map(path: &str, map: &ClusterMap) -> String {
    let (version, nodes, shards) = (map.version(), map.nodes().len(), map.shards());
    format!("{path}: version {version}, {nodes} nodes, {shards} shards")
}
