//! Requests to messages and back. What comes back keeps to the limits of the data model.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbo_routing::SLOTS;
use umbo_store::{
    Atomicity, Change, Condition, DeleteRangeRequest, Durability, Mutation, RangeRequest,
    ScanPosition, ScanRequest, SortRange, WriteRequest,
};
use umbo_types::{
    Names, NamespaceId, PartitionKey, RequestUnits, ShardId, Timestamp, Value, Version, limits,
};

use super::{bad, criticality, criticality_of, instant, key, key_of, some};
use crate::error::DecodeError;
use crate::message;
use crate::request::{Ask, Request, RequestRef};

/// Longest name of a user, session or organisation, in bytes.
const NAME_LEN_MAX: usize = 1_024;

pub(crate) fn encode(request: &RequestRef<'_>) -> message::Request {
    let bytes = |bytes: &[u8]| some(Bytes::copy_from_slice(bytes));
    let timeout = request.timeout;
    message::Request {
        id: request.id,
        timeout_us: timeout.map(|left| u64::try_from(left.as_micros()).unwrap_or(u64::MAX)),
        criticality: criticality(request.criticality),
        caller: bytes(request.caller),
        price_micro_ru: request.price.as_micros(),
        traceparent: bytes(request.traceparent),
        is_continued: request.is_continued,
        names: request.names.map(|one| Box::new(names(one))),
        ask: Some(ask(request.ask.clone())),
    }
}

pub(crate) fn decode(request: message::Request) -> Result<Request, DecodeError> {
    let id = request.id;
    let asked = request.ask.ok_or(DecodeError::UnknownKind { id })?;
    Ok(Request {
        id,
        timeout: request.timeout_us.map(Duration::from_micros),
        criticality: criticality_of(request.criticality)?,
        caller: request.caller.unwrap_or_default(),
        price: RequestUnits::from_micros(request.price_micro_ru),
        traceparent: request.traceparent.unwrap_or_default(),
        is_continued: request.is_continued,
        names: request.names.map(|names| names_of(*names)).transpose()?,
        ask: ask_of(asked)?,
    })
}

fn names(names: &Names) -> message::Names {
    let bytes = |name: &Option<Box<str>>| {
        let name = name.as_deref();
        name.map(|name| Bytes::copy_from_slice(name.as_bytes()))
    };
    message::Names {
        user: bytes(&names.user),
        session: bytes(&names.session),
        org: bytes(&names.org),
    }
}

fn names_of(names: message::Names) -> Result<Arc<Names>, DecodeError> {
    let text = |name: Option<Bytes>| {
        let Some(name) = name else { return Ok(None) };
        if name.len() > NAME_LEN_MAX {
            return Err(bad("names", &format!("a name of {} bytes", name.len())));
        }
        let text = std::str::from_utf8(&name).map_err(|error| bad("names", &error))?;
        Ok(Some(text.into()))
    };
    Ok(Arc::new(Names {
        user: text(names.user)?,
        session: text(names.session)?,
        org: text(names.org)?,
    }))
}

