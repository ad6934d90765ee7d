//! `umbo restore`: puts a backup into a new data folder, of a server or of a node, with any number of shards.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use umbo_control::{promote, restored_records};
use umbo_store::{RecordsCopy, RecordsKeeper as _, RecordsRevision, Store};
use umbo_store_redb::{ClusterMember, Config, RedbStore, Restore};
use umbo_types::{Clock, NamespaceId};

use super::backup::manifest::Manifest;
use super::location::Location;
use crate::cli_error::{CliError, usage};
use crate::connection::block_on;
use crate::map_file;
use crate::output::{self, note};
use crate::server::SystemClock;

/// Folder within the data folder, for the files of an unfinished restore.
const UNFINISHED: &str = "restoring";
/// The manifest of a data folder: without it, no server opens the other files of the folder.
const MANIFEST: &str = "umbo.json";

/// Arguments of `umbo restore`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder or address of the backup
    #[arg(long, value_name = "LOCATION")]
    from: String,
    /// New data folder, which must be empty or absent
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Number of shards [default: as 'umbo serve' chooses it]
    #[arg(long, conflicts_with = "map")]
    shards: Option<u16>,
    /// Map of a new cluster, to restore the shards of one of its nodes
    #[arg(long, value_name = "FILE", requires = "node")]
    map: Option<PathBuf>,
    /// Node of the map
    #[arg(long, requires = "map")]
    node: Option<String>,
    /// Namespace to restore; may be repeated [default: all]
    #[arg(long = "namespace", value_name = "NAME")]
    namespaces: Vec<String>,
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<(), CliError> {
        block_on(self.restore())
    }

    async fn restore(self) -> Result<(), CliError> {
        let config = self.config()?;
        let location = Location::open(&self.from)?;
        let manifest = Manifest::read(&location).await?;
        let records = self.records(&location, &manifest).await?;
        let is_used = std::fs::read_dir(&self.data).is_ok_and(|mut files| files.next().is_some());
        if is_used {
            let folder = self.data.display();
            return Err(usage!(
                "{folder} is not empty: a backup is restored into a new folder"
            ));
        }
        // A server does not look into this folder: an unfinished restore must not be served.
        let within = self.data.join(UNFINISHED);
        let config = Config {
            folder: within.clone(),
            ..config
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let made = RedbStore::open(config.clone(), Arc::clone(&clock))?;
        made.close().await;
        drop(made);
        let restore = Restore::begin(&within, records.clone(), clock.wall());
        let mut restore = restore.map_err(CliError::backup)?;
        for shard in &manifest.shards {
            for file in &shard.files {
                let read = restore.read(&file.read(&location).await?);
                read.map_err(CliError::backup)?;
            }
            restore.end_shard().map_err(CliError::backup)?;
        }
        let restored = restore.end().map_err(CliError::backup)?;
        put_records(config, &clock, records).await?;
        let moved = move_up(&within, &self.data);
        moved.map_err(CliError::file("move the restored files into", &self.data))?;
        note!(
            "{} restored to {}, {} of other nodes or namespaces left out",
            output::counted(restored.rows, "row"),
            self.data.display(),
            restored.left_out
        );
        Ok(())
    }

    fn config(&self) -> Result<Config, CliError> {
        let cluster = match (&self.map, &self.node) {
            (Some(map), Some(node)) => Some(ClusterMember {
                map: Arc::new(map_file::read(map)?),
                node: node.clone(),
                create_missing: Vec::new(),
                accept: Vec::new(),
            }),
            _ => None,
        };
        Ok(Config {
            folder: self.data.clone(),
            shards: self.shards,
            cluster,
            ..Config::default()
        })
    }

    async fn records(&self, from: &Location, manifest: &Manifest) -> Result<RecordsCopy, CliError> {
        let content = manifest.records.read(from).await?;
        let kept = (!self.namespaces.is_empty()).then_some(&self.namespaces[..]);
        let records = restored_records(content, manifest.revision, kept, SystemClock.wall());
        records.map_err(CliError::backup)
    }
}

/// Moves the files of a folder into its parent, and removes the folder. The manifest comes last: a folder without it is
/// not served.
fn move_up(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(from)? {
        names.push(entry?.file_name());
    }
    names.sort_by_key(|name| name == MANIFEST);
    for name in names {
        std::fs::rename(from.join(&name), to.join(&name))?;
        File::open(to)?.sync_all()?;
    }
    std::fs::remove_dir(from)?;
    File::open(to)?.sync_all()
}

/// Writes the records into their home, if its shard is in this folder, and a copy into every shard.
async fn put_records(
    config: Config,
    clock: &Arc<dyn Clock>,
    mut records: RecordsCopy,
) -> Result<(), CliError> {
    let redb = Arc::new(RedbStore::open(config.clone(), Arc::clone(clock))?);
    let store: Arc<dyn Store> = Arc::clone(&redb) as Arc<dyn Store>;
    let home = match &config.cluster {
        Some(member) => member.map.home(),
        None => store.home(),
    };
    let is_here = config.cluster.as_ref().is_none_or(|member| {
        let own = member.map.shards_of(&member.node);
        own.contains(&home.shard)
    });
    if is_here {
        let written = promote(&store, clock, &records, NamespaceId::SYSTEM).await;
        written.map_err(CliError::backup)?;
    }
    records.revision = RecordsRevision {
        epoch: home.epoch,
        number: records.revision.number + 1,
    };
    for (shard, kept) in redb.keep_records(Arc::new(records)).await {
        kept.map_err(|error| CliError::backup(format_args!("shard {shard}: {error}")))?;
    }
    store.close().await;
    Ok(())
}
