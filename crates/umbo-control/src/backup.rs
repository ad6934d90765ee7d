//! Umbo's own records in a backup: those of one revision, and what a restore makes of them.

use bytes::Bytes;
use umbo_loads::LoadStep;
use umbo_store::{RecordsCopy, RecordsRevision};
use umbo_types::Timestamp;

use crate::control_plane::ControlPlane;
use crate::error::ControlError;
use crate::loads::loads_under_way;
use crate::namespaces::without_namespaces;
use crate::records::RecordSet;
use crate::versions::step_load;

/// Why a load is not applied after a restore: the shards of a backup are not of one instant, so it may lack rows that the
/// progress of the load says it has.
const FAILED_BY_RESTORE: &str =
    "it was under way when the backup was made that is restored: upload it again";

impl ControlPlane {
    /// Returns the records as they are at home now.
    pub async fn records_at_home(&self) -> Result<RecordsCopy, ControlError> {
        self.refresh().await?;
        Ok(self.records.current.load().to_copy()?)
    }
}

/// Makes of the records of a backup those of a restored store: loads that were under way have failed, and of the
/// namespaces only `namespaces` are left, where these are given. Their epoch is 0, so that any home can take them.
pub fn restored_records(
    content: Bytes,
    number: u64,
    namespaces: Option<&[String]>,
    now: Timestamp,
) -> Result<RecordsCopy, ControlError> {
    let mut set = RecordSet::from_content(content, RecordsRevision { epoch: 0, number })?;
    for id in loads_under_way(&set)? {
        let failed = LoadStep::Fail(FAILED_BY_RESTORE.to_owned());
        let (edits, ..) = step_load(&set, &id, &failed, now)?;
        set = set.changed(&edits);
    }
    if let Some(kept) = namespaces {
        set = set.changed(&without_namespaces(&set, kept)?);
    }
    Ok(set.to_copy()?)
}
