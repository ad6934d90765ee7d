//! `umbo backup`: reads the state of all shards of a server that serves, with Umbo's own records, into a folder or an
//! object store; `umbo backup verify` reads a backup and says which of its files are damaged.

pub(super) mod manifest;

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use clap::{Args, Subcommand};
use serde::Serialize;
use tokio::time::sleep;
use umbo_api::backup::BackupBegun;
use umbo_client::{Client, Error};
use umbo_control::restored_records;
use umbo_store_redb::BackupCheck;
use umbo_types::Clock as _;

use self::manifest::{BackupFile, Manifest, ShardFiles};
use crate::cli_error::CliError;
use crate::command::kv::patience::{SharedPatience, is_temporary};
use crate::command::location::Location;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, listing::Listing};
use crate::server::SystemClock;

/// Bytes of a file of a backup: one request of an object store, held in memory for each shard while it is filled. A
/// larger one keeps the commits of a server on the same disk waiting for longer. Of many shards the files are smaller, so that
/// all of them together take [`MEMORY_MAX`].
const FILE_LEN: usize = 8 << 20;
const MEMORY_MAX: usize = 512 << 20;
/// Priority of the command: a busy process of the usual one gets ten times as much of a core.
const NICENESS: i32 = 10;
/// Status of a piece of a backup that is gone.
const NOT_FOUND: u16 = 404;
/// How often a backup is begun again whose state is gone, because a shard was opened again meanwhile.
const TRIES: u32 = 5;

/// How long a server may be away, or a backup not be begun for another reason that passes, before it is given up.
const PATIENCE: Duration = Duration::from_mins(2);

/// Arguments of `umbo backup`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Folder or address (s3://, gs://, az://) of the backup, which must have none yet; credentials are taken from the
    /// environment, as the tools of the provider name them
    #[arg(long, value_name = "LOCATION", required = true)]
    to: Option<String>,
    /// Part of the time that the server is asked for rows, in percent; the rest is left to others
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=100))]
    share: u32,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read a backup, and check every row and file of it
    Verify(Verify),
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self.command {
            Some(Command::Verify(verify)) => block_on(verify.run(connection)),
            None => block_on(make(connection, &self.to.unwrap_or_default(), self.share)),
        }
    }
}

