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
use umbo_types::{Criticality, Key, RequestUnits, ShardId, Version};

use super::chunks::{chunk, put_chunk};
use super::field::{
    Field, OptionalFields, fields, kinds, option, optional_fields, put_maybe, put_option,
    read_positive,
};
use super::idempotency::{idempotency, put_idempotency};
use super::records::{DATASETS_LEN, OF_REQUEST, put_parts, set_part};
use crate::error::DecodeError;
use crate::request::{Ask, Request, RequestRef};
use crate::wire::{REQUIRED_TAG, Reader, bad, put_bytes, put_nested, put_optional, put_varint};

kinds!(
    Ask {
        1 => Get(namespace, key),
        2 => MultiGet(namespace, keys),
        3 => Range(request),
        5 => Write(request),
        6 => DeleteRange(request),
        7 => Probe,
        8 => ClusterMap,
        9 => KeepRecords(copy),
        10 => KeptRecords,
        11 => Mail,
        15 => Backup(request),
    }
    by hand { 4 => Scan, 14 => Chunk }
);
const SCAN: u8 = 4;
/// Mail of a dispatcher of an earlier release with content, as 11 is mail without. No later kind may have these numbers.
const LETTERS: u8 = 12;
const QUESTION: u8 = 13;
const CHUNK: u8 = 14;

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
/// Optional field of a request for a dataset: the namespace that the dispatcher used to place it. A node that does not
/// know this field places the dataset by its own knowledge, as before.
const PLACED_AS: u8 = 7;
/// Optional field of a write: when it is due. A node that does not know this field would make an irreversible change
/// too early.
const NOT_BEFORE: u8 = REQUIRED_TAG | 9;
/// Optional field of a write: the run of a load that makes it. A node that does not know this field begins the writes
/// of all runs, as before.
const RUN: u8 = 8;

/// Bits of ranges and scans.
const REVERSE: u8 = 1;
const KEYS_ONLY: u8 = 2;
/// Bits of writes.
const IS_ATOMIC: u8 = 1;
const IS_ASYNC: u8 = 2;

pub(crate) fn put_request(out: &mut Vec<u8>, request: &RequestRef<'_>) {
    put_varint(out, request.id);
    out.push(request.ask.kind());
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
    match request.ask {
        Ask::Scan(shard, scan) => put_scan(out, *shard, scan),
        Ask::Chunk(key, chunk) => put_chunk(out, key, chunk),
        ask => ask.put_fields(out),
    }
    if !request.traceparent.is_empty() {
        put_optional(out, TRACEPARENT, request.traceparent);
    }
    request.ask.put_optional_fields(out);
    put_maybe(out, PLACED_AS, request.placed_as.as_ref());
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
        | Ask::Mail => 0,
    }
}

/// Decodes the part after the id.
pub(crate) fn request(reader: &mut Reader<'_>) -> Result<Request, DecodeError> {
    let kind = reader.byte()?;
    let criticality = match reader.byte()? {
        0 => Criticality::SheddablePlus,
        1 => Criticality::Sheddable,
        2 => Criticality::Critical,
        3 => Criticality::CriticalPlus,
        other => return Err(bad("criticality", &other)),
    };
    let mut request = Request {
        id: reader.id,
        deadline_ns: reader.varint()?.checked_sub(1),
        criticality,
        price: RequestUnits::from_micros(reader.varint()?),
        caller: reader.shared()?,
        ask: match kind {
            SCAN => scan(reader)?,
            CHUNK => chunk(reader)?,
            LETTERS | QUESTION => {
                reader.raw(reader.left())?;
                Ask::Mail
            }
            kind => Ask::read_fields(kind, reader)?,
        },
        traceparent: bytes::Bytes::new(),
        placed_as: None,
    };
    while let Some((tag, field)) = reader.optional()? {
        match tag {
            TRACEPARENT => request.traceparent = Field::read_tagged(field, "traceparent")?,
            PLACED_AS => request.placed_as = Some(Field::read_tagged(field, "placed_as")?),
            // Nodes of earlier releases counted quotas.
            IS_CONTINUED | ATTRIBUTES => {}
            tag => request.ask.set_optional(tag, field)?,
        }
    }
    Ok(request)
}

impl OptionalFields for Ask {
    fn put_optional_fields(&self, out: &mut Vec<u8>) {
        match self {
            Self::Write(write) => {
                if let Some(idempotency) = &write.idempotency {
                    out.push(IDEMPOTENCY);
                    put_nested(out, |out| put_idempotency(out, idempotency));
                }
                write.put_optional_fields(out);
            }
            Self::DeleteRange(removal) => removal.put_optional_fields(out),
            Self::KeepRecords(copy) => put_parts(out, OF_REQUEST, copy),
            _ => {}
        }
    }

