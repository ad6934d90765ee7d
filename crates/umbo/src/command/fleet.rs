//! `umbo fleet`: the dispatchers of the server's cluster. Needs the `observe` permission on every namespace.

use umbo_api::fleet::{FleetProcess, ProcessState};

use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::output;

const HEADER: &str = "NAME  STATE  VERSION  DATA  ADMIN  STARTED  SEEN";

/// Runs the command.
pub(crate) fn run(connection: &ConnectionArgs) -> Result<(), CliError> {
    block_on(async {
        let fleet = connection.client()?.fleet().await?;
        output::write_list(connection.listing_format(), &fleet.processes, HEADER, cells)
    })
}

fn cells(process: &FleetProcess) -> Vec<String> {
    let state = match process.state {
        ProcessState::Live if process.is_self => "live, asked",
        ProcessState::Live => "live",
        ProcessState::Away => "away",
    };
    vec![
        process.about.name.clone(),
        state.to_owned(),
        process.about.version.clone(),
        process.about.url.clone(),
        process.about.admin_url.clone(),
        output::instant(Some(process.about.started_ms)),
        output::instant(Some(process.seen_ms)),
    ]
}
