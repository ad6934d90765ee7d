//! Random requests and answers of every kind.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use umbo_protocol::{
    Answer, AnswerPart, Ask, NodeError, NodeStamp, Outcome, Request, StatusOfNode, WriteAnswer,
};
use umbo_store::{
    Atomicity, Change, Condition, DeleteRangeRequest, Deleted, Durability, FencingToken,
    Idempotency, Mutation, NamespaceSize, Page, RangeRequest, RecordsRevision, RowBatch, RowRef,
    ScanPage, ScanRequest, ShardState, ShardStatus, SortRange, StoreError, Touched, WriteError,
    WriteRequest, Written,
};
use umbo_types::{
    Criticality, Key, NamespaceId, PartitionKey, RequestUnits, Row, ShardId, StoredForm, Timestamp,
    Value, Version,
};

use crate::copies::copy;
use crate::keyed::{idempotency, refusal};

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=max).prop_map(Bytes::from)
}

fn key() -> impl Strategy<Value = Key> {
    let long = prop_oneof![9 => Just((1, 20)), 1 => Just((1_024, 2_048))];
    long.prop_flat_map(|(partition, sort)| {
        (
            vec(any::<u8>(), partition.min(1)..=partition.max(8)),
            bytes(sort),
        )
    })
    .prop_map(|(partition, sort)| Key::new(partition, sort).expect("a key"))
}

fn partition() -> impl Strategy<Value = PartitionKey> {
    key().prop_map(|key| key.partition)
}

fn namespace() -> impl Strategy<Value = NamespaceId> {
    any::<u32>().prop_map(NamespaceId)
}

fn shard() -> impl Strategy<Value = ShardId> {
    (0..512_u16).prop_map(ShardId)
}

fn version() -> impl Strategy<Value = Version> {
    any::<u64>().prop_map(Version)
}

fn instant() -> impl Strategy<Value = Option<Timestamp>> {
    option::of((0..u64::MAX).prop_map(Timestamp))
}

fn value() -> impl Strategy<Value = Value> {
    let len = prop_oneof![9 => 0..200_usize, 1 => 10_000..40_000_usize];
    let bytes_of = len.prop_flat_map(|len| vec(any::<u8>(), len));
    (bytes_of, "[ -~]{0,40}", "[a-z]{0,8}", any::<bool>()).prop_map(
        |(bytes, kind, encoding, is_compressed)| {
            let value = Value::new(bytes, kind, encoding).expect("a value");
            let formed = value.clone().in_form(StoredForm::Zstd);
            formed.ok().filter(|_| is_compressed).unwrap_or(value)
        },
    )
}

fn row() -> impl Strategy<Value = Row> {
    (value(), version(), instant()).prop_map(|(value, version, expires_at)| Row {
        value,
        version,
        expires_at,
    })
}

fn sort_range() -> impl Strategy<Value = SortRange> {
    (bytes(30), option::of(bytes(30))).prop_map(|(start, end)| SortRange { start, end })
}

fn durability() -> impl Strategy<Value = Durability> {
    prop_oneof![Just(Durability::Sync), Just(Durability::Async)]
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::Always),
        Just(Condition::Absent),
        Just(Condition::Present),
        vec(version(), 1..4).prop_map(Condition::VersionIn),
        any::<u64>().prop_map(|at| Condition::NotNewerThan(Timestamp(at))),
        option::of(version()).prop_map(Condition::Unwritten),
    ]
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let put = (value(), instant());
    let change = prop_oneof![
        put.prop_map(|(value, expires_at)| Change::Put { value, expires_at }),
        Just(Change::Delete),
        (any::<i64>(), instant(), instant()).prop_map(|(by, expires_at, default_expiry)| {
            Change::Increment {
                by,
                expires_at,
                default_expiry,
            }
        }),
    ];
    (key(), change, condition()).prop_map(|(key, change, condition)| Mutation {
        key,
        change,
        condition,
    })
}

fn range() -> impl Strategy<Value = RangeRequest> {
    let limits = (1..=u32::MAX, any::<u32>());
    (
        namespace(),
        partition(),
        sort_range(),
        limits,
        any::<(bool, bool)>(),
    )
        .prop_map(
            |(namespace, partition, range, (rows_max, bytes_max), (reverse, keys_only))| {
                RangeRequest {
                    namespace,
                    partition,
                    range,
                    reverse,
                    rows_max,
                    bytes_max,
                    keys_only,
                }
            },
        )
}

fn scan() -> impl Strategy<Value = Ask> {
    let limits = (1..=u32::MAX, any::<u32>(), any::<bool>());
    let slots = (0..4_096_u16, 0..4_096_u16);
    (namespace(), slots, shard(), option::of(key()), limits).prop_map(
        |(namespace, (one, other), shard, after, (rows_max, bytes_max, keys_only))| {
            let request = ScanRequest {
                namespace,
                slots: one.min(other)..=one.max(other),
                after,
                rows_max,
                bytes_max,
                keys_only,
            };
            Ask::Scan(shard, request)
        },
    )
}

