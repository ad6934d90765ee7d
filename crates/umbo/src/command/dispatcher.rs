//! `umbo dispatcher`: serves HTTP from the shard nodes of a cluster. Keeps no state that matters.

use std::path::PathBuf;

use clap::Args;

use super::serve::{flags, serve};
use crate::cli_error::CliError;
use crate::server::Role;
use crate::settings::SettingsSources;

/// Arguments of `umbo dispatcher`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Settings file; else the file in `UMBO_CONFIG`, else `umbo.toml` if it exists
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Map of the cluster
    #[arg(long, value_name = "FILE")]
    map: Option<String>,
    /// Address of the data plane [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of metrics, health and the admin API [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// File of tokens
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// File of quota policies
    #[arg(long, value_name = "FILE")]
    quota_file: Option<String>,
    /// Serve a public address without requiring a token
    #[arg(long)]
    insecure: bool,
}

impl Arguments {
    /// Runs the dispatcher until a signal stops it.
    pub(crate) fn run(self) -> Result<(), CliError> {
        let insecure = self.insecure.then(|| "true".to_owned());
        let given = [
            ("--map", "cluster.map", self.map),
            ("--listen", "server.listen", self.listen),
            ("--admin-listen", "server.admin_listen", self.admin_listen),
            ("--token-file", "auth.token_file", self.token_file),
            ("--quota-file", "quota.policy_file", self.quota_file),
            ("--insecure", "server.insecure", insecure),
        ];
        let sources = SettingsSources {
            file: self.config,
            flags: flags(given),
        };
        serve(Role::Dispatcher, sources)
    }
}
