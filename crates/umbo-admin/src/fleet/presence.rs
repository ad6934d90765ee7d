//! The presence rows of dispatchers, one row each, and the ownership row of quotas next to them: in the SYSTEM namespace,
//! at the home of Umbo's own records.
//!
//! The rows are outside the records, which are copied whole at each change. A row expires unless its dispatcher writes
//! it again, so the rows are the members of the fleet. The ownership row never expires; it is changed by compare-and-set.
//! Nothing on the path of a request reads or writes them.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbo_api::fleet::ProcessInfo;
use umbo_dispatcher::Dispatcher;
use umbo_dispatcher::plane::OwnRows;
use umbo_http::RequestError;
use umbo_quota::OwnerRow;
use umbo_store::{Change, Condition, Mutation, RangeRequest, RowRef, SortRange, home_partition};
use umbo_types::{Key, NamespaceId, PartitionKey, SortKey, Timestamp, Value, Version, limits};

/// How often a dispatcher writes its row: one small commit of the home each time.
pub const PRESENCE_INTERVAL: Duration = Duration::from_secs(4);
/// How long a write of the row may take.
pub(super) const PRESENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a row lasts after its last write: three writes may fail or take all their time, or a home may restart. The
/// fourth one begins 16 s after the last that was good.
const PRESENCE_TTL: Duration = Duration::from_secs(20);
/// Most members of a fleet; rows of further ones are not read.
const MEMBERS_MAX: u32 = 1_024;
/// Name of the partition.
const PARTITION: &str = "umbo-presence";
/// Sort key of the ownership row. It comes before all presence rows, whose keys are hexadecimal ids, and earlier
/// versions take no notice of it.
const OWNERS: &str = "#quota-owners";

/// A dispatcher, as its row describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Presence {
    pub(super) about: ProcessInfo,
    /// `host:port` of its port for other dispatchers.
    pub(super) address: String,
}

/// The rows at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct FleetRows {
    /// The members of the fleet, by id.
    pub(super) members: Vec<(u64, Presence)>,
    /// The ownership row and its version; `None` before the first one, or if this version cannot read it.
    pub(super) owners: Option<(Version, OwnerRow)>,
}

/// The rows, as this dispatcher reads and writes them.
#[derive(Debug)]
pub(super) struct PresenceRows {
    dispatcher: Arc<Dispatcher>,
    rows: OwnRows,
}

impl PresenceRows {
    pub(super) fn new(dispatcher: &Arc<Dispatcher>) -> Self {
        Self {
            dispatcher: Arc::clone(dispatcher),
            rows: OwnRows::of_operator(dispatcher, 0),
        }
    }

    /// Writes the row of a dispatcher, or removes it.
    pub(super) async fn write(
        &self,
        id: u64,
        presence: Option<&Presence>,
    ) -> Result<(), RequestError> {
        let Dispatcher { store, clock, .. } = &*self.dispatcher;
        // Rows expire by the clock of the home alone: a later one would keep dead dispatchers.
        let now = store.time_at(store.home().shard, clock.wall());
        let expires_at = Some(now.saturating_add(PRESENCE_TTL));
        let change = presence.map_or(Change::Delete, |presence| put(presence, expires_at));
        let key = format!("{id:016x}");
        let written = self.change(key, change, Condition::Always).await;
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
        self.change(key, put(row, None), condition).await
    }

    async fn change(
        &self,
        key: String,
        change: Change,
        condition: Condition,
    ) -> Result<bool, RequestError> {
        let mutation = Mutation {
            key: Key {
                partition: self.partition()?,
                sort: SortKey::new(key).expect("it is short"),
            },
            change,
            condition,
        };
        self.rows.write_one(NamespaceId::SYSTEM, mutation).await
    }

    /// Reads the members of the fleet and the ownership row.
    pub(super) async fn read(&self) -> Result<FleetRows, RequestError> {
        let mut request = RangeRequest {
            namespace: NamespaceId::SYSTEM,
            partition: self.partition()?,
            range: SortRange::default(),
            reverse: false,
            rows_max: MEMBERS_MAX,
            bytes_max: limits::CHUNK_BYTES_MAX,
            keys_only: false,
        };
        let mut found = FleetRows::default();
        loop {
            let page = self.rows.range(&request).await?;
            for row in page.rows.iter() {
                if row.sort == OWNERS.as_bytes() {
                    found.owners = owners(row);
                } else {
                    found.members.extend(member(row));
                }
            }
            match page.resume_after {
                Some(last) if found.members.len() < MEMBERS_MAX as usize => {
                    request.range = request.range.beyond(&last, false);
                }
                _ => return Ok(found),
            }
        }
    }

    fn partition(&self) -> Result<PartitionKey, RequestError> {
        let home = self.dispatcher.store.home();
        let found = home_partition(&self.dispatcher.shard_map, home, PARTITION);
        found.ok_or_else(|| RequestError::Internal("the home has no slots".to_owned()))
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