fn write() -> impl Strategy<Value = WriteRequest> {
    let atomicity = prop_oneof![Just(Atomicity::None), Just(Atomicity::Partition)];
    let run = (namespace(), any::<u32>()).prop_map(|(load, number)| FencingToken { load, number });
    let (due, run) = (option::of(any::<u64>()), option::of(run));
    (
        (namespace(), any::<u32>()),
        vec(mutation(), 1..6),
        atomicity,
        durability(),
        version(),
        (option::of(idempotency()), due, run),
    )
        .prop_map(
            |((namespace, epoch), mutations, atomicity, durability, proposed, more)| {
                let (idempotency, not_before, run) = more;
                let lines = (3..).take(mutations.len()).collect();
                WriteRequest {
                    namespace,
                    epoch,
                    mutations,
                    atomicity,
                    durability,
                    proposed,
                    idempotency: idempotency.map(|one| Idempotency { lines, ..one }),
                    not_before: not_before.map(Timestamp),
                    run,
                }
            },
        )
}

fn delete_range() -> impl Strategy<Value = DeleteRangeRequest> {
    (
        (namespace(), any::<u32>()),
        partition(),
        sort_range(),
        1..=u32::MAX,
        durability(),
    )
        .prop_map(
            |((namespace, epoch), partition, range, rows_max, durability)| DeleteRangeRequest {
                namespace,
                epoch,
                partition,
                range,
                rows_max,
                durability,
            },
        )
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        (namespace(), key()).prop_map(|(namespace, key)| Ask::Get(namespace, key)),
        (namespace(), vec(key(), 1..9))
            .prop_map(|(namespace, keys)| Ask::MultiGet(namespace, keys)),
        range().prop_map(Ask::Range),
        scan(),
        write().prop_map(Ask::Write),
        delete_range().prop_map(Ask::DeleteRange),
        Just(Ask::Probe),
        Just(Ask::ClusterMap),
        copy().prop_map(|copy| Ask::KeepRecords(Arc::new(copy))),
        Just(Ask::KeptRecords),
        Just(Ask::Mail),
    ]
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    let criticality = prop_oneof![
        Just(Criticality::Sheddable),
        Just(Criticality::SheddablePlus),
        Just(Criticality::Critical),
        Just(Criticality::CriticalPlus),
    ];
    let deadline_ns = option::of(0..u64::MAX);
    let head = (any::<u64>(), deadline_ns, criticality, any::<u32>());
    (head, "[a-z]{0,12}", "[0-9a-f-]{0,55}", ask()).prop_map(
        |((id, deadline_ns, criticality, price), caller, traceparent, ask)| Request {
            id,
            deadline_ns,
            criticality,
            caller: caller.into(),
            price: RequestUnits::from_micros(price.into()),
            traceparent: traceparent.into(),
            placed_as: (id % 3 > 0).then_some(NamespaceId((id >> 8) as u32)),
            ask,
        },
    )
}

fn rows() -> impl Strategy<Value = RowBatch> {
    vec((key(), row(), any::<bool>()), 0..6).prop_map(|rows| {
        let mut batch = RowBatch::default();
        for (key, row, keys_only) in rows {
            batch.push(RowRef {
                partition: key.partition.as_bytes(),
                sort: key.sort.as_bytes(),
                value: if keys_only { &[] } else { &row.value.bytes },
                form: row.value.form,
                value_len: row.value.plain_len() as u32,
                content_type: &row.value.content_type,
                content_encoding: &row.value.content_encoding,
                version: row.version,
                expires_at: row.expires_at,
            });
        }
        batch
    })
}

fn store_error() -> impl Strategy<Value = StoreError> {
    let outcome = prop_oneof![
        Just(umbo_store::Outcome::Applied),
        Just(umbo_store::Outcome::NotApplied),
        Just(umbo_store::Outcome::Unknown),
    ];
    (shard(), ".{0,20}", outcome, any::<u32>(), 0..11_u8).prop_map(
        |(shard, reason, outcome, wait, which)| match which {
            0 => StoreError::Unavailable {
                shard,
                reason,
                outcome,
            },
            1 => StoreError::Full { shard, outcome },
            2 => StoreError::Io {
                shard,
                reason,
                outcome,
            },
            3 => StoreError::Corrupt { shard, reason },
            4 => StoreError::QueueFull { shard },
            5 => StoreError::NodeBusy { shard },
            6 => StoreError::DeadlinePassed { shard },
            7 => StoreError::NamespaceGone {
                shard,
                namespace: NamespaceId(wait),
            },
            8 => StoreError::TooEarly { shard },
            9 => StoreError::Overtaken { shard },
            _ => StoreError::Closing,
        },
    )
}

