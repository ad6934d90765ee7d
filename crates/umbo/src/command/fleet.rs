//! `umbo fleet`: the dispatchers of the server's cluster. Needs the `observe` permission on every namespace.

use umbo_api::fleet::{FleetProcess, ProcessState};

use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Listing, note};

/// Runs the command.
pub(crate) fn run(connection: &ConnectionArgs) -> Result<(), CliError> {
    block_on(async {
        let client = connection.client()?;
        let mut processes = client.fleet().await?.processes;
        // Any route shows which dispatchers answer.
        match client.ask_fleet("requests").await {
            Ok(answers) => {
                output::note_unreached(&answers.unreached());
                let answers = answers.processes.into_iter();
                processes = answers.map(|one| one.process).collect();
            }
            Err(error) => note!("which dispatchers answer is not known: {error}"),
        }
        Listing::new("NAME  STATE  VERSION  DATA  ADMIN  STARTED  SEEN")
            .with("STATE", state)
            .with("DATA", |process| process.about.url.clone())
            .with("ADMIN", |process| process.about.admin_url.clone())
            .with("STARTED", |process| {
                output::instant(Some(process.about.started_ms))
            })
            .with("SEEN", |process| output::instant(Some(process.seen_ms)))
            .write(connection.listing_format(), &processes)
    })
}

fn state(process: &FleetProcess) -> String {
    let state = match process.state {
        ProcessState::Live if process.is_self => "live, asked",
        ProcessState::Live => "live",
        ProcessState::Away => "away",
    };
    let owner = if process.owns_quotas {
        ", owns quotas"
    } else {
        ""
    };
    format!("{state}{owner}")
}
