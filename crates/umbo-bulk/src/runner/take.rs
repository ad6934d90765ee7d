//! The rows of a part: the choice of rows to apply, and the counts of the others.

use std::collections::BTreeMap;

use umbo_api::batch::KeyFields;
use umbo_api::loads::RejectLine;
use umbo_loads::LoadRecord;
use umbo_loads::layout::{self, PartRecord};
use umbo_rows::{Expiry, InputChange, InputRow};
use umbo_store::{Change, Condition, GIVES_WAY_EVERY, Mutation, give_way};
use umbo_types::{Key, NamespaceId, PartitionKey, ShardId, Timestamp, Version};

use super::check::{reject, reject_row};
use super::host::Host;
use super::open_batches::{Advance, Divided, RejectedRows};
use super::rows::{NumberedRows, PartRows};
use super::sort_buffer::TakenRow;
use crate::host_error::HostError;
use crate::limits::REJECTS_MAX;
use crate::stored_rows::read_row;

/// The highest version of each shard when the load was created, if it counts and is known.
pub(super) type NewestVersions = BTreeMap<ShardId, Version>;

/// Reads the highest version of each shard when a load was created. A shard has no version here if it was away then, or
/// if an older dispatcher has created the load. If the load names an instant of its data, the map is empty.
pub(super) async fn newest_versions(
    host: &Host,
    load: &LoadRecord,
) -> Result<NewestVersions, HostError> {
    let mut newest = NewestVersions::new();
    if !load.is_as_of_creation() {
        return Ok(newest);
    }
    let report: NamespaceId = load.report_id();
    let keys = layout::creation_keys(&host.shards(), |key| host.shard_of(report, key));
    for (shard, key) in keys {
        if let Some((_, version)) = read_row(host, report, &key).await? {
            newest.insert(shard, version);
        }
    }
    Ok(newest)
}

/// Rows of a part.
#[derive(Debug, Default)]
pub(super) struct TakenRows {
    /// Rows that were read, including rows that are not applied.
    pub(super) len: u64,
    /// Rows to apply.
    pub(super) rows: Vec<TakenRow>,
    /// Rows that have expired already.
    pub(super) skipped: u64,
    pub(super) rejected: RejectedRows,
}

impl TakenRows {
    /// Takes the rows of a batch that are to be applied.
    pub(super) fn of(host: &Host, load: &LoadRecord, part: u16, batch: NumberedRows) -> Self {
        // An exported row without an expiry had none.
        let default = host.default_ttl(load).filter(|_| !load.keep_row_versions);
        let default = default.map(Expiry::After);
        let mut times = BTreeMap::new();
        let mut lives_from = |partition: &PartitionKey| {
            let shard = host.shard_of(load.namespace_id(), partition);
            *times.entry(shard).or_insert_with(|| host.lives_from(shard))
        };
        let mut taken = Self {
            len: batch.len() as u64,
            rows: Vec::with_capacity(batch.len()),
            ..Self::default()
        };
        let rejected = &mut taken.rejected;
        for (at, (line, row)) in batch.into_iter().enumerate() {
            give_way(at, GIVES_WAY_EVERY);
            let InputRow {
                key,
                change,
                version,
            } = match row {
                Ok(row) => row,
                Err(row) => {
                    // In a load that is checked first, the check has counted unreadable rows.
                    if !load.is_checked_first() {
                        rejected.unreadable += 1;
                        rejected.keep(|| reject(part, &row));
                    }
                    continue;
                }
            };
            if host.is_blocked(load, &key) {
                rejected.blocked += 1;
                let reason = || "an operator has blocked the key".to_owned();
                rejected.keep(|| refused(part, line, &key, reason()));
                continue;
            }
            if let InputChange::Put { value, .. } = &change
                && value.is_long()
                && let Some(reason) = host.never_stores(load, &key, value.bytes.len())
            {
                rejected.unreadable += 1;
                rejected.keep(|| refused(part, line, &key, reason));
                continue;
            }
            let mut lives_from = || lives_from(&key.partition);
            let Some(change) = unexpired(change, default, &mut lives_from) else {
                taken.skipped += 1;
                continue;
            };
            let version = match kept_version(load, &change, version, lives_from) {
                Ok(version) => version,
                Err(reason) => {
                    rejected.unreadable += 1;
                    rejected.keep(|| refused(part, line, &key, reason));
                    continue;
                }
            };
            taken.rows.push(TakenRow {
                key,
                change,
                version,
            });
        }
        taken
    }
}

