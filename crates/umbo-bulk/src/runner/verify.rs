//! Reads a finished version back, and checks its guards.
//!
//! Every row is read, so that a row that the disk has lost is found before the version is live. The rows, bytes and
//! digest of each shard are kept with the version. Rows that clients write meanwhile may be read or not: only a
//! version that clients do not write to has the same digest each time.

use tokio::task::{JoinSet, yield_now};
use umbo_api::loads::LoadGuards;
use umbo_api::versions::VersionShard;
use umbo_loads::digest::RowsDigest;
use umbo_loads::{LoadRecord, LoadTarget};
use umbo_store::{GIVES_WAY_EVERY, RowRef, ScanPage, compression, give_way};
use umbo_types::{Key, NamespaceId, ShardId};

use super::host::Host;
use super::journal::{Journal, Stop};
use super::work::{Beats, wait};
use crate::host_error::HostError;

/// Shards that are read at a time.
const SHARDS_MAX: usize = 8;
/// Pages that are read before the run looks whether it is still to go on.
const STEP_PAGES: u32 = 16;
/// Share by which the number of rows may differ from the live version, if the load does not say.
const ROWS_CHANGE_MAX: f64 = 0.3;

/// Reads a version back. Fails if its guards do not hold. The shards are read side by side.
pub(super) async fn verify(
    host: &Host,
    id: &str,
    load: &LoadRecord,
    target: &LoadTarget,
    journal: &mut Journal,
    tries: &mut u32,
) -> Result<Vec<VersionShard>, Stop> {
    // The live version is counted in the same way: the sizes that nodes report may be a moment old.
    let live = host.live_dataset(load)?;
    let built = NamespaceId(target.dataset);
    let shards_of = |dataset| host.shards().into_iter().map(move |shard| (dataset, shard));
    let mut readers = shards_of(built)
        .chain(shards_of(live))
        .map(|of| ShardReader::new(host, of, of.0 == built));
    let mut steps = JoinSet::new();
    for reader in readers.by_ref().take(SHARDS_MAX) {
        steps.spawn(reader.step());
    }
    let (mut shards, mut live_rows) = (Vec::new(), 0);
    let mut beats = Beats::begin();
    loop {
        let stepped = tokio::select! {
            biased;
            () = beats.next() => {
                beats.write(host, id, journal).await?;
                continue;
            }
            stepped = steps.join_next() => stepped,
        };
        let Some(stepped) = stepped else {
            break;
        };
        let (reader, stepped) = stepped.map_err(|error| Stop::Failed(error.to_string()))?;
        if stepped.is_ok() {
            journal.gets_on();
            if journal.run.waits.is_some() {
                journal.waits_for(None);
            }
        }
        match stepped {
            Ok(true) => {
                if reader.dataset == built {
                    shards.push(reader.finish());
                } else {
                    live_rows += reader.read.rows;
                }
                if let Some(next) = readers.next() {
                    steps.spawn(next.step());
                }
            }
            Ok(false) => {
                *tries = 0;
                steps.spawn(reader.step());
            }
            Err(HostError::Wait { after, reason }) => {
                wait(host, id, journal, after, &reason, tries).await?;
                steps.spawn(reader.step());
            }
            Err(error) => return Err(error.into()),
        }
    }
    shards.sort_unstable_by_key(|shard| shard.shard);
    let rows = shards.iter().map(|shard| shard.rows).sum();
    let judged = judge_live(load, live_rows).and_then(|()| judge(&target.guards, rows, live_rows));
    judged.map_err(Stop::Failed)?;
    Ok(shards)
}

/// Reads the rows that a dataset has in a shard.
struct ShardReader {
    host: Host,
    dataset: NamespaceId,
    shard: ShardId,
    read: VersionShard,
    /// `None` if the rows are only counted.
    digest: Option<RowsDigest>,
    after: Option<Key>,
    /// Buffer for the plain bytes of compressed values.
    room: Vec<u8>,
}

impl ShardReader {
    fn new(host: &Host, (dataset, shard): (NamespaceId, ShardId), has_digest: bool) -> Self {
        Self {
            host: host.clone(),
            dataset,
            shard,
            read: VersionShard {
                shard: shard.0,
                ..VersionShard::default()
            },
            digest: has_digest.then(RowsDigest::default),
            after: None,
            room: Vec::new(),
        }
    }

    /// Reads some pages. Returns whether they were the last ones; after an error the same page is read again.
    async fn step(mut self) -> (Self, Result<bool, HostError>) {
        for _ in 0..STEP_PAGES {
            let (dataset, shard, after) = (self.dataset, self.shard, self.after.as_ref());
            let page = match self.host.scan(dataset, shard, after).await {
                Ok(page) => page,
                Err(error) => return (self, Err(error)),
            };
            if let Err(error) = self.add(&page) {
                return (self, Err(error));
            }
            self.after = page.resume_after;
            if self.after.is_none() {
                return (self, Ok(true));
            }
            // Requests of clients have their turn.
            yield_now().await;
        }
        (self, Ok(false))
    }

    fn add(&mut self, page: &ScanPage) -> Result<(), HostError> {
        let Some(digest) = &mut self.digest else {
            self.read.rows += page.rows.len() as u64;
            return Ok(());
        };
        for (at, row) in page.rows.iter().enumerate() {
            give_way(at, GIVES_WAY_EVERY);
            let RowRef {
                partition, sort, ..
            } = row;
            let value = compression::plain_bytes(row.form, row.value, &mut self.room);
            let value = value.map_err(|_| {
                let shard = self.shard;
                HostError::Never(format!("shard {shard} holds a value that cannot be read"))
            })?;
            self.read.rows += 1;
            self.read.bytes += (partition.len() + sort.len() + value.len()) as u64;
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
        Ok(())
    }

    fn finish(mut self) -> VersionShard {
        self.read.digest = self.digest.unwrap_or_default().finish();
        self.read
    }
}

/// Refuses a load that keeps row versions if the live version has rows: the version of a row with the same key could go
/// back.
fn judge_live(load: &LoadRecord, live: u64) -> Result<(), String> {
    if load.keep_row_versions && live > 0 {
        return Err(format!(
            "the live version has {live} rows, and rows keep their versions only in a namespace without rows"
        ));
    }
    Ok(())
}

/// Decides by the numbers of rows of a version and of the live version whether the version is ready. The error is the
/// reason why not.
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
