//! What is written and read straight is what prost writes and reads.

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use umbo_types::Criticality;

use super::*;
use crate::convert::{answers, requests};
use crate::frame::push_entry;
use crate::message;

fn bytes(len_max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..len_max).prop_map(Bytes::from)
}

/// Numbers of all lengths.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..=64_u32).prop_map(|(number, bits)| number.checked_shr(bits).unwrap_or(0))
}

fn request() -> impl Strategy<Value = Request> {
    let key = (vec(any::<u8>(), 1..300), bytes(300))
        .prop_map(|(partition, sort)| Key::new(partition, sort).unwrap());
    let call = (
        number(),
        proptest::option::of(number()),
        0..4_usize,
        number(),
    );
    (call, bytes(200), bytes(60), any::<u32>(), key).prop_map(
        |((id, timeout, tier, price), caller, traceparent, namespace, key)| Request {
            id,
            timeout: timeout.map(Duration::from_micros),
            criticality: Criticality::ALL[tier],
            caller,
            price: RequestUnits::from_micros(price),
            traceparent,
            is_continued: false,
            names: None,
            ask: Ask::Get(NamespaceId(namespace), key),
        },
    )
}

fn answer() -> impl Strategy<Value = Answer> {
    let value = (bytes(40_000), bytes(60), bytes(20)).prop_filter_map(
        "a value within bounds",
        |(bytes, content_type, content_encoding)| {
            Value::new(bytes, content_type, content_encoding).ok()
        },
    );
    let row = (value, number(), proptest::option::of(number())).prop_map(
        |(value, version, expires_at)| Row {
            value,
            version: Version(version),
            expires_at: expires_at.map(Timestamp),
        },
    );
    let told = (number(), number(), any::<bool>(), number(), number());
    (told, proptest::option::of(row)).prop_map(|((id, took, has_more, rows, bytes), row)| Answer {
        id,
        service_time: Duration::from_nanos(took),
        has_more,
        rows,
        bytes,
        outcome: Outcome::Row(row),
    })
}

/// A frame of one entry, straight; the same by prost; and where the entry lies.
fn request_frame(request: &Request) -> (Bytes, Bytes, Range<usize>) {
    let (mut straight, mut by_prost) = (BytesMut::new(), BytesMut::new());
    let Ask::Get(namespace, key) = &request.ask else {
        unreachable!("only gets are made here")
    };
    push_get(&mut straight, &request.into(), *namespace, key);
    push_entry(&mut by_prost, &requests::encode(&request.into()));
    let lies = entry(&straight, 0).unwrap();
    (straight.freeze(), by_prost.freeze(), lies)
}

fn answer_frame(answer: &Answer) -> (Bytes, Bytes, Range<usize>) {
    let (mut straight, mut by_prost) = (BytesMut::new(), BytesMut::new());
    let Outcome::Row(row) = &answer.outcome else {
        unreachable!("only rows are made here")
    };
    push_row(&mut straight, answer, row.as_ref());
    push_entry(&mut by_prost, &answers::encode(answer.clone()));
    let lies = entry(&straight, 0).unwrap();
    (straight.freeze(), by_prost.freeze(), lies)
}

fn request_by_prost(bytes: Bytes) -> Option<Request> {
    requests::decode(message::Request::decode(bytes).ok()?).ok()
}

fn answer_by_prost(bytes: Bytes) -> Option<Answer> {
    answers::decode(message::Answer::decode(bytes).ok()?).ok()
}

/// Bytes with some of them changed, cut off or repeated.
fn harmed(bytes: &[u8], harm: &[(prop::sample::Index, u8)], cut: prop::sample::Index) -> Bytes {
    let mut bytes = bytes.to_vec();
    for (at, byte) in harm {
        let at = at.index(bytes.len());
        bytes[at] = *byte;
    }
    bytes.truncate(cut.index(bytes.len() * 3) + 1);
    Bytes::from(bytes)
}

proptest! {
    #[test]
    fn a_get_is_written_and_read_as_by_prost(request in request()) {
        let (straight, by_prost, lies) = request_frame(&request);
        prop_assert_eq!(&straight, &by_prost);
        prop_assert_eq!(lies.end, straight.len());
        prop_assert_eq!(get(&straight, lies), Some(request));
    }

    #[test]
    fn a_row_is_written_and_read_as_by_prost(answer in answer()) {
        let (straight, by_prost, lies) = answer_frame(&answer);
        prop_assert_eq!(&straight, &by_prost);
        prop_assert_eq!(lies.end, straight.len());
        let read = row(&straight, lies);
        // A part of a longer answer is left to prost.
        prop_assert_eq!(read, (!answer.has_more).then_some(answer));
    }

    #[test]
    fn a_harmed_get_is_read_as_by_prost_or_left_to_it(
        request in request(),
        harm in vec(any::<(prop::sample::Index, u8)>(), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let (frame, _, lies) = request_frame(&request);
        let entry = harmed(&frame[lies], &harm, cut);
        if let Some(read) = get(&entry, 0..entry.len()) {
            prop_assert_eq!(Some(read), request_by_prost(entry));
        }
    }

    #[test]
    fn a_harmed_row_is_read_as_by_prost_or_left_to_it(
        answer in answer(),
        harm in vec(any::<(prop::sample::Index, u8)>(), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let (frame, _, lies) = answer_frame(&answer);
        let entry = harmed(&frame[lies], &harm, cut);
        if let Some(read) = row(&entry, 0..entry.len()) {
            prop_assert_eq!(Some(read), answer_by_prost(entry));
        }
    }

    #[test]
    fn numbers_of_any_bytes_are_read_as_by_prost(bytes in vec(any::<u8>(), 0..12)) {
        let read = Fields::new(&bytes, 0..bytes.len()).varint();
        let by_prost = prost::encoding::decode_varint(&mut &bytes[..]).ok();
        prop_assert_eq!(read, by_prost);
    }
}

#[test]
fn what_is_no_entry_ends_the_walk() {
    // A field of another number, a length beyond the end, nothing.
    for bytes in [&[0x0a, 0x00][..], &[0x12, 0x05, 0x00], &[0x12], &[]] {
        assert_eq!(entry(bytes, 0), None);
    }
    assert_eq!(entry(&[0x12, 0x01, 0x00, 0x12, 0x00], 3), Some(5..5));
}

#[test]
fn small_values_do_not_keep_their_frame() {
    let answer = Answer {
        id: 1,
        service_time: Duration::ZERO,
        has_more: false,
        rows: 1,
        bytes: 3,
        outcome: Outcome::Row(Some(Row {
            value: Value::new("abc", "", "").unwrap(),
            version: Version(7),
            expires_at: None,
        })),
    };
    let (frame, _, lies) = answer_frame(&answer);
    let Some(Outcome::Row(Some(row))) = row(&frame, lies).map(|answer| answer.outcome) else {
        unreachable!("it is a row")
    };
    let within = frame.as_ptr_range();
    assert!(!within.contains(&row.value.bytes.as_ptr()));
}
