//! `umbo dispatcher`: serves HTTP from the shard nodes of a cluster. Keeps no state that matters.

use clap::Args;

use super::serve::ServerArguments;
use crate::cli_error::CliError;
use crate::server::Role;

/// Arguments of `umbo dispatcher`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Map of the cluster
    #[arg(long, value_name = "FILE")]
    map: Option<String>,
    #[command(flatten)]
    server: ServerArguments,
}

impl Arguments {
    /// Runs the dispatcher until a signal stops it.
    pub(crate) fn run(self) -> Result<(), CliError> {
        let own = ("--map", "cluster.map", self.map);
        self.server.serve(Role::Dispatcher, own)
    }
}
