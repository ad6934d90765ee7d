//! Frames of version 1 as bytes: those that this build sends, and every later build must still decode.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbo_protocol::{
    Answer, AnswerWriter, Ask, Decoder, DispatcherFrame, Hello, NodeError, NodeFrame, NodeStamp,
    Outcome, PREFACE, ProtocolVersion, Refusal, Request, RequestWriter, StatusOfNode, WINDOW_LEN,
    Welcome,
};
use umbo_store::{
    Atomicity, Change, Condition, DeleteRangeRequest, Deleted, Durability, Mutation, Page,
    RangeRequest, RecordsCopy, RecordsRevision, RowBatch, RowRef, ScanPage, ScanRequest,
    ShardState, ShardStatus, SortRange, StoreError, Touched, WriteError, WriteRequest, Written,
};
use umbo_types::{
    Criticality, Key, NamespaceId, PartitionKey, RequestUnits, Row, ShardId, StoredForm, Timestamp,
    Value, Version,
};

use crate::keyed::write_of;
use crate::sending::request;

/// One frame per line: its name, then its bytes as hexadecimal digits.
const KEPT: &str = include_str!("golden/version-1.txt");

pub(crate) const STAMP: NodeStamp = NodeStamp {
    stamp_ns: 1_500_000_000,
    map_version: 7,
    records: RecordsRevision {
        epoch: 1,
        number: 300,
    },
};

pub(crate) fn key() -> Key {
    Key::new("user-1", "s").expect("it is valid")
}

fn sort_range() -> SortRange {
    SortRange {
        start: Bytes::from_static(b"a"),
        end: Some(Bytes::from_static(b"b")),
    }
}

fn copy() -> Arc<RecordsCopy> {
    Arc::new(RecordsCopy {
        revision: STAMP.records,
        fenced: vec![NamespaceId(3).into(), NamespaceId(500).into()],
        datasets: Vec::new(),
        content: Bytes::from_static(b"records"),
    })
}

fn asks() -> Vec<Ask> {
    let mutations = vec![
        Mutation {
            key: key(),
            change: Change::Put {
                value: Value::new("v", "text/plain", "gzip").expect("it is valid"),
                expires_at: Some(Timestamp(2_000_000)),
            },
            condition: Condition::VersionIn(vec![Version(9), Version(10)]),
        },
        Mutation {
            key: key(),
            change: Change::Delete,
            condition: Condition::Present,
        },
    ];
    vec![
        Ask::Get(NamespaceId(5), key()),
        Ask::MultiGet(
            NamespaceId(5),
            vec![key(), Key::new("p", "").expect("it is valid")],
        ),
        Ask::Range(RangeRequest {
            namespace: NamespaceId(5),
            partition: PartitionKey::new("p").expect("it is valid"),
            range: sort_range(),
            reverse: true,
            rows_max: 100,
            bytes_max: 2_000,
            keys_only: true,
        }),
        Ask::Scan(
            ShardId(2),
            ScanRequest {
                namespace: NamespaceId(5),
                slots: 1..=4_095,
                after: Some(key()),
                rows_max: 100,
                bytes_max: 2_000,
                keys_only: false,
            },
        ),
        Ask::Write(WriteRequest {
            atomicity: Atomicity::Partition,
            durability: Durability::Async,
            ..write_of(mutations)
        }),
        Ask::DeleteRange(DeleteRangeRequest {
            namespace: NamespaceId(5),
            epoch: 0,
            partition: PartitionKey::new("p").expect("it is valid"),
            range: sort_range(),
            rows_max: 64,
            durability: Durability::Sync,
        }),
        Ask::Probe,
        Ask::ClusterMap,
        Ask::KeepRecords(copy()),
        Ask::KeptRecords,
    ]
}

fn requests() -> Vec<Request> {
    let request = |(id, ask): (u64, Ask)| Request {
        deadline_ns: (id % 2 == 0).then_some(2_500_000_000),
        criticality: Criticality::ALL[id as usize % 4],
        caller: Bytes::from_static(b"caller"),
        price: RequestUnits::from_micros(1_500_000),
        traceparent: Bytes::from_static(if id % 2 == 0 { b"00-4bf9-00f0-01" } else { b"" }),
        ..request(id, ask)
    };
    (65_537..).zip(asks()).map(request).collect()
}

fn row() -> Row {
    Row {
        value: Value::new("v", "text/plain", "").expect("it is valid"),
        version: Version(1 << 50),
        expires_at: Some(Timestamp(2_000_000)),
    }
}

fn rows() -> RowBatch {
    let mut rows = RowBatch::default();
    let row = RowRef {
        partition: b"p",
        sort: b"s",
        value: b"value",
        form: StoredForm::Plain,
        value_len: 5,
        content_type: b"text/plain",
        content_encoding: b"",
        version: Version(1 << 50),
        expires_at: Some(Timestamp(2_000_000)),
    };
    rows.push(row);
    rows.push(RowRef {
        value: b"",
        value_len: 900,
        expires_at: None,
        ..row
    });
    rows
}

