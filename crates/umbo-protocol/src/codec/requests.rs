//! Requests. Decoded requests respect the limits of the data model, and share their frame's memory.
//!
//! `id, kind, criticality, deadline + 1 or 0, price, caller`, then the fields of the kind, then optional
//! fields.

use std::sync::Arc;

use umbo_store::{
    Atomicity, Change, Condition, DeleteRangeRequest, Durability, Mutation, RangeRequest,
    ScanRequest, WriteRequest,
};
use umbo_types::limits::SLOTS;
use umbo_types::{
    Criticality, Key, NamespaceId, PartitionKey, RequestUnits, ShardId, Timestamp, Version, limits,
};

use super::attributes::{attributes, put_attributes};
use super::chunks::{backup, chunk, put_backup, put_chunk};
use super::idempotency::{idempotency, put_idempotency};
use super::mail::{letters_len, mail, put_mail, put_question, question};
use super::mutations::{mutation, put_mutation, put_run, run};
use super::records::{
    DATASETS_LEN, copy, datasets, has_ranges, put_copy, put_datasets, put_ranges, ranges,
};
use super::sort_range::{put_sort_range, sort_range};
use super::{put_key, shared_key};
use crate::error::DecodeError;
use crate::request::{Ask, Request, RequestRef};
use crate::wire::{
    REQUIRED_TAG, Reader, bad, ignored, put_bytes, put_fixed, put_nested, put_optional,
    put_optional_varint, put_varint,
};

const GET: u8 = 1;
const MULTI_GET: u8 = 2;
const RANGE: u8 = 3;
const SCAN: u8 = 4;
const WRITE: u8 = 5;
const DELETE_RANGE: u8 = 6;
const PROBE: u8 = 7;
const CLUSTER_MAP: u8 = 8;
const KEEP_RECORDS: u8 = 9;
const KEPT_RECORDS: u8 = 10;
const MEMBERS: u8 = 11;
const MAIL: u8 = 12;
const QUESTION: u8 = 13;
const CHUNK: u8 = 14;
const BACKUP: u8 = 15;

/// Optional fields of a request.
const TRACEPARENT: u8 = 1;
const IS_CONTINUED: u8 = 2;
const ATTRIBUTES: u8 = 3;
/// Optional field of a write: its idempotency. A node that does not know this field must refuse the write, because it
/// would apply the write each time.
const IDEMPOTENCY: u8 = REQUIRED_TAG | 4;
/// Optional field of a write and of a removal: the epoch of its group. A node that does not know this field does not
/// know the group either, and would make the change in one dataset alone.
const EPOCH: u8 = REQUIRED_TAG | 5;
/// Optional field of a copy of the records: its dataset groups. A node that does not know them would keep a part of
/// the copy.
const DATASETS: u8 = REQUIRED_TAG | 6;
/// Optional field of a copy of the records: its fenced ranges. A node that does not know this field has heard of all
/// ids of a range already.
const RANGES: u8 = 10;
/// Optional field of a request for a dataset: the namespace that the dispatcher used to place it. A node that does not
/// know this field places the dataset by its own knowledge, as before.
const PLACED_AS: u8 = 7;
/// Optional field of a write: when it is due. A node that does not know this field would make an irreversible change
/// too early.
const NOT_BEFORE: u8 = REQUIRED_TAG | 9;
/// Optional field of a write: the run of a load that makes it. A node that does not know this field begins the writes
/// of all runs, as before.
const RUN: u8 = 8;
/// Optional field of a scan.
const AFTER: u8 = 1;

/// Bits of ranges and scans.
const REVERSE: u8 = 1;
const KEYS_ONLY: u8 = 2;
/// Bits of writes.
const IS_ATOMIC: u8 = 1;
const IS_ASYNC: u8 = 2;
/// Fewest bytes of a key and of a mutation.
const KEY_LEN_MIN: usize = 3;
const MUTATION_LEN_MIN: usize = 5;

