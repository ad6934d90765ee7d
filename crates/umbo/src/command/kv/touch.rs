//! `umbo kv touch`: sets the expiry of a row, and keeps its value.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use umbo_client::Condition;

use super::argument::{RowKey, condition, ttl};
use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output::Listing;

/// Arguments of `umbo kv touch`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    key: RowKey,
    /// Time to live from now on (like 90s, 10m, 30d)
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    ttl: Duration,
    /// Touch only if the row has this version ('*': any)
    #[arg(long, value_name = "VERSION", value_parser = condition)]
    if_match: Option<Condition>,
}

impl Arguments {
    /// Touches the row and prints its new version.
    pub(super) async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let (ns, pk, sk) = (self.key.ns.as_str(), &*self.key.pk.0, self.key.sort());
        let condition = self.if_match.unwrap_or_default();
        let client = connection.client()?;
        let touched = client.touch(ns, pk, sk, self.ttl, condition).await?;
        let version = touched.ok_or(CliError::RowNotFound)?;
        Listing::new("DONE  VERSION")
            .with("DONE", |_| "touched".to_owned())
            .write_one(connection.listing_format(), &json!({"version": version}))
    }
}