fn ask(ask: Ask) -> message::Ask {
    match ask {
        Ask::Get(namespace, key) => message::Ask::Get(message::Get {
            namespace: namespace.0,
            partition: key.partition.into_bytes(),
            sort: some(key.sort.into_bytes()),
        }),
        Ask::MultiGet(namespace, keys) => message::Ask::MultiGet(message::MultiGet {
            namespace: namespace.0,
            keys: keys.into_iter().map(key).collect(),
        }),
        Ask::Range(request) => message::Ask::Range(message::Range {
            namespace: request.namespace.0,
            partition: request.partition.into_bytes(),
            range: Some(sort_range(request.range)),
            reverse: request.reverse,
            rows_max: request.rows_max,
            bytes_max: request.bytes_max,
            keys_only: request.keys_only,
        }),
        Ask::Scan(request) => message::Ask::Scan(message::Scan {
            namespace: request.namespace.0,
            first_slot: u32::from(*request.slots.start()),
            last_slot: u32::from(*request.slots.end()),
            shard: request.shard.map_or(u32::MAX, |shard| shard.0.into()),
            after: request.after.map(|after| key(after.key)),
            rows_max: request.rows_max,
            bytes_max: request.bytes_max,
            keys_only: request.keys_only,
        }),
        Ask::Write(request) => message::Ask::Write(message::Write {
            namespace: request.namespace.0,
            mutations: request.mutations.into_iter().map(mutation).collect(),
            is_atomic: request.atomicity == Atomicity::Partition,
            is_async: request.durability == Durability::Async,
            proposed: request.proposed.0,
        }),
        Ask::DeleteRange(request) => message::Ask::DeleteRange(message::DeleteRange {
            namespace: request.namespace.0,
            partition: request.partition.into_bytes(),
            range: Some(sort_range(request.range)),
            rows_max: request.rows_max,
            is_async: request.durability == Durability::Async,
        }),
        Ask::Purge(namespace, rows_max) => message::Ask::Purge(message::Purge {
            namespace: namespace.0,
            rows_max,
        }),
        Ask::Cancel(id) => message::Ask::Cancel(id),
        Ask::Probe => message::Ask::Probe(message::Empty {}),
        Ask::ClusterMap => message::Ask::ClusterMap(message::Empty {}),
    }
}

fn ask_of(ask: message::Ask) -> Result<Ask, DecodeError> {
    Ok(match ask {
        message::Ask::Get(get) => Ask::Get(
            NamespaceId(get.namespace),
            key_of(message::Key {
                partition: get.partition,
                sort: get.sort,
            })?,
        ),
        message::Ask::MultiGet(get) => {
            if get.keys.len() > limits::MULTI_GET_KEYS_MAX {
                return Err(bad("keys", &get.keys.len()));
            }
            let keys = get.keys.into_iter().map(key_of);
            Ask::MultiGet(NamespaceId(get.namespace), keys.collect::<Result<_, _>>()?)
        }
        message::Ask::Range(range) => Ask::Range(RangeRequest {
            namespace: NamespaceId(range.namespace),
            partition: partition(range.partition)?,
            range: sort_range_of(range.range)?,
            reverse: range.reverse,
            rows_max: rows_max(range.rows_max)?,
            bytes_max: range.bytes_max,
            keys_only: range.keys_only,
        }),
        message::Ask::Scan(scan) => Ask::Scan(scan_of(scan)?),
        message::Ask::Write(write) => Ask::Write(write_of(write)?),
        message::Ask::DeleteRange(removal) => Ask::DeleteRange(DeleteRangeRequest {
            namespace: NamespaceId(removal.namespace),
            partition: partition(removal.partition)?,
            range: sort_range_of(removal.range)?,
            rows_max: rows_max(removal.rows_max)?,
            durability: durability(removal.is_async),
        }),
        message::Ask::Purge(purge) => {
            Ask::Purge(NamespaceId(purge.namespace), rows_max(purge.rows_max)?)
        }
        message::Ask::Cancel(id) => Ask::Cancel(id),
        message::Ask::Probe(_) => Ask::Probe,
        message::Ask::ClusterMap(_) => Ask::ClusterMap,
    })
}

fn scan_of(scan: message::Scan) -> Result<ScanRequest, DecodeError> {
    let slot = |slot: u32| {
        let found = u16::try_from(slot).ok().filter(|&slot| slot < SLOTS);
        found.ok_or_else(|| bad("slot", &slot))
    };
    let shard = u16::try_from(scan.shard).map_err(|_| bad("shard", &scan.shard))?;
    let shard = ShardId(shard);
    let after = scan.after.map(key_of).transpose()?;
    Ok(ScanRequest {
        namespace: NamespaceId(scan.namespace),
        slots: slot(scan.first_slot)?..=slot(scan.last_slot)?,
        shard: Some(shard),
        after: after.map(|key| ScanPosition { shard, key }),
        rows_max: rows_max(scan.rows_max)?,
        bytes_max: scan.bytes_max,
        keys_only: scan.keys_only,
    })
}