impl Divided {
    /// Divides rows by shard.
    pub(super) fn of_rows(
        host: &Host,
        (load, newest): (&LoadRecord, &NewestVersions),
        advance: Advance,
        rows: impl IntoIterator<Item = TakenRow>,
    ) -> Self {
        let condition = |shard: ShardId, version: Option<Version>| {
            if load.target.is_some() {
                Condition::Unwritten(version)
            } else if load.force {
                Condition::Always
            } else {
                let as_of = Timestamp::from_millis(load.as_of);
                Condition::NotNewerThan(newest.get(&shard).map_or(as_of, |at| Timestamp(at.0)))
            }
        };
        let mut divided = Self {
            advance,
            ..Self::default()
        };
        let mut of_last: Option<(PartitionKey, ShardId)> = None;
        for (at, row) in rows.into_iter().enumerate() {
            let TakenRow {
                key,
                change,
                version,
            } = row;
            give_way(at, GIVES_WAY_EVERY);
            // Rows of one partition mostly follow one another.
            let shard = match &of_last {
                Some((partition, shard)) if *partition == key.partition => *shard,
                _ => {
                    let shard = host.shard_of(load.namespace_id(), &key.partition);
                    of_last = Some((key.partition.clone(), shard));
                    shard
                }
            };
            divided.by_shard.entry(shard).or_default().push(Mutation {
                key,
                change,
                condition: condition(shard, version),
            });
        }
        divided
    }

    /// Divides the rows of a batch of a part by shard.
    pub(super) fn of_part(
        host: &Host,
        of: (&LoadRecord, &NewestVersions),
        taken: TakenRows,
    ) -> Self {
        let mut divided = Self::of_rows(host, of, Advance::Rows(taken.len), taken.rows);
        (divided.skipped, divided.rejected) = (taken.skipped, taken.rejected);
        divided
    }
}

impl RejectedRows {
    /// Keeps a row of the report, up to [`REJECTS_MAX`].
    fn keep(&mut self, row: impl FnOnce() -> Mutation) {
        if (self.rows.len() as u64) < REJECTS_MAX {
            self.rows.push(row());
        }
    }
}

/// Returns the change of a row with its expiry, or `None` if the row has expired. `now` is the time at its shard.
fn unexpired(
    change: InputChange,
    default: Option<Expiry>,
    now: impl FnOnce() -> Timestamp,
) -> Option<Change> {
    let InputChange::Put { value, expiry } = change else {
        return Some(Change::Delete);
    };
    let Some(expiry) = expiry.or(default) else {
        return Some(Change::Put {
            value,
            expires_at: None,
        });
    };
    let now = now();
    let expires_at = Some(expiry.instant(now)).filter(|at| *at > now);
    expires_at.map(|_| Change::Put { value, expires_at })
}

/// Returns the version that a row keeps, or why the row is rejected for it. `now` is the time at its shard.
fn kept_version(
    load: &LoadRecord,
    change: &Change,
    version: Option<Version>,
    now: impl FnOnce() -> Timestamp,
) -> Result<Option<Version>, String> {
    if !load.keep_row_versions || !matches!(change, Change::Put { .. }) {
        return Ok(None);
    }
    let version = version.filter(|version| *version > Version(0));
    let version = version.ok_or("it has no version, and the load keeps row versions")?;
    let latest = Version::latest_at(now());
    if version > latest {
        let (version, latest) = (version.0, latest.0);
        return Err(format!(
            "its version {version} is of the future: the highest one is {latest} now"
        ));
    }
    Ok(Some(version))
}

/// Returns the row of the report about a row that is refused by its key.
fn refused(part: u16, line: u64, key: &Key, reason: String) -> Mutation {
    let fields = KeyFields::of(key.partition.as_bytes(), key.sort.as_bytes());
    reject_row(&RejectLine {
        part,
        line,
        reason,
        text: serde_json::to_string(&fields).ok(),
        b64: None,
    })
}

