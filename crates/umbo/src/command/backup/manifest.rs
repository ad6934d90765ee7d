//! The manifest of a backup, `manifest.json`: its files, and the digest of each.

use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::cli_error::CliError;
use crate::command::location::Location;

/// Name of the manifest.
pub(super) const NAME: &str = "manifest.json";
/// The only format so far.
pub(super) const FORMAT: u32 = 1;

/// The content of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::command) struct Manifest {
    pub(super) format: u32,
    /// Version of the command that made it.
    pub(super) umbo: String,
    /// When the backup began, in milliseconds since 1970. The state of each shard is from this time or later.
    pub(super) taken_ms: u64,
    /// How long it took.
    pub(super) seconds: u64,
    /// Revision of the records.
    pub(in crate::command) revision: u64,
    /// Umbo's own records.
    pub(in crate::command) records: BackupFile,
    /// The shards, in order.
    pub(in crate::command) shards: Vec<ShardFiles>,
}

/// The files of a shard, in order: together they are its stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::command) struct ShardFiles {
    pub(in crate::command) shard: u16,
    pub(super) rows: u64,
    pub(in crate::command) files: Vec<BackupFile>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::command) struct BackupFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// In hexadecimal digits.
    pub(super) sha256: String,
}

impl Manifest {
    /// Reads the manifest of a backup.
    pub(in crate::command) async fn read(location: &Location) -> Result<Self, CliError> {
        let bad =
            |reason: String| CliError::backup(format_args!("{}: {reason}", location.name_of(NAME)));
        let text = location.find(NAME).await?.ok_or_else(|| {
            bad("there is no such file, so there is no whole backup here".to_owned())
        })?;
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        if manifest.format != FORMAT {
            let format = manifest.format;
            return Err(bad(format!(
                "it has format {format}, and this version reads {FORMAT}"
            )));
        }
        Ok(manifest)
    }

    /// Returns the text of the manifest.
    pub(super) fn to_bytes(&self) -> Result<Bytes, CliError> {
        let text = serde_json::to_vec_pretty(self);
        Ok(text.map_err(CliError::backup)?.into())
    }

    /// Returns the rows of all shards.
    pub(super) fn rows(&self) -> u64 {
        self.shards.iter().map(|shard| shard.rows).sum()
    }

    /// Returns the bytes of all files but the manifest.
    pub(super) fn bytes(&self) -> u64 {
        let files = self.shards.iter().flat_map(|shard| &shard.files);
        files.chain([&self.records]).map(|file| file.bytes).sum()
    }
}

impl BackupFile {
    /// Describes a file.
    pub(super) fn of(name: String, bytes: &[u8]) -> Self {
        Self {
            name,
            bytes: bytes.len() as u64,
            sha256: sha256(bytes),
        }
    }

    /// Reads the file. If its content does not match the manifest, the error names the file.
    pub(in crate::command) async fn read(&self, location: &Location) -> Result<Bytes, CliError> {
        let bad = |reason: String| {
            CliError::backup(format_args!("{}: {reason}", location.name_of(&self.name)))
        };
        let found = location.find(&self.name).await?;
        let bytes = found.ok_or_else(|| bad("the file is missing".to_owned()))?;
        if bytes.len() as u64 != self.bytes {
            let (found, expected) = (bytes.len(), self.bytes);
            return Err(bad(format!(
                "it has {found} bytes, and was written with {expected}"
            )));
        }
        if sha256(&bytes) != self.sha256 {
            return Err(bad("its bytes are not those that were written".to_owned()));
        }
        Ok(bytes)
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    let hex = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    hex.collect()
}
