//! `umbo quota …`: policies, their effect, and the cost of requests. Each command that changes something has
//! a module. Policies need the `admin` permission on every namespace; costs and usage need `read` on theirs.

mod change;
mod explain;
mod policy;
mod simulate;
mod usage;

use clap::Subcommand;
use umbo_api::quota::{PolicyInfo, QuotaUser};

use super::hot::percent_of;
use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Listing, note};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the policies in effect
    Ls,
    /// Describe a policy
    Get {
        /// Name
        name: String,
        /// Print an entry of a policy file, for 'umbo quota set --file'
        #[arg(long, conflicts_with = "output")]
        toml: bool,
    },
    /// Store a policy, or change one
    Set(change::Set),
    /// Remove a stored policy
    Rm(change::Remove),
    /// List the callers that have a bucket of a policy on the server that answers, busiest first
    Users {
        /// Name of the policy
        name: String,
        /// Most callers to list, 1 to 10000
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        limit: u64,
    },
    /// Replay recorded requests against a policy and show the rejections; changes nothing
    Simulate(simulate::Arguments),
    /// Show what a request would cost and which policies apply to it; does not run it
    Explain(explain::Arguments),
    /// Show the usage of a namespace since the start of the server, or of the last days through all servers
    Usage(usage::Arguments),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self {
            Self::Ls => block_on(list(connection)),
            Self::Get { name, toml } => block_on(get(connection, &name, toml)),
            Self::Set(set) => block_on(set.run(connection)),
            Self::Rm(remove) => block_on(remove.run(connection)),
            Self::Users { name, limit } => block_on(users(connection, &name, limit)),
            Self::Simulate(arguments) => block_on(arguments.run(connection)),
            Self::Explain(arguments) => block_on(arguments.run(connection)),
            Self::Usage(arguments) => block_on(arguments.run(connection)),
        }
    }
}

fn listing() -> Listing<PolicyInfo> {
    Listing::new("NAME  SOURCE  VERSION  UNIT  RATE  BURST  PER  MATCH  SCOPE  MODE  STATUS  OVERRIDES  REJECTED  USED")
        .with("RATE", |info: &PolicyInfo| info.policy.rate.to_string())
        .with("BURST", |info| output::or_empty(info.policy.burst.as_ref()))
        .with("OVERRIDES", |info| info.policy.overrides.len().to_string())
        // A shadow policy counts requests without rejecting them; its mode shows that.
        .with("REJECTED", |info| {
            (info.counters.rejected + info.counters.shadow_rejected).to_string()
        })
        .with("USED", |info| percent_of(info.counters.utilisation))
}

async fn list(connection: &ConnectionArgs) -> Result<(), CliError> {
    let list = connection.client()?.quotas().await?;
    let format = connection.listing_format();
    listing().write(format, &list.policies)
}

async fn get(connection: &ConnectionArgs, name: &str, is_toml: bool) -> Result<(), CliError> {
    let info = connection.client()?.quota(name).await?;
    if is_toml {
        return output::write_bytes(policy::to_toml(&info.policy)?.as_bytes());
    }
    listing().write_one(connection.listing_format(), &info)
}

async fn users(connection: &ConnectionArgs, name: &str, limit: u64) -> Result<(), CliError> {
    let users = connection.client()?.quota_users(name, Some(limit)).await?;
    let (shown, total) = (users.users.len() as u64, users.total);
    Listing::new("USER  UNIT  RATE  BURST  BALANCE  OBSERVED  REJECTED")
        .with("USER", |user: &QuotaUser| user.label.clone())
        .with("RATE", |user| user.limit.rate.to_string())
        .with("BURST", |user| user.limit.burst.to_string())
        .write(connection.listing_format(), &users.users)?;
    if shown < total {
        note!("{shown} of {total}; --limit shows more");
    }
    Ok(())
}
