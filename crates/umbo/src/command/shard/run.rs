//! `umbo shard` without a subcommand: a node of the storage tier.

use std::path::PathBuf;

use clap::Args;
use umbo_types::ShardId;

use crate::cli_error::CliError;
use crate::command::serve::{begin, block_on, flags};
use crate::node::{self, ShardExceptions};
use crate::settings::{LoadedSettings, SettingsSources};

/// Arguments of a shard node.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Settings file; else the file in `UMBO_CONFIG`, else `umbo.toml` if it exists
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Map of the cluster
    #[arg(long, value_name = "FILE")]
    map: Option<String>,
    /// Name of this node in the map
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Data folder [default: data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Address for dispatchers [default: 127.0.0.1:7411]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of metrics and health [default: 127.0.0.1:7412]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// File of quota policies
    #[arg(long, value_name = "FILE")]
    quota_file: Option<String>,
    /// Serve a public address without requiring a certificate of dispatchers
    #[arg(long)]
    insecure: bool,
    /// Create these shards empty if their files are missing, even if they may have had rows
    #[arg(long, value_name = "SHARDS", value_delimiter = ',')]
    create_shards: Vec<u16>,
    /// Open the files of these shards, even if another node had them last
    #[arg(long, value_name = "SHARDS", value_delimiter = ',')]
    accept_shards: Vec<u16>,
}

impl Run {
    /// Runs the node until a signal stops it.
    pub(crate) fn run(self) -> Result<(), CliError> {
        let insecure = self.insecure.then(|| "true".to_owned());
        let given = [
            ("--map", "cluster.map", self.map),
            ("--node", "cluster.node", self.node),
            ("--data", "store.folder", self.data),
            ("--listen", "shard.listen", self.listen),
            ("--admin-listen", "shard.admin_listen", self.admin_listen),
            ("--quota-file", "quota.policy_file", self.quota_file),
            ("--insecure", "server.insecure", insecure),
        ];
        let sources = SettingsSources {
            file: self.config,
            flags: flags(given),
        };
        let shards = |numbers: Vec<u16>| numbers.into_iter().map(ShardId).collect();
        let exceptions = ShardExceptions {
            create: shards(self.create_shards),
            accept: shards(self.accept_shards),
        };
        let loaded = LoadedSettings::read(&sources)?;
        let log = begin(&loaded)?;
        block_on(node::run(sources, loaded, log, exceptions))
    }
}
