//! `umbo ns …`: namespaces.

mod partitions;

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use umbo_api::ErrorCode;
use umbo_api::admin::{
    CompressionSetting, NamespaceInfo, NamespaceRemoval, NamespaceSettings, NamespaceSize,
    NamespaceSpec, NamespaceState, WriteSetting,
};
use umbo_types::Namespace;

use super::kv::{DurabilityOption, ttl};
use crate::cli_error::{CliError, Exit, usage};
use crate::connection::{ChangeReason, ConnectionArgs, block_on};
use crate::output::{self, Format, Listing};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the namespaces with their rows and bytes, as the shards count them: costs no read. Rows that have
    /// expired count until they are reclaimed
    Ls,
    /// Create a namespace
    Create(Create),
    /// Describe a namespace
    Describe {
        /// Name
        name: Namespace,
    },
    /// List the largest partitions, by rows
    Partitions(partitions::Arguments),
    /// Remove a namespace with all its rows
    Rm(Remove),
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Name: a-z, 0-9 and, after the first character, '.', '_' and '-'; 64 characters at most
    name: Namespace,
    /// Time to live of rows that are written without one (like 90s, 10m, 30d)
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    default_ttl: Option<Duration>,
    /// When writes that name no durability are acknowledged
    #[arg(long, value_enum, default_value_t = DurabilityOption::Sync)]
    durability: DurabilityOption,
    /// Compression of values that are written from now on
    #[arg(long, value_enum, default_value_t = ValueCompression::Off)]
    compression: ValueCompression,
    /// How long the previous version is kept after an activation (like 1h, 7d) [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    versions_kept_for: Option<Duration>,
    /// How rows are written, for good: with all promises, or plainly, on an engine that has it [default: exact]
    #[arg(long, value_enum)]
    writes: Option<WritesOption>,
    /// If the namespace exists, change its settings to these
    #[arg(long)]
    update: bool,
    #[command(flatten)]
    reason: ChangeReason,
}

/// How values are kept.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ValueCompression {
    /// As they were sent
    Off,
    /// As zstd, if that saves a tenth or more; clients get the bytes that they stored
    Zstd,
}

impl From<ValueCompression> for CompressionSetting {
    fn from(compression: ValueCompression) -> Self {
        match compression {
            ValueCompression::Off => Self::Off,
            ValueCompression::Zstd => Self::Zstd,
        }
    }
}

/// How rows are written.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum WritesOption {
    /// With all that the contract promises
    Exact,
    /// The write with the highest version stays; no conditions, increments, idempotency keys, loads and large values
    Fast,
}

