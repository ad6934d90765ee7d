//! Reads a version back that was built, and holds it against its guards.
//!
//! Every row is read, so that one that the disk has lost is found before the version is live. What it comes to in each
//! shard is kept with the version. Rows that clients write meanwhile may be read or not: only a version that
//! clients do not write to has the same digest each time.

use tokio::time::Instant;
use umbo_api::loads::LoadGuards;
use umbo_api::versions::VersionShard;
use umbo_store::{RowRef, ScanPage, ScanPosition, compression};
use umbo_types::{NamespaceId, ShardId};

use super::work::{continues, wait};
use crate::digest::RowsDigest;
use crate::host::{Host, HostError};
use crate::journal::{Journal, Stop};
use crate::limits::BEAT;
use crate::record::{LoadRecord, LoadTarget};

/// Part by which the number of rows may differ from that of the live version where the load does not say.
const ROWS_CHANGE_MAX: f64 = 0.3;

/// Reads a version back; fails where its guards do not hold.
pub(super) async fn verify(
    host: &Host,
    id: &str,
    load: &LoadRecord,
    target: &LoadTarget,
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<Vec<VersionShard>, Stop> {
    let mut shards = Vec::new();
    for shard in host.shards() {
        shards.push(read_shard(host, id, (target.dataset, shard), journal, tries).await?);
    }
    let rows = shards.iter().map(|shard| shard.rows).sum();
    // Counted as the version is: what nodes tell of their sizes may be a moment old.
    let dataset = host.live_dataset(load)?;
    let mut live = 0;
    for shard in host.shards() {
        live += read_shard(host, id, (dataset.0, shard), journal, tries)
            .await?
            .rows;
    }
    judge(&target.guards, rows, live).map_err(Stop::Failed)?;
    Ok(shards)
}

async fn read_shard(
    host: &Host,
    id: &str,
    (dataset, shard): (u32, ShardId),
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<VersionShard, Stop> {
    let mut read = VersionShard {
        shard: shard.0,
        ..VersionShard::default()
    };
    let (mut digest, mut room) = (RowsDigest::default(), Vec::new());
    let mut after: Option<ScanPosition> = None;
    let mut beat = Instant::now();
    loop {
        let page = host.scan(NamespaceId(dataset), shard, after.as_ref()).await;
        let ScanPage {
            rows, resume_after, ..
        } = match page {
            Ok(page) => page,
            Err(HostError::Wait { after, reason }) => {
                wait(host, id, journal, after, &reason, tries).await?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        *tries = 0;
        for row in rows.iter() {
            let RowRef {
                partition, sort, ..
            } = row;
            let value = compression::plain_bytes(row.form, row.value, &mut room);
            let value = value.map_err(|_| {
                Stop::Failed(format!("shard {shard} holds a value that cannot be read"))
            })?;
            read.rows += 1;
            read.bytes += (partition.len() + sort.len() + value.len()) as u64;
            let expires_at = row.expires_at.map_or(0, |at| at.0);
            let fields = [
                partition,
                sort,
                value,
                row.content_type,
                row.content_encoding,
                &expires_at.to_be_bytes(),
            ];
            digest.add(fields);
        }
        if beat.elapsed() >= BEAT {
            beat = Instant::now();
            continues(host, id)?;
            journal.write().await?;
        }
        after = resume_after;
        if after.is_none() {
            read.digest = digest.finish();
            return Ok(read);
        }
    }
}

/// Decides by its rows and those of the live version whether a version is ready; an error says why not.
fn judge(guards: &LoadGuards, rows: u64, live: u64) -> Result<(), String> {
    if let Some(min) = guards.rows_min.filter(|min| rows < *min) {
        return Err(format!(
            "the version has {rows} rows, and rows_min is {min}"
        ));
    }
    let max = guards.rows_change_max.unwrap_or(ROWS_CHANGE_MAX);
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more digits")]
    let is_beyond = rows.abs_diff(live) as f64 > live as f64 * max;
    if live > 0 && is_beyond {
        return Err(format!(
            "the version has {rows} rows and the live one {live}, and rows_change_max is {max}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_judged_by_its_rows_and_those_of_the_live_one() {
        let judged = |rows_change_max, rows, live| {
            let guards = LoadGuards {
                rows_change_max,
                rows_min: None,
            };
            judge(&guards, rows, live)
        };
        assert_eq!(judged(None, 130, 100), Ok(()));
        assert_eq!(judged(None, 70, 100), Ok(()));
        assert!(judged(None, 131, 100).unwrap_err().contains("131"));
        assert!(judged(None, 69, 100).is_err());
        assert_eq!(judged(None, 5, 0), Ok(()));
        assert_eq!(judged(Some(2.0), 300, 100), Ok(()));
        assert_eq!(judged(Some(1.0), 0, 100), Ok(()));
        assert!(judged(Some(0.0), 99, 100).is_err());
        let guards = LoadGuards {
            rows_change_max: None,
            rows_min: Some(10),
        };
        assert_eq!(judge(&guards, 10, 0), Ok(()));
        assert!(judge(&guards, 9, 0).unwrap_err().contains("rows_min"));
    }
}
