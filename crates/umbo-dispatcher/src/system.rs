//! Umbo's own records (namespaces, tokens, secrets), kept in the system namespace of the store.
//!
//! Each record is copied to one partition in every shard, so that no single shard is needed to
//! find the namespaces of the others. The copy with the highest generation counts; a removed
//! record leaves a tombstone, so that a shard restored from a backup does not bring it back.
//! Changes are compare-and-set on the first shard that is available; the other copies follow and
//! are repaired when records are loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use umbo_store::{
    Atomicity, CallContext, Change, Condition, Durability, Mutation, RangeRequest, SortRange,
    Store, StoreError, WriteError, WriteRequest,
};
use umbo_types::{Clock, Key, NamespaceId, PartitionKey, ShardId, SortKey, Value, Version, limits};

use crate::failure::Failure;

/// How often a change is tried again when another pod changed the record at the same moment.
const CONFLICT_TRIES: usize = 16;

/// Umbo's own work comes before that of others.
static CALL: CallContext = CallContext::internal();

/// One copy of a record, as found.
#[derive(Debug, Clone)]
struct Copy {
    version: Version,
    generation: u64,
    content: Option<Bytes>,
}

/// The records of Umbo itself.
#[derive(Debug)]
pub(crate) struct SystemRecords {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// One partition per shard.
    replicas: Vec<PartitionKey>,
}

impl SystemRecords {
    /// Finds a partition for each shard.
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let map = store.shard_map();
        let mut shards: Vec<ShardId> = map.ranges().iter().map(|range| range.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let candidate = |n: u32| {
            PartitionKey::new(format!("umbo-{n}")).expect("a short text is a partition key")
        };
        let replica_of = |shard: &ShardId| {
            let owned = |key: &PartitionKey| map.locate(NamespaceId::SYSTEM, key) == *shard;
            (0..u32::MAX)
                .map(candidate)
                .find(owned)
                .expect("some partition falls into every shard")
        };
        let replicas = shards.iter().map(replica_of).collect();
        Self {
            store,
            clock,
            replicas,
        }
    }

    /// Returns the content of all records of a kind, by name, and brings stale copies up to date.
    pub(crate) async fn load(&self, kind: &str) -> Result<BTreeMap<String, Bytes>, StoreError> {
        let mut copies = Vec::with_capacity(self.replicas.len());
        for replica in &self.replicas {
            copies.push(self.copies_of(replica, kind).await);
        }
        let mut newest: BTreeMap<String, Copy> = BTreeMap::new();
        for (name, copy) in copies.iter().flatten().flatten() {
            let is_newer = newest
                .get(name)
                .is_none_or(|other| copy.generation > other.generation);
            if is_newer {
                newest.insert(name.clone(), copy.clone());
            }
        }
        if let Some(Err(error)) = copies.iter().find(|found| found.is_err())
            && copies.iter().all(Result::is_err)
        {
            return Err(error.clone());
        }
        for (replica, found) in self.replicas.iter().zip(&copies) {
            let Ok(found) = found else { continue };
            for (name, copy) in &newest {
                let is_stale = found
                    .get(name)
                    .is_none_or(|own| own.generation < copy.generation);
                if is_stale {
                    self.follow(replica, kind, name, copy.generation, copy.content.clone())
                        .await;
                }
            }
        }
        let live = newest
            .into_iter()
            .filter_map(|(name, copy)| Some((name, copy.content?)));
        Ok(live.collect())
    }

