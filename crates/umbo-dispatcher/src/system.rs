//! Umbo's own records (namespaces, tokens, secrets), kept in the system namespace of the store.
//!
//! Each record is copied to one partition in every shard, so that no single shard is needed to
//! find the namespaces of the others. The copy with the highest generation counts, and among those
//! what most copies say; a removed record leaves a tombstone, so that a shard restored from a backup
//! does not bring it back. A change is a compare-and-set of every copy that can be reached, in the
//! same order for everybody, and holds once it is in more than half of all: two pods of which each
//! sees other shards cannot both have their way. Copies that lag are repaired when records are loaded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes};
use futures_util::future::join_all;
use umbo_store::{
    Atomicity, CallContext, Change, Condition, Durability, Mutation, RangeRequest, SortRange,
    Store, StoreError, WriteError, WriteRequest,
};
use umbo_types::{Clock, Key, NamespaceId, PartitionKey, ShardId, SortKey, Value, Version, limits};

use crate::failure::Failure;

/// How often a change is tried again when another pod changed the record at the same moment.
const CONFLICT_TRIES: usize = 16;

/// After which a change that is not in most copies is taken for one whose pod has gone.
const LEFT_AFTER: Duration = Duration::from_secs(5);

/// Umbo's own work comes before that of others.
static CALL: CallContext = CallContext::internal();

/// One copy of a record, as found.
#[derive(Debug, Clone)]
struct Copy {
    version: Version,
    generation: u64,
    content: Option<Bytes>,
}

impl Copy {
    fn says_the_same(&self, other: &Self) -> bool {
        self.generation == other.generation && self.content == other.content
    }
}

/// Returns what counts among copies: of the highest generation, and there what most of them say.
fn newest_of<'a>(copies: impl IntoIterator<Item = &'a Copy>) -> Option<Copy> {
    let copies: Vec<&Copy> = copies.into_iter().collect();
    let (first, others) = copies.split_first()?;
    if others.iter().all(|other| other.says_the_same(first)) {
        return Some(Copy::clone(first));
    }
    let votes = |copy: &Copy| {
        copies
            .iter()
            .filter(|other| other.says_the_same(copy))
            .count()
    };
    // The first of equals, so that everybody who sees the same copies takes the same.
    let newest = copies
        .iter()
        .rev()
        .max_by_key(|copy| (copy.generation, votes(copy)));
    newest.map(|copy| Copy::clone(copy))
}

/// The records of Umbo itself.
#[derive(Debug)]
pub(crate) struct SystemRecords {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// One partition per shard.
    replicas: Vec<PartitionKey>,
    /// Whether copies that lag are left as they are.
    is_reader: bool,
    /// Records of which few copies have been changed: their generation, and since when that is known.
    half_done: Mutex<HalfDone>,
}