async fn make(connection: &ConnectionArgs, to: &str, share: u32) -> Result<(), CliError> {
    // Beside a server on the same machine; where the system refuses it, the pauses have to do.
    let _refused = rustix::process::setpriority_process(None, NICENESS);
    let location = Location::open(to)?;
    if location.find(manifest::NAME).await?.is_some() {
        let text = format!("{to} has a backup already: choose another place for this one");
        return Err(CliError::backup(text));
    }
    let client = connection.client()?;
    let mut tries = 1;
    let manifest = loop {
        let making = Making::begin(&client, &location).await?;
        match making.read_all(share).await {
            Ok(manifest) => break manifest,
            Err(CliError::Client(error)) if tries < TRIES && may_be_made_anew(&error) => {
                output::note(&format!(
                    "the state of a shard is gone ({error}); beginning again"
                ));
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    };
    // The last of its files: what has a manifest is whole.
    location.put(manifest::NAME, manifest.to_bytes()?).await?;
    let (rows, bytes) = (manifest.rows(), manifest.bytes());
    output::note(&format!(
        "{} of {}, {bytes} bytes, at {to}",
        output::counted(rows, "row"),
        output::counted(manifest.shards.len() as u64, "shard"),
    ));
    Ok(())
}

/// Returns whether a backup that failed so is made anew: its state is gone, or the server was away.
fn may_be_made_anew(error: &Error) -> bool {
    is_temporary(error)
        || matches!(error, Error::Problem { problem } if problem.status == NOT_FOUND)
}

/// A backup that is being made.
struct Making<'a> {
    client: &'a Client,
    location: &'a Location,
    begun: BackupBegun,
    taken_ms: u64,
    began: Instant,
}

/// A shard that is being read.
struct ReadShard {
    files: ShardFiles,
    check: BackupCheck,
    next_piece: u32,
    buffer: BytesMut,
    is_over: bool,
}

impl<'a> Making<'a> {
    async fn begin(client: &'a Client, location: &'a Location) -> Result<Self, CliError> {
        let patience = SharedPatience::new(PATIENCE);
        let begun = patience.repeat(client, is_temporary, |_| async {
            let taken_ms = SystemClock.wall().as_millis();
            Ok((client.begin_backup().await?, taken_ms))
        });
        let (begun, taken_ms) = begun.await?;
        Ok(Self {
            client,
            location,
            begun,
            taken_ms,
            began: Instant::now(),
        })
    }

    /// Reads the shards by turns, a piece of each, so that the state of none is forgotten meanwhile.
    async fn read_all(self, share: u32) -> Result<Manifest, CliError> {
        let mut shards: Vec<_> = (0..self.begun.shards).map(ReadShard::new).collect();
        let file_len = FILE_LEN.min(MEMORY_MAX / shards.len().max(1));
        while shards.iter().any(|shard| !shard.is_over) {
            for shard in shards.iter_mut().filter(|shard| !shard.is_over) {
                let asked = Instant::now();
                self.read(shard, file_len).await?;
                sleep(asked.elapsed() * (100 - share) / share).await;
            }
        }
        let records = STANDARD.decode(&self.begun.records).map_err(|error| {
            CliError::backup(format_args!("the server's records cannot be read: {error}"))
        })?;
        let records = self.put("records".to_owned(), records.into()).await?;
        let manifest = Manifest {
            format: manifest::FORMAT,
            umbo: env!("CARGO_PKG_VERSION").to_owned(),
            taken_ms: self.taken_ms,
            seconds: self.began.elapsed().as_secs(),
            revision: self.begun.revision,
            records,
            shards: Vec::new(),
        };
        let end = |shard: ReadShard| {
            let of_shard =
                |error| CliError::backup(format_args!("shard {}: {error}", shard.files.shard));
            let rows = shard.check.end().map_err(of_shard)?;
            Ok(ShardFiles {
                rows,
                ..shard.files
            })
        };
        let shards = shards
            .into_iter()
            .map(end)
            .collect::<Result<_, CliError>>()?;
        Ok(Manifest { shards, ..manifest })
    }

    async fn read(&self, shard: &mut ReadShard, file_len: usize) -> Result<(), CliError> {
        let number = shard.files.shard;
        let piece = self
            .client
            .backup_piece(&self.begun.backup, number, shard.next_piece);
        match piece.await? {
            Some(piece) => {
                let damaged = |error| CliError::backup(format_args!("shard {number}: {error}"));
                shard.check.read(&piece).map_err(damaged)?;
                shard.buffer.extend_from_slice(&piece);
                shard.next_piece += 1;
            }
            None => shard.is_over = true,
        }
        if shard.buffer.len() >= file_len || (shard.is_over && !shard.buffer.is_empty()) {
            let nth = shard.files.files.len();
            let bytes = shard.buffer.split().freeze();
            let file = self.put(format!("shard-{number:03}-{nth:06}.rows"), bytes);
            shard.files.files.push(file.await?);
        }
        Ok(())
    }

    async fn put(&self, name: String, bytes: bytes::Bytes) -> Result<BackupFile, CliError> {
        let file = BackupFile::of(name, &bytes);
        self.location.put(&file.name, bytes).await?;
        Ok(file)
    }
}

impl ReadShard {
    fn new(shard: u16) -> Self {
        Self {
            files: ShardFiles {
                shard,
                rows: 0,
                files: Vec::new(),
            },
            check: BackupCheck::default(),
            next_piece: 1,
            buffer: BytesMut::new(),
            is_over: false,
        }
    }
}

/// Arguments of `umbo backup verify`.
#[derive(Debug, Args)]
struct Verify {
    /// Folder or address of the backup
    #[arg(long, value_name = "LOCATION")]
    from: String,
}

/// What is wrong with a part of a backup.
#[derive(Debug, Serialize)]
struct CheckedPart {
    part: String,
    rows: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Verify {
    async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let location = Location::open(&self.from)?;
        let manifest = Manifest::read(&location).await?;
        let records = check_records(&location, &manifest).await;
        let mut parts = vec![CheckedPart {
            part: "records".to_owned(),
            rows: 0,
            reason: records.err().map(|error| error.to_string()),
        }];
        for shard in &manifest.shards {
            let checked = check_shard(&location, shard).await;
            let number = shard.shard;
            parts.push(CheckedPart {
                part: format!("shard {number}"),
                rows: *checked.as_ref().unwrap_or(&0),
                reason: checked.err().map(|error| error.to_string()),
            });
        }
        Listing::new("PART  ROWS  REASON").write(connection.listing_format(), &parts)?;
        let bad = parts.iter().filter(|part| part.reason.is_some()).count();
        if bad > 0 {
            let all = parts.len();
            let text = format!("{bad} of {all} parts of the backup are damaged");
            return Err(CliError::backup(text));
        }
        Ok(())
    }
}

async fn check_records(location: &Location, manifest: &Manifest) -> Result<(), CliError> {
    let content = manifest.records.read(location).await?;
    let now = SystemClock.wall();
    let read = restored_records(content, manifest.revision, None, now);
    read.map(|_| ()).map_err(CliError::backup)
}

async fn check_shard(location: &Location, shard: &ShardFiles) -> Result<u64, CliError> {
    let mut check = BackupCheck::default();
    let bad = CliError::backup;
    for file in &shard.files {
        check.read(&file.read(location).await?).map_err(bad)?;
    }
    let rows = check.end().map_err(bad)?;
    if rows != shard.rows {
        let expected = shard.rows;
        let text = format!("it has {rows} rows, and was written with {expected}");
        return Err(CliError::backup(text));
    }
    Ok(rows)
}
