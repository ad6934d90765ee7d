//! Forms of values on the wire: kept as bytes, and never ignored by a peer that does not know them.

use std::time::Duration;

use bytes::Bytes;
use umbo_protocol::{
    Answer, AnswerWriter, Ask, DecodeError, Decoder, DispatcherFrame, NodeFrame, NodeStamp,
    Outcome, Request, RequestWriter, WINDOW_LEN,
};
use umbo_store::{
    Atomicity, Change, Condition, Durability, Mutation, Page, RecordsRevision, RowBatch, RowRef,
    Touched, WriteRequest,
};
use umbo_types::{Criticality, Key, NamespaceId, RequestUnits, Row, StoredForm, Value, Version};

/// The parts of a frame that say the form of the value of a mutation, of a row, and of the second row of a chunk.
const KEPT_OF_VALUE: [u8; 3] = [0x81, 1, 1];
const KEPT_OF_CHUNK: [u8; 7] = [0x81, 0x82, 0x80, 0x80, 0x00, 1, 1];
/// A tag of a field that must not be ignored, and that no version knows.
const UNKNOWN: u8 = 0xfe;

fn value() -> Value {
    let value = Value::new(&b"\0\0\x01\0a frame"[..], "text/plain", "").expect("it is short");
    value.in_form(StoredForm::Zstd).expect("it has a length")
}

fn request() -> Request {
    let mutation = Mutation {
        key: Key::new("p", "s").expect("it is a key"),
        change: Change::Put {
            value: value(),
            expires_at: None,
        },
        condition: Condition::Always,
    };
    Request {
        id: 7,
        deadline_ns: None,
        criticality: Criticality::SheddablePlus,
        price: RequestUnits::ZERO,
        caller: Bytes::new(),
        ask: Ask::Write(WriteRequest {
            namespace: NamespaceId(3),
            epoch: 0,
            mutations: vec![mutation],
            atomicity: Atomicity::None,
            durability: Durability::Sync,
            proposed: Version(9),
            idempotency: None,
            not_before: None,
            run: None,
        }),
        traceparent: Bytes::new(),
        placed_as: None,
    }
}

fn answer(outcome: Outcome) -> Answer {
    Answer {
        id: 7,
        service_time: Duration::from_nanos(5),
        busy_time: Duration::from_nanos(5),
        has_more: false,
        rows: 2,
        bytes: 20,
        outcome,
    }
}

fn row() -> Answer {
    answer(Outcome::Row(Some(Row {
        value: value(),
        version: Version(9),
        expires_at: None,
    })))
}

fn page() -> Answer {
    let mut rows = RowBatch::default();
    let plain = RowRef {
        partition: b"",
        sort: b"a",
        value: b"plain",
        form: StoredForm::Plain,
        value_len: 5,
        content_type: b"",
        content_encoding: b"",
        version: Version(8),
        expires_at: None,
    };
    rows.push(plain);
    rows.push(RowRef {
        sort: b"b",
        value: b"\0\0\x01\0a frame",
        form: StoredForm::Zstd,
        value_len: 256,
        ..plain
    });
    answer(Outcome::Page(Page {
        rows,
        resume_after: None,
        touched: Touched { rows: 2, bytes: 20 },
    }))
}

fn request_frame() -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = RequestWriter::new(WINDOW_LEN as u32);
    writer.push(&(&request()).into());
    writer.fill(&mut out);
    out
}

fn answer_frame(answer: &Answer) -> Vec<u8> {
    const STAMP: NodeStamp = NodeStamp {
        stamp_ns: 1,
        map_version: 1,
        records: RecordsRevision {
            epoch: 1,
            number: 1,
        },
    };
    let mut out = Vec::new();
    let mut writer = AnswerWriter::new(WINDOW_LEN as u32);
    writer.push(answer);
    writer.fill(&mut out, || STAMP);
    out
}

fn read_request(frame: &[u8]) -> Result<Request, DecodeError> {
    let mut decoder = Decoder::of_dispatcher();
    decoder.buffer().extend_from_slice(&umbo_protocol::PREFACE);
    decoder.buffer().extend_from_slice(frame);
    let frame = decoder.next_frame()?.expect("it is whole");
    let DispatcherFrame::Requests(mut batch) = frame.body else {
        panic!("no requests")
    };
    let read = batch.next().expect("there is one");
    read.map_err(|refused| refused.error)
}

fn read_answer(frame: &[u8]) -> Result<Answer, DecodeError> {
    let mut decoder = Decoder::of_node();
    decoder.buffer().extend_from_slice(frame);
    let (_, body) = decoder.next_frame()?.expect("it is whole").body;
    let NodeFrame::Answers(mut batch) = body else {
        panic!("no answers")
    };
    let read = batch.next().expect("there is one");
    read.map_err(|refused| refused.error)
}

/// Replaces the tag of a field that stands once in a frame.
fn with_unknown_tag(frame: &[u8], field: &[u8]) -> Vec<u8> {
    let places: Vec<usize> = frame
        .windows(field.len())
        .enumerate()
        .filter_map(|(at, part)| (part == field).then_some(at))
        .collect();
    assert_eq!(places.len(), 1, "the field is kept as it was");
    let mut changed = frame.to_vec();
    changed[places[0]] = UNKNOWN;
    changed
}

#[test]
fn forms_come_out_as_they_went_in() {
    assert_eq!(read_request(&request_frame()).unwrap(), request());
    for answer in [row(), page()] {
        assert_eq!(read_answer(&answer_frame(&answer)).unwrap(), answer);
    }
}

#[test]
fn a_peer_that_does_not_know_forms_refuses_what_has_one() {
    let write = with_unknown_tag(&request_frame(), &KEPT_OF_VALUE);
    let refused = read_request(&write).unwrap_err();
    assert_eq!(refused, DecodeError::UnknownKind { id: 7 });
    let row = with_unknown_tag(&answer_frame(&row()), &KEPT_OF_VALUE);
    let refused = read_answer(&row).unwrap_err();
    assert_eq!(refused, DecodeError::UnknownKind { id: 7 });
    let page = with_unknown_tag(&answer_frame(&page()), &KEPT_OF_CHUNK);
    let refused = read_answer(&page).unwrap_err();
    assert_eq!(refused, DecodeError::UnknownKind { id: 7 });
}

#[test]
fn an_unknown_form_and_a_form_of_no_row_are_refused() {
    let frame = answer_frame(&page());
    let at = frame.len() - 2;
    for (place, code) in [(2, 1), (1, 99)] {
        let mut hostile = frame.clone();
        (hostile[at], hostile[at + 1]) = (place, code);
        let refused = read_answer(&hostile);
        assert!(
            matches!(refused, Err(DecodeError::BadField { field: "form", .. })),
            "{refused:?}"
        );
    }
}
