//! `umbo quota simulate`: replays recorded requests against a policy.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use umbo_api::quota::{PolicySpec, SimulateBody, SimulateRow};
use umbo_api::time_to_live;
use umbo_client::Client;

use super::change;
use super::policy::{PolicyArguments, read_one_policy};
use crate::cli_error::{CliError, usage};
use crate::connection::ConnectionArgs;
use crate::output::{self, Format, Listing, note};

/// Arguments of `umbo quota simulate`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Name of a policy, as stored or as the flags change it, or of a new policy
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    name: Option<String>,
    /// Policy file with the one policy to simulate; - for stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How far to go back, 1s to 35d; beyond 1h through all servers, by the kept usage [default: the last hour]
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    last: Option<Duration>,
    #[command(flatten)]
    policy: PolicyArguments,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let last = time_to_live::span(text)?;
    if last < Duration::from_secs(1) {
        return Err("the record is divided into whole seconds".to_owned());
    }
    Ok(last)
}

impl Arguments {
    pub(super) async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let client = connection.client()?;
        let body = SimulateBody {
            policy: self.policy(&client).await?,
            last_seconds: self.last.map(|last| last.as_secs()),
        };
        let answer = client.simulate_quota(&body).await?;
        output::write_report(connection.listing_format(), &answer, || {
            Listing::new("USER  REQUESTS  REJECTED  RU  REJECTED-AMOUNT")
                .with("USER", |row: &SimulateRow| row.label.clone())
                .write(Format::Table, &answer.rows)?;
            let (rejected, requests) = (answer.rejected, answer.requests);
            note!(
                "{rejected} of {requests} requests of the last {} s would have been rejected (amounts in {})",
                output::amount(answer.seconds),
                answer.policy.unit
            );
            if let Some(range) = &answer.range {
                let [lowest, highest, least, most] = [
                    range.lowest,
                    range.highest,
                    range.worst_lowest,
                    range.worst_highest,
                ]
                .map(output::amount);
                note!("rejected amount: {lowest} to {highest}");
                let worst_at = range.worst_at_ms;
                if worst_at.is_some() {
                    let at = output::instant(worst_at);
                    note!("most in the ten minutes from {at}: {least} to {most} of one user");
                }
            }
            for gap in &answer.notes {
                note!("{gap}");
            }
            Ok(())
        })
    }

    async fn policy(&self, client: &Client) -> Result<PolicySpec, CliError> {
        let (name, before) = match (&self.file, &self.name) {
            (Some(file), _) => {
                let policy = read_one_policy(file)?;
                (policy.name.clone(), Some(policy))
            }
            (None, Some(name)) => {
                let before = change::find(client, name).await?;
                (name.clone(), before.map(|info| info.policy))
            }
            (None, None) => return Err(usage!("name a policy or a file")),
        };
        self.policy.policy(&name, before)
    }
}