fn errors() -> Vec<NodeError> {
    let (shard, reason) = (ShardId(2), "why".to_owned());
    let outcome = umbo_store::Outcome::Unknown;
    let mut errors: Vec<NodeError> = vec![
        NodeError::NotOwner {
            shard,
            map_version: 8,
        },
        NodeError::BadRequest(reason.clone()),
        NodeError::Unsupported,
    ];
    errors.extend(
        [
            StoreError::Unavailable {
                shard,
                reason: reason.clone(),
                outcome,
            },
            StoreError::Full {
                shard,
                outcome: umbo_store::Outcome::Applied,
            },
            StoreError::Io {
                shard,
                reason: reason.clone(),
                outcome: umbo_store::Outcome::NotApplied,
            },
            StoreError::Corrupt { shard, reason },
            StoreError::QueueFull { shard },
            StoreError::NodeBusy { shard },
            StoreError::DeadlinePassed { shard },
            StoreError::NamespaceGone {
                shard,
                namespace: NamespaceId(300),
            },
            StoreError::Closing,
        ]
        .map(NodeError::Store),
    );
    errors
}

fn outcomes() -> Vec<Outcome> {
    let status = ShardStatus {
        state: ShardState::ReadOnly("full".to_owned()),
        rows: 1_000,
        file_bytes: 1 << 20,
        queued: 1,
        commits: 2,
        mutations: 3,
        reclaimed: 4,
        purging: 5,
        expired: 6,
        namespace_max: NamespaceId(7),
        ..ShardStatus::new(ShardId(2), ShardState::Available)
    };
    let written = Written::new(Version(1 << 50), true);
    let failed = WriteError::ConditionFailed {
        current: Some(Version(9)),
    };
    let mut results = vec![
        Ok(Ok(written)),
        Ok(Err(failed)),
        Ok(Err(WriteError::ConditionFailed { current: None })),
        Ok(Err(WriteError::GroupAborted { index: 3 })),
    ];
    results.extend(errors().into_iter().map(Err));
    vec![
        Outcome::Row(None),
        Outcome::Row(Some(row())),
        Outcome::MultiGot(vec![Ok(Some(row())), Ok(None), Err(NodeError::Unsupported)]),
        Outcome::Page(Page {
            rows: rows(),
            resume_after: Some(Bytes::from_static(b"s")),
            touched: TOUCHED,
        }),
        Outcome::Scanned(ScanPage {
            rows: rows(),
            resume_after: Some(key()),
            touched: TOUCHED,
        }),
        Outcome::Written(results),
        Outcome::Deleted(Deleted {
            rows: 3,
            bytes: 40,
            resume_after: None,
        }),
        Outcome::Status(StatusOfNode {
            map_version: 7,
            wall: None,
            shards: vec![status],
        }),
        Outcome::ClusterMap("version = 7".to_owned()),
        Outcome::RecordsKept(vec![
            (ShardId(0), Ok(())),
            (ShardId(1), Err(NodeError::Store(StoreError::Closing))),
        ]),
        Outcome::KeptRecords(None),
        Outcome::KeptRecords(Some(copy())),
        Outcome::Failed(NodeError::Unsupported),
    ]
}

const TOUCHED: Touched = Touched {
    rows: 1,
    bytes: 300,
};

fn answers() -> Vec<Answer> {
    let answer = |(id, outcome): (u64, Outcome)| Answer {
        id,
        service_time: Duration::from_micros(12),
        busy_time: Duration::from_micros(12),
        has_more: id % 2 == 0,
        rows: TOUCHED.rows,
        bytes: TOUCHED.bytes,
        outcome,
    };
    (65_537..).zip(outcomes()).map(answer).collect()
}

fn hello() -> Hello {
    Hello {
        version_min: ProtocolVersion(1),
        version_max: ProtocolVersion(1),
        cluster_id: "c".to_owned(),
        node: "n".to_owned(),
        map_version: 7,
        records: STAMP.records,
        incarnation: 0x1122_3344_5566_7788,
        window: WINDOW_LEN as u32,
        software: "umbo".to_owned(),
    }
}

fn welcomes() -> [Welcome; 2] {
    let welcome = hello().welcome("c", "n", 7);
    let refusal = Some(Refusal::OtherCluster("why".to_owned()));
    [welcome.clone(), Welcome { refusal, ..welcome }]
}

