//! `umbo cluster map`: fetches the newest map from the nodes of an older one.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use umbo_store_remote::{PeerMap, fetch_newest_map};

use super::plan::write_out;
use crate::cli_error::{CliError, Exit};
use crate::map_file;
use crate::output::{Format, Listing, note};
use crate::server::{SystemClock, remote_settings};
use crate::settings::LoadedSettings;

/// Arguments of `umbo cluster map`.
#[derive(Debug, Args)]
pub(crate) struct Newest {
    /// Any map of the cluster, old or new, whose nodes are asked [default: the map in the settings]
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Write the newest map to this file, or to standard output if it is '-'
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The map version of a node.
#[derive(Debug, Serialize)]
struct NodeMapVersion {
    node: String,
    address: String,
    /// Absent if the node did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    map_version: Option<u64>,
}

impl Newest {
    pub(super) async fn run(self, format: Format) -> Result<(), CliError> {
        let cluster = LoadedSettings::of_file(None)?.settings.cluster;
        let path = map_file::chosen(self.map, &cluster)?;
        let map = map_file::read(&path)?;
        let asked = fetch_newest_map(remote_settings(&cluster), &map, Arc::new(SystemClock));
        let (newest, said) = asked.await;
        let highest = said.iter().filter_map(|peer| peer.version).max();
        if !write_out(self.out.as_deref(), &newest)? {
            let of = |peer: PeerMap| NodeMapVersion {
                node: peer.node,
                address: peer.address,
                map_version: peer.version,
            };
            let said: Vec<NodeMapVersion> = said.into_iter().map(of).collect();
            Listing::new("NODE  ADDRESS  MAP-VERSION")
                .with("MAP-VERSION", |said: &NodeMapVersion| {
                    let version = said.map_version.map(|version| version.to_string());
                    version.unwrap_or_else(|| "no answer".to_owned())
                })
                .write(format, &said)?;
        }
        note!(
            "cluster '{}': the newest map that was found has version {}, {} has version {}",
            newest.cluster_id(),
            newest.version(),
            path.display(),
            map.version()
        );
        match highest {
            Some(version) if version > newest.version() => {
                let message = format!(
                    "a node uses version {version} of the map, and did not send it in time"
                );
                Err(CliError::told(Exit::Unreachable, message).advising("map-not-sent"))
            }
            Some(_) => Ok(()),
            None => {
                let message = "no node of the map answers";
                Err(CliError::told(Exit::Unreachable, message).advising("no-node"))
            }
        }
    }
}