pub(crate) fn put_request(out: &mut Vec<u8>, request: &RequestRef<'_>) {
    put_varint(out, request.id);
    out.push(kind(request.ask));
    out.push(match request.criticality {
        Criticality::SheddablePlus => 0,
        Criticality::Sheddable => 1,
        Criticality::Critical => 2,
        Criticality::CriticalPlus => 3,
    });
    put_varint(
        out,
        request.deadline_ns.map_or(0, |at| at.saturating_add(1)),
    );
    put_varint(out, request.price.as_micros());
    put_bytes(out, request.caller);
    put_ask(out, request.ask);
    if !request.traceparent.is_empty() {
        put_optional(out, TRACEPARENT, request.traceparent);
    }
    if request.is_continued {
        put_optional(out, IS_CONTINUED, &[]);
    }
    if let Ask::Write(WriteRequest {
        idempotency: Some(idempotency),
        ..
    }) = request.ask
    {
        out.push(IDEMPOTENCY);
        put_nested(out, |out| put_idempotency(out, idempotency));
    }
    if let Ask::Write(write) = request.ask
        && let Some(not_before) = write.not_before
    {
        put_optional_varint(out, NOT_BEFORE, not_before.0);
    }
    let epoch = match request.ask {
        Ask::Write(request) => request.epoch,
        Ask::DeleteRange(request) => request.epoch,
        _ => 0,
    };
    if epoch > 0 {
        put_optional_varint(out, EPOCH, epoch.into());
    }
    if let Ask::KeepRecords(copy) = request.ask
        && !copy.datasets.is_empty()
    {
        out.push(DATASETS);
        put_nested(out, |out| put_datasets(out, &copy.datasets));
    }
    if let Ask::KeepRecords(copy) = request.ask
        && has_ranges(copy)
    {
        out.push(RANGES);
        put_nested(out, |out| put_ranges(out, copy));
    }
    if let Ask::Write(WriteRequest { run: Some(run), .. }) = request.ask {
        out.push(RUN);
        put_nested(out, |out| put_run(out, *run));
    }
    if let Some(placed_as) = request.placed_as {
        put_optional_varint(out, PLACED_AS, placed_as.0.into());
    }
    if let Some(attributes) = request.attributes {
        out.push(ATTRIBUTES);
        put_nested(out, |out| put_attributes(out, attributes));
    }
}

/// Returns the approximate length of a request, so that the buffer of a large one is allocated once.
pub(crate) fn len_hint(ask: &Ask) -> usize {
    /// Length of everything but keys and values.
    const HEAD: usize = 128;
    let key = |key: &Key| key.partition.as_bytes().len() + key.sort.as_bytes().len() + 4;
    HEAD + match ask {
        Ask::MultiGet(_, keys) => keys.iter().map(key).sum(),
        Ask::Write(request) => {
            let len = |mutation: &Mutation| {
                let value = match &mutation.change {
                    Change::Put { value, .. } => {
                        value.bytes.len() + value.content_type.len() + value.content_encoding.len()
                    }
                    Change::Upload(step) => step.len(),
                    Change::Delete | Change::Increment { .. } => 0,
                };
                let versions = match &mutation.condition {
                    Condition::VersionIn(versions) => versions.len() * 8,
                    _ => 0,
                };
                key(&mutation.key) + value + versions + 24
            };
            request.mutations.iter().map(len).sum()
        }
        Ask::KeepRecords(copy) => {
            copy.content.len() + copy.fenced.len() * 4 + copy.datasets.len() * DATASETS_LEN
        }
        Ask::Get(..)
        | Ask::Chunk(..)
        | Ask::Backup(_)
        | Ask::Range(_)
        | Ask::Scan(..)
        | Ask::DeleteRange(_)
        | Ask::Probe
        | Ask::ClusterMap
        | Ask::KeptRecords
        | Ask::Members => 0,
        Ask::Mail(request) => request.about.len() + letters_len(&request.replies),
        Ask::Question(request) => request.question.len() + request.to.len() * 8,
    }
}

/// Decodes the part after the id.
pub(crate) fn request(reader: &mut Reader<'_>, id: u64) -> Result<Request, DecodeError> {
    let kind = reader.byte()?;
    let criticality = match reader.byte()? {
        0 => Criticality::SheddablePlus,
        1 => Criticality::Sheddable,
        2 => Criticality::Critical,
        3 => Criticality::CriticalPlus,
        other => return Err(bad("criticality", &other)),
    };
    let mut request = Request {
        id,
        deadline_ns: reader.varint()?.checked_sub(1),
        criticality,
        price: RequestUnits::from_micros(reader.varint()?),
        caller: reader.shared()?,
        ask: ask(kind, reader, id)?,
        traceparent: bytes::Bytes::new(),
        is_continued: false,
        attributes: None,
        placed_as: None,
    };
    while let Some((tag, mut field)) = reader.optional()? {
        match tag {
            TRACEPARENT => {
                let len = field.left();
                request.traceparent = bytes::Bytes::copy_from_slice(field.raw(len)?);
            }
            IS_CONTINUED => request.is_continued = true,
            IDEMPOTENCY => match &mut request.ask {
                Ask::Write(write) => {
                    write.idempotency = Some(idempotency(field, write.mutations.len())?);
                }
                _ => ignored(tag, id)?,
            },
            EPOCH => match &mut request.ask {
                Ask::Write(write) => write.epoch = field.u32("epoch")?,
                Ask::DeleteRange(removal) => removal.epoch = field.u32("epoch")?,
                _ => ignored(tag, id)?,
            },
            NOT_BEFORE => match &mut request.ask {
                Ask::Write(write) => write.not_before = Some(Timestamp(field.varint()?)),
                _ => ignored(tag, id)?,
            },
            DATASETS => match &mut request.ask {
                Ask::KeepRecords(copy) => {
                    Arc::make_mut(copy).datasets = datasets(field)?;
                }
                _ => ignored(tag, id)?,
            },
            RANGES => match &mut request.ask {
                Ask::KeepRecords(copy) => ranges(field, Arc::make_mut(copy))?,
                _ => ignored(tag, id)?,
            },
            PLACED_AS => request.placed_as = Some(NamespaceId(field.u32("placed_as")?)),
            RUN => match &mut request.ask {
                Ask::Write(write) => write.run = Some(run(&mut field)?),
                _ => ignored(tag, id)?,
            },
            ATTRIBUTES => request.attributes = Some(Arc::new(attributes(field, id)?)),
            tag => ignored(tag, id)?,
        }
    }
    Ok(request)
}

