//! The presence rows of dispatchers, one row each, and next to them the ownership row of quotas and the row of the last
//! backups: in the SYSTEM namespace, at the home of Umbo's own records.
//!
//! A row expires unless its dispatcher writes it again, so the rows are the members of the fleet. The other two never
//! expire; they are changed by compare-and-set.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbo_api::backup::CompletedBackup;
use umbo_api::fleet::ProcessInfo;
use umbo_dispatcher::Dispatcher;
use umbo_http::RequestError;
use umbo_quota::OwnerRow;
use umbo_store::{Change, Condition, RowRef, SortRange};
use umbo_types::{Timestamp, Value, Version};

use crate::home_rows::HomeRows;

/// How often a dispatcher writes its row: one small commit of the home each time.
pub const PRESENCE_INTERVAL: Duration = Duration::from_secs(4);
/// How long a write of the row may take.
pub(super) const PRESENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a row lasts after its last write: three writes may fail or take all their time, or a home may restart. The
/// fourth one begins 16 s after the last that was good.
const PRESENCE_TTL: Duration = Duration::from_secs(20);
/// Most members of a fleet; rows of further ones are not read.
const MEMBERS_MAX: usize = 1_024;
/// Name of the partition.
const PARTITION: &str = "umbo-presence";
/// Sort key of the ownership row. It comes before all presence rows, whose keys are hexadecimal ids, and earlier
/// versions take no notice of it.
const OWNERS: &str = "#quota-owners";
/// Sort key of the row of backups, before all presence rows too.
const BACKUPS: &str = "#backups";
/// Most backups in the row: enough to know how often they are made.
const BACKUPS_MAX: usize = 8;
/// How often a backup is added to the row if others change the row meanwhile.
const BACKUP_TRIES: usize = 8;

/// A dispatcher, as its row describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Presence {
    pub(super) about: ProcessInfo,
    /// `host:port` of its port for other dispatchers.
    pub(super) address: String,
}

/// The rows at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct FleetRows {
    /// The members of the fleet, by id.
    pub(super) members: Vec<(u64, Presence)>,
    /// The ownership row and its version; `None` before the first one, or if this version cannot read it.
    pub(super) owners: Option<(Version, OwnerRow)>,
    /// Version of the row of backups, and the last completed backups, newest first.
    pub(super) backups: (Option<Version>, Vec<CompletedBackup>),
}

/// Locks the last completed backups that a dispatcher knows, newest first.
pub(crate) fn known_backups(dispatcher: &Dispatcher) -> MutexGuard<'_, Vec<CompletedBackup>> {
    let backups = dispatcher.backups.lock();
    backups.unwrap_or_else(PoisonError::into_inner)
}

/// The rows, as this dispatcher reads and writes them.
#[derive(Debug)]
pub(crate) struct PresenceRows(HomeRows);

impl PresenceRows {
    pub(crate) fn new(dispatcher: &Arc<Dispatcher>) -> Self {
        Self(HomeRows::new(dispatcher, PARTITION))
    }

    /// Writes the row of a dispatcher, or removes it.
    pub(super) async fn write(
        &self,
        id: u64,
        presence: Option<&Presence>,
    ) -> Result<(), RequestError> {
        // Rows expire by the clock of the home alone: a later one would keep dead dispatchers.
        let now = self.0.dispatcher.home_time();
        let expires_at = Some(now.saturating_add(PRESENCE_TTL));
        let change = presence.map_or(Change::Delete, |presence| put(presence, expires_at));
        let key = format!("{id:016x}");
        let written = self.0.change(key, change, Condition::Always).await;
        written.map(drop)
    }

    /// Writes the ownership row unless it has changed since it had a version. Returns whether it was written.
    pub(super) async fn write_owners(
        &self,
        row: &OwnerRow,
        since: Option<Version>,
    ) -> Result<bool, RequestError> {
        let condition = since.map_or(Condition::Absent, |version| {
            Condition::VersionIn(vec![version])
        });
        let key = OWNERS.to_owned();
        self.0.change(key, put(row, None), condition).await
    }

    /// Adds a completed backup to the last ones, and returns these. A second report of a backup replaces its first.
    pub(crate) async fn add_backup(
        &self,
        new: &CompletedBackup,
    ) -> Result<Vec<CompletedBackup>, RequestError> {
        for _ in 0..BACKUP_TRIES {
            let (version, mut backups) = self.read().await?.backups;
            backups.retain(|known| known.backup != new.backup);
            backups.insert(0, new.clone());
            backups.truncate(BACKUPS_MAX);
            let condition = version.map_or(Condition::Absent, |version| {
                Condition::VersionIn(vec![version])
            });
            let row = put(&backups, None);
            if self.0.change(BACKUPS.to_owned(), row, condition).await? {
                return Ok(backups);
            }
        }
        let text = format!("other backups were reported {BACKUP_TRIES} times meanwhile");
        Err(RequestError::Internal(text))
    }

    /// Reads the members of the fleet, the ownership row and the last backups.
    pub(super) async fn read(&self) -> Result<FleetRows, RequestError> {
        let mut found = FleetRows::default();
        let (partition, mut range) = (self.0.partition()?, Some(SortRange::default()));
        while let Some(from) = range {
            let (page, rest) = self.0.page(&partition, from, false).await?;
            for row in page.rows.iter() {
                if row.sort == OWNERS.as_bytes() {
                    found.owners = owners(row);
                } else if row.sort == BACKUPS.as_bytes() {
                    let backups = serde_json::from_slice(row.value).unwrap_or_default();
                    found.backups = (Some(row.version), backups);
                } else {
                    found.members.extend(member(row));
                }
            }
            range = rest.filter(|_| found.members.len() < MEMBERS_MAX);
        }
        Ok(found)
    }
}

/// Reads a row, or returns `None` for a row that this version cannot read.
fn member(row: RowRef<'_>) -> Option<(u64, Presence)> {
    let id = u64::from_str_radix(std::str::from_utf8(row.sort).ok()?, 16).ok()?;
    Some((id, serde_json::from_slice(row.value).ok()?))
}

fn owners(row: RowRef<'_>) -> Option<(Version, OwnerRow)> {
    Some((row.version, serde_json::from_slice(row.value).ok()?))
}

fn put(row: &impl Serialize, expires_at: Option<Timestamp>) -> Change {
    Change::Put {
        value: Value {
            bytes: serde_json::to_vec(row).unwrap_or_default().into(),
            ..Value::default()
        },
        expires_at,
    }
}
