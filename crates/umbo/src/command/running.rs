//! `umbo ps` and `umbo kill`. `ps` lists the requests in flight on every dispatcher of the cluster, and needs the
//! `observe` permission on every namespace. `kill` ends one request of the server that it calls, and needs `admin`.

use clap::Args;
use umbo_api::running::RunningRequest;

use crate::cli_error::CliError;
use crate::connection::{ChangeReason, ConnectionArgs, block_on};
use crate::output::{self, Listing};

/// Arguments of `umbo kill`.
#[derive(Debug, Args)]
pub(crate) struct KillArguments {
    /// Id of the request, as 'umbo ps' lists it
    #[arg(value_name = "REQUEST-ID", allow_hyphen_values = true)]
    request_id: String,
    #[command(flatten)]
    reason: ChangeReason,
}

impl KillArguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let client = connection.changing_client(&self.reason)?;
        block_on(async { Ok(client.kill(&self.request_id).await?) })
    }
}

/// Lists the requests that run.
pub(crate) fn ps(connection: &ConnectionArgs) -> Result<(), CliError> {
    block_on(async {
        let (mut running, unreached) = connection.client()?.running().await?;
        output::note_unreached(&unreached);
        running.sort_by_key(|request| std::cmp::Reverse(request.age_ms));
        Listing::new("ID  CALLER  OPERATION  NAMESPACE  SHARD  TIER  AGE-MS  PHASE  RU  DISPATCHER")
            .with("TIER", |request: &RunningRequest| {
                request.criticality.clone().unwrap_or_default()
            })
            .write(connection.listing_format(), &running)
    })
}