/// By kind and name.
type HalfDone = BTreeMap<(String, String), (u64, Instant)>;

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
            is_reader: false,
            half_done: Mutex::default(),
        }
    }

    /// The same for who sees only some of the copies, and must not repair by those the others.
    pub(crate) fn reader(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            is_reader: true,
            ..Self::new(store, clock)
        }
    }

    /// Returns the content of all records of a kind, by name, and brings stale copies up to date.
    pub(crate) async fn load(&self, kind: &str) -> Result<BTreeMap<String, Bytes>, StoreError> {
        // At once, because a node that does not answer is waited for.
        let replicas = self.replicas.iter();
        let copies = join_all(replicas.map(|replica| self.copies_of(replica, kind))).await;
        if let Some(Err(error)) = copies.iter().find(|found| found.is_err())
            && copies.iter().all(Result::is_err)
        {
            return Err(error.clone());
        }
        let mut by_name: BTreeMap<&str, Vec<&Copy>> = BTreeMap::new();
        for (name, copy) in copies.iter().flatten().flatten() {
            by_name.entry(name).or_default().push(copy);
        }
        let newest: BTreeMap<&str, Copy> = by_name
            .into_iter()
            .filter_map(|(name, copies)| Some((name, newest_of(copies)?)))
            .collect();
        if !self.is_reader {
            self.repair(kind, &newest, &copies).await;
        }
        let live = newest
            .into_iter()
            .filter_map(|(name, copy)| Some((name.to_owned(), copy.content?)));
        Ok(live.collect())
    }

    /// Brings copies that lag up to date. Not those of a change that may still be under way: who makes it
    /// would take that for the change of another one.
    async fn repair(
        &self,
        kind: &str,
        newest: &BTreeMap<&str, Copy>,
        copies: &[Result<BTreeMap<String, Copy>, StoreError>],
    ) {
        for (&name, copy) in newest {
            let is_held = |found: &&BTreeMap<String, Copy>| {
                found.get(name).is_some_and(|own| own.says_the_same(copy))
            };
            let holders = copies.iter().flatten().filter(is_held).count();
            let is_done = holders * 2 > self.replicas.len();
            if !self.is_to_be_followed((kind, name), copy.generation, is_done) {
                continue;
            }
            for (replica, found) in self.replicas.iter().zip(copies) {
                let Ok(found) = found else { continue };
                let own = found.get(name);
                if own.is_none_or(|own| !own.says_the_same(copy)) {
                    self.follow(replica, (kind, name), own, copy).await;
                }
            }
        }
    }

    /// Says whether the newest copy of a record is to be brought to all: at once where most have it.
    fn is_to_be_followed(
        &self,
        (kind, name): (&str, &str),
        generation: u64,
        is_done: bool,
    ) -> bool {
        let key = (kind.to_owned(), name.to_owned());
        let mut half_done = self
            .half_done
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if is_done {
            half_done.remove(&key);
            return true;
        }
        let now = self.clock.monotonic();
        match half_done.get(&key) {
            Some(&(known, since)) if known == generation => {
                now.saturating_duration_since(since) >= LEFT_AFTER
            }
            _ => {
                half_done.insert(key, (generation, now));
                false
            }
        }
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
            let copies = self.find(kind, name).await?;
            let newest = newest_of(copies.iter().flatten().flatten());
            let current = newest.as_ref().and_then(|copy| copy.content.as_ref());
            let content = change(current)?;
            if newest.is_some() && content.as_ref() == current {
                // Nothing to write: a start on a full disk must not need any room.
                return Ok(content);
            }
            let next = Copy {
                version: Version::default(),
                generation: newest.map_or(0, |copy| copy.generation) + 1,
                content,
            };
            if self.replace(kind, name, &copies, &next).await? {
                return Ok(next.content);
            }
        }
        Err(Failure::Internal(format!(
            "record {kind}/{name} changed {CONFLICT_TRIES} times over"
        )))
    }

    /// Writes all copies that are still as they were found, in the order of the replicas; says
    /// whether this was more than half of all. So of two pods that see different shards at the same
    /// moment only one can have its way.
    async fn replace(
        &self,
        kind: &str,
        name: &str,
        copies: &[Result<Option<Copy>, StoreError>],
        next: &Copy,
    ) -> Result<bool, Failure> {
        let failed = copies.iter().filter_map(|copy| copy.as_ref().err());
        if failed.clone().count() * 2 >= copies.len()
            && let Some(error) = failed.last()
        {
            return Err(error.clone().into());
        }
        let (mut written, mut is_contended, mut failure) = (0, false, None);
        for (replica, found) in self.replicas.iter().zip(copies) {
            let found = match found {
                Ok(found) => found.as_ref(),
                Err(error) => {
                    failure = Some(WriteError::Store(error.clone()));
                    continue;
                }
            };
            match self.write(replica, (kind, name), found, next).await {
                Ok(()) => written += 1,
                // Somebody was first where everybody begins, and is left to it.
                Err(WriteError::ConditionFailed { .. }) if written == 0 => return Ok(false),
                Err(WriteError::ConditionFailed { .. }) => is_contended = true,
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            _ if written * 2 > self.replicas.len() => Ok(true),
            Some(error) if !is_contended => Err(error.into()),
            _ => Ok(false),
        }
    }

    /// Returns the copy of each replica; an error where none can be read.
    async fn find(
        &self,
        kind: &str,
        name: &str,
    ) -> Result<Vec<Result<Option<Copy>, StoreError>>, StoreError> {
        let copies = self.replicas.iter().map(async |replica| {
            let key = record_key(replica, kind, name);
            let row = self.store.get(&CALL, NamespaceId::SYSTEM, &key).await?;
            Ok(row.and_then(|row| parse(&row.value.bytes, row.version)))
        });
        let copies: Vec<Result<_, StoreError>> = join_all(copies).await;
        match copies.iter().find_map(|copy| copy.as_ref().err()) {
            Some(error) if copies.iter().all(Result::is_err) => Err(error.clone()),
            _ => Ok(copies),
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

    /// Brings a copy up to date that is still as it was found; a failure is repaired at the next
    /// load.
    async fn follow(
        &self,
        replica: &PartitionKey,
        record: (&str, &str),
        found: Option<&Copy>,
        newest: &Copy,
    ) {
        match self.write(replica, record, found, newest).await {
            Ok(()) | Err(WriteError::ConditionFailed { .. }) => {}
            Err(error) => {
                let kind = record.0;
                tracing::warn!(kind, %error, "a copy of a system record could not be written");
            }
        }
    }

    /// Writes a copy that is still as it was found.
    async fn write(
        &self,
        replica: &PartitionKey,
        (kind, name): (&str, &str),
        found: Option<&Copy>,
        copy: &Copy,
    ) -> Result<(), WriteError> {
        let condition = found.map_or(Condition::Absent, |found| {
            Condition::VersionIn(vec![found.version])
        });
        let mut bytes = Vec::new();
        bytes.put_u64(copy.generation);
        bytes.put_u8(u8::from(copy.content.is_some()));
        bytes.put_slice(copy.content.as_deref().unwrap_or_default());
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

#[cfg(test)]
mod tests;
