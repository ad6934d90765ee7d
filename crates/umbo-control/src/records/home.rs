//! The home of Umbo's own records: one partition of the home shard, the only place where they change.
//!
//! A row named `head` holds the revision and the highest id of a namespace; every other row is a record. A
//! change writes its records and the head in one atomic write, on the condition that the head has not changed
//! since it was read. So all changes are serial, and a failure has the outcome of that one write. A read of the
//! head, all rows and the same head again is of one revision. The name of the partition holds the epoch, so that
//! rows of an earlier home in a shard never mix with rows of a later one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time;
use umbo_routing::RecordsHome;
use umbo_store::{
    Atomicity, CallContext, Change, Condition, Durability, Mutation, RangeRequest, RecordsRevision,
    SortRange, Store, StoreError, WriteError, WriteRequest, home_partition,
};
use umbo_types::{
    Clock, Deadline, Key, NamespaceId, PartitionKey, ShardId, SortKey, Timestamp, Value, Version,
    buggify, limits,
};

use super::{Edits, RecordKey, RecordSet, Unreadable};

/// Name of the head row; no record is called so.
const HEAD: &str = "head";
/// How often the records are read again because they changed meanwhile.
const READ_TRIES: usize = 16;
/// Rows that a promoted home is given in one write.
const PREPARED_ROWS: usize = 256;

/// Why the home could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum HomeError {
    /// The home cannot be asked now, or is not to be trusted.
    #[error("the home of Umbo's own records, shard {shard}, is away: {reason}")]
    Away {
        /// The home shard.
        shard: ShardId,
        /// Why.
        reason: String,
    },
    /// This version cannot read its records.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Why a change was not made.
#[derive(Debug, Clone)]
pub(crate) enum ChangeError {
    /// Another change of the records came first. Nothing was applied.
    Conflict {
        /// The home shard.
        shard: ShardId,
    },
    /// The write failed; the error says whether it took effect.
    Store(StoreError),
    /// The write was not answered in time. It may take effect, unless another change comes first.
    NoAnswer {
        /// The home shard.
        shard: ShardId,
        /// The time that it had.
        timeout: Duration,
    },
    /// The home has no place for it. Nothing was applied.
    Home(HomeError),
}

/// The first row of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    epoch: u64,
    number: u64,
    last_namespace: u32,
}

/// The head as it was found.
#[derive(Debug, Clone, Copy)]
struct FoundHead {
    head: Head,
    version: Version,
}

/// The records at home.
#[derive(Debug)]
pub(crate) struct Home {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The partition, and the home that it is of: a map change may name another one.
    partition: Mutex<Option<(RecordsHome, PartitionKey)>>,
}

