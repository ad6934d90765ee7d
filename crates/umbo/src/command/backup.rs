//! `umbo backup`: copies the state of all shards of a running server, and Umbo's own records, to a folder or an object
//! store, and reports the complete backup to the server. `umbo backup verify` reads a backup and reports its damaged parts;
//! `umbo backup ls` lists the last complete ones.

pub(super) mod manifest;

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use clap::{Args, Subcommand};
use serde::Serialize;
use tokio::time::sleep;
use umbo_api::backup::{BackupBegun, BackupEnd, BackupList, CompletedBackup};
use umbo_client::{Client, Error};
use umbo_control::restored_records;
use umbo_store_redb::BackupCheck;
use umbo_types::Clock as _;

use self::manifest::{BackupFile, Manifest, ShardFiles};
use crate::cli_error::CliError;
use crate::command::kv::patience::{SharedPatience, is_temporary};
use crate::command::location::Location;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Listing, note};
use crate::server::SystemClock;

/// Bytes of a file of a backup: one request to an object store. The file of each shard is held in memory while it is
/// filled. Longer files would delay the commits of a server on the same disk for longer. With many shards the files are
/// shorter, so that all of them together take at most [`MEMORY_MAX`].
const FILE_LEN: usize = 8 << 20;
const MEMORY_MAX: usize = 512 << 20;
/// Niceness of the command: a busy process with the default niceness gets ten times as much of a core.
const NICENESS: i32 = 10;
/// HTTP status of a piece of a backup that the server no longer has.
const NOT_FOUND: u16 = 404;
/// Most attempts of a backup. It begins again if the server has lost its state, because a shard was opened again, or
/// was away.
const TRIES: u32 = 5;

/// How long to repeat the begin of a backup while the server is away or refuses it for a temporary reason.
const PATIENCE: Duration = Duration::from_mins(2);

/// Arguments of `umbo backup`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Folder or address (s3://, gs://, az://) for the backup, which must not hold one yet; credentials come from the
    /// provider's environment variables
    #[arg(long, value_name = "LOCATION", required = true)]
    to: Option<String>,
    /// Percentage of the time to spend on reading from the server, 1 to 100; the rest is left to others
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=100))]
    share: u32,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read a backup, and check every row and file of it
    Verify(Verify),
    /// List the last complete backups, newest first
    Ls,
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self.command {
            Some(Command::Verify(verify)) => block_on(verify.run(connection)),
            Some(Command::Ls) => block_on(list(connection)),
            None => block_on(make(connection, &self.to.unwrap_or_default(), self.share)),
        }
    }
}

async fn make(connection: &ConnectionArgs, to: &str, share: u32) -> Result<(), CliError> {
    // Yields the CPU to a server on the same machine. If the system refuses the priority, the pauses have to suffice.
    let _refused = rustix::process::setpriority_process(None, NICENESS);
    let location = Location::open(to)?;
    if location.find(manifest::NAME).await?.is_some() {
        let text = format!("{to} has a backup already: choose another place for this one");
        return Err(CliError::backup(text));
    }
    let client = connection.client()?;
    let mut tries = 1;
    let (number, manifest) = loop {
        let making = Making::begin(&client, &location).await?;
        let number = making.begun.backup.clone();
        match making.read_all(share).await {
            Ok(manifest) => break (number, manifest),
            Err(CliError::Client(error)) if tries < TRIES && may_be_made_anew(&error) => {
                note!("the state of a shard is gone ({error}); beginning again");
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    };
    // The manifest is the last file: a backup with a manifest is complete.
    location.put(manifest::NAME, manifest.to_bytes()?).await?;
    let (rows, bytes) = (manifest.rows(), manifest.bytes());
    note!(
        "{} of {}, {bytes} bytes, at {to}",
        output::counted(rows, "row"),
        output::counted(manifest.shards.len() as u64, "shard")
    );
    let end = BackupEnd {
        location: told_location(to)?,
        rows,
        bytes,
        seconds: manifest.seconds,
    };
    if let Err(error) = client.end_backup(&number, &end).await {
        // The backup is good all the same.
        note!("the server could not take note of the backup, so its age is not watched: {error}");
    }
    Ok(())
}

/// Returns a location as other machines understand it: a folder with its whole path.
fn told_location(to: &str) -> Result<String, CliError> {
    if to.contains("://") {
        return Ok(to.to_owned());
    }
    let path = std::path::absolute(to).map_err(CliError::backup)?;
    Ok(path.display().to_string())
}

async fn list(connection: &ConnectionArgs) -> Result<(), CliError> {
    let BackupList { backups } = connection.client()?.backups().await?;
    Listing::new("ENDED  ROWS  BYTES  SECONDS  BY  LOCATION")
        .with("ENDED", |one: &CompletedBackup| {
            output::instant(Some(one.ended_ms))
        })
        .write(connection.listing_format(), &backups)
}

/// Returns whether the backup may begin again after this failure: its state is gone, or the server was away.
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
#[derive(Default)]
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

    /// Reads one piece of each shard in turn, so that the server does not forget the state of any shard meanwhile.
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
        let end = |shard: ReadShard| {
            let number = shard.files.shard;
            let ended = shard.check.end();
            let rows =
                ended.map_err(|error| CliError::backup(format_args!("shard {number}: {error}")))?;
            Ok(ShardFiles {
                rows,
                ..shard.files
            })
        };
        let shards = shards.into_iter().map(end);
        Ok(Manifest {
            format: manifest::FORMAT,
            umbo: env!("CARGO_PKG_VERSION").to_owned(),
            taken_ms: self.taken_ms,
            seconds: self.began.elapsed().as_secs(),
            revision: self.begun.revision,
            records,
            shards: shards.collect::<Result<_, CliError>>()?,
        })
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
                ..ShardFiles::default()
            },
            next_piece: 1,
            ..Self::default()
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

/// A part of a backup that was checked, with the reason if it is damaged.
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
        let part = |part: String, checked: Result<u64, CliError>| CheckedPart {
            part,
            rows: *checked.as_ref().unwrap_or(&0),
            reason: checked.err().map(|error| error.to_string()),
        };
        let records = check_records(&location, &manifest).await;
        let mut parts = vec![part("records".to_owned(), records.map(|()| 0))];
        for shard in &manifest.shards {
            let checked = check_shard(&location, shard).await;
            parts.push(part(format!("shard {}", shard.shard), checked));
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