const fn kind(ask: &Ask) -> u8 {
    match ask {
        Ask::Get(..) => GET,
        Ask::Chunk(..) => CHUNK,
        Ask::Backup(_) => BACKUP,
        Ask::MultiGet(..) => MULTI_GET,
        Ask::Range(_) => RANGE,
        Ask::Scan(..) => SCAN,
        Ask::Write(_) => WRITE,
        Ask::DeleteRange(_) => DELETE_RANGE,
        Ask::Probe => PROBE,
        Ask::ClusterMap => CLUSTER_MAP,
        Ask::KeepRecords(_) => KEEP_RECORDS,
        Ask::KeptRecords => KEPT_RECORDS,
        Ask::Members => MEMBERS,
        Ask::Mail(_) => MAIL,
        Ask::Question(_) => QUESTION,
    }
}

fn put_ask(out: &mut Vec<u8>, ask: &Ask) {
    match ask {
        Ask::Get(namespace, key) => {
            put_varint(out, namespace.0.into());
            put_key(out, key);
        }
        Ask::Chunk(key, request) => put_chunk(out, key, request),
        Ask::Backup(request) => put_backup(out, request),
        Ask::MultiGet(namespace, keys) => {
            put_varint(out, namespace.0.into());
            put_varint(out, keys.len() as u64);
            for key in keys {
                put_key(out, key);
            }
        }
        Ask::Range(request) => {
            put_varint(out, request.namespace.0.into());
            put_bytes(out, request.partition.as_bytes());
            put_sort_range(out, &request.range);
            let reverse = if request.reverse { REVERSE } else { 0 };
            out.push(reverse | keys_only(request.keys_only));
            put_varint(out, request.rows_max.into());
            put_varint(out, request.bytes_max.into());
        }
        Ask::Scan(shard, request) => {
            put_varint(out, request.namespace.0.into());
            put_varint(out, (*request.slots.start()).into());
            put_varint(out, (*request.slots.end()).into());
            put_varint(out, shard.0.into());
            out.push(keys_only(request.keys_only));
            put_varint(out, request.rows_max.into());
            put_varint(out, request.bytes_max.into());
            put_nested(out, |out| {
                if let Some(after) = &request.after {
                    out.push(AFTER);
                    put_nested(out, |out| put_key(out, after));
                }
            });
        }
        Ask::Write(request) => put_write(out, request),
        Ask::DeleteRange(request) => {
            put_varint(out, request.namespace.0.into());
            put_bytes(out, request.partition.as_bytes());
            put_sort_range(out, &request.range);
            put_varint(out, request.rows_max.into());
            out.push(is_async(request.durability));
        }
        Ask::Probe | Ask::ClusterMap | Ask::KeptRecords | Ask::Members => {}
        Ask::Mail(request) => put_mail(out, request),
        Ask::Question(request) => put_question(out, request),
        Ask::KeepRecords(copy) => put_copy(out, copy),
    }
}

