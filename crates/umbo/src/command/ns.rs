//! `umbo ns …`: namespaces.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::{Args, Subcommand};
use umbo_api::ErrorCode;
use umbo_api::admin::{DurabilitySetting, NamespaceInfo, NamespaceRemoval, NamespaceSettings};
use umbo_types::Namespace;

use super::kv::{Durability, namespace, ttl};
use crate::connection::{Connection, block_on};
use crate::failure::Failure;
use crate::output;

/// Arguments of `umbo ns`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the namespaces
    Ls,
    /// Create a namespace
    Create(Create),
    /// Describe a namespace
    Describe {
        /// Name
        #[arg(value_parser = namespace)]
        name: Namespace,
    },
    /// Remove a namespace with all its rows
    Rm(Remove),
}

#[derive(Debug, Args)]
struct Create {
    /// Name: a-z, 0-9 and, after the first character, '.', '_' and '-'; 64 characters at most
    #[arg(value_parser = namespace)]
    name: Namespace,
    /// Time to live of rows that name none (like 90s, 10m, 30d)
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    default_ttl: Option<Duration>,
    /// When writes that do not say are acknowledged
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    durability: Durability,
    /// Where there is already one, set its settings to these
    #[arg(long)]
    update: bool,
}

#[derive(Debug, Args)]
struct Remove {
    /// Name
    #[arg(value_parser = namespace)]
    name: Namespace,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let connection = &self.connection;
        match self.command {
            Command::Ls => block_on(list(connection)),
            Command::Create(create) => block_on(create.run(connection)),
            Command::Describe { name } => block_on(async {
                let info = connection.client()?.namespace(name.as_str()).await?;
                print(connection, &info)
            }),
            Command::Rm(remove) => block_on(remove.run(connection)),
        }
    }
}

const HEADER: [&str; 5] = ["NAME", "ID", "CREATED", "DEFAULT-TTL", "DURABILITY"];

fn cells(info: &NamespaceInfo) -> Vec<String> {
    let ttl = info.settings.default_ttl.map(Duration::from_secs);
    vec![
        info.name.clone(),
        info.id.to_string(),
        output::instant(Some(info.created_at)),
        ttl.map_or_else(String::new, |ttl| {
            humantime::format_duration(ttl).to_string().replace(' ', "")
        }),
        match info.settings.durability {
            DurabilitySetting::Sync => "sync".to_owned(),
            DurabilitySetting::Async => "async".to_owned(),
        },
    ]
}

fn print(connection: &Connection, info: &NamespaceInfo) -> Result<(), Failure> {
    output::write_one(connection.listing_format(), info, &HEADER, cells)
}

async fn list(connection: &Connection) -> Result<(), Failure> {
    let list = connection.client()?.namespaces().await?;
    output::write_list(
        connection.listing_format(),
        &list.namespaces,
        &HEADER,
        cells,
    )
}

impl Create {
    async fn run(self, connection: &Connection) -> Result<(), Failure> {
        let client = connection.client()?;
        if !self.update {
            match client.namespace(self.name.as_str()).await {
                Ok(_) => return Err(Failure::NamespaceExists(self.name.to_string())),
                Err(error) if error.code() == Some(ErrorCode::NamespaceNotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ttl = self.default_ttl;
        let settings = NamespaceSettings {
            default_ttl: ttl.map(|ttl| ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)),
            durability: self.durability.into(),
        };
        let (info, _) = client.put_namespace(self.name.as_str(), &settings).await?;
        print(connection, &info)
    }
}

impl Remove {
    async fn run(self, connection: &Connection) -> Result<(), Failure> {
        let client = connection.client()?;
        let name = self.name.as_str();
        if !self.dry_run && !self.yes {
            let removal = client.delete_namespace(name, true).await?;
            confirm(&removal)?;
        }
        let removal = client.delete_namespace(name, self.dry_run).await?;
        let what = if removal.dry_run {
            "would-remove"
        } else {
            "removed"
        };
        output::write_one(
            connection.listing_format(),
            &removal,
            &["DONE", "NAME", "ROWS", "BYTES"],
            |removal| {
                let number = |count: Option<u64>| {
                    count.map_or_else(|| "-".to_owned(), |count| count.to_string())
                };
                let (rows, bytes) = (number(removal.rows), number(removal.bytes));
                vec![what.to_owned(), removal.name.clone(), rows, bytes]
            },
        )
    }
}

/// Has a person type the name of what is about to be lost.
fn confirm(removal: &NamespaceRemoval) -> Result<(), Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let message = "removing a namespace asks first; without a terminal say --yes";
        return Err(Failure::Usage(message.to_owned()));
    }
    let name = &removal.name;
    let rows = output::counted(removal.rows.unwrap_or_default(), "row");
    let question = format!("This removes '{name}' with its {rows}. Type its name to go on: ");
    std::io::stderr()
        .write_all(question.as_bytes())
        .map_err(Failure::Output)?;
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    read.map_err(|source| Failure::File {
        verb: "read",
        path: "-".into(),
        source,
    })?;
    if answer.trim() == name {
        return Ok(());
    }
    Err(Failure::Usage(
        "not the name; nothing was removed".to_owned(),
    ))
}
