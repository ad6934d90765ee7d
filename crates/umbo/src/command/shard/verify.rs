//! `umbo shard verify`: checks a map on its own, against the one before it, and against the data folder of a
//! node. Reads only.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use umbo_routing::{ClusterMap, Succession};
use umbo_store_redb::{FileCheck, FileState, verify_folder};

use super::repair::misplaced;
use crate::cli_error::{CliError, Exit};
use crate::map_file;
use crate::output::{self, Format, Listing, note};
use crate::settings::LoadedSettings;

/// Note on a file that was not closed. It cannot be checked yet, so it is not reported as good.
const UNCLOSED: &str =
    "it was not closed: the node recovers it, and checks whose it is, when it opens it";

/// Arguments of `umbo shard verify`.
#[derive(Debug, Args)]
pub(super) struct Verify {
    /// The map [default: the one in the settings]
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Map in effect; the other map must be its successor
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// Data folder of a node
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Name of the node [default: the node in the data folder's manifest]
    #[arg(long, value_name = "NAME", requires = "data")]
    node: Option<String>,
    /// Read all rows too, and count those in the wrong shard; files that are in use are left out
    #[arg(long, requires = "data")]
    rows: bool,
}

/// Result of the check.
#[derive(Debug, Serialize)]
struct VerifyResult {
    cluster_id: String,
    version: u64,
    nodes: usize,
    shards: u16,
    /// Node that the folder belongs to; absent if no folder was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    files: Vec<VerifyFileResult>,
    /// Files of shards that the node does not have.
    others: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct VerifyFileResult {
    #[serde(flatten)]
    check: FileCheck,
    /// Note on a file that was not closed; the reason of a bad file is in its state.
    #[serde(rename = "reason", skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    /// Rows that belong to another shard; absent if the rows were not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    misplaced: Option<u64>,
}

impl Verify {
    pub(super) fn run(self, format: Format) -> Result<(), CliError> {
        let cluster = LoadedSettings::of_file(None)?.settings.cluster;
        let map = Arc::new(map_file::read(&map_file::chosen(self.map, &cluster)?)?);
        if let Some(before) = &self.before {
            follows(before, &map)?;
        }
        let mut verified = VerifyResult {
            cluster_id: map.cluster_id().to_owned(),
            version: map.version(),
            nodes: map.nodes().len(),
            shards: map.shards(),
            node: None,
            files: Vec::new(),
            others: Vec::new(),
        };
        if let Some(folder) = &self.data {
            let check = verify_folder(folder, &map, self.node.as_deref())?;
            verified.node = Some(check.node);
            verified.files = check.files.into_iter().map(VerifyFileResult::of).collect();
            verified.others = check.others;
            if self.rows {
                verified.note_misplaced(misplaced(folder)?);
            }
        }
        verified.print(format)?;
        let (all, bad) = (verified.files.len(), verified.files.iter());
        match bad.filter(|file| file.is_bad()).count() {
            0 => Ok(()),
            bad => {
                let message = format!("{bad} of {all} shards would not be served");
                Err(CliError::told(Exit::Failed, message))
            }
        }
    }
}

fn follows(before: &Path, map: &ClusterMap) -> Result<(), CliError> {
    match map_file::read(before)?.check_successor(map) {
        Ok(Succession::Same | Succession::Newer) => Ok(()),
        Err(error) => Err(map_file::no_successor(before, &error)),
    }
}

impl VerifyFileResult {
    fn of(check: FileCheck) -> Self {
        Self {
            note: (check.state == FileState::Unclosed).then_some(UNCLOSED),
            check,
            misplaced: None,
        }
    }

    fn is_bad(&self) -> bool {
        matches!(self.check.state, FileState::Bad(_))
    }
}

impl VerifyResult {
    fn note_misplaced(&mut self, counted: Vec<(u16, u64)>) {
        for (shard, rows) in counted {
            let Some(file) = self
                .files
                .iter_mut()
                .find(|file| file.check.shard.0 == shard)
            else {
                continue;
            };
            file.misplaced = Some(rows);
            if rows > 0 {
                file.note = None;
                file.check.state = FileState::Bad(format!(
                    "{} of other shards: no request reaches them; 'umbo shard repair' moves them",
                    output::counted(rows, "row")
                ));
            }
        }
    }

    fn print(&self, format: Format) -> Result<(), CliError> {
        if format != Format::Table {
            return output::write_json(self);
        }
        if self.node.is_some() {
            Listing::new("SHARD  STATE  FILE  REASON").write(format, &self.files)?;
        }
        let whose = self.node.as_ref().map(|node| {
            let files = output::counted(self.files.len() as u64, "shard");
            format!(", node '{node}' with {files}")
        });
        note!(
            "cluster '{}', version {}: {}, {}{}",
            self.cluster_id,
            self.version,
            output::counted(self.nodes as u64, "node"),
            output::counted(self.shards.into(), "shard"),
            whose.unwrap_or_default()
        );
        if !self.others.is_empty() {
            note!(
                "{} of shards that the node does not have",
                output::counted(self.others.len() as u64, "file")
            );
        }
        Ok(())
    }
}
