//! Writes whose repetitions are recognised, and increments: their frames as bytes, and random ones. A node that does not
//! know them refuses them, because their fields must not be ignored.

use std::time::Duration;

use bytes::Bytes;
use proptest::option;
use proptest::prelude::*;
use umbo_protocol::{
    Answer, AnswerWriter, Ask, Decoder, DispatcherFrame, NodeFrame, Outcome, PREFACE, Request,
    RequestWriter, WINDOW_LEN,
};
use umbo_store::{
    Atomicity, Change, Condition, DIGEST_LEN, Durability, Idempotency, Mutation, WriteError,
    WriteRequest, Written,
};
use umbo_types::{Criticality, NamespaceId, RequestUnits, Timestamp, Version};

use crate::golden::{STAMP, frame_of, hex, key};

/// One frame per line, as in the file beside it.
const KEPT: &str = include_str!("golden/version-1-keyed.txt");

pub(crate) fn write_of(mutations: Vec<Mutation>) -> WriteRequest {
    WriteRequest {
        namespace: NamespaceId(5),
        epoch: 0,
        mutations,
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version(1 << 50),
        idempotency: None,
        not_before: None,
        run: None,
    }
}

/// Writes whose repetitions are recognised, and increments: a node that does not know them refuses them.
fn keyed_requests() -> Vec<Request> {
    let increment = Mutation {
        key: key(),
        change: Change::Increment {
            by: -5,
            expires_at: Some(Timestamp(2_000_000)),
            default_expiry: Some(Timestamp(3_000_000)),
        },
        condition: Condition::Always,
    };
    let idempotency = Idempotency {
        id: [7; DIGEST_LEN],
        request: [9; DIGEST_LEN],
        keep_until: Timestamp(4_000_000),
        keeps_refusals: true,
        lines: vec![3],
    };
    let ask = |idempotency| {
        Ask::Write(WriteRequest {
            idempotency,
            ..write_of(vec![increment.clone()])
        })
    };
    let request = |ask| Request {
        id: 65_540,
        deadline_ns: None,
        criticality: Criticality::Critical,
        caller: Bytes::new(),
        price: RequestUnits::ZERO,
        traceparent: Bytes::new(),
        placed_as: None,
        ask,
    };
    [None, Some(idempotency)].map(ask).map(request).into()
}

fn keyed_answer() -> Answer {
    let counted = Written {
        number: Some(-5),
        ..Written::new(Version(1 << 50), true)
    };
    let replayed = Written {
        is_replayed: true,
        ..Written::new(Version(1 << 50), false)
    };
    let failed = WriteError::ConditionFailed { current: None };
    let errors = [
        WriteError::Replayed(Box::new(failed)),
        WriteError::NotANumber,
        WriteError::IncrementOverflow { current: i64::MAX },
        WriteError::IdempotencyMismatch,
        WriteError::IdempotencyFull { bytes_max: 1 << 30 },
    ];
    let written = [counted, replayed].map(|written| Ok(Ok(written)));
    let refused = errors.map(|error| Ok(Err(error)));
    Answer {
        outcome: Outcome::Written(written.into_iter().chain(refused).collect()),
        ..Answer::without_rows(
            65_537,
            Duration::from_micros(12),
            Outcome::Written(Vec::new()),
        )
    }
}

#[test]
fn this_build_sends_and_reads_what_the_first_that_had_them_sent() {
    let mut requests = Vec::new();
    let mut writer = RequestWriter::new(WINDOW_LEN as u32);
    for request in keyed_requests() {
        writer.push(&(&request).into());
    }
    writer.fill(&mut requests);
    assert_eq!(hex(&requests), hex(&frame_of(KEPT, "keyed-requests")));
    let mut answers = Vec::new();
    let mut writer = AnswerWriter::new(WINDOW_LEN as u32);
    writer.push(&keyed_answer());
    writer.fill(&mut answers, || STAMP);
    assert_eq!(hex(&answers), hex(&frame_of(KEPT, "keyed-answer")));
    let mut decoder = Decoder::of_dispatcher();
    decoder.buffer().extend_from_slice(&PREFACE);
    decoder.buffer().extend_from_slice(&requests);
    let Some(DispatcherFrame::Requests(batch)) = decoder.next_frame().unwrap().map(|one| one.body)
    else {
        panic!("no requests")
    };
    assert_eq!(
        batch.map(Result::unwrap).collect::<Vec<_>>(),
        keyed_requests()
    );
    let mut decoder = Decoder::of_node();
    decoder.buffer().extend_from_slice(&answers);
    let Some((_, NodeFrame::Answers(batch))) = decoder.next_frame().unwrap().map(|one| one.body)
    else {
        panic!("no answers")
    };
    assert_eq!(
        batch.map(Result::unwrap).collect::<Vec<_>>(),
        [keyed_answer()]
    );
}

pub(crate) fn idempotency() -> impl Strategy<Value = Idempotency> {
    (
        any::<[u8; DIGEST_LEN]>(),
        any::<[u8; DIGEST_LEN]>(),
        any::<u64>(),
        any::<bool>(),
    )
        .prop_map(|(id, request, keep_until, keeps_refusals)| Idempotency {
            id,
            request,
            keep_until: Timestamp(keep_until),
            keeps_refusals,
            lines: Vec::new(),
        })
}

pub(crate) fn refusal() -> impl Strategy<Value = WriteError> {
    prop_oneof![
        option::of(any::<u64>().prop_map(Version))
            .prop_map(|current| WriteError::ConditionFailed { current }),
        any::<u32>().prop_map(|index| WriteError::GroupAborted {
            index: index as usize,
        }),
        Just(WriteError::NotANumber),
        any::<i64>().prop_map(|current| WriteError::IncrementOverflow { current }),
        Just(WriteError::IdempotencyMismatch),
        any::<u64>().prop_map(|bytes_max| WriteError::IdempotencyFull { bytes_max }),
    ]
}
