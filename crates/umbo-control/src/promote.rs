//! Making another shard the home of Umbo's own records, from a copy, on the order of an operator.

use std::sync::Arc;
use std::time::Duration;

use umbo_store::{RecordsCopy, RecordsRevision, Store};
use umbo_types::{Clock, NamespaceId};

use crate::error::ControlError;
use crate::records::home::Home;
use crate::records::{Edits, RecordSet};

/// Time for each request to the new home.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Writes the records of a copy into the home in the map of `store`, whose epoch is later than the epoch of
/// the copy. Returns their revision there. `namespace_max` is the highest id of a namespace found in any
/// shard: no id up to it is given again. If the new home has records already, they stay, and their revision
/// is returned. No process sees the records until the last write, so a failed call may be repeated.
pub async fn promote(
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    copy: &RecordsCopy,
    namespace_max: NamespaceId,
) -> Result<RecordsRevision, ControlError> {
    let mut set = RecordSet::from_copy(copy)?;
    let home = store.home();
    let at = Home::new(Arc::clone(store), Arc::clone(clock));
    if let Some((present, _)) = at.read(None, TIMEOUT).await? {
        return Ok(present.revision);
    }
    if home.epoch <= copy.revision.epoch {
        let (shard, epoch) = (home.shard, copy.revision.epoch);
        let reason = format!(
            "its epoch {} does not follow epoch {epoch} of the copy",
            home.epoch
        );
        return Err(ControlError::RecordsAway { shard, reason });
    }
    let mut rows = Edits::none();
    for key in at.left_behind(TIMEOUT).await? {
        rows.rows.insert(key, None);
    }
    let copied = set.rows.iter();
    rows.rows
        .extend(copied.map(|(key, content)| (key.clone(), Some(content.clone()))));
    at.prepare(&rows, TIMEOUT).await?;
    set.revision = RecordsRevision {
        epoch: home.epoch,
        number: copy.revision.number + 1,
    };
    set.last_namespace = set.last_namespace.max(namespace_max.0);
    at.write(&set, &Edits::none(), None, TIMEOUT).await?;
    Ok(set.revision)
}