    fn set_optional(&mut self, tag: u8, field: Reader<'_>) -> Result<(), DecodeError> {
        match (self, tag) {
            (Self::Write(write), IDEMPOTENCY) => {
                write.idempotency = Some(idempotency(field, write.mutations.len())?);
                Ok(())
            }
            (Self::Write(write), tag) => write.set_optional(tag, field),
            (Self::DeleteRange(removal), tag) => removal.set_optional(tag, field),
            (Self::KeepRecords(copy), tag) => set_part(Arc::make_mut(copy), OF_REQUEST, tag, field),
            (_, tag) => field.ignored(tag),
        }
    }
}

optional_fields!(WriteRequest {
    NOT_BEFORE => not_before as option,
    EPOCH => epoch,
    RUN => run as option,
});
optional_fields!(DeleteRangeRequest {
    EPOCH => epoch,
});
fields!(DeleteRangeRequest {
    namespace,
    partition,
    range,
    rows_max as positive,
    durability;
    epoch: 0
});

impl Field for WriteRequest {
    fn put(&self, out: &mut Vec<u8>) {
        self.namespace.put(out);
        let is_atomic = self.atomicity == Atomicity::Partition;
        out.push(bit(is_atomic, IS_ATOMIC) | is_async(self.durability));
        self.proposed.put(out);
        self.mutations.put(out);
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let namespace = Field::read(reader, "namespace")?;
        let flags = reader.byte()?;
        let proposed = Version::read(reader, "proposed")?;
        let mutations = Vec::<Mutation>::read(reader, "mutations")?;
        if mutations.is_empty() {
            return Err(bad("mutations", &0));
        }
        Ok(Self {
            namespace,
            epoch: 0,
            mutations,
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
}

impl Field for RangeRequest {
    fn put(&self, out: &mut Vec<u8>) {
        self.namespace.put(out);
        self.partition.put(out);
        self.range.put(out);
        out.push(bit(self.reverse, REVERSE) | bit(self.keys_only, KEYS_ONLY));
        self.rows_max.put(out);
        self.bytes_max.put(out);
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let namespace = Field::read(reader, "namespace")?;
        let partition = Field::read(reader, "partition")?;
        let range = Field::read(reader, "range")?;
        let flags = reader.byte()?;
        Ok(Self {
            namespace,
            partition,
            range,
            reverse: flags & REVERSE > 0,
            keys_only: flags & KEYS_ONLY > 0,
            rows_max: read_positive(reader, "rows_max")?,
            bytes_max: Field::read(reader, "bytes_max")?,
        })
    }
}

/// The shard is among the fields of the scan.
fn put_scan(out: &mut Vec<u8>, shard: ShardId, request: &ScanRequest) {
    request.namespace.put(out);
    request.slots.start().put(out);
    request.slots.end().put(out);
    shard.put(out);
    out.push(bit(request.keys_only, KEYS_ONLY));
    request.rows_max.put(out);
    request.bytes_max.put(out);
    put_option(out, request.after.as_ref());
}

fn scan(reader: &mut Reader<'_>) -> Result<Ask, DecodeError> {
    let slot = |reader: &mut Reader<'_>| match u16::read(reader, "slot")? {
        slot if slot >= SLOTS => Err(bad("slot", &slot)),
        slot => Ok(slot),
    };
    let namespace = Field::read(reader, "namespace")?;
    let slots = slot(reader)?..=slot(reader)?;
    let shard = Field::read(reader, "shard")?;
    let keys_only = reader.byte()? & KEYS_ONLY > 0;
    let request = ScanRequest {
        namespace,
        slots,
        rows_max: read_positive(reader, "rows_max")?,
        bytes_max: Field::read(reader, "bytes_max")?,
        after: option(reader, "after")?,
        keys_only,
    };
    Ok(Ask::Scan(shard, request))
}

impl Field for Durability {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(is_async(*self));
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        reader.byte().map(durability)
    }
}

/// Returns the bit if it is set.
const fn bit(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

const fn is_async(durability: Durability) -> u8 {
    bit(matches!(durability, Durability::Async), IS_ASYNC)
}

const fn durability(flags: u8) -> Durability {
    if flags & IS_ASYNC > 0 {
        Durability::Async
    } else {
        Durability::Sync
    }
}
