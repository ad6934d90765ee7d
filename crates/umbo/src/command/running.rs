//! `umbo ps` and `umbo kill`: the requests that run now, and the end of one. `ps` asks every dispatcher of the cluster and
//! needs the `observe` permission on every namespace; `kill` asks the server it is told, and needs `admin`.

use clap::Args;
use umbo_api::running::RunningRequest;

use crate::cli_error::CliError;
use crate::connection::{ChangeReason, ConnectionArgs, block_on};
use crate::output;

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

const HEADER: &str = "ID  CALLER  OPERATION  NAMESPACE  SHARD  TIER  AGE-MS  PHASE  RU  DISPATCHER";

/// Lists the requests that run.
pub(crate) fn ps(connection: &ConnectionArgs) -> Result<(), CliError> {
    block_on(async {
        let mut running = connection.client()?.running().await?;
        running.sort_by_key(|request| std::cmp::Reverse(request.age_ms));
        output::write_list(connection.listing_format(), &running, HEADER, cells)
    })
}

fn cells(request: &RunningRequest) -> Vec<String> {
    let shard = request.shard.map(|shard| shard.to_string());
    vec![
        request.id.clone(),
        request.caller.clone().unwrap_or_default(),
        request.operation.clone(),
        request.namespace.clone().unwrap_or_default(),
        shard.unwrap_or_default(),
        request.criticality.clone().unwrap_or_default(),
        request.age_ms.to_string(),
        request.phase.clone(),
        format!("{:.2}", request.ru),
        request.dispatcher.clone().unwrap_or_default(),
    ]
}