fn node_error() -> impl Strategy<Value = NodeError> {
    prop_oneof![
        4 => store_error().prop_map(NodeError::Store),
        1 => (shard(), any::<u64>())
            .prop_map(|(shard, map_version)| NodeError::NotOwner { shard, map_version }),
        1 => (shard(), ".{0,20}")
            .prop_map(|(shard, reason)| NodeError::Misplaced { shard, reason }),
        1 => ".{0,20}".prop_map(NodeError::BadRequest),
        1 => Just(NodeError::Unsupported),
    ]
}

fn part() -> impl Strategy<Value = AnswerPart> {
    prop_oneof![option::of(row()).prop_map(Ok), node_error().prop_map(Err),]
}

fn write_answer() -> impl Strategy<Value = WriteAnswer> {
    let written = (
        version(),
        any::<bool>(),
        any::<Option<i64>>(),
        any::<bool>(),
    );
    prop_oneof![
        written.prop_map(|(version, existed, number, is_replayed)| Ok(Ok(Written {
            version,
            existed,
            number,
            is_replayed,
        }))),
        refusal().prop_map(|error| Ok(Err(error))),
        refusal().prop_map(|error| Ok(Err(WriteError::Replayed(Box::new(error))))),
        node_error().prop_map(Err),
    ]
}

fn status() -> impl Strategy<Value = ShardStatus> {
    let state = prop_oneof![
        Just(ShardState::Available),
        ".{0,20}".prop_map(ShardState::ReadOnly),
        ".{0,20}".prop_map(ShardState::Unavailable),
    ];
    let sizes = option::of(vec(any::<(u32, u64, u64, u64)>(), 0..4));
    let numbers = any::<([u64; 8], u32)>();
    (shard(), state, numbers, sizes).prop_map(|(shard, state, (numbers, id), sizes)| {
        let size = |(id, rows, bytes, bytes_saved)| NamespaceSize {
            namespace: NamespaceId(id),
            rows,
            bytes,
            bytes_saved,
        };
        let [rows, file_bytes, queued, commits, more @ ..] = numbers;
        let [mutations, reclaimed, purging, expired] = more;
        ShardStatus {
            shard,
            state,
            rows,
            file_bytes,
            queued,
            commits,
            mutations,
            reclaimed,
            purging,
            expired,
            namespace_max: NamespaceId(id),
            sizes: sizes.map(|sizes| sizes.into_iter().map(size).collect()),
            sizes_omitted: queued / 2,
            syncs: commits / 2,
            sync_nanos: mutations / 3,
            cache_hits: rows / 2,
            cache_misses: expired / 2,
            compactions: reclaimed / 2,
            compaction_nanos: reclaimed / 3,
            held_nanos: reclaimed / 5,
        }
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        option::of(row()).prop_map(Outcome::Row),
        vec(part(), 0..6).prop_map(Outcome::MultiGot),
        (rows(), option::of(bytes(40))).prop_map(|(rows, resume_after)| Outcome::Page(Page {
            rows,
            resume_after,
            touched: Touched::default(),
        })),
        (rows(), option::of(key())).prop_map(|(rows, after)| Outcome::Scanned(ScanPage {
            rows,
            resume_after: after,
            touched: Touched::default(),
        })),
        vec(write_answer(), 0..6).prop_map(Outcome::Written),
        (any::<u64>(), any::<u64>(), option::of(bytes(40))).prop_map(
            |(rows, bytes, resume_after)| Outcome::Deleted(Deleted {
                rows,
                bytes,
                resume_after
            })
        ),
        vec(
            (
                shard(),
                prop_oneof![Just(Ok(())), node_error().prop_map(Err)]
            ),
            0..4
        )
        .prop_map(Outcome::RecordsKept),
        option::of(copy().prop_map(Arc::new)).prop_map(Outcome::KeptRecords),
        (any::<u64>(), vec(status(), 0..4)).prop_map(|(map_version, shards)| {
            let wall = (map_version % 2 > 0).then_some(Timestamp(map_version));
            Outcome::Status(StatusOfNode {
                map_version,
                wall,
                shards,
            })
        }),
        ".{0,60}".prop_map(Outcome::ClusterMap),
        node_error().prop_map(Outcome::Failed),
    ]
}

pub(crate) fn answer() -> impl Strategy<Value = Answer> {
    let head = (any::<[u64; 4]>(), option::of(any::<u64>()), any::<bool>());
    (head, outcome()).prop_map(
        |(([id, nanos, rows, bytes], busy, has_more), mut outcome)| {
            match &mut outcome {
                Outcome::Page(page) => page.touched = Touched { rows, bytes },
                Outcome::Scanned(page) => page.touched = Touched { rows, bytes },
                _ => {}
            }
            Answer {
                id,
                service_time: Duration::from_nanos(nanos),
                busy_time: Duration::from_nanos(busy.unwrap_or(nanos)),
                has_more,
                rows,
                bytes,
                outcome,
            }
        },
    )
}

pub(crate) fn stamp() -> impl Strategy<Value = NodeStamp> {
    any::<[u64; 4]>().prop_map(|[stamp_ns, map_version, epoch, number]| NodeStamp {
        stamp_ns,
        map_version,
        records: RecordsRevision { epoch, number },
    })
}
