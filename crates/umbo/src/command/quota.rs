//! `umbo quota …`: policies, their effect, and the cost of requests. Each command that changes something has
//! a module. Policies need the `admin` permission on every namespace; costs and usage need `read` on theirs.

mod amount;
mod change;
mod explain;
mod policy;
mod simulate;

use clap::{Args, Subcommand};
use umbo_api::quota::{PolicyInfo, PolicySource, QuotaUser, UsageAnswer, UsageRow};
use umbo_types::Namespace;

use self::amount::amount;
use super::kv::namespace;
use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Format};

/// Arguments of `umbo quota`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the policies in effect
    Ls,
    /// Describe a policy
    Get {
        /// Name
        name: String,
        /// As an entry of a policy file, which 'umbo quota set --file' takes
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
        /// Most callers to list
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        limit: u64,
    },
    /// Replay recorded requests against a policy and show what it would have rejected; changes nothing
    Simulate(simulate::Arguments),
    /// Show what a request would cost and which policies apply to it; does not run it
    Explain(explain::Arguments),
    /// Show what was used in a namespace, by caller and operation
    Usage {
        /// Namespace
        #[arg(value_parser = namespace)]
        ns: Namespace,
    },
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self.command {
            Command::Ls => block_on(list(connection)),
            Command::Get { name, toml } => block_on(get(connection, &name, toml)),
            Command::Set(set) => block_on(set.run(connection)),
            Command::Rm(remove) => block_on(remove.run(connection)),
            Command::Users { name, limit } => block_on(users(connection, &name, limit)),
            Command::Simulate(arguments) => block_on(arguments.run(connection)),
            Command::Explain(arguments) => block_on(arguments.run(connection)),
            Command::Usage { ns } => block_on(usage(connection, &ns)),
        }
    }
}

const POLICY_HEADER: &str = "NAME  SOURCE  VERSION  UNIT  RATE  BURST  PER  MATCH  SCOPE  MODE  STATUS  OVERRIDES  REJECTED  USED";

fn policy_cells(info: &PolicyInfo) -> Vec<String> {
    let source = match info.source {
        PolicySource::BuiltIn => "built-in",
        PolicySource::File => "file",
        PolicySource::Stored => "stored",
    };
    let version = info
        .version
        .map_or_else(String::new, |version| version.to_string());
    // A shadow policy counts requests without rejecting them; its mode shows that.
    let rejected = info.counters.rejected + info.counters.shadow_rejected;
    let mut cells = vec![info.policy.name.clone(), source.to_owned(), version];
    cells.extend(policy::cells(&info.policy));
    cells.push(rejected.to_string());
    cells.push(format!("{:.0}%", info.counters.utilisation * 100.0));
    cells
}

async fn list(connection: &ConnectionArgs) -> Result<(), CliError> {
    let list = connection.client()?.quotas().await?;
    let format = connection.listing_format();
    output::write_list(format, &list.policies, POLICY_HEADER, policy_cells)
}

async fn get(connection: &ConnectionArgs, name: &str, is_toml: bool) -> Result<(), CliError> {
    let info = connection.client()?.quota(name).await?;
    if is_toml {
        return output::write_bytes(policy::to_toml(&info.policy)?.as_bytes());
    }
    let format = connection.listing_format();
    output::write_one(format, &info, POLICY_HEADER, policy_cells)
}

async fn users(connection: &ConnectionArgs, name: &str, limit: u64) -> Result<(), CliError> {
    let users = connection.client()?.quota_users(name, Some(limit)).await?;
    let header = "USER  UNIT  RATE  BURST  BALANCE  OBSERVED  REJECTED";
    let cells = |user: &QuotaUser| {
        vec![
            user.label.clone(),
            user.limit.unit.clone(),
            user.limit.rate.to_string(),
            user.limit.burst.to_string(),
            amount(user.balance),
            amount(user.observed),
            user.rejected.to_string(),
        ]
    };
    let (shown, total) = (users.users.len() as u64, users.total);
    output::write_list(connection.listing_format(), &users.users, header, cells)?;
    if shown < total {
        output::note(&format!("{shown} of {total}; --limit shows more"));
    }
    Ok(())
}

async fn usage(connection: &ConnectionArgs, ns: &Namespace) -> Result<(), CliError> {
    let usage = connection.client()?.usage(ns.as_str()).await?;
    match connection.listing_format() {
        Format::Table => {}
        Format::Json | Format::Ndjson => return output::write_json(&usage),
    }
    output::write_list(Format::Table, &usage.rows, USAGE_HEADER, usage_cells)?;
    output::write_bytes(b"\n")?;
    let UsageAnswer { ru, shards, .. } = &usage;
    let cells = |shard: &umbo_api::quota::ShardUsage| {
        vec![
            shard.shard.to_string(),
            shard.requests.to_string(),
            amount(shard.ru),
        ]
    };
    output::write_list(Format::Table, shards, "SHARD  REQUESTS  RU", cells)?;
    output::note(&format!(
        "{} RU in all, through the server that answered",
        amount(*ru)
    ));
    Ok(())
}

const USAGE_HEADER: &str =
    "CALLER  OPERATION  REQUESTS  REJECTED  RU  PENALTY  ROWS  READ-BYTES  WRITE-BYTES";

fn usage_cells(row: &UsageRow) -> Vec<String> {
    vec![
        row.caller.clone(),
        row.operation.clone(),
        row.requests.to_string(),
        row.rejected.to_string(),
        amount(row.ru),
        amount(row.penalty),
        row.rows.to_string(),
        row.read_bytes.to_string(),
        row.write_bytes.to_string(),
    ]
}
