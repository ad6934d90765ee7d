//! `umbo token …`: tokens created with the admin API, which needs the `admin` permission on every namespace;
//! or created in a token file, which needs no server and no token.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use umbo_api::admin::{NewToken, TokenInfo};
use umbo_client::Client;
use umbo_control::auth::{self, AuthError, file::append_token};
use umbo_types::{Clock as _, Criticality, Grant};

use super::kv::ttl;
use super::ns::whole_seconds;
use crate::cli_error::{CliError, Exit, usage};
use crate::connection::{ChangeReason, ConnectionArgs, block_on};
use crate::output::{self, Listing, note};
use crate::server::SystemClock;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a token and print it; it cannot be shown again
    Create(Create),
    /// List the tokens, without their secrets
    Ls,
    /// Revoke a token
    Revoke {
        /// Id, as 'umbo token ls' shows it, or a name that one token has
        id: String,
        /// Only show the token that would be revoked
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        reason: ChangeReason,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Name of the caller, under which its requests are counted
    #[arg(long)]
    name: String,
    /// Grants, each permissions:namespace-pattern (like read,scan:listing-*); may be repeated
    #[arg(long = "grant", value_name = "GRANT", required = true)]
    grants: Vec<Grant>,
    /// Highest criticality it may claim
    #[arg(long, value_name = "TIER")]
    criticality_max: Option<Criticality>,
    /// Life of the token (like 12h, 90d) [default: unlimited]
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    ttl: Option<Duration>,
    /// Add the token to this file (for `umbo serve --token-file`) instead of asking a server
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    reason: ChangeReason,
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self {
            Self::Create(create) => block_on(create.run(connection)),
            Self::Ls => block_on(list(connection)),
            Self::Revoke {
                id,
                dry_run,
                reason,
            } => block_on(revoke(connection, &id, dry_run, &reason)),
        }
    }
}

impl Create {
    async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let token = NewToken {
            name: self.name,
            grants: self.grants.iter().map(Grant::to_string).collect(),
            criticality_max: self.criticality_max.map(|tier| tier.as_str().to_owned()),
            ttl: self.ttl.map(whole_seconds),
        };
        let checked = auth::CheckedToken::check(&token).map_err(token_failure)?;
        let created = match &self.file {
            None => {
                let client = connection.changing_client(&self.reason)?;
                client.create_token(&token).await?
            }
            Some(path) => {
                append_token(path, &checked, SystemClock.wall()).map_err(token_failure)?
            }
        };
        output::write_report(connection.listing_format(), &created, || {
            // Only the token, so that a shell can assign it to a variable.
            output::write_bytes(format!("{}\n", created.token).as_bytes())?;
            let id = &created.info.id;
            match &self.file {
                None => note!("id {id}; to revoke it: umbo token revoke {id}"),
                Some(path) => note!("id {id}, in {}", path.display()),
            }
            Ok(())
        })
    }
}

fn token_failure(error: AuthError) -> CliError {
    match error {
        AuthError::Invalid { .. } => usage!("{error}"),
        AuthError::File { path, source } => CliError::file("read or write", path)(source),
        other => CliError::told(Exit::Failed, other),
    }
}

async fn revoke(
    connection: &ConnectionArgs,
    id: &str,
    dry_run: bool,
    reason: &ChangeReason,
) -> Result<(), CliError> {
    let (client, format) = (
        connection.changing_client(reason)?,
        connection.listing_format(),
    );
    let id = &id_of(&client, id).await?;
    if dry_run {
        let token = client.revoke_token_dry_run(id).await?;
        listing().write_one(format, &token)?;
        note!("nothing was changed: this was a dry run");
        return Ok(());
    }
    client.revoke_token(id).await?;
    output::write_report(format, &json!({"id": id}), || Ok(()))
}

/// Returns the id of a token that is given by its id or its name. If several tokens have the name, only an id is
/// accepted.
async fn id_of(client: &Client, text: &str) -> Result<String, CliError> {
    let tokens = client.tokens().await?.tokens;
    let named = tokens.iter().filter(|token| token.name == text);
    let named: Vec<&str> = named.map(|token| &*token.id).collect();
    let is_id = tokens.iter().any(|token| token.id == text);
    match &named[..] {
        [id] if !is_id => Ok((*id).to_owned()),
        ids @ [_, _, ..] if !is_id => Err(usage!(
            "{} tokens have the name '{text}'; name one by its id: {}",
            ids.len(),
            ids.join(", ")
        )),
        _ => Ok(text.to_owned()),
    }
}

fn listing() -> Listing<TokenInfo> {
    Listing::new("ID  NAME  GRANTS  CRITICALITY-MAX  CREATED  EXPIRES  SOURCE")
        .with("GRANTS", |token: &TokenInfo| token.grants.join(";"))
        .with("EXPIRES", |token| output::instant(token.expires_at))
}

async fn list(connection: &ConnectionArgs) -> Result<(), CliError> {
    let list = connection.client()?.tokens().await?;
    listing().write(connection.listing_format(), &list.tokens)
}
