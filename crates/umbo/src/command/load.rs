//! `umbo load …`: loads, the datasets that the server applies by itself once their parts are uploaded.

pub(super) mod job;
pub(super) mod progress;
mod push;
pub(super) mod report;
mod upload;
pub(super) mod watch;

use clap::{Args, Subcommand};
use umbo_api::loads::LoadInfo;
use umbo_types::Namespace;

use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Format, counted, note};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Upload files as one load; to continue after an interruption, run it again
    Push(Box<push::Arguments>),
    /// List the loads of a namespace, or of all of them
    Ls {
        /// Namespace [default: all, which needs the permission observe on every namespace]
        ns: Option<Namespace>,
    },
    /// Show the progress of a load
    Status(LoadName),
    /// Follow a load until it has ended
    Watch(LoadName),
    /// Print the rows that were rejected, one JSON object a line
    Rejects(LoadName),
    /// Stop applying rows until 'umbo load resume'
    Pause(LoadName),
    /// Go on with a load that was paused
    Resume(LoadName),
    /// End a load; rows that were applied stay
    Abort {
        #[command(flatten)]
        load: LoadName,
        /// Only show the load that would be ended
        #[arg(long)]
        dry_run: bool,
    },
}

/// A load.
#[derive(Debug, Args)]
pub(crate) struct LoadName {
    /// Namespace
    ns: Namespace,
    /// Id, as 'umbo load ls' shows it
    id: String,
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        block_on(async {
            let client = || connection.client();
            let load = match self {
                Self::Push(arguments) => return arguments.run(connection).await,
                Self::Ls { ns } => return list(connection, ns.as_ref()).await,
                Self::Status(of) => client()?.load(of.ns.as_str(), &of.id).await?,
                Self::Watch(of) => {
                    let (client, format) = (client()?, connection.listing_format());
                    let ended = watch::until_ended(&client, &of.ns, &of.id, format, None);
                    return report::outcome(&ended.await?);
                }
                Self::Rejects(load) => return rejects(connection, &load).await,
                Self::Pause(of) => client()?.pause_load(of.ns.as_str(), &of.id).await?,
                Self::Resume(of) => client()?.resume_load(of.ns.as_str(), &of.id).await?,
                Self::Abort { load, dry_run } => abort(connection, &load, dry_run).await?,
            };
            report::write(connection, &load)
        })
    }
}

async fn list(connection: &ConnectionArgs, ns: Option<&Namespace>) -> Result<(), CliError> {
    let client = connection.client()?;
    let format = connection.listing_format();
    let Some(ns) = ns else {
        let list = client.all_loads().await?;
        if list.left_out > 0 {
            let further = counted(list.left_out, "further load");
            note!("{further} not listed: name a namespace");
        }
        return report::listing(report::HEADER_OF_ALL).write(format, &list.loads);
    };
    let list = client.loads(ns.as_str()).await?;
    report::listing(report::HEADER).write(format, &list.loads)
}

async fn rejects(connection: &ConnectionArgs, load: &LoadName) -> Result<(), CliError> {
    let client = connection.client()?;
    let mut rejects = client.load_rejects(load.ns.as_str(), &load.id).await?;
    while let Some(lines) = rejects.next().await? {
        output::write_bytes(&lines)?;
    }
    Ok(())
}

async fn abort(
    connection: &ConnectionArgs,
    load: &LoadName,
    dry_run: bool,
) -> Result<LoadInfo, CliError> {
    let client = connection.client()?;
    let ended = client.abort_load(load.ns.as_str(), &load.id, dry_run);
    let ended = ended.await?;
    if dry_run && connection.listing_format() == Format::Table {
        let (parts, rows) = (ended.parts.len() as u64, ended.rows_applied);
        let (parts, rows) = (counted(parts, "part"), counted(rows, "row"));
        note!(
            "would end load {}: {parts} uploaded, {rows} applied that stay",
            ended.id
        );
    }
    Ok(ended)
}
