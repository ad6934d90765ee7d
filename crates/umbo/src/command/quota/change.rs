//! `umbo quota set` and `umbo quota rm`. The version of the policy that the user has seen is a condition of
//! the change, so that a concurrent change is not overwritten.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use umbo_api::ErrorCode;
use umbo_api::quota::{PolicyChange, PolicyInfo, PolicySpec};
use umbo_client::{Client, Condition};

use super::policy::{PolicyArguments, read_policy_file};
use crate::cli_error::{CliError, usage};
use crate::connection::{ChangeReason, ConnectionArgs};
use crate::output::{self, Format, Listing};

/// Arguments of `umbo quota set`.
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// Name of the policy
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    name: Option<String>,
    /// TOML file with policies (tables named policy), which are all stored; - for stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    policy: PolicyArguments,
    #[command(flatten)]
    common: ChangeOptions,
}

/// Arguments of `umbo quota rm`.
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// Name of the policy
    name: String,
    #[command(flatten)]
    common: ChangeOptions,
}

#[derive(Debug, Clone, Args)]
struct ChangeOptions {
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    /// Change only if the stored policy has this version [default: the version in effect]
    #[arg(long, value_name = "VERSION")]
    if_match: Option<u64>,
    #[command(flatten)]
    reason: ChangeReason,
}

impl Set {
    pub(super) async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let client = connection.changing_client(&self.common.reason)?;
        let mut puts = Vec::new();
        match (&self.file, &self.name) {
            (Some(file), _) => {
                self.check_file_alone()?;
                for policy in read_policy_file(file)? {
                    let before = find(&client, &policy.name).await?;
                    puts.push((policy, self.common.condition(before.as_ref())));
                }
            }
            (None, Some(name)) => {
                let before = find(&client, name).await?;
                let condition = self.common.condition(before.as_ref());
                let before = before.map(|before| before.policy);
                puts.push((self.policy.policy(name, before)?, condition));
            }
            (None, None) => return Err(usage!("name a policy or a file")),
        }
        let mut changes = Vec::new();
        let done = put_all(&client, &puts, self.common.dry_run, &mut changes).await;
        if done.is_ok() || !changes.is_empty() {
            report(connection, &changes, self.file.is_some())?;
        }
        done
    }

    fn check_file_alone(&self) -> Result<(), CliError> {
        if self.policy.is_empty() && self.common.if_match.is_none() {
            return Ok(());
        }
        Err(usage!(
            "with --file the policies are those of the file; give no other flags for them"
        ))
    }
}

/// Checks all policies, then stores them. Adds the changes that were made, or would be made, also before a failure.
async fn put_all(
    client: &Client,
    puts: &[(PolicySpec, Condition)],
    dry_run: bool,
    changes: &mut Vec<PolicyChange>,
) -> Result<(), CliError> {
    let mut checked = Vec::new();
    if dry_run || puts.len() > 1 {
        for (policy, condition) in puts {
            checked.push(client.put_quota(policy, *condition, true).await?);
        }
    }
    if dry_run {
        *changes = checked;
        return Ok(());
    }
    for (policy, condition) in puts {
        changes.push(client.put_quota(policy, *condition, false).await?);
    }
    Ok(())
}

impl Remove {
    pub(super) async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let client = connection.changing_client(&self.common.reason)?;
        let version = self.common.if_match;
        let condition = version.map_or(Condition::None, Condition::Version);
        let change = client.delete_quota(&self.name, condition, self.common.dry_run);
        report(connection, &[change.await?], false)
    }
}

impl ChangeOptions {
    /// Returns the condition under which no concurrent change is overwritten.
    fn condition(&self, before: Option<&PolicyInfo>) -> Condition {
        let seen = before.and_then(|before| before.version);
        let version = self.if_match.or(seen);
        version.map_or(Condition::Absent, Condition::Version)
    }
}

/// Returns the policy in effect under a name.
pub(super) async fn find(client: &Client, name: &str) -> Result<Option<PolicyInfo>, CliError> {
    match client.quota(name).await {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.code() == Some(ErrorCode::QuotaNotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn report(
    connection: &ConnectionArgs,
    changes: &[PolicyChange],
    is_list: bool,
) -> Result<(), CliError> {
    let format = connection.listing_format();
    match changes {
        [change] if !is_list && format != Format::Table => return output::write_json(change),
        _ if format != Format::Table => return Listing::new("").write(format, changes),
        _ => {}
    }
    let states = changes.iter().flat_map(|change| {
        let after = if change.dry_run { "would-be" } else { "now" };
        [
            ("before", change.before.as_ref(), None),
            (after, change.after.as_ref(), change.version),
        ]
        .map(|(state, policy, version)| PolicyState {
            state,
            name: &change.name,
            policy,
            version,
        })
    });
    let states: Vec<_> = states.collect();
    Listing::new(
        "STATE  NAME  UNIT  RATE  BURST  PER  MATCH  SCOPE  MODE  STATUS  OVERRIDES  VERSION",
    )
    .with("RATE", |of: &PolicyState<'_>| {
        output::or_empty(of.policy.map(|policy| &policy.rate))
    })
    .with("BURST", |of| {
        output::or_empty(of.policy.and_then(|policy| policy.burst.as_ref()))
    })
    .with("OVERRIDES", |of| {
        output::or_empty(of.policy.map(|policy| policy.overrides.len()))
    })
    .write(format, &states)
}

/// A policy before or after its change.
#[derive(Serialize)]
struct PolicyState<'a> {
    state: &'static str,
    name: &'a str,
    policy: Option<&'a PolicySpec>,
    version: Option<u64>,
}