fn ask(kind: u8, reader: &mut Reader<'_>, id: u64) -> Result<Ask, DecodeError> {
    Ok(match kind {
        GET => Ask::Get(namespace(reader)?, shared_key(reader)?),
        CHUNK => chunk(reader)?,
        BACKUP => Ask::Backup(backup(reader)?),
        MULTI_GET => {
            let namespace = namespace(reader)?;
            let count = reader.count("keys", KEY_LEN_MIN)?;
            if count > limits::MULTI_GET_KEYS_MAX {
                return Err(bad("keys", &count));
            }
            let keys = (0..count).map(|_| shared_key(reader));
            Ask::MultiGet(namespace, keys.collect::<Result<_, _>>()?)
        }
        RANGE => {
            let (namespace, partition) = (namespace(reader)?, partition(reader)?);
            let range = sort_range(reader, id)?;
            let flags = reader.byte()?;
            Ask::Range(RangeRequest {
                namespace,
                partition,
                range,
                reverse: flags & REVERSE > 0,
                keys_only: flags & KEYS_ONLY > 0,
                rows_max: rows_max(reader)?,
                bytes_max: reader.u32("bytes_max")?,
            })
        }
        SCAN => scan(reader, id)?,
        WRITE => Ask::Write(write(reader, id)?),
        DELETE_RANGE => Ask::DeleteRange(DeleteRangeRequest {
            namespace: namespace(reader)?,
            epoch: 0,
            partition: partition(reader)?,
            range: sort_range(reader, id)?,
            rows_max: rows_max(reader)?,
            durability: durability(reader.byte()?),
        }),
        PROBE => Ask::Probe,
        CLUSTER_MAP => Ask::ClusterMap,
        KEEP_RECORDS => Ask::KeepRecords(Arc::new(copy(reader)?)),
        KEPT_RECORDS => Ask::KeptRecords,
        MEMBERS => Ask::Members,
        MAIL => Ask::Mail(mail(reader)?),
        QUESTION => Ask::Question(question(reader)?),
        _ => return Err(DecodeError::UnknownKind { id }),
    })
}

fn put_write(out: &mut Vec<u8>, request: &WriteRequest) {
    put_varint(out, request.namespace.0.into());
    let is_atomic = match request.atomicity {
        Atomicity::None => 0,
        Atomicity::Partition => IS_ATOMIC,
    };
    out.push(is_atomic | is_async(request.durability));
    put_fixed(out, request.proposed.0);
    put_varint(out, request.mutations.len() as u64);
    for mutation in &request.mutations {
        put_nested(out, |out| put_mutation(out, mutation));
    }
}

fn write(reader: &mut Reader<'_>, id: u64) -> Result<WriteRequest, DecodeError> {
    let namespace = namespace(reader)?;
    let flags = reader.byte()?;
    let proposed = Version(reader.fixed()?);
    let count = reader.count("mutations", MUTATION_LEN_MIN)?;
    if count == 0 || count > limits::BATCH_ROWS_MAX {
        return Err(bad("mutations", &count));
    }
    let mutations = (0..count).map(|_| mutation(reader.nested()?, id));
    Ok(WriteRequest {
        namespace,
        epoch: 0,
        mutations: mutations.collect::<Result<_, _>>()?,
        atomicity: if flags & IS_ATOMIC > 0 {
            Atomicity::Partition
        } else {
            Atomicity::None
        },
        durability: durability(flags),
        proposed,
        idempotency: None,
        not_before: None,
        run: None,
    })
}

fn scan(reader: &mut Reader<'_>, id: u64) -> Result<Ask, DecodeError> {
    let slot = |reader: &mut Reader<'_>| {
        let slot = reader.u16("slot")?;
        if slot >= SLOTS {
            return Err(bad("slot", &slot));
        }
        Ok(slot)
    };
    let namespace = namespace(reader)?;
    let slots = slot(reader)?..=slot(reader)?;
    let shard = ShardId(reader.u16("shard")?);
    let flags = reader.byte()?;
    let (rows_max, bytes_max) = (rows_max(reader)?, reader.u32("bytes_max")?);
    let (mut fields, mut after) = (reader.nested()?, None);
    while let Some((tag, mut field)) = fields.optional()? {
        match tag {
            AFTER => after = Some(shared_key(&mut field)?),
            tag => ignored(tag, id)?,
        }
    }
    let request = ScanRequest {
        namespace,
        slots,
        after,
        rows_max,
        bytes_max,
        keys_only: flags & KEYS_ONLY > 0,
    };
    Ok(Ask::Scan(shard, request))
}

fn namespace(reader: &mut Reader<'_>) -> Result<NamespaceId, DecodeError> {
    reader.u32("namespace").map(NamespaceId)
}

fn partition(reader: &mut Reader<'_>) -> Result<PartitionKey, DecodeError> {
    PartitionKey::new(reader.shared()?).map_err(|error| bad("partition", &error))
}

fn rows_max(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match reader.u32("rows_max")? {
        0 => Err(bad("rows_max", &0)),
        rows => Ok(rows),
    }
}

const fn keys_only(keys_only: bool) -> u8 {
    if keys_only { KEYS_ONLY } else { 0 }
}

const fn is_async(durability: Durability) -> u8 {
    match durability {
        Durability::Sync => 0,
        Durability::Async => IS_ASYNC,
    }
}

const fn durability(flags: u8) -> Durability {
    if flags & IS_ASYNC > 0 {
        Durability::Async
    } else {
        Durability::Sync
    }
}
