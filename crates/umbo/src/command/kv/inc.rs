//! `umbo kv inc`: adds to the number that a row holds.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use umbo_client::{Condition, IncrementOptions};

use super::argument::{RowKey, condition, ttl};
use super::put::DurabilityOption;
use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output::{Listing, note};

/// Arguments of `umbo kv inc`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    key: RowKey,
    /// Number to add, negative to subtract [default: 1]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    by: Option<i64>,
    /// Time to live from now on (like 90s, 10m, 30d) [default: keep the expiry of the row]
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    ttl: Option<Duration>,
    /// Increment only if the row has this version ('*': any)
    #[arg(long, value_name = "VERSION", value_parser = condition)]
    if_match: Option<Condition>,
    /// When the write is acknowledged
    #[arg(long, value_enum)]
    durability: Option<DurabilityOption>,
}

impl Arguments {
    /// Increments the number and prints the new one. The increment is applied only once, even if the connection breaks.
    pub(super) async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let (ns, pk, sk) = (self.key.ns.as_str(), &*self.key.pk.0, self.key.sort());
        let options = IncrementOptions {
            ttl: self.ttl,
            condition: self.if_match.unwrap_or_default(),
            durability: self.durability.map(Into::into),
        };
        let client = connection.client()?;
        let done = client.increment(ns, pk, sk, self.by.unwrap_or(1), &options);
        let done = done.await?;
        if self.by.is_none()
            && let Ok(number) = String::from_utf8_lossy(sk).parse::<i64>()
        {
            note!("1 was added to the row of sort key {number}; --by {number} adds {number}");
        }
        let answer = json!({"number": done.number, "version": done.version});
        Listing::new("NUMBER  VERSION").write_one(connection.listing_format(), &answer)
    }
}