impl From<WritesOption> for WriteSetting {
    fn from(writes: WritesOption) -> Self {
        match writes {
            WritesOption::Exact => Self::Exact,
            WritesOption::Fast => Self::Fast,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// Name
    name: Namespace,
    /// Only show what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Do not wait for this shard, which will never come back. If it does come back, it learns of the removal before it
    /// serves
    #[arg(long, value_name = "SHARD", conflicts_with = "dry_run")]
    abandon_shard: Option<u16>,
    #[command(flatten)]
    reason: ChangeReason,
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self {
            Self::Ls => block_on(list(connection)),
            Self::Create(create) => block_on(create.run(connection)),
            Self::Describe { name } => block_on(async {
                let info = connection.client()?.namespace(name.as_str()).await?;
                print(connection, &info)
            }),
            Self::Partitions(partitions) => block_on(partitions.run(connection)),
            Self::Rm(remove) => block_on(remove.run(connection)),
        }
    }
}

fn listing() -> Listing<NamespaceInfo> {
    Listing::new(
        "NAME  ID  CREATED  DEFAULT-TTL  DURABILITY  WRITES  COMPRESSION  ROWS  BYTES  RATIO  STATE",
    )
    .with("DEFAULT-TTL", |info: &NamespaceInfo| {
        let ttl = info.settings.default_ttl.map(Duration::from_secs);
        ttl.map_or_else(String::new, output::span)
    })
    .with("RATIO", |info| {
        let ratio = info.size.as_ref().map(NamespaceSize::compression_ratio);
        ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
    })
    .with("STATE", |info| match info.state {
        NamespaceState::Live => "live".to_owned(),
        NamespaceState::Removing => format!("removing{}", waiting(&info.waiting_for)),
    })
}

/// Returns a note on the shards that are not in the counts, or `None` if all shards are.
pub(super) fn uncounted(namespaces: &[NamespaceInfo]) -> Option<String> {
    let size = namespaces.first()?.size.as_ref()?;
    let shards = output::joined(&size.without_shards);
    (!shards.is_empty())
        .then(|| format!("rows and bytes are without those of shards {shards}, which do not tell"))
}

/// Returns the shards that a removal waits for, as text.
fn waiting(shards: &[u16]) -> String {
    match output::joined(shards) {
        none if none.is_empty() => none,
        shards => format!(" (waiting for shards {shards})"),
    }
}

fn print(connection: &ConnectionArgs, info: &NamespaceInfo) -> Result<(), CliError> {
    listing().write_one(connection.listing_format(), info)
}

async fn list(connection: &ConnectionArgs) -> Result<(), CliError> {
    let list = connection.client()?.namespaces().await?;
    let format = connection.listing_format();
    listing().write(format, &list.namespaces)?;
    if format == Format::Table
        && let Some(note) = uncounted(&list.namespaces)
    {
        output::print_note(&note);
    }
    Ok(())
}

impl Create {
    async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let client = connection.changing_client(&self.reason)?;
        let settings = NamespaceSettings {
            default_ttl: self.default_ttl.map(whole_seconds),
            durability: self.durability.into(),
            compression: self.compression.into(),
            versions_kept_for: self.versions_kept_for.map(whole_seconds),
            ..NamespaceSettings::default()
        };
        let (name, mut spec) = (self.name.as_str(), NamespaceSpec::from(settings));
        spec.writes = self.writes.map(WriteSetting::from);
        let info = match client.put_namespace(name, &spec).await {
            Ok((info, is_new)) if is_new || self.update => info,
            Err(error) if error.code() != Some(ErrorCode::NamespaceExists) => {
                return Err(error.into());
            }
            Err(_) if self.update => client.change_namespace(name, &spec).await?,
            Ok(_) | Err(_) => {
                let message = format!("namespace '{name}' exists already");
                return Err(CliError::told(Exit::Precondition, message).advising("namespace-there"));
            }
        };
        print(connection, &info)
    }
}

impl Remove {
    async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let client = connection.changing_client(&self.reason)?;
        let name = self.name.as_str();
        if self.dry_run {
            let removal = client.count_namespace(name).await?;
            return Listing::new("DONE  NAME  ROWS  BYTES")
                .with("DONE", |_| "would-remove".to_owned())
                .write_one(connection.listing_format(), &removal);
        }
        if !self.yes {
            confirm(&client.count_namespace(name).await?)?;
        }
        let removing = client.delete_namespace(name, self.abandon_shard).await?;
        let is_gone = removing.is_none();
        let removed = RemovedNamespace {
            name,
            state: if is_gone { "gone" } else { "removing" },
            waiting_for: removing.map_or_else(Vec::new, |removing| removing.waiting_for),
        };
        Listing::new("DONE  NAME")
            .with("DONE", |removed: &RemovedNamespace<'_>| {
                format!("{}{}", removed.state, waiting(&removed.waiting_for))
            })
            .write_one(connection.listing_format(), &removed)
    }
}

/// Returns a time in seconds, rounded up.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Result of a removal.
#[derive(Debug, Serialize)]
struct RemovedNamespace<'a> {
    name: &'a str,
    /// `gone` if the name is free, else `removing`.
    state: &'static str,
    /// Shards that have not confirmed the removal.
    waiting_for: Vec<u16>,
}

/// Asks the user to type the name of the namespace to be removed.
fn confirm(removal: &NamespaceRemoval) -> Result<(), CliError> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(usage!(
            "removing a namespace needs a confirmation; without a terminal use --yes"
        ));
    }
    let name = &removal.name;
    let rows = output::counted(removal.rows, "row");
    let question = format!("This removes '{name}' with its {rows}. Type its name to confirm: ");
    std::io::stderr()
        .write_all(question.as_bytes())
        .map_err(CliError::Output)?;
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    read.map_err(CliError::file("read", "-"))?;
    if answer.trim() == name {
        return Ok(());
    }
    Err(usage!("not the name; nothing was removed"))
}