/// Tells whether rows come in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct KeyOrder {
    /// The key of the last row.
    last: Option<Key>,
}

impl KeyOrder {
    /// Continues after a row with this key.
    pub(super) fn after(last: Option<&KeyFields>) -> Self {
        let key = last.and_then(|fields| fields.key().ok());
        let key = key.and_then(|(partition, sort)| Key::new(partition, sort).ok());
        Self { last: key }
    }

    /// Returns the key of the last row.
    pub(super) fn last(&self) -> Option<KeyFields> {
        let last = self.last.as_ref()?;
        let (partition, sort) = (last.partition.as_bytes(), last.sort.as_bytes());
        Some(KeyFields::of(partition, sort))
    }

    /// Returns whether the rows of a batch are in order, and after all before them. Then they count as seen.
    pub(super) fn takes(&mut self, batch: &NumberedRows) -> bool {
        let keys = || {
            let rows = batch.iter().filter_map(|(_, row)| row.as_ref().ok());
            rows.map(|row| &row.key)
        };
        let Some(last) = keys().next_back() else {
            return true;
        };
        let is_ordered = self.last.iter().chain(keys()).is_sorted();
        if is_ordered {
            self.last = Some(last.clone());
        }
        is_ordered
    }
}

/// The rows of a part that no earlier run has taken.
pub(super) struct UntakenRows {
    pub(super) part: u16,
    rows: PartRows,
    /// Rows of the part that an earlier run has taken.
    taken: u64,
}

impl UntakenRows {
    pub(super) fn open(
        host: &Host,
        load: &LoadRecord,
        (number, part): (u16, &PartRecord),
        taken: u64,
    ) -> Result<Self, HostError> {
        Ok(Self {
            part: number,
            rows: PartRows::open(host.clone(), load, number, part)?,
            taken,
        })
    }

    /// Returns the next rows, or `None` at the end of the part; it is not called again then. If the call is dropped,
    /// nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<NumberedRows>, HostError> {
        loop {
            let Some(mut batch) = self.rows.next().await? else {
                return Ok(None);
            };
            let taken = usize::try_from(self.taken).unwrap_or(usize::MAX);
            let taken = taken.min(batch.len());
            batch.drain(..taken);
            self.taken -= taken as u64;
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use umbo_api::loads::{LoadMode, LoadSpec};
    use umbo_types::Value;

    use super::*;

    #[test]
    fn a_version_of_none_or_of_the_future_is_never_kept() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let latest = Version::latest_at(now);
        let spec = |keep_row_versions| LoadSpec {
            mode: LoadMode::Replace,
            keep_row_versions,
            ..LoadSpec::default()
        };
        let load = |keeps| LoadRecord::create(&spec(keeps), ("a", 1), (2, 3), (4, 2), "x", now);
        let put = Change::Put {
            value: Value::default(),
            expires_at: None,
        };
        let kept = |change, version| kept_version(&load(true).unwrap(), change, version, || now);
        for version in [Version(1), Version::proposed_at(now), latest].map(Some) {
            assert_eq!(kept(&put, version), Ok(version));
        }
        for bad in [None, Some(Version(0)), Some(Version(latest.0 + 1))] {
            assert!(kept(&put, bad).is_err(), "{bad:?}");
            assert_eq!(kept(&Change::Delete, bad), Ok(None));
            let any = kept_version(&load(false).unwrap(), &put, bad, || now);
            assert_eq!(any, Ok(None));
        }
    }

    #[test]
    fn rows_are_in_order_where_each_is_after_all_before() {
        let batch = |keys: &[&str]| -> NumberedRows {
            let row = |key: &&str| InputRow {
                key: Key::new((*key).to_owned(), "").unwrap(),
                change: InputChange::Delete,
                version: None,
            };
            keys.iter().map(|key| (1, Ok(row(key)))).collect()
        };
        let mut order = KeyOrder::default();
        assert!(order.takes(&batch(&["b", "c"])));
        assert!(order.takes(&batch(&[])));
        assert!(!order.takes(&batch(&["d", "c"])), "not in itself");
        assert!(!order.takes(&batch(&["a", "e"])), "before the last one");
        assert!(order.takes(&batch(&["c", "c", "d"])), "equal keys are");
    }
}
