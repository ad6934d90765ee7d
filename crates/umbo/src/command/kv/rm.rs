//! `umbo kv rm`: one row, or a range of rows of a partition.

use clap::Args;
use serde_json::json;
use umbo_api::batch::DeleteRangeAnswer;
use umbo_api::key_text;
use umbo_client::{Condition, DeleteSelection};

use super::argument::{Key, RowKey, condition};
use crate::cli_error::{CliError, usage};
use crate::connection::ConnectionArgs;
use crate::output::{self, Listing};

/// Arguments of `umbo kv rm`.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Arguments {
    #[command(flatten)]
    key: RowKey,
    /// Remove a range of rows of the partition: name --start, --end, --prefix or --all
    #[arg(long, conflicts_with = "sk")]
    range: bool,
    /// First sort key to remove
    #[arg(long, value_name = "SK", conflicts_with = "sk")]
    start: Option<Key>,
    /// First sort key after the range
    #[arg(long, value_name = "SK", conflicts_with = "sk")]
    end: Option<Key>,
    /// Remove every sort key that begins with this
    #[arg(long, value_name = "SK", conflicts_with = "sk")]
    prefix: Option<Key>,
    /// Remove every row of the partition
    #[arg(long, conflicts_with_all = ["sk", "start", "end", "prefix"])]
    all: bool,
    /// Only show what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Remove only if the row has this version ('*': any)
    #[arg(
        long,
        value_name = "VERSION",
        value_parser = condition,
        conflicts_with_all = ["range", "start", "end", "prefix", "all"]
    )]
    if_match: Option<Condition>,
}

/// Prints how much was removed, or would be.
fn print(connection: &ConnectionArgs, answer: &DeleteRangeAnswer) -> Result<(), CliError> {
    Listing::new("DONE  ROWS  BYTES")
        .with("DONE", |answer: &DeleteRangeAnswer| {
            let is_dry = answer.dry_run;
            if is_dry { "would-remove" } else { "removed" }.to_owned()
        })
        .write_one(connection.listing_format(), answer)
}

impl Arguments {
    /// Removes.
    pub(super) async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let bounds = [&self.start, &self.end, &self.prefix];
        if bounds.iter().all(|bound| bound.is_none()) && !self.all {
            return self.remove_row(connection).await;
        }
        let is_empty = |bound: &&Option<Key>| bound.as_ref().is_some_and(|key| key.0.is_empty());
        if bounds.iter().any(is_empty) {
            let message = "an empty --start, --end or --prefix bounds nothing; leave it out, or say \
                           --all to remove every row of the partition";
            return Err(CliError::Usage(message.to_owned()));
        }
        let bytes = |key: &Option<Key>| key.as_ref().map(|key| key.0.clone());
        let selection = DeleteSelection {
            start: bytes(&self.start),
            end: bytes(&self.end),
            prefix: bytes(&self.prefix),
            is_all: self.all,
            dry_run: self.dry_run,
        };
        let answer = connection
            .client()?
            .delete_range(self.key.ns.as_str(), &self.key.pk.0, &selection)
            .await?;
        print(connection, &answer)
    }

    async fn remove_row(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        if self.range {
            return Err(usage!(
                "name what to remove with --start, --end, --prefix or --all"
            ));
        }
        let condition = self.if_match.unwrap_or_default();
        let (ns, pk, sk) = (self.key.ns.as_str(), &*self.key.pk.0, self.key.sort());
        let client = connection.client()?;
        if self.dry_run {
            let answer = client.delete_dry_run(ns, pk, sk, condition).await?;
            return print(connection, &answer);
        }
        let was_there = client.delete(ns, pk, sk, condition).await?;
        output::write_report(
            connection.listing_format(),
            &json!({"done": "removed"}),
            || {
                output::print_note(&self.removed(was_there));
                Ok(())
            },
        )
    }
    /// Describes the removal. `was_there` is `None` if it is not known whether there was a row.
    fn removed(&self, was_there: Option<bool>) -> String {
        let pk = key_text::format(&self.key.pk.0);
        let (row, others) = match &self.key.sk {
            Some(sk) => (format!("the row '{pk}' '{}'", key_text::format(&sk.0)), ""),
            None => (
                format!("the row '{pk}' with an empty sort key"),
                "; other rows of the partition stay, unless you say --all or --prefix",
            ),
        };
        match was_there {
            Some(true) => format!("removed {row}{others}"),
            Some(false) => format!("nothing removed: {row} is not there{others}"),
            None => format!("removed {row}, if it was there{others}"),
        }
    }
}