impl Home {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            partition: Mutex::default(),
        }
    }

    /// Returns the set at home and the version of its head, for the condition of a change. Returns `None` if no
    /// set was ever made. Reads the rows only if the revision differs from that in `known`.
    pub(crate) async fn read(
        &self,
        known: Option<&Arc<RecordSet>>,
        timeout: Duration,
    ) -> Result<Option<(Arc<RecordSet>, Version)>, HomeError> {
        let home = self.store.home();
        let deadline = Deadline::after(self.clock.monotonic(), timeout);
        let reading = self.read_at(home, known, deadline);
        let away = |reason| HomeError::Away {
            shard: home.shard,
            reason,
        };
        time::timeout(timeout, reading)
            .await
            .unwrap_or_else(|_| Err(away(format!("no answer within {timeout:?}"))))
    }

    async fn read_at(
        &self,
        home: RecordsHome,
        known: Option<&Arc<RecordSet>>,
        deadline: Deadline,
    ) -> Result<Option<(Arc<RecordSet>, Version)>, HomeError> {
        let partition = self.partition(home)?;
        let Some(mut found) = self.head(home, &partition, deadline).await? else {
            return Ok(None);
        };
        if let Some(known) = known
            && known.revision == found.revision()
        {
            return Ok(Some((Arc::clone(known), found.version)));
        }
        for _ in 0..READ_TRIES {
            let rows = self.rows(home, &partition, deadline).await?;
            let again = self.head(home, &partition, deadline).await?;
            let again = again.ok_or_else(|| away(home, "its head is missing".to_owned()))?;
            if again.version == found.version {
                let set = RecordSet {
                    revision: found.revision(),
                    last_namespace: found.head.last_namespace,
                    rows,
                };
                return Ok(Some((Arc::new(set), found.version)));
            }
            found = again;
        }
        let reason = format!("it changed {READ_TRIES} times while it was read");
        Err(away(home, reason))
    }

    async fn head(
        &self,
        home: RecordsHome,
        partition: &PartitionKey,
        deadline: Deadline,
    ) -> Result<Option<FoundHead>, HomeError> {
        let call = CallContext::internal_until(deadline);
        let key = key_of(partition, HEAD.to_owned());
        let row = self.store.get(&call, home.shard, NamespaceId::SYSTEM, &key);
        let row = row.await;
        let row = row.map_err(|error| away(home, error.to_string()))?;
        row.map(|row| {
            let head: Head = serde_json::from_slice(&row.value.bytes)
                .map_err(|error| unreadable_head(error.to_string()))?;
            if head.epoch != home.epoch {
                let reason = format!("it is of epoch {}, not {}", head.epoch, home.epoch);
                return Err(unreadable_head(reason).into());
            }
            let version = row.version;
            Ok(FoundHead { head, version })
        })
        .transpose()
    }

    async fn rows(
        &self,
        home: RecordsHome,
        partition: &PartitionKey,
        deadline: Deadline,
    ) -> Result<BTreeMap<RecordKey, Bytes>, HomeError> {
        let call = CallContext::internal_until(deadline);
        let mut request = RangeRequest {
            namespace: NamespaceId::SYSTEM,
            partition: partition.clone(),
            range: SortRange::default(),
            reverse: false,
            rows_max: limits::CHUNK_ROWS_MAX,
            bytes_max: limits::CHUNK_BYTES_MAX,
            keys_only: false,
        };
        let mut rows = BTreeMap::new();
        loop {
            let page = self.store.range(&call, home.shard, &request).await;
            let page = page.map_err(|error| away(home, error.to_string()))?;
            for row in page.rows.iter() {
                if row.sort != HEAD.as_bytes() {
                    let key = RecordKey::parse(row.sort)?;
                    rows.insert(key, Bytes::copy_from_slice(row.value));
                }
            }
            let Some(last) = page.resume_after else {
                return Ok(rows);
            };
            request.range = request.range.beyond(&last, false);
        }
    }

    /// Writes a change of the records if the head still has the version `found` (`None`: if there is no head
    /// yet).
    pub(crate) async fn write(
        &self,
        next: &RecordSet,
        edits: &Edits,
        found: Option<Version>,
        timeout: Duration,
    ) -> Result<(), ChangeError> {
        let home = self.store.home();
        if next.revision.epoch != home.epoch {
            // The map has named another home since the records were read.
            return Err(ChangeError::Conflict { shard: home.shard });
        }
        let partition = self.partition(home).map_err(ChangeError::Home)?;
        let head = Head {
            epoch: next.revision.epoch,
            number: next.revision.number,
            last_namespace: next.last_namespace,
        };
        let head = serde_json::to_vec(&head).expect("a head is made of numbers");
        let condition = found.map_or(Condition::Absent, |version| {
            Condition::VersionIn(vec![version])
        });
        let mut mutations = vec![mutation(&partition, HEAD, Some(head.into()), condition)];
        mutations.extend(edits.rows.iter().map(|(key, content)| {
            let (name, always) = (key.to_string(), Condition::Always);
            mutation(&partition, &name, content.clone(), always)
        }));
        self.write_all(home.shard, mutations, edits.due_at, timeout)
            .await
    }

    /// Writes records without a head, which have no effect until there is one.
    pub(crate) async fn prepare(
        &self,
        edits: &Edits,
        timeout: Duration,
    ) -> Result<(), ChangeError> {
        let home = self.store.home();
        let partition = self.partition(home).map_err(ChangeError::Home)?;
        let rows: Vec<_> = edits.rows.iter().collect();
        for rows in rows.chunks(PREPARED_ROWS) {
            let rows = rows.iter().map(|(key, content)| {
                let (name, always) = (key.to_string(), Condition::Always);
                mutation(&partition, &name, (*content).clone(), always)
            });
            self.write_all(home.shard, rows.collect(), None, timeout)
                .await?;
        }
        Ok(())
    }

    /// Returns the names of the rows that a home without a head holds: the rest of an earlier attempt.
    pub(crate) async fn left_behind(&self, timeout: Duration) -> Result<Vec<RecordKey>, HomeError> {
        let home = self.store.home();
        let partition = self.partition(home)?;
        let deadline = Deadline::after(self.clock.monotonic(), timeout);
        let rows = self.rows(home, &partition, deadline).await?;
        Ok(rows.into_keys().collect())
    }

    async fn write_all(
        &self,
        shard: ShardId,
        mutations: Vec<Mutation>,
        not_before: Option<Timestamp>,
        timeout: Duration,
    ) -> Result<(), ChangeError> {
        let deadline = Deadline::after(self.clock.monotonic(), timeout);
        let call = CallContext::internal_until(deadline);
        let request = WriteRequest {
            namespace: NamespaceId::SYSTEM,
            epoch: 0,
            mutations,
            atomicity: Atomicity::Partition,
            durability: Durability::Sync,
            proposed: Version::proposed_at(self.clock.wall()),
            idempotency: None,
            not_before,
            run: None,
        };
        let no_answer = || ChangeError::NoAnswer { shard, timeout };
        let writing = self.store.write(&call, shard, request);
        let written = time::timeout(timeout, writing).await;
        let written = written.map_err(|_| no_answer())?;
        // Of an atomic group the first, the only one with a condition, tells of all.
        match written.into_iter().next() {
            Some(Ok(_)) if buggify!("records-answer-lost") => Err(no_answer()),
            Some(Ok(_)) => Ok(()),
            // Changes of the records are puts and removals without an idempotency: only a condition refuses one.
            Some(Err(
                WriteError::ConditionFailed { .. }
                | WriteError::GroupAborted { .. }
                | WriteError::NotANumber
                | WriteError::IncrementOverflow { .. }
                | WriteError::IdempotencyMismatch
                | WriteError::IdempotencyFull { .. }
                | WriteError::UploadGone
                | WriteError::NeedsExactWrites
                | WriteError::Replayed(_),
            )) => Err(ChangeError::Conflict { shard }),
            Some(Err(WriteError::Store(error))) => Err(ChangeError::Store(error)),
            None => Err(no_answer()),
        }
    }

    /// Returns the partition of the records: the first of the names for this epoch that falls into the
    /// home shard.
    fn partition(&self, home: RecordsHome) -> Result<PartitionKey, HomeError> {
        let mut cached = self
            .partition
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((of, partition)) = &*cached
            && *of == home
        {
            return Ok(partition.clone());
        }
        let name = format!("umbo-records-{}", home.epoch);
        let found = home_partition(&self.store.shard_map(), home, &name);
        let partition =
            found.ok_or_else(|| away(home, "the shard map gives it no slots".to_owned()))?;
        *cached = Some((home, partition.clone()));
        Ok(partition)
    }
}

impl FoundHead {
    const fn revision(&self) -> RecordsRevision {
        RecordsRevision {
            epoch: self.head.epoch,
            number: self.head.number,
        }
    }
}

fn away(home: RecordsHome, reason: String) -> HomeError {
    let shard = home.shard;
    HomeError::Away { shard, reason }
}

fn unreadable_head(reason: String) -> Unreadable {
    let record = HEAD.to_owned();
    Unreadable { record, reason }
}

fn mutation(
    partition: &PartitionKey,
    name: &str,
    content: Option<Bytes>,
    condition: Condition,
) -> Mutation {
    let change = content.map_or(Change::Delete, |bytes| Change::Put {
        value: Value {
            bytes,
            ..Value::default()
        },
        expires_at: None,
    });
    Mutation {
        key: key_of(partition, name.to_owned()),
        change,
        condition,
    }
}

fn key_of(partition: &PartitionKey, name: String) -> Key {
    Key {
        partition: partition.clone(),
        sort: SortKey::new(name).expect("kinds and names are short"),
    }
}
