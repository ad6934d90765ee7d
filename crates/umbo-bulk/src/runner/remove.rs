//! Removes bytes of a load that no run reads again.

use umbo_loads::LoadRecord;
use umbo_loads::layout::{self, PartRecord};
use umbo_loads::limits::SEGMENT_LEN;
use umbo_store::{Change, Condition, Mutation, SortRange};
use umbo_types::Key;

use super::host::Host;
use crate::stored_rows::{all_rows, whole};

/// Removes the bytes of a part.
pub(super) async fn remove_part(host: &Host, load: &LoadRecord, part: &PartRecord) {
    remove_bytes(host, load, part.upload, part.len).await;
}

/// Removes the bytes of an upload. Bytes that a shard refuses to remove are reclaimed when the load
/// ends.
pub(super) async fn remove_bytes(host: &Host, load: &LoadRecord, upload: u64, len: u64) {
    let mut at = 0;
    while at < len {
        let segment = layout::segment(upload, at);
        let mut request = whole(load.content_id(), segment, SortRange::default());
        request.keys_only = true;
        let mut removals = Vec::new();
        let listed = all_rows(host, request, |row| {
            let bounds = layout::piece_bounds(row.sort);
            let key = |(start, end)| layout::piece_key(upload, start, end - start);
            removals.extend(bounds.map(key).map(removal));
        });
        let removed = match listed.await {
            Ok(()) if removals.is_empty() => Ok(()),
            Ok(()) => host.write(load.content_id(), removals).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, "bytes of a load that are not needed are removed with it");
        }
        at += SEGMENT_LEN;
    }
}

pub(super) fn removal(key: Key) -> Mutation {
    Mutation {
        key,
        change: Change::Delete,
        condition: Condition::Always,
    }
}
