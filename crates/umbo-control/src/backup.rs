//! Umbo's own records in a backup: the records of one revision, and their conversion for a restored store.

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

/// Why a load is not applied after a restore: the shards of a backup are not of one instant, so the backup may lack
/// rows that the progress of the load counts as applied.
const FAILED_BY_RESTORE: &str =
    "it was unfinished when the restored backup was made: upload it again";

impl ControlPlane {
    /// Returns the records as they are at home now.
    pub async fn records_at_home(&self) -> Result<RecordsCopy, ControlError> {
        self.refresh().await?;
        Ok(self.records.current.load().to_copy()?)
    }
}

/// Makes the records of a restored store from the records of a backup. Loads that were under way have failed. If
/// `namespaces` is given, only these namespaces are left. The epoch is 0, so that any home can take the records.
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