/// All frames that this build sends, by name.
fn sent() -> Vec<(&'static str, Vec<u8>)> {
    let window = WINDOW_LEN as u32;
    let mut frames = Vec::new();
    let mut add = |name, write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        frames.push((name, out));
    };
    add("hello", &|out| RequestWriter::hello(out, &hello()));
    add("requests", &|out| {
        let mut writer = RequestWriter::new(window);
        for request in requests() {
            writer.push(&(&request).into());
        }
        writer.fill(out);
    });
    add("cancel-credit-ping", &|out| {
        let mut writer = RequestWriter::new(window);
        writer.cancel(65_537, umbo_protocol::Placed::Small(0));
        writer.grant(1 << 20);
        writer.ping();
        writer.fill(out);
    });
    let [welcome, refused] = welcomes();
    add("welcome", &|out| {
        AnswerWriter::welcome(out, &STAMP, &welcome);
    });
    add("refused", &|out| {
        AnswerWriter::welcome(out, &STAMP, &refused);
    });
    add("answers", &|out| {
        let mut writer = AnswerWriter::new(window);
        for answer in answers() {
            writer.push(&answer);
        }
        writer.fill(out, || STAMP);
    });
    add("credit-pong-draining", &|out| {
        let mut writer = AnswerWriter::new(window);
        writer.grant(1 << 20);
        writer.pong();
        writer.draining();
        writer.fill(out, || STAMP);
    });
    frames
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |digit: u8| char::from_digit(digit.into(), 16).expect("it is below 16");
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(digit).collect()
}

/// Returns the bytes of a frame that is kept as text.
pub(crate) fn frame_of(kept: &str, name: &str) -> Vec<u8> {
    let line = kept
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let digits = line.unwrap_or_else(|| panic!("{name} is not kept"));
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("it is valid");
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn this_build_sends_what_version_1_sends() {
    let lines = sent().into_iter();
    let lines: Vec<_> = lines
        .map(|(name, bytes)| [name, &hex(&bytes)].join(" "))
        .collect();
    let kept: Vec<_> = KEPT
        .lines()
        .filter(|line| !line.starts_with("mail") && !line.starts_with("quotas"))
        .collect();
    assert_eq!(lines, kept, "frames of version 1 must not change");
}

#[test]
fn this_build_reads_what_version_1_sent() {
    let mut decoder = Decoder::of_dispatcher();
    for name in [
        "hello",
        "requests",
        "quotas-requests",
        "mail-requests",
        "cancel-credit-ping",
    ] {
        decoder.buffer().extend_from_slice(&frame_of(KEPT, name));
    }
    assert_eq!(decoder.buffer()[..8], PREFACE);
    let mut next = || decoder.next_frame().unwrap().map(|frame| frame.body);
    assert!(matches!(next(), Some(DispatcherFrame::Hello(read)) if read == hello()));
    // The second ones are of an earlier release, whose nodes counted quotas.
    for _ in 0..2 {
        let Some(DispatcherFrame::Requests(batch)) = next() else {
            panic!("no requests")
        };
        let read: Vec<_> = batch.map(Result::unwrap).collect();
        assert_eq!(read, requests());
    }
    let Some(DispatcherFrame::Requests(batch)) = next() else {
        panic!("no mail")
    };
    // Of an earlier release: it is read to be refused.
    let read: Vec<_> = batch.map(|one| one.unwrap().ask).collect();
    assert_eq!(read, [Ask::Mail, Ask::Mail, Ask::Mail]);
    assert!(matches!(next(), Some(DispatcherFrame::Ping)));
    assert!(matches!(next(), Some(DispatcherFrame::Credit(len)) if len == 1 << 20));
    assert!(matches!(next(), Some(DispatcherFrame::Cancel(ids)) if ids == [65_537]));
    assert!(next().is_none());

    let mut decoder = Decoder::of_node();
    for name in [
        "welcome",
        "refused",
        "answers",
        "quotas-answers",
        "mail-signal",
        "credit-pong-draining",
    ] {
        decoder.buffer().extend_from_slice(&frame_of(KEPT, name));
    }
    let mut next = || {
        let (stamp, body) = decoder.next_frame().unwrap()?.body;
        assert_eq!(stamp, STAMP);
        Some(body)
    };
    for welcome in welcomes() {
        assert!(matches!(next(), Some(NodeFrame::Welcome(read)) if read == welcome));
    }
    let Some(NodeFrame::Answers(batch)) = next() else {
        panic!("no answers")
    };
    let read: Vec<_> = batch.map(Result::unwrap).collect();
    assert_eq!(read, answers());
    let Some(NodeFrame::Answers(batch)) = next() else {
        panic!("no answers of an earlier release")
    };
    // A quota that is spent at a node is a shard that cannot be asked.
    let spent = batch
        .map(Result::unwrap)
        .filter(|answer| !read.contains(answer));
    let spent: Vec<_> = spent.map(|answer| answer.outcome).collect();
    let [Outcome::Written(writes)] = &spent[..] else {
        panic!("other answers differ: {spent:?}")
    };
    let refusal = NodeError::Store(StoreError::Unavailable {
        shard: ShardId(2),
        reason: "why".to_owned(),
        outcome: umbo_store::Outcome::NotApplied,
    });
    assert!(writes.contains(&Err(refusal)), "{writes:?}");
    assert!(matches!(next(), Some(NodeFrame::Skipped)));
    assert!(matches!(next(), Some(NodeFrame::Pong)));
    assert!(matches!(next(), Some(NodeFrame::Draining)));
    assert!(matches!(next(), Some(NodeFrame::Credit(len)) if len == 1 << 20));
    assert!(next().is_none());
}