    /// Changes a record: `change` turns its content (none where absent) into the new content (none
    /// to remove it) or refuses. Returns the new content.
    pub(crate) async fn update<F>(
        &self,
        kind: &str,
        name: &str,
        mut change: F,
    ) -> Result<Option<Bytes>, Failure>
    where
        F: FnMut(Option<&Bytes>) -> Result<Option<Bytes>, Failure> + Send,
    {
        for _ in 0..CONFLICT_TRIES {
            let (authority, own, newest) = self.find(kind, name).await?;
            let current = newest.as_ref().and_then(|copy| copy.content.as_ref());
            let content = change(current)?;
            if newest.is_some() && content.as_ref() == current {
                // Nothing to write: a start on a full disk must not need any room.
                return Ok(content);
            }
            let generation = newest.map_or(0, |copy| copy.generation) + 1;
            let condition = own.map_or(Condition::Absent, |copy| {
                Condition::VersionIn(vec![copy.version])
            });
            let replica = &self.replicas[authority];
            match self
                .write(replica, kind, name, generation, content.clone(), condition)
                .await
            {
                Ok(()) => {
                    for (at, replica) in self.replicas.iter().enumerate() {
                        if at != authority {
                            self.follow(replica, kind, name, generation, content.clone())
                                .await;
                        }
                    }
                    return Ok(content);
                }
                Err(WriteError::ConditionFailed { .. }) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Err(Failure::Internal(format!(
            "record {kind}/{name} changed {CONFLICT_TRIES} times over"
        )))
    }

    /// Returns the first replica that can be read, its copy, and the newest copy of all.
    async fn find(
        &self,
        kind: &str,
        name: &str,
    ) -> Result<(usize, Option<Copy>, Option<Copy>), StoreError> {
        let mut authority: Option<(usize, Option<Copy>)> = None;
        let mut newest: Option<Copy> = None;
        let mut failure = None;
        for (at, replica) in self.replicas.iter().enumerate() {
            let key = record_key(replica, kind, name);
            match self.store.get(&CALL, NamespaceId::SYSTEM, &key).await {
                Ok(row) => {
                    let copy = row.and_then(|row| parse(&row.value.bytes, row.version));
                    if copy.as_ref().map(|copy| copy.generation)
                        > newest.as_ref().map(|copy| copy.generation)
                    {
                        newest.clone_from(&copy);
                    }
                    authority.get_or_insert((at, copy));
                }
                Err(error) => failure = Some(error),
            }
        }
        match (authority, failure) {
            (Some((at, own)), _) => Ok((at, own, newest)),
            (None, Some(error)) => Err(error),
            (None, None) => Err(StoreError::Closing),
        }
    }

    async fn copies_of(
        &self,
        replica: &PartitionKey,
        kind: &str,
    ) -> Result<BTreeMap<String, Copy>, StoreError> {
        let prefix = format!("{kind}/");
        let mut request = RangeRequest {
            namespace: NamespaceId::SYSTEM,
            partition: replica.clone(),
            range: SortRange::with_prefix(Bytes::from(prefix.clone())),
            reverse: false,
            rows_max: limits::CHUNK_ROWS_MAX,
            bytes_max: limits::CHUNK_BYTES_MAX,
            keys_only: false,
        };
        let mut copies = BTreeMap::new();
        loop {
            let page = self.store.range(&CALL, &request).await?;
            for row in page.rows.iter() {
                let name = String::from_utf8_lossy(&row.sort[prefix.len()..]).into_owned();
                copies.extend(parse(row.value, row.version).map(|copy| (name, copy)));
            }
            let Some(last) = page.resume_after else {
                return Ok(copies);
            };
            request.range = request.range.beyond(&last, false);
        }
    }

    /// Writes a copy that follows the authority; a failure is repaired at the next load.
    async fn follow(
        &self,
        replica: &PartitionKey,
        kind: &str,
        name: &str,
        generation: u64,
        content: Option<Bytes>,
    ) {
        let always = Condition::Always;
        if let Err(error) = self
            .write(replica, kind, name, generation, content, always)
            .await
        {
            tracing::warn!(kind, %error, "a copy of a system record could not be written");
        }
    }

    async fn write(
        &self,
        replica: &PartitionKey,
        kind: &str,
        name: &str,
        generation: u64,
        content: Option<Bytes>,
        condition: Condition,
    ) -> Result<(), WriteError> {
        let mut bytes = Vec::new();
        bytes.put_u64(generation);
        bytes.put_u8(u8::from(content.is_some()));
        bytes.put(content.unwrap_or_default());
        let value = Value {
            bytes: bytes.into(),
            ..Value::default()
        };
        let request = WriteRequest {
            namespace: NamespaceId::SYSTEM,
            mutations: vec![Mutation {
                key: record_key(replica, kind, name),
                change: Change::Put {
                    value,
                    expires_at: None,
                },
                condition,
            }],
            atomicity: Atomicity::None,
            durability: Durability::Sync,
            proposed: Version::proposed_at(self.clock.wall()),
        };
        self.store
            .write(&CALL, request)
            .await
            .pop()
            .map_or(Ok(()), |result| result.map(|_| ()))
    }
}

fn record_key(replica: &PartitionKey, kind: &str, name: &str) -> Key {
    let sort = SortKey::new(format!("{kind}/{name}")).expect("kinds and names are short");
    Key {
        partition: replica.clone(),
        sort,
    }
}

fn parse(mut bytes: &[u8], version: Version) -> Option<Copy> {
    let generation = bytes.try_get_u64().ok()?;
    let is_present = bytes.try_get_u8().ok()? == 1;
    let content = is_present.then(|| Bytes::copy_from_slice(bytes));
    Some(Copy {
        version,
        generation,
        content,
    })
}