fn write_of(write: message::Write) -> Result<WriteRequest, DecodeError> {
    let mutations = write.mutations;
    if mutations.is_empty() || mutations.len() > limits::BATCH_ROWS_MAX {
        return Err(bad("mutations", &mutations.len()));
    }
    let mutations = mutations.into_iter().map(mutation_of);
    Ok(WriteRequest {
        namespace: NamespaceId(write.namespace),
        mutations: mutations.collect::<Result<_, _>>()?,
        atomicity: if write.is_atomic {
            Atomicity::Partition
        } else {
            Atomicity::None
        },
        durability: durability(write.is_async),
        proposed: Version(write.proposed),
    })
}

fn mutation(mutation: Mutation) -> message::Mutation {
    let (condition, versions) = match mutation.condition {
        Condition::Always => (0, Vec::new()),
        Condition::Absent => (1, Vec::new()),
        Condition::Present => (2, Vec::new()),
        Condition::VersionIn(versions) => (3, versions.iter().map(|version| version.0).collect()),
    };
    let put = match mutation.change {
        Change::Put { value, expires_at } => Some(message::Put {
            value: some(value.bytes),
            content_type: some(value.content_type),
            content_encoding: some(value.content_encoding),
            expires_at_us: instant(expires_at),
        }),
        Change::Delete => None,
    };
    message::Mutation {
        partition: mutation.key.partition.into_bytes(),
        sort: some(mutation.key.sort.into_bytes()),
        put,
        condition,
        versions,
    }
}

fn mutation_of(mutation: message::Mutation) -> Result<Mutation, DecodeError> {
    let key = key_of(message::Key {
        partition: mutation.partition,
        sort: mutation.sort,
    })?;
    let condition = match mutation.condition {
        0 => Condition::Always,
        1 => Condition::Absent,
        2 => Condition::Present,
        3 => Condition::VersionIn(mutation.versions.into_iter().map(Version).collect()),
        other => return Err(bad("condition", &other)),
    };
    let change = match mutation.put {
        Some(put) => Change::Put {
            value: Value::new(
                put.value.unwrap_or_default(),
                put.content_type.unwrap_or_default(),
                put.content_encoding.unwrap_or_default(),
            )
            .map_err(|error| bad("value", &error))?,
            expires_at: put.expires_at_us.map(Timestamp),
        },
        None => Change::Delete,
    };
    Ok(Mutation {
        key,
        change,
        condition,
    })
}

fn sort_range(range: SortRange) -> message::SortRange {
    message::SortRange {
        start: some(range.start),
        end: range.end,
    }
}

/// Bounds may be a byte longer than a sort key: see [`SortRange`].
fn sort_range_of(range: Option<message::SortRange>) -> Result<SortRange, DecodeError> {
    let range = range.unwrap_or_default();
    let start = range.start.unwrap_or_default();
    let longest = start.len().max(range.end.as_ref().map_or(0, Bytes::len));
    if longest > limits::SORT_KEY_LEN_MAX + 1 {
        return Err(bad("range", &format!("a bound of {longest} bytes")));
    }
    Ok(SortRange {
        start,
        end: range.end,
    })
}

fn partition(bytes: Bytes) -> Result<PartitionKey, DecodeError> {
    PartitionKey::new(bytes).map_err(|error| bad("partition", &error))
}

fn rows_max(rows: u32) -> Result<u32, DecodeError> {
    if rows == 0 {
        return Err(bad("rows_max", &rows));
    }
    Ok(rows)
}

const fn durability(is_async: bool) -> Durability {
    if is_async {
        Durability::Async
    } else {
        Durability::Sync
    }
}
